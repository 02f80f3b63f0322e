"""Programs: compiled instructions that read payloads into a shape (layout: see `tables`)."""

from __future__ import annotations

import string
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.core.ipc_message import ColumnGroup, MessageLayout
from arrow_io.core.lazy import cached_property
from arrow_io.payloads import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from arrow_io.payloads.shape import Shape

_BASE64 = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_BASE64_VALUES = bytes(_BASE64.index(chr(c)) if chr(c) in _BASE64 else 255 for c in range(256))
_PADDING_BYTES = 32
"""Bytes after the constants, because names are compared and copied in blocks."""
POWERS_OF_TEN = memoryview(array("d", [10.0**n for n in range(23)]))


def value_columns(shape: Shape, names: Sequence[str] = ()) -> ColumnGroup:
    """Return the columns of an arena: a column with each name for the fields of its payloads.

    Without names, it is one column of whole payloads.
    """
    shapes = shape.children if names else (shape,)
    fields = [pa.field(name, each.type) for name, each in zip(names or [""], shapes, strict=True)]
    storages = [node.storage for each in shapes for node in each.walk()]
    buffers = {tables.STRUCT: 1, tables.VARIABLE: 3}
    return ColumnGroup(tuple(fields), len(storages), sum(buffers.get(each, 2) for each in storages))


@dataclass(frozen=True, eq=False)
class Program:
    """A program for one encoding, which can run any number of times; equal only to itself.

    Attributes:
        encoding: The shredder that runs it: `primitive`, `avro`, `json` or `protobuf`.
        shape: The shape that it fills.
        paths: Field path of each node.
        ops: `OP_WIDTH` numbers per op; the first op reads the whole payload.
        links: Numbers that ops refer to.
        constants: Bytes that ops and nodes refer to.
        nodes: `NODE_WIDTH` numbers per node; their locations in the arena are not set yet.
        item_nodes: For each node, the node with the same number of values: the item of the
            innermost list or map around it, or 0, the whole payload.
        hint_count: Number of hints that it needs.
        make_canonical: Rewrites a payload that was `NOT_CANONICAL`; raises `ValueError` if the
            payload is not valid in its encoding.
    """

    encoding: str
    shape: Shape
    paths: tuple[str, ...]
    ops: memoryview
    links: memoryview
    constants: bytes
    nodes: tuple[int, ...]
    item_nodes: tuple[int, ...]
    hint_count: int
    make_canonical: Callable[[bytes], bytes] | None = None
    _idle_arenas: dict[builds.Build, list[Any]] = field(default_factory=dict)

    @cached_property
    def node_count(self) -> int:
        """Number of Arrow arrays that it fills, including nested ones."""
        return len(self.nodes) // tables.NODE_WIDTH

    @cached_property
    def observed_sizes(self) -> memoryview:
        """For each node, values and bytes per payload in the last arena; −1 before the first."""
        return memoryview(array("d", [-1.0] * (2 * self.node_count)))

    @cached_property
    def storages(self) -> tuple[int, ...]:
        """Storage of the values of each node."""
        return self.nodes[tables.STORAGE :: tables.NODE_WIDTH]

    @cached_property
    def layout(self) -> MessageLayout:
        """The layout of a message whose only column is the whole payload."""
        return MessageLayout([value_columns(self.shape)])

    def take_arena(self) -> Any:  # noqa: ANN401 - its module has no types
        """Return an arena of the build in use, to be started, which `return_arena` gives back.

        An arena takes long to make, compared with a small record batch. Each thread that decodes
        uses one at a time.
        """
        try:
            return self._idle_arenas[builds.in_use].pop()
        except (KeyError, IndexError):
            return builds.in_use.payloads(self.encoding).Shredder(*self._arena_arguments)

    def return_arena(self, arena: Any) -> None:  # noqa: ANN401
        """Keep an arena, which is not used any more, for the next record batch."""
        arena.detach()
        try:
            self._idle_arenas[builds.in_use].append(arena)
        except KeyError:
            self._idle_arenas.setdefault(builds.in_use, []).append(arena)

    @cached_property
    def _arena_arguments(self) -> tuple[Any, ...]:
        return (
            self.ops,
            self.links,
            self.constants,
            POWERS_OF_TEN,
            memoryview(array("q", self.nodes)),
            memoryview(array("q", self.item_nodes)),
            bytes(_kind(each.type) for each in self.shape.walk()),
            self.observed_sizes,
            self.hint_count,
            self.encoding == "protobuf",
        )


def _kind(type_: pa.DataType) -> int:
    if pa.types.is_map(type_):
        return tables.IS_MAP
    return tables.IS_BOOLEAN if pa.types.is_boolean(type_) else tables.PLAIN


class ProgramBuilder:
    """A builder of programs.

    Args:
        encoding: `primitive`, `avro`, `json` or `protobuf`.
        shape: The shape to fill; its nodes are numbered in the order of `Shape.walk`.
    """

    def __init__(self, encoding: str, shape: Shape) -> None:
        self._encoding = encoding
        self._shape = shape
        self._ops: list[int] = []
        self._links: list[int] = []
        self._constants = bytearray(_BASE64_VALUES)
        self._positions: dict[bytes, int] = {}
        self._symbols: dict[object, int] = {}
        self._nodes: list[int] = []
        self._paths: list[str] = []
        self._item_nodes: list[int] = []
        self._hints = 0
        self._add_node(shape, "", 0)

    def _add_node(self, shape: Shape, path: str, item: int) -> None:
        number = len(self._paths)
        self._paths.append(path)
        self._item_nodes.append(item)
        start = len(self._nodes)
        self._nodes += [0] * tables.NODE_WIDTH
        is_list = shape.storage == tables.LIST
        for child in shape.children:
            if is_list:
                child_path = f"{path}[]"
            elif path.endswith("[]") and not shape.name and child.name in {"key", "value"}:
                child_path = path
            else:
                child_path = f"{path}.{child.name}" if path else child.name
            self._add_node(child, child_path, len(self._paths) if is_list else item)
        missing = tables.NULL
        if shape.if_missing is not None:
            text = shape.if_missing.encode()
            missing = self.constant(text) if text else tables.ZERO
        self._nodes[start + tables.STORAGE] = shape.storage
        self._nodes[start + tables.STOP] = len(self._paths)
        self._nodes[start + tables.IF_MISSING] = missing
        assert number < self._nodes[start + tables.STOP]  # noqa: S101

    def reserve(self) -> int:
        """Return the number of an op to be set later, so that ops can refer to each other."""
        self._ops += [0] * tables.OP_WIDTH
        return len(self._ops) // tables.OP_WIDTH - 1

    def set(
        self,
        op: int,
        opcode: int,
        node: int = tables.ABSENT,
        *operands: int,
    ) -> int:
        """Set a reserved op, and return its number."""
        start = op * tables.OP_WIDTH
        numbers = [opcode, node, *operands]
        self._ops[start : start + len(numbers)] = numbers
        return op

    def add(self, opcode: int, node: int = tables.ABSENT, *operands: int) -> int:
        """Add an op, and return its number."""
        return self.set(self.reserve(), opcode, node, *operands)

    def link(self, numbers: Sequence[int]) -> int:
        """Store some numbers, and return the index of the first."""
        self._links += numbers
        return len(self._links) - len(numbers)

    def symbols(self, enum: object, names: Callable[[], Iterable[str | None]]) -> int:
        """Store the positions of an enum's symbols once, and return the index of the first.

        `enum` identifies the enum, which several fields may use. `names` returns its symbols; None
        for a symbol without value.
        """
        if enum not in self._symbols:
            positions = [
                tables.ABSENT if name is None else self.constant(name.encode()) for name in names()
            ]
            self._symbols[enum] = self.link(positions)
        return self._symbols[enum]

    def scale(self, low: int, high: int, *, multiplier: int = 1, divisor: int = 1) -> int:
        """Store a scale: value × multiplier ÷ divisor, for low ≤ value ≤ high."""
        return self.link([multiplier, divisor, low, high])

    def constant(self, data: bytes) -> int:
        """Store some bytes once, and return their position."""
        position = self._positions.get(data)
        if position is None:
            position = self._positions[data] = len(self._constants) << 32 | len(data)
            self._constants += data
        return position

    def reserve_tokens(self, op: int, count: int) -> None:
        """Reserve hints for an op's tokens, at most `count`, a power of two, and their number."""
        start = op * tables.OP_WIDTH
        self._ops[start + tables.E] = self.reserve_hints(count + 1)
        self._ops[start + tables.F] = count - 1

    def is_constant(self, node: int) -> bool:
        """Return whether a missing value of a node becomes a constant."""
        return self._nodes[node * tables.NODE_WIDTH + tables.IF_MISSING] >= 0

    def get(self, op: int, place: int) -> int:
        """Return one of the numbers of an op."""
        return self._ops[op * tables.OP_WIDTH + place]

    def reserve_hints(self, count: int) -> int:
        """Reserve hints, and return the index of the first."""
        self._hints += count
        return self._hints - count

    def build(self, make_canonical: Callable[[bytes], bytes] | None = None) -> Program:
        """Return the program."""
        return Program(
            self._encoding,
            self._shape,
            tuple(self._paths),
            memoryview(array("q", self._ops)),
            memoryview(array("q", self._links or [0])),
            bytes(self._constants) + bytes(_PADDING_BYTES),
            tuple(self._nodes),
            tuple(self._item_nodes),
            self._hints,
            make_canonical=make_canonical,
        )


def scale_limits(bits: int, multiplier: int = 1) -> tuple[int, int]:
    """Return the smallest and largest integer that fit `bits` bits after multiplication."""
    greatest = (1 << (bits - 1)) - 1
    return -((greatest + 1) // multiplier), greatest // multiplier
