"""An S3 server that fails at each request of an offload loses nothing, and keeps no half of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from s3fs import S3FileSystem

from arrow_io.errors import MissingObjectError, OptionError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from connector import LedgerOffloader
from tests.support.faulty_s3 import Fault, S3Faults
from tests.support.offloads import LEDGER_ID, NAME, UUID_1, entries_of, ledger_of, names
from tests.support.s3_server import S3Server, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.s3

ENTRIES = [bytes([number]) * 100 for number in range(20)]
BLOCK_BYTES = 1000
LISTING = "GET prefix uploads"
REQUESTS = [
    "HEAD",
    "POST uploads",
    *["PUT partNumber uploadId"] * 3,
    "HEAD",
    "POST uploadId",
    LISTING,
    "HEAD",
    "PUT",
]
"""What an offload without faults sends."""

_BY_DEFAULT = {1, 2, 4, 7, 10}
"""One request of each kind, by its number."""
NUMBERS = [
    pytest.param(number, marks=() if number in _BY_DEFAULT else pytest.mark.exhaustive)
    for number in range(1, len(REQUESTS) + 1)
]


@pytest.fixture(scope="module")
def faults() -> S3Faults:
    """What makes the server fail."""
    return S3Faults()


@pytest.fixture(scope="module")
def s3_server(faults: S3Faults) -> Iterator[S3Server]:
    """An S3 server that fails on command."""
    with running_s3_server(faults.wrap) as server:
        yield server


@pytest.fixture(autouse=True)
def small_parts_and_no_other_retries(monkeypatch: pytest.MonkeyPatch, faults: S3Faults) -> None:
    """Parts may be small, and nobody sends a request again but the offloader."""
    monkeypatch.setattr("connector.writing.offloader.MIN_STORE_BLOCK_BYTES", BLOCK_BYTES)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    faults.heal()


def offloader_to(server: S3Server, url: str, *, attempts: int) -> LedgerOffloader:
    """An offloader that sends each request at most so many times, without pauses."""
    options = {**server.storage_options, "config_kwargs": {"retries": {"total_max_attempts": 1}}}
    retry = RetryPolicy(attempts=attempts, sleep=lambda _seconds: None)
    return LedgerOffloader(url, storage_options=options, block_bytes=BLOCK_BYTES, retry=retry)


def is_whole(offloader: LedgerOffloader) -> bool:
    """Whether the ledger can be read, whole; if it cannot, there is no index object."""
    try:
        ledger = offloader.read_offloaded(LEDGER_ID, UUID_1)
    except MissingObjectError:
        assert NAME.index_name not in names(offloader.location)
        return False
    assert entries_of(ledger) == ENTRIES
    return True


def test_an_offload_sends_these_requests(s3_server: S3Server, faults: S3Faults) -> None:
    """The requests that are made to fail below are all that there are."""
    offloader = offloader_to(s3_server, f"s3://{s3_server.new_bucket()}", attempts=1)
    faults.heal()

    offloader.offload(ledger_of(ENTRIES), UUID_1)

    assert faults.requests == REQUESTS


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.value)
@pytest.mark.parametrize("number", NUMBERS)
def test_one_failure_is_made_good(
    s3_server: S3Server, faults: S3Faults, fault: Fault, number: int
) -> None:
    """A request that fails once, done or not, is sent again, and the offload is complete."""
    offloader = offloader_to(s3_server, f"s3://{s3_server.new_bucket()}", attempts=2)
    faults.plan(fault, first=number)

    result = offloader.offload(ledger_of(ENTRIES), UUID_1)

    assert len(faults.requests) > len(REQUESTS), "a request was sent again"
    faults.heal()
    assert result.warnings == ()
    assert is_whole(offloader)
    assert names(offloader.location) == [NAME.data_name, NAME.index_name]
    assert offloader.location.unfinished_uploads() == []


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.value)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_failed_offload_leaves_nothing(
    s3_server: S3Server, faults: S3Faults, fault: Fault, number: int
) -> None:
    """An offload that a single failure ends leaves no object, no upload, and can be repeated."""
    offloader = offloader_to(s3_server, f"s3://{s3_server.new_bucket()}", attempts=1)
    faults.plan(fault, first=number)
    error: StorageError | None = None

    try:
        offloader.offload(ledger_of(ENTRIES), UUID_1)
    except StorageError as raised:
        error = raised

    faults.heal()
    assert is_whole(offloader) == (error is None)
    assert offloader.location.unfinished_uploads() == []
    if error is None:
        # That leftovers cannot be looked for is no failure, and aiohttp itself sends a request
        # again if the connection that it was sent by was in use before.
        assert REQUESTS[number - 1] == LISTING or fault in {Fault.CUT, Fault.LOST_ANSWER}
    else:
        assert error.ledger_id == LEDGER_ID
        assert getattr(error, "__notes__", []) == []
        assert not offloader.location.exists(NAME.data_name)
        offloader.offload(ledger_of(ENTRIES), UUID_1)
        assert is_whole(offloader)


@pytest.mark.parametrize(
    "fault", [Fault.ERROR_500, Fault.LOST_ANSWER], ids=lambda fault: fault.value
)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_server_that_is_gone_keeps_no_index_without_data(
    s3_server: S3Server, faults: S3Faults, fault: Fault, number: int
) -> None:
    """When nothing can be deleted either, what is left is whole or has no index object."""
    offloader = offloader_to(s3_server, f"s3://{s3_server.new_bucket()}", attempts=1)
    faults.plan(fault, first=number, last=10_000)

    with pytest.raises(StorageError) as raised:
        offloader.offload(ledger_of(ENTRIES), UUID_1)

    if number > 1:
        assert "could be deleted" in raised.value.__notes__[-1]
    faults.heal()
    if is_whole(offloader):
        with pytest.raises(OptionError, match="offloaded with this uuid before"):
            offloader.offload(ledger_of(ENTRIES), UUID_1)
    else:
        offloader.offload(ledger_of(ENTRIES), UUID_1)
        assert is_whole(offloader)
    assert names(offloader.location) == [NAME.data_name, NAME.index_name]
    assert fault is Fault.LOST_ANSWER or offloader.location.unfinished_uploads() == []
    offloader.delete_offloaded(LEDGER_ID, UUID_1)
    assert offloader.location.unfinished_uploads() == []
