"""The lease of a table: which of several processes copies to it, so that the others need not.

Copies are exactly once without it. Two processes that both believe to hold the lease waste work:
one of them raises `ConcurrentCopyError`. So the lease needs no conditional write, and every store
can have it: the object `_pulsar_offload/lease.json` in the table's folder.

The holder writes the object again and again. Another process takes over once it has seen the same
object for the lease's duration, by its own clock. So clocks are never compared.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import MissingObjectError, PulsarOffloadError
from connector.tables.state_file import STATE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.storage.location import Location

LEASE: Final = "lease.json"
"""Name of the object."""
_MAX_BYTES: Final = 1 << 16
_MAX_DURATION_S: Final = 7 * 24 * 3600
_RENEWALS: Final = 3
"""How often a lease is renewed in its duration."""


class Lease:
    """The lease of one table, from the view of one process.

    No error of the store leaves it: a process that cannot read or write the lease copies.

    Args:
        location: The table's folder.
        holder: Name of the process. A process with the name of the holder takes over at once.
        duration_s: After how many seconds without a renewal another process may take over.
        clock: Returns a time in seconds that never goes back.
    """

    def __init__(
        self, location: Location, holder: str, duration_s: float, clock: Callable[[], float]
    ) -> None:
        self._folder = location.child(STATE_FOLDER)
        self._holder = holder
        self._duration_s = duration_s
        self._clock = clock
        self._content: dict[str, Any] = {}
        self._is_held = False
        self._seen: dict[str, Any] | None = None
        self._seen_s = self._written_s = 0.0

    def acquire(self) -> bool:
        """Return whether this process holds the lease now."""
        self._is_held = self._acquire()
        return self._is_held

    def _acquire(self) -> bool:
        try:
            current = self._read()
            if current.get("holder") not in (None, self._holder):
                if current != self._seen:
                    self._seen, self._seen_s = current, self._clock()
                duration_s = _number(current.get("duration_s"), self._duration_s)
                if self._clock() - self._seen_s < min(duration_s, _MAX_DURATION_S):
                    return False
            if current and current == self._content:
                return True
            # What the last holder wrote about its success stays.
            self._content = current
            self._write()
            # Of two processes that write at once, the later one holds it.
            return self._read().get("holder") == self._holder
        except PulsarOffloadError:
            return True

    def renew(self, **facts: object) -> None:
        """Renew the lease if a third of its duration has passed, or if there are facts to write."""
        if facts or self._clock() - self._written_s >= self._duration_s / _RENEWALS:
            self._content |= facts
            with suppress(PulsarOffloadError):
                self._write()

    def release(self) -> None:
        """Let another process take over at once, if this one holds the lease."""
        if self._is_held:
            with suppress(PulsarOffloadError):
                # Another process may have taken over.
                if self._read().get("holder") == self._holder:
                    self._holder = ""
                    self._write()

    def _write(self) -> None:
        self._content |= {
            "holder": self._holder or None,
            "duration_s": self._duration_s,
            "renewals": _number(self._content.get("renewals"), 0) + 1,
            "renewed": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        self._written_s = self._clock()
        self._folder.write_object(LEASE, json.dumps(self._content).encode(), user_metadata={})

    def _read(self) -> dict[str, Any]:
        """Return the content of the object; empty if it is missing or malformed."""
        try:
            value = json.loads(self._folder.read_object(LEASE, max_bytes=_MAX_BYTES).data)
        except (MissingObjectError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def _number(value: object, default: float) -> float:
    return value if isinstance(value, int | float) and value > 0 else default
