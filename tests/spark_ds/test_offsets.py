"""Where a stream begins, as users write it, and its offsets, as Spark keeps them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import OptionError
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.topic_names import TopicName
from spark_ds.offsets import StartingOffsets, read_starting_offsets, to_offset
from spark_ds.options import SourceOptions
from tests.support.golden import golden_topic
from tests.support.increments import increments_of

if TYPE_CHECKING:
    from connector.increments.increment import Increments

TOPICS = ("small-transactions", "small-partitioned")
TRANSACTIONS = TopicName.parse("small-transactions")
PARTITION = TopicName.parse("small-partitioned-partition-1")


@pytest.fixture(scope="module")
def source(small_bucket: str) -> Increments:
    """A topic, and one of several partitions."""
    return increments_of(small_bucket, TOPICS)


def _begin(text: str, source: Increments) -> Progress:
    start = read_starting_offsets("startingOffsets", text)
    assert isinstance(start, StartingOffsets)
    return start.progress(source)


def test_begin_at_the_latest(source: Increments) -> None:
    """Every partition begins behind its last ledger, and asks for none that is older."""
    progress = _begin("Latest", source)

    assert len(progress.topics) == 1 + sum(each.base == PARTITION.base for each in progress.topics)
    last = golden_topic("small-transactions").ledgers[-1].ledger_id
    behind = Position(last + 1, 0)
    assert progress.topic_progress(TRANSACTIONS) == TopicProgress(behind, (), last + 1)
    assert source.next_increment(progress).after == progress


def test_begin_where_each_topic_is_told_to(source: Increments) -> None:
    """A topic is named as users name it, its partitions together or one by one."""
    latest = _begin("latest", source)
    progress = _begin(
        json.dumps(
            {
                "small-transactions": "31:2",
                "small-partitioned": {"0": "latest", "1": [5, 0], "2": "earliest"},
            }
        ),
        source,
    )

    assert progress.topic_progress(TRANSACTIONS) == TopicProgress(Position(31, 2), (), 31)
    assert progress.topic_progress(PARTITION) == TopicProgress(Position(5, 0), (), 5)
    first = TopicName.parse("small-partitioned-partition-0")
    assert progress.topic_progress(first) == latest.topic_progress(first)
    assert (
        progress.topic_progress(TopicName.parse("small-partitioned-partition-2")) == TopicProgress()
    )
    every = _begin('{"small-partitioned": "latest"}', source)
    assert every.topics.keys() == {each for each in latest.topics if each.base == PARTITION.base}


@pytest.mark.parametrize("place", [None, "earliest", "latest", "7:0"])
@pytest.mark.parametrize("own", [None, "earliest", "latest", "5:0"])
def test_the_own_place_of_a_partition_counts(
    source: Increments, place: str | None, own: str | None
) -> None:
    """It counts for more than that of its topic, wherever it stands in the object."""
    latest = source.latest()
    places = {
        None: TopicProgress(),
        "earliest": TopicProgress(),
        "latest": latest.topic_progress(PARTITION),
        "7:0": TopicProgress.at(Position(7, 0)),
        "5:0": TopicProgress.at(Position(5, 0)),
    }
    named = {PARTITION.base.local_name: place, PARTITION.local_name: own}
    given = [(name, each) for name, each in named.items() if each is not None]

    for pairs in (given, given[::-1]):
        progress = _begin(json.dumps(dict(pairs)), source)

        assert progress.topic_progress(PARTITION) == places[own or place]


@pytest.mark.parametrize("earliest", [(-1, -1), (5, -1), (-1, 3)])
def test_ids_below_the_first_are_those_of_the_beginning(
    source: Increments, earliest: tuple[int, int]
) -> None:
    """Pulsar's `MessageId.earliest` has -1 for both ledger and entry."""
    progress = _begin(json.dumps({"small-transactions": earliest}), source)

    assert Progress.from_json(progress.to_json()) == progress
    assert progress.topic_progress(TRANSACTIONS).next == (max(earliest[0], 0), 0)


def test_begin_where_another_stream_was(source: Increments) -> None:
    """The offset of a query is a place where another can begin."""
    offset = to_offset(source.next_increment(Progress()))

    assert offset["read"]["ledgers"] > 8
    assert offset["behind"] == {"bytes": 0, "ledgers": 0}
    assert _begin(json.dumps(offset), source) == Progress.from_value(offset)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("now", "must be earliest, latest, one message id"),
        ("{", "must be earliest, latest, one message id"),
        ('{"a/b": "latest"}', "topic 'a/b' is not"),
        ('{"orders": "newest"}', "must be earliest, latest, or a ledger and an entry"),
        ('{"orders": [1]}', "must be earliest, latest, or a ledger and an entry"),
        ('{"orders": [1, 2, 3]}', "must be earliest, latest, or a ledger and an entry"),
        ('{"orders": {"0": 7}}', "must be earliest, latest, or a ledger and an entry"),
        ('{"orders": "latest", "orders": "earliest"}', "orders is repeated"),
        ('{"orders": "latest", "public/default/orders": "earliest"}', "/orders is repeated"),
        ('{"orders": {"0": [1, 0], "0": [2, 0]}}', "0 is repeated"),
        ('{"orders": {"0": [1, 0]}, "orders-partition-0": [2, 0]}', "-partition-0 is repeated"),
        ('{"version": 9, "topics": {}}', "has version 9, and this release reads version 1"),
    ],
)
def test_what_is_no_beginning_is_refused(text: str, says: str) -> None:
    """The error says what is allowed."""
    with pytest.raises(OptionError, match=re.escape(says)):
        read_starting_offsets("startingOffsets", text)


def test_a_topic_that_is_not_read_is_refused(source: Increments) -> None:
    """A name that is misspelt must not make a topic begin at the earliest."""
    with pytest.raises(OptionError, match="orders, which is not read; topics are: persistent:"):
        _begin('{"orders": "latest"}', source)


def test_sizes_of_a_batch() -> None:
    """Bytes are written as Spark writes them."""
    sizes = {"5": 5, "512": 512, "3k": 3 << 10, "3kb": 3 << 10, "2M": 2 << 20, "1g": 1 << 30}
    for text, size in sizes.items():
        given = {"url": "x", "topic": "t", "maxBytesPerTrigger": text, "maxLedgersPerTrigger": "7"}
        options = SourceOptions.parse(given)
        assert (options.max_bytes, options.max_ledgers) == (size, 7)
