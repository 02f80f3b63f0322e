"""Hypothesis strategies for Avro schemas and their data, and which values these become.

A schema is what `json.loads` gives. A datum is what fastavro writes of it where logical types are
ignored (`without_logical`): a time is its number, a decimal its bytes. Of a wide union, a datum is
the pair of a branch's name and its value. `as_arrow` says which value the column has, without any
of our code: in the form of `tests.support.golden_values`.
"""

from __future__ import annotations

import math
import struct
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Schema: TypeAlias = Any
Datum: TypeAlias = Any
"""Both are trees of which only a comparison is asked."""

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
TIMES: Final = {
    "time-millis": ("int", "ms"),
    "time-micros": ("long", "us"),
    "timestamp-millis": ("long", "ms"),
    "timestamp-micros": ("long", "us"),
    "timestamp-nanos": ("long", "ns"),
    "local-timestamp-millis": ("long", "ms"),
    "local-timestamp-micros": ("long", "us"),
    "local-timestamp-nanos": ("long", "ns"),
}
"""By logical type: the type it is of, and its unit."""
NS_PER: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000}
DAY_NS: Final = 86_400 * 10**9
_UUID: Final = uuid.UUID("d9b84546-44ef-7007-601a-1e2082c668e2")
_TEXTS: Final = st.sampled_from(("", "a", "поток", "数据 \0 ledger", "😀" * 5, "x" * 70))
_BYTES: Final = st.sampled_from((b"", b"\0", b"\xff\xfe", b"ascii", b"\x80" * 70))
INTS: Final = st.sampled_from((0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31))) | st.integers(
    -(2**31), 2**31 - 1
)
_LONGS: Final = st.sampled_from((2**63 - 1, -(2**63), 2**53 + 1)) | INTS
_DOUBLES: Final = st.floats(width=64)


class NoPlaceError(Exception):
    """A value has no place in its column, or a datum none in the reader's schema."""


def without_logical(schema: Schema) -> Schema:
    """The schema with every logical type left out."""
    if isinstance(schema, list):
        return [without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: without_logical(part) if name in {"type", "items", "values", "fields"} else part
        for name, part in schema.items()
        if name != "logicalType"
    }


@dataclass(slots=True)
class _Names:
    """Gives each named type a name of its own, and keeps those that may be used again."""

    once: bool
    json: bool
    given: int = 0
    namespace: str = ""
    defined: list[str] = field(default_factory=list)

    def new(self, prefix: str) -> str:
        self.given += 1
        return f"{prefix}{self.given}"


@st.composite
def schemas(
    draw: st.DrawFn, *, max_depth: int = 3, plain: bool = False, json: bool = False
) -> Schema:
    """A record with fields of any types.

    Args:
        draw: Hypothesis' own.
        max_depth: How deep types are nested.
        plain: Whether each named type is used once only, and no branch of a union could be read
            as another.
        json: Whether each named type is used once only; unions are of any branches.
    """
    return _record(draw, _Names(plain or json, json), max_depth)


def _record(draw: st.DrawFn, names: _Names, depth: int) -> Schema:
    name = names.new("R")
    schema: dict[str, Any] = {"type": "record", "name": name}
    around = names.namespace
    if draw(st.booleans()):
        names.namespace = "ns.of"
        schema |= draw(st.sampled_from(({"name": f"ns.of.{name}"}, {"namespace": "ns.of"})))
    count = draw(st.integers(1 if depth > 1 else 0, 4))
    schema["fields"] = [
        {"name": f"f{number}", "type": _type(draw, names, depth - 1)} for number in range(count)
    ]
    names.defined.append(f"{names.namespace}.{name}".lstrip("."))
    names.namespace = around
    return schema


def _type(  # noqa: C901, PLR0911, PLR0912 - one case a kind
    draw: st.DrawFn, names: _Names, depth: int
) -> Schema:
    kinds = ["primitive"] * 3 + ["logical", "logical", "enum", "fixed", "nullable"]
    if depth > 0:
        kinds += ["array", "map", "record", "union"]
    # Inside a namespace, no name says that it is of none.
    known = [name for name in names.defined if "." in name or not names.namespace]
    if known and not names.once:
        kinds.append("again")
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(st.sampled_from(PRIMITIVES))
        case "logical":
            return _logical(draw, names)
        case "enum":
            return _enum(draw, names)
        case "fixed":
            name = names.new("F")
            return {"type": "fixed", "name": name, "size": draw(st.sampled_from((0, 1, 16, 33)))}
        case "array":
            return {"type": "array", "items": _type(draw, names, depth - 1)}
        case "map":
            return {"type": "map", "values": _type(draw, names, depth - 1)}
        case "record":
            return _record(draw, names, depth)
        case "again":
            return draw(st.sampled_from(known))
        case "nullable":
            inner = _type(draw, names, depth - 1)
            if isinstance(inner, list) or inner == "null":
                return inner
            return draw(st.permutations(["null", inner]))
        case _:
            return _union(draw, names, depth)


def _enum(draw: st.DrawFn, names: _Names) -> Schema:
    symbols = draw(st.permutations(["RED", "GREEN", "BLUE", "_"]))[: draw(st.integers(1, 4))]
    return {"type": "enum", "name": names.new("E"), "symbols": symbols}


def _logical(draw: st.DrawFn, names: _Names) -> Schema:  # noqa: PLR0911 - one a type
    logical = draw(
        st.sampled_from(
            (*TIMES, "date", "uuid", "uuid-fixed", "decimal", "decimal-fixed", "made-up")
        )
    )
    match logical:
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "uuid":
            return {"type": "string", "logicalType": "uuid"}
        case "uuid-fixed":
            name = names.new("U")
            return {"type": "fixed", "name": name, "size": 16, "logicalType": "uuid"}
        case "decimal" | "decimal-fixed":
            precision = draw(st.sampled_from((1, 9, 18, 19, 38, 39)))
            schema = {"logicalType": "decimal", "precision": precision}
            schema["scale"] = draw(st.integers(0, precision))
            if logical == "decimal":
                return {"type": "bytes", **schema}
            return {"type": "fixed", "name": names.new("D"), "size": 17, **schema}
        case "made-up":
            return {"type": "string", "logicalType": "made-up"}
    return {"type": TIMES[logical][0], "logicalType": logical}


def _union(draw: st.DrawFn, names: _Names, depth: int) -> Schema:
    branches: list[Schema] = []
    for _ in range(draw(st.integers(2, 4))):
        branch = _type(draw, names, depth - 1)
        if isinstance(branch, list):
            continue
        told_apart = _families if names.once and not names.json else _branch_names
        if not told_apart(branch) & {each for other in branches for each in told_apart(other)}:
            branches.append(branch)
    return branches or ["null"]


def kind_of(schema: Schema) -> str:
    """`union`, a type's own word, or a named type's name."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def branch_name(schema: Schema) -> str:
    """What fastavro calls a branch."""
    if isinstance(schema, dict):
        return str(schema["name"] if "name" in schema else schema["type"])
    return str(schema)


def _branch_names(schema: Schema) -> set[object]:
    return {branch_name(schema).rpartition(".")[2]}


def python_types(schema: Schema) -> set[object]:
    """Types of the data of a branch; those of a null are told apart anyway."""
    return set(PYTHON_TYPES.get(kind_of(schema), ()))


def _families(schema: Schema) -> set[object]:
    """Types that could be read as each other, or are one in Python."""
    types = python_types(schema)
    if types & {int, float}:
        return {int, float}
    return {str, bytes} if types & {str, bytes} else types


class Reading:
    """What the data of one schema become.

    Args:
        schema: The schema that they are read by, its names in full (`fastavro.parse_schema`).
        time_unit: `ns` or `us`.
    """

    def __init__(self, schema: Schema, time_unit: str = "ns") -> None:
        self._named: dict[str, Schema] = {}
        self._time_unit = time_unit
        self.schema = schema
        self._define(schema)

    def _define(self, schema: Schema) -> None:
        for part in _parts(schema):
            self._define(part)
        if isinstance(schema, dict) and "name" in schema:
            self._named[schema["name"]] = schema

    def known(self, schema: Schema) -> Schema:
        """The definition of a type, where its name stands for it."""
        if isinstance(schema, str) and schema not in PRIMITIVES:
            return self._named[schema]
        return schema

    def datums(  # noqa: C901, PLR0911, PLR0912 - one case a type
        self, schema: Schema
    ) -> st.SearchStrategy[Datum]:
        """Data of a type."""
        schema = self.known(schema)
        match kind_of(schema):
            case "union":
                return st.one_of([self._branch_datums(schema, each) for each in schema])
            case "null":
                return st.none()
            case "boolean":
                return st.booleans()
            case "int":
                return _time_datums(schema, INTS)
            case "long":
                return _time_datums(schema, _LONGS)
            case "float":
                return st.floats(width=32)
            case "double":
                return _DOUBLES
            case "string":
                return st.just(str(_UUID)) if logical_type(schema) == "uuid" else _TEXTS
            case "bytes":
                return _decimal_datums(schema) if logical_type(schema) == "decimal" else _BYTES
            case "fixed":
                if logical_type(schema) == "decimal":
                    size = schema["size"]
                    return st.integers(-(10**40), 10**40).map(
                        lambda number: number.to_bytes(size, signed=True)
                    )
                return st.binary(min_size=schema["size"], max_size=schema["size"])
            case "enum":
                return st.sampled_from(schema["symbols"])
            case "array":
                return st.lists(self.datums(schema["items"]), max_size=3)
            case "map":
                return st.dictionaries(_TEXTS, self.datums(schema["values"]), max_size=3)
        fields = {each["name"]: self.datums(each["type"]) for each in schema["fields"]}
        return st.fixed_dictionaries(fields)

    def _branch_datums(self, union: Sequence[Schema], branch: Schema) -> st.SearchStrategy[Datum]:
        datums = self.datums(branch)
        if len([each for each in union if each != "null"]) < 2 or branch == "null":
            return datums
        return datums.map(lambda datum: (branch_name(branch), datum))

    def as_arrow(self, datum: Datum) -> Any:  # noqa: ANN401 - the form of golden_values
        """What the column has.

        Raises:
            NoPlaceError: It can have no such value.
        """
        return self._value(self.schema, datum)

    def _value(self, schema: Schema, datum: Datum) -> Any:  # noqa: ANN401, PLR0911 - one a type
        schema = self.known(schema)
        match kind_of(schema):
            case "union":
                return self._union(schema, datum)
            case "float":
                return number_told(struct.unpack("<f", struct.pack("<f", datum))[0])
            case "double":
                return number_told(float(datum))
            case "int" | "long":
                return self._integer(schema, datum)
            case "bytes" | "fixed":
                return _binary(schema, datum)
            case "array":
                return [self._value(schema["items"], each) for each in datum]
            case "map":
                return {key: self._value(schema["values"], each) for key, each in datum.items()}
            case "record":
                if not schema["fields"]:
                    return True
                # A default of a record may leave out what has defaults of its own.
                return {
                    each["name"]: self._value(
                        each["type"],
                        datum[each["name"]] if each["name"] in datum else each["default"],
                    )
                    for each in schema["fields"]
                }
        return datum

    def _integer(self, schema: Schema, datum: int) -> int:
        logical = logical_type(schema)
        if logical not in TIMES:
            return datum
        unit = TIMES[logical][1]
        target = self._time_unit if unit == "ns" else "us"
        value, rest = divmod(datum * NS_PER[unit], NS_PER[target])
        if rest or not -(2**63) <= value < 2**63:
            raise NoPlaceError
        if logical.startswith("time-") and not 0 <= datum * NS_PER[unit] < DAY_NS:
            raise NoPlaceError
        return value

    def _union(self, union: list[Schema], datum: Datum) -> Any:  # noqa: ANN401
        if datum is None:
            return None
        branches = [each for each in union if each != "null"]
        if len(branches) == 1:
            return self._value(branches[0], datum)
        if isinstance(datum, tuple):
            name, datum = datum
            chosen = next(each for each in branches if branch_name(each) == name)
        else:
            chosen = next(each for each in branches if self._is_of(each, datum))
        return {
            branch_name(each).rpartition(".")[2]: self._value(each, datum)
            if each is chosen
            else None
            for each in branches
        }

    def _is_of(self, schema: Schema, datum: Datum) -> bool:
        """Whether a datum is of a branch, by its Python type: unions read so hold one of a type."""
        return type(datum) in python_types(self.known(schema))


PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "enum": (str,),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}


def _parts(schema: Schema) -> Iterator[Schema]:
    if isinstance(schema, list):
        yield from schema
    elif isinstance(schema, dict):
        yield from (schema[name] for name in ("items", "values") if name in schema)
        yield from (each["type"] for each in schema.get("fields", ()))


def logical_type(schema: Schema) -> str:
    """What a type is said to stand for, valid or not; empty if nothing."""
    return str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""


def _time_datums(schema: Schema, all_: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    """Mostly such as fit their column."""
    logical = logical_type(schema)
    if not logical.startswith("time-"):
        return all_ | st.integers(-(2**31), 2**31 - 1)
    day = DAY_NS // NS_PER[TIMES[logical][1]]
    return st.integers(0, day - 1) | st.sampled_from((0, day - 1, day, -1))


def _decimal_datums(schema: Schema) -> st.SearchStrategy[bytes]:
    """Numbers of up to so many digits or few more, in as few bytes or in some more."""
    bound = 10 ** (schema["precision"] + 1)
    edges = st.sampled_from((bound // 10 - 1, -(bound // 10) + 1, bound // 10, 0, -1))
    numbers = edges | st.integers(-(bound // 10) + 1, bound // 10 - 1)
    return st.builds(
        lambda number, more: number.to_bytes(number.bit_length() // 8 + 1 + more, signed=True),
        numbers,
        st.sampled_from((0, 0, 1, 30)),
    )


def number_told(value: float) -> Any:  # noqa: ANN401
    """A floating-point number in the form of `golden_values`."""
    if math.isnan(value):
        return "NaN"
    return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value


_DECIMAL_DIGITS: Final = 38
_UUID_BYTES: Final = 16


def _binary(schema: Schema, datum: bytes | str) -> Any:  # noqa: ANN401
    # The default of a field spells bytes as text.
    data = datum.encode("latin-1") if isinstance(datum, str) else datum
    logical = logical_type(schema)
    if logical == "uuid" and len(data) == _UUID_BYTES:
        return str(uuid.UUID(bytes=data))
    if logical != "decimal" or schema["precision"] > _DECIMAL_DIGITS:
        return data
    number = int.from_bytes(data, signed=True)
    if abs(number) >= 10 ** schema["precision"]:
        raise NoPlaceError
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -schema["scale"]))
