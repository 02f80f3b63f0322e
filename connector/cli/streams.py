"""Standard output and standard error of the program, which may be closed, full, or have no reader.

Python's own streams raise an error that looks like any other; after `PYTHONUNBUFFERED=1`, as images
of containers have it, they lose what does not fit into one write, without an error.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

FAILED: Final = 1
CLOSED_PIPE: Final = 141


class OutputError(Exception):
    """Standard output takes nothing more.

    Attributes:
        error: What the system says.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Output(io.FileIO):
    """Standard output: its errors are not those of another file or of a request."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the data; return how many bytes.

        Raises:
            OutputError: Nothing can be written.
        """
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class _Notes(io.FileIO):
    """Standard error: results count even if notes cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of the data, or drop it; return how many bytes."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def open_streams() -> Iterator[None]:
    """Write to streams whose errors end the process with one sentence and an exit code.

    Raises:
        SystemExit: Standard output cannot be written; with `CLOSED_PIPE` if its reader, such as
            `head`, has ended, else with `FAILED`.
    """
    before = sys.stdout, sys.stderr
    try:
        sys.stdout, sys.stderr = _stream(_Output, sys.stdout), _stream(_Notes, sys.stderr)
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as failure:
        # What is left in the buffer has no reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if failure.error.errno == errno.EPIPE:
            sys.exit(CLOSED_PIPE)
        sys.stderr.write(f"error: the output cannot be written: {failure.error.strerror}\n")
        sys.exit(FAILED)
    finally:
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _stream(kind: type[io.FileIO], replaced: TextIO | None) -> TextIO:
    """A stream in place of Python's own, which is None if the process was started without it."""
    if replaced is None:
        # It can be opened, and refuses what is written.
        descriptor, encoding, is_terminal = os.open(os.devnull, os.O_RDONLY), "utf-8", False
    else:
        descriptor, encoding, is_terminal = (
            replaced.fileno(),
            replaced.encoding,
            replaced.isatty(),
        )
    return io.TextIOWrapper(
        io.BufferedWriter(kind(descriptor, "w", closefd=False)),
        encoding=encoding,
        # What a topic holds can be any text, whatever the terminal's encoding is.
        errors="backslashreplace",
        line_buffering=is_terminal or kind is _Notes,
    )
