"""What we write as JSON of any schema is read as what was given."""

from __future__ import annotations

import json

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo
from tests.support.avro_schemas import schemas
from tests.support.json_payloads import texts
from tests.support.payloads import bits, json_text, shredded_alike

_REFUSED = ("is null, which the schema does not allow", "is not a UUID")
"""What a reader takes from others, and nobody may write: JSON can spell any text."""


def _payload(encoder: PayloadEncoder, value: pa.Array) -> bytes | None:
    """What is written of a value; None if it is refused."""
    try:
        (payload,) = encoder.encode(value)
    except OptionError as error:
        if not str(error).endswith(_REFUSED):
            raise
        return None
    return payload


@given(data=st.data(), time_unit=st.sampled_from(("ns", "us")))
def test_what_we_write_is_read_as_it_was(data: st.DataObject, time_unit: str) -> None:
    """Whatever a column of a schema holds, both builds give it back, unless a field is missing."""
    schema = fastavro.parse_schema(data.draw(schemas(json=True)))
    payloads = data.draw(st.lists(texts(schema), min_size=1, max_size=6))
    program = json_text(schema, time_unit=time_unit)
    found = shredded_alike(program, [each.encode() for each in payloads])
    encoder = PayloadEncoder(SchemaInfo("JSON", json.dumps(schema)))

    for row in range(len(payloads)):
        value = found.values.slice(row, 1)
        payload = _payload(encoder, value)
        if payload is not None:
            again = shredded_alike(program, [payload])
            assert again.misfits == []
            assert bits(again.values) == bits(pa.concat_arrays([value])), payload
