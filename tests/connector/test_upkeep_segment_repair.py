"""`connector.upkeep.segment_repair`: an index object that is rebuilt is the one that was lost."""

from __future__ import annotations

import itertools
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    ChecksumError,
    FormatError,
    IncompleteReadWarning,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.streaming_index import read_segment_index
from arrow_io.messages import layout
from arrow_io.read_report import ReadReport
from arrow_io.segment_walk import walk_segment
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestKind, RequestTrace
from arrow_io.tally import Tally
from connector import open_topic
from connector.upkeep.attempt import FROM_METADATA, IS_SOUND
from connector.upkeep.audit import audit
from connector.upkeep.findings import REPAIRABLE
from connector.upkeep.repair import plan_repair, repair
from tests.support.buckets import TOPIC
from tests.support.reading import read
from tests.support.segment_repairs import (
    SCENE,
    content_of,
    each_golden,
    golden_topic,
    ledgers_of,
    lose_indexes,
    repaired,
    said,
    without_metadata,
)
from tests.support.stopping_store import Killed, stopping
from tests.support.streamed_topics import Streamed, streamed
from tests.support.streaming import (
    GoldenSegment,
    golden_segments,
    stream_ledgers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


_FEW: Final = 13
"""Every so manieth place is tried."""


@each_golden
@pytest.mark.parametrize("verify", [False, True])
def test_every_golden_index_is_rebuilt(golden: GoldenSegment, *, verify: bool) -> None:
    """Not a byte differs from what Pulsar wrote, and what its writer lost is counted."""
    with golden_topic(golden) as topic:
        index_name = f"{golden.uuid}-index"
        topic.bucket.delete(index_name)
        (found,) = repaired(topic, verify=verify)
        assert content_of(topic, index_name) == golden.index
        assert {each.metadata_from for each in found.ledgers} == {FROM_METADATA}
        groups = golden.open().index.groups
        assert [each.ledger_id for each in found.ledgers] == [each.ledger_id for each in groups]
        assert [each.blocks for each in found.ledgers] == [len(each.rows) for each in groups]
        assert sum(each.entries for each in found.ledgers) == len(golden.entries) - found.missing
        assert found.missing == (2 if golden.is_damaged else 0)
        (again,) = repaired(topic, groups[0].ledger_id)
        assert (again.index, again.refusal) == (None, IS_SOUND)


def _damaged(index: bytes, step: int = _FEW) -> Iterator[bytes]:
    for place in range(0, len(index), step):
        for flip in (0xFF, 0x01):
            yield index[:place] + bytes([index[place] ^ flip]) + index[place + 1 :]
    for length in range(0, len(index), step):
        yield index[:length]


def _says_less(golden: GoldenSegment, data: bytes) -> bool:
    """Whether an index object is Pulsar's, but for ledgers that it says were open."""
    sound = {each.ledger_id: each for each in golden.open().index.groups}
    index = read_segment_index(data, object_key="")
    return len(index.groups) == len(sound) and all(
        replace(group, index_bytes=0)
        in {
            replace(sound[group.ledger_id], index_bytes=0),
            replace(sound[group.ledger_id], index_bytes=0, size_bytes=None, timestamp_ms=None),
        }
        for group in index.groups
    )


def _check_damaged(golden: GoldenSegment, step: int) -> None:
    with golden_topic(golden) as topic:
        index_name = f"{golden.uuid}-index"
        ids = golden.open().ledger_ids
        for damaged in _damaged(golden.index, step):
            topic.bucket.put({index_name: damaged})
            repaired(topic, *ids)
            rebuilt = content_of(topic, index_name)
            # A field that is unknown may be of another version, and the ledger have been open then.
            assert rebuilt == golden.index or _says_less(golden, rebuilt)


@each_golden
def test_an_index_damaged_anywhere_is_repaired(golden: GoldenSegment) -> None:
    """Whichever byte is flipped, and wherever it is cut."""
    _check_damaged(golden, _FEW)


@pytest.mark.exhaustive
@each_golden
def test_an_index_damaged_at_each_byte_is_repaired(golden: GoldenSegment) -> None:
    """As above, at every place."""
    _check_damaged(golden, 1)


@each_golden
def test_without_metadata_the_damaged_index_says_what_it_can(golden: GoldenSegment) -> None:
    """What it does not is said as of an open ledger; and a cut segment is never made whole."""
    name, index_name = str(golden.uuid), f"{golden.uuid}-index"
    with golden_topic(golden) as topic:
        count = 0
        for damaged in _damaged(golden.index):
            topic.bucket.put({index_name: damaged})
            for found in plan_repair(without_metadata(topic)):
                if found.index is None:
                    assert type(found.error) is TruncatedObjectError
                    assert len(damaged) < 16
                    continue
                count += 1
                assert _says_less(golden, found.index.data)
        assert count > 5
        topic.bucket.put({index_name: golden.index[:30], name: golden.data[:-4096]})
        (found,) = plan_repair(without_metadata(topic))
        assert found.index is None


def _outcome(topic: Streamed) -> object:
    """The rows of a topic, or the error; and the rows that are saved, and what is counted."""
    columns = ["__ledger_id__", "__entry_id__", "__value__"]
    strict: Any
    try:
        catalog = topic.catalog()
        strict = read(open_topic(topic.bucket.url, TOPIC, catalog=catalog, columns=columns).scan)
    except PulsarOffloadError as error:
        strict = type(error), error.args, vars(error)
    report = ReadReport()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        opened = open_topic(
            topic.bucket.url,
            TOPIC,
            catalog=topic.catalog(),
            columns=columns,
            on_corruption="salvage",
        )
        rows = read(opened.scan, report=report).to_pylist()
    return strict, rows, dict(report.lost)


@each_golden
def test_goldens_read_as_before(golden: GoldenSegment) -> None:
    """Row by row, error by error."""
    with golden_topic(golden) as topic:
        before = _outcome(topic)
        topic.bucket.delete(f"{golden.uuid}-index")
        repaired(topic)
        after = _outcome(topic)
    assert str(after) == str(before)


@given(
    sizes=st.lists(
        st.lists(st.integers(0, 900), min_size=1, max_size=12).map(tuple), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(1, 40), max_size=4),
    block_bytes=st.sampled_from((200, 500, 4096)),
    block_entries=st.none() | st.integers(1, 5),
    miscounts=st.booleans(),
)
@settings(max_examples=20)
def test_streamed_topics_read_as_before(
    sizes: list[tuple[int, ...]],
    cuts: list[int],
    **options: Any,  # noqa: ANN401
) -> None:
    """Wherever segments end, whatever their writer lost; and each index object is the lost one."""
    written = stream_ledgers(ledgers_of(*sizes), cuts, **options)
    with streamed(written) as topic:
        before = _outcome(topic)
        lost = lose_indexes(topic, written)
        found = repaired(topic, verify=True)
        assert sum(each.missing for each in found) == len(written.lost)
        for name, index in lost.items():
            assert said(content_of(topic, name)) == said(index)
        after = _outcome(topic)
    assert str(after) == str(before)


def test_a_process_that_is_killed_leaves_it_to_the_next() -> None:
    """At whichever request: no index object is there then, and the next run writes it."""
    written = stream_ledgers(ledgers_of((50, 60), (70,)), block_bytes=200)
    kinds = frozenset(RequestKind)
    with streamed(written) as topic:
        for step in itertools.count(1):
            ((index_name, index),) = lose_indexes(topic, written).items()
            catalog = topic.catalog()
            with stopping(step, Killed, once=False, kinds=kinds) as stopped, suppress(Killed):
                list(repair(catalog.location, plan_repair(catalog)))
            if not stopped:
                break
            assert not catalog.location.exists(index_name)
            repaired(topic)
            assert said(content_of(topic, index_name)) == said(index)
        assert step > 5


def test_verifying_compares_checksums() -> None:
    """An entry whose payload is damaged passes all but `verify`."""
    written = stream_ledgers(ledgers_of((50, 60), (70, 80)), block_bytes=200, block_entries=1)
    with streamed(written) as topic:
        (index,) = lose_indexes(topic, written).values()
        (name, sound), *_ = written.objects.items()
        starts = [row.offset for each in said(index)[2] for row in each.rows]
        for start, place in zip(starts, [(10, 0), (10, 1), (20, 0), (20, 1)], strict=True):
            at = start + 140 + 45
            topic.bucket.put({name: sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]})
            (found,) = plan_repair(topic.catalog())
            assert found.index is not None
            (found,) = plan_repair(topic.catalog(), verify=True)
            assert type(found.error) is ChecksumError
            assert (found.error.ledger_id, found.error.entry_id) == place


@each_golden
def test_entries_beside_each_bound_are_read_back(golden: GoldenSegment) -> None:
    """By the new index object, behind the walk."""
    location = Location(str(golden.folder / "objects"))
    walked = walk_segment(RangeReader(location, str(golden.uuid), len(golden.data)))
    with golden_topic(golden) as topic:
        topic.bucket.delete(f"{golden.uuid}-index")
        trace = RequestTrace(keep_records=True)
        (found,) = plan_repair(topic.catalog(trace=trace))
    assert found.index is not None
    starts = {each.start for each in trace.records if each.kind is RequestKind.RANGE_GET}
    assert starts >= {share.blocks[0].start for share in walked.shares}
    assert starts >= {each.last_position for each in walked.blocks if each.entry_count > 1}


def test_an_index_that_contradicts_others_is_found() -> None:
    """Though its own fields agree with each other; the sound ones stay as they are."""
    written = stream_ledgers(ledgers_of((50, 60, 70)), (2,), block_bytes=300)
    assert written.infos[10].offload is not None
    first, second = (str(each.uuid) for each in written.infos[10].offload.segments)
    changed = stream_ledgers(ledgers_of((50, 60, 70, 80)), (2, 3), block_bytes=300)
    with streamed(written) as topic:
        topic.bucket.put({f"{first}-index": changed.objects[f"{first}-index"]})
        found = {str(each.attempt.name.uuid): each for each in repaired(topic)}
        assert found[second].refusal == IS_SOUND
        assert found[first].index is not None
        assert content_of(topic, f"{first}-index") == written.objects[f"{first}-index"]


def test_an_audit_names_what_may_be_repaired() -> None:
    """Segments that the metadata names, whose data objects are there."""
    golden = golden_segments()[0]
    with golden_topic(golden) as topic:
        topic.bucket.delete(f"{golden.uuid}-index")
        for objects in ({}, {f"{golden.uuid}-index": golden.index[:-1]}):
            topic.bucket.put(objects)
            for catalog, is_named in ((topic.catalog(), True), (without_metadata(topic), False)):
                texts = [each.text for each in audit(catalog).findings if not each.topic]
                assert [REPAIRABLE in each for each in texts] == [is_named]


def test_ledgers_that_are_named_choose_segments() -> None:
    """Those that have a share of them, and no others."""
    written = stream_ledgers(ledgers_of((50,), (60, 70), (80,)), (1, 2), block_bytes=300)
    with streamed(written) as topic:
        lose_indexes(topic, written)
        for ids, wanted in (((10,), {(10,)}), ((20,), {(20,), (20, 30)}), ((30,), {(20, 30)})):
            found = list(plan_repair(topic.catalog(), ids))
            assert {each.attempt.ledger_ids for each in found} == wanted
        assert list(plan_repair(topic.catalog(), (99,))) == []


def _entries(topic: Streamed) -> dict[tuple[int, int], bytes]:
    """What the checksum of each sound entry covers, by ledger and entry id."""
    found = {}
    segments = [each.segment for each in topic.catalog().contents.segments if each.segment]
    for share in (share for each in segments for share in each.shares):
        ends = share.first_entry_id, share.last_entry_id
        with suppress(FormatError):
            for run in share.entry_runs(*ends, Tally(), verify_checksums=True):
                for place in range(run.count):
                    if not run.number(place, layout.ERROR):
                        entry_id = run.number(place, layout.ENTRY_ID)
                        found[share.ledger_id, entry_id] = bytes(run.view(place, layout.CHECKED))
    return found


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=20)),
        min_size=1,
        max_size=4,
    ),
    is_own=st.booleans(),
)
@settings(max_examples=60)
def test_hostile_data_never_reads_as_other_entries(
    changes: list[tuple[int, bytes]], *, is_own: bool
) -> None:
    """Whatever bytes are changed, what is rebuilt counts all entries, and has no wrong one."""
    with streamed(SCENE) as topic:
        wanted = _entries(topic)
        lose_indexes(topic, SCENE)
        name = next(each for each in SCENE.objects if not each.endswith("-index"))
        sound = SCENE.objects[name]
        data = bytearray(sound)
        for place, piece in changes:
            start = place % len(sound)
            # A piece of the object itself looks more like a block or an entry than random bytes do.
            own = sound[place % 97 : place % 97 + len(piece)] if is_own else piece
            data[start : start + len(own)] = own
        topic.bucket.put({name: bytes(data[: len(sound)])})
        found = repaired(topic)
        assert _entries(topic).items() <= wanted.items()
        given_count = sum(info.entries or 0 for info in SCENE.infos.values())
        if all(each.index is not None for each in found):
            counts = (ledger.entries + ledger.missing for each in found for ledger in each.ledgers)
            assert sum(counts) == given_count


def test_planning_writes_nothing() -> None:
    """Only `repair` does; a sound bucket has nothing to repair."""
    with streamed(SCENE) as topic:
        assert repaired(topic) == []
        lost = lose_indexes(topic, SCENE)
        catalog = topic.catalog()
        assert all(each.index is not None for each in plan_repair(catalog))
        assert not any(catalog.location.exists(name) for name in lost)
        assert catalog.location.trace.counts.put_requests == 0
