"""With statistics the same rows as without, the same errors, and the same losses."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from arrow_io.errors import IncompleteReadWarning, OptionError, PulsarOffloadError
from arrow_io.read_metrics import ReadMetrics
from connector import open_topic
from connector.filters.row_filters import ArrowFilter
from connector.scan.scanner import TopicScanner
from connector.scan.zone_predicates import PRUNABLE_COLUMNS
from tests.support.buckets import TOPIC, MemoryBucket, memory_bucket, offload
from tests.support.damage import flipped
from tests.support.encryption import key_pair, sealed_entry
from tests.support.expected import COLUMNS
from tests.support.reading import read
from tests.support.row_filters import beside, row_filters
from tests.support.statistics import analyzed
from tests.support.topics import topics

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    import pyarrow as pa

    from connector.scan.topic_scan import Scan
    from tests.support.topics import Topic

_ZONE_BYTES: Final = st.sampled_from((1, 1, 200, 600, 1 << 20))
_BLOCK_BYTES: Final = st.sampled_from((140, 300, 700, 1 << 20))


@dataclass(frozen=True)
class _Read:
    """What comes of a read."""

    rows: pa.Table | None
    error: str | None
    lost: Counter[Any]
    incomplete: int

    @classmethod
    def of(cls, scan: Scan) -> _Read:
        metrics = ReadMetrics()
        rows, error = None, None
        try:
            rows = read(scan, metrics=metrics)
        except PulsarOffloadError as raised:
            error = f"{type(raised).__name__}: {raised}"
        return cls(rows, error, metrics.lost, metrics.incomplete_messages)


def _counted(scan: Scan) -> int | type[PulsarOffloadError]:
    """The number of rows, or the error that counting them raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        try:
            return TopicScanner(scan).count_rows()
        except PulsarOffloadError as error:
            return type(error)


@contextmanager
def _known(objects: dict[str, bytes], zone_bytes: int) -> Iterator[tuple[MemoryBucket, str]]:
    """A bucket with some objects, and a folder with statistics of them."""
    # A ledger that cannot be read leaves no statistics; the folder is there all the same.
    with memory_bucket(objects) as bucket, memory_bucket({"README": b""}) as folder:
        analyzed(bucket.url, TOPIC, folder.url, zone_bytes=zone_bytes)
        yield bucket, folder.url


@st.composite
def _filters(draw: st.DrawFn, rows: pa.Table) -> ArrowFilter | None:
    """Filters at and beside values that occur; None now and then."""
    if draw(st.integers(0, 5)) == 0:
        return None
    values = {}
    for name in PRUNABLE_COLUMNS:
        occurring = [each for each in rows[name].to_pylist() if each is not None]
        if occurring:
            values[name] = beside(occurring)
    if not values:
        return None
    try:
        return ArrowFilter.from_expression(
            draw(row_filters(rows.schema, values, max_leaves=4)), rows.schema
        )
    except OptionError:
        reject()


@st.composite
def _bounds(draw: st.DrawFn, rows: pa.Table) -> dict[str, Any]:
    """Start and end by time or id, at rows or beside them; or none of them."""
    if not rows.num_rows or draw(st.booleans()):
        return {}
    times = beside(rows["__publish_time__"].to_pylist())
    ids = list(
        zip(*(rows[name].to_pylist() for name in ("__ledger_id__", "__entry_id__")), strict=True)
    )
    kind = draw(st.sampled_from((times, times, ids)))
    first, last = sorted((draw(st.sampled_from(kind)), draw(st.sampled_from(kind))))
    return draw(st.sampled_from(({"start": first}, {"end": last}, {"start": first, "end": last})))


def _scan(url: str, row_filter: ArrowFilter | None, **options: Any) -> Scan:  # noqa: ANN401
    scan = open_topic(url, TOPIC, columns=COLUMNS, **options).scan
    return scan if row_filter is None else scan.add_filter(row_filter)


@st.composite
def _damaged(draw: st.DrawFn, objects: dict[str, bytes]) -> dict[str, bytes]:
    """The same objects, some bytes of data objects flipped, or one of them cut."""
    found = dict(objects)
    names = [name for name in objects if not name.endswith("-index")]
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(names))
        data = found[name]
        at = draw(st.integers(0, len(data) - 1))
        if draw(st.integers(0, 4)):
            found[name] = flipped(data, at, draw(st.sampled_from((0x01, 0x80, 0xFF))))
        else:
            found[name] = data[: max(at, 1)]
    return found


@given(
    topic=topics(compacted=False, max_threads=8),
    block_bytes=_BLOCK_BYTES,
    zone_bytes=_ZONE_BYTES,
    transactions=st.sampled_from(("committed", "all")),
    data=st.data(),
)
def test_rows_are_those_without_statistics(
    *,
    topic: Topic,
    block_bytes: int,
    zone_bytes: int,
    transactions: str,
    data: st.DataObject,
) -> None:
    """Whatever is asked for, of chunks, transactions, and times in any order."""
    objects = offload(topic.ledgers, block_bytes=block_bytes)
    with _known(objects, zone_bytes) as (bucket, folder):
        options: dict[str, Any] = {"transactions": transactions}
        whole = read(_scan(bucket.url, None, **options))
        row_filter = data.draw(_filters(whole), label="filter")
        options |= data.draw(_bounds(whole), label="bounds")
        without = _Read.of(_scan(bucket.url, row_filter, **options))
        scan = _scan(bucket.url, row_filter, statistics=folder, **options)
        given = _Read.of(scan)
        counted = _counted(scan)

    assert without.error is None
    assert without.rows is not None
    assert counted == without.rows.num_rows
    assert given == without
    for each in scan.reads():
        assert not each.pruning.problems
        assert not each.pruning.unknown_ledgers


@pytest.mark.filterwarnings("ignore:there are no statistics")
@given(
    topic=topics(compacted=False),
    block_bytes=_BLOCK_BYTES,
    zone_bytes=_ZONE_BYTES,
    salvage=st.booleans(),
    data=st.data(),
)
def test_damage_is_met_as_without_statistics(
    *, topic: Topic, block_bytes: int, zone_bytes: int, salvage: bool, data: st.DataObject
) -> None:
    """What is damaged when statistics are gathered is raised, or lost, as it is without them."""
    sound = offload(topic.ledgers, block_bytes=block_bytes)
    with memory_bucket(sound) as bucket:
        whole = read(_scan(bucket.url, None))
    row_filter = data.draw(_filters(whole), label="filter")
    options = data.draw(_bounds(whole), label="bounds")
    options["on_corruption"] = "salvage" if salvage else "raise"
    with _known(data.draw(_damaged(sound), label="damaged"), zone_bytes) as (bucket, folder):
        try:
            scan = _scan(bucket.url, row_filter, **options)
        except PulsarOffloadError:
            return
        without = _Read.of(scan)
        known = _scan(bucket.url, row_filter, statistics=folder, **options)
        given = _Read.of(known)
        counted, plainly_counted = _counted(known), _counted(scan)

    assert given == without
    assert counted == plainly_counted


@settings(max_examples=settings().max_examples // 4)
@given(topic=topics(compacted=False), has_keys=st.booleans(), data=st.data())
def test_what_is_encrypted_is_read(topic: Topic, has_keys: bool, data: st.DataObject) -> None:
    """With the keys the same rows, and without them the same error."""
    pair = key_pair("P-256")
    is_sealed = iter(
        data.draw(st.lists(st.booleans(), min_size=200, max_size=200), label="which are encrypted")
    )
    ledgers = [
        (
            ledger_id,
            [
                sealed_entry(each, pair, data_key=bytes(32)) if next(is_sealed, False) else each
                for each in entries
            ],
        )
        for ledger_id, entries in topic.ledgers
    ]
    with _known(offload(ledgers), 1) as (bucket, folder):
        whole = read(_scan(bucket.url, None, decryption_keys=pair.keys()))
        row_filter = data.draw(_filters(whole), label="filter")
        options = data.draw(_bounds(whole), label="bounds")
        if has_keys:
            options["decryption_keys"] = pair.keys()
        without = _Read.of(_scan(bucket.url, row_filter, **options))
        given = _Read.of(_scan(bucket.url, row_filter, statistics=folder, **options))

    assert given == without
