"""Programs: what a shape and a schema become before payloads are read (`tables` has the layout)."""

from __future__ import annotations

import string
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.core.ipc_message import message_prefix
from arrow_io.core.lazy import cached_property
from arrow_io.payloads import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from arrow_io.payloads.shape import Shape

_BASE64 = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_BASE64_VALUES = bytes(_BASE64.index(chr(c)) if chr(c) in _BASE64 else 255 for c in range(256))
_PADDING_BYTES = 16
"""Bytes behind the constants: names are compared by blocks."""
POWERS_OF_TEN = memoryview(array("d", [10.0**n for n in range(23)]))


@dataclass(frozen=True)
class Program:
    """A program for one encoding, to be run any number of times.

    Attributes:
        encoding: Which shredder runs it: `primitive`, `avro`, `json` or `protobuf`.
        shape: What it fills.
        paths: The field path of each node.
        ops: `OP_WIDTH` numbers an op; the first op is that of the whole payload.
        links: Numbers that ops point to.
        constants: Bytes that ops and nodes point to.
        nodes: `NODE_WIDTH` numbers a node, places in the arena not set.
        item_nodes: The node that has as many values as each node does: the item of the list or map
            that is next around it; 0, the whole payload, if it stands in none.
        hint_count: How many hints it needs.
        habits: How many values, and how many bytes, each of `varying` had for a payload, as last
            seen.
        make_canonical: Writes a payload anew that was `NOT_CANONICAL`; raises `ValueError` for one
            that its encoding does not allow.
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
    habits: dict[int, tuple[float, float]] = field(default_factory=dict, compare=False)
    make_canonical: Callable[[bytes], bytes] | None = None

    @cached_property
    def node_count(self) -> int:
        """How many Arrow arrays it fills, nested ones included."""
        return len(self.nodes) // tables.NODE_WIDTH

    @cached_property
    def node_numbers(self) -> memoryview:
        """The same as `nodes`."""
        return memoryview(array("q", self.nodes))

    @cached_property
    def storages(self) -> tuple[int, ...]:
        """How the values of each node are kept."""
        return self.nodes[tables.STORAGE :: tables.NODE_WIDTH]

    @cached_property
    def message_prefix(self) -> bytes:
        """What stands before the arena's regions, so that they are the body of a message."""
        buffers = {tables.STRUCT: 1, tables.VARIABLE: 3}
        return message_prefix(self.node_count, sum(buffers.get(each, 2) for each in self.storages))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of that message: one column, which is the shape."""
        return pa.schema([pa.field("", self.shape.type)])

    @cached_property
    def booleans(self) -> bytes:
        """Of each node, whether its values are booleans."""
        return bytes(pa.types.is_boolean(each.type) for each in self.shape.walk())

    @cached_property
    def maps(self) -> tuple[int, ...]:
        """The nodes that are maps."""
        return tuple(
            node for node, each in enumerate(self.shape.walk()) if pa.types.is_map(each.type)
        )

    @cached_property
    def varying(self) -> tuple[int, ...]:
        """The nodes that may take more or less for a payload than a value of fixed width."""
        return tuple(
            node
            for node, storage in enumerate(self.storages)
            if self.item_nodes[node] or storage == tables.VARIABLE
        )


class ProgramBuilder:
    """Puts a program together.

    Args:
        encoding: `primitive`, `avro`, `json` or `protobuf`.
        shape: What it fills. Its nodes are numbered as `Shape.walk` gives them.
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
                below = f"{path}[]"
            elif path.endswith("[]") and not shape.name and child.name in {"key", "value"}:
                below = path
            else:
                below = f"{path}.{child.name}" if path else child.name
            self._add_node(child, below, len(self._paths) if is_list else item)
        missing = tables.NULL
        if shape.if_missing is not None:
            text = shape.if_missing.encode()
            missing = self.constant(text) if text else tables.ZERO
        self._nodes[start + tables.STORAGE] = shape.storage
        self._nodes[start + tables.STOP] = len(self._paths)
        self._nodes[start + tables.IF_MISSING] = missing
        assert number < self._nodes[start + tables.STOP]  # noqa: S101

    def reserve(self) -> int:
        """Number of an op that will be set later: those it points to may point back to it."""
        self._ops += [0] * tables.OP_WIDTH
        return len(self._ops) // tables.OP_WIDTH - 1

    def set(
        self,
        op: int,
        opcode: int,
        node: int = tables.ABSENT,
        *operands: int,
    ) -> int:
        """Set a reserved op, and give its number."""
        start = op * tables.OP_WIDTH
        numbers = [opcode, node, *operands]
        self._ops[start : start + len(numbers)] = numbers
        return op

    def add(self, opcode: int, node: int = tables.ABSENT, *operands: int) -> int:
        """Add an op, and give its number."""
        return self.set(self.reserve(), opcode, node, *operands)

    def link(self, numbers: Sequence[int]) -> int:
        """Keep some numbers, and give the place of the first."""
        self._links += numbers
        return len(self._links) - len(numbers)

    def symbols(self, enum: object, names: Callable[[], Iterable[str | None]]) -> int:
        """Keep the positions of an enum's symbols once, and return the place of the first.

        Args:
            enum: Identifies the enum, however many fields are of its type.
            names: Returns its symbols; None for one that has no value.
        """
        if enum not in self._symbols:
            positions = [
                tables.ABSENT if name is None else self.constant(name.encode()) for name in names()
            ]
            self._symbols[enum] = self.link(positions)
        return self._symbols[enum]

    def scale(self, low: int, high: int, *, multiplier: int = 1, divisor: int = 1) -> int:
        """Keep a scale: value × multiplier ÷ divisor, for low ≤ value ≤ high."""
        return self.link([multiplier, divisor, low, high])

    def constant(self, data: bytes) -> int:
        """Keep some bytes once, and give their position."""
        position = self._positions.get(data)
        if position is None:
            position = self._positions[data] = len(self._constants) << 32 | len(data)
            self._constants += data
        return position

    def take_tokens(self, op: int, count: int) -> None:
        """Take hints for up to so many tokens of an op, a power of two, and for their number."""
        start = op * tables.OP_WIDTH
        self._ops[start + tables.E] = self.hints(count + 1)
        self._ops[start + tables.F] = count - 1

    def is_constant(self, node: int) -> bool:
        """Whether a missing value of a node becomes a constant."""
        return self._nodes[node * tables.NODE_WIDTH + tables.IF_MISSING] >= 0

    def get(self, op: int, place: int) -> int:
        """One of the numbers of an op."""
        return self._ops[op * tables.OP_WIDTH + place]

    def hints(self, count: int) -> int:
        """Take places for hints, and give the first."""
        self._hints += count
        return self._hints - count

    def build(self, make_canonical: Callable[[bytes], bytes] | None = None) -> Program:
        """The program."""
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
    """Least and greatest whole number that fits so many bits when multiplied."""
    greatest = (1 << (bits - 1)) - 1
    return -((greatest + 1) // multiplier), greatest // multiplier
