"""Events on stderr for programs such as schedulers: with `--progress=json`, each line is an object.

Each object has `event`, the kind of the event, and `time`, in UTC. `docs/observability.md` lists
the other fields.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PERIOD_S: Final = 10.0
"""Interval between events of progress, in seconds."""

_is_json = False
_last_progress_s = 0.0


def is_json() -> bool:
    """Return whether stderr of this process has one JSON object a line."""
    return _is_json


@contextmanager
def as_json(*, is_requested: bool) -> Iterator[None]:
    """Write events as JSON, if requested, while a command runs."""
    global _is_json, _last_progress_s  # noqa: PLW0603 - a process has one stderr
    before, _is_json, _last_progress_s = _is_json, is_requested, time.monotonic()
    try:
        yield
    finally:
        _is_json = before


def event_line(event: str, fields: Mapping[str, object]) -> str:
    """Return an event as a line of JSON; fields that are None are left out."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    known = {name: value for name, value in fields.items() if value is not None}
    return json.dumps({"event": event, "time": now, **known}, default=str) + "\n"


def write_event(event: str, **fields: object) -> None:
    """Write an event to stderr, if it has JSON."""
    if _is_json:
        # In one call, so that lines of several threads do not mix.
        sys.stderr.write(event_line(event, fields))


@contextmanager
def progress_events(
    fields: Callable[[], Mapping[str, object]],
    timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    *,
    is_whole: bool,
) -> Iterator[None]:
    """Write an event of progress each `PERIOD_S` while the body runs.

    Args:
        fields: Returns the fields.
        timer: Creates a timer that calls a function after a number of seconds.
        is_whole: Whether the body is the whole work, so that an event is also written at its end.
    """
    clock = _ProgressClock(fields, timer)
    # A read enters here for each record batch.
    clock.start(max(0, _last_progress_s + PERIOD_S - time.monotonic()))
    try:
        yield
    finally:
        clock.stop()
        if is_whole:
            clock.write()


class _ProgressClock:
    """Writes an event of progress again and again, until it is stopped."""

    def __init__(
        self,
        fields: Callable[[], Mapping[str, object]],
        timer: Callable[[float, Callable[[], None]], threading.Timer],
    ) -> None:
        self._fields = fields
        self._new_timer = timer
        self._lock = threading.Lock()
        self._is_running = True

    def start(self, seconds: float) -> None:
        self._timer = self._new_timer(seconds, self._tick)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        with self._lock:
            self._is_running = False
            self._timer.cancel()

    def write(self) -> None:
        global _last_progress_s  # noqa: PLW0603 - of the process
        _last_progress_s = time.monotonic()
        write_event("progress", **self._fields())

    def _tick(self) -> None:
        with self._lock:
            if self._is_running:
                self.write()
                self.start(PERIOD_S)
