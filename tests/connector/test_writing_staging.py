"""Entries fill one ledger after the other, and only the one being filled is kept aside."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import TYPE_CHECKING
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import EntryTooLargeError, StorageError
from connector.writing.ledger_ids import IdRange, LedgerIds
from connector.writing.staging import EntrySpool, LedgerFiller, LedgerStager
from connector.writing.write_target import LedgerLimits
from tests.support.buckets import MANAGED_LEDGER
from tests.support.offloads import entries_of, ledger_of, memory_offloader, names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector import LedgerOffloader


_MARK = uuid4()


def _limits(entries: int = 100, size_bytes: int = 1 << 20) -> LedgerLimits:
    return LedgerLimits(entries=entries, size_bytes=size_bytes, in_memory_bytes=1 << 20)


def _filled(
    offloader: LedgerOffloader, entries: Iterable[bytes], limits: LedgerLimits
) -> LedgerFiller:
    stager = LedgerStager(offloader, LedgerIds(IdRange(first=7)), _MARK)
    with LedgerFiller(stager, MANAGED_LEDGER, limits) as filler:
        for entry in entries:
            filler.add(entry, publish_time_ms=1)
        filler.close_ledger()
        filler.close_ledger()
    return filler


def _stored(offloader: LedgerOffloader, filler: LedgerFiller) -> list[list[bytes]]:
    """The entries of each ledger, from the bucket."""
    stored = []
    for staged in filler.ledgers:
        offload = staged.info.offload
        assert offload is not None
        assert offload.uuid is not None
        offloader.publish(staged.index)
        ledger = offloader.read_offloaded(staged.info.ledger_id, offload.uuid)
        stored.append(entries_of(ledger))
    return stored


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ([1] * 5, _limits(entries=2), [2, 2, 1]),
        ([1] * 4, _limits(entries=2), [2, 2]),
        ([1] * 3, _limits(entries=1), [1, 1, 1]),
        ([4, 4, 4], _limits(size_bytes=8), [2, 1]),
        ([4, 5, 4], _limits(size_bytes=8), [1, 1, 1]),
        ([9, 9], _limits(size_bytes=8), [1, 1]),
        ([8, 0, 1], _limits(size_bytes=8), [2, 1]),
        ([0, 0], _limits(size_bytes=1), [2]),
        ([], _limits(), []),
    ],
    ids=str,
)
def test_a_ledger_is_full_at_its_limits(
    sizes: list[int], limits: LedgerLimits, expected: list[int]
) -> None:
    """A ledger takes as many entries and bytes as allowed, and one entry however long it is."""
    offloader = memory_offloader()
    entries = [bytes([number]) * size for number, size in enumerate(sizes)]

    filler = _filled(offloader, entries, limits)

    stored = _stored(offloader, filler)
    assert [len(each) for each in stored] == expected
    assert [entry for each in stored for entry in each] == entries
    infos = [staged.info for staged in filler.ledgers]
    assert [info.ledger_id for info in infos] == list(range(7, 7 + len(expected)))
    assert [info.entries for info in infos] == expected
    assert [info.size_bytes for info in infos] == [sum(map(len, each)) for each in stored]


def test_a_cluster_learns_that_bookkeeper_has_no_copy() -> None:
    """Each ledger is recorded as offloaded whole, and as deleted from BookKeeper."""
    filler = _filled(memory_offloader(), [b"entry"], _limits())

    (staged,) = filler.ledgers
    info = staged.info
    assert info.is_offloaded
    assert info.offload is not None
    assert info.offload.bookkeeper_deleted
    assert info.timestamp_ms is not None
    assert info.offload.timestamp_ms is not None
    assert info.timestamp_ms <= info.offload.timestamp_ms


@given(
    ledgers=st.lists(st.lists(st.binary(max_size=40), max_size=6), min_size=1, max_size=3),
    in_memory_bytes=st.sampled_from((1, 50, 1000)),
)
def test_a_spool_gives_back_what_it_took(ledgers: list[list[bytes]], in_memory_bytes: int) -> None:
    """In memory or in a file, again and again, and after it was cleared."""
    spool = EntrySpool(in_memory_bytes)
    for entries in ledgers:
        spool.clear()
        for entry in entries:
            spool.add(entry)

        assert list(spool) == list(spool) == entries
        assert list(spool.lengths_bytes) == list(map(len, entries))
        assert (len(spool), spool.size_bytes) == (len(entries), sum(map(len, entries)))
    spool.close()


def test_one_ledger_is_kept_aside_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ledgers there are, no more than the entries of one are held."""
    kept: list[int] = []
    add = EntrySpool.add

    def spy(spool: EntrySpool, entry: bytes) -> None:
        add(spool, entry)
        kept.append(len(spool))

    monkeypatch.setattr(EntrySpool, "add", spy)

    _filled(memory_offloader(), [b"entry"] * 50, _limits(entries=4))

    assert kept == [1 + number % 4 for number in range(50)]


def test_many_entries_are_kept_in_a_file() -> None:
    """What is beyond the bytes allowed in memory goes to a temporary file."""
    spool = EntrySpool(10)
    spool.add(bytes(10))
    in_memory = spool._file._rolled  # type: ignore[attr-defined]
    spool.add(bytes(1))

    assert (in_memory, spool._file._rolled) == (False, True)  # type: ignore[attr-defined]
    spool.close()


class _FailingFile:
    """A temporary file whose every use fails."""

    def __init__(self, number: int) -> None:
        self._number = number

    def _fail(self, *_arguments: object) -> None:
        raise OSError(self._number, os.strerror(self._number))

    write = seek = truncate = read = close = _fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_temporary_file_that_fails_is_told(number: int) -> None:
    """Every use of it is an error that names the folder; of too many files, also a way out."""
    spool = EntrySpool(10)
    spool.close()
    spool._file = _FailingFile(number)  # type: ignore[assignment]

    for use in (lambda: spool.add(b"entry"), lambda: list(spool), spool.clear):
        with pytest.raises(StorageError, match=f"{tempfile.gettempdir()}: ") as raised:
            use()
        assert ("ulimit" in str(raised.value)) == (number == errno.EMFILE)
    spool.close()


def test_a_file_that_cannot_be_read_any_more_is_told() -> None:
    """So is a failure half way."""
    spool = EntrySpool(10)
    spool.add(b"one")
    spool.add(b"two")
    entries = iter(spool)
    assert next(entries) == b"one"
    spool.close()
    spool._file = _FailingFile(errno.EIO)  # type: ignore[assignment]

    with pytest.raises(StorageError, match="Input/output error"):
        next(entries)


def test_undoing_leaves_what_was_there_before() -> None:
    """Only ledgers of this stager are deleted."""
    offloader = memory_offloader(block_bytes=200)
    offloader.offload(ledger_of([b"entry"]), UUID(int=1))
    before = names(offloader.location)
    stager = LedgerStager(offloader, LedgerIds(IdRange(first=43)), _MARK)
    with LedgerFiller(stager, MANAGED_LEDGER, _limits(entries=1)) as filler:
        filler.add(b"one", publish_time_ms=1)
        filler.add(bytes(100), publish_time_ms=1)
        with pytest.raises(EntryTooLargeError) as caught:
            filler.close_ledger()

    assert len(names(offloader.location)) == len(before) + 1
    stager.undo(caught.value)
    assert names(offloader.location) == before


def test_what_cannot_be_deleted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that leaves ledgers behind says which, and why."""
    offloader = memory_offloader()
    stager = LedgerStager(offloader, LedgerIds(IdRange(first=3)), _MARK)
    with LedgerFiller(stager, MANAGED_LEDGER, _limits(entries=1)) as filler:
        for entry in (b"one", b"two", b"three"):
            filler.add(entry, publish_time_ms=1)

    monkeypatch.setattr(
        offloader.location.__class__, "delete_objects", Mock(side_effect=StorageError("refused"))
    )
    error = KeyboardInterrupt()
    stager.undo(error)

    assert [note.partition(" of ")[0] for note in error.__notes__] == ["ledger 4", "ledger 3"]
    assert all("refused" in note for note in error.__notes__)
