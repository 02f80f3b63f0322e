"""The option `where`: parses a SQL condition into an Arrow expression that a read applies exactly.

It is for users whose engine pushes no filter down. Spark 4.3 does not pass its filters to the
source: the source is planned in a process without a session, where Spark's own parser is out of
reach, and planning runs no query. The accepted language is a subset of Spark's, with the same
meaning.
"""

from __future__ import annotations

import difflib
import operator
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError
from connector.filters.comparisons import (
    OPPOSITE,
    compare_column,
    is_among,
    join_conditions,
    time_literal,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.filters.comparisons import Literal

_ACCEPTED: Final = (
    "supported are comparisons of columns with literals, AND, OR, NOT, IN, BETWEEN, IS NULL, and"
    " LIKE with a prefix"
)
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<name>`(?:[^`]|``)+`)
      | (?P<text>'(?:[^'\\]|'')*')
      | (?P<number>(?:\d{1,100}(?:\.\d{0,100})?|\.\d{1,100})(?:[eE][+-]?\d{1,3})?(?![\w.]))
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign><>|!=|==|<=|>=|[=<>(),+-])
      | (?P<end>$)
    )""",
    re.VERBOSE | re.ASCII,
)
_WORDS: Final = frozenset(
    {"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "LIKE", "TRUE", "FALSE"}
)
_SIGNS: Final = {"==": "=", "<>": "!="} | {each: each for each in OPPOSITE}
"""Canonical operators by spelling."""
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator to use if the two sides are exchanged."""
_MAX_DEPTH: Final = 100
_NEVER: Final = pc.scalar(False)  # noqa: FBT003 - Arrow takes literals by position


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


def where_expression(text: str, schema: pa.Schema) -> pc.Expression:
    """Parse a condition into an expression for the rows where it is true.

    Columns are named plainly or in backticks, and are compared with literals: numbers, strings in
    single quotes, `TRUE`, `FALSE`, `DATE '2026-01-31'`, `TIMESTAMP '2026-01-31 12:00:00+01:00'`
    (UTC unless a time zone is given). A string that is compared with a time or date column must be
    the text of a time or date.

    Args:
        text: The condition.
        schema: The available columns.

    Raises:
        OptionError: The condition cannot be parsed, names a missing column, or compares a column
            with the wrong type of literal.

    Example:
        >>> schema = pa.schema({"amount": pa.int64()})
        >>> print(where_expression("NOT amount < 2.5", schema))
        (amount >= 3)
    """
    try:
        return _Parser(text, schema).parse()
    except OptionError as error:
        message = f"{option_name('where')} is not a valid condition: {text!r}: {error.message}"
        raise OptionError(message) from None


class _Parser:
    """A recursive-descent parser for one condition.

    Negations are pushed down to the comparisons, each of which has an opposite. So false and null
    need not be distinguished: neither makes the whole condition true.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def parse(self) -> pc.Expression:
        condition = self._parse_disjunction(negated=False)
        if self._next.kind != "end":
            raise self._syntax_error()
        return condition

    def _parse_disjunction(self, *, negated: bool) -> pc.Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            message = f"it is nested more than {_MAX_DEPTH} deep"
            raise OptionError(message)
        parts = [self._parse_conjunction(negated=negated)]
        while self._accept("OR"):
            parts.append(self._parse_conjunction(negated=negated))
        self._depth -= 1
        return join_conditions(operator.and_ if negated else operator.or_, parts)

    def _parse_conjunction(self, *, negated: bool) -> pc.Expression:
        parts = [self._parse_term(negated=negated)]
        while self._accept("AND"):
            parts.append(self._parse_term(negated=negated))
        return join_conditions(operator.or_ if negated else operator.and_, parts)

    def _parse_term(self, *, negated: bool) -> pc.Expression:
        while self._accept("NOT"):
            negated = not negated
        if self._accept("("):
            condition = self._parse_disjunction(negated=negated)
            self._expect(")")
            return condition
        literal = self._parse_literal()
        if literal is None:
            return self._parse_predicate(self._parse_column(), negated=negated)
        sign = self._parse_sign()
        if sign is None and isinstance(literal, bool):
            return pc.scalar(literal != negated)
        if sign is None:
            raise self._syntax_error()
        return compare_column(
            self._parse_column(), _negate(_MIRRORED[sign], negated=negated), literal
        )

    def _parse_predicate(self, field: pa.Field, *, negated: bool) -> pc.Expression:
        sign = self._parse_sign()
        if sign is not None:
            return compare_column(field, _negate(sign, negated=negated), self._require_literal())
        column = pc.field(field.name)
        if self._accept("IS"):
            is_null = self._accept("NOT") == negated
            self._expect("NULL")
            return column.is_null() if is_null else column.is_valid()
        if self._accept("NOT"):
            negated = not negated
            if self._next.text.upper() not in {"IN", "BETWEEN", "LIKE"}:
                raise self._syntax_error()
        if self._accept("IN"):
            return self._parse_list(field, negated=negated)
        if self._accept("BETWEEN"):
            least = compare_column(field, _negate(">=", negated=negated), self._require_literal())
            self._expect("AND")
            greatest = compare_column(
                field, _negate("<=", negated=negated), self._require_literal()
            )
            return least | greatest if negated else least & greatest
        if self._accept("LIKE"):
            return self._parse_like(field, negated=negated)
        if pa.types.is_boolean(field.type):
            return ~column if negated else column
        raise self._syntax_error()

    def _parse_like(self, field: pa.Field, *, negated: bool) -> pc.Expression:
        token = self._next
        pattern = self._require_literal()
        if not isinstance(pattern, str) or not pa.types.is_string(field.type):
            message = f"column {field.name} is {field.type}: LIKE needs a string"
            raise OptionError(message)
        prefix = pattern.removesuffix("%")
        if "%" in prefix or "_" in prefix:
            message = f"LIKE {token.text} is not supported: only a prefix followed by % is"
            raise OptionError(message)
        if prefix == pattern:
            return compare_column(field, _negate("=", negated=negated), pattern)
        condition = pc.starts_with(pc.field(field.name), prefix)
        return ~condition if negated else condition

    def _parse_list(self, field: pa.Field, *, negated: bool) -> pc.Expression:
        """Parse the list of `IN` or `NOT IN`.

        A comparison with NULL is never true: a NULL in the list adds no row to `IN`, and excludes
        all rows from `NOT IN`.
        """
        self._expect("(")
        listed = [self._parse_item()]
        while self._accept(","):
            listed.append(self._parse_item())
        self._expect(")")
        literals = [each for each in listed if each is not None]
        condition = is_among(field, literals, negated=negated) if literals else _NEVER
        return _NEVER if negated and len(literals) < len(listed) else condition

    def _parse_item(self) -> Literal | None:
        """Parse an item of a list; None is NULL."""
        return None if self._accept("NULL") else self._require_literal()

    def _parse_column(self) -> pa.Field:
        token = self._next
        if token.kind == "name":
            name = token.text[1:-1].replace("``", "`")
        elif token.kind == "word" and token.text.upper() not in _WORDS:
            name = token.text
        else:
            raise self._syntax_error()
        self._at += 1
        names = self._schema.names
        # As in Spark, case matters only if names differ in nothing else.
        matches = [name] if name in names else [x for x in names if x.lower() == name.lower()]
        if len(matches) != 1:
            near = difflib.get_close_matches(name, names)
            meant = f", did you mean {' or '.join(matches or near)}?" if matches or near else ""
            message = f"there is no column {name}{meant}"
            raise OptionError(message)
        return self._schema.field(matches[0])

    def _require_literal(self) -> Literal:
        literal = self._parse_literal()
        if literal is None:
            raise self._syntax_error()
        return literal

    def _parse_literal(self) -> Literal | None:
        """Parse a literal; return None if the next token is not one."""
        token = self._next
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        word = token.text.upper() if token.kind == "word" else ""
        if token.kind == "sign" and token.text in {"+", "-"} and following.kind == "number":
            self._at += 2
            number = Decimal(following.text)
            return -number if token.text == "-" else number
        if word in {"TIMESTAMP", "DATE"} and following.kind == "text":
            self._at += 2
            return time_literal(word, _unquote(following.text))
        literal: Literal
        if token.kind == "number":
            literal = Decimal(token.text)
        elif token.kind == "text":
            literal = _unquote(token.text)
        elif word in {"TRUE", "FALSE"}:
            literal = word == "TRUE"
        else:
            return None
        self._at += 1
        return literal

    def _parse_sign(self) -> str | None:
        token = self._next
        if token.kind != "sign" or token.text not in _SIGNS:
            return None
        self._at += 1
        return _SIGNS[token.text]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _accept(self, text: str) -> bool:
        """Consume the next token and return True if it is this word or sign."""
        token = self._next
        if token.kind not in {"word", "sign"} or token.text.upper() != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._syntax_error()

    def _syntax_error(self) -> OptionError:
        token = self._next
        if token.kind == "end":
            return OptionError(f"it is incomplete; {_ACCEPTED}")
        return OptionError(_syntax_error_text(token.text, token.offset))


def _tokens(text: str) -> Iterator[_Token]:
    offset = 0
    while True:
        match = _TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            stripped = text[offset:].lstrip()
            raise OptionError(_syntax_error_text(stripped[:20], len(text) - len(stripped)))
        kind = match.lastgroup
        yield _Token(kind, match[kind], match.start(kind))
        if kind == "end":
            return
        offset = match.end()


def _syntax_error_text(text: str, offset: int) -> str:
    hint = _ACCEPTED
    if text.startswith('"'):
        hint = "write strings in single quotes and columns in backticks"
    elif text.startswith("'"):
        hint = "a string must end with a single quote and have no backslash"
    elif text.upper() == "NULL":
        hint = "nothing equals NULL: use IS NULL"
    return f"cannot parse {text} at character {offset + 1}; {hint}"


def _negate(sign: str, *, negated: bool) -> str:
    return OPPOSITE[sign] if negated else sign


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'")
