"""The tables of types in `arrow_io.columns` hold, row by row; `tests/spark_ds` has Spark's part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connector import open_catalog, open_topic, register_duckdb
from tests.support.golden_values import comparable
from tests.support.typed_topics import (
    TYPED_TOPICS,
    TypedTopic,
    arrow_text,
    engine_types,
    pulsar_types,
    type_in_engine,
    write_topics,
)

if TYPE_CHECKING:
    from pathlib import Path

    from connector import Catalog, TopicDataset
    from connector.options.topic_request import TimeUnit

_OF_PANDAS_2: Final = {"str": "object"}
"""Types of pandas 2, by those of pandas 3 in the table."""

_POLARS_TIME: Final = re.compile(r"Datetime\(time_unit=('..'), time_zone=(?:None|('[^']+'))\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket with all typed topics."""
    path = tmp_path_factory.mktemp("typed")
    write_topics(path)
    return path


@pytest.fixture(scope="module")
def catalog(folder: Path) -> Catalog:
    """What is in it."""
    return open_catalog(str(folder))


@pytest.fixture(params=TYPED_TOPICS, ids=lambda topic: topic.name)
def topic(request: pytest.FixtureRequest) -> TypedTopic:
    """Each typed topic."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["ns", "us"])
def unit(request: pytest.FixtureRequest) -> str:
    """Each unit of time."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def dataset(folder: Path, catalog: Catalog, topic: TypedTopic, unit: TimeUnit) -> TopicDataset:
    """The topic, its typed columns alone."""
    return open_topic(
        str(folder),
        topic.name,
        catalog=catalog,
        schema=topic.schema,
        time_unit=unit,
        columns=list(topic.type_of),
    )


def _same(table: pa.Table, dataset: TopicDataset) -> bool:
    """Whether a table that an engine gave has all values, and nulls, of the dataset."""
    expected = dataset.to_table()
    cast = table.cast(expected.schema)
    return all(
        comparable(cast[name]) == comparable(expected[name]) for name in expected.column_names
    )


def test_each_row_has_data_and_each_type_an_engine() -> None:
    """What the first table names is what the typed topics have; its types are in the second."""
    assert {label for topic in TYPED_TOPICS for label in topic.columns} == pulsar_types().keys()
    named = {
        re.sub(r"\bunit\b", unit, type_)
        for type_ in pulsar_types().values()
        for unit in ("ns", "us")
    }
    of_a_kind = {"decimal128(20, 0)", "map<string, T>", "T"}
    assert named - of_a_kind <= engine_types().keys()
    assert len(pulsar_types()) > 60


def test_arrow(dataset: TopicDataset, topic: TypedTopic, unit: TimeUnit) -> None:
    """Each column has the type that the table tells, and as many values as were written."""
    types = {name: re.sub(r"\bunit\b", unit, type_) for name, type_ in topic.type_of.items()}
    table = dataset.to_table()

    assert {field.name: arrow_text(field.type) for field in table.schema} == types
    valid = {column.name: column.rows for column in topic.columns.values()}
    assert {name: len(table) - table[name].null_count for name in types} == valid
    assert all(field.nullable for field in table.schema)


def test_duckdb(dataset: TopicDataset, folder: Path, topic: TypedTopic, unit: TimeUnit) -> None:
    """DuckDB has the type that the table tells, by function and by object, and each value."""
    expected = [duckdb.type(type_in_engine(field.type, "DuckDB")) for field in dataset.schema]
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        register_duckdb(con, str(folder), columns=dataset.schema.names, time_unit=unit)
        by_function = con.sql(
            "FROM read_pulsar($topic, schema := $schema)",
            params={"topic": topic.name, "schema": topic.schema},
        )
        by_object = con.sql("FROM dataset")

        for relation in (by_function, by_object):
            assert relation.types == expected
            assert _same(relation.to_arrow_table(), dataset)


def test_pandas(dataset: TopicDataset) -> None:
    """Each column has the type that the table tells, with and without nulls, and each value."""
    for arrow_types in (False, True):
        frame = dataset.to_pandas(arrow_types=arrow_types)
        again = pa.Table.from_pandas(frame, dataset.schema, preserve_index=False)
        assert _same(again, dataset)

        for field in dataset.schema:
            own, _, with_nulls = type_in_engine(field.type, "pandas").partition(" (")
            whole = dataset.to_pandas(
                [field.name], pc.field(field.name).is_valid(), arrow_types=arrow_types
            )
            for part, named in ((frame, with_nulls.removesuffix(")") or own), (whole, own)):
                told = _OF_PANDAS_2.get(named, named) if pd.__version__ < "3" else named
                dtype = part[field.name].dtype
                if len(part):
                    is_arrows = arrow_types or told == "Arrow's"
                    assert dtype == pd.ArrowDtype(field.type) if is_arrows else str(dtype) == told


def test_polars(dataset: TopicDataset) -> None:
    """Polars has the type that the table tells, at once and lazily, and each value."""
    frame = dataset.to_polars()
    lazy = dataset.scan_polars()

    expected = [type_in_engine(field.type, "Polars") for field in dataset.schema]
    assert [_polars_text(dtype) for dtype in frame.dtypes] == expected
    assert lazy.collect_schema() == frame.schema
    assert _same(frame.to_arrow(), dataset)
    assert _same(lazy.collect().to_arrow(), dataset)


def _polars_text(dtype: Any) -> str:  # noqa: ANN401 - a data type of Polars
    return _POLARS_TIME.sub(
        lambda match: f"Datetime({', '.join(filter(None, match.groups()))})", str(dtype)
    )


def test_stream(dataset: TopicDataset) -> None:
    """Arrow's C stream has the dataset's types and values."""
    table = pa.RecordBatchReader.from_stream(dataset).read_all()

    assert table.schema == dataset.schema
    assert _same(table, dataset)
