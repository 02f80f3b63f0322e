"""Counts of the requests sent to a store and of the bytes that came back or were written.

A `RequestTrace` is handed to whatever sends requests; its `counts` is a plain value that can be
added up and sent between processes. A request that the store refused, or that was sent once more
after a failure, counts each time. What a file-system library does by itself (s3fs asks again after
some errors, a listing of more than 1,000 keys takes several pages) is not seen here.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum


class RequestKind(StrEnum):
    """What a request is for."""

    LIST = "list"
    HEAD = "head"
    INDEX_GET = "index get"
    """A whole object, as index objects are read."""
    RANGE_GET = "range get"
    """A range of an object, as data objects are read."""
    PUT = "put"
    """To write a whole object, as index objects are written."""
    UPLOAD = "upload"
    """To begin or to complete an object that is written in parts, as data objects are."""
    PART = "part"
    """To write one part of an object."""
    DELETE = "delete"
    """To delete an object, or what was written of one that is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """How many requests were sent, and how many bytes of objects they brought or wrote.

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
        """Bytes of objects that came back; listings and headers are not counted."""
        return self.index_bytes + self.range_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of objects that the store took; a part that was written twice counts twice."""
        return self.put_bytes + self.part_bytes


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was sent."""

    kind: RequestKind
    name: str
    """Name of the object within its location; empty for a listing."""
    start: int | None = None
    """First byte of the range or part; None if the request is about neither."""
    stop: int | None = None
    """Byte behind the last one."""


class RequestTrace:
    """Counts requests and bytes; any number of threads may use one trace at once.

    A copy made by pickling starts empty; what was counted in another process comes back as
    `RequestCounts`.

    Args:
        keep_records: Also keep a `RequestRecord` of each request. For tests and for looking
            closely: the list grows with each request.
    """

    def __init__(self, *, keep_records: bool = False) -> None:
        self._keep_records = keep_records
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
        """Count one request; to be called before it is sent.

        Args:
            kind: What it is for.
            name: Name of the object within its location; empty for a listing.
            start: First byte of the range or part, if the request is about one.
            stop: Byte behind the last one (half-open).
        """
        with self._lock:
            self._requests[kind] += 1
            if self._keep_records:
                self._records.append(RequestRecord(kind, name, start, stop))

    def note_received_bytes(self, kind: RequestKind, size_bytes: int) -> None:
        """Count the bytes that a request brought, in bytes."""
        with self._lock:
            self._bytes[kind] += size_bytes

    def note_written_bytes(self, kind: RequestKind, size_bytes: int) -> None:
        """Count the bytes that a request wrote, in bytes; to be called when the store has them."""
        with self._lock:
            self._bytes[kind] += size_bytes

    @property
    def counts(self) -> RequestCounts:
        """What was counted until now."""
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
        """Every request in the order of sending; empty unless `keep_records` was asked for."""
        with self._lock:
            return tuple(self._records)


def _empty_trace(keep_records: bool) -> RequestTrace:  # noqa: FBT001 - called by pickle alone
    return RequestTrace(keep_records=keep_records)
