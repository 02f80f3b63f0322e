"""A producer whose caller decides where batches end, with one sequence id per batch.

To deduplicate a batch, the broker compares the sequence id of its first message, and remembers that
id. All messages of a batch have the same id here, so if the broker remembers an id, it has the
whole batch. The client must never end a batch on its own: the rest would have the same id and be
dropped as a duplicate. So the client's own limits are set too high to matter, and `send` flushes
each batch.

The library's `Producer.send_async` rejects ordering keys that are not UTF-8 and drops empty keys,
and `flush` waits for the broker. So this module uses the layer below (`_pulsar`), like
`pulsar.asyncio`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connector.replay.producer_schemas import library_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.payloads.schema_info import SchemaInfo
    from connector.inputs.topic_names import TopicName
    from connector.live.broker import Client
    from connector.replay.outgoing import OutgoingMessage

BATCH_BYTES: Final = 128 << 10
"""Maximum size of a batch's messages, as by default in Pulsar's clients."""
LARGE_BYTES: Final = 1 << 20
"""A larger message is sent alone, in chunks if it exceeds the broker's limit."""

_NEVER_MS: Final = (1 << 31) - 1
_NEVER_BYTES: Final = 4 << 20
_NEVER_MESSAGES: Final = (1 << 31) - 1
_UNBOUNDED: Final = 0


class BatchProducer:
    """Sends batches to a topic or partition.

    Args:
        name: Name of the producer. The broker remembers sequence ids by this name.
        schema: Schema to register with the topic. None: no schema.
        compression: `none`, `lz4`, `zlib`, `zstd` or `snappy`.
        in_chunks: Whether to send each message alone, and large ones in chunks.

    Raises:
        BrokerError: The broker refuses, or a producer of this name is connected.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        name: str,
        *,
        schema: SchemaInfo | None,
        compression: str,
        in_chunks: bool,
    ) -> None:
        import _pulsar  # noqa: PLC0415 - of the same extra

        self._library = _pulsar
        self._client = client
        self._topic = topic
        self._producer = client.create_producer(
            topic,
            producer_name=name,
            schema=library_schema(schema),
            # If a message timed out but later ones were persisted, no run could send it again.
            send_timeout_millis=0,
            compression_type=_codec(_pulsar.CompressionType, compression),
            max_pending_messages=_UNBOUNDED,
            batching_enabled=not in_chunks,
            batching_max_messages=_NEVER_MESSAGES,
            batching_max_allowed_size_in_bytes=_NEVER_BYTES,
            batching_max_publish_delay_ms=_NEVER_MS,
            chunking_enabled=in_chunks,
        )

    def last_sequence_id(self) -> int | None:
        """Return the sequence id that the broker remembered when the producer was created, or None.

        Call it before `send`: afterwards, the library does not return the broker's value.
        """
        sequence_id: int = self._producer.last_sequence_id()
        return None if sequence_id < 0 else sequence_id

    def send(
        self,
        messages: Sequence[OutgoingMessage],
        sequence_id: int,
        on_acknowledged: Callable[[str | None], None],
    ) -> None:
        """Send a batch without waiting for the acknowledgement.

        Args:
            messages: The messages; exactly one if the producer sends in chunks.
            sequence_id: Sequence id of the batch, 1 or more.
            on_acknowledged: Called once, in another thread: with None if the batch is persisted,
                otherwise with the reason.
        """
        library = self._library
        send, make = self._producer._producer.send_async, library.MessageBuilder  # noqa: SLF001
        ok = library.Result.Ok
        last = len(messages) - 1

        def notify(result: object, _id: object) -> None:
            on_acknowledged(None if result == ok else str(result))

        for number, (_, _, _, value, key, ordering_key, properties, event_time) in enumerate(
            messages
        ):
            builder = make()
            if value is None:
                builder.set_null_value()
            else:
                builder.content(value)
            if key is not None:
                builder.partition_key(key)
            if ordering_key is not None:
                builder.ordering_key(ordering_key)
            for pair in properties:
                builder.property(*pair)
            if event_time:
                builder.event_timestamp(event_time)
            builder.sequence_id(sequence_id)
            # The messages of a batch are persisted together.
            send(builder.build(), notify if number == last else None)
        self._producer._producer.flush_async(_ignore)  # noqa: SLF001

    def close(self) -> None:
        """Close the producer. Batches that are not acknowledged yet are abandoned.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        with self._client.translate_errors(f"close a producer of {self._topic}"):
            self._producer.close()


def _ignore(_result: object) -> None:
    """Do nothing: the callback of the last message reports the result of the batch."""


def _codec(codecs: object, name: str) -> object:
    names = {"none": "NONE", "lz4": "LZ4", "zlib": "ZLib", "zstd": "ZSTD", "snappy": "SNAPPY"}
    return getattr(codecs, names[name])
