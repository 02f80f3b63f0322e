"""Which values of some columns the rows that pass a filter can have, without looking at any row.

Arrow can prove that a filter passes no row of which something is known, but does not say what would
pass. A filter's answer changes only at the values that it compares columns with. So they cut each
column into cells: the values themselves, what lies between them, and null. Arrow is asked about
each combination of cells. If a value was overlooked, a cell is wider than it need be, and less is
proved; nothing wrong ever is.
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
"""More are not asked about: columns are then looked at each by itself."""
_MAX_LITERALS: Final = 1000
"""A column is not cut at more; they are taken from the least on."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Some values of a column.

    Bounds of numbers are inclusive. Those of texts are exclusive unless they are equal, for no text
    is the one before another.

    Attributes:
        least: Lower bound; None if there is none.
        greatest: Upper bound; None if there is none.
        is_null: Whether it is null, and nothing else.
    """

    least: Any = None
    greatest: Any = None
    is_null: bool = False

    @property
    def is_one_value(self) -> bool:
        """Whether it is a single value, not null."""
        return self.least is not None and self.least == self.greatest


Combination: TypeAlias = "Mapping[str, tuple[Cell, ...]]"
"""By column, cells that its value lies in one of; columns that are not there have any value."""


def matching_combinations(
    row_filter: RowFilter, schema: pa.Schema, columns: Sequence[str], guarantee: pc.Expression
) -> list[Combination]:
    """What rows that pass a filter may look like; empty if none passes.

    Args:
        row_filter: The filter.
        schema: Schema of the rows.
        columns: The columns to look at: whole numbers, times or texts. Those that the filter does
            not look at are left out.
        guarantee: What is true of all rows.

    Returns:
        Combinations; each row that passes is of one of them.
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
        alone = {
            name: _possible_combinations(
                row_filter, schema, guarantee, [name], [(cell,) for cell in cells]
            )
            for name, cells in cells_by_column.items()
        }
        cells = {name: tuple(cell for (cell,) in possible) for name, possible in alone.items()}
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
    """The combinations of which rows may pass."""
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
    """The same combinations, in which cells stand together that differ in one column alone."""
    merged: set[tuple[tuple[Cell, ...], ...]] = {tuple((c,) for c in each) for each in allowed}
    for index, name in enumerate(names):
        together: dict[tuple[Any, ...], set[Cell]] = {}
        for each in merged:
            rest = each[:index], each[index + 1 :]
            together.setdefault(rest, set()).update(each[index])
        order = {cell: number for number, cell in enumerate(cells_by_column[name])}
        merged = {
            (*before, tuple(sorted(cells, key=order.__getitem__)), *after)
            for (before, after), cells in together.items()
        }
    yield from merged


def _cells(type_: pa.DataType, literals: Iterable[pa.Scalar]) -> tuple[Cell, ...]:
    """A column's values, cut at those that a filter compares them with; ascending, then null."""
    at = sorted({each for scalar in literals for each in _values(type_, scalar)})[:_MAX_LITERALS]
    null = Cell(is_null=True)
    if not at:
        return Cell(), null
    if pa.types.is_string(type_):
        between = (Cell(one, other) for one, other in pairwise(at))
        points = (Cell(each, each) for each in at)
        inner = [each for pair in zip_longest(points, between) for each in pair if each is not None]
        return Cell(greatest=at[0]), *inner, Cell(least=at[-1]), null
    greatest = (1 << (type_.bit_width - 1)) - 1
    # Each cell ends before the next one begins.
    begins = [begin for value in at for begin in (value, value + 1) if begin <= greatest]
    begins = sorted({-greatest - 1, *begins})
    ends = [*(begin - 1 for begin in begins[1:]), greatest]
    cells = [Cell(begin, end) for begin, end in zip(begins, ends, strict=True)]
    # The first and the last have no bound, so that nothing has to be proved of it.
    cells[0] = replace(cells[0], least=None) if not cells[0].is_one_value else cells[0]
    cells[-1] = replace(cells[-1], greatest=None) if not cells[-1].is_one_value else cells[-1]
    return *cells, null


def _values(type_: pa.DataType, literal: pa.Scalar) -> Iterator[Any]:
    """A literal as a value of a column, or those that it lies between; none if it is of no use."""
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
        # It may have been rounded.
        yield number + 1


def _guarantee(field: pc.Expression, type_: pa.DataType, cell: Cell) -> pc.Expression:
    """What is true of the rows whose value lies in a cell."""
    if cell.is_null:
        return field.is_null()
    if cell.is_one_value:
        return field == _scalar(cell.least, type_)
    is_text = pa.types.is_string(type_)
    guarantee = field.is_valid()
    if cell.least is not None:
        least = _scalar(cell.least, type_)
        guarantee = field > least if is_text else field >= least
    if cell.greatest is not None:
        greatest = _scalar(cell.greatest, type_)
        guarantee &= field < greatest if is_text else field <= greatest
    return guarantee


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:  # noqa: ANN401 - a number or a text
    if pa.types.is_temporal(type_):
        return pa.scalar(value, pa.int64()).cast(type_)
    return pa.scalar(value, type_)
