"""A producer whose batches end where its user says, each with one sequence id.

The broker compares of a batch the sequence id of its first message, and remembers that one. All
messages of a batch have the same here, so what it remembers is known to be there to the last
message. The client must never end a batch by itself: the rest would be of the same id, and be
dropped as sent before. So its own limits are out of reach, and `end_batch` has it sent.

The library's `Producer.send_async` refuses ordering keys that are not UTF-8 and drops empty keys,
and `flush` waits for the broker. So this uses what stands below it (`_pulsar`), as `pulsar.asyncio`
does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connector.replay.producer_schemas import library_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.payloads.schema_info import SchemaInfo
    from connector.inputs.topic_names import TopicName
    from connector.live.broker import Client
    from connector.replay.outgoing import Outgoing

BATCH_BYTES: Final = 128 << 10
"""Bytes of messages after which a batch ends, as by default in Pulsar's clients."""
LARGE_BYTES: Final = 1 << 20
"""A longer message is sent by itself, in chunks if the broker allows none of its size."""

_NEVER_MS: Final = (1 << 31) - 1
_NEVER_BYTES: Final = 4 << 20
_NEVER_MESSAGES: Final = (1 << 31) - 1
_UNBOUNDED: Final = 0


class BatchProducer:
    """Sends batches to a topic or partition.

    Args:
        client: The client.
        topic: Where to.
        name: Name of the producer, by which the broker remembers sequence ids.
        schema: What the messages are registered with; None: nothing.
        compression: `none`, `lz4`, `zlib`, `zstd` or `snappy`.
        in_chunks: Whether each message is sent by itself, longer ones in chunks.

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
            # A message that fails while those behind it come through would be lost for good.
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
        """The last sequence id that the broker remembered when this was made; None: it knew none.

        After something was sent, what the library says is not what a broker would remember.
        """
        sequence_id: int = self._producer.last_sequence_id()
        return None if sequence_id < 0 else sequence_id

    def send(
        self,
        messages: Sequence[Outgoing],
        sequence_id: int,
        on_acknowledged: Callable[[str | None], None],
    ) -> None:
        """Send a batch, without waiting for it.

        Args:
            messages: Its messages; one, if the producer sends in chunks.
            sequence_id: That of the batch, 1 or more.
            on_acknowledged: Called in another thread, once: with None if it is persisted, else
                with the reason.
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
        """Close it; all that it sent has to be acknowledged, or is given up.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        with self._client.translate_errors(f"the end of a producer of {self._topic}"):
            self._producer.close()


def _ignore(_result: object) -> None:
    """The batch itself tells what became of it."""


def _codec(codecs: object, name: str) -> object:
    names = {"none": "NONE", "lz4": "LZ4", "zlib": "ZLib", "zstd": "ZSTD", "snappy": "SNAPPY"}
    return getattr(codecs, names[name])
