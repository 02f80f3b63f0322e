"""Rows of tables become messages: every column says what it says when it is read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

from arrow_io.columns import ALL_COLUMNS
from arrow_io.errors import OptionError, SchemaError
from arrow_io.messages.message_metadata import DEFAULT_PRODUCER_NAME, Message
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from connector.catalog.schemas.loading import load_schema
from connector.writing.column_values import COLUMN_TYPES
from connector.writing.message_rows import REGENERATED_COLUMNS, FileRows, MessageRows

if TYPE_CHECKING:
    from collections.abc import Callable

_NOW_MS = 1_700_000_000_123
_AT = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
_AT_MS = int(_AT.timestamp() * 1000)
_ORDER = TopicSchema(
    SchemaInfo(
        "JSON",
        '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
        '{"name":"note","type":["null","string"]},{"name":"__key__","type":["null","string"]}]}',
    )
)


def _text(*values: bytes) -> pa.Array:
    """Bytes that pass for text."""
    data = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(data), data.buffers())


def _messages(source: object, schema: TopicSchema | None = None) -> list[Message]:
    return list(MessageRows(schema, publish_time_ms=_NOW_MS).messages(source))


def _message(columns: dict[str, Any], schema: TopicSchema | None = None) -> Message:
    (message,) = _messages(pa.table({"__value__": [b"v"], **columns}), schema)
    return message


def test_a_missing_column_stands_for_its_default() -> None:
    """A table of values alone is enough."""
    assert _messages(pa.table({"__value__": [b"a", None]})) == [
        Message(payload=b"a", publish_time_ms=_NOW_MS, producer_name=DEFAULT_PRODUCER_NAME),
        Message(payload=None, publish_time_ms=_NOW_MS, producer_name=DEFAULT_PRODUCER_NAME),
    ]


def test_a_null_stands_for_the_default_of_its_column() -> None:
    """A null says no more than a column that is not there."""
    columns = {name: pa.nulls(1, type_) for name, type_ in COLUMN_TYPES.items()}

    assert _message(columns) == _message({})


def test_every_column_that_is_read_is_written_or_given_anew() -> None:
    """No column that a reader gives is refused, or forgotten."""
    assert {column.name for column in ALL_COLUMNS} == {
        "__value__",
        *COLUMN_TYPES,
        *REGENERATED_COLUMNS,
    }


@pytest.mark.parametrize(
    ("name", "values", "attribute", "expected"),
    [
        ("__publish_time__", [_AT], "publish_time_ms", _AT_MS),
        ("__publish_time__", pa.array([5], pa.timestamp("s")), "publish_time_ms", 5000),
        ("__event_time__", [_AT], "event_time_ms", _AT_MS),
        ("__deliver_at__", pa.array([_AT], pa.timestamp("ns", "CET")), "deliver_at_ms", _AT_MS),
        ("__sequence_id__", pa.array([-1], pa.int32()), "sequence_id", -1),
        ("__schema_version__", [3], "schema_version", 3),
        ("__producer_name__", ["p"], "producer_name", "p"),
        ("__replicated_from__", pa.array(["w"]).dictionary_encode(), "replicated_from", "w"),
        ("__key__", pa.array(["k"], pa.large_string()), "key", "k"),
        ("__key__", [b"\xff"], "key", b"\xff"),
        ("__key_bytes__", [b"k"], "key", b"k"),
        ("__ordering_key__", [b"o"], "ordering_key", b"o"),
        ("__null_value__", [True], "payload", None),
        ("__null_value__", [False], "payload", b"v"),
        ("__properties__", pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
         "properties", (("a", "b"),)),
        ("__properties__", [[{"key": "a", "value": "b"}]], "properties", (("a", "b"),)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_a_column_sets_its_part_of_the_message(
    name: str, values: object, attribute: str, expected: object
) -> None:
    """Values are taken in any type that Arrow casts without loss."""
    assert getattr(_message({name: values}), attribute) == expected


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([{"a": "b", "c": "d"}], id="struct"),
        pytest.param([[("a", "b"), ("c", "d")]], id="pairs"),
        pytest.param([[{"key": "a", "value": "b"}, {"value": "d", "key": "c"}]], id="entries"),
        pytest.param(
            pa.array([[("a", "b"), ("c", "d")]], pa.map_(pa.string(), pa.string())), id="map"
        ),
        pytest.param(
            pa.array([[["a", "b"], ["c", "d"]]], pa.large_list(pa.list_(pa.string(), 2))),
            id="fixed pairs",
        ),
    ],
)
def test_properties_have_many_forms(values: object) -> None:
    """What engines make of properties is taken as they made it."""
    assert _message({"__properties__": values}).properties == (("a", "b"), ("c", "d"))


def test_fields_of_a_struct_that_are_null_are_no_properties() -> None:
    """A struct has all names of all rows; numbers are taken as text."""
    rows = pa.array([{"a": "b", "n": None}, None, {"a": None, "n": 5}])
    messages = _messages(pa.table({"__value__": [b""] * 3, "__properties__": rows}))

    assert [each.properties for each in messages] == [(("a", "b"),), (), (("n", "5"),)]


@pytest.mark.parametrize(
    "encode",
    [
        lambda column: column.dictionary_encode(),
        pc.run_end_encode,
        lambda column: pc.run_end_encode(column).slice(1),
        lambda column: column.cast(pa.large_string()).dictionary_encode(),
    ],
    ids=["dictionary", "runs", "part of runs", "large dictionary"],
)
@pytest.mark.parametrize("name", ["__value__", "__key__", "__producer_name__", "note"])
def test_dictionaries_and_runs_are_as_their_values(
    encode: Callable[[pa.Array], pa.Array], name: str
) -> None:
    """How a column is stored changes nothing of its messages."""
    plain = pa.array(["x", "x", None, "y"])
    others: dict[str, list[Any]] = {"__value__": [b"v"] * 4}
    if name == "note":
        others = {"id": [1, 2, 3, 4]}
    schema = _ORDER if name == "note" else None
    column = encode(plain)
    skipped = len(plain) - len(column)

    messages = _messages(pa.table({**others, name: plain}).slice(skipped), schema)
    others = {key: values[skipped:] for key, values in others.items()}
    encoded = pa.RecordBatch.from_pydict({**others, name: column})

    assert _messages(encoded, schema) == messages


def test_a_dictionary_within_a_record_is_as_its_values() -> None:
    """So it is in a column of structs."""
    note = pa.array(["n"]).dictionary_encode()
    records = pa.StructArray.from_arrays([pa.array([1]), note], ["id", "note"])

    (message,) = _messages(pa.table({"__value__": records}), _ORDER)

    assert message.payload == b'{"id":1,"note":"n"}'


_WIDE = pa.struct([pa.field(f"field_{number}", pa.string()) for number in range(300)])


@pytest.mark.parametrize(
    ("columns", "schema", "said"),
    [
        ({"__sequence_id__": ["1", "2", "x"]}, None, ["column __sequence_id__", "row 12", "'x'"]),
        ({"__event_time__": pa.array([0, 1, 1500], pa.timestamp("us"))}, None,
         ["column __event_time__", "row 11", "lose data", "date_trunc('millisecond', …)"]),
        ({"__event_time__": pa.array([1, 2, 3], pa.timestamp("us")), "id": [None] * 3}, _ORDER,
         ["column __event_time__", "row 10", "lose data"]),
        ({"__key__": pa.nulls(3, _WIDE)}, None, ["column __key__", "a struct"]),
        ({"__properties__": pa.nulls(3, pa.list_(_WIDE))}, None, ["__properties__", "a list"]),
        ({"__properties__": pa.array([{"a": b"x"}, {"a": b"y"}, {"a": b"\xff"}])}, None,
         ["__properties__.a", "row 12", "UTF8"]),
        ({"id": [1.0, 2.0, 2.5], "note": ["a", "b", "c"]}, _ORDER,
         ["row 12", "the value.id", "2.5"]),
        ({"id": [1, None, 3]}, _ORDER, ["row 11", "value.id is null"]),
        ({"id": pa.nulls(3, _WIDE)}, _ORDER, ["the value.id", "a struct", "int64"]),
        ({"__value__": [{"id": 1, "note": "a"}, {"id": 2, "note": None}, {"id": None}]}, _ORDER,
         ["row 12", "value.id is null"]),
        ({"__value__": [1, 2, 70_000]}, load_schema("int16"), ["row 12", "INT16", "70000"]),
        ({"__value__": pa.nulls(3, _WIDE)}, load_schema("int16"), ["INT16", "a struct"]),
    ],
)  # fmt: skip
def test_what_cannot_be_cast_is_told_by_row_and_field(
    columns: dict[str, Any], schema: TopicSchema | None, said: list[str]
) -> None:
    """The error names the first row in the file and the field, and no type of 300 fields."""
    values = {} if schema is not None else {"__value__": [b""] * 3}
    wrong = pa.table({**values, **columns}).to_batches()[0]
    before = pa.record_batch({"__value__": [b"v"] * 10})
    source = [FileRows("other.parquet", [before]), FileRows("more.parquet", [before, wrong])]

    with pytest.raises(OptionError) as raised:
        _messages(source, schema)

    text = str(raised.value)
    assert all(each in text for each in ("more.parquet", *said)), text
    assert "field_1" not in text
    assert len(text) < 250


@pytest.mark.parametrize(
    ("text", "data", "key"),
    [
        ("k", b"k", "k"),
        ("/wA=", b"\xff\x00", b"\xff\x00"),
        (None, b"\xff\x00", b"\xff\x00"),
        ("k", None, "k"),
        (None, None, None),
        ("", b"", ""),
    ],
)
def test_keys_are_bytes_where_their_text_is_base64(
    text: str | None, data: bytes | None, key: object
) -> None:
    """The two columns that a reader gives of a key tell a text from bytes."""
    columns = {"__key__": pa.array([text], pa.string()), "__key_bytes__": [data]}

    assert _message(columns).key == key


_TABLE = pa.table({"__key__": ["a", "b"], "__value__": [b"1", b"2"]})


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: _TABLE, id="table"),
        pytest.param(lambda: _TABLE.to_batches()[0], id="record batch"),
        pytest.param(_TABLE.to_reader, id="reader"),
        pytest.param(lambda: iter(_TABLE.to_batches(max_chunksize=1)), id="iterator"),
        pytest.param(lambda: pads.dataset(_TABLE), id="dataset"),
        pytest.param(lambda: pl.DataFrame(_TABLE), id="polars"),
        pytest.param(_TABLE.to_pandas, id="pandas"),
        pytest.param(lambda: duckdb.sql("select * from _TABLE"), id="duckdb"),
        pytest.param(
            lambda: [
                Message(payload=b"1", key="a", publish_time_ms=_NOW_MS),
                *_TABLE.slice(1).to_batches(),
            ],
            id="messages",
        ),
    ],
)
def test_whatever_gives_rows_can_be_written(source: Callable[[], object]) -> None:
    """Arrow data of any engine, and iterables of batches or messages."""
    messages = _messages(source())

    assert [(each.key, each.payload) for each in messages] == [("a", b"1"), ("b", b"2")]


def test_no_more_than_a_batch_is_taken_at_once() -> None:
    """A source is read on as its messages are."""
    taken: list[int] = []

    def batches() -> object:
        for number in range(3):
            taken.append(number)
            yield pa.record_batch({"__value__": [bytes([number])]})

    rows = MessageRows(None, publish_time_ms=0).messages(batches())

    assert next(rows).payload == b"\0"
    assert taken == [0]


def test_text_is_taken_as_it_is_without_a_schema() -> None:
    """A column of text needs no schema, of which a reader would ask for the version."""
    (message,) = _messages(pa.table({"__value__": ["é"]}))

    assert (message.payload, message.schema_version) == ("é".encode(), None)


def test_typed_values_are_encoded_and_stamped() -> None:
    """With a schema, values are what it says, and messages name its version."""
    (message,) = _messages(pa.table({"__value__": [7]}), load_schema("int16"))

    assert (message.payload, message.schema_version) == (b"\0\7", 0)


def test_binary_values_are_encoded_already() -> None:
    """Bytes are payloads, whatever the schema."""
    avro = load_schema([{"version": 4, "type": "AVRO", "data": '"long"'}])

    (message,) = _messages(pa.table({"__value__": [b"\x02"]}), avro)

    assert (message.payload, message.schema_version) == (b"\x02", 4)
    assert _messages(pa.table({"__value__": [1]}), avro) == _messages(
        pa.table({"__value__": [b"\x02"]}), avro
    )


def test_values_of_a_type_that_is_not_encoded_are_refused() -> None:
    """Of PROTOBUF without a descriptor nothing says how fields are written."""
    schema = TopicSchema(SchemaInfo("PROTOBUF", '{"type":"record","name":"R","fields":[]}'))

    (message,) = _messages(pa.table({"__value__": [b"\x02"]}), schema)

    assert message.payload == b"\x02"
    with pytest.raises(SchemaError, match="cannot encode values of the schema type PROTOBUF"):
        _messages(pa.table({"__value__": [1]}), schema)
    with pytest.raises(OptionError, match="type PROTOBUF cannot be encoded"):
        _messages(pa.table({"a": [1]}), schema)


def test_messages_are_stamped_unless_they_name_a_version() -> None:
    """A message of its own version keeps it."""
    own = Message(payload=b"1", publish_time_ms=0, schema_version=7)
    other = Message(payload=b"2", publish_time_ms=0)

    messages = _messages([own, other], load_schema("string"))

    assert [each.schema_version for each in messages] == [7, 0]


def test_fields_of_a_record_may_be_columns() -> None:
    """The columns that a reader gives of a JSON record are written as one value."""
    table = pa.table(
        {
            "__key__": ["k", "k"],
            "id": [1, 2],
            "note": pa.array(["n", None]),
            "__key___2": ["inner", None],
            "__null_value__": [False, True],
        }
    )

    first, second = _messages(table, _ORDER)

    assert (first.key, first.payload) == ("k", b'{"id":1,"note":"n","__key__":"inner"}')
    assert second.payload is None


def test_a_row_of_nulls_is_a_record() -> None:
    """A null value deletes what a compacted topic has of its key: only what says so is one."""
    schema = TopicSchema(
        SchemaInfo(
            "JSON", '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]}]}'
        )
    )
    column = pa.array([None, None, None], pa.int32())
    told = pa.array([None, True, False])

    without = _messages(pa.table({"a": column}), schema)
    payloads = [
        each.payload for each in _messages(pa.table({"a": column, "__null_value__": told}), schema)
    ]

    assert [each.payload for each in without] == [b"{}"] * 3
    assert payloads == [b"{}", None, b"{}"]
    with pytest.raises(OptionError, match=r"value\.id is null.* set __null_value__"):
        _messages(pa.table({"id": pa.nulls(1, pa.int64())}), _ORDER)


def test_other_rows_that_do_not_fit_are_told_nothing_of_null_values() -> None:
    """The hint is for rows that a reader gives so, not for those that merely lack a field."""
    with pytest.raises(OptionError, match=r"value\.id is null") as raised:
        _messages(pa.table({"note": ["n"]}), _ORDER)

    assert "__null_value__" not in str(raised.value)


def test_fields_that_may_be_null_may_be_missing() -> None:
    """A column that is not there is a field that is null, if the schema allows that."""
    (message,) = _messages(pa.table({"id": [1]}), _ORDER)

    assert message.payload == b'{"id":1}'
    with pytest.raises(OptionError, match=r"value\.id is null"):
        _messages(pa.table({"note": ["n"]}), _ORDER)


@pytest.mark.parametrize(
    ("source", "schema", "reason"),
    [
        (pa.table({"a": [1]}), None, "unknown columns: a"),
        (pa.table({"__value__": [b""], "id": [1]}), _ORDER, "unknown columns: id"),
        (pa.table({"__value__": [b""], "publish_time": [1], "Key": ["k"]}), None,
         r"Key \(did you mean __publish_time__, __key__\?\)"),
        (pa.table({"ID": [1]}), _ORDER, r"unknown columns: ID \(did you mean id\?\)"),
        (pa.chunked_array([[1]]), load_schema("int64"),
         "must have named columns, which a ChunkedArray lacks"),
        (pa.table({"__key__": ["k"]}), None, "no __value__"),
        (pa.table({"__sequence_id__": [1]}), _ORDER, "no __value__"),
        (pa.table({"id": [1], "total": [2]}), _ORDER, "unknown columns: total"),
        (pa.table({"__value__": [1]}), None, "unless a schema is given"),
        (pa.table([[b""], [b""]], ["__value__", "__value__"]), None, "columns have the same name"),
        (pa.table({"__value__": [b""], "__sequence_id__": ["x"]}), None, "__sequence_id__"),
        (pa.table({"__value__": [b""], "__properties__": ["a=b"]}), None,
         "__properties__ is string, which cannot be cast to map"),
        (pa.table({"__value__": [b""], "__publish_time__": [_AT.replace(microsecond=1)]}), None,
         "lose data"),
        (pa.table({"a": [1]}), load_schema([{"version": 0, "type": "AVRO", "data": '"long"'}]),
         "type AVRO"),
        (pa.table({"__value__": [b""] * 2, "__properties__": pa.array(
            [[], [("a", None)]], pa.map_(pa.string(), pa.string()))}), None,
         r"__properties__, row 1 .*null"),
        (pa.table({"__value__": [b""], "__properties__": [[{"key": None, "value": "b"}]]}), None,
         r"__properties__, row 0 .*null"),
        (pa.table({"__value__": [b""] * 2, "__properties__": pa.array(
            [[{"key": "a", "value": "b"}], [None]])}), None, r"__properties__, row 1 .*null"),
        (pa.table({"__value__": ["a", "b"], "__key__": _text(b"a", b"\xff")}), None,
         r"__key__, row 1 .*UTF8"),
        ([pa.record_batch({"__value__": [b""]}),
          pa.record_batch({"__value__": _text(b"\xff")})], None, r"__value__, row 1 .*UTF8"),
        (pa.table({"id": [1], "note": _text(b"\xff")}), _ORDER, r"note, row 0 .*UTF8"),
        ([Message(payload=b"", publish_time_ms=0),
          Message(payload="text", publish_time_ms=0)],  # type: ignore[arg-type]
         None, "message 1 has a wrong payload: str"),
        ([Message(payload=b"", publish_time_ms=0, key=5)],  # type: ignore[arg-type]
         None, "message 0 has a wrong key: int"),
        ([1], None, "record batches or Message objects, not int"),
        ([_TABLE], None, "record batches or Message objects, not Table"),
        ("orders.parquet", None, "not str"),
        ({"__value__": [b""]}, None, "not dict"),
        (5, None, "not int"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_what_is_not_understood_is_refused(
    source: object, schema: TopicSchema | None, reason: str
) -> None:
    """An unknown column or source is an error that names it, never left out."""
    with pytest.raises(OptionError, match=reason):
        _messages(source, schema)
