"""Avro data written and read by fastavro, as Avro's specification has it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import fastavro

from tests.support.avro_schemas import NoPlaceError, Reading, without_logical

if TYPE_CHECKING:
    from tests.support.avro_schemas import Datum, Schema

REFUSALS: Final = (
    fastavro.read.SchemaResolutionError,
    EOFError,
    IndexError,
    NoPlaceError,
    UnicodeDecodeError,
    ValueError,
)
"""How fastavro, or a column, refuses data."""


def write_datum(schema: Schema, datum: Datum) -> bytes:
    """The bytes of a datum by fastavro."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without_logical(schema)), datum)
    return file.getvalue()


def read_datum(writer: Schema, payload: bytes, reader: Schema = None) -> Datum:
    """The datum by fastavro, which must take all of the payload."""
    parsed = fastavro.parse_schema(without_logical(writer))
    read = None if reader is None else fastavro.parse_schema(without_logical(reader))
    file = io.BytesIO(payload)
    datum = fastavro.schemaless_reader(file, parsed, read)
    if file.tell() != len(payload):
        raise EOFError
    return datum


def reading_of(schema: Schema, time_unit: str = "ns") -> Reading:
    """What data become that are read by a schema."""
    return Reading(fastavro.parse_schema(schema), time_unit)
