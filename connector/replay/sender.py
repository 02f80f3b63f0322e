"""The sender of one source partition's messages to one target partition, without duplicates.

The producer's name is the same in every run, and the sequence id of a batch is the place of its
last message. So the sequence id that the broker remembers says where earlier runs stopped, and the
sender resumes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from arrow_io.errors import BrokerError, FormatError
from connector.replay.batch_producer import BATCH_BYTES, LARGE_BYTES, BatchProducer
from connector.replay.places import (
    entry_from_place,
    era_from_place,
    message_id_from_place,
    place_from_sequence_id,
    sequence_id_from_place,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.payloads.schema_info import SchemaInfo
    from connector.inputs.topic_names import TopicName
    from connector.live.broker import Client
    from connector.replay.in_flight import InFlight
    from connector.replay.outgoing import OutgoingMessage
    from connector.replay.pace import Pace
    from connector.replay.producer_schemas import ProducerSchemas

BATCH_MESSAGES: Final = 1000
"""Maximum number of messages in a batch, as by default in Pulsar's clients."""


@dataclass(frozen=True, slots=True)
class SenderContext:
    """Objects and options that all senders of a replay share.

    Attributes:
        keeps_batches: Whether a batch ends at the end of each source entry.
    """

    client: Client
    in_flight: InFlight
    pace: Pace
    schemas: ProducerSchemas
    compression: str
    keeps_batches: bool


class _ProducerConfig(NamedTuple):
    """Settings that are fixed for a producer: other settings need another producer."""

    era: int
    schema: SchemaInfo | None
    in_chunks: bool


class Sender:
    """Sends the messages after the last one that the target has.

    Args:
        name: Prefix of the names of its producers. No other sender uses it.
        eras: Eras of the source's ledgers, ascending; at least one.

    Attributes:
        sent_to: Place of the last message that the target is known to have, or 0.
        messages: Number of messages sent.
        value_bytes: Approximate bytes of their values, keys and properties.

    Raises:
        BrokerError: The broker refuses, another run is in progress, or the broker has forgotten
            what earlier runs sent.
    """

    def __init__(
        self, context: SenderContext, target: TopicName, name: str, eras: Sequence[int]
    ) -> None:
        self.target = target
        self.sent_to = 0
        self.messages = 0
        self.value_bytes = 0
        self._context = context
        self._name = name
        self._batch: list[OutgoingMessage] = []
        self._batch_bytes = 0
        self._batch_config: _ProducerConfig | None = None
        self._producer: BatchProducer | None = None
        self._config: _ProducerConfig | None = None
        for era in reversed(eras):
            config = _ProducerConfig(era, context.schemas.first, in_chunks=False)
            last = self._open(config).last_sequence_id()
            if last is not None:
                self.sent_to = place_from_sequence_id(era, last)
                break
        self._resumed_after = self._last_place = self.sent_to
        self._is_deduplicating = self.sent_to > 0
        if not self._is_deduplicating:
            self._check_forgotten(eras)

    def put(self, message: OutgoingMessage) -> None:
        """Add a message to the current batch, unless the target already has it.

        Raises:
            BrokerError: A message could not be sent, or the broker does not deduplicate.
            FormatError: The message's place is not greater than that of the previous one.
            UnknownSchemaVersionError: The message's schema is not available.
        """
        place, size_bytes, version, *_ = message
        if place <= self._last_place:
            self._skip(place)
            return
        self._last_place = place
        config = _ProducerConfig(
            era_from_place(place),
            self._context.schemas.schema_for_version(version),
            size_bytes > LARGE_BYTES,
        )
        batch = self._batch
        if batch and (
            config != self._batch_config
            or config.in_chunks
            or len(batch) >= self._max_batch_messages
            or self._batch_bytes + size_bytes > BATCH_BYTES
            or (
                self._context.keeps_batches
                and entry_from_place(batch[-1][0]) != entry_from_place(place)
            )
        ):
            self.flush()
        self._batch_config = config
        self._batch.append(message)
        self._batch_bytes += size_bytes

    def flush(self) -> None:
        """Send the current batch, if any, without waiting for the broker. Raises `BrokerError`."""
        batch, config = self._batch, self._batch_config
        if not batch or config is None:
            return
        size_bytes, self._batch, self._batch_bytes = self._batch_bytes, [], 0
        place = batch[-1][0]
        self._context.pace.wait(len(batch))
        first, last = message_id_from_place(batch[0][0]), message_id_from_place(place)
        description = f"the messages {first} to {last} for {self.target}"
        producer = self._producer_for(config)
        on_acknowledged = self._context.in_flight.add(description, len(batch), size_bytes)
        producer.send(batch, sequence_id_from_place(place), on_acknowledged)
        self.messages += len(batch)
        self.value_bytes += size_bytes
        self.sent_to = place
        if not self._is_deduplicating:
            self._check_deduplication(config, place)

    def close(self) -> None:
        """Close the producer. Batches that are not acknowledged yet are abandoned.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        producer, self._producer, self._config = self._producer, None, None
        if producer is not None:
            producer.close()

    def _skip(self, place: int) -> None:
        """Skip a message that an earlier run sent. Raise `FormatError` for any other message."""
        if place > self._resumed_after:
            ledger_id, entry_id = entry_from_place(place)
            message = f"the message was read after {message_id_from_place(self._last_place)}"
            raise FormatError(message, ledger_id=ledger_id, entry_id=entry_id)

    @property
    def _max_batch_messages(self) -> int:
        # The first message is sent alone: without deduplication, no other is sent.
        return (
            self._context.pace.max_batch_messages(BATCH_MESSAGES) if self._is_deduplicating else 1
        )

    def _producer_for(self, config: _ProducerConfig) -> BatchProducer:
        if self._producer is not None and config == self._config:
            return self._producer
        # A new era starts only after the target has all messages of the previous one.
        self._context.in_flight.finish()
        return self._open(config)

    def _open(self, config: _ProducerConfig) -> BatchProducer:
        """Close the current producer and open another."""
        self.close()
        self._config = config
        self._producer = BatchProducer(
            self._context.client,
            self.target,
            self._producer_name(config.era),
            schema=config.schema,
            compression=self._context.compression,
            in_chunks=config.in_chunks,
        )
        return self._producer

    def _check_deduplication(self, config: _ProducerConfig, place: int) -> None:
        """Raise `BrokerError` unless the broker remembers the sequence id of the first message."""
        self._context.in_flight.finish()
        if self._open(config).last_sequence_id() != sequence_id_from_place(place):
            message = (
                f"{self.target}: the broker does not deduplicate, so a replay could not be resumed:"
                " enable deduplication for the namespace or the topic; the replay's first message,"
                f" {message_id_from_place(place)}, was sent already"
            )
            raise BrokerError(message)
        self._is_deduplicating = True

    def _producer_name(self, era: int) -> str:
        return f"{self._name}:{era}"

    def _check_forgotten(self, eras: Sequence[int]) -> None:
        """Raise `BrokerError` if the target ends with this replay, which the broker forgot."""
        last = self._context.client.last_producer_name(self.target)
        if last in [self._producer_name(era) for era in eras]:
            message = (
                f"messages of this replay are in {self.target}, but the broker has forgotten"
                " which (brokerDeduplicationProducerInactivityTimeoutMinutes), or does not"
                " deduplicate: continue with start after the last of them, and another replay_id"
            )
            raise BrokerError(message)
