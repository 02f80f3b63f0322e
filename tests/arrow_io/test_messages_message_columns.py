"""Messages from any number of runs and buffers are gathered into Arrow arrays, in order."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.columns import Origin, projection
from arrow_io.core import builds
from arrow_io.core.ipc_message import IpcMessage
from arrow_io.errors import ChecksumError, CorruptEntryError
from arrow_io.messages import layout, message_columns
from arrow_io.messages.gathering import PROPERTIES, Gathered, Gathering, as_text
from arrow_io.messages.message_columns import MessageColumns
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.read_metrics import ReadMetrics, Tally, Unit
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Framing, Message, encode_entry
from tests.support.runs import batch_indexes, entry_run, properties_of, runs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.messages.entry_run import EntryRun


_PROPERTY_WITHOUT_NAME = b"\x12\x01v"
_PRODUCERS = Gathering(
    [("", Gathered(layout.GATHERED_ENTRY_BYTES, layout.PRODUCER_NAME, pa.binary()))]
)


def _message(number: int, **fields: Any) -> Message:  # noqa: ANN401
    properties = tuple((f"name {n}", f"{number}") for n in range(number % 3))
    return Message(payload=b"%d" % number, properties=properties, **fields)


def _runs() -> list[EntryRun]:
    """Three runs: singles and a batch; a compressed single; a batch of another ledger."""
    lz4 = Framing(codec="LZ4")
    return [
        entry_run(
            [
                encode_entry([_message(0, partition_key="a")], batched=False),
                encode_entry([_message(1)], batched=False),
                encode_entry([_message(2), _message(3, partition_key="b")], batched=True),
            ]
        ),
        entry_run([encode_entry([_message(4)], batched=False, framing=lz4)], first_entry_id=3),
        entry_run(
            [encode_entry([_message(5, partition_key=""), _message(6)], batched=True, framing=lz4)],
            ledger_id=2,
        ),
    ]


def _all_columns(runs: list[EntryRun]) -> MessageColumns:
    (columns,) = MessageReader(runs, Needs(), Tally())
    return columns


def _told(columns: MessageColumns) -> list[tuple[object, ...]]:
    properties = properties_of(columns)
    return list(
        zip(
            columns.ledger_ids().to_pylist(),
            columns.entry_numbers(layout.ENTRY_ID).to_pylist(),
            batch_indexes(columns).to_pylist(),
            columns.row_bytes(layout.ROW_PAYLOAD).to_pylist(),
            columns.row_bytes(layout.ROW_KEY).to_pylist(),
            columns.measure(_PRODUCERS).record_batch(Tally()).column(0).to_pylist(),
            properties.to_pylist(),
            strict=True,
        )
    )


def _pairs(number: int) -> list[tuple[str, str]]:
    return [(f"name {n}", f"{number}") for n in range(number % 3)]


_EXPECTED = [
    (1, 0, None, b"0", b"a", b"producer", _pairs(0)),
    (1, 1, None, b"1", None, b"producer", _pairs(1)),
    (1, 2, 0, b"2", None, b"producer", _pairs(2)),
    (1, 2, 1, b"3", b"b", b"producer", _pairs(3)),
    (1, 3, None, b"4", None, b"producer", _pairs(4)),
    (2, 0, 0, b"5", b"", b"producer", _pairs(5)),
    (2, 0, 1, b"6", None, b"producer", _pairs(6)),
]


@given(kept=st.lists(st.integers(0, 6), unique=True).map(sorted), build=st.sampled_from([*BUILDS]))
def test_rows_that_are_kept(kept: list[int], build: str) -> None:
    """Any rows can be chosen, and chosen among again; none is fine too."""
    with using_build(build):
        chosen = _all_columns(_runs()).take(pa.array(kept, pa.int64()))

        assert chosen.count == len(kept)
        if kept:
            assert _told(chosen) == [_EXPECTED[n] for n in kept]
            last = chosen.take(pa.array([len(kept) - 1], pa.int64()))
            assert _told(last) == [_EXPECTED[kept[-1]]]


@pytest.mark.usefixtures("build")
def test_kept_rows_may_be_a_slice() -> None:
    """The numbers of the rows may begin anywhere in their Arrow array."""
    chosen = _all_columns(_runs()).take(pa.array([0, 2, 4, 6], pa.int64()).slice(1, 2))

    assert _told(chosen) == [_EXPECTED[2], _EXPECTED[4]]


@pytest.mark.usefixtures("build")
def test_kept_rows_keep_what_is_known_of_them() -> None:
    """Their share of the bytes, and under their new numbers the values that were lost."""
    columns = _all_columns(_runs())
    columns.size_bytes = 700
    columns.undecoded_rows = {0, 3, 5}

    chosen = columns.take(pa.array([1, 3, 4, 5], pa.int64()))
    assert (chosen.size_bytes, chosen.undecoded_rows) == (400, {1, 3})
    again = chosen.take(pa.array([0, 3], pa.int64()))
    assert (again.size_bytes, again.undecoded_rows) == (200, {1})
    nothing = columns.take(pa.array([], pa.int64()))
    assert (nothing.size_bytes, nothing.undecoded_rows) == (0, set())
    assert nothing.take(pa.array([], pa.int64())).size_bytes == 0
    assert (columns.size_bytes, columns.undecoded_rows) == (700, {0, 3, 5})


@pytest.mark.usefixtures("build")
def test_rows_are_located_among_many_parts() -> None:
    """The first, the last and any other: each is of its own entry, also behind a choice."""
    lz4 = Framing(codec="LZ4")
    runs = [
        entry_run(
            [
                encode_entry([_message(0)] * (1 + ledger % 3), batched=True, framing=lz4),
                encode_entry([_message(0)], batched=False, framing=lz4),
            ],
            ledger_id=ledger,
        )
        for ledger in range(30)
    ]
    columns = _all_columns(runs)
    expected = [
        place
        for ledger in range(30)
        for place in [*((ledger, 0, n) for n in range(1 + ledger % 3)), (ledger, 1, None)]
    ]

    def places(rows: MessageColumns) -> list[tuple[int | None, ...]]:
        errors = [rows.locate(CorruptEntryError("x"), row) for row in range(rows.count)]
        return [(each.ledger_id, each.entry_id, each.batch_index) for each in errors]

    assert places(columns) == expected
    assert places(columns.take(pa.array(range(2, len(expected), 7), pa.int64()))) == expected[2::7]


@pytest.mark.usefixtures("build")
def test_singles_are_added_as_far_as_they_fit() -> None:
    """What does not fit is for the next columns."""
    run = entry_run([encode_entry([_message(n)], batched=False) for n in range(4)])
    columns = MessageColumns(3)

    assert columns.add_singles(run, 1, 4) == 4
    assert columns.add_singles(run, 0, 4) == 0
    assert columns.row_bytes(layout.ROW_PAYLOAD).to_pylist() == [b"1", b"2", b"3"]


def _with_bad_property(*, batched: bool) -> bytes:
    """An entry without checksum whose (second) message has a property without a name."""
    framing = Framing(checksum=False)
    field = (b"\x0a" if batched else b"\x22") + bytes([len(_PROPERTY_WITHOUT_NAME)])
    bad = Message(payload=b"bad", extra_fields=field + _PROPERTY_WITHOUT_NAME)
    good = Message(payload=b"good", properties=(("n", "v"),))
    return encode_entry([good, bad, good] if batched else [bad], batched=batched, framing=framing)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("batched", [False, True])
def test_bad_property_is_an_error_with_its_place(*, batched: bool) -> None:
    """By default a property that cannot be decoded is an error that names the message."""
    columns = _all_columns([entry_run([_with_bad_property(batched=batched)], ledger_id=9)])

    with pytest.raises(CorruptEntryError, match="a property of the message") as caught:
        properties_of(columns)

    assert (caught.value.ledger_id, caught.value.entry_id) == (9, 0)
    assert caught.value.batch_index == (1 if batched else None)


@pytest.mark.usefixtures("build")
def test_bad_property_costs_its_message_the_properties() -> None:
    """When salvaging, the messages around it keep theirs."""
    tally = Tally(salvage=True)
    single = encode_entry([Message(properties=(("x", "y"),))], batched=False)
    runs = [entry_run([single, _with_bad_property(batched=True), single])]

    properties = properties_of(_all_columns(runs), tally)

    assert properties.to_pylist() == [[("x", "y")], [("n", "v")], [], [("n", "v")], [("x", "y")]]
    assert tally.metrics.lost == {(Unit.MESSAGE, "CorruptEntryError"): 1}


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("batched", [False, True])
def test_many_properties_between_few(*, batched: bool) -> None:
    """A row with more properties than are compared pair by pair does not disturb its neighbours."""
    many = tuple((f"name {n % 100}", f"{n}") for n in range(150))
    messages = [Message(properties=(("a", "1"), ("a", "2"))), Message(properties=many), Message()]
    entries = (
        [encode_entry(messages, batched=True)]
        if batched
        else [encode_entry([each], batched=False) for each in messages]
    )

    properties = properties_of(_all_columns([entry_run(entries)]))

    assert [dict(row) for row in properties.to_pylist()] == [{"a": "2"}, dict(many), {}]
    assert [len(row) for row in properties.to_pylist()] == [1, 100, 0]


@pytest.mark.usefixtures("build")
def test_values_beyond_2_gib_are_an_error() -> None:
    """Offsets of 32 bits never wrap."""
    columns = _all_columns(_runs())
    rows = columns._rows
    for row in range(columns.count):
        rows[layout.ROW_PAYLOAD * columns._stride + row] = 2**30

    with pytest.raises(CorruptEntryError, match="more than 2 GiB"):
        columns.row_bytes(layout.ROW_PAYLOAD)


@pytest.mark.usefixtures("build")
def test_text_is_checked() -> None:
    """What is UTF-8 comes as it is; what is not is replaced, and only that is counted."""
    metrics = ReadMetrics()
    given_bytes = [b"ascii", None, "поток".encode(), b"", b"\xff", b"ok \xc3", "�".encode()]

    text = as_text(pa.array(given_bytes, pa.binary()), metrics)

    assert text.to_pylist() == ["ascii", None, "поток", "", "�", "ok �", "�"]
    assert metrics.replaced_texts == 2


@given(values=st.lists(st.none() | st.binary(max_size=12)), build=st.sampled_from([*BUILDS]))
def test_any_bytes_become_valid_text(values: list[bytes | None], build: str) -> None:
    """Nulls stay, and what comes out is always UTF-8."""
    with using_build(build):
        text = as_text(pa.array(values, pa.binary()), ReadMetrics())

    text.validate(full=True)
    assert text.to_pylist() == [
        value if value is None else value.decode(errors="replace") for value in values
    ]


# Any rows


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
        gatherer.add(row, number, memoryview(table), data.view, body.view, payload.view, 0)
    if names:
        offsets = array("q", bytes(8 * (len(ends) // 2 + 1)))
        memoryview(offsets).cast("B").cast("i")[: len(ends)] = memoryview(ends)
        numbers = memoryview(names + values + offsets)
        gatherer.set_properties(numbers, len(names), len(names))
    gathering = Gathering([(f"{n}", each) for n, each in enumerate(columns)])
    size_bytes, notes = gathering.measure(gatherer)
    message = IpcMessage(gathering.layout, size_bytes)
    odd = gathering.fill(gatherer, notes, message)
    return message.read(), odd


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


# Batches that are verified, split and copied at once


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("broken", range(4))
def test_broken_batch_at_each_position(broken: int) -> None:
    """Only the batch whose checksum differs is lost, wherever it is in its run."""
    values = [b"%d" % n * 3000 for n in range(8)]
    messages = [Message(payload=value) for value in values]
    batches = [encode_entry(messages[2 * n : 2 * n + 2], batched=True) for n in range(4)]
    batches[broken] = batches[broken][:-1] + b"?"
    tally = Tally(salvage=True)

    run = entry_run(batches)
    (columns,) = MessageReader([run], Needs(), tally, verify=True, copy_values=True)
    reader = MessageReader([entry_run(batches)], Needs(), Tally(), verify=True, copy_values=True)
    before: list[bytes] = []
    with pytest.raises(ChecksumError) as caught:
        before.extend(v for each in reader for v in each.row_bytes(layout.ROW_PAYLOAD).to_pylist())

    read = columns.row_bytes(layout.ROW_PAYLOAD).to_pylist()
    assert read == values[: 2 * broken] + values[2 * broken + 2 :]
    assert tally.metrics.lost == {(Unit.ENTRY, "ChecksumError"): 1}
    assert before == values[: 2 * broken]
    assert caught.value.entry_id == broken
    assert not run.is_verified


@pytest.mark.usefixtures("build")
def test_values_are_copied_once() -> None:
    """Record batches share the values that were copied when the batches were split."""
    batches = [encode_entry([Message(payload=b"x" * 1000)] * 3, batched=True) for _ in range(5)]
    runs = runs_of(batches, length=2)
    limits = BatchLimits(first_bytes=2 * 15_000)
    (columns,) = MessageReader(runs, Needs(), Tally(), limits=limits, copy_values=True)

    (batch,) = projection().assembly(Origin()).record_batches(columns, Tally())
    (again,) = projection().assembly(Origin()).record_batches(columns, Tally())

    values = [each.column("__value__").buffers()[2] for each in (batch, again)]
    assert values[0].address == values[1].address
    assert values[0].size == 15 * 1000


_BATCHES: Final = [encode_entry([Message(payload=b"x" * 1000)] * 2, batched=True)] * 5


def _read(runs: list[EntryRun], tally: Tally, **limits: int) -> list[MessageColumns]:
    chosen = BatchLimits(**limits)
    return list(MessageReader(runs, Needs(), tally, limits=chosen, copy_values=True))


@pytest.mark.usefixtures("build")
def test_values_that_outgrow_their_buffer_are_not_copied() -> None:
    """The buffer has room for what the first batches made likely; a large one does not fit."""
    large = encode_entry([Message(payload=b"y" * 300_000)], batched=True)
    runs = [entry_run(_BATCHES), entry_run([large], first_entry_id=5)]

    (columns,) = _read(runs, Tally(), first_bytes=50_000)

    assert columns._values is None
    assert columns.row_bytes(layout.ROW_PAYLOAD).to_pylist() == [b"x" * 1000] * 10 + [
        b"y" * 300_000
    ]


@pytest.mark.usefixtures("build")
def test_no_buffer_is_made_for_values_whose_rows_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the last columns have room for the values of all further batches."""
    sizes: list[int] = []
    copied_values = message_columns._CopiedValues

    def make(size_bytes: int) -> object:
        sizes.append(size_bytes)
        return copied_values(size_bytes)

    monkeypatch.setattr(message_columns, "_CopiedValues", make)

    read = _read([entry_run(_BATCHES)], Tally(), first_rows=4, max_rows=4)

    assert [each.count for each in read] == [4, 4, 2]
    assert len(sizes) == 1


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("bad", range(5))
def test_damaged_batches_count_in_the_size(bad: int) -> None:
    """Rows of the others keep them in memory: they are in one buffer."""
    runs = [entry_run(_BATCHES), entry_run(_BATCHES)]
    runs[0].table[bad * layout.ENTRY_WIDTH + layout.BATCH_SIZE] = 1 << 30
    tally = Tally(salvage=True)

    (damaged,), (sound,) = (_read([each], tally) for each in runs)

    assert damaged.count == sound.count - 2
    # The first of all has no row yet.
    assert damaged.size_bytes == sound.size_bytes - (bad == 0) * 2 * len(_BATCHES[0])


@pytest.mark.usefixtures("build")
def test_batches_without_rows_do_not_count() -> None:
    """A compaction left nothing of them, so no row keeps them in memory."""
    empty = encode_entry([Message(compacted_out=True)] * 100, batched=True)
    runs = [entry_run([empty] * 9), entry_run(_BATCHES, first_entry_id=9)]

    (columns,) = _read(runs, Tally())

    assert columns.size_bytes == 2 * runs[1].frame_bytes
