"""The command `write`: files become a topic, which the other commands read."""

from __future__ import annotations

import contextlib
import re
import shlex
from typing import TYPE_CHECKING
from unittest.mock import Mock, patch

import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import StorageError
from arrow_io.storage.location import Location
from connector.writing.offloader import LedgerOffloader
from tests.support.command_line import USAGE, cells, lines_of, run, store_arguments
from tests.support.offloads import names
from tests.support.s3_server import running_s3_server
from tests.support.stopping_store import Killed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector.cli.output import Status

_TABLE = pa.table({"__key__": ["a", "b"], "__value__": ["one", "two"]})


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    """A Parquet file with two messages."""
    file = tmp_path / "orders.parquet"
    pq.write_table(_TABLE, file)
    return str(file)


def test_files_become_a_topic(tmp_path: Path, parquet: str) -> None:
    """Files of both forms are written one after the other, each with its own columns."""
    arrow = tmp_path / "more.arrow"
    pf.write_feather(pa.table({"__value__": ["three"]}), arrow)
    bucket = str(tmp_path / "bucket")

    (ledger,) = lines_of("write", bucket, "orders", parquet, str(arrow))

    rows = lines_of("head", bucket, "orders", "--value", "raw", "--columns", "__key__,__value__")
    assert [tuple(row.values()) for row in rows] == [("a", "one"), ("b", "two"), (None, "three")]
    assert (ledger["topic"], ledger["ledger_id"]) == ("persistent://public/default/orders", 0)
    assert lines_of("ledgers", bucket, "orders")[0]["uuid"] == ledger["uuid"]


@pytest.mark.parametrize("suffix", [".arrows", ".arrow"])
def test_a_stream_is_a_file_too(tmp_path: Path, suffix: str) -> None:
    """What a program wrote as an Arrow stream is read by what it is, not by its name alone."""
    file = tmp_path / f"orders{suffix}"
    with pa.OSFile(str(file), "wb") as stream, pa.ipc.new_stream(stream, _TABLE.schema) as writer:
        for batch in _TABLE.to_batches(max_chunksize=1):
            writer.write_batch(batch)
    bucket = str(tmp_path / "bucket")

    run("write", bucket, "orders", str(file))

    rows = lines_of("head", bucket, "orders", "--value", "raw", "--columns", "__key__,__value__")
    assert [tuple(row.values()) for row in rows] == [("a", "one"), ("b", "two")]


def test_what_was_written_is_told_in_a_line(tmp_path: Path, parquet: str) -> None:
    """Behind the notes, on stderr, so that stdout is the ledgers alone."""
    bucket = str(tmp_path / "bucket")
    run("write", bucket, "orders", parquet)

    result = run("write", bucket, "orders", parquet, parquet, "--append", "--json")

    note, line = result.stderr.splitlines()
    assert note.startswith("note: Metadata that was saved before")
    assert re.fullmatch(
        r"wrote: 4 messages of 2 files in 1 ledger, \d+ B of entries, \d+\.\d\d s", line
    )
    assert len(result.stdout.splitlines()) == 1


def test_a_write_that_was_repeated_says_that_nothing_was_written(
    tmp_path: Path, parquet: str
) -> None:
    """In a note alone, whether the first run ended or had its ledgers left to publish."""
    bucket = str(tmp_path / "bucket")
    first = ["write", bucket, "orders", parquet, "--write-id", "d1", "--append"]
    with patch.object(LedgerOffloader, "publish", side_effect=Killed), pytest.raises(Killed):
        run(*first)

    for _ in range(2):
        result = run(*first)

        assert "nothing was written now" in result.stderr
        assert "wrote:" not in result.stderr

    assert len(lines_of("head", bucket, "orders", "--value", "raw")) == 2


def test_progress_tells_what_was_taken(
    tmp_path: Path, parquet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many messages, and of which file, while they are written."""
    lines: list[str] = []

    @contextlib.contextmanager
    def spy(_trace: object, *, status: Status) -> Iterator[None]:
        lines.append(status.text())
        yield
        lines.append(status.text())

    monkeypatch.setattr("connector.cli.writing.progress", spy)

    run("write", str(tmp_path / "bucket"), "orders", parquet, parquet)

    assert lines == ["writing … 0 messages, file 0 of 2", "writing … 4 messages, file 2 of 2"]


def test_writing_is_summed_up_for_logs(tmp_path: Path, parquet: str) -> None:
    """Without a terminal, ledgers are listed with --verbose and for programs only."""
    bucket, limits = str(tmp_path / "bucket"), ("--ledger-entries", "1", "--batch-messages", "1")

    short = run("write", bucket, "orders", parquet, *limits).stdout
    whole = run("write", bucket, "others", parquet, *limits, "--verbose").stdout
    listed = lines_of("write", bucket, "more", parquet, *limits)

    assert len(listed) == len(cells(whole)) - 1 > 1
    [names, row] = cells(short)
    assert names == ["topic", "ledgers", "entries", "bytes"]
    assert row == [
        "persistent://public/default/orders",
        str(len(listed)),
        *(str(sum(each[name] for each in listed)) for name in ("entries", "bytes")),
    ]


def test_a_value_that_cannot_be_cast_is_found(tmp_path: Path, parquet: str) -> None:
    """The error names file, row and column."""
    file = tmp_path / "more.parquet"
    pq.write_table(pa.table({"__value__": ["v", "w"], "__sequence_id__": ["7", "seven"]}), file)
    bucket = tmp_path / "bucket"

    result = run("write", str(bucket), "orders", parquet, str(file), ends=USAGE)

    assert all(each in result.stderr for each in (str(file), "__sequence_id__, row 1", "'seven'"))
    assert not bucket.exists()


def test_a_clusters_metadata_asks_for_ids(tmp_path: Path, parquet: str) -> None:
    """Who names a cluster is told what its ids must be, before anything is written."""
    options = ["--cluster", "west", "--metadata-folder", str(tmp_path / "metadata")]

    result = run("write", str(tmp_path / "bucket"), "orders", parquet, *options, ends=USAGE)

    assert "--first-ledger-id" in result.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["orders.parquet"]
    run("write", str(tmp_path / "bucket"), "orders", parquet, *options, "--first-ledger-id", "9")


def test_options_reach_the_writer(tmp_path: Path, parquet: str) -> None:
    """A partitioned topic with a schema and metadata is read with both."""
    bucket, metadata = str(tmp_path / "bucket"), str(tmp_path / "metadata")
    options = shlex.split("--schema string --partitions 2 --batch-messages 1 --compression zstd")

    table = run(
        "write", bucket, "orders", parquet, *options, "--first-ledger-id", "7",
        "--metadata-folder", metadata, "--broker-metadata", "--verbose",
    ).stdout  # fmt: skip

    rows = lines_of(
        "query", bucket, "SELECT __value__ FROM orders ORDER BY 1", "--metadata", metadata
    )
    assert [row[1:2] for row in cells(table)] == [["ledger_id"], ["7"], ["8"]]
    assert rows == [{"__value__": "one"}, {"__value__": "two"}]


def test_more_is_written_to_a_topic_only_if_asked_for(tmp_path: Path, parquet: str) -> None:
    """Without --append, a topic that is there is refused in one line."""
    bucket = str(tmp_path / "bucket")
    run("write", bucket, "orders", parquet)

    refused = run("write", bucket, "orders", parquet, ends=USAGE).stderr
    (ledger,) = lines_of("write", bucket, "orders", parquet, "--append")

    assert "give --append" in refused
    assert len(refused.splitlines()) == 1
    assert ledger["ledger_id"] == 1


def test_a_warning_is_a_note(tmp_path: Path, parquet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong without harm goes to stderr, behind what was done."""
    monkeypatch.setattr(
        Location, "unfinished_uploads", Mock(side_effect=StorageError("access denied"))
    )

    result = run("write", str(tmp_path / "bucket"), "orders", parquet)

    assert result.stderr.startswith("note: unfinished uploads could not be cleaned up")


@pytest.mark.s3
def test_options_of_the_metadata_folder(tmp_path: Path, parquet: str) -> None:
    """The folder may be in another store than the bucket, with options of its own."""
    with running_s3_server() as server:
        folder = f"s3://{server.new_bucket()}"
        options = store_arguments(server.storage_options, "--metadata-option")

        run(
            "write", str(tmp_path / "bucket"), "orders", parquet, "--metadata-folder", folder,
            *options,
        )  # fmt: skip

        written = Location(f"{folder}/public__default__orders", server.storage_options)
        assert "managed-ledger-info.bin" in names(written)


def test_a_schema_without_fields_is_named(tmp_path: Path) -> None:
    """Columns that no schema has are told with what the schema is."""
    table = tmp_path / "columns.parquet"
    pq.write_table(pa.table({"a": [1]}), table)
    schema = '{"type": "AVRO", "data": "\\"long\\""}'

    result = run("write", str(tmp_path / "b"), "orders", str(table), "--schema", schema, ends=USAGE)

    assert "unknown columns: a" in result.stderr
    assert "of type AVRO" in result.stderr


def test_the_example_of_the_help_runs(
    tmp_path: Path, parquet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help ends with an example, for a file that the user has."""
    monkeypatch.chdir(tmp_path)
    *_, example = run("write", "--help").stdout.rstrip().splitlines()
    program, *arguments = shlex.split(example)

    assert (program, arguments[-1]) == ("pulsar-offload", parquet.rpartition("/")[2])
    assert len(run(*arguments).stdout.splitlines()) > 3


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("orders.csv", b"a,b", "must end with"),
        ("absent.parquet", None, "does not exist"),
        ("broken.parquet", b"no Parquet", "cannot be read"),
        ("broken.arrow", b"", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, parquet: str, name: str, content: bytes | None, reason: str
) -> None:
    """Nothing is left of the files before it, and the message is one line."""
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    bucket = tmp_path / "bucket"

    result = run("write", str(bucket), "orders", parquet, str(file), ends=USAGE)

    assert reason in result.stderr
    assert name in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not bucket.exists()
