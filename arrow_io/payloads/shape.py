"""Shapes: trees of Arrow types, with how the values of each type are stored in the arena."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from arrow_io.core.lazy import cached_property
from arrow_io.errors import SchemaError
from arrow_io.payloads import tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Selection: TypeAlias = "Sequence[str | tuple[str, Selection]]"
"""Fields of a record: names, or a name with a selection of the fields of that record.

It is hashable where programs are looked up by it."""

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
UNITS = {"us": 10**6, "ns": 10**9}
"""Units per second of columns whose Pulsar type counts nanoseconds."""


@dataclass(frozen=True)
class Shape:
    """An Arrow type with its children.

    Attributes:
        name: Name of the field; empty for the whole payload, items and entries.
        type: The Arrow type. All fields are nullable except map keys.
        storage: Storage of its values in the arena (`tables.BYTE`, …).
        children: Fields of a struct; the item of a list; the entries of a map, a struct of key and
            value.
        if_missing: Value if the record omits the field: None for null, an empty text for zero or
            empty, or another text.
        origin: The schema's type that this shape represents.
        accepts_null: Whether the schema allows null.
    """

    name: str
    type: pa.DataType
    storage: int
    children: tuple[Shape, ...] = ()
    if_missing: str | None = None
    origin: Any = field(default=None, compare=False)
    accepts_null: bool = False

    def walk(self) -> Iterator[Shape]:
        """Yield this shape and its descendants in preorder."""
        yield self
        for child in self.children:
            yield from child.walk()

    def children_at(self, node: int) -> Iterator[tuple[Shape, int]]:
        """Yield the children and their node numbers, if this shape is node number `node`."""
        child_node = node + 1
        for child in self.children:
            yield child, child_node
            child_node += child.node_count

    @cached_property
    def node_count(self) -> int:
        """Number of nodes of this shape and its descendants."""
        return 1 + sum(child.node_count for child in self.children)

    @property
    def is_record(self) -> bool:
        """Whether it has fields of its own, which can become columns."""
        return self.storage == tables.STRUCT

    def nullable(self) -> Shape:
        """Return a copy that allows null."""
        return replace(self, accepts_null=True)

    def select(self, selection: Selection) -> Shape:
        """Return a record with only these fields, in this order."""
        fields = {child.name: child for child in self.children}
        chosen = [
            fields[each] if isinstance(each, str) else fields[each[0]].select(each[1])
            for each in selection
        ]
        shape = record(self.name, chosen, origin=self.origin)
        return replace(shape, accepts_null=self.accepts_null)


_STORAGES = {1: tables.BYTE, 8: tables.BYTE, 16: tables.INT16, 32: tables.INT32, 64: tables.INT64,
             128: tables.INT128}  # fmt: skip


def scalar(name: str, type_: pa.DataType, origin: object = None) -> Shape:
    """Return the shape of a value without parts: a number, boolean, time, string or bytes."""
    variable = pa.types.is_string(type_) or pa.types.is_binary(type_)
    storage = tables.VARIABLE if variable else _STORAGES[type_.bit_width]
    return Shape(name, type_, storage, origin=origin)


def array(name: str, item: Shape, origin: object = None) -> Shape:
    """Return the shape of a list."""
    return Shape(name, pa.list_(pa.field("element", item.type)), tables.LIST, (item,), None, origin)


def map_(name: str, key: Shape, value: Shape, origin: object = None) -> Shape:
    """Return the shape of a map."""
    type_ = pa.map_(key.type, pa.field("value", value.type))
    entry_type = pa.struct([type_.key_field, type_.item_field])
    entries = Shape("", entry_type, tables.STRUCT, (key, value))
    return Shape(name, type_, tables.LIST, (entries,), None, origin)


def record(name: str, fields: Sequence[Shape], origin: object = None) -> Shape:
    """Return the shape of a struct.

    Without fields, it is a boolean, because no engine stores empty structs.
    """
    if not fields:
        return Shape(name, pa.bool_(), tables.BYTE, (), None, origin)
    names = make_distinct([each.name for each in fields])
    type_ = pa.struct(
        [pa.field(field_name, each.type) for field_name, each in zip(names, fields, strict=True)]
    )
    return Shape(name, type_, tables.STRUCT, tuple(fields), None, origin)


def make_distinct(names: Sequence[str], reserved: Sequence[str] = ()) -> list[str]:
    """Make names distinct, ignoring case: append `_2`, `_3`, … to repeated or reserved names.

    Engines disagree on whether case matters, so names must differ in more than case.
    """
    folded_names = {name.casefold() for name in reserved}
    # By name, the first suffix that may be free.
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
    """A limit on the size of the tree that a schema expands to.

    A schema that nests its types inside each other repeatedly can describe a tree of any size.

    Args:
        max_depth: Maximum nesting of its types.
    """

    MAX_FIELDS = 20_000
    MAX_DEPTH = 64
    MAX_ARRAY_DEPTH = 62
    """Maximum nesting of Arrow arrays: Arrow reads messages of 63 levels. Map entries are a level.
    """

    def __init__(self, max_depth: int = MAX_DEPTH) -> None:
        self._fields = 0
        self._max_depth = max_depth

    def spend(self, depth: int) -> None:
        """Count one more field at a depth.

        Raises:
            SchemaError: The schema exceeds a limit.
        """
        self._fields += 1
        if self._fields > self.MAX_FIELDS or depth > self._max_depth:
            message = (
                f"the schema has more than {self.MAX_FIELDS} fields (a type counts each time it is"
                f" used), or nests them more than {self._max_depth} levels deep"
            )
            raise SchemaError(message)
