"""One Parquet file that was written for a table, and what a table format says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What is known of one column of a file.

    Attributes:
        nulls: How many rows are null.
        least: The least value, as Python has it; None if it is not known, or there is no value.
        greatest: The greatest value, likewise.
    """

    nulls: int
    least: object = None
    greatest: object = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that lies where a table keeps its data, and is no part of the table until a commit.

    Can be pickled, and is small: the process that writes it is not the one that commits it.

    Attributes:
        path: Relative to the table's folder, with `/`.
        size_bytes: Length of the file.
        rows: How many rows it has; at least one.
        partition: The value of each field of the partitioning, in its order; None: null.
        stats: By name, those of the top-level columns whose types have an order.
    """

    path: str
    size_bytes: int
    rows: int
    partition: tuple[object, ...] = ()
    stats: Mapping[str, ColumnStats] = field(default_factory=dict)
