"""The Arrow types that payloads become, as a tree that knows how each value is stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arrow_io.core.lazy import cached_property
from arrow_io.errors import SchemaError
from arrow_io.payloads import tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
UNITS = {"us": 10**6, "ns": 10**9}
"""Units a second of the columns whose Pulsar type counts nanoseconds."""


@dataclass(frozen=True)
class Shape:
    """One Arrow type, and what it is made of.

    Attributes:
        name: Name of the field; empty for the whole payload, items and entries.
        type: Its Arrow type. Every field is nullable, keys of maps excepted.
        storage: How its values stand in the arena (`tables.BYTE`, …).
        children: Fields of a struct; the item of a list; the entries of a map, a struct of key and
            value.
        if_missing: What it becomes if its record leaves it out: None for null, an empty text
            for zero or empty, or a text.
        origin: The schema's own type that it stands for.
        accepts_null: Whether the schema has null among its values.
    """

    name: str
    type: pa.DataType
    storage: int
    children: tuple[Shape, ...] = ()
    if_missing: str | None = None
    origin: Any = field(default=None, compare=False)
    accepts_null: bool = False

    def walk(self) -> Iterator[Shape]:
        """This shape and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    def children_at(self, node: int) -> Iterator[tuple[Shape, int]]:
        """The children of this shape, which is node number `node`, with their numbers."""
        below = node + 1
        for child in self.children:
            yield child, below
            below += child.node_count

    @cached_property
    def node_count(self) -> int:
        """How many nodes it takes: its own, and those of its children."""
        return 1 + sum(child.node_count for child in self.children)

    @property
    def is_record(self) -> bool:
        """Whether it has fields of its own, which can become columns."""
        return self.storage == tables.STRUCT

    def nullable(self) -> Shape:
        """The same, with null among the schema's values."""
        return replace(self, accepts_null=True)

    def select(self, names: Sequence[str]) -> Shape:
        """A record with these fields alone, in this order."""
        fields = {child.name: child for child in self.children}
        chosen = record(self.name, [fields[name] for name in names], origin=self.origin)
        return replace(chosen, accepts_null=self.accepts_null)


_STORAGES = {1: tables.BYTE, 8: tables.BYTE, 16: tables.INT16, 32: tables.INT32, 64: tables.INT64,
             128: tables.INT128}  # fmt: skip


def scalar(name: str, type_: pa.DataType, origin: object = None) -> Shape:
    """A value without parts: a number, boolean, time, text or bytes."""
    variable = pa.types.is_string(type_) or pa.types.is_binary(type_)
    storage = tables.VARIABLE if variable else _STORAGES[type_.bit_width]
    return Shape(name, type_, storage, origin=origin)


def array(name: str, item: Shape, origin: object = None) -> Shape:
    """A list."""
    return Shape(name, pa.list_(pa.field("element", item.type)), tables.LIST, (item,), None, origin)


def map_(name: str, key: Shape, value: Shape, origin: object = None) -> Shape:
    """A map."""
    type_ = pa.map_(key.type, pa.field("value", value.type))
    entry_type = pa.struct([type_.key_field, type_.item_field])
    entries = Shape("", entry_type, tables.STRUCT, (key, value))
    return Shape(name, type_, tables.LIST, (entries,), None, origin)


def record(name: str, fields: Sequence[Shape], origin: object = None) -> Shape:
    """A struct. One without fields is a boolean, since no engine stores a struct of nothing."""
    if not fields:
        return Shape(name, pa.bool_(), tables.BYTE, (), None, origin)
    names = make_distinct([each.name for each in fields])
    type_ = pa.struct(
        [pa.field(field_name, each.type) for field_name, each in zip(names, fields, strict=True)]
    )
    return Shape(name, type_, tables.STRUCT, tuple(fields), None, origin)


def make_distinct(names: Sequence[str], reserved: Sequence[str] = ()) -> list[str]:
    """The names, with `_2`, `_3`, … behind those that are taken; letter case does not count.

    Engines disagree on letter case in names, so two names never differ by it alone.
    """
    folded_names = {name.casefold() for name in reserved}
    # The first number of each name that may be free.
    numbers: dict[str, int] = {}
    unique_names = []
    for name in names:
        candidate, folded = name, name.casefold()
        number = numbers.get(folded, 2)
        while candidate.casefold() in folded_names:
            candidate, number = f"{name}_{number}", number + 1
        numbers[folded] = number
        folded_names.add(candidate.casefold())
        unique_names.append(candidate)
    return unique_names


class Budget:
    """Bounds the tree that a schema becomes.

    A schema that uses its types over and over, each inside the next, describes a tree of any size.

    Args:
        max_depth: How deep its types may nest.
    """

    MAX_FIELDS = 20_000
    MAX_DEPTH = 64
    MAX_ARRAY_DEPTH = 62
    """That of Arrow arrays: Arrow reads messages of 63 levels. Entries of maps are a level too."""

    def __init__(self, max_depth: int = MAX_DEPTH) -> None:
        self._fields = 0
        self._max_depth = max_depth

    def spend(self, depth: int) -> None:
        """Count one more field at a depth.

        Raises:
            SchemaError: That is more than is believed.
        """
        self._fields += 1
        if self._fields > self.MAX_FIELDS or depth > self._max_depth:
            message = (
                f"the schema has more than {self.MAX_FIELDS} fields, types used again counted anew,"
                f" or nests them more than {self._max_depth} deep"
            )
            raise SchemaError(message)
