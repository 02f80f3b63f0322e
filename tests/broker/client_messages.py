"""Messages as Pulsar's client gives them, and as it must give what we wrote."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pulsar

    from connector import Message

_RECEIVE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """What the client tells of a message.

    It does not tell keys and properties that are not there from empty ones.
    """

    payload: bytes | None
    key: str
    ordering_key: str
    properties: dict[str, str]
    event_time_ms: int
    publish_time_ms: int
    producer_name: str


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a message is.

    The partition of a topic that has none is -1, and so is the index of a message without a batch.
    """

    partition: int
    ledger_id: int
    entry_id: int
    batch_index: int


def expected(messages: Iterable[Message]) -> list[ClientMessage]:
    """What the client must give of messages that `write_messages` was given."""
    return [
        ClientMessage(
            payload=message.payload,
            key=message.key_text or "",
            ordering_key=(message.ordering_key or b"").decode(),
            properties=dict(message.properties),
            event_time_ms=message.event_time_ms or 0,
            publish_time_ms=message.publish_time_ms,
            producer_name=message.producer_name,
        )
        for message in messages
    ]


def read_all(client: pulsar.Client, topic: str) -> list[tuple[Position, ClientMessage]]:
    """All messages of a topic without partitions, in the order in which a reader gives them."""
    import pulsar

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        return [(position(each), _told(each)) for each in all_of(reader)]
    finally:
        reader.close()


def all_of(reader: pulsar.Reader) -> Iterator[pulsar.Message]:
    """The messages of a topic from where its reader is."""
    while reader.has_message_available():
        yield reader.read_next(_RECEIVE_MS)


def receive(client: pulsar.Client, topic: str, count: int) -> list[tuple[Position, ClientMessage]]:
    """The first messages of a topic, as they come to a new subscription.

    Args:
        client: The client.
        topic: Partitioned or not.
        count: How many; if there are fewer, the client fails.
    """
    with _subscribed(client, topic) as consumer:
        messages = [consumer.receive(_RECEIVE_MS) for _ in range(count)]
        return [(position(message), _told(message)) for message in messages]


def receive_from(client: pulsar.Client, topic: str, time_ms: int) -> tuple[Position, ClientMessage]:
    """What comes first after a seek to a time, in ms since the epoch."""
    with _subscribed(client, topic) as consumer:
        consumer.seek(time_ms)
        message = consumer.receive(_RECEIVE_MS)
        return position(message), _told(message)


@contextmanager
def _subscribed(client: pulsar.Client, topic: str) -> Iterator[pulsar.Consumer]:
    """A new subscription at the beginning of a topic."""
    import pulsar

    consumer = client.subscribe(
        topic, "receiving", initial_position=pulsar.InitialPosition.Earliest
    )
    try:
        yield consumer
    finally:
        consumer.unsubscribe()
        consumer.close()


def read_values(client: pulsar.Client, topic: str, definition: object, count: int) -> list[object]:
    """The first values of a topic, decoded by the client.

    Args:
        client: The client.
        topic: The topic.
        definition: A schema of Avro; what the broker has must be compatible.
        count: How many.
    """
    import pulsar
    from pulsar.schema import AvroSchema

    schema = AvroSchema(None, schema_definition=definition)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    try:
        return [reader.read_next(_RECEIVE_MS).value() for _ in range(count)]
    finally:
        reader.close()


def position(message: pulsar.Message) -> Position:
    """Where the client says that a message is."""
    found = message.message_id()
    return Position(found.partition(), found.ledger_id(), found.entry_id(), found.batch_index())


def _told(message: pulsar.Message) -> ClientMessage:
    return ClientMessage(
        payload=None if message.has_null_value() else message.data(),
        key=message.partition_key(),
        ordering_key=message.ordering_key(),
        properties=dict(message.properties()),
        event_time_ms=message.event_timestamp(),
        publish_time_ms=message.publish_timestamp(),
        producer_name=message.producer_name(),
    )
