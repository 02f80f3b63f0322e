"""What statistics know of transactions need not be read, and is what reading would find."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog, open_topic
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.reading import read
from tests.support.reference import TXN_ABORT, TXN_COMMIT
from tests.support.statistics import analyzed

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.scan.topic_scan import Scan

_KINDS: Final = {1: TXN_COMMIT, 2: TXN_ABORT, 3: TXN_COMMIT}
"""What becomes of transactions, by the lower half of their ids."""
COLUMNS: Final = ["__ledger_id__", "__entry_id__", "__txn_id__"]
_PIECES: Final = st.lists(
    st.tuples(
        st.sampled_from(("message", "message", "marker", "single")), st.sampled_from((1, 2, 3))
    ),
    min_size=1,
    max_size=3,
)


def _entry(least: int | None = None, key: str | None = None) -> bytes:
    message = Message(payload=b"t", partition_key=key)
    if least is None:
        return encode_entry([message], batched=False)
    return encode_entry([message], batched=False, txnid_most_bits=9, txnid_least_bits=least)


def _marker(least: int) -> bytes:
    return encode_marker(_KINDS[least], txn_id=(9, least))


def _encoded(pieces: list[tuple[str, int]]) -> list[bytes]:
    return [
        _marker(least) if kind == "marker" else _entry(least if kind == "message" else None)
        for kind, least in pieces
    ]


def _read(scan: Scan, task_bytes: int) -> tuple[pa.Table, tuple[int, ...]]:
    """The rows of a scan whose tasks went to another process, and what became of the others."""
    metrics = ReadMetrics()
    rows = read(scan, pickle.loads(pickle.dumps(scan.plan(task_bytes))), metrics)
    told = metrics.aborted_messages, metrics.open_messages, metrics.open_transactions
    return rows, told


@given(
    ledgers=st.lists(_PIECES, min_size=2, max_size=4),
    zone_bytes=st.sampled_from((1, 1, 200, 1 << 20)),
    block_bytes=st.sampled_from((1, 1, 200)),
    task_bytes=st.sampled_from((1, 1, 300)),
    data=st.data(),
)
def test_outcomes_are_those_that_are_read(
    *,
    ledgers: list[list[tuple[str, int]]],
    zone_bytes: int,
    block_bytes: int,
    task_bytes: int,
    data: st.DataObject,
) -> None:
    """Whatever is known, in whichever order messages and markers stand, and however it is cut."""
    entries = [(number, _encoded(each)) for number, each in enumerate(ledgers)]
    every = {*range(len(ledgers))}
    some = st.sets(st.sampled_from(sorted(every)), min_size=1)
    known = data.draw(st.just(every) | some, label="known ledgers")
    options: dict[str, Any] = {"value": "raw", "columns": COLUMNS}
    if data.draw(st.integers(0, 3), label="bound") == 0:
        options["start"] = (data.draw(st.sampled_from(sorted(every))), 1)
    with (
        memory_bucket(offload(entries, block_bytes=block_bytes)) as bucket,
        memory_bucket({}) as folder,
    ):
        analyzed(bucket.url, TOPIC, folder.url, zone_bytes=zone_bytes, ledger_ids=known)
        without = _read(open_topic(bucket.url, TOPIC, **options).scan, task_bytes)
        scan = open_topic(bucket.url, TOPIC, statistics=folder.url, **options).scan
        given_ = _read(scan, task_bytes)

    assert given_ == without


@pytest.mark.parametrize("zone_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("ledgers", "known"),
    [
        ("p|m|p", {0, 1, 2}),
        ("p|m|p", {0, 2}),
        ("p|m|p", {0, 1}),
        ("p|p|m|p", {3}),
        ("p|p|p|m", {0, 2, 3}),
        ("p|pm|p|m", {0, 1, 2, 3}),
        ("p m|p", {0, 1}),
        ("pm", {0}),
        ("pmp", {0}),
        ("pmp| m", {0, 1}),
    ],
)
def test_messages_behind_a_marker(ledgers: str, known: set[int], zone_bytes: int) -> None:
    """A transaction that ends by itself may still be written to; each task sees what it reads."""
    pieces = {"p": ("message", 1), "m": ("marker", 1), " ": ("single", 1)}
    entries = [
        (n, _encoded([pieces[x] for x in each])) for n, each in enumerate(ledgers.split("|"))
    ]
    with memory_bucket(offload(entries, block_bytes=1)) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url, zone_bytes=zone_bytes, ledger_ids=known)
        options: dict[str, Any] = {"value": "raw", "columns": COLUMNS}
        without = _read(open_topic(bucket.url, TOPIC, **options).scan, 1)
        scan = open_topic(bucket.url, TOPIC, statistics=folder.url, **options).scan

        assert _read(scan, 1) == without


@pytest.mark.parametrize(("most_mentions", "count"), [(2, 0), (3, 3)])
def test_no_more_mentions_are_looked_through(most_mentions: int, count: int) -> None:
    """The first ledger mentions three transactions, and the second one their markers."""
    entries = [
        (0, _encoded([("message", n) for n in (1, 2, 3)])),
        (1, _encoded([("marker", n) for n in (1, 2, 3)])),
    ]
    with (
        memory_bucket(offload(entries)) as bucket,
        memory_bucket({}) as folder,
        patch("connector.scan.outcomes._MAX_MENTIONS", most_mentions),
    ):
        analyzed(bucket.url, TOPIC, folder.url)
        scan = open_topic(bucket.url, TOPIC, statistics=folder.url, value="raw").scan
        [each] = scan.reads()

        assert len(each.outcomes) == count
        assert read(scan).num_rows == 2


def test_tasks_carry_no_more_than_so_many() -> None:
    """Of others they look for the markers."""
    kinds = [("message", n) for n in (1, 2, 3)] + [("marker", n) for n in (1, 2, 3)]
    with memory_bucket(offload([(0, _encoded(kinds))])) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        scan = open_topic(bucket.url, TOPIC, statistics=folder.url, value="raw").scan
        for most in (0, 2):
            with patch("connector.scan.outcomes._MAX_OUTCOMES", most):
                [each] = replace(scan).reads()
            assert len(each.outcomes) == most
            assert read(scan).num_rows == 2


def _data_requests(
    ledgers: list[list[bytes]], row_filter: pc.Expression | None = None, *, known: bool
) -> tuple[pa.Table, list[int], ReadMetrics]:
    """The rows of a topic, the ledgers of which each request for data was, and the metrics."""
    trace = RequestTrace(keep_records=True)
    metrics = ReadMetrics()
    with memory_bucket(offload(list(enumerate(ledgers)))) as bucket, memory_bucket({}) as folder:
        if known:
            analyzed(bucket.url, TOPIC, folder.url)
        dataset = open_topic(
            bucket.url,
            TOPIC,
            catalog=open_catalog(bucket.url, trace=trace),
            statistics=folder.url if known else None,
            value="raw",
            columns=COLUMNS,
        )
        scan = dataset.scan if row_filter is None else dataset.scan.where(row_filter)
        rows = read(scan, scan.plan(1), metrics)
    fetched = [
        int(each.name.rpartition("-")[2])
        for each in trace.records
        if each.kind is RequestKind.RANGE_GET and not each.name.startswith("zones-")
    ]
    return rows, fetched, metrics


LONG: Final = [
    [_entry(1, "wanted"), *[_entry(1, "other")] * 9],
    [_entry(1, "other")] * 9,
    [_marker(1), _entry(None, "other")],
]
"""A transaction that is committed two ledgers behind."""
WANTED: Final = pc.field("__key__") == "wanted"


def test_the_marker_of_a_row_is_not_looked_for() -> None:
    """Of a transaction through which a read without statistics has to go for it."""
    expected, without, _ = _data_requests(LONG, WANTED, known=False)
    rows, fetched, _ = _data_requests(LONG, WANTED, known=True)

    assert rows.equals(expected)
    assert rows.num_rows == 1
    assert fetched == [0]
    assert {*without} == {0, 1, 2}


def test_an_open_transaction_is_not_read_to_the_end() -> None:
    """It is told as open all the same."""
    ledgers = [*LONG[:2], [_entry(None, "other")]]

    rows, fetched, metrics = _data_requests(ledgers, WANTED, known=True)

    assert rows.num_rows == 0
    assert (metrics.open_messages, metrics.open_transactions) == (1, 1)
    assert fetched == [0]


def test_a_full_read_fetches_nothing_twice() -> None:
    """Tasks end where their ranges do."""
    expected, without, _ = _data_requests(LONG, known=False)
    rows, fetched, _ = _data_requests(LONG, known=True)

    assert rows.equals(expected)
    assert fetched == [0, 1, 2]
    assert len(without) > len(fetched)
