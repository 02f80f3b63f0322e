"""Dead letters that are decoded again: each becomes a row once, or stays, whatever happens."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pyarrow as pa
import pytest

from arrow_io.errors import (
    ConcurrentCopyError,
    CorruptProgressError,
    LakeTableError,
    OptionError,
    PulsarOffloadError,
)
from connector import CopySizes, MaintenanceSettings, copy_topics, reprocess_dead_letters
from connector.lake import reprocessing
from connector.lake.maintenance import maintain
from connector.tables import iceberg, letter_changes
from connector.tables.data_file import DataFile
from connector.tables.dead_letters import POSITION_COLUMNS
from connector.tables.iceberg import IcebergTable
from connector.tables.letter_changes import LetterChange, LetterTable
from connector.tables.parquet import ParquetTable
from connector.tables.table_kinds import KINDS, open_table
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.command_line import USAGE, lines_of, run
from tests.support.faulty_s3 import Fault, S3Faults
from tests.support.golden import GOLDEN
from tests.support.interruption import Interruption
from tests.support.killed_lake_runs import Killed, Killer
from tests.support.lake_copies import (
    COLUMNS,
    SCHEMA,
    in_order,
    letters_target,
    payload_of,
    sound_rows,
    write_topic,
)
from tests.support.lake_kinds import read_back
from tests.support.lake_tables import table_of
from tests.support.latest_rows import write_keyed
from tests.support.s3_server import S3Server, running_s3_server
from tests.support.stopped_iceberg import Killed as KilledIceberg
from tests.support.stopped_iceberg import WatchedCatalog, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from connector import ReprocessSummary
    from connector.tables.evolution import TableKind
    from tests.support.grids import Grid

_SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1)


class Lake:
    """A table of a kind in a folder, with a table of dead letters."""

    def __init__(
        self,
        folder: Path,
        kind: TableKind,
        catalog: WatchedCatalog | None = None,
        *,
        target: str | None = None,
        target_options: dict[str, Any] | None = None,
    ) -> None:
        self.kind, self.catalog = kind, catalog
        self.options = target_options
        self.target = target or ("shop.t" if kind == "iceberg" else str(folder / "t"))

    def copy(self, bucket: MemoryBucket, **options: Any) -> Any:  # noqa: ANN401
        """Copy, by default by a schema that decodes no value."""
        given: dict[str, Any] = {"schema": "INT64", "dead_letters": True, "format": self.kind}
        given["target_options"] = self.options
        [summary] = copy_topics(bucket.url, TOPIC, self.target, **(given | options))
        return summary

    def reprocess(self, **options: Any) -> ReprocessSummary:  # noqa: ANN401
        """Decode the letters again."""
        given: dict[str, Any] = {"schema": SCHEMA, "format": self.kind} | options
        given["target_options"] = self.options
        return reprocess_dead_letters(self.target, **given)

    def table(self, target: str) -> Any:  # noqa: ANN401
        """A table; of Iceberg, one that the watched catalog has."""
        if self.catalog is not None:
            return IcebergTable(self.catalog, target)
        return open_table(self.kind, target, self.options, None)

    def rows(self) -> list[dict[str, Any]]:
        """The rows."""
        return in_order(_all_rows(self.table(self.target)))

    def letters(self) -> list[bytes]:
        """The bytes of the letters."""
        table = _all_rows(self.table(letters_target(self.target)))
        return [each["__value__"] for each in in_order(table)] if table.num_columns else []

    def check(self, bucket: MemoryBucket) -> None:
        """Check that each message is a row or a letter."""
        rows, dead = sound_rows(bucket.url)
        assert [{name: row[name] for name in COLUMNS} for row in self.rows()] == rows
        assert self.letters() == dead


def _all_rows(table: Any) -> pa.Table:  # noqa: ANN401
    """The rows of a table, in any store."""
    return read_back(table) if isinstance(table, IcebergTable) else table_of(table)


@pytest.fixture
def source() -> Iterator[MemoryBucket]:
    """A bucket with a topic of three ledgers, in which some values are no JSON."""
    bucket = MemoryBucket()
    write_topic(bucket.url, range(13), with_odd=True)
    yield bucket
    bucket.drop()


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedCatalog]:
    """The Iceberg catalog that is found by any name."""
    catalog = WatchedCatalog(tmp_path)
    monkeypatch.setattr(iceberg, "load_catalog", lambda *_, **__: catalog)
    yield catalog
    catalog.close()


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, catalog: WatchedCatalog) -> Lake:
    """A lake of each kind."""
    kind: TableKind = request.param
    return Lake(tmp_path, kind, catalog if kind == "iceberg" else None)


@pytest.fixture
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commits move the letters of the source."""
    monkeypatch.setattr(reprocessing, "_STEP_ROWS", 8)


def test_letters_become_rows(lake: Lake, source: MemoryBucket) -> None:
    """Those that can be decoded, once, without the bucket; the others stay with their reason."""
    copied = lake.copy(source, sizes=_SMALL)
    assert (copied.dead_letters, copied.files) == (13, 0)
    counted = lake.reprocess(dry_run=True)
    assert (counted.rows, counted.commits) == (12, 0)
    assert len(lake.letters()) == 13

    expected = sound_rows(source.url)
    source.drop()
    summary = lake.reprocess()
    assert (summary.rows, summary.commits, summary.superseded) == (12, 1, 0)
    assert summary.remaining == {"the payload is not JSON": 1}
    assert summary.notices == []
    assert [{name: row[name] for name in COLUMNS} for row in lake.rows()] == expected[0]
    assert lake.letters() == expected[1]
    again = lake.reprocess()
    assert (again.rows, again.commits, again.remaining.total()) == (0, 0, 1)


def test_copies_continue(lake: Lake, source: MemoryBucket) -> None:
    """Copies before, between and after them, with dead letters or without, lose nothing."""
    lake.copy(source)
    write_topic(source.url, range(13, 27), with_odd=True, append=True)
    lake.copy(source, schema=SCHEMA)
    lake.reprocess()
    lake.check(source)
    write_topic(source.url, range(27, 33), append=True)
    lake.copy(source, schema=SCHEMA, dead_letters=False)
    lake.reprocess()
    lake.check(source)


def test_many_steps(lake: Lake, source: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a commit, and no letter is examined twice."""
    monkeypatch.setattr(reprocessing, "_STEP_ROWS", 2)
    lake.copy(source)
    summary = lake.reprocess()
    assert (summary.rows, summary.remaining.total()) == (12, 1)
    assert summary.commits > 3
    lake.check(source)


@pytest.fixture(scope="module")
def faults() -> S3Faults:
    """What goes wrong with an S3 server."""
    return S3Faults()


@pytest.fixture(scope="module")
def server(faults: S3Faults) -> Iterator[S3Server]:
    """An S3 server."""
    with running_s3_server(faults.wrap) as server:
        yield server


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("parquet", Fault.LOST_ANSWER),
        pytest.param("delta", Fault.LOST_ANSWER, marks=pytest.mark.exhaustive),
        pytest.param("parquet", Fault.ERROR_500, marks=pytest.mark.exhaustive),
        pytest.param("delta", Fault.ERROR_500, marks=pytest.mark.exhaustive),
    ],
)
def test_any_request_to_s3_may_fail(
    kind: TableKind,
    fault: Fault,
    *,
    grid: Grid,
    source: MemoryBucket,
    server: S3Server,
    faults: S3Faults,
) -> None:
    """Done though no answer came, or not done: each message is a row or a letter."""

    def prepared() -> Lake:
        faults.heal()
        target = f"s3://{server.new_bucket()}/t"
        lake = Lake(Path(), kind, target=target, target_options=server.storage_options)
        lake.copy(source)
        faults.heal()
        return lake

    prepared().reprocess()
    steps = [
        step
        for step, request in enumerate(faults.requests, 1)
        if fault is Fault.ERROR_500 or not request.startswith(("GET", "HEAD"))
    ]
    assert len(steps) > 3
    for step in grid.of(steps, count=4):
        lake = prepared()
        faults.plan(fault, first=step)
        with suppress(PulsarOffloadError):
            lake.reprocess()
        faults.heal()
        lake.reprocess()
        lake.check(source)


def kill_at_requests(
    kind: TableKind,
    source: MemoryBucket,
    grid: Grid,
    folder: Path,
    **options: Any,  # noqa: ANN401
) -> None:
    """Kill at each request, then run again what is meant to follow."""
    steps = grid.steps()
    for step in steps:
        lake = Lake(folder / str(step), kind)
        lake.copy(source)
        with pytest.MonkeyPatch.context() as patches:
            killer = Killer(patches, step)
            try:
                lake.reprocess()
            except Killed:
                killer.revive()
                if options:
                    lake.copy(source, schema=SCHEMA, **options)
                lake.reprocess()
            else:
                steps.passed()
        lake.check(source)
    assert steps.count >= 5


@pytest.mark.usefixtures("_few_rows")
@pytest.mark.parametrize("follows", ["nothing", "copy", "copy-without-letters"])
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_killed_at_any_request(
    kind: TableKind,
    follows: str,
    grid: Grid,
    source: MemoryBucket,
    tmp_path: Path,
) -> None:
    """Whichever request is the last one, a copy and the next run have each message once."""
    options = {} if follows == "nothing" else {"dead_letters": follows == "copy"}
    kill_at_requests(kind, source, grid, tmp_path, **options)


@pytest.mark.parametrize(
    "what",
    [
        "killed",
        pytest.param("overtaken", marks=pytest.mark.exhaustive),
        pytest.param("copied", marks=pytest.mark.exhaustive),
    ],
)
def test_at_each_request_of_iceberg(
    what: str,
    grid: Grid,
    source: MemoryBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run is killed, or another run or a copy is quicker."""
    steps = grid.steps()
    for step in steps:
        folder = tmp_path / str(step)
        folder.mkdir()
        catalog = WatchedCatalog(folder)
        monkeypatch.setattr(iceberg, "load_catalog", lambda *_, own=catalog, **__: own)
        lake = Lake(folder, "iceberg", catalog)
        lake.copy(source)
        happened: list[int] = []

        def happen(number: int, step: int = step, happened: list[int] = happened) -> None:
            if number >= step:
                happened.append(number)
                if what == "killed":
                    raise KilledIceberg
                if number == step and what == "overtaken":
                    lake.reprocess()  # noqa: B023 - not called later
                elif number == step:
                    lake.copy(source, schema=SCHEMA)  # noqa: B023 - likewise

        if what == "copied":
            write_topic(source.url, range(step * 20, step * 20 + 6), append=True)
        with watched(happen), suppress(KilledIceberg, ConcurrentCopyError):
            lake.reprocess()
        lake.reprocess()
        lake.copy(source, schema=SCHEMA)
        lake.check(source)
        catalog.close()
        if not happened:
            steps.passed()
    assert steps.count > 8


@pytest.mark.parametrize(
    ("kind", "what", "code"),
    [
        pytest.param(
            kind,
            what,
            code,
            # The quickest stands for all by default.
            marks=()
            if (kind, what, code) == ("parquet", "reprocess", letter_changes)
            else pytest.mark.exhaustive,
        )
        for kind in ("delta", "parquet")
        for what in ("reprocess", "copy", "maintain")
        for code in (letter_changes, reprocessing)
    ],
)
def test_interrupted_at_each_line(
    kind: TableKind, what: str, code: ModuleType, tmp_path: Path
) -> None:
    """Another run, a copy or maintenance comes before each line that calls anything."""
    lines: set[tuple[str, int]] = set()
    for attempt in range(200):
        bucket = MemoryBucket()
        write_topic(bucket.url, range(4, 11), with_odd=True)
        lake = Lake(tmp_path / str(attempt), kind)
        lake.copy(bucket, sizes=_SMALL)
        write_topic(bucket.url, range(11, 14), append=True)

        def interrupt(bucket: MemoryBucket = bucket, lake: Lake = lake) -> None:
            if what == "reprocess":
                lake.reprocess()
            elif what == "copy":
                lake.copy(bucket, schema=SCHEMA)
            else:
                for target in (lake.target, letters_target(lake.target)):
                    settings = MaintenanceSettings(min_files=2)
                    maintain(lake.table(target), kind, settings, datetime.now(UTC))

        with (
            Interruption([str(code.__file__)], lines, interrupt) as interruption,
            suppress(ConcurrentCopyError),
        ):
            lake.reprocess()
        lake.reprocess()
        lake.copy(bucket, schema=SCHEMA)
        lake.check(bucket)
        bucket.drop()
        if not interruption.is_over:
            break
    assert len(lines) > 20
    assert attempt == len(lines)


_GOLDEN: Final = (
    "avro-evolved",
    "avro-logical",
    "json-orders",
    "kv-avro-separated",
    "kv-json-inline",
    "kv-string-avro-separated",
    "partitioned",
    "protobuf-native",
)


@pytest.mark.parametrize("name", _GOLDEN)
def test_letters_decode_as_messages_do(name: str, tmp_path: Path) -> None:
    """Rows of a broker's messages are those that a copy by the right schema writes."""
    folder = GOLDEN / "pulsar-4.0.7"
    url, kind = str(folder / "objects"), KINDS[-1]
    targets = [str(tmp_path / each) for each in ("wrong", "right")]
    given: dict[str, Any] = {"format": kind, "dead_letters": True, "metadata": str(folder)}
    [wrong] = copy_topics(url, name, targets[0], schema="BOOLEAN", **given)
    copy_topics(url, name, targets[1], **given)
    assert wrong.dead_letters > 2
    letters = read_back(open_table(kind, letters_target(targets[0]), None, None))
    positions = {tuple(each.values()) for each in letters.select(POSITION_COLUMNS).to_pylist()}

    summary = reprocess_dead_letters(targets[0], format=kind, schema=str(_schema(folder, name)))
    assert (summary.rows, summary.remaining.total()) == (wrong.dead_letters, 0)
    moved, expected = (in_order(read_back(open_table(kind, t, None, None))) for t in targets)
    names = list(expected[0])
    assert [
        {each: row[each] for each in names}
        for row in moved
        if tuple(row[each] for each in POSITION_COLUMNS) in positions
    ] == [row for row in expected if tuple(row[each] for each in POSITION_COLUMNS) in positions]


def _schema(folder: Path, name: str) -> Path:
    """The file with the schemas of a topic."""
    folders = (folder / f"public__default__{name}", folder / f"public__default__{name}-partition-0")
    return next(each / "schemas-rest.json" for each in folders if each.is_dir())


def _record(**types: object) -> dict[str, str]:
    fields = [{"name": name, "type": each} for name, each in types.items()]
    return {
        "type": "JSON",
        "schema": json.dumps({"type": "record", "name": "R", "fields": fields}),
    }


_NUMBERS: Final = _record(number="long")
_TEXTS: Final = _record(text="string")
_KEYED: Final = [
    ("a", 1),
    ("b", 2),
    ("a", "3"),
    ("b", "4"),
    ("c", "5"),
    ("b", 6),
    ("d", 7),
    ("d", "8"),
    ("d", None),
    (None, "9"),
    ("e", "10"),
    ("e", "11"),
]
"""Keys and values. Texts are dead letters by the first schema."""


@pytest.mark.parametrize("lake", ["delta", "iceberg"], indirect=True)
@pytest.mark.parametrize("has_missing", [False, True])
def test_the_latest_row_of_each_key(lake: Lake, *, has_missing: bool, bucket: MemoryBucket) -> None:
    """A letter replaces an older row of its key, never a newer one; a deleted key by choice."""
    values: list[tuple[str | None, bytes | None]] = []
    for key, value in _KEYED:
        fields = {"number": value} if isinstance(value, int) else {"number": [], "text": value}
        values.append((key, None if value is None else json.dumps(fields).encode()))
    write_keyed(bucket.url, values)
    lake.copy(bucket, schema=_NUMBERS, latest_per_key=True)
    assert {row["__key__"]: row["number"] for row in lake.rows()} == {"a": 1, "b": 6}

    summary = lake.reprocess(schema=_TEXTS, insert_missing_keys=has_missing)
    rows = {row["__key__"]: row.get("text") or row["number"] for row in lake.rows()}
    assert summary.replaced == 1
    if has_missing:
        assert rows == {"a": "3", "b": 6, "c": "5", "d": "8", "e": "11"}
        assert (summary.rows, summary.superseded, summary.remaining.total()) == (4, 3, 0)
    else:
        assert rows == {"a": "3", "b": 6}
        assert (summary.rows, summary.superseded, summary.remaining.total()) == (1, 2, 4)
    assert len(lake.letters()) == summary.remaining.total()
    # Rows that are copied later replace those of letters.
    write_keyed(bucket.url, [("a", b'{"number": 12}'), ("e", None)], append=True)
    lake.copy(bucket, schema=_NUMBERS, latest_per_key=True)
    lake.reprocess(schema=_TEXTS)
    rows = {row["__key__"]: row.get("text") or row["number"] for row in lake.rows()}
    assert rows["a"] == 12
    assert "e" not in rows


def test_a_table_without_positions(tmp_path: Path, bucket: MemoryBucket) -> None:
    """Nothing tells whether its rows are newer than a letter."""
    lake = Lake(tmp_path, "delta")
    write_keyed(bucket.url, [("a", b'{"number": 1}'), ("b", b'{"number": []}')])
    lake.copy(bucket, schema=_NUMBERS, latest_per_key=True, columns=["__key__", "number"])
    with pytest.raises(LakeTableError, match="no column __ledger_id__"):
        lake.reprocess(schema=_TEXTS)


def test_columns_that_letters_do_not_record(tmp_path: Path, source: MemoryBucket) -> None:
    """They are null, which a notice says; requested columns are written, and no other."""
    lake = Lake(tmp_path, "parquet")
    lake.copy(source, columns=["__producer_name__", "__partition__", "__value__"])
    summary = lake.reprocess(columns=["__partition__", "number"])
    [notice] = summary.notices
    assert "do not record __producer_name__" in notice
    rows = read_back(lake.table(lake.target)).to_pylist()
    assert {tuple(row) for row in rows} == {
        ("__producer_name__", "__partition__", "__value__", "number")
    }
    assert {row["__partition__"] for row in rows} == {-1}
    assert {row["__producer_name__"] for row in rows} == {None}


def test_values_may_stay_bytes(tmp_path: Path, source: MemoryBucket) -> None:
    """Then each letter becomes a row."""
    lake = Lake(tmp_path, "parquet")
    lake.copy(source, schema=SCHEMA)
    summary = lake.reprocess(schema=None, value="raw")
    assert (summary.rows, summary.remaining.total(), lake.letters()) == (1, 0, [])
    assert sum(row["__value__"] is not None for row in lake.rows()) == 1


def test_refusals(tmp_path: Path, source: MemoryBucket) -> None:
    """Options of other purposes, no schema, no table, and types that the table cannot have."""
    lake = Lake(tmp_path, "delta")
    with pytest.raises(LakeTableError, match="not a table that topics are copied to"):
        lake.reprocess()
    write_keyed(source.url, [("k", b'{"number": "text"}')], append=True)
    lake.copy(source, schema=SCHEMA)
    with pytest.raises(OptionError, match="start does not concern dead letters"):
        lake.reprocess(start="2024-01-01")
    with pytest.raises(OptionError, match="give schema, or value"):
        lake.reprocess(schema=None)
    with pytest.raises(LakeTableError, match="cannot change column number"):
        lake.reprocess(schema=_record(number="string"))
    assert len(lake.letters()) == 2


def test_a_table_of_letters_that_was_deleted(tmp_path: Path, source: MemoryBucket) -> None:
    """The next letters begin a new one."""
    lake = Lake(tmp_path, "delta")
    lake.copy(source)
    shutil.rmtree(letters_target(lake.target))
    assert lake.reprocess().rows == 0
    write_topic(source.url, range(20, 23), append=True)
    lake.copy(source)
    assert len(lake.letters()) == 3
    assert lake.reprocess().rows == 3


def test_a_table_that_was_restored(tmp_path: Path, source: MemoryBucket) -> None:
    """Rows are copied again, and each letter is in its table once."""
    lake = Lake(tmp_path, "delta")
    lake.copy(source, sizes=_SMALL)
    letters = lake.letters()
    deltalake.DeltaTable(lake.target).restore(0)
    assert lake.copy(source, sizes=_SMALL).commits > 1
    assert lake.letters() == letters
    lake.reprocess()
    lake.check(source)


def test_a_change_in_the_progress_is_checked() -> None:
    """It is read back, and refused if it was modified."""
    change = LetterChange(3, (DataFile("a", 1, 2),), ((TOPIC, 1, 2, -1), (TOPIC, 1, 3, 0)))
    text = change.add_to('{"version":1}')
    assert LetterChange.from_progress(text) == change
    assert LetterChange.from_progress(LetterChange(4).add_to(text)) == LetterChange(4)
    assert LetterChange().add_to("{}") == "{}"
    for old, new in (('"number":3', '"number":4'), ('"moved":{', '"moved":[]}x{'), ("[2,", "[9,")):
        with pytest.raises(CorruptProgressError):
            LetterChange.from_progress(text.replace(old, new, 1))


@pytest.mark.parametrize("content", ["[]", "no JSON", '{"dead_letters":{"crc32":1}}'])
def test_a_progress_that_was_changed(
    content: str, tmp_path: Path, source: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the table."""
    lake = Lake(tmp_path, "parquet")
    lake.copy(source)
    read = ParquetTable.read_state

    def changed(table: ParquetTable) -> Any:  # noqa: ANN401
        state = read(table)
        return None if state is None else replace(state, progress=content)

    monkeypatch.setattr(ParquetTable, "read_state", changed)
    with pytest.raises(CorruptProgressError, match=f"stored in {lake.target}"):
        lake.reprocess()


@pytest.mark.parametrize("step", ["_rewrite", "send_commit"])
def test_a_version_lacks_no_message(
    step: str,
    lake: Lake,
    source: MemoryBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although the letters do not have the last change yet, which added or moved some."""
    lake.copy(source)
    write_topic(source.url, range(20, 23), append=True)

    def stop(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patches:
        if step == "_rewrite":
            patches.setattr(letter_changes.LetterTable, step, stop)
            with pytest.raises(Killed):
                lake.reprocess()
        else:
            patches.setattr(letter_changes, step, stop)
            with pytest.raises(Killed):
                lake.copy(source)
    letters = LetterTable(lake.table(letters_target(lake.target)), lake.kind, 1 << 20)
    state, letter_state, change = letters.read_versions(lake.table(lake.target))
    assert state is not None
    assert not change.is_empty
    found = [pa.Table.from_batches([each]) for each in letters.read(letter_state, change)]
    values = pa.concat_tables(each.select(["__value__"]) for each in found).column(0).to_pylist()
    dead = sound_rows(source.url)[1]
    expected = dead if step == "_rewrite" else [payload_of(n) for n in (20, 21, 22)]
    assert set(expected) <= set(values)
    assert len(values) == (1 if step == "_rewrite" else 16)
    files = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*") if each.is_file()}
    assert lake.reprocess(dry_run=True).rows == len(values) - 1
    after = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*") if each.is_file()}
    assert after == files

    lake.reprocess()
    state, _, change = letters.read_versions(lake.table(lake.target))
    assert change.is_empty
    lake.copy(source, schema=SCHEMA)
    lake.check(source)


def test_letters_of_a_stopped_run_that_were_deleted(
    tmp_path: Path, source: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error as long as their table is there."""
    lake = Lake(tmp_path, "parquet")
    lake.copy(source)
    write_topic(source.url, range(20, 23), append=True)
    before = set(tmp_path.rglob("*.parquet"))
    with monkeypatch.context() as patches:

        def stop(*_: object) -> None:
            raise Killed

        patches.setattr(letter_changes, "send_commit", stop)
        with pytest.raises(Killed):
            lake.copy(source)
    [file] = set(tmp_path.rglob("*.parquet")) - before
    file.unlink()
    with pytest.raises(LakeTableError, match="could add its 3 dead letters"):
        lake.copy(source)
    shutil.rmtree(letters_target(lake.target))
    assert lake.copy(source).rows == 0


def test_the_command(tmp_path: Path, source: MemoryBucket) -> None:
    """It prints what became of the letters."""
    lake = Lake(tmp_path, "parquet")
    lake.copy(source)
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    arguments = ("lake", "reprocess", lake.target, "--format", "parquet", "--schema", str(schema))
    [planned] = lines_of(*arguments, "--dry-run")
    [done] = lines_of(*arguments)
    assert planned | {"commits": 1} == done
    assert (done["rows"], done["remaining"]) == (12, 1)
    assert "1: the payload is not JSON" in run(*arguments).stderr
    run("lake", "reprocess", lake.target, "--format", "parquet", ends=USAGE)
