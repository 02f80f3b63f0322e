"""Ledgers of streaming offload are known by all the objects that they stand in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import PulsarOffloadError
from arrow_io.format.object_names import SegmentName
from arrow_io.ledgers.segments.ledger import SegmentedLedger
from arrow_io.ledgers.segments.reader import OffloadedSegment
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.location import Location
from connector import copy_topics, open_topic
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, OffloadSegment
from connector.lake.copy_plan import CopySizes
from connector.statistics.analysis import analyze, unknown_ledgers
from connector.statistics.store import open_statistics
from connector.statistics.transactions import RecordedTransactions, ZoneTransactions
from tests.support.buckets import TOPIC, memory_bucket
from tests.support.damage import flipped
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.expected import COLUMNS
from tests.support.reading import read
from tests.support.reference import TXN_COMMIT
from tests.support.statistics import rows_of
from tests.support.streamed_topics import NAME, Streamed, streamed
from tests.support.streaming import (
    GoldenSegment,
    Part,
    Segment,
    StreamedLedgers,
    golden_segments,
    segment_objects,
    stream_ledgers,
    write_segment,
)
from tests.support.topics import topics

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.topic_scan import Scan
    from connector.statistics.store import Statistics
    from tests.support.topics import Topic

_FIRST_MS: Final = 1_700_000_000_000


def _entry(number: int) -> bytes:
    message = Message(payload=b"value", partition_key=f"key-{number}")
    return encode_entry([message], batched=True, publish_time=_FIRST_MS + number)


def _ledgers(topic: Streamed) -> TopicLedgers:
    [found] = topic.catalog().ledgers_of([NAME])
    return found.salvaged()


def _known(topic: Streamed, folder: str) -> Statistics:
    ledgers = [(TOPIC, each) for each in _ledgers(topic).data]
    return analyze(open_statistics(folder), ledgers)


def _scan(topic: Streamed, **options: Any) -> Scan:  # noqa: ANN401 - open_topic's
    given_options = {"columns": COLUMNS} | options
    return open_topic(topic.bucket.url, TOPIC, catalog=topic.catalog(), **given_options).scan


def _rows(
    topic: Streamed,
    asked: pc.Expression,
    **options: Any,  # noqa: ANN401 - open_topic's
) -> tuple[pa.Table | str, dict[Any, int]]:
    """The rows, and how much is lost; or the error."""
    metrics = ReadMetrics()
    try:
        rows = read(_scan(topic, **options).where(asked), metrics=metrics)
    except PulsarOffloadError as error:
        return f"{type(error).__name__}: {error}", {}
    return rows, dict(metrics.lost)


@pytest.fixture(autouse=True)
def _small_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry is a zone."""
    monkeypatch.setattr("connector.statistics.whole_ledgers.ZONE_BYTES", 1)


@pytest.mark.filterwarnings("ignore:there are no statistics")
@settings(max_examples=8, deadline=None)
@given(
    topic=topics(max_threads=3),
    block_bytes=st.sampled_from((200, 500, 1 << 20)),
    damage=st.none() | st.tuples(st.integers(0), st.integers(0)),
    on_corruption=st.sampled_from(("raise", "salvage")),
    data=st.data(),
)
def test_rows_are_those_without_statistics(
    topic: Topic,
    block_bytes: int,
    damage: tuple[int, int] | None,
    on_corruption: str,
    data: st.DataObject,
) -> None:
    """Of ledgers that are cut anywhere, with damage anywhere; and so are losses and errors."""
    total = sum(len(entries) for _, entries in topic.ledgers)
    cuts = data.draw(st.lists(st.integers(1, total), max_size=4))
    found = stream_ledgers(topic.ledgers, cuts, block_bytes=block_bytes)
    if damage is not None:
        names = [each for each in found.objects if not each.endswith("-index")]
        name = names[damage[0] % len(names)]
        found.objects[name] = flipped(found.objects[name], damage[1] % len(found.objects[name]), 1)
    times = sorted({each.delivered.outer["publish_time"] for each in topic.delivered}) or [1]
    at = datetime.fromtimestamp(data.draw(st.sampled_from(times)) / 1000, UTC)
    # A ledger that cannot be read leaves no statistics; the folder is there all the same.
    with streamed(found) as stands, memory_bucket({"README": b""}) as folder:
        _known(stands, folder.url)
        for asked in (
            pc.field("__publish_time__") >= at,
            pc.field("__key__") == "no such key",
            pc.field("__entry_id__") == 1,
        ):
            expected = _rows(stands, asked, on_corruption=on_corruption)
            options: dict[str, Any] = {"statistics": folder.url, "on_corruption": on_corruption}
            assert _rows(stands, asked, **options) == expected
            if damage is None:
                assert not _scan(stands, **options).where(asked).pruning().unknown_ledgers


def _infos_of(golden: GoldenSegment) -> dict[int, LedgerInfo]:
    segments = (OffloadSegment(uuid=golden.uuid, complete=True),)
    context = OffloadContext(uuid=None, complete=True, segments=segments)
    return {
        group.ledger_id: LedgerInfo(
            ledger_id=group.ledger_id,
            entries=group.entries,
            size_bytes=group.size_bytes,
            offload=context,
        )
        for group in golden.open().index.groups
    }


@pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)
def test_golden_segments_are_known(golden: GoldenSegment) -> None:
    """Their rows, losses and errors are the same; ledgers that begin elsewhere are read."""
    objects = segment_objects(golden.uuid, Segment(golden.data, golden.index))
    asked = pc.field("__entry_id__") == 3
    with (
        streamed(StreamedLedgers(objects, _infos_of(golden), set())) as topic,
        memory_bucket({}) as folder,
    ):
        known = _known(topic, folder.url)
        assert {row["object"] for row in rows_of(known, TOPIC)} == {str(golden.uuid)}
        ledgers = _ledgers(topic).data
        assert unknown_ledgers(known, TOPIC, ledgers) == []
        for on_corruption in ("raise", "salvage"):
            options: dict[str, Any] = {"statistics": folder.url, "on_corruption": on_corruption}
            expected = _rows(topic, asked, on_corruption=on_corruption)
            assert _rows(topic, asked, **options) == expected


_GIVEN: Final = [(each, [_entry(10 * each + n) for n in range(9)]) for each in (10, 20)]


def test_what_is_known_is_not_read() -> None:
    """Of each object only what may have a row; rows are counted without any of it."""
    with streamed(stream_ledgers(_GIVEN, (4, 7, 12))) as topic, memory_bucket({}) as folder:
        done = topic.catalog().analyze(folder.url, storage_options={})
        assert [(each.ledger_id, each.zones, each.losses) for each in done] == [
            (10, 9, ()),
            (20, 9, ()),
        ]
        assert topic.catalog().analyze(folder.url, storage_options={}) == []
        scan = _scan(topic, statistics=folder.url).where(pc.field("__key__") == "key-105")
        assert [tuple(each) for read in scan.reads() for each in read.ranges] == [(10, 5, 5)]
        assert read(scan)["__entry_id__"].to_pylist() == [5]
        opened = open_topic(
            topic.bucket.url, TOPIC, catalog=topic.catalog(), statistics=folder.url, value="raw"
        )
        assert opened.count_rows() == 18
        assert opened.metrics.skipped_zones == 18


@pytest.mark.parametrize("place", range(3))
def test_statistics_of_other_objects_are_not_used(place: int) -> None:
    """Not even of those objects of a ledger that are as they were."""
    found = stream_ledgers(_GIVEN, (4, 7))
    with streamed(found) as topic, memory_bucket({}) as folder:
        known = _known(topic, folder.url)
        name = [each for each in found.objects if not each.endswith("-index")][place]
        # The same bytes, written anew.
        topic.bucket.put({name: found.objects[name]})
        ledgers = _ledgers(topic).data
        unknown = [each.ledger_id for each in unknown_ledgers(known, TOPIC, ledgers)]
        assert unknown == ([10, 20] if place == 2 else [10])
        nothing = _scan(topic, statistics=folder.url).where(pc.field("__key__") == "none")
        assert nothing.pruning().unknown_ledgers == len(unknown)
        assert {each.ledger_id for read in nothing.reads() for each in read.ranges} == set(unknown)


def test_a_ledger_that_got_another_object_is_analyzed_again() -> None:
    """What was known of its first object alone is not used, and what is known then is."""
    half = stream_ledgers([(10, _GIVEN[0][1][:4])])
    whole = stream_ledgers(_GIVEN[:1], (4,))
    with streamed(half) as topic, memory_bucket({}) as folder:
        _known(topic, folder.url)
        topic.bucket.put(
            {name: whole.objects[name] for name in set(whole.objects) - set(half.objects)}
        )
        name = next(each for each in half.objects if each.endswith("-index"))
        topic.bucket.put({name: whole.objects[name]})
        topic.tell(*whole.infos.values())
        [done] = topic.catalog().analyze(folder.url, storage_options={})
        assert (done.ledger_id, done.zones) == (10, 9)
        scan = _scan(topic, statistics=folder.url).where(pc.field("__key__") == "none")
        assert not [each for read in scan.reads() for each in read.ranges]


def test_transactions_are_known_if_all_objects_are_sound() -> None:
    """Where one began, and what became of it in another object."""
    begun = encode_entry(
        [Message(payload=b"t")], batched=False, txnid_most_bits=1, txnid_least_bits=2
    )
    marker = encode_marker(TXN_COMMIT, txn_id=(1, 2))
    found = stream_ledgers([(10, [_entry(1), begun, _entry(2), marker]), _GIVEN[1]], (2, 4))
    with streamed(found) as topic, memory_bucket({}) as folder, memory_bucket({}) as other:
        ledgers = _ledgers(topic).data
        known = RecordedTransactions(_known(topic, folder.url), TOPIC)
        assert known.have_transactions(ledgers) == {10: True, 20: False}
        assert known.zones(ledgers, 0) == [
            ZoneTransactions(1, 1, {"(1,2)": 1}, {}),
            ZoneTransactions(3, 3, {}, {"(1,2)": True}),
        ]
        name = next(iter(found.objects))
        position = found.objects[name].index(b"value")
        topic.bucket.put({name: flipped(found.objects[name], position, 1)})
        known = RecordedTransactions(_known(topic, other.url), TOPIC)
        assert known.have_transactions(_ledgers(topic).data) == {20: False}


@pytest.mark.parametrize("task_bytes", [1, 1 << 20])
def test_a_copy_learns_them(task_bytes: int, tmp_path: Path) -> None:
    """What it learns of all objects of a ledger is what analyzing gives."""
    with (
        streamed(stream_ledgers(_GIVEN, (4, 7, 12), block_bytes=300)) as topic,
        memory_bucket({}) as folder,
        memory_bucket({}) as other,
    ):
        [done] = copy_topics(
            topic.bucket.url,
            TOPIC,
            str(tmp_path / "t"),
            format="parquet",
            value="raw",
            catalog=topic.catalog(),
            sizes=CopySizes(task_bytes=task_bytes),
            statistics=folder.url,
            analyze=True,
        )
        assert done.analyzed_ledgers == 2
        expected = rows_of(_known(topic, other.url), TOPIC)
        assert rows_of(open_statistics(folder.url), TOPIC) == expected


def test_a_ledger_may_go_on_in_an_object_behind_another() -> None:
    """Each stretch of it is told by itself."""
    entries = _GIVEN[0][1]
    outer = write_segment([Part(10, entries, block_entries=[3, 3, 3])])
    inner = write_segment([Part(10, entries[4:5], 4)])
    uuids = UUID(int=1), UUID(int=2)
    objects = segment_objects(uuids[0], outer) | segment_objects(uuids[1], inner)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        segments = [
            OffloadedSegment.open(
                Location(bucket.url), SegmentName(each), data_size_bytes=len(objects[str(each)])
            )
            for each in uuids
        ]
        ledger = SegmentedLedger.from_shares(share for each in segments for share in each.shares)
        known = analyze(open_statistics(folder.url), [(TOPIC, ledger)])
        assert unknown_ledgers(known, TOPIC, [ledger]) == []
        ((_, ledgers),) = known.ledgers(TOPIC)
    columns = ("object", "first_entry_id", "last_entry_id", "first_row", "zones")
    outer_name, inner_name = map(str, uuids)
    assert list(zip(*(ledgers[name].to_pylist() for name in columns), strict=True)) == [
        (outer_name, 0, 3, 0, 4),
        (inner_name, 4, 4, 4, 1),
        (outer_name, 5, 8, 5, 4),
    ]
