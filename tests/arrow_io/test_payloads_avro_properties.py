"""Whatever fastavro writes, we read as fastavro reads it; whatever bytes come, both builds agree.

Where fastavro and we differ, so that the schemas and data here do not:

* fastavro wants records, enums and fixed types of equal names, or aliases; we do not.
* It takes the first branch of the reader's union that could take a value, we (as Java's) the
  nearest one.
* It refuses an array or map whose item type does not match; we do where an item is met.
* Of bytes that no writer writes it takes what we refuse: trailing bytes, an int of more than 32
  bits, a boolean of 2, an enum of -1, a decimal of no bytes, lengths below zero.
* It converts logical types by the writer's schema; we by the reader's. Here it converts none.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Final

import fastavro
import pytest
from fastavro.schema import SchemaParseException
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from arrow_io.payloads.avro import avro_program, avro_shape
from arrow_io.payloads.avro_schema import parse_avro
from tests.support.avro_evolutions import evolved
from tests.support.avro_schemas import NoPlaceError, Reading, schemas, without_logical
from tests.support.golden import golden_topic, row_payload
from tests.support.golden_values import golden_schema
from tests.support.payloads import avro, record, shredded_alike

if TYPE_CHECKING:
    from tests.support.avro_schemas import Datum, Schema

_REFUSALS: Final = (
    fastavro.read.SchemaResolutionError,
    EOFError,
    IndexError,
    NoPlaceError,
    UnicodeDecodeError,
    ValueError,
)


def _write(schema: Schema, datum: Datum) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical(schema)), datum)
    return file.getvalue()


def _read(writer: Schema, payload: bytes, reader: Schema = None) -> Datum:
    """The datum by fastavro, which must take all of the payload."""
    parsed = fastavro.parse_schema(without_logical(writer))
    read = None if reader is None else fastavro.parse_schema(without_logical(reader))
    file = io.BytesIO(payload)
    datum = fastavro.schemaless_reader(file, parsed, read)
    if file.tell() != len(payload):
        raise EOFError
    return datum


def _reading(schema: Schema, time_unit: str = "ns") -> Reading:
    return Reading(fastavro.parse_schema(schema), time_unit)


_UNITS: Final = st.sampled_from(("ns", "us"))


@given(data=st.data(), time_unit=_UNITS)
def test_what_fastavro_writes(data: st.DataObject, time_unit: str) -> None:
    """Data of any schema are read as what was written, or do not fit their columns."""
    schema = data.draw(schemas())
    reading = _reading(schema, time_unit)
    datums = data.draw(st.lists(reading.datums(reading.schema), min_size=1, max_size=3))
    expected = []
    for datum in datums:
        try:
            expected.append(reading.as_arrow(datum))
        except NoPlaceError:
            expected.append(None)

    found = shredded_alike(
        avro(schema, time_unit=time_unit), [_write(schema, datum) for datum in datums]
    )

    assert found.rows == expected
    assert {misfit.code for misfit in found.misfits} <= {
        tables.OUT_OF_RANGE,
        tables.TOO_PRECISE,
    }
    assert [misfit.row for misfit in found.misfits] == [
        row for row, value in enumerate(expected) if value is None
    ]


@given(data=st.data())
def test_evolved_schemas(data: st.DataObject) -> None:
    """What one schema wrote is read by another as fastavro reads it, or both refuse it."""
    writer = data.draw(schemas(plain=True))
    reader = data.draw(evolved(writer))
    if isinstance(reader, list):
        reader = record(("only", reader), name="Whole")
        writer = record(("only", writer), name="Whole")
    try:
        reading = _reading(reader)
    except SchemaParseException:
        pytest.fail("the strategy gives schemas that are none")
    written = _reading(writer)
    datums = data.draw(st.lists(written.datums(written.schema), min_size=1, max_size=3))
    payloads = [_write(writer, datum) for datum in datums]
    expected = []
    for payload in payloads:
        try:
            expected.append(reading.as_arrow(_read(writer, payload, reader)))
        except _REFUSALS:
            expected.append(None)

    found = shredded_alike(avro(writer, reader), payloads)

    assert found.rows == expected
    shape = avro_shape(parse_avro(json.dumps(reader)), "ns")
    for child in shape.children:
        one = shredded_alike(
            avro_program(parse_avro(json.dumps(writer)), shape.select([child.name])), payloads
        )
        for row, whole in enumerate(expected):
            assert whole is None or one.rows[row] == {child.name: whole[child.name]}


def _mutations(payload: bytes) -> list[bytes]:
    """Every cut, every byte changed in three ways, and one byte too many."""
    cuts = [payload[:stop] for stop in range(len(payload))]
    flips = [
        payload[:place] + bytes([payload[place] ^ mask]) + payload[place + 1 :]
        for place in range(len(payload))
        for mask in (0x01, 0x80, 0xFF)
    ]
    return [*cuts, *flips, payload + b"\0"]


def _check_as_the_oracle(schema: Schema, payloads: list[bytes]) -> None:
    """What we take of any bytes, fastavro takes for the same."""
    reading = _reading(schema)
    found = shredded_alike(avro(schema), payloads)
    refused = {misfit.row for misfit in found.misfits}
    for row, payload in enumerate(payloads):
        if row not in refused:
            assert found.rows[row] == reading.as_arrow(_read(schema, payload)), payload
    for misfit in found.misfits:
        assert misfit.code in tables.REASONS
        assert 0 <= misfit.offset <= len(payloads[misfit.row])


@given(data=st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """Each cut and each changed byte is refused, or gives what fastavro gives."""
    schema = data.draw(schemas(max_depth=2, plain=True))
    reading = _reading(schema)
    payload = _write(schema, data.draw(reading.datums(reading.schema)))

    _check_as_the_oracle(schema, _mutations(payload[:60]))


@given(data=st.data(), payloads=st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes(data: st.DataObject, payloads: list[bytes]) -> None:
    """Random bytes are refused, or give what fastavro gives."""
    _check_as_the_oracle(data.draw(schemas(plain=True)), payloads)


@given(data=st.data(), payloads=st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes_of_evolved_schemas(data: st.DataObject, payloads: list[bytes]) -> None:
    """Random bytes that are resolved to another schema never part the builds."""
    writer = data.draw(schemas(plain=True))

    shredded_alike(avro(writer, data.draw(evolved(writer))), payloads)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["avro-orders", "avro-logical", "clients-cpp-avro"])
def test_every_change_of_real_payloads(name: str) -> None:
    """Every cut and every changed byte of payloads that Pulsar's clients wrote."""
    topic = golden_topic(name)
    schema = json.loads(golden_schema(topic).reader.data)
    payloads = {row_payload(row) for row in topic.messages()}

    for payload in sorted(each for each in payloads if each)[:40]:
        _check_as_the_oracle(schema, _mutations(payload))
