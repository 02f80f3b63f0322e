"""Columns of rows in several buffers are gathered as if each value were fetched by itself."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core import builds
from arrow_io.messages import layout
from arrow_io.messages.gathering import PROPERTIES, Gathered, Gathering
from tests.support.builds import BUILDS, using_build

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MOST = layout.MAX_MILLISECONDS
_TIMES = st.sampled_from([layout.NO_TIME, -_MOST - 1, -_MOST, -1, 0, 1, _MOST, _MOST + 1])


class _Row(NamedTuple):
    """A row, and the entry that it is alone in."""

    publish_time: int
    event_time: int
    batch_index: int
    producer: bytes | None
    key: bytes | None
    value: bytes | None
    properties: tuple[tuple[bytes, bytes], ...]


_BYTES = st.none() | st.binary(max_size=40)
_ROWS = st.builds(
    _Row,
    _TIMES,
    _TIMES,
    st.integers(-1, 3),
    _BYTES,
    _BYTES,
    _BYTES,
    st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=20)), max_size=3).map(tuple),
)
_COLUMNS = [
    Gathered(layout.GATHERED_LEDGER_IDS, 0, pa.int64()),
    Gathered(layout.GATHERED_CONSTANTS, -1, pa.int32()),
    Gathered(layout.GATHERED_PROPERTIES, 0, PROPERTIES),
    Gathered(layout.GATHERED_ROW_NUMBERS, layout.ROW_SEQUENCE_ID, pa.int64()),
    Gathered(layout.GATHERED_ENTRY_NUMBERS, layout.ENTRY_ID, pa.int64()),
    Gathered(layout.GATHERED_ENTRY_TIMES, layout.PUBLISH_TIME, _TIMESTAMP),
    Gathered(layout.GATHERED_ROW_TIMES, layout.ROW_EVENT_TIME, _TIMESTAMP),
    Gathered(layout.GATHERED_BATCH_INDEXES, layout.ROW_BATCH_INDEX, pa.int32()),
    Gathered(layout.GATHERED_ENTRY_BYTES, layout.PRODUCER_NAME, pa.string()),
    Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_KEY, pa.string()),
    Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_PAYLOAD, pa.binary()),
]


class _Buffer:
    """Bytes that positions point into."""

    def __init__(self) -> None:
        self._data = b"-"  # so that no position is 0 by chance

    def put(self, value: bytes | None) -> int:
        if value is None:
            return layout.ABSENT
        self._data += value
        return len(self._data) - len(value) << 32 | len(value)

    @property
    def view(self) -> memoryview:
        return memoryview(self._data)


def _gathered(
    parts: Sequence[Sequence[_Row]], columns: Sequence[Gathered]
) -> tuple[pa.RecordBatch, list[tuple[int, Gathered]]]:
    """Columns of rows in parts, each of which has four buffers of its own; and what is odd."""
    count = sum(map(len, parts))
    rows = array("q", bytes(8 * max(1, count) * layout.ROW_WIDTH))
    gatherer = builds.in_use.gathering.Gatherer(memoryview(rows), max(1, count))
    names, values, ends = array("q"), array("q"), array("i", [0])
    row = 0
    for number, part in enumerate(parts):
        data, body, payload = _Buffer(), _Buffer(), _Buffer()
        table = array("q", bytes(8 * layout.ENTRY_WIDTH * len(part)))
        for entry, each in enumerate(part):
            base = entry * layout.ENTRY_WIDTH
            table[base + layout.ENTRY_ID] = 100 + row
            table[base + layout.PUBLISH_TIME] = each.publish_time
            table[base + layout.PRODUCER_NAME] = data.put(each.producer)
            for field, told in (
                (layout.ROW_ENTRY, entry),
                (layout.ROW_SEQUENCE_ID, 1000 + row),
                (layout.ROW_EVENT_TIME, each.event_time),
                (layout.ROW_BATCH_INDEX, each.batch_index),
                (layout.ROW_KEY, body.put(each.key)),
                (layout.ROW_PAYLOAD, payload.put(each.value)),
            ):
                rows[field * max(1, count) + row] = told
            names.extend(body.put(name) for name, _ in each.properties)
            values.extend(body.put(value) for _, value in each.properties)
            ends.append(len(names))
            row += 1
        gatherer.add(row, number, memoryview(table), data.view, body.view, payload.view)
    if names:
        found = (memoryview(each) for each in (names, values, ends))
        gatherer.set_properties(*found, len(names))
    gathering = Gathering([(f"{n}", each) for n, each in enumerate(columns)])
    made = gathering.record_batch(gatherer)
    assert made is not None
    return made


def _odd_fields(rows: Sequence[_Row]) -> set[int]:
    """The fields of the columns that are to be looked at, by the rows."""
    texts: dict[int, list[bytes | None]] = {
        layout.PRODUCER_NAME: [each.producer for each in rows],
        layout.ROW_KEY: [each.key for each in rows],
        0: [text for each in rows for pair in each.properties for text in pair],
    }
    times = {
        layout.PUBLISH_TIME: (layout.NO_TIME, [each.publish_time for each in rows]),
        layout.ROW_EVENT_TIME: (0, [each.event_time for each in rows]),
    }
    return {
        field for field, values in texts.items() if any(not (v or b"").isascii() for v in values)
    } | {
        field
        for field, (absent, values) in times.items()
        if any(time != absent and abs(time) > _MOST for time in values)
    }


def _as_came(values: pa.Array) -> list[object]:
    """Values of a column; what may not be UTF-8 as bytes, times as numbers."""
    if values.type == PROPERTIES:
        names, texts = (each.cast(pa.binary()).to_pylist() for each in (values.keys, values.items))
        pairs = list(zip(names, texts, strict=True))
        return [tuple(pairs[i:j]) for i, j in pairwise(values.offsets.to_pylist())]
    if values.type == _TIMESTAMP:
        return list(values.cast(pa.int64()).to_pylist())
    return list((values.cast(pa.binary()) if values.type == pa.string() else values).to_pylist())


def _microseconds(time: int, absent: int) -> int | None:
    return None if time == absent or abs(time) > _MOST else time * 1000


@given(
    parts=st.lists(st.lists(_ROWS, min_size=1, max_size=12), min_size=1, max_size=4),
    build=st.sampled_from([*BUILDS]),
)
def test_columns_are_gathered_from_all_parts(parts: list[list[_Row]], build: str) -> None:
    """Each value comes from the buffer of its own part; what is none, or odd, is null."""
    every = [each for part in parts for each in part]
    with using_build(build):
        batch, odd = _gathered(parts, _COLUMNS)

    batch.validate()
    assert {column.field for _, column in odd} == _odd_fields(every)
    assert all(_COLUMNS[place] == each or place == 2 for place, each in odd)
    assert [_as_came(each) for each in batch.columns] == [
        [number for number, part in enumerate(parts) for _ in part],
        [-1 for _ in every],
        [each.properties for each in every],
        [1000 + n for n in range(len(every))],
        [100 + n for n in range(len(every))],
        [_microseconds(each.publish_time, layout.NO_TIME) for each in every],
        [_microseconds(each.event_time, 0) for each in every],
        [None if each.batch_index < 0 else each.batch_index for each in every],
        [each.producer for each in every],
        [each.key for each in every],
        [each.value for each in every],
    ]


@given(
    rows=st.lists(_ROWS, min_size=1, max_size=12),
    columns=st.lists(st.sampled_from(_COLUMNS), max_size=12),
    build=st.sampled_from([*BUILDS]),
)
def test_message_is_as_arrow_writes_it(
    rows: list[_Row], columns: list[Gathered], build: str
) -> None:
    """Any columns, none too, are the record batch that Arrow's own writer makes of their arrays."""
    with using_build(build):
        batch, _ = _gathered([rows], columns)

    written = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    assert batch.num_rows == written.num_rows == len(rows)
    assert batch.equals(written)
    assert [each.null_count for each in batch.columns] == [
        sum(value is None for value in _as_came(each)) for each in batch.columns
    ]
