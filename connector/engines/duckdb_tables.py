"""A lake table's rows in SQL, so that DuckDB reads its Parquet files itself."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from connector.engines.duckdb_binding import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.read_options import ReadOptions
    from connector.scan.table_read import LakeTable, RowCondition, TableRead, TableSplit

_US_PER_MS: Final = 1000


class RemainderTable:
    """A lake table whose own rows another reader returns, so that only the remainders are read."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def default_columns(self, options: ReadOptions) -> list[str]:
        """Return the default columns of the table."""
        return self._table.default_columns(options)

    def split(self, topics: Sequence[TopicLedgers], options: ReadOptions) -> TableSplit:
        """Split a scan like the table, and read nothing from it."""
        return replace(self._table.split(topics, options), read=None)


def table_sql(read: TableRead) -> str | None:
    """Return a SELECT of a table's rows with the column `ROWS` and those of the projection.

    Returns:
        The SQL. None if DuckDB cannot read the files: they are not local, or lack columns.
    """
    paths = read.files.local_paths(read.options.projection.schema.names)
    if paths is None:
        return None
    schema, stored = read.options.projection.schema, read.files.schema
    columns = [
        f"CAST({_value(stored.field(each.name), each)} AS {type_}) AS {_quoted(each.name)}"
        for each, type_ in zip(schema, _duckdb_types(schema), strict=True)
    ]
    files = ", ".join(map(_literal, paths))
    names = {own: _quoted(name) for name, own in read.options.filterable.columns}
    terms = list(_terms(read.condition, names))
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    select = ", ".join([f"NULL AS {_quoted(ROWS)}", *columns])
    # Folders such as `country=DE` would otherwise replace the values in the files.
    options = "union_by_name = true, hive_partitioning = false"
    return f"FROM read_parquet([{files}], {options}) SELECT {select}{where}"


@lru_cache(maxsize=64)
def _duckdb_types(schema: pa.Schema) -> tuple[str, ...]:
    """Return the types in which DuckDB reads columns of Arrow, as SQL; a connection is slow."""
    import duckdb

    with duckdb.connect() as con:
        return tuple(map(str, con.from_arrow(schema.empty_table()).types))


def _value(stored: pa.Field, wanted: pa.Field) -> str:
    """Return the SQL of a column's value; Delta stores times of day as µs since midnight."""
    name = _quoted(stored.name)
    # DuckDB infers from the bounds of a column, which leave out NaN, but not from these.
    if pa.types.is_floating(stored.type):
        return f"(CASE WHEN isnan({name}) THEN 'nan' ELSE {name} END)"
    if _has_floating(stored.type):
        return f"least({name})"
    is_number_of_time = pa.types.is_int64(stored.type) and pa.types.is_time(wanted.type)
    return f"(TIME '00:00' + to_microseconds({name}))" if is_number_of_time else name


def _has_floating(type_: pa.DataType) -> bool:
    children = range(type_.num_fields)
    return pa.types.is_floating(type_) or any(_has_floating(type_.field(n).type) for n in children)


def _terms(condition: RowCondition, names: Mapping[str, str]) -> Iterator[str]:
    bounds = condition.bounds
    if condition.topics is not None:
        yield f"{names['__topic__']} IN ({', '.join(map(_literal, condition.topics))})"
    if bounds.start_id is not None:
        yield f"{_position(names)} >= {bounds.start_id}"
    if bounds.end_id is not None:
        yield f"{_position(names)} < {bounds.end_id}"
    time = names["__publish_time__"]
    if bounds.start_ms is not None:
        yield f"{time} >= make_timestamptz({bounds.start_ms * _US_PER_MS})"
    if bounds.end_ms is not None:
        yield f"{time} < make_timestamptz({bounds.end_ms * _US_PER_MS})"
    for ledger_id, entry_ids in condition.omitted_entries.items():
        entries = ", ".join(map(str, entry_ids))
        ledger, entry = names["__ledger_id__"], names["__entry_id__"]
        yield f"NOT ({ledger} = {ledger_id} AND {entry} IN ({entries}))"


def _position(names: Mapping[str, str]) -> str:
    batch_index = f"coalesce({names['__batch_index__']}, 0)"
    return f"({names['__ledger_id__']}, {names['__entry_id__']}, {batch_index})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
