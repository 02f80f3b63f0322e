"""What an offloader passes on, counts and records, to the last comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from arrow_io.errors import ChecksumError, MissingObjectError, OptionError, StorageError
from arrow_io.messages.entry_writer import EntryWriter
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.trace import RequestTrace
from connector import LedgerOffloader, LedgerToOffload
from connector.writing.offloader import MAX_STORE_BLOCKS
from tests.support.offloads import (
    ENTRIES,
    LEDGER_ID,
    NAME,
    UUID_1,
    UUID_2,
    ledger_of,
    memory_offloader,
    metadata_of,
    names,
)
from tests.support.written_messages import written_entries

if TYPE_CHECKING:
    from pathlib import Path

    from arrow_io.storage.location import Location


def test_a_chain_of_urls_is_refused() -> None:
    """What it has of a store's own ways to write whole objects is unknown."""
    with pytest.raises(OptionError, match="chain of URLs"):
        LedgerOffloader("dir::memory://bucket")


def test_the_retry_policy_reaches_the_requests() -> None:
    """The user's own, or else the default one."""
    policy = RetryPolicy(attempts=7)

    assert memory_offloader(retry=policy).location.retry == policy
    assert memory_offloader().location.retry == RetryPolicy()


def test_as_many_blocks_as_parts_are_taken() -> None:
    """The greatest number is allowed, and one more is not."""
    offloader = LedgerOffloader("s3://bucket", block_bytes=5 << 20)
    most = replace(metadata_of(ENTRIES), length_bytes=(MAX_STORE_BLOCKS + 1) * (5 << 20) - 1)

    offloader._check_block_count(most)

    with pytest.raises(OptionError, match="more than the 10000 blocks"):
        offloader._check_block_count(replace(most, length_bytes=most.length_bytes + 1))


def test_reading_and_deleting_count_their_requests() -> None:
    """An index object read; two objects deleted, and one look for leftovers."""
    trace = RequestTrace()
    offloader = memory_offloader(trace=trace)
    offloader.offload(ledger_of(ENTRIES), UUID_1)
    before = trace.counts

    offloader.read_offloaded(LEDGER_ID, UUID_1)
    after_read = trace.counts
    offloader.delete_offloaded(LEDGER_ID, UUID_1)

    assert after_read.index_requests == before.index_requests + 1
    assert trace.counts.delete_requests == before.delete_requests + 2
    assert trace.counts.list_requests == before.list_requests + 1


def test_the_requests_of_a_failure_are_counted() -> None:
    """The look for an offload that was faster, and the deleting of what was published."""
    trace = RequestTrace()
    offloader = memory_offloader(block_bytes=250, trace=trace)
    ledger = ledger_of(ENTRIES)

    with pytest.raises(ZeroDivisionError):
        offloader.offload(LedgerToOffload(LEDGER_ID, ledger.metadata, _failing()), UUID_1)

    assert trace.counts.head_requests == 2
    assert trace.counts.list_requests == 1
    assert names(offloader.location) == []


def test_deleting_what_was_published_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of the index object takes both objects away: two requests, and none is left."""
    monkeypatch.setattr(
        "arrow_io.storage.location.Location.write_object", Mock(side_effect=StorageError("no"))
    )
    trace = RequestTrace()
    offloader = memory_offloader(trace=trace)

    with pytest.raises(StorageError):
        offloader.offload(ledger_of(ENTRIES), UUID_1)

    assert trace.counts.delete_requests == 2
    assert names(offloader.location) == []


def _failing() -> Any:  # noqa: ANN401
    yield ENTRIES[0]
    raise ZeroDivisionError


def test_leftovers_of_this_attempt_alone_are_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads of either object go; those of a ledger whose id merely begins so are others'."""
    offloader = LedgerOffloader(str(tmp_path))
    aborted: list[str] = []
    kinds = [NAME.data_name, NAME.index_name, f"{NAME.data_name}7", f"{NAME.data_name}-index7"]

    class Upload:
        upload_id = "id"

        def __init__(self, name: str) -> None:
            self.name = name

    def unfinished(_location: Location, prefix: str, **_options: object) -> list[Upload]:
        return [Upload(name) for name in kinds if name.startswith(prefix)]

    def abort(_location: Location, name: str, upload_id: str, **_options: object) -> None:
        aborted.append(f"{name} {upload_id}")

    monkeypatch.setattr("arrow_io.storage.location.Location.unfinished_uploads", unfinished)
    monkeypatch.setattr("arrow_io.storage.location.Location.abort_upload", abort)

    assert offloader.delete_offloaded(LEDGER_ID, UUID_1) == ()

    assert aborted == [f"{NAME.data_name} id", f"{NAME.index_name} id"]


@pytest.mark.parametrize(
    ("options", "endpoint", "region"),
    [
        ({"endpoint_url": "http://a"}, "http://a", ""),
        ({"client_kwargs": {"endpoint_url": "http://b"}}, "http://b", ""),
        ({"endpoint_url": "http://a", "client_kwargs": {"endpoint_url": "http://b"}}, "http://a",
         ""),
        ({"client_kwargs": {"region_name": "eu-west-1"}}, "", "eu-west-1"),
        ({"client_kwargs": "none", "endpoint_url": 5}, "", ""),
        ({"endpoint_url": "http://user:secret@a"}, "http://a", ""),
    ],
    ids=str,
)  # fmt: skip
def test_a_context_tells_where_the_bucket_is(
    options: dict[str, object], endpoint: str, region: str
) -> None:
    """As the file system has it, and without credentials, which must not reach the metadata."""
    offloader = LedgerOffloader("s3://bucket", storage_options=options)
    context = offloader._context(UUID_1)

    shown = context.driver_properties["serviceEndpoint"]
    assert "secret" not in shown
    assert shown.replace("***@", "") == endpoint
    assert context.driver_properties["region"] == region
    assert (context.complete, context.bookkeeper_deleted) == (True, False)


def test_damage_in_the_first_entry_is_not_copied() -> None:
    """Each entry's checksum is compared, the first one's too."""
    offloader = memory_offloader()
    (good,) = written_entries(EntryWriter(), [Message(payload=b"payload", publish_time_ms=1)])
    wrong = good[:-1] + bytes([good[-1] ^ 1])
    for number, entries in enumerate(([wrong, good], [good, wrong])):
        ledger_id = LEDGER_ID + number
        metadata = metadata_of(entries)
        offloader.offload(LedgerToOffload(ledger_id, metadata, entries), UUID_1)
        copy = LedgerToOffload.from_offloaded(offloader.read_offloaded(ledger_id, UUID_1))

        with pytest.raises(ChecksumError) as raised:
            offloader.offload(copy, UUID_2)

        assert raised.value.entry_id == number
        with pytest.raises(MissingObjectError):
            offloader.read_offloaded(ledger_id, UUID_2)
