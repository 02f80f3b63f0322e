"""Values and keys of every schema type are written from columns, and read as what was given."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from connector import open_topic, write_messages
from connector.catalog.schemas.answers import registered_versions
from connector.writing.message_rows import REGENERATED_COLUMNS, MessageRows
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import comparable, golden_schema, topics_with_values
from tests.support.protobuf_files import data_of, file_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.golden import GoldenTopic

_F: Final = FieldDescriptorProto
_TEXTS: Final = st.sampled_from(("", "x", "поток"))
_INTS: Final = st.integers(-(2**31), 2**31 - 1)


def _avro(type_: str, *fields: tuple[str, object]) -> SchemaInfo:
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": each} for name, each in fields],
    }
    return SchemaInfo(type_, json.dumps(record))


_NULLABLE: Final = (("a", ["null", "int"]), ("A", ["string", "null"]))
_PRESENT: Final = (("id", "long"), ("note", ["null", "string"]))
_PROTO: Final = file_of(
    M={
        "number": _F.TYPE_INT32,
        "word": {"type": _F.TYPE_STRING, "oneof_index": 0, "proto3_optional": True},
    }
)
_PROTO_OPTIONAL: Final = file_of("proto2", M={"number": _F.TYPE_INT32, "word": _F.TYPE_STRING})
_PARTS: Final[dict[str, tuple[SchemaInfo, st.SearchStrategy[Any]]]] = {
    "INT32": (SchemaInfo("INT32"), _INTS),
    "STRING": (SchemaInfo("STRING"), _TEXTS),
    "BYTES": (SchemaInfo("BYTES"), st.binary(max_size=3)),
    "JSON": (
        _avro("JSON", *_NULLABLE),
        st.fixed_dictionaries({"a": st.none() | _INTS, "A_2": st.none() | _TEXTS}),
    ),
    "AVRO of nullable fields": (
        _avro("AVRO", *_NULLABLE),
        st.fixed_dictionaries({"a": st.none() | _INTS, "A_2": st.none() | _TEXTS}),
    ),
    "AVRO": (
        _avro("AVRO", *_PRESENT),
        st.fixed_dictionaries({"id": _INTS, "note": st.none() | _TEXTS}),
    ),
    "AVRO of one value": (SchemaInfo("AVRO", '"long"'), _INTS),
    "AVRO with null": (SchemaInfo("AVRO", '["null","string"]'), _TEXTS),
    "PROTOBUF_NATIVE": (
        SchemaInfo("PROTOBUF_NATIVE", data_of(_PROTO)),
        st.fixed_dictionaries({"number": _INTS, "word": st.none() | _TEXTS}),
    ),
    "PROTOBUF_NATIVE of nullable fields": (
        SchemaInfo("PROTOBUF_NATIVE", data_of(_PROTO_OPTIONAL)),
        st.fixed_dictionaries({"number": st.none() | _INTS, "word": st.none() | _TEXTS}),
    ),
}


def _table(schema: TopicSchema, rows: list[dict[str, Any]]) -> pa.Table:
    """A table of whole keys and values."""
    types = {each.name: each.type for each in ValueColumns(schema, is_flat=False).fields}
    return pa.table(
        {name: pa.array([row[name] for row in rows], type_) for name, type_ in types.items()}
    )


def _read(url: str, schema: TopicSchema, **options: Any) -> pa.Table:  # noqa: ANN401
    return open_topic(url, TOPIC, schema=schema, **options).to_table()


def _refusal(url: str, table: pa.Table, schema: TopicSchema) -> str:
    """Write a table; tell why it is refused, or nothing."""
    try:
        write_messages(url, TOPIC, table, schema=schema)
    except OptionError as error:
        return str(error)
    return ""


def _check(schema: TopicSchema, rows: list[dict[str, Any]]) -> None:
    """Written, read in each shape, and written again, rows are the same, or refused by name."""
    names = [*rows[0], "__null_value__"]
    first = MemoryBucket()
    write_messages(first.url, TOPIC, _table(schema, rows), schema=schema)
    whole = _read(first.url, schema, value="struct", columns=names)
    assert whole.select([*rows[0]]).to_pylist() == rows
    for shape in ("flat", "struct"):
        for columns in (["*"], ["*", "__null_value__", "__key_bytes__"]):
            hints = ["__null_value__ too", "__key_bytes__ too"] if len(columns) == 1 else []
            is_clear = schema.reader.is_separated
            hints += ['read it with value="struct"'] if shape == "flat" and not is_clear else []
            again = MemoryBucket()
            table = _read(first.url, schema, value=shape, columns=columns)
            refusal = _refusal(again.url, table, schema)
            if refusal:
                assert any(hint in refusal for hint in hints), refusal
            else:
                assert _read(again.url, schema, value="struct", columns=names).equals(whole)
                again.drop()
    first.drop()


@given(data=st.data(), value=st.sampled_from([*_PARTS]))
def test_values_are_written_as_they_were_read(data: st.DataObject, value: str) -> None:
    """Of every schema type, in whatever shape they were read, null values among them."""
    schema, values = _PARTS[value]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=4))

    _check(TopicSchema(schema), [{"__value__": row} for row in rows])


@pytest.mark.parametrize("is_separated", [False, True], ids=["INLINE", "SEPARATED"])
@given(data=st.data(), key=st.sampled_from([*_PARTS]), value=st.sampled_from([*_PARTS]))
def test_keys_and_values_are_written_as_they_were_read(
    data: st.DataObject, key: str, value: str, *, is_separated: bool
) -> None:
    """Each part by its own schema, in the payload or as the message's key; either may be null."""
    (key_schema, keys), (value_schema, values) = _PARTS[key], _PARTS[value]
    schema = TopicSchema(
        SchemaInfo("KEY_VALUE", key=key_schema, value=value_schema, is_separated=is_separated)
    )
    row = st.fixed_dictionaries({"__key": st.none() | keys, "__value__": st.none() | values})

    _check(schema, data.draw(st.lists(row, min_size=1, max_size=4)))


_TYPED: Final = ("AVRO", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE")


@pytest.mark.filterwarnings("ignore:.*value lost")
@pytest.mark.parametrize("time_unit", ["ns", "us"])
@pytest.mark.parametrize(
    "topic",
    [each for each in topics_with_values() if golden_schema(each).reader.type in _TYPED],
    ids=str,
)
def test_golden_topics_are_written_as_they_were_read(topic: GoldenTopic, time_unit: str) -> None:
    """Of what Pulsar's clients wrote by a schema, nothing is refused, and all rows are equal."""
    schema = golden_schema(topic)
    # A schema that is of no version known is registered as one.
    schema = replace(schema, versions=registered_versions(schema))
    options: dict[str, Any] = {"schema": schema, "value": "struct", "time_unit": time_unit}
    options["columns"] = ["*", "__null_value__", "__key_bytes__"]
    table = open_golden(topic, **options).to_table()
    bucket = MemoryBucket()

    write_messages(bucket.url, topic.name, table, schema=schema)

    again = open_topic(bucket.url, topic.name, **options).to_table()
    names = [name for name in table.column_names if name not in REGENERATED_COLUMNS]
    # As text, in which NaN equals itself, and maps without the order of their entries.
    written, read = (
        {name: str(comparable(each[name])) for name in names} for each in (again, table)
    )
    assert written == read
    bucket.drop()


@pytest.mark.parametrize(
    "name",
    ["avro-orders", "avro-logical", "clients-cpp-avro", "protobuf", "protobuf-native",
     "kv-avro-separated", "kv-string-avro-separated", "kv-string-int-inline"],
)  # fmt: skip
def test_payloads_are_those_of_pulsar_s_clients(name: str) -> None:
    """Typed values of golden topics are written as the very bytes that they were read from."""
    topic = golden_topic(name)
    columns = ["__key_bytes__", "__null_value__"]
    options: dict[str, Any] = {"schema": golden_schema(topic), "value": "struct"}
    table = open_golden(topic, **options, columns=["*", *columns]).to_table()
    raw = open_golden(topic, value="raw", columns=["__value__", *columns]).to_table().to_pylist()

    written = list(MessageRows(options["schema"], publish_time_ms=0).messages(table))

    assert len(written) == topic.message_count
    for message, row in zip(written, raw, strict=True):
        key = message.key.encode() if isinstance(message.key, str) else message.key
        assert key == row["__key_bytes__"]
        assert message.payload == (None if row["__null_value__"] else row["__value__"])


_ENGINES: Final[dict[str, Callable[[pa.Table], object]]] = {
    "DuckDB": lambda table: duckdb.from_arrow(table).to_arrow_reader(),
    "Polars": pl.DataFrame,
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
}


@pytest.mark.parametrize("shape", ["flat", "struct"])
@pytest.mark.parametrize("engine", _ENGINES)
@pytest.mark.parametrize("name", ["avro-orders", "avro-logical", "protobuf-native"])
def test_frames_of_engines_are_written_as_they_were_read(
    name: str, engine: str, shape: str
) -> None:
    """What another engine makes of typed columns is taken as theirs."""
    topic = golden_topic(name)
    schema = golden_schema(topic)
    options: dict[str, Any] = {"schema": schema, "value": shape, "time_unit": "us"}
    options["columns"] = ["*", "__null_value__", "__key_bytes__"]
    table = open_golden(topic, **options).to_table()
    bucket = MemoryBucket()

    write_messages(bucket.url, topic.name, _ENGINES[engine](table), schema=schema)

    again = open_topic(bucket.url, topic.name, **options).to_table()
    for column in table.column_names:
        if column not in REGENERATED_COLUMNS:
            assert str(comparable(again[column])) == str(comparable(table[column])), column
    bucket.drop()


def _written(table: pa.Table, schema: TopicSchema) -> list[bytes | None]:
    """The payloads of a table's rows."""
    rows = MessageRows(schema, publish_time_ms=0)
    return [each.payload for each in rows.messages(table)]


_ORDER: Final = TopicSchema(_avro("AVRO", *_PRESENT))
_PAIR: Final = TopicSchema(SchemaInfo("KEY_VALUE", key=_ORDER.reader, value=SchemaInfo("INT32")))


@pytest.mark.parametrize("key", [None, "AVRO", "PROTOBUF_NATIVE"])
def test_metadata_has_the_schemas(key: str | None) -> None:
    """What is written with metadata is read typed by it, whatever the schema."""
    bucket, folder = MemoryBucket(), MemoryBucket()
    schema = _ORDER
    rows: list[dict[str, object]] = [{"__value__": {"id": 1, "note": None}}]
    if key is not None:
        pair = SchemaInfo("KEY_VALUE", key=_PARTS[key][0], value=_ORDER.reader)
        given_key: dict[str, dict[str, object]] = {
            "AVRO": {"id": 2, "note": "a"},
            "PROTOBUF_NATIVE": {"number": 3, "word": "b"},
        }
        schema, rows = TopicSchema(pair), [{"__key": given_key[key], **rows[0]}]

    write_messages(
        bucket.url, TOPIC, _table(schema, rows), schema=schema, metadata_folder=folder.url
    )

    read = open_topic(
        bucket.url, TOPIC, metadata=folder.url, value="struct", columns=[*rows[0]]
    ).to_table()
    assert read.to_pylist() == rows
    bucket.drop()
    folder.drop()


class TestWhatIsRefused:
    """An error names the row, the field or the column to add."""

    def test_a_field_without_column_or_default(self) -> None:
        """What the schema does not say is asked for."""
        with pytest.raises(OptionError, match=r"value\.id is missing, .*no default"):
            _written(pa.table({"note": ["a"]}), _ORDER)

    def test_rows_of_another_version(self) -> None:
        """Fields are written by the schema's newest version; null values are of any."""
        versions = ((0, _avro("AVRO", ("id", "int"))), (1, _ORDER.reader))
        schema = TopicSchema(_ORDER.reader, versions)
        columns = {
            "__value__": [{"id": 1}, {"id": 2}, None],
            "__null_value__": [False, False, True],
        }

        with pytest.raises(
            OptionError, match=r"__schema_version__, row 1 .*by version 1 .* by version 0"
        ):
            _written(pa.table({**columns, "__schema_version__": [1, 0, 0]}), schema)

        written = _written(pa.table({**columns, "__schema_version__": [1, None, 0]}), schema)
        assert written == [b"\2\0", b"\4\0", None]

    def test_values_whose_keys_are_not_given(self) -> None:
        """INLINE, one cannot stand without the other."""
        with pytest.raises(OptionError, match="INLINE needs its keys"):
            _written(pa.table({"__value__": [1]}), _PAIR)

    def test_keys_alone(self) -> None:
        """There must be a column of values."""
        with pytest.raises(OptionError, match="no __value__"):
            _written(pa.table({"__key.id": [1]}), _PAIR)

    def test_a_null_value_with_a_key(self) -> None:
        """INLINE, the key would be lost."""
        table = pa.table({"__key.id": [1], "__value__": [1], "__null_value__": [True]})

        with pytest.raises(
            OptionError, match=r"__null_value__, row 0 .*a null value cannot have a key"
        ):
            _written(table, _PAIR)

    def test_bytes_that_may_be_values_or_payloads(self) -> None:
        """Of a schema whose values are bytes, nothing tells which of both are given."""
        with pytest.raises(OptionError, match=r"may be payloads, or the values of .* AVRO"):
            _written(pa.table({"__value__": [b"\2a"]}), TopicSchema(SchemaInfo("AVRO", '"bytes"')))


def test_the_parts_of_a_pair() -> None:
    """INLINE, each part stands behind its length, which is -1 for null."""
    table = pa.table(
        {
            "__key": pa.array([{"id": 1}, None, None], pa.struct({"id": pa.int64()})),
            "__value__": pa.array([None, 7, None], pa.int32()),
        }
    )
    absent, key, value = b"\xff" * 4, b"\0\0\0\2\2\0", b"\0\0\0\4\0\0\0\7"

    assert _written(table, _PAIR) == [key + absent, absent + value, None]
    told = table.append_column("__null_value__", pa.array([False, False, False]))
    assert _written(told, _PAIR) == [key + absent, absent + value, absent + absent]


def test_keys_of_separate_parts() -> None:
    """They are the messages' keys, as bytes; a null one is marked as such."""
    schema = TopicSchema(replace(_PAIR.reader, is_separated=True))
    table = pa.table({"__key.id": [1], "__key.note": ["a"], "__value__": [7]})
    null = pa.table({"__key": pa.nulls(1), "__value__": [None], "__key__": ["passed over"]})

    rows = MessageRows(schema, publish_time_ms=0)
    first, second = rows.messages([*table.to_batches(), *null.to_batches()])

    assert (first.key, first.payload, first.is_null_key) == (b"\2\2\2a", b"\0\0\0\7", False)
    assert (second.key, second.payload, second.is_null_key) == (None, None, True)
    (other,) = rows.messages(pa.table({"__key_bytes__": [b"k"], "__value__": [7]}))
    assert (other.key, other.payload) == (b"k", b"\0\0\0\7")


def test_a_schema_that_cannot_be_read_is_told() -> None:
    """Of columns that could be its fields, the reason is what is wrong with the schema."""
    schema = TopicSchema(SchemaInfo("AVRO", '{"type":"record"}'))

    assert _written(pa.table({"__value__": [b"\2"]}), schema) == [b"\2"]
    for column in ("a", "__value__"):
        with pytest.raises(SchemaError, match="name of an Avro record is missing"):
            _written(pa.table({column: [1]}), schema)


def test_fields_of_keys_are_named_as_such() -> None:
    """A field of the key is not taken for one of the value."""
    with pytest.raises(OptionError, match=r"row 0 .*the key\.id is null"):
        _written(pa.table({"__key.id": [None], "__value__": [1]}), _PAIR)
