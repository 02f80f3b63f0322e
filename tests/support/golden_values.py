"""What typed columns of the golden topics must hold, by what Pulsar's `AUTO_CONSUME` decoded.

In comes `values.jsonl.gz`, whose JSON leaves the types to the schema (times are ISO text or
milliseconds, bytes are Base64, logical Avro types are what they are stored as); out come the rows
of our columns, written so that nothing is lost. `comparable` writes any Arrow array in that way:

| Arrow | here |
|---|---|
| null | None |
| bool, string, binary | bool, str, bytes |
| integers | int |
| float, double | float; `"-0.0"` and `"NaN"` as text, because Python's `==` cannot tell them |
| decimal128 | Decimal |
| date32 | int: days since 1970-01-01 |
| time64, timestamp | int: the stored number, in the unit of the type, so a wrong unit is seen |
| list, struct | list, dict |
| map | dict; a key that stands twice is an error |
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
import struct
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa
from google.protobuf import json_format

from connector.catalog.schemas.loading import load_schema
from tests.support.avro_schemas import number_told
from tests.support.golden import golden_topic, golden_topics
from tests.support.golden_datasets import reference_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
    from tests.support.golden import GoldenTopic

Comparable: TypeAlias = Any
"""A value as the table above says; only a comparison with another is asked of it."""

TimeUnit: TypeAlias = Literal["ns", "us"]

_LONG_BITS: Final = 64
_DAY_MS: Final = 86_400_000
_NS_PER: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_ISO_TIME: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?")
_BASE64_PREFIX: Final = "base64:"


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """The typed columns of one message.

    Attributes:
        ledger_id: BookKeeper ledger id.
        entry_id: Entry id.
        batch_index: 0-based position in the batch; None if the message is in none.
        schema_version: Version in the schema registry that the message was written with.
        null_value: What `__null_value__` says.
        value: A record as a dict of all fields of the reader schema, or the scalar; None for a
            null value and for one that does not fit.
        key: The key of a KEY_VALUE schema, likewise; else None.
        fits: Whether the value has a place in its column; if not, reading it is an error
            (nanoseconds in a column of microseconds).
    """

    ledger_id: int
    entry_id: int
    batch_index: int | None
    schema_version: int
    null_value: bool
    value: Comparable
    key: Comparable = None
    fits: bool = True


class _MisfitError(Exception):
    """A value has no place in the type of its column."""


@functools.cache
def topics_with_values() -> tuple[GoldenTopic, ...]:
    """The golden topics that have a schema, whose values Pulsar's client decoded."""
    return tuple(topic for topic in golden_topics() if values_file(topic).exists())


@functools.cache
def golden_schema(topic: GoldenTopic) -> TopicSchema:
    """The schemas of a golden topic; for PROTOBUF with the descriptor of `protobuf-native`.

    Both topics have the message of `telemetry.proto`, which Pulsar stores no descriptor of for
    PROTOBUF.
    """
    schema = load_schema(topic.folder / "schemas-rest.json")
    if schema.reader.type != "PROTOBUF":
        return schema
    native = load_schema(golden_topic("protobuf-native").folder / "schemas-rest.json").reader
    return load_schema(
        [{"type": "PROTOBUF", "data": native.data}, topic.folder / "schemas-rest.json"]
    )


def expected_values(
    topic: GoldenTopic, time_unit: TimeUnit = "ns", reader: SchemaInfo | None = None
) -> list[ExpectedRow]:
    """The typed columns of a golden topic.

    Args:
        topic: One of `topics_with_values()`.
        time_unit: Unit of the columns whose type has nanoseconds.
        reader: The schema that they are read by; None: the newest.

    Returns:
        A row for each message, in the order of positions.
    """
    reader = golden_schema(topic).reader if reader is None else reader
    return [_expected_row(line, reader, time_unit) for line in _lines(topic)]


def comparable(array: pa.Array | pa.ChunkedArray) -> list[Comparable]:
    """The values of an Arrow array of any type, written as the table of this module says."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in comparable(chunk)]
    if pa.types.is_dictionary(array.type):
        return comparable(array.dictionary_decode())
    for is_of_type, convert in _NESTED:
        if is_of_type(array.type):
            return convert(array)
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == _LONG_BITS else pa.int32())
    values = array.to_pylist()
    return [number_told(value) if isinstance(value, float) else value for value in values]


def _comparable_lists(array: pa.ListArray | pa.LargeListArray) -> list[Comparable]:
    items = iter(comparable(array.flatten()))
    lengths = array.value_lengths().to_pylist()
    return [None if length is None else list(islice(items, length)) for length in lengths]


def _comparable_structs(array: pa.StructArray) -> list[Comparable]:
    columns = {field.name: comparable(array.field(index)) for index, field in enumerate(array.type)}
    return [
        {name: column[row] for name, column in columns.items()} if valid else None
        for row, valid in enumerate(array.is_valid().to_pylist())
    ]


def _comparable_maps(array: pa.MapArray) -> list[Comparable]:
    keys, items = comparable(array.keys), comparable(array.items)
    offsets = array.offsets.to_pylist()
    rows: list[Comparable] = []
    for row, valid in enumerate(array.is_valid().to_pylist()):
        place = slice(offsets[row], offsets[row + 1])
        pairs = dict(zip(keys[place], items[place], strict=True))
        assert not valid or len(pairs) == place.stop - place.start, keys[place]
        rows.append(pairs if valid else None)
    return rows


_NESTED: Final = (
    (pa.types.is_struct, _comparable_structs),
    (pa.types.is_map, _comparable_maps),
    (pa.types.is_list, _comparable_lists),
    (pa.types.is_large_list, _comparable_lists),
)


def values_file(topic: GoldenTopic) -> Path:
    """The file of a topic's decoded values, which exists if the topic has a schema."""
    return topic.folder / "values.jsonl.gz"


@functools.cache
def _lines(topic: GoldenTopic) -> list[dict[str, Any]]:
    """The lines of `values.jsonl.gz`, in the order of positions."""
    with gzip.open(values_file(topic), "rt", encoding="utf-8") as file:
        lines = sorted(map(json.loads, file), key=itemgetter("ledger", "entry"))
    reader = golden_schema(topic).reader
    if "JSON" in {reader.type, reader.value.type if reader.value else None}:
        _restore_numbers(topic, lines, reader)
    return lines


def _restore_numbers(topic: GoldenTopic, lines: list[dict[str, Any]], reader: SchemaInfo) -> None:
    """Put the payload's own JSON for the client's, which is equal but lost the sign of zeros."""
    payloads = {
        (row["__ledger_id__"], row["__entry_id__"], row["__batch_index__"]): row["__value__"]
        for row in reference_rows(topic)
    }
    for line in lines:
        payload = payloads[line["ledger"], line["entry"], _batch_index(line)]
        if payload is None:
            continue
        value = _inline_json(payload) if reader.type == "KEY_VALUE" else json.loads(payload)
        assert value == line["value"], line
        line["value"] = value


def _inline_json(payload: bytes) -> dict[str, Any]:
    parts = {}
    for name in ("key", "value"):
        length, payload = int.from_bytes(payload[:4], signed=True), payload[4:]
        parts[name] = None if length < 0 else json.loads(payload[:length])
        payload = payload[max(length, 0) :]
    return parts


def _batch_index(line: dict[str, Any]) -> int | None:
    return None if line["batch"] < 0 else line["batch"]


def _expected_row(line: dict[str, Any], reader: SchemaInfo, time_unit: TimeUnit) -> ExpectedRow:
    value, key, fits = line["value"], None, True
    if reader.key is not None and reader.value is not None:
        key = _converted(reader.key, value["key"], time_unit)
        value = _converted(reader.value, value["value"], time_unit)
    else:
        try:
            value = _converted(reader, value, time_unit)
        except _MisfitError:
            value, fits = None, False
    return ExpectedRow(
        line["ledger"],
        line["entry"],
        _batch_index(line),
        int(line["schema_version"], 16),
        line["null_value"],
        value,
        key,
        fits,
    )


def _converted(schema: SchemaInfo, raw: Any, time_unit: TimeUnit) -> Comparable:  # noqa: ANN401
    """The client's JSON of one value, as the column of a schema gives it."""
    if raw is None:
        return None
    if schema.type in {"AVRO", "JSON"}:
        return _AvroValues(schema, time_unit).converted(json.loads(schema.data), raw)
    if schema.type in {"PROTOBUF", "PROTOBUF_NATIVE"}:
        return _message_value(raw, schema.data, time_unit)
    return _PRIMITIVES[schema.type](raw, time_unit)


def _message_value(raw: Any, data: str, time_unit: TimeUnit) -> Comparable:  # noqa: ANN401
    # What it gives is compared by this module.
    from tests.support.protobuf_payloads import (  # noqa: PLC0415
        NoValueError,
        library_class,
        library_value,
    )

    try:
        return library_value(json_format.ParseDict(raw, library_class(data)()), time_unit)
    except NoValueError:
        raise _MisfitError from None


def _single_float(value: float | str) -> Comparable:
    """The number that a column of single precision has for a decimal text of it."""
    return number_told(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def _bytes(value: str) -> bytes:
    return base64.b64decode(value.removeprefix(_BASE64_PREFIX), validate=True)


def _ticks(count: int, stored: str, column: str) -> int:
    """A time in the unit that is stored, in that of its column."""
    ticks, rest = divmod(count * _NS_PER[stored], _NS_PER[column])
    if rest or not -(1 << 63) <= ticks < 1 << 63:
        raise _MisfitError
    return ticks


def _iso_day(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


def _iso_nano_of_day(text: str) -> int:
    match = _ISO_TIME.fullmatch(text)
    assert match is not None, text
    hours, minutes, seconds, fraction = match.groups("0")
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 10**9 + int(fraction.ljust(9, "0"))


def _iso_ns(text: str) -> int:
    """Nanoseconds since 1970 of java.time's text of an Instant or a LocalDateTime."""
    day, _, time = text.removesuffix("Z").partition("T")
    return _iso_day(day) * _DAY_MS * _NS_PER["ms"] + _iso_nano_of_day(time)


_PRIMITIVES: Final[dict[str, Callable[[Any, TimeUnit], Comparable]]] = {
    **{f"INT{bits}": lambda raw, _: int(raw) for bits in (8, 16, 32, 64)},
    "BYTES": lambda raw, _: _bytes(raw),
    "STRING": lambda raw, _: str(raw),
    "BOOLEAN": lambda raw, _: bool(raw),
    "FLOAT": lambda raw, _: _single_float(raw),
    "DOUBLE": lambda raw, _: number_told(float(raw)),
    "DATE": lambda raw, _: _ticks(raw, "ms", "us"),
    "TIMESTAMP": lambda raw, _: _ticks(raw, "ms", "us"),
    "TIME": lambda raw, _: raw % _DAY_MS * 1000,
    "INSTANT": lambda raw, unit: _ticks(_iso_ns(raw), "ns", unit),
    "LOCAL_DATE": lambda raw, _: _iso_day(raw),
    "LOCAL_TIME": lambda raw, unit: _ticks(_iso_nano_of_day(raw), "ns", unit),
    "LOCAL_DATE_TIME": lambda raw, unit: _ticks(_iso_ns(raw), "ns", unit),
}


class _AvroValues:
    """Values of one AVRO or JSON schema, by the reader's definition.

    The client's JSON has the fields of the writer, by name: those that the reader lacks are left
    out; for those that the writer lacked AVRO has defaults, and JSON has null.
    """

    def __init__(self, schema: SchemaInfo, time_unit: TimeUnit) -> None:
        self._is_json = schema.type == "JSON"
        self._time_unit = time_unit
        self._named: dict[str, Any] = {}

    def converted(self, schema: Any, raw: Any) -> Comparable:  # noqa: ANN401, PLR0911
        """One value; `schema` is the part of the definition that is its type."""
        if isinstance(schema, list):
            return self._union(schema, raw)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.converted(kind, raw)
        if "name" in schema:
            self._named[schema["name"]] = schema
        if "logicalType" in schema:
            return self._logical(schema, raw)
        if kind == "record":
            return {field["name"]: self._field(field, raw) for field in schema["fields"]}
        if kind == "array":
            return [self.converted(schema["items"], item) for item in raw]
        if kind == "map":
            return {key: self.converted(schema["values"], item) for key, item in raw.items()}
        return self._scalar(kind, raw)

    def _field(self, field: dict[str, Any], raw: dict[str, Any]) -> Comparable:
        name = field["name"]
        if name in raw:
            # A null of JSON is null whatever the type is.
            return (
                None
                if self._is_json and raw[name] is None
                else self.converted(field["type"], raw[name])
            )
        if self._is_json:
            return None
        default = field["default"]
        assert default is None, "no golden topic has another default"
        return default

    def _union(self, branches: list[Any], raw: Any) -> Comparable:  # noqa: ANN401
        if raw is None:
            return None
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.converted(others[0], raw)
        names = [branch if isinstance(branch, str) else branch["type"] for branch in others]
        chosen = names.index({str: "string", int: "long", list: "array"}[type(raw)])
        value = self.converted(others[chosen], raw)
        return {name: value if index == chosen else None for index, name in enumerate(names)}

    def _scalar(self, kind: str, raw: Any) -> Comparable:  # noqa: ANN401
        if kind in {"bytes", "fixed"}:
            assert self._is_json or raw.startswith(_BASE64_PREFIX), raw
            return _bytes(raw)
        if kind == "float":
            return _single_float(raw)
        if kind == "double":
            return number_told(float(raw))
        wanted = {"string": str, "enum": str, "boolean": bool, "int": int, "long": int}[kind]
        assert type(raw) is wanted, raw
        return raw

    def _logical(self, schema: dict[str, Any], raw: Any) -> Comparable:  # noqa: ANN401
        logical = schema["logicalType"]
        if logical == "decimal":
            number = int.from_bytes(_bytes(raw), signed=True)
            return Decimal(number).scaleb(-schema.get("scale", 0))
        if logical in {"uuid", "date"}:
            return raw
        stored = {"millis": "ms", "micros": "us", "nanos": "ns"}[logical.rpartition("-")[2]]
        return _ticks(raw, stored, self._time_unit if stored == "ns" else "us")
