"""How far topics were read, kept as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError
from arrow_io.format.object_names import MAX_LEDGER_ID
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.topic_names import TopicName

_NAMES = ("orders", "a/b/orders-partition-0", "a/b/orders-partition-10", "поток")
_IDS = st.integers(0, MAX_LEDGER_ID) | st.integers(0, 50)


@st.composite
def _topic_progress(draw: st.DrawFn) -> TopicProgress:
    first = draw(_IDS)
    ids = draw(st.sets(st.integers(first, MAX_LEDGER_ID) | st.just(first)))
    position = Position(draw(st.integers(0, MAX_LEDGER_ID + 1)), draw(st.integers(0, 2**63 - 1)))
    return TopicProgress(position, tuple(sorted(ids)), first)


@given(
    topics=st.dictionaries(st.sampled_from(_NAMES).map(TopicName.parse), _topic_progress()),
)
def test_progress_comes_back(topics: dict[TopicName, TopicProgress]) -> None:
    """What is kept is read again, and equal progress is equal text, however it was put together."""
    progress = Progress(topics)

    text = progress.to_json()

    assert Progress.from_json(text) == progress
    assert Progress.from_json(text).to_json() == text
    assert Progress(dict(reversed(topics.items()))).to_json() == text


def test_ids_of_ledgers_are_compact() -> None:
    """Ten thousand ledgers of a cluster with other topics take a few bytes each."""
    ids = tuple(range(5_000_000, 5_000_000 + 37 * 10_000, 37))
    progress = Progress({TopicName.parse("orders"): TopicProgress(Position(9, 0), ids)})

    assert len(progress.to_json()) < 3 * len(ids) + 200


_GOOD: dict[str, Any] = {"next": [5, 0], "first": 2, "ledgers": [2, 3]}


def _sealed(value: Any) -> Any:  # noqa: ANN401 - as JSON has it
    """The same, with the checksum of its topics if it has topics."""
    if not isinstance(value, dict) or "topics" not in value:
        return value
    return value | {"crc32": json_crc32(value["topics"])}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "not the progress of topics"),
        ({}, "not the progress of topics"),
        ({"version": 1}, "not the progress of topics"),
        ({"version": 1, "topics": []}, "not the progress of topics"),
        ({"version": 2, "topics": {}}, "has version 2, and this release reads version 1"),
        ({"version": 1, "topics": {"orders": _GOOD}}, "needs full names of topics, not 'orders'"),
        ({"version": 1, "topics": {"a/b": _GOOD}}, "topic 'a/b' is not"),
    ],
)
def test_what_is_no_progress_is_refused(value: object, says: str) -> None:
    """An error says what stands there instead, and of which version it is."""
    with pytest.raises(CorruptProgressError, match=says):
        Progress.from_value(_sealed(value))


@pytest.mark.parametrize(
    "change",
    [
        {"next": None},
        {"next": [1]},
        {"next": [1, -1]},
        {"next": [True, 1]},
        {"next": [1, 2**63]},
        {"next": [2**63 + 1, 0]},
        {"first": -1},
        {"first": "0"},
        {"ledgers": 1},
        {"ledgers": [1]},
        {"ledgers": [2, 0]},
        {"ledgers": [2, 1.0]},
        {"ledgers": [2, 2**63 - 1]},
    ],
)
def test_what_is_no_place_in_a_topic_is_refused(change: dict[str, Any]) -> None:
    """Numbers are whole and within what a ledger has; the error names the topic."""
    name = str(TopicName.parse("orders"))
    value = _sealed({"version": 1, "topics": {name: {**_GOOD, **change}}})
    assert Progress.from_value(_sealed({"version": 1, "topics": {name: _GOOD}})).topics

    with pytest.raises(CorruptProgressError, match=name):
        Progress.from_value(value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul", '{"version": NaN}'])
def test_what_is_no_json_is_refused(text: str) -> None:
    """Text of any other kind is one typed error."""
    with pytest.raises(CorruptProgressError, match="progress of topics"):
        Progress.from_json(text)


def test_progress_that_was_changed_is_refused() -> None:
    """Wherever it is kept: another digit would be another place in the topic."""
    text = Progress({TopicName.parse("orders"): TopicProgress(Position(5, 0), (2, 3), 2)}).to_json()
    progress = Progress.from_json(text)
    for at in range(len(text)):
        for changed in '0 1"]x':
            damaged = text[:at] + changed + text[at + 1 :]
            if damaged != text:
                with pytest.raises(CorruptProgressError):
                    Progress.from_json(damaged)
    value = progress.to_value()
    del value["crc32"]
    with pytest.raises(CorruptProgressError, match="no checksum"):
        Progress.from_value(value)
