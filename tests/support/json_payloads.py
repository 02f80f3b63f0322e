"""JSON text by Avro schemas: a Hypothesis strategy for it, and an oracle on Python's `json`.

The oracle says which value the column has, in the form of `tests.support.golden_values`; it differs
from Pulsar's own rules nowhere that the golden topics show.
"""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from tests.support.avro_schemas import (
    DAY_NS,
    NS_PER,
    TIMES,
    Schema,
    branch_name,
    kind_of,
    logical_type,
    number_told,
)
from tests.support.floats import nearest_float

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPACE: Final = st.sampled_from(("", "", "", " ", "\t\r\n  "))
_INTEGERS: Final = ("0", "-0", "1", "2147483647", "2147483648", "9223372036854775807",
                    "-9223372036854775808", "9223372036854775808", "12345678901234567890123",
                    "86399999", "-1")  # fmt: skip
_FRACTIONS: Final = ("0.0", "-0.0", "1.0", "10e-1", "1e2", "1E+2", "0.1", "1e23", "5e-324",
                     "2.5e-324", "1.7976931348623157e308", "1.7976931348623159e308", "1e400",
                     "3.4028235677973366e38", "3.40282356e38", "1e39", "0e99999", "1e-99999",
                     "9007199254740993.0", "9007199254740992.99999999999999999", "123456.78e-2",
                     "0.1000000000000000055511151231257827", "1234567890123456789.5",
                     "12345678901234567890e-1", "1.50", "922337203685477580.70e1")  # fmt: skip
_BAD_NUMBERS: Final = ("01", "-", "1.", ".5", "1e", "+1", "--1", "1_0", "0x1", "-NaN", "nan")
_CONSTANTS: Final = ("NaN", "Infinity", "-Infinity")
_TEXTS: Final = st.sampled_from(
    (
        "",
        "a",
        "поток 数据",
        "😀",
        '"',
        "\\",
        "/",
        "\b\f\n\r\t",
        "\0\x1f",
        "NaN",
        "-Infinity",
        "RED",
        "x" * 40,
    )
)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BRANCHES: Final[dict[str, Sequence[str]]] = {
    "text": ("string", "enum", "bytes", "fixed", "double", "float"),
    "integer": ("long", "int", "double", "float"),
    "fraction": ("double", "float"),
    "boolean": ("boolean",),
    "object": ("record", "map"),
    "array": ("array",),
}
"""Which branch of a wide union takes a value: the first of these that it has."""


class MisfitError(Exception):
    """The text is no value of the schema."""


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


def texts(schema: Schema) -> st.SearchStrategy[str]:
    """JSON text, most of it of the schema."""
    return _texts(schema)


@st.composite
def _texts(draw: st.DrawFn, schema: Schema) -> str:
    space = draw(_SPACE)
    return space + _text(draw, schema) + space


def _text(draw: st.DrawFn, schema: Schema) -> str:  # noqa: C901, PLR0911 - one a type
    match draw(st.integers(0, 11)):
        case 0:
            return "null"
        case 1:
            return draw(_ANYTHING)
    kind = kind_of(schema)
    if kind == "union":
        return _text(draw, draw(st.sampled_from(schema)))
    if kind == "record":
        return _object(draw, [(each["name"], each["type"]) for each in schema["fields"]])
    if kind == "map":
        names = draw(st.lists(_TEXTS, max_size=3))
        return _object(draw, [(name, schema["values"]) for name in names])
    if kind == "array":
        items = [_text(draw, schema["items"]) for _ in range(draw(st.integers(0, 3)))]
        return "[" + draw(_SPACE) + draw(_SPACE).join([",".join(items), "]"])
    if kind in {"int", "long"}:
        return draw(_WHOLE)
    if kind in {"float", "double"} or logical_type(schema) == "decimal":
        return draw(_ANY_NUMBER)
    if kind == "boolean":
        return draw(st.sampled_from(("true", "false")))
    if kind == "enum":
        return spelled(draw, draw(st.sampled_from((*schema["symbols"], "UNKNOWN"))))
    if kind in {"bytes", "fixed"}:
        size = schema["size"] if kind == "fixed" else draw(st.integers(0, 7))
        text = base64.b64encode(draw(st.binary(min_size=size, max_size=size))).decode()
        return spelled(draw, draw(st.sampled_from((text, text, text.rstrip("=")))))
    return "null" if kind == "null" else spelled(draw, draw(_TEXTS))


def _object(draw: st.DrawFn, fields: list[tuple[str, Schema]]) -> str:
    """The fields in any order, some of them twice or not at all, and some that are not known."""
    chosen = [field for field in fields for _ in range(draw(st.sampled_from((0, 1, 1, 1, 1, 2))))]
    parts = [(name, _text(draw, type_)) for name, type_ in draw(st.permutations(chosen))]
    if not draw(st.integers(0, 3)):
        parts.insert(draw(st.integers(0, len(parts))), (draw(_TEXTS), draw(_ANYTHING)))
    spelled_ = (f"{spelled(draw, name)}{draw(_SPACE)}:{draw(_SPACE)}{text}" for name, text in parts)
    return "{" + draw(_SPACE) + f"{draw(_SPACE)},{draw(_SPACE)}".join(spelled_) + draw(_SPACE) + "}"


def spelled(draw: st.DrawFn, text: str) -> str:
    """A text in quotes, perhaps with more escapes than it needs."""
    match draw(st.integers(0, 5)):
        case 0:
            return json.dumps(text)
        case 1:
            units = text.encode("utf-16-be")
            return (
                '"'
                + "".join(f"\\u{units[n]:02x}{units[n + 1]:02X}" for n in range(0, len(units), 2))
                + '"'
            )
        case 2:
            return json.dumps(text, ensure_ascii=False).replace("/", "\\/")
    return json.dumps(text, ensure_ascii=False)


_WHOLE: Final = st.sampled_from(
    (*_INTEGERS, "1.0", "1e2", "120e-1", "5e-1", "0.0e9")
) | st.integers(-(2**31), 2**31).map(str)
_ANY_NUMBER: Final = (
    st.sampled_from((*_INTEGERS, *_FRACTIONS, *_CONSTANTS, *(f'"{each}"' for each in _CONSTANTS)))
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.decimals(-(10**20), 10**20, places=9).map(str)
)
_ANYTHING: Final = st.sampled_from(
    (
        *_INTEGERS, *_FRACTIONS, *_BAD_NUMBERS, *_CONSTANTS, "true", "false", "null", "tru", "nulL",
        '"', '"\\u12"', '"\\x"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00\\ud800"', '"\n"', "{}",
        "[]",
        '{"f0": [1, {"f1": null}], "f0": {}}', "[1,]", "{,}", '{"a" 1}', '{"a": }', "[[[[]]]]", "",
        "\ufeff1", "{1: 2}", "'a'", "/**/1",
    )
)  # fmt: skip


class Oracle:
    """What JSON text becomes, by Python's `json`.

    Args:
        schema: The schema, names in full.
        time_unit: `ns` or `us`.
    """

    def __init__(self, schema: Schema, time_unit: str = "ns") -> None:
        self._schema = schema
        self._time_unit = time_unit

    def value(self, payload: bytes) -> Any:  # noqa: ANN401 - the form of golden_values
        """The value of the column.

        Raises:
            MisfitError: There is none.
        """
        try:
            parsed = json.loads(
                # What is no UTF-8 is refused in a text that is given, and only there.
                payload.decode(errors="surrogateescape"),
                parse_int=_Number,
                parse_float=_Number,
                parse_constant=_Number,
            )
        except ValueError:
            raise MisfitError from None
        return self._value(self._schema, parsed)

    def _value(self, schema: Schema, parsed: Any) -> Any:  # noqa: ANN401, PLR0911, C901, PLR0912 - one a type
        kind = kind_of(schema)
        if parsed is None:
            return None
        match kind:
            case "union":
                return self._union([each for each in schema if each != "null"], parsed)
            case "boolean" if isinstance(parsed, bool):
                return parsed
            case "int" | "long" if isinstance(parsed, _Number):
                return self._integer(schema, parsed)
            case "float" | "double":
                return _float(kind, parsed)
            case "bytes" | "fixed" if (
                logical_type(schema) == "decimal" and schema["precision"] < 39
            ):
                return _decimal(schema, parsed)
            case "array" if isinstance(parsed, list):
                return [self._value(schema["items"], each) for each in parsed]
            case "map" if isinstance(parsed, dict):
                return {_text_of(k): self._value(schema["values"], v) for k, v in parsed.items()}
            case "record" if isinstance(parsed, dict):
                if not schema["fields"]:
                    return True
                return {
                    each["name"]: self._value(each["type"], parsed.get(each["name"]))
                    for each in schema["fields"]
                }
        if isinstance(parsed, _Number) or not isinstance(parsed, str):
            raise MisfitError
        text = _text_of(parsed)
        match kind:
            case "string":
                return text
            case "enum" if text in schema["symbols"]:
                return text
            case "fixed" if logical_type(schema) == "uuid":
                return text
            case "bytes" | "fixed" if _BASE64.fullmatch(text):
                data = base64.b64decode(text.rstrip("=") + "===")
                if kind == "bytes" or len(data) == schema["size"]:
                    return data
        raise MisfitError

    def _integer(self, schema: Schema, parsed: str) -> int:
        number = _exact(parsed)
        if number != int(number):
            raise MisfitError
        value = int(number)
        bits = 31 if kind_of(schema) == "int" else 63
        logical = logical_type(schema)
        unit = target = "us"
        if logical in TIMES:
            unit = TIMES[logical][1]
            target = self._time_unit if unit == "ns" else "us"
            bits = 63
            if logical.startswith("time-") and not 0 <= value * NS_PER[unit] < DAY_NS:
                raise MisfitError
        value, rest = divmod(value * NS_PER[unit], NS_PER[target])
        if rest or not -(1 << bits) <= value < 1 << bits:
            raise MisfitError
        return value

    def _union(self, branches: list[Schema], parsed: Any) -> Any:  # noqa: ANN401
        if not branches:
            raise MisfitError
        if len(branches) == 1:
            return self._value(branches[0], parsed)
        taken = _BRANCHES[_token(parsed)]
        kinds = [
            "double"
            if logical_type(each) == "decimal" and each["precision"] < 39
            else kind_of(each)
            for each in branches
        ]
        chosen = next((kinds.index(kind) for kind in taken if kind in kinds), None)
        if chosen is None:
            raise MisfitError
        return {
            branch_name(each).rpartition(".")[2]: self._value(each, parsed)
            if number == chosen
            else None
            for number, each in enumerate(branches)
        }


def _token(parsed: Any) -> str:  # noqa: ANN401
    if isinstance(parsed, _Number):
        return "integer" if re.fullmatch(r"-?\d+", parsed) else "fraction"
    names = {str: "text", bool: "boolean", dict: "object", list: "array"}
    return names[type(parsed)]


def _text_of(parsed: str) -> str:
    if _SURROGATE.search(parsed):
        raise MisfitError
    return str(parsed)


def _exact(parsed: str) -> Decimal:
    if parsed in _CONSTANTS:
        raise MisfitError
    try:
        number = Decimal(parsed)
    except InvalidOperation:
        # Its exponent is beyond what Python takes, which changes nothing but a zero's.
        if re.search("[1-9]", parsed.lower().partition("e")[0]):
            raise MisfitError from None
        return Decimal(0)
    # Beyond any column; and Python would write all the zeros.
    if number.adjusted() > 400 and number:
        raise MisfitError
    return number


def _float(kind: str, parsed: Any) -> Any:  # noqa: ANN401
    if not isinstance(parsed, str) or (
        parsed not in _CONSTANTS and not isinstance(parsed, _Number)
    ):
        raise MisfitError
    number = float(parsed)
    if parsed in _CONSTANTS:
        return number_told(number)
    if number in {float("inf"), float("-inf")}:
        raise MisfitError
    # One that no double tells from zero may have more digits than memory.
    if kind == "float" and number:
        try:
            number = nearest_float(Decimal(parsed))
        except OverflowError:
            raise MisfitError from None
    return number_told(number)


def _decimal(schema: Schema, parsed: Any) -> Decimal:  # noqa: ANN401
    if not isinstance(parsed, _Number):
        raise MisfitError
    number = _exact(parsed)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).strip("0")
    if not significant:
        return Decimal(0)
    last = exponent + len("".join(map(str, digits))) - len("".join(map(str, digits)).rstrip("0"))
    if last < -schema["scale"] or number.adjusted() >= schema["precision"] - schema["scale"]:
        raise MisfitError
    return number
