"""Comparisons of a column with a literal, as exact Arrow expressions.

Arrow would cast both sides to a common type, which may round them. Here an integer column is
compared with 1.5 through its neighboring integers, and no literal overflows. As in Spark, NaN is
greater than any number.

For a null value, an expression is null or false. So do not invert an expression to negate it: use
the opposite operator.
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
"""A value that a column is compared with; a datetime is naive if its text names no time zone.

A string that is compared with a time or date column must be the text of a time or date.
"""

OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The operator that is true where the key's is false; both are null for null."""
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
    """Return an expression for the rows whose `field` compares to a literal as `sign` says.

    `sign` is `=`, `!=`, `<`, `<=`, `>` or `>=`.

    Raises:
        OptionError: The column cannot be compared with this type of literal.
    """
    column = pc.field(field.name)
    if pa.types.is_floating(field.type):
        return _compare_float(column, sign, _require_number(field, literal))
    if pa.types.is_string(field.type) and isinstance(literal, str):
        return _OPERATORS[sign](column, pa.scalar(literal))
    if pa.types.is_boolean(field.type) and isinstance(literal, bool) and sign in {"=", "!="}:
        return _OPERATORS[sign](column, pa.scalar(literal))
    if sign in {"=", "!="}:
        return is_among(field, [literal], negated=sign == "!=")
    value = _to_units(field, literal)
    if sign in {"<", "<="}:
        greatest = floor(value) if sign == "<=" else ceil(value) - 1
        return _compare_bound(column, field.type, operator.le, greatest, is_all=greatest >= 0)
    least = ceil(value) if sign == ">=" else floor(value) + 1
    return _compare_bound(column, field.type, operator.ge, least, is_all=least <= 0)


def is_among(field: pa.Field, literals: Sequence[Literal], *, negated: bool) -> pc.Expression:
    """Return an expression for the rows whose column value is among literals (`IN`, `NOT IN`).

    If `negated`, the value must differ from all of them. Null rows match neither way.

    Raises:
        OptionError: The column cannot be compared with this type of literal.
    """
    column = pc.field(field.name)
    if pa.types.is_floating(field.type) or pa.types.is_boolean(field.type):
        sign, joining = ("!=", operator.and_) if negated else ("=", operator.or_)
        return join_conditions(joining, [compare_column(field, sign, each) for each in literals])
    if pa.types.is_string(field.type) and all(isinstance(each, str) for each in literals):
        scalars = [pa.scalar(each) for each in literals]
    else:
        values = (_to_units(field, each) for each in literals)
        whole = (floor(each) for each in values if each.denominator == 1)
        exact = (_scalar(field.type, each) for each in whole)
        scalars = [each for each in exact if each is not None]
    if not scalars:
        return column.is_valid() if negated else _match_nothing(column)
    if len(scalars) == 1:
        return column != scalars[0] if negated else column == scalars[0]
    is_in = column.isin(pa.array([each.as_py() for each in scalars], field.type))
    return column.is_valid() & ~is_in if negated else is_in


def time_literal(type_: str, text: str, *, is_typed: bool = True) -> datetime | date:
    """Parse a SQL or ISO time or date.

    Args:
        type_: `TIMESTAMP` or `DATE`.
        text: The text, in SQL's or ISO's form.
        is_typed: Whether the user wrote the type before the text, and errors should show it too.

    Raises:
        OptionError: The text has another form, or no such time exists.
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
    message = f"cannot parse {typed}'{text}': write it like {typed}'{example}'"
    raise OptionError(message)


def join_conditions(
    joining: Callable[[pc.Expression, pc.Expression], pc.Expression],
    parts: Sequence[pc.Expression],
) -> pc.Expression:
    """Join conditions as a balanced tree, because Arrow recurses into nested expressions."""
    if len(parts) <= 2:  # noqa: PLR2004 - nothing to halve
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
    """Compare a column with a bound, even one beyond the column type's range.

    If no value of the type is that large or small, `is_all` says whether all values satisfy the
    comparison, or none.
    """
    scalar = _scalar(type_, bound)
    if scalar is not None:
        return compare(column, scalar)
    return column.is_valid() if is_all else _match_nothing(column)


def _match_nothing(column: pc.Expression) -> pc.Expression:
    return column.is_valid() & column.is_null()


def _require_number(field: pa.Field, literal: Literal) -> Decimal:
    if isinstance(literal, Decimal):
        return literal
    raise _mismatch_error(field)


def _to_units(field: pa.Field, literal: Literal) -> Fraction:
    """Return a literal, counted in the smallest unit of a column's type."""
    type_ = field.type
    if isinstance(literal, str) and pa.types.is_timestamp(type_):
        literal = time_literal("TIMESTAMP", literal, is_typed=False)
    if isinstance(literal, str) and pa.types.is_date32(type_):
        literal = time_literal("DATE", literal, is_typed=False)
    if pa.types.is_integer(type_):
        return Fraction(_require_number(field, literal))
    if pa.types.is_decimal(type_):
        return Fraction(_require_number(field, literal)) * Fraction(10**type_.scale)
    if pa.types.is_timestamp(type_) and isinstance(literal, date):
        if not isinstance(literal, datetime):
            literal = datetime.combine(literal, time())
        if literal.tzinfo is not None and type_.tz is None:
            message = f"column {field.name} has no time zone: remove the time zone of the literal"
            raise OptionError(message)
        since = (literal if literal.tzinfo is None else _to_utc(literal)) - _EPOCH
        seconds = since.days * 86400 + since.seconds + Fraction(since.microseconds, 10**6)
        return seconds * Fraction(_UNITS[type_.unit])
    if pa.types.is_date32(type_) and type(literal) is date:
        return Fraction((literal - _EPOCH.date()).days)
    raise _mismatch_error(field)


def _to_utc(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(tzinfo=None)


def _scalar(type_: pa.DataType, units: int) -> pa.Scalar | None:
    """Return a value counted in its type's smallest unit; None if the type has no such value."""
    try:
        if pa.types.is_decimal(type_):
            return pa.scalar(Decimal(f"{units}E-{type_.scale}"), type_)
        if pa.types.is_integer(type_):
            return pa.scalar(units, type_)
        width = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        return pa.scalar(units, width).cast(type_)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _mismatch_error(field: pa.Field) -> OptionError:
    forms = (
        (pa.types.is_floating, "a number"),
        (pa.types.is_integer, "a number"),
        (pa.types.is_decimal, "a number"),
        (pa.types.is_string, "a string in single quotes"),
        (pa.types.is_boolean, "TRUE or FALSE, with = or !="),
        (pa.types.is_timestamp, "a time, such as '2026-01-31 12:00:00'"),
        (pa.types.is_date32, "a date, such as '2026-01-31'"),
    )
    form = next((form for is_type, form in forms if is_type(field.type)), "NULL only, by IS NULL")
    return OptionError(f"column {field.name} is {field.type}: compare it with {form}")
