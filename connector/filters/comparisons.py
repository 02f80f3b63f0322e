"""A column compared with a literal, as an Arrow expression that is exact.

Arrow would compare values of two types in a third, which may round them. Here a whole number is
compared with 1.5 as with what lies next to it, and no literal overflows. As in Spark, NaN is
greater than any number. Where a comparison is null, its negation must not be made of it: take the
opposite operator.
"""

from __future__ import annotations

import operator
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from math import ceil, floor, isinf
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Operator: TypeAlias = Callable[[pc.Expression, pa.Scalar], pc.Expression]

Literal: TypeAlias = "Decimal | str | bool | datetime | date"
"""What a column is compared with; a datetime has no time zone if the text gave none.

If the column has times or dates, a text must be one of them."""

OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""By operator the one that is true where it is false; both are null for null."""
_OPERATORS: Final[dict[str, _Operator]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
}
_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times are compared in the column's own zone

_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def compare_column(field: pa.Field, sign: str, literal: Literal) -> pc.Expression:
    """The rows whose value of a column stands in some relation to a literal.

    Args:
        field: The column.
        sign: The relation: `=`, `!=`, `<`, `<=`, `>` or `>=`.
        literal: The literal.

    Raises:
        OptionError: Such a column is not compared with such a literal.
    """
    column = pc.field(field.name)
    if pa.types.is_floating(field.type):
        return _compare_float(column, sign, _number(field, literal))
    if pa.types.is_string(field.type) and isinstance(literal, str):
        return _OPERATORS[sign](column, pa.scalar(literal))
    if pa.types.is_boolean(field.type) and isinstance(literal, bool) and sign in {"=", "!="}:
        return _OPERATORS[sign](column, pa.scalar(literal))
    if sign in {"=", "!="}:
        return is_among(field, [literal], negated=sign == "!=")
    value = _in_units(field, literal)
    if sign in {"<", "<="}:
        greatest = floor(value) if sign == "<=" else ceil(value) - 1
        return _compare_bound(column, field.type, operator.le, greatest, is_all=greatest >= 0)
    least = ceil(value) if sign == ">=" else floor(value) + 1
    return _compare_bound(column, field.type, operator.ge, least, is_all=least <= 0)


def is_among(field: pa.Field, literals: Sequence[Literal], *, negated: bool) -> pc.Expression:
    """The rows whose value of a column is one of some literals; or is none of them, nor null.

    Raises:
        OptionError: Such a column is not compared with such literals.
    """
    column = pc.field(field.name)
    if pa.types.is_floating(field.type) or pa.types.is_boolean(field.type):
        sign, joining = ("!=", operator.and_) if negated else ("=", operator.or_)
        return join_conditions(joining, [compare_column(field, sign, each) for each in literals])
    if pa.types.is_string(field.type) and all(isinstance(each, str) for each in literals):
        scalars = [pa.scalar(each) for each in literals]
    else:
        values = (_in_units(field, each) for each in literals)
        whole = (floor(each) for each in values if each.denominator == 1)
        exact = (_scalar(field.type, each) for each in whole)
        scalars = [each for each in exact if each is not None]
    if not scalars:
        return column.is_valid() if negated else _never(column)
    if len(scalars) == 1:
        return column != scalars[0] if negated else column == scalars[0]
    is_in = column.isin(pa.array([each.as_py() for each in scalars], field.type))
    return column.is_valid() & ~is_in if negated else is_in


def time_literal(type_: str, text: str, *, is_typed: bool = True) -> datetime | date:
    """Read a time or a date.

    Args:
        type_: `TIMESTAMP` or `DATE`.
        text: The text, in SQL's form or ISO's.
        is_typed: Whether the type stands before the text; an error shows only what does.

    Raises:
        OptionError: It is of another form, or there is no such time.
    """
    form = _DATE if type_ == "DATE" else _TIME
    try:
        if form.fullmatch(text):
            if type_ == "DATE":
                return date.fromisoformat(text)
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    example = "2026-01-31" if type_ == "DATE" else "2026-01-31 12:00:00.000001+01:00"
    typed = f"{type_} " if is_typed else ""
    message = f"{typed}'{text}' is not understood: give it like {typed}'{example}'"
    raise OptionError(message)


def join_conditions(
    joining: Callable[[pc.Expression, pc.Expression], pc.Expression],
    parts: Sequence[pc.Expression],
) -> pc.Expression:
    """Many conditions as one, so that they are not nested deeply: Arrow descends into them."""
    if len(parts) <= 2:  # noqa: PLR2004 - there is nothing to halve
        return reduce(joining, parts)
    half = len(parts) // 2
    return joining(join_conditions(joining, parts[:half]), join_conditions(joining, parts[half:]))


def _compare_float(column: pc.Expression, sign: str, number: Decimal) -> pc.Expression:
    value = float(number)
    if isinf(value):
        message = f"{number} is greater than any floating-point number"
        raise OptionError(message)
    comparison = _OPERATORS[sign](column, pa.scalar(value, pa.float64()))
    return comparison | pc.is_nan(column) if sign in {">", ">="} else comparison


def _compare_bound(
    column: pc.Expression, type_: pa.DataType, compare: _Operator, bound: int, *, is_all: bool
) -> pc.Expression:
    """A column within a bound; if no value of its type is that far off, all or none is."""
    scalar = _scalar(type_, bound)
    if scalar is not None:
        return compare(column, scalar)
    return column.is_valid() if is_all else _never(column)


def _never(column: pc.Expression) -> pc.Expression:
    return column.is_valid() & column.is_null()


def _number(field: pa.Field, literal: Literal) -> Decimal:
    if isinstance(literal, Decimal):
        return literal
    raise _mismatch(field)


def _in_units(field: pa.Field, literal: Literal) -> Fraction:
    """A literal, counted in the least unit of a column's type."""
    type_ = field.type
    if isinstance(literal, str) and pa.types.is_timestamp(type_):
        literal = time_literal("TIMESTAMP", literal, is_typed=False)
    if isinstance(literal, str) and pa.types.is_date32(type_):
        literal = time_literal("DATE", literal, is_typed=False)
    if pa.types.is_integer(type_):
        return Fraction(_number(field, literal))
    if pa.types.is_decimal(type_):
        return Fraction(_number(field, literal)) * Fraction(10**type_.scale)
    if pa.types.is_timestamp(type_) and isinstance(literal, date):
        if not isinstance(literal, datetime):
            literal = datetime.combine(literal, time())
        if literal.tzinfo is not None and type_.tz is None:
            message = f"column {field.name} has no time zone: give the time without one"
            raise OptionError(message)
        since = (literal if literal.tzinfo is None else _utc(literal)) - _EPOCH
        seconds = since.days * 86400 + since.seconds + Fraction(since.microseconds, 10**6)
        return seconds * Fraction(_UNITS[type_.unit])
    if pa.types.is_date32(type_) and type(literal) is date:
        return Fraction((literal - _EPOCH.date()).days)
    raise _mismatch(field)


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(tzinfo=None)


def _scalar(type_: pa.DataType, units: int) -> pa.Scalar | None:
    """A value, counted in the least unit of its type; None if the type has no such value."""
    try:
        if pa.types.is_decimal(type_):
            return pa.scalar(Decimal(f"{units}E-{type_.scale}"), type_)
        if pa.types.is_integer(type_):
            return pa.scalar(units, type_)
        width = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        return pa.scalar(units, width).cast(type_)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _mismatch(field: pa.Field) -> OptionError:
    forms = (
        (pa.types.is_floating, "a number"),
        (pa.types.is_integer, "a number"),
        (pa.types.is_decimal, "a number"),
        (pa.types.is_string, "a text in single quotes"),
        (pa.types.is_boolean, "TRUE or FALSE, by = or !="),
        (pa.types.is_timestamp, "a time, as '2026-01-31 12:00:00'"),
        (pa.types.is_date32, "a date, as '2026-01-31'"),
    )
    form = next((form for is_type, form in forms if is_type(field.type)), "NULL alone, by IS")
    return OptionError(f"column {field.name} is {field.type}: it is compared with {form}")
