"""Two offloads of a ledger at once with one uuid: the one that ends first stands."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from arrow_io.errors import OptionError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from connector import LedgerOffloader
from tests.support.offloads import (
    LEDGER_ID,
    NAME,
    UUID_1,
    entries_of,
    ledger_of,
    names,
)
from tests.support.stalling_server import without_pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.s3_server import S3Server

ENTRIES = [bytes([number]) * 200 for number in range(10)]
BLOCK_BYTES = 1000
AT_WHICH_ENTRY = (0, 7, len(ENTRIES))

_numbers = itertools.count()


@pytest.fixture(params=["memory", "folder", pytest.param("s3", marks=pytest.mark.s3)])
def offloader(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LedgerOffloader:
    """An offloader to an empty bucket of each kind, of small parts."""
    monkeypatch.setattr("connector.writing.offloader.MIN_STORE_BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    options: dict[str, object] = {}
    url = {"memory": f"memory://twice-{next(_numbers)}", "folder": str(tmp_path)}.get(request.param)
    if url is None:
        server: S3Server = request.getfixturevalue("s3_server")
        url, options = f"s3://{server.new_bucket()}", server.storage_options
        without_pauses(monkeypatch)
    retry = RetryPolicy(attempts=1)
    return LedgerOffloader(url, storage_options=options, block_bytes=BLOCK_BYTES, retry=retry)


def _entries(number: int, then: Callable[[], object]) -> Iterator[bytes]:
    """The entries, with something done before the entry of this number, or behind the last."""
    yield from ENTRIES[:number]
    then()
    yield from ENTRIES[number:]


def _check_stands(offloader: LedgerOffloader) -> None:
    assert names(offloader.location) == [NAME.data_name, NAME.index_name]
    assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_1)) == ENTRIES
    assert offloader.location.unfinished_uploads() == []


@pytest.mark.parametrize("number", AT_WHICH_ENTRY)
def test_the_slower_one_fails_and_deletes_nothing(offloader: LedgerOffloader, number: int) -> None:
    """What the faster one wrote stays, though it aborted the upload of the other."""
    entries = _entries(number, lambda: offloader.offload(ledger_of(ENTRIES), UUID_1))

    with pytest.raises(OptionError, match="while this offload was running") as raised:
        offloader.offload(replace(ledger_of(ENTRIES), entries=entries), UUID_1)

    assert raised.value.object_key == NAME.index_name
    _check_stands(offloader)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_the_slower_one_fails_by_itself(
    offloader: LedgerOffloader, error: type[BaseException]
) -> None:
    """An error of its own is not replaced, and deletes nothing of the other either."""

    def then() -> None:
        offloader.offload(ledger_of(ENTRIES), UUID_1)
        raise error

    with pytest.raises(error):
        offloader.offload(replace(ledger_of(ENTRIES), entries=_entries(7, then)), UUID_1)

    _check_stands(offloader)


def test_the_faster_one_comes_between_the_two_objects(
    offloader: LedgerOffloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index object of another offload is not overwritten."""
    look = Location.unfinished_uploads
    waiting = [True]

    def after_another(location: Location, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        if waiting:
            waiting.clear()
            offloader.offload(ledger_of(ENTRIES), UUID_1)
        return look(location, *arguments, **options)

    monkeypatch.setattr(Location, "unfinished_uploads", after_another)

    with pytest.raises(OptionError, match="while this offload was running"):
        offloader.offload(ledger_of(ENTRIES), UUID_1)

    _check_stands(offloader)


def test_data_that_was_never_published_is_not_deleted(
    offloader: LedgerOffloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data of another offload, whose index object is still to come, stays."""

    def then() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Location, "write_object", Mock(side_effect=StorageError("refused")))
            patch.setattr(Location, "delete_objects", Mock(side_effect=StorageError("refused")))
            with pytest.raises(StorageError, match="refused"):
                offloader.offload(ledger_of(ENTRIES), UUID_1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        offloader.offload(replace(ledger_of(ENTRIES), entries=_entries(7, then)), UUID_1)

    assert names(offloader.location) == [NAME.data_name]
