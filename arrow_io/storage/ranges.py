"""Complete ranges of one object.

The length of the object is the one in its index object (`data_object_length` of PIP-17). A short
answer is continued where it stopped. Only a HEAD can establish that the object ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError, StorageError, TruncatedObjectError
from arrow_io.storage.object_store import RangeContent

if TYPE_CHECKING:
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_memory import RangeMemory


@dataclass(frozen=True)
class RangeReader:
    """A reader of one object's ranges. Can be pickled; holds no connection and no bytes."""

    location: Location
    name: str
    """Name of the object within the location."""
    size_bytes: int
    """Length that the object must have, in bytes, according to its index object."""
    version: ObjectVersion | None = None
    """The listed version of the object (`ObjectInfo.version`); None if unknown."""

    def __post_init__(self) -> None:
        """Raise `OptionError` if the size is negative."""
        if self.size_bytes < 0:
            message = f"size_bytes must be at least 0, not {self.size_bytes}"
            raise OptionError(message, object_key=self.name)

    def read(self, start: int, stop: int) -> bytes:
        """Read the bytes `[start, stop)`, one request after the other.

        Args:
            start: First byte, in bytes from the object's start.
            stop: End of the range (exclusive); if it equals `start`, nothing is requested.

        Returns:
            Exactly `stop - start` bytes.

        Raises:
            TruncatedObjectError: `stop` is greater than `size_bytes`, or the object ends before
                `stop`; `offset` is where it ends.
            MissingObjectError: There is no such object.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused a request, kept failing, or sent too few bytes per
                second; `offset` is the first missing byte.
            OptionError: `start` is negative, or greater than `stop`.
        """
        return bytes(self.read_content(start, stop).data)

    def read_content(
        self, start: int, stop: int, memory: RangeMemory | None = None
    ) -> RangeContent:
        """Like `read`, but also return what the first answer reported about the object.

        `memory` provides memory for the bytes; None to allocate it for each range.
        """
        self._check_range(start, stop)
        content = RangeContent(b"", None, self.version)
        parts: list[bytes | memoryview] = []
        retry, start_s, first = self.location.retry, self.location.retry.clock(), start
        while start < stop:
            request_stop = min(start + self.location.longest_range_bytes, stop)
            # All pieces of a range must be of one version.
            version = self.version or content.version
            part = self.location.read_range(
                self.name, start, request_stop, version=version, memory=memory
            )
            content = content if parts else part
            parts.append(part.data)
            start += len(part.data)
            if start < stop and retry.is_too_late(start_s, start - first):
                came = counted(start - first, "byte")
                message = f"{came} took longer than {retry.deadline_s:g} s plus the time for them"
                raise StorageError(message, object_key=self.name, offset=start)
        return content if len(parts) == 1 else replace(content, data=b"".join(parts))

    def span(self, start: int, stop: int, *, sure_stop: int | None = None) -> ByteSpan:
        """Return the span of the bytes `[start, stop)`, for a stream.

        Args:
            start: First byte, in bytes from the object's start.
            stop: End of the bytes that may be read (exclusive).
            sure_stop: End of the bytes that will certainly be read (exclusive). None for `stop`.

        Raises:
            TruncatedObjectError: `stop` is greater than `size_bytes`.
            OptionError: `start` is negative, or greater than `stop`.
        """
        self._check_range(start, stop)
        return ByteSpan(self, start, stop, stop if sure_stop is None else sure_stop)

    def check_version(self) -> None:
        """Check that the object still has its listed version, if that is known.

        Raises:
            MissingObjectError: There is no such object.
            ObjectChangedError: The object was replaced.
            StorageError: The store refused the request or kept failing.
        """
        if self.version is not None:
            self.location.check_version(self.name, self.version)

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop:
            message = f"invalid range of bytes: [{start}, {stop})"
            raise OptionError(message, object_key=self.name)
        if stop > self.size_bytes:
            message = f"bytes up to {stop} of an object of {counted(self.size_bytes, 'byte')}"
            raise TruncatedObjectError(message, object_key=self.name, offset=self.size_bytes)


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes of one object that a stream will read.

    Attributes:
        reader: The object's reader.
        start: First byte, in bytes from the object's start.
        stop: End of the bytes that may be read (exclusive).
        sure_stop: End of the bytes that will certainly be read (exclusive).
    """

    reader: RangeReader
    start: int
    stop: int
    sure_stop: int
