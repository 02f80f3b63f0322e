"""The offset memory: remembered offsets of entries, so that a walk can start inside a block.

Pulsar's offloader has the same (`OffsetsCache`), keyed by ledger and entry. Here the key is the
object and its length, because a ledger that was offloaded again has other offsets in another
object.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from threading import Lock

MAX_OBJECTS = 1 << 14
"""Number of ledgers in the largest plan that reads a little of each."""
MAX_OFFSETS_PER_OBJECT = 4096
MAX_OFFSETS = 1 << 20
_MAX_PENDING = 64
"""Number of queued offsets that are sorted in together, unless a lookup comes first."""


class OffsetMemory:
    """Byte offsets of some entries of objects; thread-safe, bounded, evicts the oldest."""

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
        self._pending: deque[tuple[object, int, int]] = deque()
        self._lock = Lock()

    def remember(self, key: object, entry_id: int, offset: int) -> None:
        """Remember that the 12-byte header of an entry begins at `offset` in the object `key`."""
        # Sort in several at once, or at the next lookup: between two runs of entries, the sorted
        # lists leave the CPU caches.
        self._pending.append((key, entry_id, offset))
        if len(self._pending) >= _MAX_PENDING:
            with self._lock:
                self._record_pending()

    def _record_pending(self) -> None:
        while self._pending:
            key, entry_id, offset = self._pending.popleft()
            offsets = self._objects.setdefault(key, [])
            self._objects.move_to_end(key)
            index = bisect_left(offsets, (entry_id,))
            is_recorded = index < len(offsets) and offsets[index][0] == entry_id
            if not is_recorded and len(offsets) < self._max_per_object:
                offsets.insert(index, (entry_id, offset))
                self._count += 1
            while len(self._objects) > self._max_objects or self._count > self._max_offsets:
                _, forgotten = self._objects.popitem(last=False)
                self._count -= len(forgotten)

    def forget(self, key: object) -> None:
        """Forget an object whose remembered offsets proved wrong."""
        with self._lock:
            self._record_pending()
            self._count -= len(self._objects.pop(key, ()))

    def floor(self, key: object, entry_id: int) -> tuple[int, int] | None:
        """Return the greatest remembered entry id that is at most `entry_id`, and its offset."""
        with self._lock:
            self._record_pending()
            offsets = self._objects.get(key, [])
            index = bisect_left(offsets, (entry_id + 1,))
            return offsets[index - 1] if index else None
