"""Dead letters: each of them with its bytes, for few requests, in little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector import CopySizes, copy_topics, open_topic, write_messages
from connector.lake import task_writer
from connector.tables.dead_letters import POSITION_COLUMNS, DeadLetterMetrics
from connector.tables.parquet import ParquetTable
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.golden import golden_topic
from tests.support.lake_copies import letters_target
from tests.support.lake_tables import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_SHAPES: dict[str, dict[str, Any]] = {
    "one-block": {"block_bytes": 64 << 20},
    "short-ranges": {"range_bytes": 1 << 14},
    "small-blocks": {"block_bytes": 20_000},
    "many-ledgers": {"ledger_entries": 10},
}
_DEAD: dict[str, Callable[[int], bool]] = {
    "all": lambda number: number >= 0,
    "every-other": lambda number: number % 2 == 0,
    "every-tenth": lambda number: number % 10 == 3,
    "two": lambda number: number in {0, 399},
}


def payloads_of(is_dead: Callable[[int], bool]) -> list[bytes]:
    """Values of 400 messages, of which eight bytes are sound."""
    return [
        (b"dead %05d" % n) * 300 if is_dead(n) else n.to_bytes(8, "big", signed=True)
        for n in range(400)
    ]


def write(url: str, payloads: Sequence[bytes], **options: Any) -> None:  # noqa: ANN401
    """Write messages, four an entry."""
    messages = [
        Message(payload=each, publish_time_ms=1_700_000_000_000 + n)
        for n, each in enumerate(payloads)
    ]
    write_messages(
        url, TOPIC, messages, **({"batch_messages": 4, "batch_delay_ms": 10**9} | options)
    )


def letters_at(target: str) -> list[bytes]:
    """The bytes of all letters, in the order of their positions."""
    table = table_of(ParquetTable(Location(letters_target(target))))
    ordered = table.sort_by([(name, "ascending") for name in POSITION_COLUMNS])
    found: list[bytes] = ordered.column("__value__").to_pylist()
    return found


def range_requests(url: str, topic: str, target: str, **options: Any) -> int:  # noqa: ANN401
    """How many requests for data a copy takes."""
    trace = RequestTrace()
    copy_topics(url, topic, target, format="parquet", trace=trace, **options)
    return trace.counts.range_requests


@pytest.mark.parametrize("is_dead", _DEAD.values(), ids=_DEAD)
@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES)
def test_letters_cost_at_most_as_much_as_the_rows(
    shape: dict[str, Any],
    is_dead: Callable[[int], bool],
    bucket: MemoryBucket,
    tmp_path: Path,
) -> None:
    """Wherever they stand, a copy with them sends no more than twice the requests."""
    payloads = payloads_of(is_dead)
    reading = {"range_bytes": shape.get("range_bytes", 1 << 20)}
    write(bucket.url, payloads, **{name: shape[name] for name in shape.keys() - reading.keys()})
    plain = range_requests(bucket.url, TOPIC, str(tmp_path / "p"), value="raw", **reading)
    target = str(tmp_path / "t")
    both = range_requests(bucket.url, TOPIC, target, schema="INT64", dead_letters=True, **reading)

    assert both <= 2 * plain
    assert letters_at(target) == [each for each in payloads if len(each) != 8]


def test_letters_of_clients_that_do_not_batch_cost_little(tmp_path: Path) -> None:
    """An entry for each message is no request for each letter."""
    topic = golden_topic("persistent://public/default/json-orders")
    plain = range_requests(str(topic.objects_folder), topic.name, str(tmp_path / "p"), value="raw")
    both = range_requests(
        str(topic.objects_folder),
        topic.name,
        str(tmp_path / "t"),
        schema="INT64",
        dead_letters=True,
    )
    assert both <= 2 * plain


@pytest.mark.parametrize("name", ["chunked", "transactions", "multi-block"])
@pytest.mark.parametrize("held", [1, 1 << 18], ids=["one-by-one", "together"])
def test_letters_have_the_bytes_of_a_batch_read(
    name: str, held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages in chunks and of transactions too, by the smallest tasks, a few at a time or all."""
    monkeypatch.setattr(task_writer, "MAX_BUFFERED_DEAD_LETTERS", held)
    topic = golden_topic(f"persistent://public/default/{name}")
    target = str(tmp_path / "t")
    [summary] = copy_topics(
        str(topic.objects_folder),
        topic.name,
        target,
        format="parquet",
        schema="INT64",
        dead_letters=True,
        sizes=CopySizes(task_bytes=1),
    )
    columns = [*POSITION_COLUMNS, "__value__"]
    table = open_topic(
        str(topic.objects_folder), topic.name, value="raw", columns=columns
    ).to_table()
    by_position = [(column, "ascending") for column in POSITION_COLUMNS]
    values = table.sort_by(by_position).column("__value__").to_pylist()
    assert letters_at(target) == [each for each in values if len(each) != 8]
    assert summary.rows + summary.dead_letters == len(values)


def test_many_letters_are_held_in_little_memory(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written as soon as there are many, each once."""
    held: list[int] = []
    lose = DeadLetterMetrics.lose

    def counting(metrics: DeadLetterMetrics, *args: Any, **options: Any) -> None:  # noqa: ANN401
        lose(metrics, *args, **options)
        held.append(len(metrics.dead_letters))

    monkeypatch.setattr(task_writer, "MAX_BUFFERED_DEAD_LETTERS", 50)
    monkeypatch.setattr(DeadLetterMetrics, "lose", counting)
    payloads = 5 * payloads_of(_DEAD["every-other"])
    write(bucket.url, payloads)
    target = str(tmp_path / "t")
    [summary] = copy_topics(
        bucket.url, TOPIC, target, format="parquet", schema="INT64", dead_letters=True
    )
    assert (summary.rows, summary.dead_letters) == (1000, 1000)
    assert letters_at(target) == [each for each in payloads if len(each) != 8]
    # One batch has fewer than 400.
    assert max(held) < 500
