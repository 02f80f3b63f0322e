"""What `start` and `end` may be, and that just the rows between them come."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from connector import open_topic
from connector.inputs.bounds import Bounds
from connector.inputs.times import EPOCH, milliseconds_of, time_of
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.core.builds import Build
    from connector.inputs.bounds import Bound

_MS: Final = 1_700_000_000_123
_INSTANT: Final = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
_PARTITION: Final = golden_topic("small-partitioned-partition-1")
_INDIA: Final = timezone(timedelta(hours=5, minutes=30))


@pytest.mark.parametrize(
    ("bound", "ms"),
    [
        (_INSTANT, _MS),
        (_INSTANT.replace(tzinfo=None), _MS),
        (_INSTANT.astimezone(_INDIA), _MS),
        (pd.Timestamp(_INSTANT), _MS),
        ("2023-11-14T22:13:20.123Z", _MS),
        ("2023-11-14T22:13:20.123", _MS),
        ("2023-11-15T03:43:20.123+05:30", _MS),
        (" 2023-11-14 22:13:20.123 ", _MS),
        ("2023-11-14", 1_699_920_000_000),
        (_INSTANT - timedelta(microseconds=1), _MS),
        (_INSTANT + timedelta(microseconds=1), _MS + 1),
        (_INSTANT + timedelta(microseconds=999), _MS + 1),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_001, UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 998_999, UTC), -1),
        (date(2023, 11, 14), 1_699_920_000_000),
        (date(1, 1, 1), -62_135_596_800_000),
        (pd.Timestamp("2023-11-14T22:13:20.123000001"), _MS + 1),
        (pd.Timestamp("2023-11-14T22:13:20.122999999"), _MS),
        (np.datetime64("2023-11-14"), 1_699_920_000_000),
        (np.datetime64("2023", "Y"), 1_672_531_200_000),
        (np.datetime64(_MS, "ms"), _MS),
        (np.datetime64("2023-11-14T22:13:20.123000001"), _MS + 1),
        (np.datetime64("2023-11-14T22:13:20.122999999"), _MS),
        (np.datetime64(-1, "ns"), 0),
        (np.datetime64(-1_000_001, "ns"), -1),
    ],
    ids=repr,
)
def test_times_are_the_first_whole_ms_at_or_behind_them(bound: Any, ms: int) -> None:  # noqa: ANN401
    """A datetime is UTC unless it says otherwise; as start and as end its ceiling in ms counts."""
    assert Bounds.parse(bound, bound) == Bounds(start_ms=ms, end_ms=ms)
    assert Bounds.parse(bound, None).by_time


@pytest.mark.parametrize(
    ("bound", "message_id"),
    [
        ((7, 3), (7, 3, 0)),
        ((7, 3, 2), (7, 3, 2)),
        ((7, 3, -1), (7, 3, 0)),
        ([7, 3], (7, 3, 0)),
        ([7, 3, 2], (7, 3, 2)),
        ("(7,3)", (7, 3, 0)),
        ("(7,3,2)", (7, 3, 2)),
        (" ( 7 , 3 , -1 ) ", (7, 3, 0)),
        ("7:3", (7, 3, 0)),
        ("7:3:-1", (7, 3, 0)),
        ("7:3:5", (7, 3, 0)),
        ("7:3:5:2", (7, 3, 2)),
        ("7:3:-1:-1", (7, 3, 0)),
        ((7, -1), (7, -1, 0)),
        ("7:-1:-1", (7, -1, 0)),
        ("-1:-1:-1", (-1, -1, 0)),
        ((2**63 - 1, 2**63 - 1), (2**63 - 1, 2**63 - 1, 0)),
        (f"{2**63 - 1}:{2**63 - 1}:-1", (2**63 - 1, 2**63 - 1, 0)),
        ((np.int64(7), np.int32(3), np.uint8(2)), (7, 3, 2)),
        ("(7,3,-1,-1)", (7, 3, 0)),
        ("(7, 3, 1, 2)", (7, 3, 2)),
        ("7:1:-1;7:3:-1", (7, 3, 0)),
        ("Message ID: 7:3", (7, 3, 0)),
        ("Batch Message ID: 7:3:2", (7, 3, 2)),
        (bytes.fromhex("08071003"), (7, 3, 0)),
        # As Java's BatchMessageIdImpl writes it: no partition, batch index 2, batch size 9.
        (bytes.fromhex("08071003 18ffffffffffffffffff01 2002 3009"), (7, 3, 2)),
        # ChunkMessageIdImpl: the first chunk's id is in field 7.
        (bytes.fromhex("08071003 18ffffffffffffffffff01 3a0408071001"), (7, 3, 0)),
        (bytes.fromhex("08ffffffffffffffffff01 10ffffffffffffffffff01"), (-1, -1, 0)),
        (bytearray.fromhex("08071003"), (7, 3, 0)),
    ],
    ids=repr,
)
def test_message_ids_have_the_forms_of_users_and_of_pulsar(
    bound: Any,  # noqa: ANN401
    message_id: tuple[int, int, int],
) -> None:
    """Tuples, lists, their text, and Pulsar's `ledger:entry[:partition[:batch]]` name an id."""
    assert Bounds.parse(bound, bound) == Bounds(start_id=message_id, end_id=message_id)
    assert not Bounds.parse(bound, None).by_time


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ((7, 3), (7, 2)),
        ((8, 0), "7:9"),
        ("(7,3,1)", (7, 3)),
        (_INSTANT, _INSTANT - timedelta(milliseconds=1)),
        ("2023-11-15", date(2023, 11, 14)),
    ],
    ids=repr,
)
def test_a_start_behind_the_end_is_refused(start: Any, end: Any) -> None:  # noqa: ANN401
    """Both are told: a dataset without rows would hide that they were exchanged."""
    with pytest.raises(OptionError, match=r"^start is after end: ") as caught:
        Bounds.parse(start, end)

    assert repr(start) in str(caught.value)
    assert repr(end) in str(caught.value)
    for first, stop in ((end, start), (start, start)):
        Bounds.parse(first, stop)


@pytest.mark.parametrize("option", ["start", "end"])
@pytest.mark.parametrize(
    "bound",
    [
        "",
        "yesterday",
        "2023-13-01",
        "7",
        "7:",
        "(7)",
        "(7,3,2,1,0)",
        "7:3:0;",
        "7:1:0;7:3:0;7:4:0",
        "Message ID: 7",
        "(7.5,3)",
        "7:3:0:0:0",
        "1" * 5000 + ":1",
        "99999999999999999999:1",
        (7,),
        (7, 3, 2, 1),
        (7, "3"),
        (7.0, 3),
        (True, 3),
        (7, None),
        (2**63, 0),
        (7, 2**63),
        (7, 3, 2**63),
        (-2, 0),
        7,
        7.5,
        b"7:3",
        b"",
        bytes.fromhex("0807"),
        bytes.fromhex("0807100318"),
        bytes.fromhex("08071003") + bytes(5000),
        pd.NaT,
        np.datetime64("NaT"),
        np.datetime64("9999999999", "Y"),
        np.datetime64(2**62, "s"),
        np.timedelta64(7, "ms"),
        np.array([7, 3]),
        {},
    ],
    ids=lambda bound: repr(bound)[:30],
)
def test_anything_else_is_an_option_error(option: str, bound: Any) -> None:  # noqa: ANN401
    """The error names the option, what it may be, and what was given."""
    with pytest.raises(OptionError, match=f"^{option} must be a datetime, .* message id") as caught:
        Bounds.parse(**{"start": None, "end": None, option: bound})

    assert repr(bound) in str(caught.value)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Ledger 5: a batch of three, a single message, a batch of two; ledger 9: a single message.

    Publish times, in ms after `_MS`, go back and forth: 10, 0, 20 and 10.
    """

    def entry(count: int, late_ms: int, *, batched: bool) -> bytes:
        members = [Message(payload=b"value")] * count
        return encode_entry(members, batched=batched, publish_time=_MS + late_ms)

    first = [entry(3, 10, batched=True), entry(1, 0, batched=False), entry(2, 20, batched=True)]
    with memory_bucket(offload([(5, first), (9, [entry(1, 10, batched=False)])])) as bucket:
        yield bucket.url


_ALL: Final = [
    "(5,0,0)",
    "(5,0,1)",
    "(5,0,2)",
    "(5,1,-1)",
    "(5,2,0)",
    "(5,2,1)",
    "(9,0,-1)",
]


def _ids(url: str, **bounds: Any) -> list[str]:  # noqa: ANN401
    dataset = open_topic(url, TOPIC, columns=["__message_id__"], **bounds)
    ids: list[str] = dataset.to_table()["__message_id__"].to_pylist()
    assert dataset.count_rows() == len(ids)
    return ids


@pytest.mark.parametrize(
    ("bound", "before"),
    [
        ((-1, -1), 0),
        ((5, -1), 0),
        ((5, 0), 0),
        ((5, 0, 1), 1),
        ((5, 0, 2), 2),
        ((5, 0, 3), 3),
        ((5, 1), 3),
        ((5, 1, -1), 3),
        ((5, 1, 0), 3),
        ((5, 1, 1), 4),
        ((5, 2, 1), 5),
        ((5, 3), 6),
        ((5, 2**63 - 1), 6),
        ((7, 0), 6),
        ((9, 0), 6),
        ((9, 1), 7),
        ((2**63 - 1, 2**63 - 1), 7),
    ],
    ids=repr,
)
def test_message_ids_bound_to_the_member(
    build: Build,
    url: str,
    bound: Any,  # noqa: ANN401
    before: int,
) -> None:
    """`start` is inclusive and `end` exclusive; what is not batched counts as member 0."""
    del build

    assert _ids(url, start=bound) == _ALL[before:]
    assert _ids(url, end=bound) == _ALL[:before]


@pytest.mark.parametrize(
    ("bound", "behind"),
    [
        (_INSTANT, [0, 1, 2, 3, 4, 5, 6]),
        (_INSTANT + timedelta(microseconds=1), [0, 1, 2, 4, 5, 6]),
        (_INSTANT + timedelta(milliseconds=9, microseconds=999), [0, 1, 2, 4, 5, 6]),
        (_INSTANT + timedelta(milliseconds=10), [0, 1, 2, 4, 5, 6]),
        (_INSTANT + timedelta(milliseconds=10, microseconds=1), [4, 5]),
        (_INSTANT + timedelta(milliseconds=20), [4, 5]),
        (_INSTANT + timedelta(milliseconds=20, microseconds=1), []),
    ],
    ids=repr,
)
def test_times_bound_exactly(build: Build, url: str, bound: datetime, behind: list[int]) -> None:
    """Each row is compared, because publish times are in no order; parts of a ms count."""
    del build

    assert _ids(url, start=bound) == [_ALL[row] for row in behind]
    assert _ids(url, end=bound) == [_ALL[row] for row in range(7) if row not in behind]


def test_bounds_of_both_kinds_combine(url: str) -> None:
    """A message id at one end and a time at the other: a row lies within both."""
    late = _INSTANT + timedelta(milliseconds=10)

    assert _ids(url, start=(5, 0, 2), end=late) == ["(5,1,-1)"]
    assert _ids(url, start=late, end=(5, 2, 1)) == ["(5,0,0)", "(5,0,1)", "(5,0,2)", "(5,2,0)"]


def test_empty_bounds_give_no_rows(url: str) -> None:
    """A start at the end is no error: nothing lies within."""
    assert _ids(url, start=(5, 1), end=(5, 1)) == []
    assert _ids(url, start=_INSTANT, end=_INSTANT) == []


def test_a_batch_index_in_the_place_of_the_partition_is_refused(url: str) -> None:
    """Java prints `ledger:entry:partition`; where the ledger is of another, it is told."""
    for start, end in (("5:0:1", None), (None, "5:0:1")):
        with pytest.raises(OptionError, match=r"names partition 1, .*write it fourth: 5:0:-1:1"):
            open_topic(url, TOPIC, start=start, end=end)
    # Of a ledger that is not there nothing tells whose it is.
    assert _ids(url, end="4:0:1") == []
    assert _ids(url, start="5:0:-1:1", end="5:1:-1") == ["(5,0,1)", "(5,0,2)"]

    with pytest.raises(OptionError, match="names partition 2"):
        open_golden(_PARTITION, start=f"{_PARTITION.ledgers[0].ledger_id}:0:2")
    whole = open_golden(_PARTITION)
    bounded = open_golden(_PARTITION, start=f"{_PARTITION.ledgers[0].ledger_id}:0:1")
    assert bounded.count_rows() == whole.count_rows() > 0


@pytest.mark.parametrize("name", ["small-chunked", "small-transactions"])
def test_any_cut_of_a_golden_topic_loses_nothing(build: Build, name: str) -> None:
    """[…, cut) and [cut, …) together are the whole, whichever entry the cut is at."""
    del build
    topic = golden_topic(name)
    columns = ["__message_id__", "__value__"]
    whole = open_golden(topic, columns=columns).to_table().to_pylist()
    cuts = [
        (ledger.ledger_id, entry) for ledger in topic.ledgers for entry in range(ledger.entry_count)
    ]

    for cut in cuts:
        before = open_golden(topic, columns=columns, end=cut).to_table().to_pylist()
        behind = open_golden(topic, columns=columns, start=cut).to_table().to_pylist()
        assert before + behind == whole, cut
    assert len(cuts) > 50


@pytest.mark.parametrize(
    ("start", "end", "ledgers"),
    [
        (None, None, (0, 2**63 - 1)),
        ((7, 3), (9, 0), (7, 8)),
        ((7, 3, 1), (9, 0, 1), (7, 9)),
        ("2026-01-01", (9, 2), (0, 9)),
    ],
)
def test_ledgers_within_bounds(start: Bound, end: Bound, ledgers: tuple[int, int]) -> None:
    """Bounds tell the first and the last ledger that may have rows within."""
    bounds = Bounds.parse(start, end)
    assert (bounds.first_ledger_id, bounds.last_ledger_id) == ledgers


@given(milliseconds=st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_times_of_a_calendar_go_both_ways(milliseconds: int) -> None:
    """From the year 1 to the year 9999, to the millisecond."""
    time = time_of(milliseconds)

    assert time is not None
    assert milliseconds_of(time) == milliseconds


@pytest.mark.parametrize(
    "milliseconds", [253_402_300_800_000, -62_135_596_800_001, 2**63 - 1, -(2**63), 10**400]
)
def test_times_that_no_calendar_has(milliseconds: int) -> None:
    """Metadata may hold any number."""
    assert time_of(milliseconds) is None


def test_any_time_zone_and_fraction() -> None:
    """The zone counts; what is below a millisecond is cut off."""
    east = timezone(timedelta(hours=1))

    assert time_of(0) == EPOCH == datetime(1970, 1, 1, tzinfo=UTC)
    assert milliseconds_of(datetime(1970, 1, 1, 1, 0, 0, 1999, tzinfo=east)) == 1
