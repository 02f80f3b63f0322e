"""Ctrl-C ends the process at once, with exit code 130, whatever its threads wait for.

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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

EXIT_CODE: Final = 128 + signal.SIGINT
_SHOW_CURSOR: Final = "\x1b[?25h"

_writing = threading.Event()
_interrupted = threading.Event()


def end_at_interrupts() -> None:
    """From now on SIGINT ends the process; to be called once, by the main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_end_at_signal, args=(reading,), daemon=True).start()


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Let the first SIGINT raise `KeyboardInterrupt`, so that what is half written is removed.

    A second one ends the process at once.
    """
    _writing.set()
    try:
        yield
    finally:
        _writing.clear()
        if _interrupted.is_set():
            # What was called may have caught the `KeyboardInterrupt`.
            exit_at_once()


def exit_at_once() -> None:
    """End the process as an interrupt does, without waiting for threads."""
    for stream in (sys.stdout, sys.stderr):
        # What reads it may have ended.
        with suppress(OSError):
            stream.flush()
    os._exit(EXIT_CODE)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    _interrupted.set()
    if _writing.is_set():
        raise KeyboardInterrupt
    # The thread may have read the byte before the writing ended, and have left the end to this.
    _exit()


def _end_at_signal(reading: int) -> None:
    interrupts = 0
    while True:
        for number in os.read(reading, 1):
            interrupts += number == signal.SIGINT
        if interrupts:
            _interrupted.set()
        if interrupts > _writing.is_set():
            _exit()


def _exit() -> NoReturn:
    if sys.stderr.isatty():
        # A progress bar hides it.
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(EXIT_CODE)
