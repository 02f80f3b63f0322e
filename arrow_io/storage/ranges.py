"""The next bytes of one object: ranges, in order, prefetched in threads, never short.

What comes in is a location, the name of a data object and the length that its index object gives
(`data_object_length` of PIP-17); what goes out is read-only views of the bytes asked for. A short
answer is continued where it stopped; that the object ends is believed only when a HEAD says so.
All bytes are of one version of the object: the one that was listed, or else that of the first
answer. If answers do not name their version (only S3, folders and memory do), a HEAD asks for it
before the stream's last range is given, or when the stream is closed before that.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from arrow_io.errors import OptionError, StorageError, TruncatedObjectError
from arrow_io.storage.object_store import ObjectContent
from arrow_io.wording import counted

if TYPE_CHECKING:
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_version import ObjectVersion

DEFAULT_MAX_PREFETCH = 8

_EMPTY = memoryview(b"")


@dataclass(frozen=True)
class RangeReader:
    """Reads one object by ranges.

    A value that can be pickled; it holds no connection and no bytes.
    """

    location: Location
    name: str
    """Name of the object within the location."""
    size_bytes: int
    """Length that the object must have, in bytes, as its index object gives it."""
    max_prefetch: int = DEFAULT_MAX_PREFETCH
    """Most requests of a stream under way at once; 0 or 1: each is sent when it is needed."""
    version: ObjectVersion | None = None
    """Version of the object that was listed (`ObjectInfo.version`); None if that is not known."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            OptionError: A number is out of range.
        """
        for option, least in (("size_bytes", 0), ("max_prefetch", 0)):
            value = getattr(self, option)
            if value < least:
                message = f"{option} must be at least {least}, not {value}"
                raise OptionError(message, object_key=self.name)

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes `[start, stop)`, one request after the other.

        Args:
            start: First byte, in bytes from the object's start.
            stop: Byte behind the last one (half-open); if it is `start`, nothing is requested.

        Returns:
            Exactly `stop - start` bytes.

        Raises:
            TruncatedObjectError: `stop` is beyond `size_bytes`, or the object really ends before
                `stop`; `offset` says where it ends.
            MissingObjectError: There is no such object.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused, or went on failing, or sent too few bytes a second;
                `offset` is the first byte missing.
            OptionError: `start` is negative, or greater than `stop`.
        """
        return self.read_content(start, stop).data

    def read_content(self, start: int, stop: int) -> ObjectContent:
        """As `read`: the bytes, and what the first answer said of the object.

        Raises:
            TruncatedObjectError: As `read`.
            MissingObjectError: As `read`.
            ObjectChangedError: As `read`.
            StorageError: As `read`.
            OptionError: As `read`.
        """
        self._check_range(start, stop)
        content = ObjectContent(b"", None, self.version)
        parts: list[bytes] = []
        retry, begun, first = self.location.retry, self.location.retry.clock(), start
        while start < stop:
            request_stop = min(start + self.location.range_bytes, stop)
            # A range that comes in pieces is of one version, whatever brings the next piece.
            version = self.version or content.version
            part = self.location.read_range(self.name, start, request_stop, version=version)
            content = content if parts else part
            parts.append(part.data)
            start += len(part.data)
            if start < stop and retry.is_too_late(begun, start - first):
                came = counted(start - first, "byte")
                message = f"{came} took longer than {retry.deadline_s:g} s and the time for them"
                raise StorageError(message, object_key=self.name, offset=start)
        return content if len(parts) == 1 else replace(content, data=b"".join(parts))

    def stream(self, start: int, stop: int, *, prefetch_stop: int | None = None) -> RangeStream:
        """Read the bytes `[start, stop)` forwards, fetching ahead.

        Args:
            start: First byte, in bytes from the object's start.
            stop: Byte behind the last one that may be asked for (half-open).
            prefetch_stop: Byte behind the last one that surely will be asked for (half-open); from
                there on, nothing is requested before it is needed. None: `stop`.

        Raises:
            TruncatedObjectError: `stop` is beyond `size_bytes`.
            OptionError: `start` is negative, or greater than `stop`.
        """
        self._check_range(start, stop)
        return RangeStream(self, start, stop, stop if prefetch_stop is None else prefetch_stop)

    def check_version(self) -> None:
        """Ask whether the object is still of the version that was listed, if that is known.

        Raises:
            MissingObjectError: There is no such object.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused, or went on failing.
        """
        if self.version is not None:
            self.location.check_version(self.name, self.version)

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop:
            message = f"not a range of bytes: [{start}, {stop})"
            raise OptionError(message, object_key=self.name)
        if stop > self.size_bytes:
            message = f"bytes up to {stop} of an object of {counted(self.size_bytes, 'byte')}"
            raise TruncatedObjectError(message, object_key=self.name, offset=self.size_bytes)


@dataclass(frozen=True, slots=True)
class _Request:
    start: int
    stop: int
    future: Future[ObjectContent] | None
    """None: to be sent by the consumer's thread when it needs the bytes."""


class RangeStream:
    """The bytes `[start, stop)` of an object, read forwards by one consumer; a context manager.

    Ranges of `Location.range_bytes` are requested in order. The first is requested alone; each time
    the consumer reaches another one, the number of requests under way may double, up to
    `max_prefetch`. So a consumer that stops early has fetched no more than what was under way. At
    most `max_prefetch + 1` ranges are held at once, unless one call asks for more bytes than that.

    File systems that are not asynchronous are read in the consumer's thread alone: local files and
    memory answer faster than a thread can be woken, and others (SFTP, SMB) share one connection,
    which is not safe to use from several threads.

    The consumer may change threads between calls, but only one thread may call at a time.
    """

    def __init__(self, reader: RangeReader, start: int, stop: int, prefetch_stop: int) -> None:
        self._reader = reader
        self._stop = stop
        self._prefetch_stop = prefetch_stop
        self._next = start  # first byte not requested yet
        self._pending: deque[_Request] = deque()
        self._held: deque[tuple[int, memoryview]] = deque()  # (position, bytes), in order
        self._current_start = start  # first byte that can still be asked for
        self._current = _EMPTY  # the first range held, if there is one; it begins there
        self._max_prefetch = reader.max_prefetch if reader.location.is_async else 1
        self._window = 0
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        self._is_unsure = False  # whether an answer did not say its version
        self.first: ObjectContent | None = None
        """What the first answer said of the object, without its bytes; None until it came."""

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the stream; behind a use that went well, ask whether its bytes are of one version.

        Raises:
            MissingObjectError: There is no such object any more.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused, or went on failing.
        """
        self.close()
        # Not behind an error, nor if a consumer gives up: a HEAD would hold them up.
        if exc_info[0] is None:
            self._check_version()

    def close(self) -> None:
        """Drop all bytes and cancel what is prefetched; waits for no request that is under way."""
        self._closed = True
        self._current = _EMPTY
        self._held.clear()
        self._pending.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def at(self, position: int, length: int) -> tuple[memoryview, int]:
        """Give the object's bytes `[position, position + length)`.

        Positions may not go back to a range that an earlier call has left behind; asking again for
        the same position with a greater length is fine. Bytes skipped over are not requested,
        unless their range was already under way.

        Args:
            position: First byte, in bytes from the object's start.
            length: Number of bytes.

        Returns:
            A read-only view and an index into it: the bytes are `view[index:index + length]`. As a
            rule the view is the whole range that came from the store, so that what follows can be
            used too; bytes that straddle ranges are joined into a view that holds nothing else.

        Raises:
            TruncatedObjectError: The object ends before `position + length`; `offset` says where.
            OptionError: The stream has passed these bytes, or ends before them, or is closed.
            MissingObjectError: There is no such object.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused, or went on failing.
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
        while not self._held or self._held[-1][0] + len(self._held[-1][1]) < stop:
            self._take()
        self._current = self._held[0][1]
        index = position - self._current_start
        if index + length <= len(self._current):
            return self._current, index
        parts = [
            view[max(position - start, 0) : max(stop - start, 0)] for start, view in self._held
        ]
        return memoryview(b"".join(parts)), 0

    def _check(self, position: int, length: int) -> None:
        stop = position + length
        if stop > self._stop == self._reader.size_bytes:
            message = f"bytes up to {stop} of an object of {counted(self._stop, 'byte')}"
            raise TruncatedObjectError(message, object_key=self._reader.name, offset=self._stop)
        message = ""
        if self._closed:
            message = "the stream is closed"
        elif position < self._current_start or length < 0:
            asked = counted(length, "byte")
            message = f"{asked} at {position}: the stream has passed {self._current_start}"
        elif stop > self._stop:
            message = f"bytes up to {stop} of a stream that ends at {self._stop}"
        if message:
            raise OptionError(message, object_key=self._reader.name, offset=position)

    def _drop_before(self, position: int) -> None:
        while self._held and self._held[0][0] + len(self._held[0][1]) <= position:
            self._held.popleft()
        while self._pending and self._pending[0].stop <= position:
            request = self._pending.popleft()
            if request.future is not None:
                request.future.cancel()
        if self._held:
            self._current_start, self._current = self._held[0]
        elif self._pending:
            self._current_start, self._current = self._pending[0].start, _EMPTY
        else:
            self._current_start, self._current = position, _EMPTY
            self._next = position

    def _take(self) -> None:
        """Hold the next range; one that fails stays pending, so the next call fails likewise."""
        self._window = min(max(2 * self._window, 1), max(self._max_prefetch, 1))
        self._request_ahead()
        request = self._pending[0]
        content = (
            self._reader.read_content(request.start, request.stop)
            if request.future is None
            else request.future.result()
        )
        if self.first is None:
            # It is asked for alone: those behind it must be of its version.
            self._reader = replace(self._reader, version=self._reader.version or content.version)
            self.first = replace(content, data=b"")
        self._is_unsure |= content.version is None
        if request.stop == self._stop:
            self._check_version()
        self._pending.popleft()
        self._held.append((request.start, memoryview(content.data)))

    def _check_version(self) -> None:
        """Ask for the version, if an answer since the last time did not say its own."""
        if self._is_unsure:
            self._reader.check_version()
            self._is_unsure = False

    def _request_ahead(self) -> None:
        # A range still held takes the place of one under way, but one request is always allowed.
        room = max(min(self._window, self._max_prefetch + 1 - len(self._held)), 1)
        while len(self._pending) < room and self._next < self._stop:
            if self._pending and self._next >= self._prefetch_stop:
                break
            start, self._next = (
                self._next,
                min(self._next + self._reader.location.range_bytes, self._stop),
            )
            # The consumer is about to wait for the first one anyway: it needs no thread.
            future = self._submit(start, self._next) if self._pending else None
            self._pending.append(_Request(start, self._next, future))

    def _submit(self, start: int, stop: int) -> Future[ObjectContent]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._max_prefetch, thread_name_prefix="pulsar-offload-range"
            )
        return self._executor.submit(self._reader.read_content, start, stop)
