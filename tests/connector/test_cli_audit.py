"""The commands `audit` and `clean`, and what `report` shares with them, over golden buckets."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.storage.store_uploads import temporary_path
from tests.support.command_line import (
    FOUND,
    STORAGE,
    UNREADABLE,
    USAGE,
    Row,
    cells,
    lines_of,
    run,
    store_arguments,
)
from tests.support.damage import flipped
from tests.support.golden import golden_topic
from tests.support.owned_bucket import ANSWER_FILES, OTHER_UUID, SMALL, OwnedBucket, copy_metadata
from tests.support.s3_server import SECRET_KEY, S3Server, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CHUNKED: Final = golden_topic("small-chunked")
NOTHING: Final = "7 topics with 3 partitions, 29 ledgers: nothing found\n"
LEDGERS: Final = 29


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


def arguments(bucket: OwnedBucket, metadata: object = None) -> tuple[str, ...]:
    """The bucket, and its metadata or another."""
    return str(bucket.objects), "--metadata", str(metadata or bucket.metadata), "--one-cluster"


def audited(bucket: OwnedBucket, *options: str, ends: int) -> list[Row]:
    """What `audit` finds, as JSON."""
    return lines_of("audit", *arguments(bucket), *options, ends=ends)


# audit


def test_audit_of_a_sound_bucket(bucket: OwnedBucket) -> None:
    """Nothing is found, nothing is said beside it, and the exit code is 0."""
    result = run("audit", *arguments(bucket))

    assert (result.stdout, result.stderr) == (NOTHING, "")
    assert audited(bucket, ends=0) == []


def test_partitions_are_counted_one_way(bucket: OwnedBucket, tmp_path: Path) -> None:
    """What is listed as one topic with its partitions is one wherever topics are counted."""
    rows = lines_of("topics", str(bucket.objects))
    saved = run("save", str(bucket.objects), str(tmp_path / "catalog.json.gz"))

    partitions = sum(row["partitions"] for row in rows)
    told = f"{len(rows)} topics with {partitions} partitions, 29 ledgers"
    assert f"{told}: nothing found\n" == NOTHING
    assert saved.stdout.startswith(f"{told} saved to ")


def test_audit_tells_what_it_finds(bucket: OwnedBucket) -> None:
    """A line a finding; what costs only money ends with 7, what costs messages with 5."""
    double = bucket.copy_ledger(CHUNKED.ledgers[0])
    table = run("audit", *arguments(bucket), ends=FOUND)
    [found] = audited(bucket, ends=FOUND)
    bucket.delete(CHUNKED.ledgers[1].index_object.name)
    kinds = [row["kind"] for row in audited(bucket, ends=UNREADABLE)]

    assert found["objects"] == [double.index_name, double.data_name]
    assert (found["kind"], found["deletable"], found["is_loss"]) == ("double", True, False)
    header, row = cells(table.stdout)
    assert dict(zip(header, row, strict=True))["objects"] == ", ".join(found["objects"])
    assert "1 finding, 0 of them losses; " in table.stdout
    assert sorted(kinds) == ["data without index", "double", "missing"]


def test_audit_without_metadata_says_so(bucket: OwnedBucket) -> None:
    """What the bucket alone shows is all that is found."""
    result = run("audit", str(bucket.objects))

    assert result.stdout == NOTHING
    assert result.stderr == "note: no metadata of the topics: missing ledgers cannot be found\n"


def test_audit_with_a_snapshot_looks_at_the_bucket(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The metadata is that of the snapshot, from a time that is told; the bucket is as it is."""
    snapshot = str(tmp_path / "catalog.json.gz")
    run("save", str(bucket.objects), snapshot, "--metadata", str(bucket.metadata))
    sound = run("audit", *arguments(bucket, snapshot))
    bucket.delete(CHUNKED.ledgers[0].data_object.name, CHUNKED.ledgers[0].index_object.name)
    bucket.write("backup.tar", b"foreign")
    page = tmp_path / "report.html"

    found = run("audit", *arguments(bucket, snapshot), "--json", ends=UNREADABLE)
    run("report", *arguments(bucket, snapshot), "--output", str(page))

    kinds = [json.loads(line)["kind"] for line in found.stdout.splitlines()]
    assert sorted(kinds) == ["foreign", "missing"]
    assert "backup.tar" in page.read_text("utf-8")
    taken = bucket.catalog(metadata=snapshot).listed_at
    for each in (sound, found):
        assert each.stderr == (
            f"note: the metadata is a catalog snapshot of {taken:%F %T} UTC, which lacks newer"
            " ledgers\n"
        )
    assert sound.stdout == NOTHING


# The deletion lag


def test_copies_of_which_nothing_is_told(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The admin API's answers do not tell when ledgers were offloaded: a note says of how many."""
    answers = copy_metadata(SMALL, tmp_path / "answers", ANSWER_FILES)

    asked = run("audit", *arguments(bucket, answers), "--deletion-lag", "1s")
    not_asked = run("audit", *arguments(bucket, answers))

    assert asked.stdout == not_asked.stdout == NOTHING
    told = (
        f"note: the metadata of {LEDGERS} offloaded ledgers does not record whether BookKeeper"
        " still has a copy, or the time of the offload\n"
    )
    assert asked.stderr.replace(not_asked.stderr, "") == told
    assert told not in not_asked.stderr


# Reading everything


def test_verification_goes_on_where_it_was(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Each ledger is told once it is read, and one that was sound is not read again."""
    journal = tmp_path / "journal.jsonl"
    damaged = CHUNKED.ledgers[0].data_object
    data = damaged.read_bytes()
    bucket.write(damaged.name, flipped(data, len(data) - 1, 1))
    options = ("--verify", "--journal", str(journal), "--verbose")

    first = run("audit", *arguments(bucket), *options, "--json", ends=UNREADABLE)
    bucket.write(damaged.name, data)
    second = run("audit", *arguments(bucket), *options)

    [found] = [json.loads(line) for line in first.stdout.splitlines()]
    assert (found["kind"], found["objects"], found["is_loss"]) == ("damage", [damaged.name], True)
    assert first.stderr.count("verified: ") == LEDGERS
    assert (
        f"{damaged.name}, {CHUNKED.ledgers[0].entry_count - 1} entries, 1 problem" in first.stderr
    )
    assert second.stdout == NOTHING
    entries = CHUNKED.ledgers[0].entry_count
    assert second.stderr.endswith(f": {damaged.name}, {entries} entries, sound\n")
    assert second.stderr.count("verified: ") == 1


def test_verification_is_summed_up_for_logs(bucket: OwnedBucket) -> None:
    """Without a terminal, one line says what was read and found."""
    data = CHUNKED.ledgers[0].data_object.read_bytes()
    bucket.write(CHUNKED.ledgers[0].data_object.name, flipped(data, len(data) - 1, 1))

    told = run("audit", *arguments(bucket), "--verify", ends=UNREADABLE).stderr

    lines = [line for line in told.splitlines() if line.startswith("verified: ")]
    assert len(lines) == 1
    assert re.fullmatch(rf"verified: {LEDGERS} ledgers, \d+ entries, 1 problem", lines[0])


def test_verification_keeps_statistics(bucket: OwnedBucket, tmp_path: Path) -> None:
    """So `analyze` has nothing left to read; without --verify they are refused."""
    folder = str(tmp_path / "statistics")

    run("audit", *arguments(bucket), "--verify", "--statistics", folder)

    told = run("analyze", *arguments(bucket)[:3], "--statistics", folder).stdout
    assert told.startswith("analyzed 0 ledgers")
    refused = run("audit", *arguments(bucket), "--statistics", folder, ends=USAGE)
    assert "--statistics requires --verify" in refused.stderr


def test_journal_is_opened_before_anything_is_read(tmp_path: Path) -> None:
    """A place where no journal can be is told at once, also where there is no bucket."""
    nowhere = str(tmp_path / "no-bucket")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("my only copy of something")
    for path, said in (
        (tmp_path, "Is a directory"),
        (tmp_path / "no" / "such" / "journal", "No such file or directory"),
        (bad, "is not a verification journal"),
    ):
        result = run("audit", nowhere, "--verify", "--journal", str(path), ends=USAGE)
        assert said in result.stderr
        assert result.stderr.startswith("error: ")
    run("audit", nowhere, "--verify", "--journal", str(tmp_path / "journal"), ends=STORAGE)
    assert "requires --verify" in run("audit", nowhere, "--journal", str(bad), ends=USAGE).stderr
    assert bad.read_text() == "my only copy of something"


# clean


def test_clean_deletes_only_with_yes(bucket: OwnedBucket) -> None:
    """Without it the same is told, and every object stays."""
    double = bucket.copy_ledger(CHUNKED.ledgers[0])
    bucket.write(temporary_path(f"{OTHER_UUID}-ledger-15", "0123456789abcdef"), b"cut off")
    before = sorted(path.name for path in bucket.objects.iterdir())

    age = ("--safety-age", "1h")
    would = run("clean", *arguments(bucket), *age)
    assert sorted(path.name for path in bucket.objects.iterdir()) == before
    did = run("clean", *arguments(bucket), *age, "--yes")

    left = {path.name for path in bucket.objects.iterdir()}
    gone = {
        double.index_name,
        double.data_name,
        temporary_path(f"{OTHER_UUID}-ledger-15", "0123456789abcdef"),
    }
    assert set(before) - left == gone
    assert "3 objects, " in would.stdout
    assert would.stdout.endswith(" would be deleted by --yes\n")
    assert did.stdout == would.stdout.replace("would be deleted by --yes", "deleted")
    assert did.stderr.count("deleted: ") == 2
    assert run("audit", *arguments(bucket)).stdout == NOTHING


def test_clean_tells_each_thing_that_it_keeps(bucket: OwnedBucket) -> None:
    """Whatever nobody asked of the metadata too, each with the reason."""
    bucket.write("backup.tar", b"foreign")
    bucket.write(f"{OTHER_UUID}-ledger-99999", b"of no topic")
    double = bucket.copy_ledger(CHUNKED.ledgers[0])
    bucket.unprove(CHUNKED.name)

    result = run("clean", *arguments(bucket), "--yes")

    assert result.stdout == "0 objects, 0 B deleted\n"
    told = sorted(result.stderr.splitlines())
    for line, (what, why) in zip(
        told,
        [
            (f"{double.index_name}, {double.data_name}", "the metadata is not proven"),
            (f"{OTHER_UUID}-ledger-99999", "nothing names its topic"),
            ("backup.tar", "Pulsar's offloaders do not use this object name"),
        ],
        strict=True,
    ):
        assert line.startswith(f"kept: {what}: {why}")


def test_clean_names_the_option_for_a_bucket_of_one_cluster(
    bucket: OwnedBucket, tmp_path: Path
) -> None:
    """What may be another cluster's is kept, and the note says how to tell that there is none."""
    others = tmp_path / "others"
    shutil.copytree(bucket.metadata / CHUNKED.folder.name, others / CHUNKED.folder.name)
    given = (str(bucket.objects), "--metadata", str(others))

    result = run("clean", *given)

    assert "the topic may be another cluster's" in result.stderr
    note = "note: if only this cluster uses the bucket, give --one-cluster to delete these too\n"
    assert result.stderr.endswith(note)
    assert note not in run("clean", *given, "--one-cluster").stderr


def test_clean_needs_metadata_of_now(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Neither the bucket alone nor a snapshot says what is needed."""
    snapshot = str(tmp_path / "catalog.json.gz")
    run("save", str(bucket.objects), snapshot, "--metadata", str(bucket.metadata))

    alone = run("clean", str(bucket.objects), "--yes", ends=USAGE)
    saved = run("clean", *arguments(bucket, snapshot), "--yes", ends=USAGE)

    assert "nothing is deleted without metadata" in alone.stderr
    assert "give the metadata itself" in saved.stderr


# Options


@pytest.mark.parametrize("text", ["999999999w", "7", "", "-1d", "1y", "soon", "1.5h"])
def test_durations_that_are_none(text: str) -> None:
    """They are refused before anything is read, and never a traceback."""
    for name, option in (("clean", "--safety-age"), ("audit", "--deletion-lag")):
        result = run(name, "no/such/bucket", f"{option}={text}", ends=USAGE)
        assert result.stderr.startswith(f"error: {option} ")


# Rights


class DeniedUploads:
    """Stands before a server that lets nobody list multipart uploads."""

    def wrap(self, server: WSGIApplication) -> WSGIApplication:
        """Stand before a server."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            names = environ["QUERY_STRING"].split("&")
            if environ["REQUEST_METHOD"] != "GET" or names[0].partition("=")[0] != "uploads":
                return server(environ, start_response)
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"]

        return answer


@pytest.fixture
def s3_server() -> Iterator[S3Server]:
    """An S3 server on loopback that refuses to list multipart uploads."""
    with running_s3_server(DeniedUploads().wrap) as server:
        yield server


@pytest.mark.s3
def test_without_the_right_to_list_uploads(
    s3_server: S3Server, bucket: OwnedBucket, tmp_path: Path
) -> None:
    """The commands do all the rest, and a note tells what was not looked for."""
    address = s3_server.upload({path.name: path.read_bytes() for path in bucket.objects.iterdir()})
    options = (
        *("--metadata", str(bucket.metadata)),
        *store_arguments(address.storage_options),
    )
    page = tmp_path / "report.html"

    results = [
        run("audit", address.url, *options),
        run("clean", address.url, *options),
        run("report", address.url, *options, "--output", str(page)),
    ]

    for result in results:
        assert result.stderr.startswith("note: unfinished uploads could not be listed: ")
        assert result.stderr.count("\n") == 1
        assert SECRET_KEY not in result.stderr
    assert results[0].stdout == NOTHING
    assert "small-chunked" in page.read_text("utf-8")
