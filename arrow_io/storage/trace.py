"""Counts of requests sent to a store and of bytes received or written.

A `RequestTrace` is passed to the code that sends requests. Its `counts` is a plain value that can
be added and sent between processes. A refused request and each repeat count too. Not counted are
the pages of a listing after the first, the folders of a tree, and what a file-system library sends
itself, as s3fs does to repeat a request. A page has up to 1,000 names of objects and folders, 5,000
on Azure, and object stores bill each page as a request.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum


class RequestKind(StrEnum):
    """The purpose of a request."""

    LIST = "list"
    HEAD = "head"
    INDEX_GET = "index get"
    """A whole object, as index objects are read."""
    RANGE_GET = "range get"
    """A range of an object, as data objects are read."""
    PUT = "put"
    """Writes a whole object, as index objects are written."""
    UPLOAD = "upload"
    """Starts or completes an object that is written in parts, as data objects are."""
    PART = "part"
    """Writes one part of an object."""
    DELETE = "delete"
    """Deletes an object or the data of an incomplete upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """The number of requests sent, and of bytes of objects received or written.

    Example:
        >>> (RequestCounts(head_requests=1) + RequestCounts(range_requests=2)).requests
        3
    """

    list_requests: int = 0
    head_requests: int = 0
    index_requests: int = 0
    range_requests: int = 0
    put_requests: int = 0
    upload_requests: int = 0
    part_requests: int = 0
    delete_requests: int = 0
    index_bytes: int = 0
    range_bytes: int = 0
    put_bytes: int = 0
    part_bytes: int = 0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        """Add field by field."""
        return RequestCounts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in fields(self)
            }
        )

    @property
    def requests(self) -> int:
        """Number of requests of every kind."""
        return sum(
            getattr(self, field.name) for field in fields(self) if field.name.endswith("_requests")
        )

    @property
    def received_bytes(self) -> int:
        """Bytes of objects that were received; listings and headers do not count."""
        return self.index_bytes + self.range_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of objects that were written; a part that was written twice counts twice."""
        return self.put_bytes + self.part_bytes


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was sent."""

    kind: RequestKind
    name: str
    """Name of the object within its location; empty for a listing."""
    start: int | None = None
    """First byte of the range or part; None for other requests."""
    stop: int | None = None
    """End of the range or part (exclusive)."""


class RequestTrace:
    """A counter of requests and bytes, which several threads may use at once.

    A pickled copy starts empty; the counts of another process come back as `RequestCounts`.

    Args:
        keep_records: Whether to keep a `RequestRecord` of each request too, for tests and
            debugging. The list grows with each request.
        parent: A trace that counts the same requests, and those of other parts. None if there is
            none; a pickled copy has none.
    """

    def __init__(self, *, keep_records: bool = False, parent: RequestTrace | None = None) -> None:
        self._keep_records = keep_records
        self._parent = parent
        self._lock = threading.Lock()
        self._requests: Counter[RequestKind] = Counter()
        self._bytes: Counter[RequestKind] = Counter()
        self._records: list[RequestRecord] = []

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as an empty trace with the same settings."""
        return (_empty_trace, (self._keep_records,))

    def note_request(
        self, kind: RequestKind, name: str, start: int | None = None, stop: int | None = None
    ) -> None:
        """Count one request; call this before it is sent.

        Args:
            kind: Its purpose.
            name: Name of the object within its location; empty for a listing.
            start: First byte of the range or part, if there is one.
            stop: End of the range or part (exclusive).
        """
        if self._parent is not None:
            self._parent.note_request(kind, name, start, stop)
        with self._lock:
            self._requests[kind] += 1
            if self._keep_records:
                self._records.append(RequestRecord(kind, name, start, stop))

    def note_received_bytes(self, kind: RequestKind, size_bytes: int) -> None:
        """Count the bytes that a request received."""
        if self._parent is not None:
            self._parent.note_received_bytes(kind, size_bytes)
        with self._lock:
            self._bytes[kind] += size_bytes

    def note_written_bytes(self, kind: RequestKind, size_bytes: int) -> None:
        """Count the bytes that a request wrote; call this when the store has them."""
        if self._parent is not None:
            self._parent.note_written_bytes(kind, size_bytes)
        with self._lock:
            self._bytes[kind] += size_bytes

    @property
    def counts(self) -> RequestCounts:
        """The counts so far."""
        with self._lock:
            return RequestCounts(
                list_requests=self._requests[RequestKind.LIST],
                head_requests=self._requests[RequestKind.HEAD],
                index_requests=self._requests[RequestKind.INDEX_GET],
                range_requests=self._requests[RequestKind.RANGE_GET],
                put_requests=self._requests[RequestKind.PUT],
                upload_requests=self._requests[RequestKind.UPLOAD],
                part_requests=self._requests[RequestKind.PART],
                delete_requests=self._requests[RequestKind.DELETE],
                index_bytes=self._bytes[RequestKind.INDEX_GET],
                range_bytes=self._bytes[RequestKind.RANGE_GET],
                put_bytes=self._bytes[RequestKind.PUT],
                part_bytes=self._bytes[RequestKind.PART],
            )

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Every request in the order of sending; empty unless `keep_records` is set."""
        with self._lock:
            return tuple(self._records)


def _empty_trace(keep_records: bool) -> RequestTrace:  # noqa: FBT001 - called by pickle alone
    return RequestTrace(keep_records=keep_records)
