"""The typed values that the golden topics must give are all there, and are what Pulsar's are."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connector.catalog.schemas.loading import load_schema
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topic
from tests.support.golden_values import (
    ExpectedRow,
    comparable,
    expected_values,
    golden_schema,
    topics_with_values,
)

if TYPE_CHECKING:
    from tests.support.golden import GoldenTopic
    from tests.support.golden_values import Comparable, TimeUnit


def _values(name: str, time_unit: TimeUnit = "ns") -> list[Comparable]:
    return [row.value for row in expected_values(golden_topic(name), time_unit)]


def test_all_topics_with_values_are_there() -> None:
    """Each topic of which Pulsar's client decoded values has as many expected rows."""
    counts: dict[str, int] = {}
    for set_name in GOLDEN_SETS:
        topics = json.loads((GOLDEN / set_name / "topics.json").read_text(encoding="utf-8"))
        counts |= {name: each["values"] for name, each in topics.items() if each["values"] >= 0}

    assert {topic.name: len(expected_values(topic)) for topic in topics_with_values()} == counts
    assert (len(counts), sum(counts.values())) == (44, 4554)


@pytest.mark.parametrize("topic", topics_with_values(), ids=str)
def test_rows_are_those_of_the_messages(topic: GoldenTopic) -> None:
    """Each message has one row, with its version and with null where the message is null."""
    rows = expected_values(topic)

    messages = sorted(topic.messages(), key=lambda row: (row["ledger"], row["entry"]))
    assert [
        (row.ledger_id, row.entry_id, row.batch_index, f"{row.schema_version:016x}", row.null_value)
        for row in rows
    ] == [
        (
            each["ledger"],
            each["entry"],
            None if each["batch"] < 0 else each["batch"],
            each["schema_version"],
            each["null_value"],
        )
        for each in messages
    ]
    assert all(row.value is None for row in rows if row.null_value)
    known = {version for version, _ in golden_schema(topic).versions}
    assert {row.schema_version for row in rows} <= known


def test_only_these_values_fit_no_column() -> None:
    """Nanoseconds do not fit microseconds; all else fits."""
    misfits: dict[TimeUnit, Counter[str]] = {"ns": Counter(), "us": Counter()}
    for unit, counter in misfits.items():
        for topic in topics_with_values():
            rows = [row for row in expected_values(topic, unit) if not row.fits]
            counter[topic.name.rpartition("/")[2]] += len(rows)
            assert all(row.value is None and not row.null_value for row in rows)

    assert +misfits["ns"] == Counter()
    assert +misfits["us"] == Counter({"instant": 2, "local-time": 2, "local-date-time": 1})


def test_primitive_values() -> None:
    """A few by hand: numbers that text makes equal, single precision, times before 1970."""
    assert _values("float")[1:5] == ["-0.0", 2**-149, (2 - 2**-23) * 2.0**127, "NaN"]
    assert _values("float")[6:] == [1.10000002384185791015625, None]
    assert _values("double")[1:3] == ["-0.0", 5e-324]
    assert _values("date") == [0, -1_000, 1_700_000_000_123_000, None]
    assert _values("time") == [0, 86_399_999_000, 80_000_123_000]
    assert _values("instant")[2] == -2_208_988_800 * 10**9 - 1
    assert _values("local-date")[2:] == [-141_438, 2_932_896]
    assert _values("local-time")[1:] == [86_399_999_999_999, 45_296_789_012_345]
    assert _values("local-date-time", "us")[2] == (-25_509 * 86_400 + 86_399) * 10**6


def test_key_value_rows() -> None:
    """Keys and values each by itself, either of which may be null."""
    inline = expected_values(golden_topic("kv-string-int-inline"))
    separated = expected_values(golden_topic("kv-avro-separated"))

    assert [(row.key, row.value) for row in inline[3:6]] == [("k3", 9), (None, 16), ("k5", None)]
    assert separated[6] == ExpectedRow(
        61, 0, 6, 0, null_value=True, value=None, key={"region": "us-0", "shard": 6}
    )


def test_avro_values() -> None:
    """Logical types are Arrow's, wide unions are structs, evolved records have the last fields."""
    row = _values("avro-logical")[2]

    assert row == {
        "id": "d9b84546-44ef-7007-601a-1e2082c668e2",
        "day": -3800,
        "tms": 24_690_000,
        "tus": 2_469_135_780,
        "ms": 1_700_000_000_002_000,
        "us": 1_700_000_000_000_002,
        "lms": -2_000_000,
        "amount": Decimal("2469135.7802"),
        "fx": bytes.fromhex("e463b987c5d7dd69184ca9c94091ed59"),
        "fdec": Decimal("-15.54"),
        "u": {"string": None, "long": 2, "array": None},
        "m": {"k0": 0.0, "k1": None},
        "kind": "C",
        "nested": [{"a": 0.25, "b": b"=J\xb0"}, {"a": 1.25, "b": None}],
    }
    evolved = _values("avro-evolved")
    assert evolved[0] == {"currency": None, "items": None, "orderId": 0, "total": 0.0, "who": None}
    assert {tuple(row) for row in evolved} == {("currency", "items", "orderId", "total", "who")}
    assert evolved[-1]["who"] is not None


def test_json_values() -> None:
    """Fields that are absent are null, and zeros have the sign that the payload gives them."""
    first, _, _, third, *_ = _values("json-orders")

    assert (first["note"], first["customer"]["tags"], first["discount"]) == (None, None, 0.0)
    assert (third["total"], third["signature"]) == ("-0.0", b"vR\x08")


@pytest.mark.parametrize("name", ["protobuf", "protobuf-native"])
def test_protobuf_values(name: str) -> None:
    """Absent scalars have their default, absent messages and members of a oneof are null."""
    first, second, *_ = _values(name)

    assert first == {
        "vehicle_id": "veh-0",
        "odometer_m": Decimal(2**64 - 1),
        "temperature_c": 0,
        "ignition": True,
        "mode": "MODE_UNSPECIFIED",
        "position": None,
        "cell_millivolts": [],
        "extras": {},
        "note": None,
        "blob": None,
        "taken_at": None,
        "trail": [],
        "checksum": 0,
        "small": 2**32 - 1,
    }
    assert second["position"] == {"lat": 52.01, "lon": -1 / 7, "accuracy_m": 1.5}
    assert second["trail"] == [{"lat": 0.0, "lon": 1.0, "accuracy_m": None}]
    assert second["taken_at"] == 1_700_000_001_000_001_000
    assert _values(name, "us")[1]["taken_at"] == 1_700_000_001_000_001


def test_protobuf_schema_is_read_by_its_descriptor() -> None:
    """What Pulsar stores of PROTOBUF has none, so its values need one from elsewhere."""
    topic = golden_topic("protobuf")
    schema = golden_schema(topic)

    assert schema.versions == load_schema(topic.folder / "schemas-rest.json").versions
    assert "fileDescriptorSet" in json.loads(schema.reader.data)


_NAN = float("nan")
_STRUCT = pa.struct([("f", pa.float64()), ("t", pa.timestamp("ns"))])
_INSTANT = datetime(2023, 11, 14, 22, 13, 20, 123, UTC)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.bool_(), [True, None], [True, None]),
        (pa.null(), [None], [None]),
        (pa.int8(), [-128, None], [-128, None]),
        (pa.float32(), [-0.0, 0.0, _NAN, 0.1], ["-0.0", 0.0, "NaN", 13421773 / 2**27]),
        (pa.float64(), [float("inf"), -0.0, None], [float("inf"), "-0.0", None]),
        (pa.string(), ["é", None], ["é", None]),
        (pa.large_binary(), [b"\xff", None], [b"\xff", None]),
        (pa.decimal128(20, 0), [Decimal(2**64 - 1), None], [Decimal(2**64 - 1), None]),
        (pa.date32(), [date(1969, 12, 31), None], [-1, None]),
        (pa.time64("us"), [time(0, 0, 1), None], [1_000_000, None]),
        (pa.time64("ns"), [86_399_999_999_999], [86_399_999_999_999]),
        (pa.timestamp("us", "UTC"), [_INSTANT, None], [1_700_000_000_000_123, None]),
        (pa.timestamp("ns"), [-1, None], [-1, None]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "a", None], ["a", "a", None]),
        (_STRUCT, [{"f": -0.0, "t": 1}, None], [{"f": "-0.0", "t": 1}, None]),
        (pa.list_(_STRUCT), [[], None, [None, {"t": 7}]], [[], None, [None, {"f": None, "t": 7}]]),
        (pa.large_list(pa.float64()), [[1.0], [_NAN]], [[1.0], ["NaN"]]),
        (
            pa.map_(pa.string(), pa.float64()),
            [[("a", _NAN)], None, [], [("b", 1.0), ("c", None)]],
            [{"a": "NaN"}, None, {}, {"b": 1.0, "c": None}],
        ),
    ],
    ids=str,
)
def test_comparable_loses_nothing(
    kind: pa.DataType, values: list[Any], expected: list[Comparable]
) -> None:
    """Arrays of every type, and slices, chunks and structs of them, in the form of the rows."""
    array = pa.array(values, kind)

    assert comparable(array) == expected
    assert comparable(pa.chunked_array([array, array.slice(1)])) == expected + expected[1:]
    assert comparable(pa.array([], kind)) == []
    wrapped = pa.StructArray.from_arrays([array], ["x"])
    assert comparable(wrapped.slice(1)) == [{"x": value} for value in expected[1:]]
    listed = pa.ListArray.from_arrays(pa.array([0, 1, len(values)], pa.int32()), array)
    assert comparable(listed.slice(1)) == [expected[1:]]


def test_comparable_tells_units_and_keys_that_stand_twice() -> None:
    """The same time in another unit is another number, and no entry of a map is dropped."""
    us, ns = (pa.array([_INSTANT], pa.timestamp(unit, "UTC")) for unit in ("us", "ns"))
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))

    assert comparable(us) != comparable(ns)
    with pytest.raises(AssertionError, match="'a', 'a'"):
        comparable(twice)
