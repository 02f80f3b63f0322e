"""Partitions are those of Iceberg's specification; PyIceberg's own transforms say what is right."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg import types as iceberg
from pyiceberg.transforms import parse_transform

from arrow_io.errors import LakeTableError, OptionError
from connector.tables import transforms
from connector.tables.transforms import PartitionField, Partitioning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.tables.transforms import Transform

_UTC_MICROSECONDS: Final = pa.timestamp("us", "UTC")
_NAIVE: Final = st.datetimes()
_AWARE: Final = st.datetimes(timezones=st.just(UTC))
_BEFORE_1970: Final = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
_DECIMALS: Final = st.decimals(
    min_value=Decimal(-10) ** 33, max_value=Decimal(10) ** 33, places=5, allow_nan=False
)
_NANOSECONDS: Final = st.integers(-(2**63) + 1, 2**63 - 1)
_VALUES: Final[dict[pa.DataType, st.SearchStrategy[Any]]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.decimal128(38, 5): _DECIMALS,
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): _NAIVE,
    _UTC_MICROSECONDS: _AWARE,
    pa.timestamp("ns"): _NANOSECONDS,
    pa.timestamp("ns", "UTC"): _NANOSECONDS,
}
_ICEBERG_TYPES: Final[dict[pa.DataType, iceberg.IcebergType]] = {
    pa.int8(): iceberg.IntegerType(),
    pa.int16(): iceberg.IntegerType(),
    pa.int32(): iceberg.IntegerType(),
    pa.int64(): iceberg.LongType(),
    pa.decimal128(38, 5): iceberg.DecimalType(38, 5),
    pa.string(): iceberg.StringType(),
    pa.binary(): iceberg.BinaryType(),
    pa.date32(): iceberg.DateType(),
    pa.time64("us"): iceberg.TimeType(),
    pa.timestamp("us"): iceberg.TimestampType(),
    _UTC_MICROSECONDS: iceberg.TimestamptzType(),
    pa.timestamp("ns"): iceberg.TimestampNanoType(),
    pa.timestamp("ns", "UTC"): iceberg.TimestamptzNanoType(),
}
_WITH_DATE: Final = [
    type_ for type_ in _VALUES if pa.types.is_date(type_) or pa.types.is_timestamp(type_)
]


def _expected(transform: str, column: pa.Array) -> list[int | None]:
    """What PyIceberg makes of each value, from Iceberg's own numbers for times."""
    type_ = column.type
    if pa.types.is_temporal(type_):
        column = column.view(pa.int32() if pa.types.is_date(type_) else pa.int64())
    function = parse_transform(transform).transform(_ICEBERG_TYPES[type_])
    return [function(each) for each in column.to_pylist()]


@st.composite
def _columns(draw: st.DrawFn, types: Sequence[pa.DataType]) -> pa.Array:
    """A column with nulls, of one of several types; a slice of a longer one."""
    type_ = draw(st.sampled_from(types))
    values = draw(st.lists(st.none() | _VALUES[type_], max_size=20))
    return pa.array(values, type_)[draw(st.integers(0, 2)) :]


@given(_columns(_WITH_DATE), st.sampled_from(["year", "month", "day", "hour"]))
@example(pa.array([_BEFORE_1970, datetime(1970, 1, 1, tzinfo=UTC)], _UTC_MICROSECONDS), "hour")
@example(pa.array([_BEFORE_1970, None], _UTC_MICROSECONDS), "day")
@example(pa.array([date(1969, 12, 31), date(1968, 2, 29)]), "month")
@example(pa.array([date.min, date.max]), "year")
def test_times(column: pa.Array, transform: Transform) -> None:
    """Times become whole numbers as Iceberg counts them, those before 1970 too."""
    if transform == "hour" and pa.types.is_date(column.type):
        transform = "day"

    values = PartitionField("at", transform).values(column)

    assert values.type == pa.int32()
    assert values.to_pylist() == _expected(transform, column)


@given(_columns(list(_VALUES)), st.integers(1, 2**31 - 1) | st.integers(1, 16))
@example(pa.array(["iceberg", "", "é"]), 16)
@example(pa.array([b"", b"\0\1\2\3"]), 16)
@example(
    pa.array(
        [Decimal("0.00"), Decimal("-1.28"), Decimal("1.27"), Decimal("1.28")], pa.decimal128(38, 5)
    ),
    97,
)
def test_buckets(column: pa.Array, buckets: int) -> None:
    """Values fall into the buckets that Iceberg has them in."""
    values = PartitionField("x", "bucket", buckets).values(column)

    assert values.type == pa.int32()
    assert values.to_pylist() == _expected(f"bucket[{buckets}]", column)


@given(
    st.lists(
        st.tuples(st.none() | _AWARE, st.none() | st.sampled_from(["a", "b", "c", ""])),
        max_size=40,
    )
)
def test_split(rows: list[tuple[datetime | None, str | None]]) -> None:
    """Each row is in the partition of its values, in the order of rows, and in no other."""
    table = pa.table(
        {
            "at": pa.array([at for at, _ in rows], _UTC_MICROSECONDS),
            "key": pa.array([key for _, key in rows], pa.string()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )
    texts = ("year(at)", "bucket(2, key)", "key")
    partitioning = Partitioning.parse(texts, table.schema)
    wanted: dict[tuple[Any, ...], list[int]] = {}
    for row, (at, key) in enumerate(rows):
        bucket = _expected("bucket[2]", pa.array([key], pa.string()))[0]
        values = (None if at is None else at.year - 1970, bucket, key)
        wanted.setdefault(values, []).append(row)

    found = [
        (values, part.column("row").to_pylist())
        for batch in table.to_batches()
        for values, part in partitioning.split(batch)
    ]

    assert found == list(wanted.items())


def test_rows_in_order_are_not_copied() -> None:
    """Rows that stand partition by partition are cut, and keep the batch's own memory."""
    batch = pa.record_batch({"day": pa.array([1, 1, 2], pa.int32()).cast(pa.date32())})

    parts = Partitioning((PartitionField("day"),)).split(batch)

    assert [values for values, _ in parts] == [(date(1970, 1, 2),), (date(1970, 1, 3),)]
    address = batch.column(0).buffers()[1].address
    assert {part.column(0).buffers()[1].address for _, part in parts} == {address}


def test_no_partition() -> None:
    """A table that is not divided takes a batch as it is; of no rows there is no partition."""
    batch = pa.record_batch({"a": pa.array([1, 2])})

    assert Partitioning().split(batch) == [((), batch)]
    assert Partitioning((PartitionField("a"),)).split(batch.slice(0, 0)) == []


def test_too_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that falls into more partitions than files may be open is refused, with the sum."""
    monkeypatch.setattr(transforms, "MAX_PARTITIONS", 3)
    partitioning = Partitioning((PartitionField("a"),))

    assert len(partitioning.split(pa.record_batch({"a": [1, 2, 3, 3]}))) == 3
    with pytest.raises(LakeTableError, match="more than 3 partitions by a:"):
        partitioning.split(pa.record_batch({"a": [1, 2, 3, 4]}))


@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_years_that_there_are(transform: Transform, unit: str) -> None:
    """A time that no calendar has is an error that names the column, not a wrong partition."""
    field = PartitionField("at", transform, 4 if transform == "bucket" else 0)
    type_ = pa.timestamp(unit, "UTC")
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC, microsecond=0)]
    first, last = pa.array(ends, type_).view(pa.int64()).to_pylist()
    a_second = {"s": 1, "ms": 1_000, "us": 1_000_000}[unit]

    assert len(field.values(pa.array([first, None, last], type_))) == 3
    for outside in (first - 1, last + a_second):
        with pytest.raises(LakeTableError, match="column at has a time outside the years"):
            field.values(pa.array([None, outside], type_))


_SCHEMA: Final = pa.schema(
    {
        "__publish_time__": _UTC_MICROSECONDS,
        "customer": pa.string(),
        "flag": pa.bool_(),
        "price": pa.float64(),
        "born": pa.date32(),
        "at": pa.timestamp("ns"),
        "born_day": pa.int32(),
        "year(born)": pa.int32(),
        "__key.id": pa.int64(),
    }
)


@pytest.mark.parametrize(
    ("text", "field", "name"),
    [
        ("customer", PartitionField("customer"), "customer"),
        ("flag", PartitionField("flag"), "flag"),
        ("__key.id", PartitionField("__key.id"), "__key.id"),
        ("year(born)", PartitionField("year(born)"), "year(born)"),
        (
            " day( __publish_time__ ) ",
            PartitionField("__publish_time__", "day"),
            "__publish_time___day",
        ),
        ("hour(at)", PartitionField("at", "hour"), "at_hour"),
        ("month(born)", PartitionField("born", "month"), "born_month"),
        ("bucket(16,customer)", PartitionField("customer", "bucket", 16), "customer_bucket"),
        ("bucket(2, at)", PartitionField("at", "bucket", 2), "at_bucket"),
    ],
)
def test_parse(text: str, field: PartitionField, name: str) -> None:
    """A text names a column or a transform of one, and is found again in what was parsed."""
    partitioning = Partitioning.parse([text], _SCHEMA)

    assert partitioning.fields == (field,)
    assert field.name == name
    assert Partitioning.parse(partitioning.texts, _SCHEMA) == partitioning
    assert pickle.loads(pickle.dumps(partitioning)) == partitioning


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["nobody"], "no column 'nobody'; allowed are a column, year"),
        (["day(nobody)"], "no column 'nobody'"),
        (["week(born)"], "no column 'week(born)'"),
        (["bucket(customer)"], "no column 'bucket(customer)'"),
        (["bucket(0, customer)"], "buckets are 1 to 2147483647"),
        (["bucket(2147483648, customer)"], "buckets are 1 to 2147483647"),
        (["price"], "column price has the type double"),
        (["bucket(4, price)"], "column price has the type double"),
        (["bucket(4, flag)"], "column flag has the type bool"),
        (["at"], "column at has the type timestamp[ns]"),
        (["hour(born)"], "column born has the type date32[day]"),
        (["hour(customer)"], "column customer has the type string"),
        (["day(customer)"], "column customer has the type string"),
        (["month(customer)"], "column customer has the type string"),
        (["year(customer)"], "column customer has the type string"),
        (["customer", "customer"], "by customer and by customer: one follows"),
        (["day(at)", "hour(at)"], "by hour(at) and by day(at)"),
        (["year(at)", "hour(at)"], "by hour(at) and by year(at)"),
        (["bucket(2, born)", "bucket(4, born)"], "by bucket(4, born) and by bucket(2, born)"),
        (["day(born)"], "the table already has a column born_day"),
    ],
)
def test_refused(texts: list[str], message: str) -> None:
    """What cannot be a partition field is an error that says why."""
    with pytest.raises(OptionError, match=re.escape(message)):
        Partitioning.parse(texts, _SCHEMA)


def test_two_columns_of_a_name() -> None:
    """A column that is there twice cannot be meant."""
    schema = pa.schema([pa.field("a", pa.int32()), pa.field("a", pa.int32())])

    with pytest.raises(OptionError, match="several columns 'a'"):
        Partitioning.parse(["a"], schema)


@given(_AWARE)
def test_texts_of_times(at: datetime) -> None:
    """The text of a value is the beginning of the time in ISO 8601, as Iceberg shows it."""
    column = pa.array([at], _UTC_MICROSECONDS)
    iso = at.isoformat()

    for transform, length in (("year", 4), ("month", 7), ("day", 10), ("hour", 13)):
        field = PartitionField("at", transform)  # type: ignore[arg-type]
        text = field.text(field.values(column)[0].as_py())
        assert text == iso[:length].replace("T", "-")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-3, "-3"),
        ("a/b", "a/b"),
        (b"\0\xff", "AP8="),
        (Decimal("1.50"), "1.50"),
        (date(2026, 11, 22), "2026-11-22"),
        (datetime(2026, 11, 22, 9, 58, tzinfo=UTC), "2026-11-22T09:58:00+00:00"),
        (time(9, 58), "09:58:00"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_texts_of_values(value: object, text: str) -> None:
    """A value itself has the text in which Iceberg shows it."""
    assert PartitionField("a").text(value) == text


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("customer", pa.string()),
        ("year(born)", pa.int32()),
        ("day(__publish_time__)", pa.date32()),
        ("hour(__publish_time__)", pa.int32()),
        ("bucket(2, customer)", pa.int32()),
    ],
)
def test_result_types(text: str, type_: pa.DataType) -> None:
    """A column of the values has the type that Iceberg gives the field."""
    field = Partitioning.parse([text], _SCHEMA).fields[0]

    assert field.result_type(_SCHEMA.field(field.source).type) == type_
