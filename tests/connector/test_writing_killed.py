"""A process that is killed at whatever request of a write: readers get what stood, or all of it."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock

import pyarrow as pa
import pytest

from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog, write_messages
from connector.catalog.metadata.folder import MetadataFolder
from connector.upkeep.audit.audit import audit
from connector.writing.commit_record import COMMIT_RECORDS_FOLDER
from tests.support.appended_topics import files_below, keyed_rows, payloads_of
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.offloads import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.writing.topic_writer import WrittenTopic
    from tests.support.grids import Grid

_STANDING: Final = range(9)
_KILLED: Final = range(9, 17)
_NEXT: Final = range(17, 20)
_CHANGING: Final = {RequestKind.PUT, RequestKind.UPLOAD, RequestKind.PART, RequestKind.DELETE}
_NOTE: Final = "public__default__orders.unfinished.json"


class _Killed(BaseException):
    """The process is no more; whatever it asks of a store from now on, it does not ask."""


class _Killer:
    """Kills what runs before one of the requests that change something.

    Args:
        monkeypatch: Undone by `revive`.
        step: Number of the request, from 1.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self._monkeypatch = monkeypatch
        left, sent = itertools.count(step - 1, -1), RequestTrace.note_request

        def killing(
            trace: RequestTrace,
            kind: RequestKind,
            name: str,
            *args: Any,  # noqa: ANN401
            **options: Any,  # noqa: ANN401
        ) -> None:
            if kind in _CHANGING and next(left) <= 0:
                raise _Killed
            sent(trace, kind, name, *args, **options)

        monkeypatch.setattr(RequestTrace, "note_request", killing)

    def revive(self) -> None:
        """Let requests be sent again, as by the next process."""
        self._monkeypatch.undo()


def _write(
    url: str, folder: Path, values: range, *, append: bool, partitions: int | None
) -> WrittenTopic:
    return write_messages(
        url, TOPIC, keyed_rows(values), partitions=partitions, append=append, ledger_entries=2,
        batch_messages=2, metadata_folder=folder, broker_metadata=True,
    )  # fmt: skip


def _read(url: str, folder: Path) -> set[int]:
    """What a reader by the metadata gets, who is told of what it does not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {int(each) for each in payloads_of(url, folder)}


def _check_what_readers_see(url: str, folder: Path, before: dict[str, set[int]]) -> None:
    """Check that each partition is as it was or as it was to be, proven no further than it goes."""
    source = MetadataFolder(str(folder))
    assert set(_STANDING) <= _read(url, folder) <= {*_STANDING, *_KILLED}
    for topic in source.topics():
        metadata = source.topic_metadata(topic)
        assert metadata is not None
        filled = {each.ledger_id for each in metadata.ledgers if each.entries}
        old = before[str(topic)]
        assert filled == old or (old < filled and min(filled - old) > max(old))
        assert metadata.proven_to_ledger_id <= metadata.last_ledger_id


def _is_decided(url: str) -> bool:
    """Whether a decision lies in the bucket, by which the next write finishes what was cut off."""
    return bool(names(Location(url).child(COMMIT_RECORDS_FOLDER).child("public__default__orders")))


def _filled_ledgers(folder: Path) -> dict[str, set[int]]:
    source = MetadataFolder(str(folder))
    return {
        str(topic): {each.ledger_id for each in metadata.ledgers if each.entries}
        for topic in source.topics()
        if (metadata := source.topic_metadata(topic))
    }


@pytest.mark.parametrize(("partitions", "is_same"), [(None, False), (2, True)], ids=str)
def test_the_next_append_works_after_a_kill_at_any_request(
    monkeypatch: pytest.MonkeyPatch, grid: Grid, *, partitions: int | None, is_same: bool
) -> None:
    """It undoes what was left, or ends it if decided; then rows, metadata and bucket agree."""
    outcomes: Counter[bool] = Counter()
    steps = grid.steps()
    for step in steps:
        bucket = MemoryBucket()
        with TemporaryDirectory() as name:
            folder = Path(name)
            _write(bucket.url, folder, _STANDING, append=False, partitions=partitions)
            before = _filled_ledgers(folder)
            killer = _Killer(monkeypatch, step)
            try:
                _write(bucket.url, folder, _KILLED, append=True, partitions=partitions)
            except _Killed:
                is_killed = True
            else:
                is_killed = False
            killer.revive()
            if not is_killed:
                bucket.drop()
                steps.passed()
                continue
            _check_what_readers_see(bucket.url, folder, before)

            more = _KILLED if is_same else _NEXT
            is_whole, has_note = _is_decided(bucket.url), (folder / _NOTE).exists()
            written = _write(bucket.url, folder, more, append=True, partitions=partitions)

            told = [each for each in written.warnings if "was interrupted" in each]
            assert ["was committed" in each for each in told] == [is_whole] * has_note
            outcomes[is_whole] += 1
            expected = [*_STANDING, *more, *(_KILLED if is_whole else ())]
            read = [int(each) for each in payloads_of(bucket.url, folder)]
            assert sorted(read) == sorted(expected)
            assert audit(open_catalog(bucket.url, metadata=name)).findings == ()
            assert [each.name for each in folder.iterdir() if each.is_file()] == []
        bucket.drop()
    assert min(outcomes[False], outcomes[True]) > (7 if grid.is_whole else 1)


@pytest.mark.parametrize("append", [True, False])
def test_a_first_write_that_was_killed_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, grid: Grid, *, append: bool
) -> None:
    """As if it had never begun, unless it was decided."""
    steps = grid.steps()
    for step in steps:
        bucket = MemoryBucket()
        with TemporaryDirectory() as name:
            folder = Path(name) / "metadata"
            killer = _Killer(monkeypatch, step)
            is_killed = False
            try:
                _write(bucket.url, folder, _KILLED, append=False, partitions=2)
            except _Killed:
                is_killed = True
            killer.revive()
            if not is_killed:
                bucket.drop()
                steps.passed()
                continue
            is_whole = _is_decided(bucket.url)
            if is_whole and not append:
                with pytest.raises(OptionError, match="give append"):
                    _write(bucket.url, folder, _NEXT, append=False, partitions=2)
                assert _read(bucket.url, folder) == set(_KILLED)
            else:
                _write(bucket.url, folder, _NEXT, append=append, partitions=2)
                assert _read(bucket.url, folder) == {*(_KILLED if is_whole else ()), *_NEXT}
            assert audit(open_catalog(bucket.url, metadata=str(folder))).findings == ()
        bucket.drop()
    assert steps.count > 20


class TestNote:
    """What tells of a write that has not ended is trusted no further than it goes."""

    @pytest.fixture
    def folder(self, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Metadata beside which a write was cut off after its first ledgers."""
        folder = tmp_path / "metadata"
        _write(bucket.url, folder, _STANDING, append=False, partitions=None)
        killer = _Killer(monkeypatch, 6)
        with pytest.raises(_Killed):
            _write(bucket.url, folder, _KILLED, append=True, partitions=None)
        killer.revive()
        assert (folder / _NOTE).exists()
        return folder

    def test_what_was_undone_is_told(self, bucket: MemoryBucket, folder: Path) -> None:
        """With when it had begun, and how much was deleted."""
        written = _write(bucket.url, folder, _NEXT, append=True, partitions=None)

        (warning,) = written.warnings
        assert "a write that was interrupted, begun at 20" in warning
        assert warning.endswith("was undone: 1 ledger deleted, complete or not")

    def test_another_bucket_is_refused(self, bucket: MemoryBucket, folder: Path) -> None:
        """What is left lies in the one that the error names."""
        other, before = MemoryBucket(), files_below(folder)

        with pytest.raises(OptionError, match=f"write to {bucket.url} again, which cleans up"):
            _write(other.url, folder, _NEXT, append=True, partitions=None)

        assert (files_below(folder), names(Location(other.url))) == (before, [])

    def test_ledgers_of_others_stay(self, bucket: MemoryBucket, folder: Path) -> None:
        """Those of another topic, and those that were appended without the metadata since."""
        write_messages(bucket.url, "other", pa.table({"__value__": [b"1"]}))
        write_messages(bucket.url, TOPIC, pa.table({"__value__": [b"2"]}), append=True)

        with pytest.raises(OptionError, match="metadata folder lacks"):
            _write(bucket.url, folder, _NEXT, append=True, partitions=None)

        assert payloads_of(bucket.url, None, "other") == [b"1"]
        assert payloads_of(bucket.url, None)[-1] == b"2"

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('"bucket"', '"basket"'),
            ('"attempt": "', '"attempt": "x'),
            ('"begun_ms": ', '"begun_ms": 99999999999999999'),
            ('"begun_ms": ', '"begun_ms": 0.'),
            ("manifest.json", "../manifest.json"),
            ("public__default__orders", "public__default__other"),
            ("public__default__orders", "../public__default__orders"),
            ("{", "["),
        ],
    )
    def test_one_that_is_not_as_it_was_written_is_named(
        self, bucket: MemoryBucket, folder: Path, old: str, new: str
    ) -> None:
        """Nothing is changed by it."""
        note = folder / _NOTE
        note.write_text(note.read_text().replace(old, new))
        before, there = files_below(folder), names(Location(bucket.url))

        with pytest.raises(CorruptMetadataError, match=r"note .* is damaged") as raised:
            _write(bucket.url, folder, _NEXT, append=True, partitions=None)

        assert (raised.value.object_key or "").endswith(_NOTE)
        assert (files_below(folder), names(Location(bucket.url))) == (before, there)

    def test_undoing_that_fails_is_begun_anew(
        self, bucket: MemoryBucket, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names the file; the note stays until all is undone."""
        with monkeypatch.context() as patch:
            patch.setattr(
                Location, "write_object", Mock(side_effect=StorageError("the disk is full"))
            )
            with pytest.raises(StorageError, match="could not be restored: the disk"):
                _write(bucket.url, folder, _NEXT, append=True, partitions=None)

        _write(bucket.url, folder, _NEXT, append=True, partitions=None)
        assert _read(bucket.url, folder) == {*_STANDING, *_NEXT}

    def test_a_writer_that_was_taken_for_killed_finds_out(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """It deletes what it wrote, and the rows of the other stay."""
        _write(bucket.url, tmp_path, _STANDING, append=False, partitions=None)

        def rows() -> Iterator[Message]:
            for number in range(6):
                yield Message(payload=str(number).encode(), publish_time_ms=0)
            _write(bucket.url, tmp_path, _NEXT, append=True, partitions=None)

        with pytest.raises(OptionError, match="in the meantime: write again"):
            write_messages(
                bucket.url, TOPIC, rows(), append=True, metadata_folder=tmp_path,
                batch_messages=1, ledger_entries=2,
            )  # fmt: skip

        assert _read(bucket.url, tmp_path) == {*_STANDING, *_NEXT}
        assert audit(open_catalog(bucket.url, metadata=str(tmp_path))).findings == ()
        assert not (tmp_path / _NOTE).exists()
