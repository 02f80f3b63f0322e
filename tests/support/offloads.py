"""Ledgers to offload, a place to offload them to, and what lies there then."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from uuid import UUID

from arrow_io.errors import MissingObjectError
from arrow_io.format.index_block import read_index_block
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.writer import new_ledger_metadata
from connector import LedgerOffloader, LedgerToOffload
from connector.catalog.kinds.offloaded_copy import OffloadedCopy
from tests.support.buckets import MANAGED_LEDGER
from tests.support.reference_ledger import read_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.ledgers.reader import OffloadedLedger
    from arrow_io.storage.location import Location
    from connector.catalog.bucket import BucketContents
    from connector.inputs.topic_names import TopicName
    from tests.support.golden import GoldenLedger

LEDGER_ID = 42
UUID_1, UUID_2 = UUID(int=1), UUID(int=2)
NAME = LedgerObjectName(UUID_1, LEDGER_ID)
ENTRIES = [b"one", b"", b"three" * 20]

_bucket_numbers = itertools.count()


def metadata_of(entries: Sequence[bytes], managed_ledger: str = MANAGED_LEDGER) -> LedgerMetadata:
    """Metadata of a ledger with these entries."""
    return new_ledger_metadata(map(len, entries), managed_ledger=managed_ledger, ctime_ms=1)


def ledger_of(entries: Sequence[bytes]) -> LedgerToOffload:
    """A ledger with these entries."""
    return LedgerToOffload(LEDGER_ID, metadata_of(entries), entries)


def memory_offloader(**options: Any) -> LedgerOffloader:  # noqa: ANN401
    """An offloader to an empty bucket in memory."""
    return LedgerOffloader(f"memory://offloader-{next(_bucket_numbers)}", **options)


def names(location: Location) -> list[str]:
    """Names of all objects."""
    try:
        return [info.name for info in location.list_objects()]
    except MissingObjectError:
        return []


def content(location: Location, name: str) -> bytes:
    """The bytes of an object."""
    return location.read_object(name, max_bytes=1 << 30).data


def entries_of(ledger: OffloadedLedger) -> list[bytes]:
    """All entries of an offloaded ledger."""
    return [entry.data for entry in ledger.read_entries(0, ledger.last_entry_id)]


def golden_ledger(ledger: GoldenLedger) -> LedgerToOffload:
    """A broker's ledger, its entries as the independent reader finds them."""
    index = ledger.index_object.read_bytes()
    metadata = read_index_block(index, object_key=ledger.index_object.name).ledger_metadata
    return LedgerToOffload(
        ledger.ledger_id, metadata, read_entries(ledger.data_object.read_bytes(), index)
    )


def offloaded_copies(contents: BucketContents, topic: TopicName) -> tuple[OffloadedCopy, ...]:
    """The copies of a topic's ledgers in objects of PIP-17."""
    copies = (each for each in contents.copies if each.topic == topic)
    return tuple(each for each in copies if isinstance(each, OffloadedCopy))
