"""A Parquet file written for a table, and the statistics that table formats record of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column of a file.

    Attributes:
        nulls: Number of null rows.
        least: The minimum, as a Python value. None if it is not recorded, or the column has no
            value.
        greatest: The maximum, likewise.
    """

    nulls: int
    least: object = None
    greatest: object = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in a table's data folder that is not part of the table until a commit adds it.

    Small and picklable: the process that writes the file is not the one that commits it.

    Attributes:
        path: Path relative to the table's folder, with `/`.
        size_bytes: Length of the file.
        rows: Number of rows, at least one.
        partition: The value of each partition field, in the order of the fields. None stands for
            null.
        stats: Statistics by column name, for top-level columns whose types have an order.
    """

    path: str
    size_bytes: int
    rows: int
    partition: tuple[object, ...] = ()
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
