"""One source partition's messages on their way to one target partition, each once.

The producer's name stays the same from run to run, and the sequence id of a batch is the place of
its last message. So the broker tells how far the runs before came, and this goes on behind that.
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
    from connector.replay.outgoing import Outgoing
    from connector.replay.pace import Pace
    from connector.replay.producer_schemas import ProducerSchemas

BATCH_MESSAGES: Final = 1000
"""Messages after which a batch ends, as by default in Pulsar's clients."""


@dataclass(frozen=True, slots=True)
class Sending:
    """What all senders of a replay share.

    Attributes:
        client: The client.
        in_flight: What is not acknowledged yet.
        pace: How fast messages are sent.
        schemas: What messages are registered with.
        compression: Codec of batches.
        keeps_batches: Whether a batch ends where an entry of the source does.
    """

    client: Client
    in_flight: InFlight
    pace: Pace
    schemas: ProducerSchemas
    compression: str
    keeps_batches: bool


class _Form(NamedTuple):
    """What is fixed for a producer: what differs takes another one."""

    era: int
    schema: SchemaInfo | None
    in_chunks: bool


class Sender:
    """Sends what is behind the last message that the target has.

    Args:
        sending: What all senders share.
        target: Topic or partition that it sends to.
        name: What the names of its producers begin with; nobody else's do.
        eras: Those of the source's ledgers, ascending, one at least.

    Attributes:
        target: Topic or partition that it sends to.
        sent_to: Place of the last message that the target has, as far as that is known; 0: it has
            none.
        messages: How many messages were sent.
        value_bytes: How many bytes their values, keys and properties have, about.

    Raises:
        BrokerError: The broker refuses; or another run is under way; or the broker has forgotten
            what a run before sent.
    """

    def __init__(self, sending: Sending, target: TopicName, name: str, eras: Sequence[int]) -> None:
        self.target = target
        self.sent_to = 0
        self.messages = 0
        self.value_bytes = 0
        self._sending = sending
        self._name = name
        self._batch: list[Outgoing] = []
        self._batch_bytes = 0
        self._batch_form: _Form | None = None
        self._producer: BatchProducer | None = None
        self._form: _Form | None = None
        for era in reversed(eras):
            form = _Form(era, sending.schemas.first, in_chunks=False)
            last = self._open(form).last_sequence_id()
            if last is not None:
                self.sent_to = place_from_sequence_id(era, last)
                break
        self._resumed_after = self._last_place = self.sent_to
        self._is_proven = self.sent_to > 0
        if not self._is_proven:
            self._check_forgotten(eras)

    def put(self, message: Outgoing) -> None:
        """Send a message, unless the target has it already; the batch it is in may wait for more.

        Args:
            message: The message; its place is behind that of the one before it.

        Raises:
            BrokerError: A message could not be sent, or the broker does not deduplicate.
            FormatError: It is not behind the one before it.
            UnknownSchemaVersionError: Its schema is not known.
        """
        place, size_bytes, version, *_ = message
        if place <= self._last_place:
            self._skip(place)
            return
        self._last_place = place
        form = _Form(
            era_from_place(place),
            self._sending.schemas.schema_for_version(version),
            size_bytes > LARGE_BYTES,
        )
        batch = self._batch
        if batch and (
            form != self._batch_form
            or form.in_chunks
            or len(batch) >= self._most_messages
            or self._batch_bytes + size_bytes > BATCH_BYTES
            or (
                self._sending.keeps_batches
                and entry_from_place(batch[-1][0]) != entry_from_place(place)
            )
        ):
            self.flush()
        self._batch_form = form
        self._batch.append(message)
        self._batch_bytes += size_bytes

    def flush(self) -> None:
        """Send the batch that waits for more, if there is one; does not wait for the broker.

        Raises:
            BrokerError: See `put`.
        """
        batch, form = self._batch, self._batch_form
        if not batch or form is None:
            return
        size_bytes, self._batch, self._batch_bytes = self._batch_bytes, [], 0
        place = batch[-1][0]
        self._sending.pace.wait(len(batch))
        first, last = message_id_from_place(batch[0][0]), message_id_from_place(place)
        description = f"the messages {first} to {last} for {self.target}"
        producer = self._producer_for(form)
        on_acknowledged = self._sending.in_flight.begin(description, len(batch), size_bytes)
        producer.send(batch, sequence_id_from_place(place), on_acknowledged)
        self.messages += len(batch)
        self.value_bytes += size_bytes
        self.sent_to = place
        if not self._is_proven:
            self._prove(form, place)

    def close(self) -> None:
        """Close the producer; what was sent has to be acknowledged, or is given up.

        Raises:
            BrokerError: The broker cannot be asked.
        """
        producer, self._producer, self._form = self._producer, None, None
        if producer is not None:
            producer.close()

    def _skip(self, place: int) -> None:
        """Leave out what an earlier run has sent; nothing else, or it would never be sent."""
        if place > self._resumed_after:
            ledger_id, entry_id = entry_from_place(place)
            message = f"the message was given behind {message_id_from_place(self._last_place)}"
            raise FormatError(message, ledger_id=ledger_id, entry_id=entry_id)

    @property
    def _most_messages(self) -> int:
        # The first is sent alone: if the broker does not deduplicate, it is the only one.
        return self._sending.pace.most_together(BATCH_MESSAGES) if self._is_proven else 1

    def _producer_for(self, form: _Form) -> BatchProducer:
        if self._producer is not None and form == self._form:
            return self._producer
        # Once an era has begun, the target has all of those before.
        self._sending.in_flight.finish()
        return self._open(form)

    def _open(self, form: _Form) -> BatchProducer:
        """Open a producer in the place of the one that is open."""
        self.close()
        self._form = form
        self._producer = BatchProducer(
            self._sending.client,
            self.target,
            self._producer_name(form.era),
            schema=form.schema,
            compression=self._sending.compression,
            in_chunks=form.in_chunks,
        )
        return self._producer

    def _prove(self, form: _Form, place: int) -> None:
        """See whether the broker remembers what was sent.

        Raises:
            BrokerError: It does not.
        """
        self._sending.in_flight.finish()
        if self._open(form).last_sequence_id() != sequence_id_from_place(place):
            message = (
                f"{self.target}: the broker does not deduplicate, so a replay could not go on where"
                " it was stopped: turn deduplication on, for the namespace or the topic; its first"
                f" message, {message_id_from_place(place)}, was sent already"
            )
            raise BrokerError(message)
        self._is_proven = True

    def _producer_name(self, era: int) -> str:
        return f"{self._name}:{era}"

    def _check_forgotten(self, eras: Sequence[int]) -> None:
        """Refuse a target whose last message is of this replay, if the broker knows nothing of it.

        Raises:
            BrokerError: It is.
        """
        last = self._sending.client.last_producer_name(self.target)
        if last in [self._producer_name(era) for era in eras]:
            message = (
                f"messages of this replay stand in {self.target}, but the broker has forgotten"
                " which (brokerDeduplicationProducerInactivityTimeoutMinutes), or does not"
                " deduplicate: go on with start behind the last of them, and another replay_id"
            )
            raise BrokerError(message)
