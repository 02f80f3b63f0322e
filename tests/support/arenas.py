"""Arenas for tests: one that notices a write beyond a region, and one that grows all the time.

Every region has bytes around it that nothing may write to. They are looked at after each run of a
shredder, and before the arena is given up for a larger one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from arrow_io.payloads import tables
from arrow_io.payloads.shredding import WITH_OFFSETS, Misfit, Shredding

if TYPE_CHECKING:
    import pyarrow as pa

    from arrow_io.core.ipc_message import IpcMessage
    from arrow_io.payloads.program import Program

_GUARD: Final = b"\xa5"


class GuardedShredding(Shredding):
    """A shredding whose regions are guarded.

    Attributes:
        growths: How often the arena grew; a payload is walked once more for each.
    """

    guard_bytes: ClassVar[int] = 64

    def __init__(
        self,
        program: Program,
        rows: int,
        payload_bytes: int,
        message: IpcMessage | None = None,
        *,
        is_for_one: bool = False,
    ) -> None:
        self._gaps: list[tuple[int, int]] = []
        self.growths = 0
        super().__init__(program, rows, payload_bytes, message, is_for_one=is_for_one)

    def append(
        self, program: Program, data: memoryview, positions: memoryview, first: int, stop: int
    ) -> Misfit | None:
        """Append payloads, and look at the guards."""
        misfit = super().append(program, data, positions, first, stop)
        self.check()
        return misfit

    def append_null(self, program: Program) -> None:
        """Append a null, and look at the guards."""
        super().append_null(program)
        self.check()

    def drop_equal_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Look at the guards, now that all columns of the message are filled."""
        self.check()
        return super().drop_equal_keys(batch)

    def check(self) -> None:
        """Fail if anything was written beside the regions."""
        for start, stop in self._gaps:
            assert self._view[start:stop] == _GUARD * (stop - start), "a write beyond a region"

    def _move(self, size_bytes: int, places: list[tuple[int, int]]) -> None:
        self.check()
        self.growths += 1
        super()._move(size_bytes, places)

    def _allocate(self, size_bytes: int) -> None:
        super()._allocate(size_bytes)
        place = len(self._message.layout.prefix)
        self._gaps = []
        for start, stop in (*self._regions(), (size_bytes, size_bytes)):
            assert start - place >= self.guard_bytes or start == stop
            self._view[place:start] = _GUARD * (start - place)
            self._gaps.append((place, start))
            place = stop

    def _regions(self) -> list[tuple[int, int]]:
        """Where each region stands, `[start, stop)` in bytes of the arena."""
        regions = []
        for node, storage in enumerate(self._program.storages):
            fields = (tables.VALID, tables.DATA, tables.BYTES)
            for field, length in zip(fields, self._region_bytes(node), strict=True):
                unit = max(1, tables.WIDTHS[storage]) if field == tables.DATA else 1
                start = self._nodes[node * tables.NODE_WIDTH + field] * unit
                regions.append((start, start + length))
        return regions

    def _region_bytes(self, node: int) -> tuple[int, int, int]:
        """Length in bytes of a node's validity, its values or offsets, and its bytes."""
        storage, start = self._program.storages[node], node * tables.NODE_WIDTH
        # With the place for values that find no room.
        places = self._nodes[start + tables.CAPACITY] + 1
        values = tables.WIDTHS[storage] * (places + (storage in WITH_OFFSETS))
        return places, values, self._nodes[start + tables.BYTES_CAPACITY]


class TightShredding(GuardedShredding):
    """One that begins with no room for items and texts, and never makes more than is needed."""

    def _start(self, payload_bytes: int, *, is_expecting: bool) -> int:
        super()._start(payload_bytes, is_expecting=is_expecting)
        for node, storage in enumerate(self._program.storages):
            start = node * tables.NODE_WIDTH
            if self._program.item_nodes[node]:
                self._nodes[start + tables.CAPACITY] = 0
            if storage == tables.VARIABLE:
                self._nodes[start + tables.BYTES_CAPACITY] = 0
        return self._lay_out()

    def _make_room(self, factor: float) -> None:
        del factor
        super()._make_room(1.0)
