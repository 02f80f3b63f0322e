# ruff: noqa: D102 - the methods of a client's message are those of `_pulsar.Message`.
"""Brokers that have topics in memory, and give what a client of Pulsar's would give of them.

They stand in where random topics are read thousands of times; `tests/broker` has the real ones.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import BrokerError
from connector.inputs.message_ids import message_id_data
from connector.live.broker import BEGINNING, Brokers, EntryId, entry_span
from tests.support.reference import decode_topic, first_open_position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from connector.inputs.topic_names import TopicName
    from connector.live.broker import EntrySpan
    from tests.support.reference import Ledgers, ReferenceMessage

LIVE_URL: Final = "pulsar://memory:6650"


@dataclass(slots=True)
class MemoryBrokers:
    """Brokers of some topics; a client of them is themselves.

    Attributes:
        ledgers: All ledgers of each topic or partition, by its full name.
        trimmed_before: Entries before it were deleted.
        openings: How often a client connected.
        asked: Topics of which it was asked which partitions they have.
    """

    ledgers: Mapping[str, Ledgers]
    trimmed_before: EntryId = BEGINNING
    openings: int = 0
    asked: list[str] = field(default_factory=list)

    def messages(self, topic: str) -> list[ReferenceMessage]:
        """What a reader of a topic is given from its beginning on."""
        ledgers = self.ledgers[topic]
        stop = first_open_position(ledgers)
        return [
            each
            for each in decode_topic(ledgers)
            if (stop is None or _entry(each) < stop)
            and (each.first_chunk or _entry(each)) >= self.trimmed_before
        ]

    @contextmanager
    def connect(self) -> Iterator[MemoryBrokers]:
        """As `Brokers.connect`."""
        self.openings += 1
        yield self

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """As `Client.partitions`."""
        self.asked.append(str(topic))
        known = [type(topic).parse(each) for each in self.ledgers]
        return [each for each in known if each.base == topic] or [topic]

    @contextmanager
    def open_reader(self, topic: TopicName, first: EntryId) -> Iterator[MemoryReader]:
        """As `Client.open_reader`."""
        yield MemoryReader(self, str(topic), first)

    def find_last_message(self, topic: TopicName, first: EntryId) -> EntrySpan | None:
        """As `Client.find_last_message`."""
        del first
        with self.open_reader(topic, BEGINNING) as reader:
            return entry_span(reader.left[-1]) if reader.left else None

    def find_first_entry(self, topic: TopicName) -> EntryId | None:
        """As `Client.find_first_entry`."""
        with self.open_reader(topic, BEGINNING) as reader:
            return entry_span(reader.left[0]).begin if reader.left else None


@dataclass(slots=True)
class MemoryReader:
    """As `BrokerReader`."""

    brokers: MemoryBrokers
    topic: str
    first: tuple[int, int]
    given: set[tuple[int, int, int]] = field(default_factory=set)

    @property
    def left(self) -> list[ClientMessage]:
        """What was not given until now."""
        messages = self.brokers.messages(self.topic)
        sizes = Counter(map(_entry, messages))
        return [
            ClientMessage(each, sizes[_entry(each)])
            for each in messages
            if (each.first_chunk or _entry(each)) >= self.first
            and (*_entry(each), each.batch_index) not in self.given
        ]

    def has_more(self) -> bool:
        """Whether there is a message."""
        return bool(self.left)

    def messages(self) -> Iterator[ClientMessage]:
        """The next messages.

        Raises:
            BrokerError: There is none.
        """
        while message := self.next_soon():
            yield message
        text = "nothing comes"
        raise BrokerError(text)

    def next_soon(self) -> ClientMessage | None:
        """The next message, if there is one."""
        left = self.left
        if not left:
            return None
        self.given.add((*_entry(left[0].of), left[0].of.batch_index))
        return left[0]


@dataclass(slots=True)
class ClientMessage:
    """A message with the methods of `_pulsar.Message`, and of its id."""

    of: ReferenceMessage
    batch_size: int

    def message_id(self) -> ClientMessage:
        return self

    def ledger_id(self) -> int:
        return self.of.ledger_id

    def entry_id(self) -> int:
        return self.of.entry_id

    def batch_index(self) -> int:
        return self.of.batch_index

    def serialize(self) -> bytes:
        of = self.of
        data = message_id_data()(ledgerId=of.ledger_id, entryId=of.entry_id)
        data.batch_size = self.batch_size
        if of.first_chunk is not None:
            first = data.first_chunk_message_id
            first.ledgerId, first.entryId = of.first_chunk
        return bytes(data.SerializeToString())

    def encryption_context(self) -> None:
        return None

    def data(self) -> bytes:
        return self.of.payload or b""

    def has_null_value(self) -> bool:
        return self.of.null_value

    def partition_key(self) -> str:
        return self.of.key or ""

    def ordering_key(self) -> str:
        return (self.of.ordering_key or b"").decode()

    def properties(self) -> dict[str, str]:
        return self.of.properties

    def event_timestamp(self) -> int:
        return self.of.event_time_ms

    def publish_timestamp(self) -> int:
        return self.of.publish_time_ms

    def producer_name(self) -> str:
        return self.of.producer_name

    def int_schema_version(self) -> int:
        version = self.of.schema_version
        return -1 if version is None or len(version) != 8 else int.from_bytes(version, signed=True)


@contextmanager
def live_brokers(ledgers: Mapping[str, Ledgers]) -> Iterator[MemoryBrokers]:
    """Have `LIVE_URL` lead to brokers of these topics, by their full names."""
    brokers = MemoryBrokers(ledgers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Brokers, "connect", lambda _: brokers.connect())
        yield brokers


def _entry(message: ReferenceMessage) -> tuple[int, int]:
    return message.ledger_id, message.entry_id
