"""Typed values of every golden topic are, field by field, what Pulsar's own client decoded."""

from __future__ import annotations

import io
import json
import warnings
from typing import TYPE_CHECKING, Any, Final

import fastavro
import pytest

from arrow_io.errors import IncompleteReadWarning, PayloadDecodeError
from arrow_io.payloads.value_columns import KEY_COLUMN, VALUE_COLUMN, ValueColumns
from arrow_io.read_metrics import Unit
from connector.catalog.schemas.loading import load_schema
from tests.support.avro_schemas import Reading, without_logical
from tests.support.builds import build
from tests.support.encryption import KEY_FOLDER
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import (
    comparable,
    expected_values,
    golden_schema,
    topics_with_values,
)

if TYPE_CHECKING:
    from arrow_io.payloads.schema_info import TopicSchema
    from tests.support.golden import GoldenTopic
    from tests.support.golden_values import ExpectedRow, TimeUnit

__all__ = ["build"]

pytestmark = [pytest.mark.usefixtures("build"), pytest.mark.both_builds]

_POSITION: Final = ("__ledger_id__", "__entry_id__", "__batch_index__")
_EVOLVED: Final = ("avro-evolved", "small-avro-evolved")


def _columns(topic: GoldenTopic, names: list[str], **options: Any) -> dict[str, list[Any]]:  # noqa: ANN401
    """Columns of a topic; values that fit none are null."""
    dataset = open_golden(
        topic,
        columns=names,
        on_corruption="salvage",
        decryption_keys=KEY_FOLDER if "encrypted" in topic.name else None,
        **options,
    )
    with warnings.catch_warnings():
        # That values fit no column is what one test is about.
        warnings.simplefilter("ignore", IncompleteReadWarning)
        table = dataset.to_table()
    lost = {unit: count for (unit, _), count in dataset.metrics.lost.items()}
    rows = [row for row in expected_values(topic, options.get("time_unit", "ns")) if not row.fits]
    asked = VALUE_COLUMN in names
    assert lost == ({Unit.VALUE: len(rows)} if rows and asked else {})
    return {name: comparable(table[name]) for name in names}


def _positions(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[name] for name in _POSITION), strict=True))


def _expected_positions(rows: list[ExpectedRow]) -> list[tuple[Any, ...]]:
    return [(row.ledger_id, row.entry_id, row.batch_index) for row in rows]


def _cases() -> list[tuple[GoldenTopic, TimeUnit]]:
    """All topics in nanoseconds, and in microseconds those that this makes a difference for."""
    has_nanoseconds = {"INSTANT", "LOCAL_TIME", "LOCAL_DATE_TIME", "PROTOBUF_NATIVE", "PROTOBUF"}
    nanoseconds: list[tuple[GoldenTopic, TimeUnit]] = [
        (topic, "ns") for topic in topics_with_values()
    ]
    return nanoseconds + [
        (topic, "us")
        for topic in topics_with_values()
        if golden_schema(topic).reader.type in has_nanoseconds
    ]


@pytest.mark.parametrize(("topic", "time_unit"), _cases(), ids=str)
def test_whole_values(topic: GoldenTopic, time_unit: TimeUnit) -> None:
    """Each value and each key, as one column, with the position of its message."""
    schema = golden_schema(topic)
    names = [VALUE_COLUMN, *([KEY_COLUMN] if schema.reader.type == "KEY_VALUE" else [])]
    expected = expected_values(topic, time_unit)

    found = _columns(
        topic, [*_POSITION, *names], schema=schema, value="struct", time_unit=time_unit
    )
    assert _positions(found) == _expected_positions(expected)
    assert found[VALUE_COLUMN] == [row.value for row in expected]
    if KEY_COLUMN in names:
        assert found[KEY_COLUMN] == [row.key for row in expected]


@pytest.mark.parametrize(
    "topic",
    [each for each in topics_with_values() if len(ValueColumns(golden_schema(each)).fields) > 1],
    ids=str,
)
def test_each_flat_column(topic: GoldenTopic) -> None:
    """Each column is the same by itself as with all the others: the field that the client has."""
    schema = golden_schema(topic)
    fields = ValueColumns(schema).fields
    expected = expected_values(topic)
    together = _columns(topic, [field.name for field in fields], schema=schema)

    for field in fields:
        wholes = [row.key if field.is_key else row.value for row in expected]
        if field.field is not None:
            wholes = [None if whole is None else whole[field.field] for whole in wholes]
        assert together[field.name] == wholes
        assert _columns(topic, [field.name], schema=schema) == {field.name: wholes}


def test_a_value_that_fits_no_column() -> None:
    """It is an error that says which message it is; all else is above."""
    topic = golden_topic("instant")
    bad = next(row for row in expected_values(topic, "us") if not row.fits)

    with pytest.raises(PayloadDecodeError, match="more digits than its column can") as caught:
        open_golden(topic, schema=golden_schema(topic), time_unit="us").to_table()
    assert (caught.value.ledger_id, caught.value.entry_id) == (bad.ledger_id, bad.entry_id)


def _read_by_fastavro(
    schema: TopicSchema, rows: list[ExpectedRow], payloads: list[Any]
) -> list[Any]:
    """The values by Avro's own rules, as fastavro knows them; it wants records of equal names."""
    reader = json.loads(schema.reader.data)
    versions = {
        number: {**json.loads(info.data), "name": reader["name"]}
        for number, info in schema.versions
    }
    reading = Reading(fastavro.parse_schema(reader))
    values: list[Any] = []
    for row, payload in zip(rows, payloads, strict=True):
        if payload is None:
            values.append(None)
            continue
        datum = fastavro.schemaless_reader(
            io.BytesIO(payload),
            fastavro.parse_schema(without_logical(versions[row.schema_version])),
            fastavro.parse_schema(without_logical(reader)),
        )
        values.append(reading.as_arrow(datum))
    return values


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", _EVOLVED)
def test_each_version_reads_all(name: str, version: int) -> None:
    """What each version wrote is read by each, as fastavro does and as the client's values say."""
    topic = golden_topic(name)
    schema = load_schema(topic.folder / "schemas-rest.json", schema_version=version)
    rows = expected_values(topic, reader=schema.reader)
    (payloads,) = _columns(topic, [VALUE_COLUMN], value="raw").values()

    (found,) = _columns(topic, [VALUE_COLUMN], schema=schema, value="struct").values()
    assert {row.schema_version for row in rows} == {0, 1, 2}
    assert found == [row.value for row in rows]
    assert found == _read_by_fastavro(schema, rows, payloads)
