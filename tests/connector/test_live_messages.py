"""What brokers give is checked before it is taken: they may say anything."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import BrokerError, OptionError
from arrow_io.read_metrics import ReadMetrics
from connector.inputs.topic_names import TopicName
from connector.live.broker import Brokers, Client, EntryId, EntrySpan, group_by_entry
from connector.live.entries import LiveEntries
from tests.support.entries import Message, encode_entry
from tests.support.live_topics import ClientMessage
from tests.support.reference import decode_topic

_TOPIC: Final = TopicName.parse("orders")
[_MESSAGE] = decode_topic([(0, [encode_entry([Message(payload=b"a")], batched=False)])])


def _given(ledger_id: int, entry_id: int, batch_index: int, batch_size: int = 0) -> ClientMessage:
    of = replace(_MESSAGE, ledger_id=ledger_id, entry_id=entry_id, batch_index=batch_index)
    return ClientMessage(of, batch_size)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([(5, 1, -1), (5, 0, -1)], "follows a message of entry"),
        ([(5, 1, -1), (4, 2, -1)], "follows a message of entry"),
        ([(5, 0, 0), (5, 1, 0), (5, 0, 1)], "follows a message of entry"),
        ([(5, 0, 1), (5, 0, 0)], "follows message 1"),
        ([(5, 0, 0), (5, 0, 0)], "follows message 0"),
        ([(5, 0, -1), (5, 0, -1)], "follows a message of entry"),
        ([(5, 0, -1), (5, 0, 0)], "follows a message of entry"),
        ([(5, 0, 0), (5, 0, -1)], "follows message 0"),
        ([(5, 0, (1 << 31) - 1)], r"at most \d+ are accepted"),
    ],
)
def test_messages_that_cannot_be_are_no_rows(
    messages: list[tuple[int, int, int]], said: str
) -> None:
    """Neither in another order, nor twice, nor so many that memory is filled with them."""
    entries = group_by_entry(_given(*message, batch_size=3) for message in messages)
    with pytest.raises(BrokerError, match=said):
        list(LiveEntries("orders", ReadMetrics(), has_binary_keys=False).runs(entries))


@pytest.mark.parametrize("batch_messages", [1, 3])
def test_ordering_keys_that_the_client_cannot_give_are_counted(batch_messages: int) -> None:
    """Each once, though a batch may say the first of them a second time."""
    told = [Message(payload=b"a", ordering_key=key) for key in (b"\xff", b"b", b"\xfe")]
    batches = [told[at : at + batch_messages] for at in range(0, len(told), batch_messages)]
    stored = [encode_entry(each, batched=batch_messages > 1) for each in batches]
    messages = [ClientMessage(each, batch_messages) for each in decode_topic([(5, stored)])]
    metrics = ReadMetrics()
    list(LiveEntries("orders", metrics, has_binary_keys=False).runs(group_by_entry(messages)))
    assert metrics.replaced_texts == 2


_INDEXES: Final = st.just(([-1], 0)) | st.integers(1, 4).flatmap(
    lambda size: st.tuples(st.sets(st.integers(0, size - 1), min_size=1).map(sorted), st.just(size))
)
"""The batch indexes that are given of an entry, and how many messages it says it has."""


@given(st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), _INDEXES))
def test_messages_are_put_together_as_they_stand_in_entries(
    entries: dict[tuple[int, int], tuple[list[int], int]],
) -> None:
    """Also if the last of a batch are not given; if they are, none behind is asked for."""
    ids = sorted(entries)
    messages = iter([_given(*at, i, entries[at][1]) for at in ids for i in entries[at][0]])
    found = []
    for each in group_by_entry(messages):
        indexes, size = entries[each.span.end]
        found.append((each.span.end, [index for index, _ in each.members]))
        if indexes[-1] in {-1, size - 1}:
            left = sum(len(entries[at][0]) for at in ids[len(found) :])
            assert operator.length_hint(messages) == left
    assert found == [(at, entries[at][0]) for at in ids]


@dataclass(slots=True)
class _BusyReader:
    """A reader of a topic to which messages come as fast as they are read."""

    given: int = 0

    def has_message_available(self) -> bool:
        return True

    def read_next(self, timeout_ms: int) -> ClientMessage:
        del timeout_ms
        assert self.given < 10, "it never ends"
        self.given += 1
        entry, index = divmod(self.given, 3)
        return _given(7, entry, index, batch_size=3)

    def close(self) -> None:
        pass

    @property
    def _reader(self) -> _BusyReader:
        return self


def test_the_end_of_a_busy_topic_is_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits until nothing comes any more would wait for ever."""
    library: Any = SimpleNamespace(create_reader=lambda *_, **__: _BusyReader(), close=lambda: None)
    with Brokers.from_options("pulsar://localhost:1", {}).connect() as client:
        monkeypatch.setattr(client, "_client", library)
        assert client.find_last_message(_TOPIC, EntryId(0, 0)) == EntrySpan(
            EntryId(7, 0), EntryId(7, 0)
        )


@pytest.mark.parametrize("url", ["pulsar://host:port", "pulsar://host:99999"])
def test_urls_that_the_client_refuses_are_wrong_options(url: str) -> None:
    """Not an error of the library's, which has the token in its frames."""
    with pytest.raises(OptionError, match="finds no hosts in") as caught:
        Client(Brokers.from_options(url, {"token": "secret"}))
    assert caught.value.__context__ is None
