"""Typed columns of a dataset: filters and counts on them, pandas, and what is said without them."""

from __future__ import annotations

import json
import pickle
import re
import struct
import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import (
    OptionError,
    PayloadDecodeError,
    UndecodedValuesWarning,
    UnknownSchemaVersionError,
)
from arrow_io.read_metrics import Unit
from connector import TopicDataset, open_topic
from connector.catalog.schemas.loading import load_schema
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import comparable, expected_values, golden_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.core.builds import Build
    from tests.support.golden_values import ExpectedRow

ORDERS: Final = golden_topic("json-orders")
EVOLVED: Final = golden_topic("avro-evolved")
TELEMETRY: Final = golden_topic("protobuf-native")


def typed(name: str, **options: Any) -> TopicDataset:  # noqa: ANN401 - open_topic's
    """A golden topic with its schema."""
    topic = golden_topic(name)
    return open_golden(topic, schema=golden_schema(topic), **options)


def numbers_topic(payloads: Sequence[bytes]) -> dict[str, bytes]:
    """A topic of one batch."""
    return offload([(7, [encode_entry([Message(payload=p) for p in payloads], batched=True)])])


# Filters

_Condition = tuple[str, pc.Expression, "Callable[[dict[str, Any]], object]"]
CONDITIONS: Final[tuple[_Condition, ...]] = (
    ("json-orders", pc.field("status") == "NEW", lambda v: v["status"] == "NEW"),
    (
        "json-orders",
        pc.field("customer", "id") > 5,
        lambda v: v["customer"] and v["customer"]["id"] > 5,
    ),
    ("avro-logical", pc.field("amount") > Decimal("0.5"), lambda v: v["amount"] > Decimal("0.5")),
    ("avro-logical", pc.field("u", "long") > 3, lambda v: v["u"] and (v["u"]["long"] or 0) > 3),
    (
        "protobuf-native",
        pc.field("taken_at") > pa.scalar(1_700_000_001_000_001_000, pa.timestamp("ns", "UTC")),
        lambda v: (v["taken_at"] or 0) > 1_700_000_001_000_001_000,
    ),
)


@pytest.mark.parametrize(
    ("name", "expression", "holds"),
    CONDITIONS,
    ids=[f"{name}: {expression}" for name, expression, _ in CONDITIONS],
)
def test_filters_are_exact(
    build: Build,
    name: str,
    expression: pc.Expression,
    holds: Callable[[dict[str, Any]], object],
) -> None:
    """A filter on typed columns, fields of structs too, gives the rows for which it is true."""
    del build

    def position(row: ExpectedRow) -> tuple[int, int, int | None]:
        return row.ledger_id, row.entry_id, row.batch_index

    rows = expected_values(golden_topic(name))
    expected = [position(r) for r in rows if r.value is not None and holds(r.value)]
    dataset = typed(name)
    columns = ["__ledger_id__", "__entry_id__", "__batch_index__"]

    table = dataset.to_table(columns, expression)
    first = dataset.head(3, columns, expression)

    assert list(zip(*table.to_pydict().values(), strict=True)) == expected
    assert first.equals(table.slice(0, 3))
    assert dataset.count_rows(expression) == dataset.filter(expression).count_rows()
    assert dataset.count_rows(expression) == len(expected)
    assert 0 < len(expected) < len(rows)


def test_values_of_the_rows_that_pass(build: Build) -> None:
    """Behind a filter, each typed column has the values of its own rows."""
    del build
    expected = [
        row.value for row in expected_values(ORDERS) if row.value and row.value["status"] == "PAID"
    ]
    table = typed("json-orders").to_table(filter=pc.field("status") == "PAID")

    assert {name: comparable(table[name]) for name in expected[0]} == {
        name: [value[name] for value in expected] for name in expected[0]
    }


def test_no_more_is_decoded_than_asked_for(decoded: list[tuple[tuple[str, ...], int]]) -> None:
    """A count decodes nothing, a filter its column, and the others come for rows that pass."""
    dataset = typed("json-orders")
    new = sum(bool(r.value) and r.value["status"] == "NEW" for r in expected_values(ORDERS))

    assert dataset.count_rows() == ORDERS.message_count
    assert dataset.to_table(["__key__", "__publish_time__"]).num_rows == ORDERS.message_count
    assert decoded == []
    dataset.to_table(["total", "gift"], pc.field("status") == "NEW")
    assert {columns for columns, _ in decoded} == {("status",), ("total", "gift")}
    assert sum(rows for columns, rows in decoded if columns == ("total", "gift")) == new > 0


def test_a_pickled_dataset_decodes_as_before(tmp_path: Path) -> None:
    """The schemas travel with a dataset, so that another process needs no file."""
    file = tmp_path / "schemas.json"
    file.write_bytes((EVOLVED.folder / "schemas-rest.json").read_bytes())
    dataset = open_golden(EVOLVED, schema=file, value="struct")
    sent = pickle.dumps(dataset)
    file.unlink()

    copy: TopicDataset = pickle.loads(sent)

    assert comparable(copy.to_table(["__value__"])["__value__"]) == [
        row.value for row in expected_values(EVOLVED)
    ]


def test_unknown_columns_are_told() -> None:
    """A typed column that there is not is an error that lists those that there are."""
    dataset = typed("json-orders")

    with pytest.raises(OptionError, match=r"no column 'totals'; the columns are: .*total"):
        dataset.to_table(["totals"])
    with pytest.raises(OptionError, match=r"no column '__value__'; the columns are: .*status"):
        open_golden(ORDERS, schema=golden_schema(ORDERS), columns=["__value__"])
    with pytest.raises(OptionError, match=r"filter .* cannot be applied"):
        dataset.to_table(filter=pc.field("customer", "ids") > 5)


# pandas


def test_pandas_types_that_cannot_hold_a_value(build: Build) -> None:
    """Nanoseconds of a day and years beyond 9999 are given; an error where pyarrow is to choose."""
    del build
    columns = ["__value__"]
    far = numbers_topic([struct.pack(">q", 10**7)])
    with memory_bucket(far) as bucket:
        far_dates = open_topic(bucket.url, TOPIC, schema="LOCAL_DATE")
        for dataset in (far_dates, typed("local-time")):
            with pytest.raises(OptionError, match=r"chose cannot hold a value: "):
                dataset.to_pandas(columns, date_as_object=True)

            frame = dataset.to_pandas(columns)
            table = pa.Table.from_pandas(frame, preserve_index=False)
            assert comparable(table["__value__"]) == comparable(
                dataset.to_table(columns)["__value__"]
            )


def test_pandas_gives_nested_values() -> None:
    """A struct is a dict where it is looked at, and a list has a length."""
    frame = typed("json-orders").to_pandas(["customer", "items"])
    values = [row.value or {"customer": None, "items": None} for row in expected_values(ORDERS)]

    names = frame["customer"].struct.field("name").tolist()
    lengths = frame["items"].list.len().tolist()
    assert [None if pd.isna(name) else name for name in names] == [
        v["customer"] and v["customer"]["name"] for v in values
    ]
    assert [None if pd.isna(length) else length for length in lengths] == [
        None if v["items"] is None else len(v["items"]) for v in values
    ]


# What is told


def test_bytes_are_told_where_they_are_given() -> None:
    """Without a schema, whoever opens a topic is warned, at the line that opens it."""
    with pytest.warns(UndecodedValuesWarning, match="in __value__: there is no schema") as caught:
        dataset = open_topic(str(ORDERS.objects_folder), "json-orders")
    assert [Path(each.filename) for each in caught] == [Path(__file__)]
    assert dataset.schema.field("__value__").type == pa.binary()
    described = golden_schema(golden_topic("protobuf"))
    no_descriptor = {"type": "PROTOBUF", "schema": "{}"}
    with pytest.warns(UndecodedValuesWarning, match="needs a descriptor set"):
        open_golden(TELEMETRY, schema=no_descriptor)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_golden(ORDERS, value="raw")
        open_golden(ORDERS, columns=["__key__"])
        open_golden(golden_topic("protobuf"), schema=described)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema_version": 0}, "give schema too"),
        ({"schema": load_schema("INT8"), "schema_version": 0}, "schema is already read"),
        ({"schema": "INT8", "schema_version": 0}, "give one of them"),
        ({"schema": "INT8", "time_unit": "ms"}, "time_unit must be one of ns, us"),
        ({"schema": "INT8", "value": "wide"}, "value must be one of flat, struct, raw"),
        ({"schema": 8}, "a value of type int"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], said: str) -> None:
    """What is wrong with an option is known when the topic is opened."""
    with pytest.raises(OptionError, match=re.escape(said)):
        open_golden(ORDERS, **options)


def test_a_misfit_has_its_place_and_is_counted(build: Build) -> None:
    """A payload that does not fit is an error with id and field; salvaged, a null that counts."""
    del build
    record = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    schema = {"type": "JSON", "schema": json.dumps(record)}
    objects = numbers_topic([b'{"n": 1}', b'{"n": "one"}', b"", b'{"n": 4}'])
    with memory_bucket(objects) as bucket:
        with pytest.raises(PayloadDecodeError) as caught:
            open_topic(bucket.url, TOPIC, schema=schema).to_table()
        dataset = open_topic(bucket.url, TOPIC, schema=schema, on_corruption="salvage")
        with pytest.warns(UserWarning, match="2 × value lost: PayloadDecodeError"):
            values = dataset.to_table()["n"].to_pylist()
        with pytest.warns(UserWarning, match="1 × value lost|2 × value lost"):
            kept = dataset.filter(pc.field("n") > 1).count_rows()

    error = caught.value
    assert (error.ledger_id, error.entry_id, error.batch_index) == (7, 0, 1)
    assert error.field_path == "n"
    assert values == [1, None, None, 4]
    assert dataset.metrics.lost == {(Unit.VALUE, "PayloadDecodeError"): 2}
    assert kept == 1


@pytest.mark.parametrize(
    ("expression", "expected", "lost"),
    [
        (pc.field("a").is_null() | pc.field("a").is_valid(), [2, None, None, 5, None], 3),
        (pc.field("a").is_null() | (pc.field("a") == 4), [None, None, 5, None], 3),
        (pc.field("a").is_null(), [None, None], 2),
    ],
    ids=["all rows", "some rows", "no row that is read"],
)
def test_a_value_is_lost_once(
    build: Build, expression: pc.Expression, expected: list[int | None], lost: int
) -> None:
    """One that gives neither the filter's column nor the others counts one."""
    del build
    fields = [{"name": name, "type": ["null", "int"]} for name in "ab"]
    schema = {
        "type": "JSON",
        "schema": json.dumps({"type": "record", "name": "R", "fields": fields}),
    }
    payloads = [b'{"a":1,"b":2}', b"[]", b'{"a":4,"b":"five"}', b'{"a":4,"b":5}', b"{"]
    with memory_bucket(numbers_topic(payloads)) as bucket:
        dataset = open_topic(bucket.url, TOPIC, schema=schema, on_corruption="salvage")
        with pytest.warns(UserWarning, match=f"{lost} × value lost: PayloadDecodeError"):
            values = dataset.to_table(["b", "a"], expression)["b"].to_pylist()

    assert values == expected
    assert dataset.metrics.lost == {(Unit.VALUE, "PayloadDecodeError"): lost}


def test_a_version_that_is_not_known_is_told() -> None:
    """A message of a version that the schema lacks is an error with its place; salvaged, null."""
    versions = json.loads((EVOLVED.folder / "schemas-rest.json").read_text())
    known = versions["getSchemaResponses"][:1]
    dataset = open_golden(EVOLVED, schema=known, value="struct")
    with pytest.raises(UnknownSchemaVersionError, match=r"schema version 1 .*available are: 0;"):
        dataset.to_table(["__value__"])

    salvaging = open_golden(EVOLVED, schema=known, value="struct", on_corruption="salvage")
    with pytest.warns(UserWarning, match="value lost: UnknownSchemaVersionError"):
        values = salvaging.to_table(["__value__", "__schema_version__"])

    lost = [v is None for v in values["__value__"].to_pylist()]
    rows = expected_values(EVOLVED)
    assert lost == [row.schema_version != 0 or row.value is None for row in rows]
