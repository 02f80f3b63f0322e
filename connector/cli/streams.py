"""Standard output and error, which may be closed, full, or have no reader.

Errors of Python's own streams look like any others. With `PYTHONUNBUFFERED=1`, as in container
images, they silently lose data that does not fit into one write.
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
_IS_WINDOWS: Final = sys.platform == "win32"
_CLOSED_PIPE_ERRORS: Final = {errno.EPIPE, errno.EINVAL} if _IS_WINDOWS else {errno.EPIPE}


class OutputError(Exception):
    """Raised if standard output cannot be written.

    Attributes:
        error: The system's error.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Output(io.FileIO):
    """Standard output, with an error class of its own."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class _Notes(io.FileIO):
    """Standard error, which ignores errors: results count even if notes cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def open_streams() -> Iterator[None]:
    """Replace the standard streams; a write error ends the process with a message and a code.

    Raises:
        SystemExit: Standard output cannot be written. The code is `CLOSED_PIPE` if its reader, such
            as `head`, has ended, and `FAILED` otherwise.
    """
    old_streams = sys.stdout, sys.stderr
    try:
        sys.stdout, sys.stderr = _stream(_Output, sys.stdout), _stream(_Notes, sys.stderr)
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as failure:
        # Discard the rest of the buffer, which has no reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if failure.error.errno in _CLOSED_PIPE_ERRORS:
            sys.exit(CLOSED_PIPE)
        sys.stderr.write(f"error: the output cannot be written: {failure.error.strerror}\n")
        sys.exit(FAILED)
    finally:
        sys.stderr.flush()
        sys.stdout, sys.stderr = old_streams


def _stream(kind: type[io.FileIO], replaced: TextIO | None) -> TextIO:
    """Return a replacement for a standard stream, which is None if it was closed at start."""
    if replaced is None:
        # This can be opened, but refuses writes.
        descriptor, encoding, is_terminal = os.open(os.devnull, os.O_RDONLY), "utf-8", False
    elif _IS_WINDOWS and replaced.isatty():
        # Its console takes UTF-16, which only Python's own stream writes.
        return replaced
    else:
        descriptor, encoding, is_terminal = (
            replaced.fileno(),
            # Others would need escapes, which are not JSON.
            "utf-8" if _IS_WINDOWS else replaced.encoding,
            replaced.isatty(),
        )
    return io.TextIOWrapper(
        io.BufferedWriter(kind(descriptor, "w", closefd=False)),
        encoding=encoding,
        # A topic may contain any text, which the terminal's encoding may lack.
        errors="backslashreplace",
        newline="\n",
        line_buffering=is_terminal or kind is _Notes,
    )
