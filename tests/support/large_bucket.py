"""A bucket with many ledgers of many topics, made cheaply, and the metadata of all of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from uuid import UUID

from arrow_io.format.object_names import LedgerObjectName
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.topic_name import TopicName
from tests.support.buckets import offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


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
