"""Columns of rows in several buffers are gathered as if each value were fetched by itself."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core import builds
from arrow_io.messages import layout
from arrow_io.messages.gathering import Gathered, Gathering
from arrow_io.read_report import ReadReport
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
    Gathered(layout.GATHERED_ENTRY_NUMBERS, layout.ENTRY_ID, pa.int64()),
    Gathered(layout.GATHERED_ENTRY_TIMES, layout.PUBLISH_TIME, _TIMESTAMP),
    Gathered(layout.GATHERED_ROW_TIMES, layout.ROW_EVENT_TIME, _TIMESTAMP),
    Gathered(layout.GATHERED_BATCH_INDEXES, layout.ROW_BATCH_INDEX, pa.int32()),
    Gathered(layout.GATHERED_ENTRY_BYTES, layout.PRODUCER_NAME, pa.string()),
    Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_KEY, pa.string()),
    Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_PAYLOAD, pa.binary()),
    Gathered(layout.GATHERED_NAMES, 0, pa.binary()),
    Gathered(layout.GATHERED_VALUES, 0, pa.binary()),
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


def _gathered(segments: Sequence[Sequence[_Row]], columns: Sequence[Gathered]) -> list[pa.Array]:
    """Columns of rows in segments, each of which has four buffers of its own."""
    count = sum(map(len, segments))
    rows = array("q", bytes(8 * max(1, count) * layout.ROW_WIDTH))
    gatherer = builds.in_use.gathering.Gatherer(memoryview(rows), max(1, count))
    names, values, ends = array("q"), array("q"), array("i", [0])
    row = 0
    for segment in segments:
        data, body, payload = _Buffer(), _Buffer(), _Buffer()
        table = array("q", bytes(8 * layout.ENTRY_WIDTH * len(segment)))
        for entry, each in enumerate(segment):
            base = entry * layout.ENTRY_WIDTH
            table[base + layout.ENTRY_ID] = 100 + row
            table[base + layout.PUBLISH_TIME] = each.publish_time
            table[base + layout.PRODUCER_NAME] = data.put(each.producer)
            for field, number in (
                (layout.ROW_ENTRY, entry),
                (layout.ROW_EVENT_TIME, each.event_time),
                (layout.ROW_BATCH_INDEX, each.batch_index),
                (layout.ROW_KEY, body.put(each.key)),
                (layout.ROW_PAYLOAD, payload.put(each.value)),
            ):
                rows[field * max(1, count) + row] = number
            names.extend(body.put(name) for name, _ in each.properties)
            values.extend(body.put(value) for _, value in each.properties)
            ends.append(len(names))
            row += 1
        gatherer.add(row, memoryview(table), data.view, body.view, payload.view)
    items = len(names)
    gatherer.take_properties(*(memoryview(each) for each in (names, values, ends)), items)
    of_rows = [each for each in columns if each.kind < layout.GATHERED_NAMES]
    of_items = [each for each in columns if each.kind >= layout.GATHERED_NAMES]
    found, beyond = Gathering(of_rows).arrays(gatherer, count, ReadReport())
    every = [each for segment in segments for each in segment]
    assert {each.field for each in beyond} == {
        field
        for field, times, absent in (
            (layout.PUBLISH_TIME, [each.publish_time for each in every], layout.NO_TIME),
            (layout.ROW_EVENT_TIME, [each.event_time for each in every], 0),
        )
        if any(time != absent and abs(time) > _MOST for time in times)
    }
    return found + Gathering(of_items).arrays(gatherer, items, ReadReport())[0]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _microseconds(time: int, absent: int) -> int | None:
    return None if time == absent or abs(time) > _MOST else time * 1000


@given(
    segments=st.lists(st.lists(_ROWS, min_size=1, max_size=12), min_size=1, max_size=4),
    build=st.sampled_from([*BUILDS]),
)
def test_columns_are_gathered_from_all_segments(segments: list[list[_Row]], build: str) -> None:
    """Each value comes from the buffer of its own segment; what is none, or odd, is null."""
    with using_build(build):
        arrays = _gathered(segments, _COLUMNS)

    for each in arrays:
        each.validate(full=True)
    every = [each for segment in segments for each in segment]
    told = [
        (each.cast(pa.int64()) if each.type == _TIMESTAMP else each).to_pylist() for each in arrays
    ]
    assert told == [
        [100 + n for n in range(len(every))],
        [_microseconds(each.publish_time, layout.NO_TIME) for each in every],
        [_microseconds(each.event_time, 0) for each in every],
        [None if each.batch_index < 0 else each.batch_index for each in every],
        [_text(each.producer) for each in every],
        [_text(each.key) for each in every],
        [each.value for each in every],
        [name for each in every for name, _ in each.properties],
        [value for each in every for _, value in each.properties],
    ]


def test_arrays_of_no_columns() -> None:
    """Nothing is gathered if nothing is asked for."""
    assert _gathered([], []) == []
