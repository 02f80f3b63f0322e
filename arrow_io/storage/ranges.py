"""Ranges of one object, never short.

What comes in is a location, the name of a data object and the length that its index object gives
(`data_object_length` of PIP-17). A short answer is continued where it stopped; that the object ends
is believed only when a HEAD says so.
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
    """Reads one object by ranges.

    A value that can be pickled; it holds no connection and no bytes.
    """

    location: Location
    name: str
    """Name of the object within the location."""
    size_bytes: int
    """Length that the object must have, in bytes, as its index object gives it."""
    version: ObjectVersion | None = None
    """Version of the object that was listed (`ObjectInfo.version`); None if that is not known."""

    def __post_init__(self) -> None:
        """Check the size.

        Raises:
            OptionError: It is negative.
        """
        if self.size_bytes < 0:
            message = f"size_bytes must be at least 0, not {self.size_bytes}"
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
        return bytes(self.read_content(start, stop).data)

    def read_content(
        self, start: int, stop: int, memory: RangeMemory | None = None
    ) -> RangeContent:
        """As `read`: the bytes, and what the first answer said of the object.

        Args:
            start: See `read`.
            stop: See `read`.
            memory: May have memory for the bytes; None: each range has its own.

        Raises:
            TruncatedObjectError: As `read`.
            MissingObjectError: As `read`.
            ObjectChangedError: As `read`.
            StorageError: As `read`.
            OptionError: As `read`.
        """
        self._check_range(start, stop)
        content = RangeContent(b"", None, self.version)
        parts: list[bytes | memoryview] = []
        retry, start_s, first = self.location.retry, self.location.retry.clock(), start
        while start < stop:
            request_stop = min(start + self.location.longest_range_bytes, stop)
            # A range that comes in pieces is of one version, whatever brings the next piece.
            version = self.version or content.version
            part = self.location.read_range(
                self.name, start, request_stop, version=version, memory=memory
            )
            content = content if parts else part
            parts.append(part.data)
            start += len(part.data)
            if start < stop and retry.is_too_late(start_s, start - first):
                came = counted(start - first, "byte")
                message = f"{came} took longer than {retry.deadline_s:g} s and the time for them"
                raise StorageError(message, object_key=self.name, offset=start)
        return content if len(parts) == 1 else replace(content, data=b"".join(parts))

    def span(self, start: int, stop: int, *, sure_stop: int | None = None) -> ByteSpan:
        """The bytes `[start, stop)`, for a stream.

        Args:
            start: First byte, in bytes from the object's start.
            stop: Byte behind the last one that may be asked for (half-open).
            sure_stop: Byte behind the last one that surely will be asked for (half-open). None:
                `stop`.

        Raises:
            TruncatedObjectError: `stop` is beyond `size_bytes`.
            OptionError: `start` is negative, or greater than `stop`.
        """
        self._check_range(start, stop)
        return ByteSpan(self, start, stop, stop if sure_stop is None else sure_stop)

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
class ByteSpan:
    """Bytes of one object that a stream will read.

    Attributes:
        reader: Reads the object.
        start: First byte, in bytes from the object's start.
        stop: Byte behind the last one that may be asked for (half-open).
        sure_stop: Byte behind the last one that surely will be asked for (half-open).
    """

    reader: RangeReader
    start: int
    stop: int
    sure_stop: int
