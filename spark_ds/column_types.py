"""Arrow types of a topic's columns, converted to types that Spark can read.

Spark 4.1 to 4.3 reads each type of the tables in `arrow_io.columns` except times of day. Its type
`TIME` is switched off (`spark.sql.timeType.enabled`): such a column can be collected, but a frame
with one can be neither counted, grouped nor written. So a time of day is a `bigint` in Spark, also
inside structs, arrays and maps: microseconds since midnight. If `TIME` is switched on,
`time_from_micros` converts it.
"""

from __future__ import annotations

import pyarrow as pa


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema to which record batches must be cast for Spark."""
    return pa.schema([field.with_type(_spark_type(field.type)) for field in schema])


def _spark_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_time64(type_):
        return pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([_spark_field(field) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(_spark_field(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(_spark_field(type_.key_field), _spark_field(type_.item_field))
    return type_


def _spark_field(field: pa.Field) -> pa.Field:
    return field.with_type(_spark_type(field.type))
