"""Column values that a filter's matching rows can have, found without reading rows.

Arrow can prove that no row with known properties matches a filter, but not list the values that
would match. A filter's result can change only at the literals that it compares columns with. The
literals therefore split each column into cells: the literals themselves, the intervals between
them, and null. Arrow is asked about each combination of cells. An overlooked literal makes a cell
wider than necessary, so less is proved, but nothing wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product, zip_longest
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connector.filters.row_filters import RowFilter

_MAX_COMBINATIONS: Final = 4096
"""With more combinations, each column is examined independently."""
_MAX_LITERALS: Final = 1000
"""Maximum number of literals that split a column; the smallest are used."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A set of values of one column: null, a single value, or an interval.

    Bounds of numbers are inclusive. Bounds of strings are exclusive unless they are equal, because
    a string has no predecessor.

    Attributes:
        least: Lower bound; None if unbounded.
        greatest: Upper bound; None if unbounded.
        is_null: Whether the cell is null and contains nothing else.
    """

    least: Any = None
    greatest: Any = None
    is_null: bool = False

    @property
    def is_one_value(self) -> bool:
        """Whether the cell is a single value that is not null."""
        return self.least is not None and self.least == self.greatest


Combination: TypeAlias = "Mapping[str, tuple[Cell, ...]]"
"""By column name, the cells that contain its value; a missing column may have any value."""


def matching_combinations(
    row_filter: RowFilter, schema: pa.Schema, columns: Sequence[str], guarantee: pc.Expression
) -> list[Combination]:
    """Return the combinations of cells that matching rows can have.

    Args:
        row_filter: The filter.
        schema: Schema of the rows.
        columns: Columns to examine: integers, times or strings. Columns that the filter does not
            use are ignored.
        guarantee: An expression that is true for all rows.

    Returns:
        Combinations; each matching row belongs to one of them. Empty if no row can match.
    """
    literals = row_filter.literals
    cells_by_column = {
        name: _cells(schema.field(name).type, literals)
        for name in columns
        if name in row_filter.columns
    }
    names = list(cells_by_column)
    if prod(map(len, cells_by_column.values())) <= _MAX_COMBINATIONS:
        chosen = list(product(*cells_by_column.values()))
        allowed = _possible_combinations(row_filter, schema, guarantee, names, chosen)
        combinations = [
            dict(zip(names, each, strict=True)) for each in _merge(allowed, cells_by_column, names)
        ]
    else:
        possible_by_column = {
            name: _possible_combinations(
                row_filter, schema, guarantee, [name], [(cell,) for cell in cells]
            )
            for name, cells in cells_by_column.items()
        }
        cells = {
            name: tuple(cell for (cell,) in possible)
            for name, possible in possible_by_column.items()
        }
        combinations = [cells] if all(cells.values()) else []
    return [
        {name: cells for name, cells in each.items() if len(cells) < len(cells_by_column[name])}
        for each in combinations
    ]


def _possible_combinations(
    row_filter: RowFilter,
    schema: pa.Schema,
    guarantee: pc.Expression,
    names: Sequence[str],
    combinations: Sequence[tuple[Cell, ...]],
) -> list[tuple[Cell, ...]]:
    types = [schema.field(name).type for name in names]
    guarantees = []
    for each in combinations:
        row_guarantee = guarantee
        for name, type_, cell in zip(names, types, each, strict=True):
            row_guarantee &= _guarantee(pc.field(name), type_, cell)
        guarantees.append(row_guarantee)
    answers = row_filter.can_match(guarantees, schema)
    return [each for each, answer in zip(combinations, answers, strict=True) if answer]


def _merge(
    allowed: Iterable[tuple[Cell, ...]],
    cells_by_column: Mapping[str, Sequence[Cell]],
    names: Sequence[str],
) -> Iterator[tuple[tuple[Cell, ...], ...]]:
    """Merge combinations that differ in one column only."""
    merged: set[tuple[tuple[Cell, ...], ...]] = {tuple((c,) for c in each) for each in allowed}
    for index, name in enumerate(names):
        groups: dict[tuple[Any, ...], set[Cell]] = {}
        for each in merged:
            rest = each[:index], each[index + 1 :]
            groups.setdefault(rest, set()).update(each[index])
        order = {cell: number for number, cell in enumerate(cells_by_column[name])}
        merged = {
            (*before, tuple(sorted(cells, key=order.__getitem__)), *after)
            for (before, after), cells in groups.items()
        }
    yield from merged


def _cells(type_: pa.DataType, literals: Iterable[pa.Scalar]) -> tuple[Cell, ...]:
    """Split a column's values at a filter's literals; ascending order, then null."""
    splits = sorted({each for scalar in literals for each in _values(type_, scalar)})
    splits = splits[:_MAX_LITERALS]
    null = Cell(is_null=True)
    if not splits:
        return Cell(), null
    if pa.types.is_string(type_):
        intervals = (Cell(one, other) for one, other in pairwise(splits))
        points = (Cell(each, each) for each in splits)
        pairs = zip_longest(points, intervals)
        inner = [each for pair in pairs for each in pair if each is not None]
        return Cell(greatest=splits[0]), *inner, Cell(least=splits[-1]), null
    greatest = (1 << (type_.bit_width - 1)) - 1
    starts = [start for value in splits for start in (value, value + 1) if start <= greatest]
    starts = sorted({-greatest - 1, *starts})
    ends = [*(start - 1 for start in starts[1:]), greatest]
    cells = [Cell(start, end) for start, end in zip(starts, ends, strict=True)]
    # The outer cells are unbounded: a bound at the type's limit would only be more to prove.
    cells[0] = replace(cells[0], least=None) if not cells[0].is_one_value else cells[0]
    cells[-1] = replace(cells[-1], greatest=None) if not cells[-1].is_one_value else cells[-1]
    return *cells, null


def _values(type_: pa.DataType, literal: pa.Scalar) -> Iterator[Any]:
    """Yield a literal as a column value, or its two neighbors if it may have been rounded.

    Yields nothing if the column cannot be compared with the literal.
    """
    if pa.types.is_string(type_):
        if pa.types.is_string(literal.type) or pa.types.is_large_string(literal.type):
            yield literal.as_py()
        return
    try:
        value = literal.cast(type_, safe=False)
        if pa.types.is_temporal(type_) != pa.types.is_temporal(literal.type):
            return
        number = value.cast(pa.int64()).as_py()
    except pa.ArrowException:
        return
    yield number
    if literal.type != type_:
        # The cast may have rounded the literal down.
        yield number + 1


def _guarantee(field: pc.Expression, type_: pa.DataType, cell: Cell) -> pc.Expression:
    """Return an expression that is true for the rows whose value is in a cell."""
    if cell.is_null:
        return field.is_null()
    if cell.is_one_value:
        return field == _scalar(cell.least, type_)
    is_string = pa.types.is_string(type_)
    guarantee = field.is_valid()
    if cell.least is not None:
        least = _scalar(cell.least, type_)
        guarantee = field > least if is_string else field >= least
    if cell.greatest is not None:
        greatest = _scalar(cell.greatest, type_)
        guarantee &= field < greatest if is_string else field <= greatest
    return guarantee


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:  # noqa: ANN401 - a number or a string
    if pa.types.is_temporal(type_):
        return pa.scalar(value, pa.int64()).cast(type_)
    return pa.scalar(value, type_)
