"""Shredding: runs programs over the payloads of one record batch, in an arena that grows."""

from __future__ import annotations

from array import array
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from arrow_io.core.ipc_message import IpcMessage
from arrow_io.core.wording import counted
from arrow_io.errors import SchemaError
from arrow_io.messages.gathered_message import keep_last_of_equal
from arrow_io.payloads import tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from arrow_io.payloads.program import Program
    from arrow_io.payloads.shape import Shape

MAX_EXPECTED_BYTES = 256 << 20
"""Maximum size of an arena whose capacities are estimated from earlier payloads."""
_GROWTHS = (2.0, 1.25)
"""Capacity after a growth, as a multiple of the need; the second if the first is too large.

There is no smaller one: each growth copies the arena, so it must make room for many payloads.
"""
WITH_OFFSETS = frozenset({tables.VARIABLE, tables.LIST})


class Misfit(NamedTuple):
    """A payload that was not appended.

    Attributes:
        row: Row number of the payload.
        code: Why it does not fit its schema (`tables.REASONS`); or `tables.FULL`: the arena has no
            room for it after the payloads before it.
        path: Field path of the node that refused its value.
        offset: Where in the payload the problem was found, in bytes.
    """

    row: int
    code: int
    path: str
    offset: int


class Shredding:
    """The values of some payloads, as columns of a message: `append` payloads, then `close` it.

    Attributes:
        guard_bytes: Unused bytes before and after each region of the arena, a multiple of 64. Tests
            set this to detect writes out of bounds.
        max_bytes: Maximum size of the arena.
        count: Number of payloads that were appended.
        room: Number of payloads that can still be appended.

    Args:
        program: One of the programs to run; all of them fill the same shape.
        rows: Number of payloads; the arena has room for fewer if that many do not fit.
        payload_bytes: Approximate total size of the payloads.
        message: The message to fill, whose last column group is for the values: the whole payloads,
            or their fields. It gets its buffer, of which the tail is not part of the arena. None
            for a message of whole payloads, which `finish` reads.
        is_for_one: Whether the arena is for one payload, which it refuses as `TOO_LARGE`, not
            `FULL`. It ignores observed sizes, so that other payloads do not matter.

    Raises:
        SchemaError: One row with all its fields does not fit.
    """

    guard_bytes: ClassVar[int] = 0
    max_bytes: ClassVar[int] = 2 << 30

    def __init__(
        self,
        program: Program,
        rows: int,
        payload_bytes: int,
        message: IpcMessage | None = None,
        *,
        is_for_one: bool = False,
    ) -> None:
        self._program = program
        self._rows = rows
        self._message = message or IpcMessage(program.layout)
        self._is_for_one = is_for_one
        # Whole payloads are node 0. If their fields are columns, the first array is node 1.
        self._first_node = program.node_count - self._message.layout.groups[-1].arrays
        self._arena = program.take_arena()
        self._nodes, self._counts, self._result = self._arena.views
        self._arenas: dict[Program, Any] = {program: self._arena}  # All use one buffer.
        self._maps: Collection[int] = ()
        size_bytes = self._start(payload_bytes, is_expecting=not is_for_one)
        if size_bytes > MAX_EXPECTED_BYTES:
            size_bytes = self._start(payload_bytes, is_expecting=False)
        while size_bytes > self.max_bytes:
            if self._rows <= 1:
                reason = (
                    f"one row of {counted(program.node_count, 'field')}, nested ones included,"
                    f" takes more than {counted(self.max_bytes, 'byte')}: request fewer columns"
                )
                raise SchemaError(reason)
            self._rows, payload_bytes = self._rows // 2, payload_bytes // 2
            size_bytes = self._start(payload_bytes, is_expecting=False)
        self._allocate(size_bytes)

    @classmethod
    def for_one(cls, program: Program, message: IpcMessage | None = None) -> Self:
        """Return an arena for one payload, which refuses it only if it does not fit alone.

        Raises:
            SchemaError: One row with all its fields does not fit.
        """
        return cls(program, 1, 0, message, is_for_one=True)

    @property
    def count(self) -> int:
        """Number of payloads that were appended."""
        count: int = self._counts[0]
        return count

    @property
    def room(self) -> int:
        """Number of payloads that can still be appended."""
        return self._rows - self.count

    def append(
        self, program: Program, data: memoryview, positions: memoryview, first: int, stop: int
    ) -> Misfit | None:
        """Append the values of the payloads at positions `[first, stop)` of `data`.

        Returns:
            None if all were appended; otherwise the first payload that was not. All before it were.
        """
        arena = self._arena_of(program)
        row, last = first, min(stop, first + self._rows - self._counts[0])
        while row < last and arena.shred(data, positions, row, last) != tables.OK:
            row, code, node, offset = self._result
            if code == tables.FULL:
                if self._grow():
                    continue
                return self._too_large(row, program.paths[node])
            start, length = positions[row] >> 32, positions[row] & 0xFFFFFFFF
            if code == tables.NOT_CANONICAL or program.encoding == "json":
                payload = bytes(data[start : start + length])
                retry = self._append_canonical(program, payload)
                # In JSON, the misfit may be the first of two fields with the same name, which is
                # ignored.
                if code == tables.NOT_CANONICAL or retry[0] in {tables.OK, tables.TOO_LARGE}:
                    code, node = retry
            if code != tables.OK:
                path = program.paths[node] if node != tables.ABSENT else ""
                if code == tables.TOO_LARGE:
                    return self._too_large(row, path)
                return Misfit(row, code, path, min(max(0, offset - start), length))
            row += 1
        return Misfit(last, tables.FULL, "", 0) if last < stop else None

    def _too_large(self, row: int, path: str) -> Misfit:
        code = tables.TOO_LARGE if self._is_for_one else tables.FULL
        return Misfit(row, code, path, 0)

    def append_null(self, program: Program) -> None:
        """Append a null for a payload that cannot be decoded; there must be `room`."""
        appended = self._arena_of(program).append_null()
        assert appended  # noqa: S101 - `room` guarantees a slot for a null

    def close(self) -> None:
        """Complete the columns of the values, and write the prefix of the message.

        Nothing can be appended afterwards, and `count` is not valid any more.
        """
        layout = self._message.layout
        self._maps = self._arena.finish(layout.prefix, self._first_node, *layout.positions[-1])
        for program, arena in self._arenas.items():
            program.return_arena(arena)
        self._arenas = {}

    def finish(self) -> pa.Array:
        """Close it, and return the values that were appended."""
        self.close()
        return self.drop_equal_keys(self._message.read()).column(0)

    def drop_equal_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep only the last entry for each key of the maps in the message's record batch."""
        maps = self._maps
        if not maps:
            return batch
        shape = self._program.shape
        columns = list(shape.children_at(0)) if self._first_node else [(shape, 0)]
        first = batch.num_columns - len(columns)
        for index, (child, node) in enumerate(columns, first):
            old_array = batch.column(index)
            new_array = _keep_last_keys(old_array, child, node, maps)
            if new_array is not old_array:
                batch = batch.set_column(index, batch.schema.field(index), new_array)
        return batch

    # The arena

    def _start(self, payload_bytes: int, *, is_expecting: bool) -> int:
        """Set capacities from the observed sizes of earlier payloads or by a guess, and lay out.

        Returns the size of the arena in bytes.
        """
        prefix_bytes = len(self._message.layout.prefix)
        size: int = self._arena.start(
            self._rows, payload_bytes, is_expecting, prefix_bytes, self.guard_bytes
        )
        return size

    def _lay_out(self) -> int:
        """Assign the regions their locations, and return the size of the arena in bytes."""
        size: int = self._arena.lay_out(len(self._message.layout.prefix), self.guard_bytes)
        return size

    def _arena_of(self, program: Program) -> Any:  # noqa: ANN401 - its module has no types
        arena = self._arenas.get(program)
        if arena is None:
            arena = self._arenas[program] = program.take_arena()
            arena.reset()
            arena.join(self._arena)
        return arena

    def _append_canonical(self, program: Program, payload: bytes) -> tuple[int, int]:
        """Append the canonical form of a payload; return the resulting code and the node."""
        assert program.make_canonical is not None  # noqa: S101 - its encoding has one
        try:
            canonical = program.make_canonical(payload)
        except RecursionError:
            return tables.TOO_DEEP, tables.ABSENT
        except ValueError:
            is_json = program.encoding == "json"
            return tables.BAD_JSON if is_json else tables.BAD_MESSAGE, tables.ABSENT
        position = memoryview(_numbers([len(canonical)]))
        arena = self._arena_of(program)
        while True:
            code = arena.shred(memoryview(canonical), position, 0, 1, is_canonical=True)
            node = self._result[tables.RESULT_NODE]
            if code != tables.FULL:
                return code, node
            if not self._grow():
                return tables.TOO_LARGE, node

    def _grow(self) -> bool:
        """Make room for the payload that was rolled back; return False if that is too much memory.

        All nodes grow at once, so a payload is retried only once. Each node grows at least by the
        arena's mean, so that many small nodes next to a large one do not cause frequent growth.
        """
        old_nodes, regions = self._nodes.tolist(), self._regions_in_use()
        for factor in _GROWTHS:
            self._make_room(factor)
            size_bytes = self._lay_out()
            if size_bytes <= self.max_bytes:
                self._move(size_bytes, regions)
                return True
            self._nodes[:] = _numbers(old_nodes)
        return False

    def _make_room(self, factor: float) -> None:
        count, item_nodes = self._program.node_count, self._program.item_nodes
        reached, reached_bytes = (self._counts[n * count : (n + 1) * count] for n in (2, 3))
        widths = [1 + tables.WIDTHS[storage] for storage in self._program.storages]
        total = sum(map(mul, reached, widths)) + sum(reached_bytes)
        mean_bytes = int(
            (factor - 1) * total / (count + self._program.storages.count(tables.VARIABLE))
        )

        # Nodes with the same number of values share one capacity.
        most, sizes, item_bytes = [0] * count, [0] * count, [0] * count
        for node, item in enumerate(item_nodes):
            most[item] = max(most[item], reached[node])
            sizes[item] += widths[node]
            item_bytes[item] += mean_bytes

        def raise_capacity(index: int, least: int, needed: int) -> None:
            capacity = max(self._nodes[index], least, int(factor * needed))
            self._nodes[index] = min(capacity, tables.MAX_OFFSET)

        for node, storage in enumerate(self._program.storages):
            start, item = node * tables.NODE_WIDTH, item_nodes[node]
            # Other nodes have one value per payload, for which there is always room.
            if item:
                least = item_bytes[item] // sizes[item]
                raise_capacity(start + tables.CAPACITY, least, most[item])
            if storage == tables.VARIABLE:
                raise_capacity(start + tables.BYTES_CAPACITY, mean_bytes, reached_bytes[node])

    def _move(self, size_bytes: int, regions: list[tuple[int, int]]) -> None:
        """Copy the regions of the old arena, at these locations, to a new one."""
        old = self._view
        self._allocate(size_bytes)
        self._arena.prepare()
        for (start, length), (target, _) in zip(regions, self._regions_in_use(), strict=True):
            self._view[target : target + length] = old[start : start + length]
        for arena in self._arenas.values():
            if arena is not self._arena:
                arena.join(self._arena)

    def _allocate(self, size_bytes: int) -> None:
        self._view = self._message.allocate(size_bytes)
        self._arena.attach(self._view)

    def _regions_in_use(self) -> list[tuple[int, int]]:
        """Return location and length in bytes of the filled part of each region."""
        regions = []
        for node, storage in enumerate(self._program.storages):
            start = node * tables.NODE_WIDTH
            count, used = self._counts[node], self._counts[self._program.node_count + node]
            width = tables.WIDTHS[storage]
            data = self._nodes[start + tables.DATA]
            regions += [
                (self._nodes[start + tables.VALID], count),
                (data * max(1, width), width * (count + (storage in WITH_OFFSETS))),
                (self._nodes[start + tables.BYTES], used),
            ]
        return regions


def _numbers(numbers: Iterable[int]) -> array[int]:
    return array("q", numbers)


def _keep_last_keys(values: pa.Array, shape: Shape, node: int, maps: Collection[int]) -> pa.Array:
    """Keep only the last of a map's entries with the same key, as maps in all languages do.

    `values` have the shape of node number `node`, and are not a slice. `maps` holds the numbers of
    the nodes whose maps may have duplicate keys.
    """
    if not any(node <= each < node + shape.node_count for each in maps):
        return values
    if pa.types.is_map(values.type):
        _, (child, number) = shape.children[0].children_at(node + 1)
        old_items = values.items
        items = _keep_last_keys(old_items, child, number, maps)
        if items is not old_items:
            values = _replace_entries(values, values.buffers()[1], [values.keys, items])
        return _drop_equal_keys(values) if node in maps else values
    is_list = pa.types.is_list(values.type)
    changed: dict[int, pa.Array] = {}
    for index, (child, number) in enumerate(shape.children_at(node)):
        old_array = values.values if is_list else values.field(index)
        new_array = _keep_last_keys(old_array, child, number, maps)
        if new_array is not old_array:
            changed[index] = new_array
    if not changed:
        return values
    children = [
        changed[index] if index in changed else values.field(index)
        for index in range(len(shape.children))
    ]
    buffers = values.buffers()[: 2 if is_list else 1]
    return pa.Array.from_buffers(values.type, len(values), buffers, children=children)


def _replace_entries(maps: pa.MapArray, offsets: pa.Buffer, columns: list[pa.Array]) -> pa.MapArray:
    fields = [maps.type.key_field, maps.type.item_field]
    entries = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.Array.from_buffers(
        maps.type, len(maps), [maps.buffers()[0], offsets], children=[entries]
    )


def _drop_equal_keys(maps: pa.MapArray) -> pa.MapArray:
    """Keep only the last entry for each key of the outermost maps."""
    new_offsets, selection = keep_last_of_equal(maps.offsets, maps.keys)
    if len(selection) == len(maps.keys):
        return maps
    columns = [maps.keys.take(selection), maps.items.take(selection)]
    return _replace_entries(maps, new_offsets.buffers()[1], columns)
