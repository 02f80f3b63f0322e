"""A sender against a model of brokers that deduplicate, and killed at each request in turn.

`tests/broker` kills real ones; the model has more kinds of messages, and each moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import BrokerError, FormatError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from connector.inputs.topic_names import TopicName
from connector.replay import sender
from connector.replay.batch_producer import BATCH_BYTES, LARGE_BYTES
from connector.replay.in_flight import InFlight
from connector.replay.pace import Pace
from connector.replay.places import entry_from_place, era_from_place, eras_from_ledgers
from connector.replay.producer_schemas import ProducerSchemas
from connector.replay.sender import BATCH_MESSAGES, Sender, SenderContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connector.replay.outgoing import OutgoingMessage

TARGET: Final = TopicName.parse("target")
NAME: Final = "replay:source"
SCHEMA: Final = TopicSchema(
    SchemaInfo("STRING"), ((0, SchemaInfo("INT64")), (1, SchemaInfo("STRING")))
)


class KilledError(Exception):
    """The process ends here."""


@dataclass
class Brokers:
    """What brokers know, and do.

    Attributes:
        deduplicates: Whether they do.
        batches: What the target has.
        last: The last sequence id by the name of the producer.
        connected: Names of the producers that are connected.
        kill_at: At which request the process ends; None: never.
        is_persisted: Whether what is sent at that request is persisted.
    """

    deduplicates: bool = True
    batches: list[tuple[str, _Producer, list[OutgoingMessage]]] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    connected: set[str] = field(default_factory=set)
    kill_at: int | None = None
    is_persisted: bool = False

    def last_producer_name(self, _topic: TopicName) -> str | None:
        """Who sent the last message."""
        return self.batches[-1][0] if self.batches else None

    def create(self, *_: object, **settings: Any) -> _Producer:  # noqa: ANN401
        """A producer, in the place of a `BatchProducer`."""
        return _Producer(self, **settings)

    def request(self) -> bool:
        """Count a request; gives whether the process ends at it."""
        if self.kill_at is not None:
            self.kill_at -= 1
        return self.kill_at == -1

    @property
    def messages(self) -> list[OutgoingMessage]:
        """What the target has, in order."""
        return [each for _, _, batch in self.batches for each in batch]


class _Producer:
    """As a `BatchProducer`."""

    def __init__(self, brokers: Brokers, *, name: str, **form: Any) -> None:  # noqa: ANN401
        if brokers.request():
            raise KilledError
        assert name not in brokers.connected
        brokers.connected.add(name)
        self.form = form
        self._brokers = brokers
        self._name = name
        self._at_start = brokers.last.get(name)

    def last_sequence_id(self) -> int | None:
        return self._at_start

    def send(
        self,
        messages: Sequence[OutgoingMessage],
        sequence_id: int,
        done: Callable[[str | None], None],
    ) -> None:
        brokers = self._brokers
        is_killed = brokers.request()
        if not is_killed or brokers.is_persisted:
            is_new = sequence_id > brokers.last.get(self._name, -1)
            assert is_new, "a message would be lost"
            brokers.batches.append((self._name, self, list(messages)))
            if brokers.deduplicates:
                brokers.last[self._name] = sequence_id
        if is_killed:
            raise KilledError
        done(None)

    def close(self) -> None:
        if self._brokers.request():
            raise KilledError
        self._brokers.connected.discard(self._name)


def run(
    brokers: Brokers, messages: Sequence[OutgoingMessage], *, keeps_batches: bool = False
) -> Sender | None:
    """One run of a replay; None: it was killed, so nobody is connected."""
    context = SenderContext(
        brokers,  # type: ignore[arg-type]
        InFlight(60),
        Pace(None),
        ProducerSchemas(SCHEMA),
        "none",
        keeps_batches,
    )
    eras = eras_from_ledgers(entry_from_place(each[0])[0] for each in messages)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            sender,
            "BatchProducer",
            lambda client, _topic, name, **form: client.create(name=name, **form),
        )
        try:
            sends = Sender(context, TARGET, NAME, eras)
            for each in messages:
                sends.put(each)
            sends.flush()
            context.in_flight.finish()
            sends.close()
        except KilledError:
            brokers.connected.clear()
            brokers.kill_at = None
            return None
        return sends


def message(place: int, size_bytes: int = 10, version: int | None = None) -> OutgoingMessage:
    """A message of a place."""
    return place, size_bytes, version, b"", None, None, (), 0


@st.composite
def topics(draw: st.DrawFn) -> list[OutgoingMessage]:
    """Messages of a few ledgers, of two eras at the most."""
    ledgers = draw(st.lists(st.sampled_from([0, 1, 2**21 - 1, 2**21]), min_size=1, unique=True))
    sizes = st.sampled_from([1, BATCH_BYTES // 2, LARGE_BYTES + 1])
    return [
        message(
            ledger << 42 | entry << 16 | member, draw(sizes), draw(st.sampled_from([None, 0, 1]))
        )
        for ledger in sorted(ledgers)
        for entry in range(draw(st.integers(1, 3)))
        for member in range(1, 1 + draw(st.integers(1, 3)))
    ]


def moments(messages: Sequence[OutgoingMessage]) -> Iterator[int]:
    """The requests of a whole run, by number."""
    brokers = Brokers(kill_at=1 << 30)
    run(brokers, messages)
    assert brokers.kill_at is not None
    yield from range((1 << 30) - brokers.kill_at)


@given(topics(), st.booleans())
def test_each_message_is_there_once_wherever_a_run_is_killed(
    messages: list[OutgoingMessage], is_persisted: bool
) -> None:
    """At every request, be what it sends persisted or not; the next run sends the rest."""
    for moment in moments(messages):
        brokers = Brokers(kill_at=moment, is_persisted=is_persisted)

        assert run(brokers, messages) is None
        before = len(brokers.messages)
        again = run(brokers, messages)

        assert again is not None
        assert again.messages == len(messages) - before
        assert brokers.messages == messages


@given(topics(), st.booleans())
def test_batches_are_of_one_kind(messages: list[OutgoingMessage], keeps_batches: bool) -> None:
    """Of one schema, one era, and no longer than they may be; a large message goes alone."""
    brokers = Brokers()
    run(brokers, messages, keeps_batches=keeps_batches)

    schemas = ProducerSchemas(SCHEMA)
    assert len(brokers.batches[0][2]) == 1
    for name, producer, batch in brokers.batches:
        assert {schemas.schema_for_version(each[2]) for each in batch} == {producer.form["schema"]}
        assert {f"{NAME}:{era_from_place(each[0])}" for each in batch} == {name}
        assert not keeps_batches or len({entry_from_place(each[0]) for each in batch}) == 1
        assert len(batch) == 1 or sum(each[1] for each in batch) <= BATCH_BYTES
        assert producer.form["in_chunks"] == any(each[1] > LARGE_BYTES for each in batch)


def test_batches_are_filled() -> None:
    """Behind the first message, which goes alone."""
    brokers = Brokers()

    run(brokers, [message(number << 16 | 1) for number in range(2 * BATCH_MESSAGES)])

    assert [len(batch) for _, _, batch in brokers.batches] == [
        1,
        BATCH_MESSAGES,
        BATCH_MESSAGES - 1,
    ]


def test_brokers_that_do_not_deduplicate_are_refused() -> None:
    """After one message, which the error names; and another run sends none."""
    brokers = Brokers(deduplicates=False)
    messages = [message(7 << 42 | number << 16 | 1) for number in range(5)]

    with pytest.raises(BrokerError, match=r"does not deduplicate.* first message, \(7,0,0\)"):
        run(brokers, messages)
    brokers.connected.clear()
    with pytest.raises(BrokerError, match="the broker has forgotten which"):
        run(brokers, messages)
    assert brokers.messages == messages[:1]


def test_a_message_out_of_order_is_an_error() -> None:
    """It would be left out as though an earlier run had sent it."""
    brokers = Brokers()
    run(brokers, [message(1 << 16 | 1)])

    with pytest.raises(FormatError, match=r"after \(0,3,0\)") as raised:
        run(brokers, [message(number << 16 | 1) for number in (1, 3, 2)])

    assert (raised.value.ledger_id, raised.value.entry_id) == (0, 2)
