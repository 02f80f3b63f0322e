"""Immediate exit on Ctrl-C and SIGTERM, even while threads wait.

Python's own handler runs in the main thread, after the current call returns. But DuckDB waits for
its threads, and Python waits for running requests before it exits. Only the file descriptor passed
to `set_wakeup_fd` receives a signal at once, so a thread reads it.

A signal that arrives just before the main thread begins to wait, or in another thread, does not end
that wait. So if the process first cleans up, the thread wakes the main thread until its handler has
run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NoReturn

from connector.cli import event_lines
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
    "note: stopping after half-written objects are deleted; a second Ctrl-C or SIGTERM stops at"
    " once and leaves them\n"
)

_WAKE_S: Final = 0.05
"""Seconds after which the main thread is woken again."""

_writing = threading.Event()
_handled = threading.Event()
"""Set once the handler has run in the main thread."""


class _Received:
    """The first signal received. Both the handler and the thread see every signal."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._first = threading.Lock()

    @property
    def exit_code(self) -> int:
        return INTERRUPTED if self.number is None else 128 + self.number

    def take(self, number: int) -> None:
        """Record a signal. If the process first cleans up, print that once."""
        self.number = self.number or number
        # Do not wait for the lock: a handler may interrupt itself.
        if self._first.acquire(blocking=False) and _writing.is_set():
            _print_at_once(_STOPPING)


_received = _Received()


def end_at_interrupts() -> None:
    """Let SIGINT and SIGTERM end the process. Call once, in the main thread."""
    reading, writing = os.pipe()
    if sys.platform != "win32":
        # There Python accepts any pipe, and before 3.12 it lacks this function.
        os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for each in _SIGNALS:
        signal.signal(each, _interrupt)
    if sys.platform != "win32":
        # No one else sends it by default, and without a handler it is ignored.
        signal.signal(signal.SIGURG, lambda *_: None)
    threading.Thread(target=_end_at_signal, args=(reading,), daemon=True).start()


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Let the first signal raise `KeyboardInterrupt`, so that half-written objects are deleted.

    A second signal ends the process at once.
    """
    _writing.set()
    try:
        yield
    finally:
        _writing.clear()
        if _received.number is not None:
            # The body may have caught the `KeyboardInterrupt`.
            exit_at_once()


def exit_at_once() -> None:
    """End the process like a signal does, without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        # The reader of the stream may have ended.
        with suppress(OSError, OutputError):
            stream.flush()
    os._exit(_received.exit_code)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _handled.set()
    _received.take(number)
    if _writing.is_set():
        raise KeyboardInterrupt
    # The thread may have read the byte while `_writing` was set, and left the exit to the handler.
    _exit()


def _print_at_once(line: str) -> None:
    """Print a line on stderr without its buffer, which the signal may have interrupted."""
    if event_lines.is_json():
        kind, _, note = line.strip().partition(": ")
        text = event_lines.event_line(kind, {"text": note})
    else:
        text = _CLEAR_LINE + line if sys.stderr.isatty() else line
    # The reader of the stream may have ended.
    with suppress(OSError):
        os.write(sys.stderr.fileno(), text.encode())


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
        threading.Thread(target=_wake_main_thread, daemon=True).start()


def _wake_main_thread() -> None:
    """End whatever the main thread waits for, so that the handler runs."""
    # On Windows Ctrl-C ends the waits of the main thread, and SIGTERM is never received.
    if sys.platform != "win32":
        main = threading.main_thread().ident
        assert main is not None  # noqa: S101 - it has started
        # It may begin to wait right after it is woken.
        while not _handled.wait(_WAKE_S):
            signal.pthread_kill(main, signal.SIGURG)


def _exit() -> NoReturn:
    if sys.stderr.isatty():
        # A progress bar hides it.
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(_received.exit_code)
