"""Messages from any number of runs and buffers are gathered into Arrow arrays, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptEntryError
from arrow_io.messages import layout
from arrow_io.messages.gathering import Gathered, Gathering, as_text
from arrow_io.messages.message_columns import MessageColumns
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.read_metrics import ReadMetrics, Tally, Unit
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Framing, Message, encode_entry
from tests.support.runs import batch_indexes, entry_run, properties_of

if TYPE_CHECKING:
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
            columns.gathered(_PRODUCERS, Tally()).column(0).to_pylist(),
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


@pytest.mark.usefixtures("build")
def test_rows_of_several_runs_are_gathered() -> None:
    """Each row's bytes come from the buffer that it stands in."""
    assert _told(_all_columns(_runs())) == _EXPECTED


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

    assert properties.to_pylist() == [
        [("x", "y")],
        [("n", "v")],
        [],
        [("n", "v")],
        [("x", "y")],
    ]
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
