"""Entries to offloaded ledgers in a bucket that lives in memory for the length of a test."""

from __future__ import annotations

import itertools
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import fsspec

from arrow_io.format.block_table import BlockEntry
from arrow_io.format.index_block import read_index_block, write_index_block
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.writer import new_ledger_metadata
from tests.support.encoded_ledgers import encode_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.golden import GoldenTopic
    from tests.support.reference import Ledgers

TOPIC: Final = "persistent://public/default/orders"
MANAGED_LEDGER: Final = "public/default/persistent/orders"

_bucket_numbers = itertools.count()
_attempts = itertools.count(1)


def object_name(ledger_id: int) -> LedgerObjectName:
    """A name that no other offload attempt of this process has."""
    return LedgerObjectName(uuid.UUID(int=next(_attempts)), ledger_id)


def offload(
    ledgers: Ledgers, *, block_bytes: int = 1 << 20, managed_ledger: str = MANAGED_LEDGER
) -> dict[str, bytes]:
    """Offload the ledgers of a topic.

    Args:
        ledgers: The topic's ledgers.
        block_bytes: Block size; one that is too small for an entry grows to what the entry takes.
        managed_ledger: Managed-ledger name of the topic.

    Returns:
        The objects, data object before index object, by name.
    """
    objects: dict[str, bytes] = {}
    for ledger_id, entries in ledgers:
        objects |= offload_ledger(
            object_name(ledger_id), entries, block_bytes=block_bytes, managed_ledger=managed_ledger
        )
    return objects


def offload_ledger(
    name: LedgerObjectName,
    entries: Sequence[bytes],
    *,
    block_bytes: int = 1 << 20,
    managed_ledger: str = MANAGED_LEDGER,
) -> dict[str, bytes]:
    """Offload one ledger under a given name, as `offload` does."""
    lengths = [len(entry) for entry in entries]
    metadata = new_ledger_metadata(lengths, managed_ledger=managed_ledger, ctime_ms=0)
    fitting_bytes = max(block_bytes, max(lengths) + 140)
    encoded = encode_ledger(entries, metadata, block_bytes=fitting_bytes)
    return {name.data_name: encoded.data, name.index_name: encoded.index}


def with_lost_entries(index_object: bytes, count: int) -> bytes:
    """An index object of a ledger with entries behind those stored, which the offloader lost.

    Args:
        index_object: Of the ledger as it is stored, whole.
        count: How many entries more the ledger had.
    """
    index = read_index_block(index_object, object_key="")
    metadata = index.ledger_metadata
    lost = BlockEntry(index.entry_count, index.block_count + 1, index.data_object_length_bytes)
    return write_index_block(
        data_object_length_bytes=index.data_object_length_bytes,
        entries=[*index.entries, lost],
        ledger_metadata=replace(metadata, last_entry_id=metadata.last_entry_id + count),
    )


def with_longer_ledger(index_object: bytes, more_bytes: int) -> bytes:
    """An index object that says the ledger's entries have so many bytes more than they have."""
    index = read_index_block(index_object, object_key="")
    metadata = index.ledger_metadata
    length_bytes = metadata.length_bytes + more_bytes
    return write_index_block(
        data_object_length_bytes=index.data_object_length_bytes,
        entries=index.entries,
        ledger_metadata=replace(metadata, length_bytes=length_bytes),
    )


def golden_objects(topic: GoldenTopic) -> dict[str, bytes]:
    """The objects of one golden topic, by name."""
    paths = [path for _, *both in topic.offloaded_objects() for path in both]
    return {path.name: path.read_bytes() for path in paths}


class MemoryBucket:
    """A bucket in memory whose objects a test can change.

    Attributes:
        url: Where it is.
    """

    def __init__(self) -> None:
        self._path = f"/bucket-{next(_bucket_numbers)}"
        self._store = fsspec.filesystem("memory")
        self.url = f"memory:/{self._path}"

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Write objects, in place of any with the same names."""
        self._store.pipe({f"{self._path}/{name}": data for name, data in objects.items()})

    def rot(self, name: str, data: bytes) -> None:
        """Change the bytes of an object, of which nothing that the store tells of it shows."""
        file = self._store.store[f"{self._path}/{name}"]
        file.seek(0)
        file.write(data)
        file.truncate()

    def delete(self, name: str) -> None:
        """Delete an object."""
        self._store.rm_file(f"{self._path}/{name}")

    def drop(self) -> None:
        """Delete all objects."""
        if self._store.exists(self._path):
            self._store.rm(self._path, recursive=True)


@contextmanager
def memory_bucket(objects: Mapping[str, bytes]) -> Iterator[MemoryBucket]:
    """A bucket with these objects, at a URL that no other bucket of this process has or had."""
    bucket = MemoryBucket()
    bucket.put(objects)
    try:
        yield bucket
    finally:
        bucket.drop()
