"""A cross-section of golden topics through DuckDB, pandas and Polars gives the client's rows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.support.encryption import KEY_FOLDER
from tests.support.expected import COLUMNS, Row, fingerprint, rows_of
from tests.support.golden import GoldenTopic, golden_topic, golden_topics
from tests.support.golden_datasets import as_the_client_tells, client_rows, open_golden
from tests.support.golden_values import comparable, expected_values, golden_schema

if TYPE_CHECKING:
    from connector import TopicDataset

_TOPICS = [
    golden_topic(name)
    for name in (
        "bytes-batched-zstd",
        "bytes-single-lz4",
        "string",
        "avro-evolved",
        "kv-avro-separated",
        "chunked",
        "transactions",
        "delayed-and-sequenced",
        "partitioned-partition-1",
        "multi-ledger",
        "small-chunked",
        "clients-cpp-batched-snappy",
        "persistent://acme-corp/sales.eu/orders-été:2026 %20 v1",
    )
]


@pytest.fixture(params=_TOPICS, ids=str)
def topic(request: pytest.FixtureRequest) -> GoldenTopic:
    """Each topic of the cross-section."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def dataset(topic: GoldenTopic) -> TopicDataset:
    """The topic, with all its columns."""
    return open_golden(topic, columns=COLUMNS)


def _assert_as_the_client_read(table: pa.Table, topic: GoldenTopic) -> None:
    expected = client_rows(topic)
    assert as_the_client_tells(rows_of(table), expected) == expected


def _in_duckdb(query: str, dataset: TopicDataset, **parameters: object) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("ds", dataset)
        return connection.sql(query, params=parameters or None).to_arrow_table()


def test_duckdb_gives_all_columns(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """`select *` over the dataset object gives each column with its type, and each row."""
    table = _in_duckdb("select * from ds", dataset)

    assert table.column_names == COLUMNS
    _assert_as_the_client_read(table.cast(dataset.schema), topic)


def test_duckdb_finds_a_dataset_by_its_variable(topic: GoldenTopic) -> None:
    """A query names the Python variable that holds the dataset."""
    ds = open_golden(topic)

    counted = duckdb.sql("select count(*) from ds")

    assert counted is not None
    ((count,),) = counted.fetchall()
    assert count == topic.message_count
    assert ds.metrics.rows == 0  # DuckDB reads by a scanner, which has the metrics


def test_duckdb_aggregates(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """What a query adds up over keys and properties is what the client's rows add up to."""
    query = """
        select __key__ as key, count(*) as messages, count(__value__) as values,
               sum(octet_length(__value__))::bigint as bytes, min(__publish_time__) as first,
               sum(cardinality(__properties__))::bigint as properties
        from ds group by all order by key nulls first
    """
    rows: dict[str | None, list[Row]] = {}
    for row in client_rows(topic):
        rows.setdefault(row["__key__"], []).append(row)

    result = _in_duckdb(query, dataset).to_pylist()

    assert result == [
        {
            "key": key,
            "messages": len(group),
            "values": sum(row["__value__"] is not None for row in group),
            "bytes": _sum(row["__value__"] and row["__value__"][0] for row in group),
            "first": min(row["__publish_time__"] for row in group),
            "properties": sum(len(row["__properties__"]) for row in group),
        }
        for key, group in sorted(rows.items(), key=_nulls_first)
    ]


def _nulls_first(item: tuple[str | None, object]) -> tuple[bool, bytes]:
    return item[0] is not None, (item[0] or "").encode()


def _sum(numbers: Any) -> int | None:  # noqa: ANN401 - nulls among numbers
    present = [number for number in numbers if number is not None]
    return sum(present) if present else None


def test_duckdb_filters(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """A filter gives the rows for which it is true; DuckDB itself does not look again."""
    last = client_rows(topic)[-1]
    query = """
        select * from ds
        where __sequence_id__ >= $number and __publish_time__ < $time
          and (__key__ is null or __key__ <> 'no such key')
    """
    number, time = 2, last["__publish_time__"]

    table = _in_duckdb(query, dataset, number=number, time=time)

    expected = [
        row
        for row in client_rows(topic)
        if row["__sequence_id__"] >= number and row["__publish_time__"] < time
    ]
    rows = rows_of(table.cast(dataset.schema))
    assert as_the_client_tells(rows, [last]) == expected


def test_pandas_gives_all_columns(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """With Arrow's types nothing is lost on the way to pandas."""
    frame = dataset.to_pandas(arrow_types=True)

    assert all(isinstance(dtype, pd.ArrowDtype) for dtype in frame.dtypes)
    table = pa.Table.from_pandas(frame, schema=dataset.schema, preserve_index=False)
    _assert_as_the_client_read(table, topic)


def test_pandas_gives_its_own_types(topic: GoldenTopic) -> None:
    """Without Arrow's types, values and times are those of NumPy and Python."""
    frame = open_golden(topic).to_pandas(
        columns=["__publish_time__", "__sequence_id__", "__value__"]
    )
    expected = client_rows(topic)

    assert frame["__sequence_id__"].tolist() == [row["__sequence_id__"] for row in expected]
    assert frame["__publish_time__"].tolist() == [row["__publish_time__"] for row in expected]
    assert [fingerprint(value) for value in frame["__value__"]] == [
        row["__value__"] for row in expected
    ]


def test_polars_gives_all_columns(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """A Polars frame has each row, properties as maps."""
    rows = _polars_rows(dataset.to_polars())

    expected = client_rows(topic)
    assert as_the_client_tells(rows, expected) == expected


def test_lazy_polars_gives_the_same_rows(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """A lazy frame collects to the same frame, and its predicate keeps the right rows."""
    lazy = dataset.scan_polars()
    frame = dataset.to_polars()

    assert lazy.collect().equals(frame)
    last = frame["__entry_id__"].max()
    predicate = (pl.col("__entry_id__") == last) | pl.col("__key__").is_null()
    chosen = lazy.filter(predicate).select("__value__", "__entry_id__").collect()
    assert chosen.equals(frame.filter(predicate).select("__value__", "__entry_id__"))
    assert lazy.select(pl.len()).collect().item() == topic.message_count


def test_polars_hashes_payloads_like_the_client() -> None:
    """Payloads of every length come through Polars unchanged."""
    topic = golden_topic("bytes-batched-none")
    values = open_golden(topic).scan_polars().select("__value__").collect()["__value__"]

    hashes = [None if v is None else hashlib.sha256(v).hexdigest() for v in values]

    assert hashes == [row.get("sha256") for row in topic.messages()]


def test_arrow_stream_gives_the_same_rows(topic: GoldenTopic, dataset: TopicDataset) -> None:
    """Any consumer of Arrow's C stream reads the rows."""
    reader = pa.RecordBatchReader.from_stream(dataset)

    _assert_as_the_client_read(reader.read_all(), topic)


_ENCRYPTED = [each for each in golden_topics() if "encrypted" in each.name]


@pytest.mark.parametrize("encrypted", _ENCRYPTED, ids=str)
def test_encrypted_topics_in_each_engine(encrypted: GoldenTopic) -> None:
    """With the private keys, an encrypted topic is in each engine what the client read."""
    ds = open_golden(encrypted, columns=COLUMNS, decryption_keys=KEY_FOLDER)
    expected = client_rows(encrypted)

    in_duckdb = _in_duckdb("select * from ds", ds).cast(ds.schema)
    in_pandas = pa.Table.from_pandas(
        ds.to_pandas(arrow_types=True), schema=ds.schema, preserve_index=False
    )
    in_polars = _polars_rows(ds.scan_polars().collect())

    for rows in (rows_of(in_duckdb), rows_of(in_pandas), in_polars):
        assert as_the_client_tells(rows, expected) == expected


_TYPED = [
    golden_topic(name)
    for name in (
        "json-orders",
        "avro-logical",
        "avro-evolved",
        "protobuf-native",
        "protobuf",
        "kv-avro-separated",
        "kv-json-inline",
        "kv-string-avro-separated",
        "kv-string-int-inline",
        "clients-cpp-avro",
        "clients-cpp-json",
        "int64",
        "float",
        "date",
        "instant",
        "local-date",
        "local-time",
        "local-date-time",
    )
]
_POSITION = ("__ledger_id__", "__entry_id__", "__batch_index__")


@pytest.mark.parametrize("typed", _TYPED, ids=str)
@pytest.mark.parametrize("shape", ["flat", "struct"])
def test_typed_values_in_each_engine(typed: GoldenTopic, shape: str) -> None:
    """With its schema, each value and key is in each engine what the client decoded."""
    ds = open_golden(typed, schema=golden_schema(typed), value=shape)

    in_duckdb = _in_duckdb("select * from ds", ds)
    in_pandas = pa.Table.from_pandas(
        ds.to_pandas(arrow_types=True), schema=ds.schema, preserve_index=False
    )
    in_polars = _polars_table(ds)
    streamed = pa.RecordBatchReader.from_stream(ds).read_all()

    expected = {
        (row.ledger_id, row.entry_id, row.batch_index): (row.value, row.key)
        for row in expected_values(typed)
    }
    for table in (in_duckdb, in_pandas, in_polars, streamed):
        assert _typed_values(table.cast(ds.schema)) == expected


def _polars_table(ds: TopicDataset) -> pa.Table:
    """What a lazy frame collects; Arrow's own rows if Polars 1 has no type for a map in them."""
    table = ds.scan_polars().collect().to_arrow()
    if pl.__version__.startswith("1."):
        for index, field in enumerate(ds.schema):
            if "map<" in str(field.type):
                table = table.set_column(index, field, ds.to_table(columns=[field.name])[0])
    return table


def _polars_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame; Polars 1 has lists of structs in the place of maps."""
    rows = frame.to_dicts()
    for row in rows:
        if isinstance(pairs := row["__properties__"], list):
            row["__properties__"] = {pair["key"]: pair["value"] for pair in pairs}
    return rows


def _typed_values(table: pa.Table) -> dict[tuple[Any, ...], tuple[Any, Any]]:
    """Value and key of each message, by position; flat columns as the record that they come from.

    A record all of whose fields are null counts as null: flat columns do not tell.
    """
    names = [name for name in table.column_names if not name.startswith("__")]
    keys = [name for name in table.column_names if name.startswith("__key.")]

    def values(whole: str, fields: list[str]) -> list[Any]:
        if whole in table.column_names:
            return comparable(table[whole])
        if not fields:
            return [None] * len(table)
        columns = {name.removeprefix("__key."): comparable(table[name]) for name in fields}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return [row if any(each is not None for each in row.values()) else None for row in rows]

    positions = zip(*(table[name].to_pylist() for name in _POSITION), strict=True)
    pairs = zip(values("__value__", names), values("__key", keys), strict=True)
    return dict(zip(positions, pairs, strict=True))
