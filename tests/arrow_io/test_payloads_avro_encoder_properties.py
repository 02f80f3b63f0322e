"""What we write as AVRO of any schema, fastavro and both our builds read as what was given."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo
from tests.support.avro_schemas import Reading, schemas, without_logical
from tests.support.golden_values import comparable
from tests.support.payloads import avro, bits, shredded_alike

if TYPE_CHECKING:
    from tests.support.avro_schemas import Datum, Schema


def _write(schema: Schema, datum: Datum) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical(schema)), datum)
    return file.getvalue()


def _read(schema: Schema, payload: bytes) -> Datum:
    """The datum by fastavro, which must take all of the payload."""
    file = io.BytesIO(payload)
    parsed = fastavro.parse_schema(without_logical(schema))
    datum = fastavro.schemaless_reader(file, parsed, None)
    assert file.tell() == len(payload)
    return datum


def _columns(data: st.DataObject, schema: Schema, time_unit: str) -> pa.Array:
    """Values of a schema that have a place in its columns, made by fastavro and our decoder."""
    reading = Reading(fastavro.parse_schema(schema), time_unit)
    datums = data.draw(st.lists(reading.datums(reading.schema), min_size=1, max_size=4))
    payloads = [_write(schema, datum) for datum in datums]
    found = shredded_alike(avro(schema, time_unit=time_unit), payloads)
    lost = {misfit.row for misfit in found.misfits}
    return found.values.filter(pa.array([row not in lost for row in range(len(datums))]))


@given(data=st.data(), time_unit=st.sampled_from(("ns", "us")), plain=st.booleans())
def test_what_we_write_is_read_as_it_was(
    data: st.DataObject, time_unit: str, *, plain: bool
) -> None:
    """Whatever a column of a schema holds, our reader gives it back to the bit, and so fastavro.

    Which branch of a union fastavro has read, the value's type must tell.
    """
    schema = data.draw(schemas(plain=plain))
    values = _columns(data, schema, time_unit)
    sliced = pa.concat_arrays([values, values])[len(values) :]

    payloads = PayloadEncoder(SchemaInfo("AVRO", json.dumps(schema))).encode(sliced)

    written = [each for each in payloads if each is not None]
    again = shredded_alike(avro(schema, time_unit=time_unit), written)
    assert again.misfits == []
    assert bits(again.values) == bits(pa.concat_arrays([values]))
    reading = Reading(fastavro.parse_schema(schema), time_unit)
    if not plain:
        return
    assert [reading.as_arrow(_read(schema, each)) for each in written] == again.rows


@given(data=st.data(), default=st.lists(st.integers(-9, 9)), place=st.integers(0, 3))
def test_fields_that_are_not_given_have_their_default(
    data: st.DataObject, default: list[int], place: int
) -> None:
    """A field without a column is what the schema says, and the others keep their values."""
    schema = data.draw(schemas())
    values = _columns(data, schema, "ns")
    if not schema["fields"]:
        return
    added = {"name": "added", "type": {"type": "array", "items": "int"}, "default": default}
    schema["fields"].insert(place, added)

    payloads = PayloadEncoder(SchemaInfo("AVRO", json.dumps(schema))).encode(values)

    again = shredded_alike(avro(schema), [each for each in payloads if each is not None])
    assert again.misfits == []
    assert again.rows == [{**row, "added": default} for row in comparable(values)]
