"""Rows that were read of a topic are written as they were, or refused with the column to add."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.columns import ALL_COLUMNS
from arrow_io.errors import OptionError, SchemaError
from arrow_io.messages.message_metadata import Message
from connector import open_topic, write_messages
from connector.writing.message_rows import REGENERATED_COLUMNS, MessageRows
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.expected import rows_of
from tests.support.golden import golden_topics
from tests.support.golden_datasets import open_golden
from tests.support.golden_values import golden_schema
from tests.support.written_messages import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.golden import GoldenTopic

_ON_REQUEST: Final = [column.name for column in ALL_COLUMNS if not column.default]
_TELLING: Final = ["__key_bytes__", "__null_value__"]
"""What the default columns leave open, and must be the same nevertheless."""
_JSON: Final = {
    "type": "JSON",
    "schema": {
        "type": "record",
        "name": "Sale",
        "fields": [
            {"name": "sku", "type": ["null", "string"]},
            {"name": "count", "type": ["null", "int"]},
            {"name": "price", "type": ["null", "double"]},
        ],
    },
}
_PAYLOADS: Final = st.sampled_from(
    (None, b"null", b"{}", b'{"sku":null}', b'{"sku":"x","count":3}', b'{"price":0.1}')
)
_KEYS: Final = st.sampled_from(
    (None, "", "key", "abcd", "/w==", "/x==", "a b=", "é", b"", b"\xff", b"abc", b"key")
)


def _read(url: str, columns: Sequence[str], **options: Any) -> pa.Table:  # noqa: ANN401
    return open_topic(url, TOPIC, columns=[*columns], **options).to_table()


def _check(given_messages: list[Message], columns: Sequence[str], **options: Any) -> bool:  # noqa: ANN401
    """Write, read, write what was read, and read it again; tell whether it was not refused."""
    first, second = MemoryBucket(), MemoryBucket()
    try:
        write_messages(first.url, TOPIC, given_messages)
        default = open_topic(first.url, TOPIC, **options).schema.names
        wanted = [*default, *(name for name in columns if name not in default)]
        table = _read(first.url, wanted, **options)
        compared = [*(name for name in wanted if name not in REGENERATED_COLUMNS), *_TELLING]
        compared = list(dict.fromkeys(compared))
        try:
            write_messages(second.url, TOPIC, table, schema=options.get("schema"))
        except OptionError as error:
            _assert_refusal(error, columns)
            return False
        again = rows_of(_read(second.url, compared, **options))
        assert again == rows_of(_read(first.url, compared, **options))
    finally:
        first.drop()
        second.drop()
    return True


def _assert_refusal(error: OptionError, columns: Sequence[str]) -> None:
    """The error names a column that is not there yet."""
    (asked_for,) = re.findall(r"read (?:the column )?(__\w+__)", str(error))
    assert asked_for in {*_TELLING, "__schema_version__"}
    assert asked_for not in columns


@given(given_messages=messages(), columns=st.sets(st.sampled_from(_ON_REQUEST)))
def test_bytes_are_written_as_they_were_read(
    given_messages: list[Message], columns: set[str]
) -> None:
    """With whatever columns beside the default ones; with all of them, nothing is refused."""
    written = _check(given_messages, sorted(columns), value="raw")

    assert written or "__key_bytes__" not in columns


@given(
    pairs=st.lists(st.tuples(_KEYS, _PAYLOADS), min_size=1, max_size=6),
    columns=st.sets(st.sampled_from(_ON_REQUEST)),
    value=st.sampled_from(("flat", "struct")),
)
def test_records_are_written_as_they_were_read(
    pairs: list[tuple[str | bytes | None, bytes | None]], columns: set[str], value: str
) -> None:
    """A null value stays one, and a record of nulls a record."""
    given_messages = [
        Message(payload=payload, key=key, publish_time_ms=1, schema_version=0)
        for key, payload in pairs
    ]

    written = _check(given_messages, sorted(columns), schema=_JSON, value=value)

    assert written or not columns.issuperset(_TELLING)


@pytest.mark.parametrize("type_", ["STRING", "BYTES", "INT32", "DOUBLE", "TIMESTAMP"])
@given(keys=st.lists(_KEYS, min_size=1, max_size=4))
def test_null_values_of_primitive_types_need_no_further_column(
    type_: str, keys: list[str | bytes | None]
) -> None:
    """Only of a record nulls are something else than a null value."""
    payload = {"STRING": b"x", "BYTES": b"\xff", "INT32": bytes(4)}.get(type_, bytes(8))
    given_messages = [
        Message(payload=each, key=key, publish_time_ms=1)
        for key in keys
        for each in (None, payload)
    ]

    assert _check(given_messages, ["__key_bytes__"], schema=type_)


_EACH_TOPIC: Final = pytest.mark.parametrize(
    ("topic", "value"),
    [
        (topic, value)
        for topic in golden_topics()
        for value in ("raw", "flat", "struct")
        if "encrypted" not in topic.name
        if value == "raw" or (topic.folder / "schemas-rest.json").exists()
    ],
    ids=str,
)


@pytest.mark.filterwarnings("ignore:.*without an outcome", "ignore:.*value lost")
@pytest.mark.parametrize("on_request", [False, True], ids=["default columns", "all columns"])
@_EACH_TOPIC
def test_golden_topics_are_written_as_they_were_read(
    topic: GoldenTopic, value: str, *, on_request: bool
) -> None:
    """Whatever Pulsar's clients sent: equal rows, or a refusal that says what to read."""
    schema = None if value == "raw" else golden_schema(topic)
    options: dict[str, Any] = {"schema": schema, "value": value, "on_corruption": "salvage"}
    wanted = [*open_golden(topic, **options).schema.names, *(_ON_REQUEST if on_request else ())]
    compared = [*(name for name in wanted if name not in REGENERATED_COLUMNS), *_TELLING]
    options["columns"] = list(dict.fromkeys(compared))
    table = open_golden(topic, **options | {"columns": wanted}).to_table()
    bucket = MemoryBucket()

    try:
        write_messages(
            bucket.url, topic.name, table, schema=schema, chunking=True, max_message_bytes=40_000
        )
    except (OptionError, SchemaError) as error:
        said, is_refused = str(error), True
    else:
        said, is_refused = "", False

    if is_refused:
        assert any(
            each in said
            for each in (
                "read __",
                'read it with value="struct"',
                "leave the column out",
                "lost it",
            )
        )
        assert value != "raw" or not on_request
    else:
        again = open_topic(bucket.url, topic.name, **options).to_table()
        # As text, in which NaN equals itself.
        assert str(rows_of(again)) == str(rows_of(open_golden(topic, **options).to_table()))
    bucket.drop()


class TestWhatIsTold:
    """The refusal says which row is in doubt, and what to add."""

    def _table(self, **columns: object) -> pa.Table:
        return pa.table({"__entry_id__": [0, 1], "__value__": [b"a", b"b"], **columns})

    def test_a_key_that_may_be_bytes(self) -> None:
        """Base64 text names its row; other text is a text."""
        bucket = MemoryBucket()

        with pytest.raises(OptionError, match=r"row 1 .*'abcd' may be .* __key_bytes__ too"):
            write_messages(bucket.url, TOPIC, self._table(__key__=["key-1", "abcd"]))

        write_messages(bucket.url, TOPIC, self._table(__key__=["key-1", "a=b"]))
        bucket.drop()

    def test_rows_that_were_never_read_are_taken_as_they_are(self) -> None:
        """Who makes a table says text where it is a text."""
        bucket = MemoryBucket()
        table = self._table(__key__=["abcd", "efgh"]).drop_columns(["__entry_id__"])

        write_messages(bucket.url, TOPIC, table)

        read = _read(bucket.url, ["__key_bytes__"], value="raw")
        assert read["__key_bytes__"].to_pylist() == [b"abcd", b"efgh"]
        bucket.drop()

    def test_bytes_of_one_of_several_versions(self) -> None:
        """Bytes of an old version would be read by the newest."""
        bucket = MemoryBucket()
        versions = [
            {"version": 0, "type": "AVRO", "data": '"int"'},
            {"version": 1, "type": "AVRO", "data": '"long"'},
        ]

        with pytest.raises(OptionError, match="__schema_version__ too"):
            write_messages(bucket.url, TOPIC, self._table(), schema=versions)

        table = self._table(__schema_version__=[0, None])
        write_messages(bucket.url, TOPIC, table, schema=versions)
        read = _read(bucket.url, ["__schema_version__"], value="raw")
        assert read["__schema_version__"].to_pylist() == [0, None]
        bucket.drop()

    def test_a_value_that_is_lost_is_no_null_value(self) -> None:
        """A null beside a column that says there was a value, as salvage gives it, is refused."""
        bucket = MemoryBucket()
        table = pa.table({"__value__": [b"a", None], "__null_value__": [False, False]})

        with pytest.raises(OptionError, match=r"__value__, row 1 .*false, but the value is null"):
            write_messages(bucket.url, TOPIC, table)

        bucket.drop()


@pytest.mark.filterwarnings("ignore:.*without an outcome", "ignore:.*value lost")
@_EACH_TOPIC
def test_golden_topics_are_written_by_the_names_of_pulsar_spark(
    topic: GoldenTopic, value: str
) -> None:
    """What is read by another naming is written as what is read by our own."""
    schema = None if value == "raw" else golden_schema(topic)
    options: dict[str, Any] = {"schema": schema, "value": value, "on_corruption": "salvage"}
    written: list[list[object]] = []
    for naming in ("pulsar-sql", "pulsar-spark"):
        options["naming"] = naming
        wanted = [*open_golden(topic, **options).schema.names, *_ON_REQUEST]
        names = {"__topic__": "__topic", "__message_id__": "__messageId"}
        if naming == "pulsar-spark":
            wanted = [names.get(name, name) for name in wanted]
        table = open_golden(topic, **options, columns=wanted).to_table()
        made = MessageRows(schema, publish_time_ms=0)
        try:
            written.append(list(made.messages(table)))
        except (OptionError, SchemaError) as error:
            written.append([type(error)])

    assert written[0] == written[1]


_VALUE_FIELD: Final = {
    "type": "JSON",
    "schema": {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "value", "type": "int"}, {"name": "unit", "type": "string"}],
    },
}


@pytest.mark.parametrize("shape", ["flat", "struct"])
def test_a_field_called_value_is_told_from_the_value(shape: str) -> None:
    """By the names of pulsar-spark both are `value`: which is meant is known, or asked for."""
    first, second = MemoryBucket(), MemoryBucket()
    message = Message(payload=b'{"value":1,"unit":"m"}', publish_time_ms=1, schema_version=0)
    write_messages(first.url, TOPIC, [message])
    options: dict[str, Any] = {"schema": _VALUE_FIELD, "value": shape, "naming": "pulsar-spark"}
    table = open_topic(first.url, TOPIC, **options).to_table()

    if shape == "struct":
        with pytest.raises(OptionError, match='read it with naming="pulsar-sql"'):
            write_messages(second.url, TOPIC, table, schema=_VALUE_FIELD)
    else:
        write_messages(second.url, TOPIC, table, schema=_VALUE_FIELD)
        assert open_topic(second.url, TOPIC, **options).to_table()["value"].to_pylist() == [1]
    first.drop()
    second.drop()
