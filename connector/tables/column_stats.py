"""Column statistics of a Parquet file: for its encoding, and for the table's metadata.

Engines prune files by its bounds, so no value of the file may be outside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connector.tables.data_file import ColumnStats

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_LENGTH = 64
"""Maximum length of a string or binary bound: tables hold the statistics of all files in memory."""
_SAMPLE_ROWS, _DISTINCT = 16_384, 15 / 16
"""In a sample with this share of distinct values, a column has more than 100,000 of them if all are
alike: a dictionary of 8 bytes each is nearly as long as Arrow allows."""
_LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES = "\ud7ff", "\ue000"
_LAST_CHARACTER = "\U0010ffff"


class FileStats:
    """Statistics of one file with the columns of `schema`, collected while it is written."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._floats = {each.name for each in schema if pa.types.is_floating(each.type)}
        self._with_nan: set[str] = set()

    def add_rows(self, table: pa.Table) -> None:
        """Record which columns contain NaN: engines sort it last, and Parquet's bounds omit it."""
        for name in self._floats - self._with_nan:
            if pc.any(pc.is_nan(table.column(name))).as_py():
                self._with_nan.add(name)

    def read_footer(self, footer: pq.FileMetaData) -> dict[str, ColumnStats]:
        """Return the statistics of the columns whose types have an order, by name."""
        columns: dict[str, ColumnStats] = {}
        leaf = 0
        for each in self._schema:
            stats = self._column(footer, leaf, each.name) if _has_order(each.type) else None
            if stats is not None:
                columns[each.name] = stats
            leaf += _leaves(each.type)
        return columns

    def _column(self, footer: pq.FileMetaData, leaf: int, name: str) -> ColumnStats | None:
        groups = (footer.row_group(n).column(leaf) for n in range(footer.num_row_groups))
        chunks = [(group.num_values, group.statistics) for group in groups]
        if any(stats is None or not stats.has_null_count for _, stats in chunks):
            return None
        nulls = sum(stats.null_count for _, stats in chunks)
        bounded = [stats for number, stats in chunks if stats.null_count < number]
        has_bounds = all(stats.has_min_max for stats in bounded)
        if not bounded or not has_bounds or name in self._with_nan:
            return ColumnStats(nulls)
        try:
            least = min(stats.min for stats in bounded)
            greatest = max(stats.max for stats in bounded)
        except (OverflowError, ValueError):  # Python's times are in the years 1 to 9999.
            return ColumnStats(nulls)
        return ColumnStats(nulls, _lower_bound(least), _upper_bound(greatest))


def columns_with_dictionary(table: pa.Table) -> list[str]:
    """Return the paths of the Parquet columns whose values a dictionary makes shorter.

    Arrow abandons a dictionary of more than 1 MiB, but not before it has hashed its values and
    written references to them. So columns whose first values hardly repeat get none.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    distinct = {
        each.name
        for each in table.schema
        if _has_order(each.type)
        and pc.count_distinct(sample.column(each.name)).as_py() > _DISTINCT * len(sample)
    }
    with pa.BufferOutputStream() as sink:
        pq.write_table(table.schema.empty_table(), sink)
        columns = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    paths = [columns.column(number).path for number in range(len(columns))]
    return [each for each in paths if each not in distinct]


def _has_order(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_decimal(type_)
        or types.is_boolean(type_)
        or types.is_string(type_)
        or types.is_binary(type_)
        or types.is_temporal(type_)
    )


def _leaves(type_: pa.DataType) -> int:
    """Return the number of Parquet columns that a type takes."""
    if not pa.types.is_nested(type_):
        return 1
    children: Iterable[Any] = (type_.field(n) for n in range(type_.num_fields))
    return sum(_leaves(each.type) for each in children)


def _lower_bound(value: object) -> object:
    """Return a short bound that is not above the value."""
    return value[:_MAX_LENGTH] if isinstance(value, str | bytes) else value


def _upper_bound(value: object) -> object:
    """Return a short bound that is not below the value, or None if there is none."""
    if isinstance(value, str) and len(value) > _MAX_LENGTH:
        text = value[:_MAX_LENGTH].rstrip(_LAST_CHARACTER)
        return text[:-1] + _next_character(text[-1]) if text else None
    if isinstance(value, bytes) and len(value) > _MAX_LENGTH:
        prefix = value[:_MAX_LENGTH].rstrip(b"\xff")
        return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    return value


def _next_character(character: str) -> str:
    if character == _LAST_BEFORE_SURROGATES:
        return _FIRST_AFTER_SURROGATES
    return chr(ord(character) + 1)
