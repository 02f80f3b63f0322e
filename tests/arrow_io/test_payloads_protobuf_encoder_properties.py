"""What we write as protobuf, the library and both our builds read as what was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo
from tests.support.payloads import shredded_alike
from tests.support.protobuf_payloads import library_value, program_of
from tests.support.protobuf_strategies import Schema, messages, schemas

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from google.protobuf.message import Message

_MESSY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _columns(schema: Schema, given_messages: Sequence[Message], unit: str) -> pa.Array:
    payloads = [each.SerializePartialToString() for each in given_messages]
    return shredded_alike(program_of(schema.data, unit), payloads).values


@_MESSY
@given(data=st.data(), schema=schemas(), unit=st.sampled_from(("ns", "us")))
def test_what_we_write_is_read_as_it_was(data: st.DataObject, schema: Schema, unit: str) -> None:
    """Presence, oneofs, maps and enums of any schema are kept; what lacks a field is refused."""
    drawn = data.draw(st.lists(messages(schema), min_size=1, max_size=4))
    encoder = PayloadEncoder(SchemaInfo("PROTOBUF_NATIVE", schema.data))
    whole = [each for each in drawn if each.IsInitialized()]
    lacking = [each for each in drawn if not each.IsInitialized()]
    values = _columns(schema, [*lacking, *whole], unit)[len(lacking) :]

    payloads = [each for each in encoder.encode(values) if each is not None]

    read = [schema.message_class.FromString(each) for each in payloads]
    again = shredded_alike(program_of(schema.data, unit), payloads).rows
    assert again == [library_value(each, unit) for each in read]
    assert again == [library_value(each, unit) for each in whole]
    for each in lacking:
        with pytest.raises(OptionError, match=r"null|required|requires"):
            encoder.encode(_columns(schema, [each], unit))
