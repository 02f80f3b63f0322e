"""Ctrl-C and SIGTERM end the process at once, whatever its threads wait for.

Python's own handler runs in the main thread, when that comes back from what it does: DuckDB waits
for its threads, and Python itself waits for requests that are under way before it exits. Only the
file descriptor given to `set_wakeup_fd` hears of a signal at once. A thread reads it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NoReturn

from connector.cli.streams import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR: Final = "\x1b[?25h"
_CLEAR_LINE: Final = "\r\x1b[2K"
_STOPPING: Final = (
    "note: stopping: what is half written is deleted first; a second Ctrl-C or SIGTERM ends at once"
    " and leaves it\n"
)

_writing = threading.Event()


class _Received:
    """The signal that came first; the handler and the thread each hear of every signal."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._first = threading.Lock()

    @property
    def exit_code(self) -> int:
        """What the process ends with."""
        return INTERRUPTED if self.number is None else 128 + self.number

    def take(self, number: int) -> None:
        """Remember a signal; say what happens next, unless that was said or the process ends."""
        self.number = self.number or number
        # A handler may interrupt itself, so nothing waits for the lock.
        if self._first.acquire(blocking=False) and _writing.is_set():
            _print_at_once(_STOPPING)


_received = _Received()


def end_at_interrupts() -> None:
    """From now on SIGINT and SIGTERM end the process; to be called once, by the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for each in _SIGNALS:
        signal.signal(each, _interrupt)
    threading.Thread(target=_end_at_signal, args=(reading,), daemon=True).start()


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Let the first signal raise `KeyboardInterrupt`, so that what is half written is removed.

    A second one ends the process at once.
    """
    _writing.set()
    try:
        yield
    finally:
        _writing.clear()
        if _received.number is not None:
            # What was called may have caught the `KeyboardInterrupt`.
            exit_at_once()


def exit_at_once() -> None:
    """End the process as a signal does, without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        # What reads it may have ended.
        with suppress(OSError, OutputError):
            stream.flush()
    os._exit(_received.exit_code)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _received.take(number)
    if _writing.is_set():
        raise KeyboardInterrupt
    # The thread may have read the byte before the writing ended, and have left the end to this.
    _exit()


def _print_at_once(line: str) -> None:
    """Print a line on stderr past its buffer, which a handler of signals may have interrupted."""
    shown = _CLEAR_LINE + line if sys.stderr.isatty() else line
    # What reads it may have ended.
    with suppress(OSError):
        os.write(sys.stderr.fileno(), shown.encode())


def _end_at_signal(reading: int) -> None:
    signals = 0
    while True:
        [number] = os.read(reading, 1)
        if number not in _SIGNALS:
            continue
        signals += 1
        _received.take(number)
        if signals > _writing.is_set():
            _exit()


def _exit() -> NoReturn:
    if sys.stderr.isatty():
        # A progress bar hides it.
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(_received.exit_code)
