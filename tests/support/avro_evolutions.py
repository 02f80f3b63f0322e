"""A Hypothesis strategy for evolutions: schemas by which data of another schema may be read."""

from __future__ import annotations

import string
from typing import Any, Final

from hypothesis import strategies as st

from tests.support.avro_schemas import INTS, PYTHON_TYPES, Schema, kind_of, python_types

PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


@st.composite
def evolved(draw: st.DrawFn, schema: Schema) -> Schema:
    """A schema by which data of `schema` may be read; of some data, both readers must say no."""
    return _Evolution(draw).of(schema)


class _Evolution:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._added = 0

    def of(self, schema: Schema, *, in_union: bool = False) -> Schema:
        draw = self._draw
        kind = kind_of(schema)
        if kind == "union":
            return self._union(schema)
        if kind == "record":
            evolved_ = self._record(schema)
        elif kind == "enum":
            evolved_ = self._enum(schema)
        elif kind in {"array", "map"}:
            part = "items" if kind == "array" else "values"
            evolved_ = {**schema, part: self.of(schema[part])}
        elif isinstance(schema, str) and schema in PROMOTIONS and not in_union:
            evolved_ = draw(st.sampled_from((schema, *PROMOTIONS[schema])))
        else:
            evolved_ = schema
        if in_union or kind == "null" or not draw(st.sampled_from((False, False, False, True))):
            return evolved_
        other = {"type": "array", "items": "int"} if kind != "array" else "boolean"
        return draw(st.sampled_from((["null", evolved_], [evolved_, "null"], [evolved_, other])))

    def _union(self, union: list[Schema]) -> Schema:
        """Branches as they are, with one more behind them, or with one fewer."""
        draw = self._draw
        branches = [self.of(each, in_union=True) for each in union]
        match draw(st.sampled_from(("same", "same", "wider", "narrower"))):
            case "wider":
                taken = {each for branch in branches for each in python_types(branch)}
                free = [
                    kind
                    for kind in ("boolean", "long", "double", "string", "bytes")
                    if not taken & set(PYTHON_TYPES[kind])
                ]
                return branches + free[:1]
            case "narrower" if len(branches) > 1:
                del branches[draw(st.integers(0, len(branches) - 1))]
        return branches

    def _enum(self, schema: Schema) -> Schema:
        draw = self._draw
        symbols = draw(st.permutations([*schema["symbols"], "ADDED"]))
        symbols = symbols[: draw(st.integers(1, len(symbols)))]
        if draw(st.booleans()):
            return {**schema, "symbols": symbols, "default": symbols[0]}
        return {**schema, "symbols": symbols}

    def _record(self, schema: Schema) -> Schema:
        draw = self._draw
        fields = []
        for each in schema["fields"]:
            match draw(st.sampled_from(("keep", "keep", "keep", "drop", "rename"))):
                case "keep":
                    fields.append({**each, "type": self.of(each["type"])})
                case "rename":
                    name = each["name"]
                    renamed = {"name": f"{name}_renamed", "aliases": ["never", name]}
                    fields.append({**renamed, "type": self.of(each["type"])})
        for _ in range(draw(st.integers(0, 2))):
            self._added += 1
            added: dict[str, Any] = {"name": f"added{self._added}"}
            added["type"], default = draw(defaults(f"A{self._added}"))
            # One without a default cannot be read at all.
            if draw(st.integers(0, 9)):
                added["default"] = default
            fields.append(added)
        return {**schema, "fields": draw(st.permutations(fields))}


@st.composite
def defaults(draw: st.DrawFn, name: str) -> tuple[Schema, Any]:
    """A type, and a default of it as schemas spell one.

    Args:
        draw: Hypothesis' own.
        name: Name of a named type.
    """
    text = draw(st.text(st.characters(codec="latin-1"), max_size=4))
    number = draw(INTS)
    inner = {"name": "i", "type": ["null", "string"], "default": None}
    record = {"type": "record", "name": name, "fields": [{"name": "j", "type": "long"}, inner]}
    symbols = list(string.ascii_uppercase[:3])
    return draw(
        st.sampled_from(
            (
                ("null", None),
                ("boolean", bool(number & 1)),
                ("int", number),
                ("long", number << 20),
                ("float", number),
                ("double", number / 8),
                ("string", text),
                ("bytes", text),
                ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, "\x7f"),
                ({"type": "fixed", "name": name, "size": len(text)}, text),
                ({"type": "enum", "name": name, "symbols": symbols}, symbols[number % 3]),
                ({"type": "array", "items": ["null", "int"]}, [None, number]),
                ({"type": "array", "items": "string"}, []),
                ({"type": "map", "values": "bytes"}, {text: text, "k": ""}),
                (record, {"j": number}),
                (record, {"i": text, "j": 0}),
                (["null", "int"], None),
                (["string", "null"], text),
                (["long", "string", record], number),
            )
        )
    )
