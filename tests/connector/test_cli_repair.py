"""The command `repair`, over a golden bucket that index objects are missing of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.command_line import UNREADABLE, USAGE, cells, lines_of, run
from tests.support.golden import golden_topic
from tests.support.owned_bucket import OwnedBucket
from tests.support.streamed_topics import metadata_of
from tests.support.streaming import save_metadata, stream_ledgers

if TYPE_CHECKING:
    from pathlib import Path

_LEDGER: Final = golden_topic("small-chunked").ledgers[1]


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set without one of its index objects."""
    bucket = OwnedBucket.copied(tmp_path)
    bucket.delete(_LEDGER.index_object.name)
    return bucket


def _given(bucket: OwnedBucket) -> tuple[str, ...]:
    return str(bucket.objects), "--metadata", str(bucket.metadata)


def test_what_the_audit_finds_is_repaired(bucket: OwnedBucket) -> None:
    """The audit names the command; it tells what it would write, writes it, and is done."""
    found = lines_of("audit", *_given(bucket), ends=UNREADABLE)
    told = run("repair", *_given(bucket))
    again = run("repair", *_given(bucket))
    [row] = lines_of("repair", *_given(bucket))
    written = run("repair", *_given(bucket), "--yes")
    after = run("repair", *_given(bucket), "--yes")

    assert "repair can rebuild the index object" in found[-1]["text"]
    assert told.stdout == again.stdout
    assert told.stdout.endswith("1 index object would be written by --yes\n")
    assert cells(told.stdout)[1][1] == str(_LEDGER.ledger_id)
    assert row == {
        "topic": "persistent://public/default/small-chunked",
        "ledger_id": _LEDGER.ledger_id,
        "object": _LEDGER.index_object.name,
        "problem": "there is no index object",
        "entries": _LEDGER.entry_count,
        "blocks": 1,
        "metadata_from": "made anew",
    }
    assert written.stderr == f"written: {_LEDGER.index_object.name}\n"
    assert written.stdout.endswith("1 index object written\n")
    assert (after.stdout, after.stderr) == ("0 index objects written\n", "")
    assert lines_of("audit", *_given(bucket)) == []


def test_what_cannot_be_repaired_is_told(bucket: OwnedBucket) -> None:
    """With the reason, and an exit code that says so; nothing is written."""
    data = (bucket.objects / _LEDGER.data_object.name).read_bytes()
    bucket.write(_LEDGER.data_object.name, data[:-1])

    result = run("repair", *_given(bucket), "--yes", ends=UNREADABLE)

    assert result.stdout == "0 index objects written\n"
    assert result.stderr.startswith(f"kept: {_LEDGER.index_object.name}: ")
    assert "bytes of a block of" in result.stderr
    assert not (bucket.objects / _LEDGER.index_object.name).exists()


def test_ledgers_that_are_named_are_compared(bucket: OwnedBucket) -> None:
    """Even if nothing seems to be wrong with them, and no others."""
    sound = golden_topic("small-chunked").ledgers[0]
    result = run("repair", str(bucket.objects), str(sound.ledger_id), *_given(bucket)[1:])
    assert result.stdout == "0 index objects would be written by --yes\n"
    expected = "the index object matches the data object"
    assert result.stderr == f"kept: {sound.index_object.name}: {expected}\n"


def test_a_snapshot_is_refused(bucket: OwnedBucket, tmp_path: Path) -> None:
    """It does not say what is in the bucket now."""
    saved = str(tmp_path / "catalog.json.gz")
    run("save", str(bucket.objects), saved)
    result = run("repair", str(bucket.objects), "--metadata", saved, ends=USAGE)
    assert "--metadata is a catalog snapshot" in result.stderr


def test_streaming_offload_is_named_and_left_alone(tmp_path: Path) -> None:
    """Neither a lost index object nor a damaged one is written; the audit says what it leaves."""
    written = stream_ledgers([(10, [b"a", b"b"]), (20, [b"c"])], (2,))
    (_, lost), (_, _), (data_name, data), (index_name, index) = written.objects.items()
    objects, saved = tmp_path / "objects", tmp_path / "public" / "default"
    objects.mkdir()
    (objects / next(iter(written.objects))).write_bytes(lost)
    (objects / data_name).write_bytes(data)
    (objects / index_name).write_bytes(index)
    save_metadata(saved, metadata_of(*written.infos.values())).rename(saved / "orders")
    given = str(objects), "--metadata", str(tmp_path)

    refused = "segments of streaming offload (PIP-76) cannot be rebuilt"
    result = run("repair", *given, "--yes")
    assert result.stdout == "0 index objects written\n"
    kept = f"kept: {next(iter(written.objects))}-index: {refused}"
    assert result.stderr.splitlines()[-1] == kept
    chosen = run("repair", given[0], "20", *given[1:])
    assert chosen.stderr.splitlines()[-1] == f"kept: {index_name}: {refused}"
    told = run("audit", *given, ends=UNREADABLE).stderr
    assert "note: 1 ledger of streaming offload (PIP-76): the audit does not check" in told
