"""Streams of one object's bytes, in order, as read-only views.

All bytes are of one version of the object: the listed one, or else that of the first answer.
Answers of S3, folders and memory name their version, and so do those of obstore unless gcsfs lists.
Elsewhere a HEAD checks it before the stream's last range is returned, or when the stream is closed
earlier.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError, TruncatedObjectError
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.request_errors import check_version

if TYPE_CHECKING:
    from arrow_io.storage.object_store import RangeContent
    from arrow_io.storage.ranges import ByteSpan

_EMPTY = memoryview(b"")


class RangeStream:
    """The bytes of a span, read forwards by one consumer; a context manager.

    The consumer may change threads between calls, but only one thread may call at a time.

    Args:
        span: The bytes that may be requested.
        prefetcher: Sends the requests of this stream and the following ones. None for one of its
            own.
    """

    def __init__(self, span: ByteSpan, prefetcher: RangePrefetcher | None = None) -> None:
        self._span = span
        self._reader = span.reader
        self._prefetcher = RangePrefetcher() if prefetcher is None else prefetcher
        self._is_alone = prefetcher is None
        self._planned = self._prefetcher.start(span)
        self._ranges: deque[tuple[int, memoryview]] = deque()  # (position, bytes), in order
        self._current_start = span.start  # first byte that can still be read
        self._current = _EMPTY  # the first of the ranges, if any; it starts at `_current_start`
        self._closed = False
        self._is_unsure = False  # whether an answer did not name its version
        self.first: RangeContent | None = None
        """The first answer without its bytes; None until it has arrived."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the stream; without an error, check that its bytes are of one version.

        Raises:
            MissingObjectError: The object does not exist any more.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused the request or kept failing.
        """
        self.close()
        # Not after an error or an early stop: a HEAD would delay the caller.
        if exc_info[0] is None:
            self._check_version()

    def close(self) -> None:
        """Drop all bytes and cancel prefetched ranges, without waiting for requests in flight."""
        self._closed = True
        self._current = _EMPTY
        self._ranges.clear()
        self._prefetcher.finish(self._planned)
        if self._is_alone:
            self._prefetcher.close()

    def at(self, position: int, length: int) -> tuple[memoryview, int]:
        """Return the object's bytes `[position, position + length)`.

        Positions must not go back to a range that an earlier call has passed; the same position
        with a greater length is allowed. Skipped bytes are not requested, unless their range was
        already in flight.

        Args:
            position: First byte, in bytes from the object's start.
            length: Number of bytes.

        Returns:
            A read-only view and an index into it: the bytes are `view[index:index + length]`.
            Usually the view is the whole received range, so that the caller can use the bytes after
            it too. Bytes that span ranges are joined into a view that contains nothing else.

        Raises:
            TruncatedObjectError: The object ends before `position + length`; `offset` is its
                length.
            OptionError: The stream has passed these bytes, ends before them, or is closed.
            MissingObjectError: There is no such object.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused the request or kept failing.
        """
        index = position - self._current_start
        if 0 <= index <= index + length <= len(self._current):
            return self._current, index
        return self._advance(position, length)

    def _advance(self, position: int, length: int) -> tuple[memoryview, int]:
        self._check(position, length)
        if not length:
            return _EMPTY, 0
        self._drop_before(position)
        stop = position + length
        while not self._ranges or self._ranges[-1][0] + len(self._ranges[-1][1]) < stop:
            self._take()
        self._current = self._ranges[0][1]
        index = position - self._current_start
        if index + length <= len(self._current):
            return self._current, index
        parts = [
            view[max(position - start, 0) : max(stop - start, 0)] for start, view in self._ranges
        ]
        return memoryview(b"".join(parts)), 0

    def _check(self, position: int, length: int) -> None:
        stop, end = position + length, self._span.stop
        if stop > end == self._reader.size_bytes:
            message = f"bytes up to {stop} of an object of {counted(end, 'byte')}"
            raise TruncatedObjectError(message, object_key=self._reader.name, offset=end)
        message = ""
        if self._closed:
            message = "the stream is closed"
        elif position < self._current_start or length < 0:
            length_text = counted(length, "byte")
            message = f"{length_text} at {position}: the stream has passed {self._current_start}"
        elif stop > end:
            message = f"bytes up to {stop} of a stream that ends at {end}"
        if message:
            raise OptionError(message, object_key=self._reader.name, offset=position)

    def _drop_before(self, position: int) -> None:
        while self._ranges and self._ranges[0][0] + len(self._ranges[0][1]) <= position:
            self._ranges.popleft()
        if self._ranges:
            self._current_start, self._current = self._ranges[0]
        else:
            self._current_start = self._prefetcher.skip_to(self._planned, position)
            self._current = _EMPTY

    def _take(self) -> None:
        """Take the next range; one that fails stays pending, so the next call fails likewise."""
        request, content = self._prefetcher.next_range(self._planned)
        if self.first is None:
            if self._reader.version is None and content.version is not None:
                self._reader = replace(self._reader, version=content.version)
            self.first = replace(content, data=b"")
        elif self._span.reader.version is None:
            # It was requested before the first answer named the version.
            check_version(self._reader.name, self._reader.version, content.version)
        self._is_unsure |= content.version is None
        if request.stop == self._span.stop:
            self._check_version()
        self._prefetcher.advance(self._planned)
        self._ranges.append((request.start, memoryview(content.data)))

    def _check_version(self) -> None:
        """Check the version with a HEAD if an answer since the last check did not name its own."""
        if self._is_unsure:
            self._reader.check_version()
            self._is_unsure = False
