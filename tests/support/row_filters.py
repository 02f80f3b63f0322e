"""Strategies of filters whose answers change at and beside given values."""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OPERATORS: Final = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip


def row_filters(
    schema: pa.Schema,
    values: Mapping[str, Sequence[Any]],
    *,
    max_leaves: int = 5,
    has_floats: bool = False,
) -> st.SearchStrategy[pc.Expression]:
    """Conditions on columns, and what they give with and, or and not.

    Args:
        schema: The columns: whole numbers, times in UTC and texts.
        values: By column, the values that it is compared with, as Python has them.
        max_leaves: Most conditions.
        has_floats: Whether numbers are compared with floats too, which is an error for great ones.
    """
    return st.recursive(
        st.sampled_from(sorted(values)).flatmap(
            lambda name: _conditions(
                pc.field(name), schema.field(name).type, values[name], has_floats=has_floats
            )
        ),
        lambda inner: (
            st.builds(operator.and_, inner, inner)
            | st.builds(operator.or_, inner, inner)
            | st.builds(operator.invert, inner)
        ),
        max_leaves=max_leaves,
    )


@st.composite
def _conditions(
    draw: st.DrawFn,
    field: pc.Expression,
    type_: pa.DataType,
    values: Sequence[Any],
    *,
    has_floats: bool,
) -> pc.Expression:
    value = draw(st.sampled_from(values))
    kind = draw(st.sampled_from(("compared", "compared", "in", "null", "between", "function")))
    match kind:
        case "compared":
            forms = _forms(value, type_)
            forms += _floats(value) if has_floats and pa.types.is_integer(type_) else []
            other = pc.scalar(draw(st.sampled_from(forms)))
            sides = (field, other) if draw(st.booleans()) else (other, field)
            return draw(st.sampled_from(_OPERATORS))(*sides)
        case "in":
            chosen = draw(st.lists(st.sampled_from([*values, None]), max_size=4))
            skip = draw(st.booleans())
            return pc.is_in(field, value_set=pa.array(chosen, type_), skip_nulls=skip)
        case "null":
            return draw(
                st.sampled_from(
                    (
                        field.is_null(),
                        field.is_valid(),
                        (field == pa.scalar(value, type_)).is_null(),
                    )
                )
            )
        case "between":
            least, greatest = (
                pa.scalar(each, type_) for each in sorted((value, draw(st.sampled_from(values))))
            )
            return (field >= least) & (field <= greatest)
    return draw(st.sampled_from(_functions(field, pa.scalar(value, type_))))


def _functions(field: pc.Expression, value: pa.Scalar) -> list[pc.Expression]:
    """Conditions that no cell of the column decides by itself, or that nulls pass."""
    some = [
        pc.coalesce(field, value) == value,
        pc.if_else(field > value, pc.scalar(value=True), field.is_null()),
        pc.max_element_wise(field, value) > value,
        pc.and_(field == value, pc.scalar(pa.scalar(None, pa.bool_()))),
    ]
    if pa.types.is_string(value.type):
        text = value.as_py()
        return [
            *some,
            pc.starts_with(field, text[:1]),
            pc.ends_with(field, text[-1:]),
            pc.match_substring(field, text[1:2]),
            pc.utf8_length(field) > len(text),
            pc.utf8_upper(field) == text.upper(),
        ]
    if pa.types.is_temporal(value.type):
        day = field.cast(pa.date32(), safe=False)
        return [*some, pc.hour(field) == 5, day == value.cast(pa.date32(), safe=False)]
    return [
        *some,
        pc.bit_wise_and(field, 1) == 1,
        pc.negate(field) < value,
        field.cast("double", safe=False) > 2.5,
    ]


def _forms(value: Any, type_: pa.DataType) -> list[pa.Scalar]:  # noqa: ANN401 - of the column
    """A value as literals of the types that a column can be compared with; some are rounded."""
    if pa.types.is_string(type_):
        return [pa.scalar(value), pa.scalar(value, pa.large_string())]
    if pa.types.is_temporal(type_):
        forms = [pa.scalar(value, type_)]
        for unit in ("s", "ms", "ns"):
            forms += _cast(forms[0], pa.timestamp(unit, "UTC"))
        beside = pa.scalar(value, type_).cast(pa.int64()).as_py() * 1000 + 1
        if abs(beside) < 1 << 63:
            forms.append(pa.scalar(beside, pa.int64()).cast(pa.timestamp("ns", "UTC")))
        return forms + _cast(forms[0], pa.date32())
    forms = [pa.scalar(value, type_)]
    for other in (pa.int8(), pa.int32(), pa.uint32(), pa.int64()):
        forms += _cast(forms[0], other)
    return forms


def _floats(value: int) -> list[pa.Scalar]:
    return [pa.scalar(float(value)), pa.scalar(value + 0.5)]


def _cast(value: pa.Scalar, type_: pa.DataType) -> list[pa.Scalar]:
    try:
        return [value.cast(type_, safe=pa.types.is_integer(type_))]
    except pa.ArrowException:
        return []


def beside(values: Sequence[Any]) -> list[Any]:
    """Values and those just before and behind them: numbers, times in µs, or texts."""
    found = set(values)
    for each in values:
        if isinstance(each, str):
            found |= {each + "\0", each + "a", each[:-1]}
        elif isinstance(each, int):
            found |= {each - 1, each + 1}
        else:
            step = timedelta(microseconds=1)
            found |= {each - step, each + step, each + 1000 * step}
    return sorted(found)
