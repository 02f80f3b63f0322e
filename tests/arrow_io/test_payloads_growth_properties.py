"""Payloads large enough to fill every node several times over are read as their oracles have them.

Each payload is a list of up to some hundreds of values, so that nodes are met with all their places
taken, whatever their capacity; together with others in one arena, and alone; on both builds, in an
arena that begins with room and in one that begins with none. Guards stand around each region.
"""

from __future__ import annotations

import base64
import io
import json
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

import fastavro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.payloads.primitive import PRIMITIVE_TYPES, primitive_program, primitive_shape
from tests.support.arenas import GuardedShredding, TightShredding
from tests.support.avro_payloads import avro_long
from tests.support.avro_schemas import NoPlaceError, Reading, schemas, without_logical
from tests.support.builds import BUILDS, using_build
from tests.support.json_payloads import MisfitError, Oracle, texts
from tests.support.payloads import Shredded, avro, bits, json_text, record, shredded
from tests.support.protobuf_payloads import NoValueError, library_class, library_value, program_of
from tests.support.protobuf_strategies import messages
from tests.support.protobuf_strategies import schemas as protobuf_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.payloads.program import Program
    from tests.support.protobuf_strategies import Schema

_BIG: Final = settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_COUNTS: Final = st.lists(
    st.sampled_from((0, 1, 3, 63, 64, 65, 127, 128, 200)), min_size=1, max_size=4
)
"""How many values the payloads of one record batch have."""
_UNITS: Final = st.sampled_from(("ns", "us"))


def _check(
    program: Callable[[], Program], payloads: Sequence[bytes], expected: Sequence[Any]
) -> None:
    """Both builds give what is expected, in every arena, of all payloads together and of each."""
    found: list[Shredded] = []
    for build in BUILDS:
        with using_build(build):
            found += [
                shredded(program(), payloads, believed_bytes=0),
                shredded(program(), payloads, arena=TightShredding),
            ]
    for each in found:
        assert each.misfits == []
        assert bits(each.values) == bits(found[0].values)
    rows = found[0].rows
    assert len(rows) == len(expected)
    for row, value in zip(rows, expected, strict=True):
        assert value == row
    known = program()
    for payload, row in zip(payloads, rows, strict=True):
        for arena in (GuardedShredding, TightShredding):
            alone = shredded(known, [payload], arena=arena)
            assert alone.misfits == []
            assert repr(alone.rows) == repr([row])


def _repeated(values: Sequence[Any], count: int) -> list[Any]:
    return list(islice(cycle(values), count)) if values else []


@_BIG
@given(data=st.data(), counts=_COUNTS, unit=_UNITS)
def test_avro(data: st.DataObject, counts: list[int], unit: str) -> None:
    """Arrays of Avro data of any type."""
    schema = data.draw(schemas(max_depth=2))
    reading = Reading(fastavro.parse_schema(schema), unit)
    plain = fastavro.parse_schema(without_logical(schema))
    values, items = [], []
    for datum in data.draw(st.lists(reading.datums(reading.schema), min_size=1, max_size=3)):
        try:
            values.append(reading.as_arrow(datum))
        except NoPlaceError:
            continue
        file = io.BytesIO()
        fastavro.schemaless_writer(file, plain, datum)
        items.append(file.getvalue())
    many = record(("items", {"type": "array", "items": schema}), name="Many")
    payloads, expected = [], []
    for count in counts if values else ():
        block = avro_long(count) + b"".join(_repeated(items, count))
        payloads.append(block + b"\0" if count else block)
        expected.append({"items": _repeated(values, count)})

    _check(lambda: avro(many, time_unit=unit), payloads, expected)


@_BIG
@given(data=st.data(), counts=_COUNTS, unit=_UNITS)
def test_json(data: st.DataObject, counts: list[int], unit: str) -> None:
    """Arrays of JSON text of any schema."""
    schema = fastavro.parse_schema(data.draw(schemas(max_depth=2, json=True)))
    oracle = Oracle(schema, unit)
    values, items = [], []
    for text in data.draw(st.lists(texts(schema), min_size=1, max_size=4)):
        try:
            values.append(oracle.value(text.encode()))
        except MisfitError:
            continue
        items.append(text)
    many = record(("items", {"type": "array", "items": schema}), name="Many")
    payloads, expected = [], []
    for count in counts if values else ():
        payloads.append(f'{{"items":[{",".join(_repeated(items, count))}]}}'.encode())
        expected.append({"items": _repeated(values, count)})

    _check(lambda: json_text(many, time_unit=unit), payloads, expected)


def _of_many(schema: Schema) -> str:
    """The schema of a message that repeats the outermost one of another."""
    described = json.loads(schema.data)
    files = FileDescriptorSet.FromString(base64.b64decode(described["fileDescriptorSet"]))
    (file,) = (each for each in files.file if each.name == described["rootFileDescriptorName"])
    file.message_type.add(name="Many").field.add(
        name="items",
        number=1,
        label=FieldDescriptorProto.LABEL_REPEATED,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{described['rootMessageTypeName']}",
    )
    described["fileDescriptorSet"] = base64.b64encode(files.SerializeToString()).decode()
    return json.dumps(described | {"rootMessageTypeName": "t.Many"})


@_BIG
@given(data=st.data(), schema=protobuf_schemas(), counts=_COUNTS, unit=_UNITS)
def test_protobuf(data: st.DataObject, schema: Schema, counts: list[int], unit: str) -> None:
    """Repeated protobuf messages of any type, length-prefixed and as groups."""
    described = _of_many(schema)
    class_ = library_class(described)
    bodies = []
    for message in data.draw(st.lists(messages(schema), min_size=1, max_size=3)):
        try:
            library_value(message, unit)
        except NoValueError:
            continue
        bodies.append(message.SerializePartialToString())
    many = []
    for count in counts if bodies else ():
        whole: Any = class_()
        for body in _repeated(bodies, count):
            whole.items.add().MergeFromString(body)
        many.append(whole)

    _check(
        lambda: program_of(described, unit),
        [each.SerializePartialToString() for each in many],
        [library_value(each, unit) for each in many],
    )


@given(
    type_=st.sampled_from(sorted(PRIMITIVE_TYPES)),
    sizes=st.lists(st.integers(0, 300), max_size=200),
)
def test_primitives(type_: str, sizes: list[int]) -> None:
    """Any number of payloads that are one value, of texts also any length."""
    is_text = type_ in {"BYTES", "STRING"}
    widths = {"INT8": 1, "BOOLEAN": 1, "INT16": 2, "INT32": 4, "FLOAT": 4, "INSTANT": 12,
              "LOCAL_DATE_TIME": 16}  # fmt: skip
    width = widths.get(type_, 8)
    payloads = [
        b"x" * size if is_text else bytes([0] * (width - 1) + [size % 100]) for size in sizes
    ]

    def program() -> Program:
        return primitive_program(primitive_shape(type_, "ns"))

    _check(program, payloads, [shredded(program(), [payload]).rows[0] for payload in payloads])
