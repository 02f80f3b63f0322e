"""Requests and bytes are counted by kind, from any thread, and the counts travel."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

from arrow_io.storage.trace import RequestCounts, RequestKind, RequestRecord, RequestTrace


def test_counts_are_kept_by_kind() -> None:
    """Each kind of request has its own number, and each kind of GET its own bytes."""
    trace = RequestTrace()

    trace.note_request(RequestKind.LIST, "")
    trace.note_request(RequestKind.HEAD, "a")
    trace.note_request(RequestKind.INDEX_GET, "a-index")
    trace.note_received_bytes(RequestKind.INDEX_GET, 200)
    trace.note_request(RequestKind.RANGE_GET, "a", 0, 10)
    trace.note_received_bytes(RequestKind.RANGE_GET, 10)
    trace.note_request(RequestKind.RANGE_GET, "a", 10, 15)
    trace.note_received_bytes(RequestKind.RANGE_GET, 5)

    assert trace.counts == RequestCounts(
        list_requests=1,
        head_requests=1,
        index_requests=1,
        range_requests=2,
        index_bytes=200,
        range_bytes=15,
    )
    assert trace.counts.requests == 5
    assert trace.counts.received_bytes == 215


def test_what_is_written_is_counted_by_kind() -> None:
    """Requests that write have numbers of their own, and their bytes are not those that came."""
    trace = RequestTrace()

    trace.note_request(RequestKind.UPLOAD, "a")
    trace.note_request(RequestKind.PART, "a", 0, 10)
    trace.note_request(RequestKind.PART, "a", 0, 10)
    trace.note_written_bytes(RequestKind.PART, 10)
    trace.note_request(RequestKind.UPLOAD, "a")
    trace.note_request(RequestKind.PUT, "a-index")
    trace.note_written_bytes(RequestKind.PUT, 3)
    trace.note_request(RequestKind.DELETE, "a")

    assert trace.counts == RequestCounts(
        put_requests=1,
        upload_requests=2,
        part_requests=2,
        delete_requests=1,
        put_bytes=3,
        part_bytes=10,
    )
    assert trace.counts.requests == 6
    assert (trace.counts.received_bytes, trace.counts.written_bytes) == (0, 13)


def test_counts_add_up() -> None:
    """The sum of two counts has the sum of each field."""
    one = RequestCounts(list_requests=1, head_requests=2, index_requests=3, index_bytes=4)
    other = RequestCounts(list_requests=10, range_requests=20, range_bytes=30, index_bytes=40)

    assert one + other == RequestCounts(
        list_requests=11,
        head_requests=2,
        index_requests=3,
        range_requests=20,
        index_bytes=44,
        range_bytes=30,
    )


def test_counts_are_a_snapshot() -> None:
    """Counts taken earlier do not change."""
    trace = RequestTrace()
    trace.note_request(RequestKind.HEAD, "a")

    counts = trace.counts
    trace.note_request(RequestKind.HEAD, "a")

    assert counts == RequestCounts(head_requests=1)


def test_records_are_kept_only_when_asked_for() -> None:
    """A trace records each request in order if it was made to, else none."""
    trace, silent = RequestTrace(keep_records=True), RequestTrace()

    for each in (trace, silent):
        each.note_request(RequestKind.HEAD, "a")
        each.note_request(RequestKind.RANGE_GET, "a", 3, 9)

    assert trace.records == (
        RequestRecord(RequestKind.HEAD, "a"),
        RequestRecord(RequestKind.RANGE_GET, "a", 3, 9),
    )
    assert silent.records == ()


def test_no_count_is_lost_between_threads() -> None:
    """Threads that count at once count everything."""
    trace = RequestTrace(keep_records=True)

    def send(number: int) -> None:
        for _ in range(500):
            trace.note_request(RequestKind.RANGE_GET, str(number), 0, 1)
            trace.note_received_bytes(RequestKind.RANGE_GET, 1)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(send, range(4)))

    assert trace.counts == RequestCounts(range_requests=2000, range_bytes=2000)
    assert len(trace.records) == 2000


def test_a_pickled_trace_starts_empty() -> None:
    """A copy in another process counts for itself, in the same way."""
    trace = RequestTrace(keep_records=True)
    trace.note_request(RequestKind.HEAD, "a")

    copy = pickle.loads(pickle.dumps(trace))
    copy.note_request(RequestKind.LIST, "")

    assert copy.counts == RequestCounts(list_requests=1)
    assert copy.records == (RequestRecord(RequestKind.LIST, ""),)
    assert trace.counts == RequestCounts(head_requests=1)
