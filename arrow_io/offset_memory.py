"""Where entries stand, remembered, so that a later walk need not begin at its block.

Pulsar's offloader has the same (`OffsetsCache`), keyed by ledger and entry. Here the key is the
object and its length, because a ledger that was offloaded again stands elsewhere in another object.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from threading import Lock

MAX_OBJECTS = 1 << 14
"""As many ledgers as one plan may have that reads a little of each."""
MAX_OFFSETS_PER_OBJECT = 4096
MAX_OFFSETS = 1 << 20


class OffsetMemory:
    """Byte offsets of some entries of some objects; thread-safe, bounded, forgets the oldest."""

    def __init__(
        self,
        *,
        max_objects: int = MAX_OBJECTS,
        max_offsets_per_object: int = MAX_OFFSETS_PER_OBJECT,
        max_offsets: int = MAX_OFFSETS,
    ) -> None:
        self._max_objects = max_objects
        self._max_per_object = max_offsets_per_object
        self._max_offsets = max_offsets
        self._count = 0
        self._objects: OrderedDict[object, list[tuple[int, int]]] = OrderedDict()
        self._lock = Lock()

    def remember(self, key: object, *entries: tuple[int, int]) -> None:
        """Remember where in the object `key` the 12-byte headers of some entries begin.

        Args:
            key: The object.
            entries: Id of each entry, and the offset in bytes.
        """
        with self._lock:
            offsets = self._objects.setdefault(key, [])
            self._objects.move_to_end(key)
            for each in entries:
                index = bisect_right(offsets, each)
                known = index > 0 and offsets[index - 1][0] == each[0]
                if not known and len(offsets) < self._max_per_object:
                    offsets.insert(index, each)
                    self._count += 1
            while len(self._objects) > self._max_objects or self._count > self._max_offsets:
                _, forgotten = self._objects.popitem(last=False)
                self._count -= len(forgotten)

    def forget(self, key: object) -> None:
        """Forget an object: what was remembered of it has proved wrong."""
        with self._lock:
            self._count -= len(self._objects.pop(key, ()))

    def floor(self, key: object, entry_id: int) -> tuple[int, int] | None:
        """The greatest remembered entry id that is at most `entry_id`, and its offset."""
        with self._lock:
            offsets = self._objects.get(key, [])
            index = bisect_right(offsets, entry_id, key=_entry_id)
            return offsets[index - 1] if index else None


def _entry_id(remembered: tuple[int, int]) -> int:
    return remembered[0]
