"""A bucket with many ledgers of many topics, made cheaply, and the metadata of all of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING
from uuid import UUID

from arrow_io.format.index_block import read_index_block
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.storage.object_store import ObjectInfo
from arrow_io.storage.object_version import WriteTime
from connector.catalog.bucket import BucketContents
from connector.catalog.kinds.ledger_copy import object_versions
from connector.catalog.kinds.offloaded_copy import OffloadedCopy
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.snapshot.json import Snapshot
from connector.catalog.topic_ledgers import TopicLedgers, from_metadata
from connector.inputs.topic_names import TopicName
from tests.support.buckets import offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from arrow_io.storage.location import Location

_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LargeBucket:
    """The objects of a bucket.

    Attributes:
        topics: The topics.
        ledger_count: How many ledgers there are; those of each topic are as many, and lie between
            those of the others.
    """

    topics: tuple[TopicName, ...]
    ledger_count: int

    @classmethod
    def of(cls, topics: int, ledgers: int) -> LargeBucket:
        """A bucket of so many topics and ledgers."""
        names = (f"persistent://public/default/t{number}" for number in range(topics))
        return cls(tuple(map(TopicName.parse, names)), ledgers)

    def names(self, topic: TopicName) -> list[LedgerObjectName]:
        """Names of the ledgers of a topic."""
        first = self.topics.index(topic)
        numbers = range(first, self.ledger_count, len(self.topics))
        return [LedgerObjectName(UUID(int=number + 1), number) for number in numbers]

    def objects(self) -> dict[str, bytes]:
        """Bytes by object name; ledgers of one topic have the same index block."""
        found: dict[str, bytes] = {}
        for topic in self.topics:
            data, index = encoded_ledger(topic.managed_ledger_name)
            for name in self.names(topic):
                found |= {name.data_name: data, name.index_name: index}
        return found

    def save(self, folder: Path) -> Path:
        """Write the objects into a new folder."""
        folder.mkdir()
        for name, data in self.objects().items():
            (folder / name).write_bytes(data)
        return folder

    def snapshot(self, location: Location) -> Snapshot:
        """What a catalog of the bucket and its metadata is saved as, made without a request."""
        topics = [self._topic_ledgers(topic, location) for topic in self.topics]
        copies = [each.copy for topic in topics for each in topic.states if each.copy is not None]
        copies.sort(key=lambda copy: copy.name.ledger_id)
        return Snapshot(BucketContents(location, tuple(copies)), {}, topics, has_metadata=True)

    def _topic_ledgers(self, topic: TopicName, location: Location) -> TopicLedgers:
        data, index = encoded_ledger(topic.managed_ledger_name)
        block = read_index_block(index, object_key="")
        copies = []
        for name in self.names(topic):
            infos = _info(name.index_name, index), _info(name.data_name, data)
            ledger = OffloadedLedger(location, name, block, versions=object_versions(*infos))
            copies.append(OffloadedCopy(name, *infos, topic, ledger))
        return from_metadata(self.metadata(topic), copies, lambda _info: None)

    def save_metadata(self, folder: Path) -> Path:
        """Write the metadata of all topics, as the metadata store has it."""
        folder.mkdir()
        listed = {}
        for number, topic in enumerate(self.topics):
            listed[str(topic)] = {"dir": f"t{number}"}
            (folder / f"t{number}").mkdir()
            value = serialize_managed_ledger_info(self.metadata(topic))
            (folder / f"t{number}" / "managed-ledger-info.bin").write_bytes(value)
        (folder / "topics.json").write_text(json.dumps(listed))
        return folder

    def metadata(self, topic: TopicName) -> TopicMetadata:
        """What its cluster says of a topic."""
        ledgers = (
            LedgerInfo(
                ledger_id=name.ledger_id,
                entries=1,
                timestamp_ms=1,
                offload=OffloadContext(uuid=name.uuid, complete=True),
            )
            for name in self.names(topic)
        )
        return TopicMetadata(topic=topic, ledgers=tuple(ledgers))


@cache
def encoded_ledger(managed_ledger: str) -> Sequence[bytes]:
    """The data object and the index object of a ledger of one entry."""
    entry = encode_entry([Message(payload=b"v")], batched=False)
    name = LedgerObjectName(UUID(int=1), 0)
    return tuple(offload_ledger(name, [entry], managed_ledger=managed_ledger).values())


def _info(name: str, data: bytes) -> ObjectInfo:
    return ObjectInfo(name, len(data), _WRITTEN, WriteTime(len(data), _WRITTEN))
