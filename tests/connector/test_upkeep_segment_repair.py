"""`connector.upkeep.segment_repair`: an index object that is rebuilt is the one that was lost."""

from __future__ import annotations

import itertools
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    ChecksumError,
    CorruptBlockError,
    FormatError,
    IncompleteReadWarning,
    MissingEntriesError,
    PulsarOffloadError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.index_block import FORMAT_VERSION_KEY, MANAGED_LEDGER_NAME_KEY
from arrow_io.format.streaming_block import StreamingBlockHeader
from arrow_io.format.streaming_index import read_segment_index
from arrow_io.messages import layout
from arrow_io.read_report import ReadReport
from arrow_io.segment_walk import walk_segment
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestKind, RequestTrace
from arrow_io.tally import Tally
from connector import open_catalog, open_topic
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, OffloadSegment
from connector.upkeep.attempt import FROM_DAMAGED, FROM_METADATA, IS_SOUND, MADE_ANEW
from connector.upkeep.audit import audit
from connector.upkeep.findings import REPAIRABLE
from connector.upkeep.repair import plan_repair, repair
from tests.support.buckets import TOPIC, memory_bucket
from tests.support.entries import Framing, Message, encode_entry
from tests.support.offloads import UUID_1
from tests.support.reading import read
from tests.support.stopping_store import Killed, stopping
from tests.support.streamed_topics import Streamed, streamed
from tests.support.streaming import (
    GoldenSegment,
    Part,
    StreamedLedgers,
    golden_segments,
    segment_objects,
    stream_ledgers,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from arrow_io.format.streaming_index import LedgerGroup
    from connector import Catalog
    from connector.upkeep.attempt import Repair

    Change = Callable[[LedgerInfo], LedgerInfo]

_FEW: Final = 13
"""Every so manieth place is tried."""
_goldens = pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)


_FORGED: Final = StreamingBlockHeader(200, 2, 10).serialize() + b"\xfe\xdc\xde\xad" * 300


def _entry(text: str, size: int = 0) -> bytes:
    """An entry, in which a block seems to begin if there is room."""
    payload = text.encode()
    return encode_entry(
        [Message(payload=payload + _FORGED[: max(size - len(payload), 0)])],
        batched=False,
        framing=Framing(),
        producer_name="p",
        sequence_id=0,
        publish_time=1,
    )


def _ledgers(*sizes: tuple[int, ...]) -> list[tuple[int, list[bytes]]]:
    """Ledgers 10, 20, … with entries whose payloads have these lengths."""
    return [
        (10 * number, [_entry(f"{10 * number}:{place}", size) for place, size in enumerate(each)])
        for number, each in enumerate(sizes, 1)
    ]


def _golden_infos(golden: GoldenSegment) -> dict[int, LedgerInfo]:
    """What the metadata says of the ledgers of a golden segment."""
    return {
        group.ledger_id: LedgerInfo(
            ledger_id=group.ledger_id,
            entries=group.entries if group.is_closed else None,
            size_bytes=group.size_bytes,
            timestamp_ms=group.timestamp_ms,
            offload=OffloadContext(
                uuid=None,
                complete=True,
                segments=(
                    OffloadSegment(uuid=golden.uuid, complete=True, end_entry_id=group.entries - 1),
                ),
            ),
        )
        for group in golden.open().index.groups
    }


@contextmanager
def _golden_topic(golden: GoldenSegment) -> Iterator[Streamed]:
    objects = {str(golden.uuid): golden.data, f"{golden.uuid}-index": golden.index}
    with streamed(StreamedLedgers(objects, _golden_infos(golden), set())) as topic:
        yield topic


def _repaired(topic: Streamed, *ledger_ids: int, verify: bool = False) -> list[Repair]:
    catalog = topic.catalog()
    return list(repair(catalog.location, plan_repair(catalog, ledger_ids, verify=verify)))


def _content(topic: Streamed, name: str) -> bytes:
    return Location(topic.bucket.url).read_object(name, max_bytes=1 << 24).data


def _said(index: bytes) -> tuple[int, int, tuple[LedgerGroup, ...]]:
    """What an index object says, in whichever order: that of the tests' writer is by place."""
    read_back = read_segment_index(index, object_key="")
    return read_back.data_object_length_bytes, read_back.data_header_length_bytes, read_back.groups


def _lose_indexes(topic: Streamed, found: StreamedLedgers) -> dict[str, bytes]:
    """Delete all index objects; gives them."""
    lost = {name: each for name, each in found.objects.items() if name.endswith("-index")}
    for name in lost:
        topic.bucket.delete(name)
    return lost


@_goldens
@pytest.mark.parametrize("verify", [False, True])
def test_every_golden_index_is_rebuilt(golden: GoldenSegment, *, verify: bool) -> None:
    """Not a byte differs from what Pulsar wrote, and what its writer lost is counted."""
    with _golden_topic(golden) as topic:
        index_name = f"{golden.uuid}-index"
        topic.bucket.delete(index_name)
        (found,) = _repaired(topic, verify=verify)
        assert _content(topic, index_name) == golden.index
        assert {each.metadata_from for each in found.ledgers} == {FROM_METADATA}
        groups = golden.open().index.groups
        assert [each.ledger_id for each in found.ledgers] == [each.ledger_id for each in groups]
        assert [each.blocks for each in found.ledgers] == [len(each.rows) for each in groups]
        assert sum(each.entries for each in found.ledgers) == len(golden.entries) - found.missing
        assert found.missing == (2 if golden.is_damaged else 0)
        (again,) = _repaired(topic, groups[0].ledger_id)
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
    with _golden_topic(golden) as topic:
        index_name = f"{golden.uuid}-index"
        ids = golden.open().ledger_ids
        for damaged in _damaged(golden.index, step):
            topic.bucket.put({index_name: damaged})
            _repaired(topic, *ids)
            rebuilt = _content(topic, index_name)
            # A field that is unknown may be of another version, and the ledger have been open then.
            assert rebuilt == golden.index or _says_less(golden, rebuilt)


@_goldens
def test_an_index_damaged_anywhere_is_repaired(golden: GoldenSegment) -> None:
    """Whichever byte is flipped, and wherever it is cut."""
    _check_damaged(golden, _FEW)


@pytest.mark.exhaustive
@_goldens
def test_an_index_damaged_at_each_byte_is_repaired(golden: GoldenSegment) -> None:
    """As above, at every place."""
    _check_damaged(golden, 1)


@_goldens
def test_without_metadata_the_damaged_index_says_what_it_can(golden: GoldenSegment) -> None:
    """What it does not is said as of an open ledger; and a cut segment is never made whole."""
    name, index_name = str(golden.uuid), f"{golden.uuid}-index"
    with _golden_topic(golden) as topic:
        count = 0
        for damaged in _damaged(golden.index):
            topic.bucket.put({index_name: damaged})
            for found in plan_repair(_nameless(topic)):
                if found.index is None:
                    assert type(found.error) is TruncatedObjectError
                    assert len(damaged) < 16
                    continue
                count += 1
                assert _says_less(golden, found.index.data)
        assert count > 5
        topic.bucket.put({index_name: golden.index[:30], name: golden.data[:-4096]})
        (found,) = plan_repair(_nameless(topic))
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


@_goldens
def test_goldens_read_as_before(golden: GoldenSegment) -> None:
    """Row by row, error by error."""
    with _golden_topic(golden) as topic:
        before = _outcome(topic)
        topic.bucket.delete(f"{golden.uuid}-index")
        _repaired(topic)
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
    written = stream_ledgers(_ledgers(*sizes), cuts, **options)
    with streamed(written) as topic:
        before = _outcome(topic)
        lost = _lose_indexes(topic, written)
        found = _repaired(topic, verify=True)
        assert sum(each.missing for each in found) == len(written.lost)
        for name, index in lost.items():
            assert _said(_content(topic, name)) == _said(index)
        after = _outcome(topic)
    assert str(after) == str(before)


@_goldens
def test_a_cut_data_object_is_refused_or_told(golden: GoldenSegment) -> None:
    """Wherever it is cut: at each block's start, in a header, an entry, padding."""
    segment, data = golden.open(), golden.data
    starts = segment.starts or tuple(
        each.offset for group in segment.index.groups for each in group.rows
    )
    lengths = {*starts, *range(0, len(data), 499), *(start + 100 for start in starts)}
    with _golden_topic(golden) as topic:
        topic.bucket.delete(f"{golden.uuid}-index")
        for length in sorted(each for each in lengths if each < len(data)):
            topic.bucket.put({str(golden.uuid): data[:length]})
            (found,) = plan_repair(topic.catalog())
            assert found.index is None
            assert isinstance(found.error, (MissingEntriesError, TruncatedObjectError))
            topic.bucket.put({f"{golden.uuid}-index": golden.index})
            told = list(plan_repair(topic.catalog(), segment.ledger_ids))
            assert [each.index for each in told] == [None]
            topic.bucket.delete(f"{golden.uuid}-index")


def test_a_cut_that_lost_entries_may_explain_is_told() -> None:
    """If nothing says how long the ledger was; then all that is behind it is missing."""
    entries = [_entry("0", 200), _entry("1", 300), _entry("2"), _entry("3")]
    segment = write_segment(
        [Part(10, entries, block_entries=[3, 1])], block_bytes=200, miscounts=True
    )
    assert segment.lost == [(10, 2)]
    stop = len(segment.data) - 200
    objects = segment_objects(next(iter(golden_segments())).uuid, segment)
    (name, _), (index_name, _) = objects.items()
    known = _known(name, 3)
    with streamed(StreamedLedgers(objects, {10: known}, set())) as topic:
        topic.bucket.delete(index_name)
        (whole,) = plan_repair(topic.catalog())
        assert (whole.missing, whole.index is not None) == (1, True)
        topic.bucket.put({name: segment.data[:stop]})
        (cut,) = plan_repair(topic.catalog())
        assert cut.index is None or cut.missing == 2
        topic.tell(replace(known, entries=4, size_bytes=sum(map(len, entries))))
        (cut,) = plan_repair(topic.catalog())
        assert type(cut.error) is MissingEntriesError


def _known(name: str, end_entry_id: int | None, **told: Any) -> LedgerInfo:  # noqa: ANN401
    """A ledger, still open, of which one segment has all."""
    segment = OffloadSegment(
        uuid=next(each.uuid for each in golden_segments() if str(each.uuid) == name),
        complete=True,
        end_entry_id=end_entry_id,
    )
    context = OffloadContext(uuid=None, complete=True, segments=(segment,))
    return LedgerInfo(ledger_id=10, offload=context, **told)


def test_a_process_that_is_killed_leaves_it_to_the_next() -> None:
    """At whichever request: no index object is there then, and the next run writes it."""
    written = stream_ledgers(_ledgers((50, 60), (70,)), block_bytes=200)
    kinds = frozenset(RequestKind)
    with streamed(written) as topic:
        for step in itertools.count(1):
            ((index_name, index),) = _lose_indexes(topic, written).items()
            catalog = topic.catalog()
            with stopping(step, Killed, once=False, kinds=kinds) as stopped, suppress(Killed):
                list(repair(catalog.location, plan_repair(catalog)))
            if not stopped:
                break
            assert not catalog.location.exists(index_name)
            _repaired(topic)
            assert _said(_content(topic, index_name)) == _said(index)
        assert step > 5


_SCENE: Final = stream_ledgers(
    _ledgers((50, 300, 20), (500, 40, 60, 80)), (2,), block_bytes=300, miscounts=True
)


def _refusals(*infos: LedgerInfo, **objects: bytes) -> list[Repair]:
    """What becomes of `_SCENE` without index objects, by other metadata and with other objects."""
    with streamed(_SCENE) as topic:
        _lose_indexes(topic, _SCENE)
        topic.bucket.put(objects)
        if infos:
            topic.tell(*infos)
        return list(plan_repair(topic.catalog()))


def _segments_of(info: LedgerInfo, **changed: Any) -> LedgerInfo:  # noqa: ANN401
    """What the metadata says of a ledger, with other segments."""
    assert info.offload is not None
    segments = tuple(replace(each, **changed) for each in info.offload.segments)
    return replace(info, offload=replace(info.offload, segments=segments))


def test_the_scene_is_repaired_as_it_is() -> None:
    """Else the refusals below would prove nothing."""
    first, second = _refusals()
    assert None not in (first.index, second.index)


def test_what_the_metadata_does_not_name_stays_as_it_is() -> None:
    """A segment that failed is not made one of the topic."""
    last = _SCENE.infos[20]
    found = _refusals(replace(_SCENE.infos[10], offload=None), replace(last, offload=None))
    assert {each.refusal for each in found} == {"the metadata of no topic names this offload"}
    found = _refusals(*(_segments_of(each, complete=False) for each in _SCENE.infos.values()))
    told = "the metadata says that this offload is under way, or failed"
    assert {each.refusal for each in found} == {told}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda info: replace(info, entries=3), CorruptBlockError, "the metadata tells of 3"),
        (
            lambda info: _segments_of(replace(info, entries=9), end_entry_id=None),
            MissingEntriesError,
            "4 entries in the data object, 9 by the metadata",
        ),
        (lambda info: replace(info, size_bytes=1), CorruptBlockError, "bytes, 1 by the metadata"),
        (
            lambda info: _segments_of(info, end_entry_id=1),
            CorruptBlockError,
            "is 3, 1 by",
        ),
        (
            lambda info: _segments_of(info, end_entry_id=99),
            MissingEntriesError,
            "is 3, 99 by the metadata",
        ),
        (lambda info: replace(info, ledger_id=21), MissingEntriesError, "has no entry of a ledger"),
    ],
    ids=["fewer", "more", "shorter", "ends before", "ends behind", "another"],
)
def test_other_numbers_of_the_metadata_are_a_refusal(
    change: Change, error: type[PulsarOffloadError], text: str
) -> None:
    """The data object may be another topic's, or was cut."""
    written = stream_ledgers(_ledgers((50,), (500, 40, 60, 80)), block_bytes=300)
    with streamed(written) as topic:
        _lose_indexes(topic, written)
        topic.tell(written.infos[10], change(written.infos[20]))
        (found,) = plan_repair(topic.catalog())
    assert type(found.error) is error
    assert text in found.error.message
    assert found.index is None
    assert found.error.ledger_id in {20, 21}
    if "is 3" in text:
        (data,) = (each for name, each in written.objects.items() if "-index" not in name)
        assert (found.error.entry_id, found.error.offset) == (2 if "1 by" in text else 4, len(data))


def test_entries_that_are_missing_before_a_segment_are_told() -> None:
    """As if its first block had been cut off: the segment before ends where the metadata says."""
    written = stream_ledgers(_ledgers((50, 60, 70, 80)), (1,), block_bytes=200, block_entries=1)
    _, _, name, index_name = written.objects
    stop = read_segment_index(written.objects[index_name], object_key="").groups[0].rows[1].offset
    with streamed(written) as topic:
        topic.bucket.delete(index_name)
        topic.bucket.put({name: written.objects[name][stop:]})
        (found,) = plan_repair(topic.catalog())
    assert type(found.error) is MissingEntriesError
    assert "begins with entry 2 in the data object, behind 0" in found.error.message
    assert (found.error.ledger_id, found.error.entry_id) == (10, 1)


def test_a_damaged_index_is_believed_where_it_fits() -> None:
    """Of a closed ledger its size must be right; of an open one its end counts lost entries."""
    ((_, entries),) = _ledgers((200, 300, 1))
    closed = Part(5, [b"whole"])
    lossy = Part(10, entries, closed_ms=None, block_entries=[3])
    segment = write_segment([closed, lossy], block_bytes=200, miscounts=True)
    assert segment.lost == [(10, 2)]
    name, index_name = segment_objects(UUID_1, segment)
    group = read_segment_index(segment.index, object_key="").groups[0]
    for size in (5, 6):
        index = bytearray(segment.index)
        index[0] ^= 1
        # Behind the fields before it: ledger id, number of entries, then the size.
        assert index[24 + 16 + 4 : 24 + 16 + 6] == b"\x18\x05"
        index[24 + 16 + 5] = size
        with memory_bucket({name: segment.data, index_name: bytes(index)}) as bucket:
            (found,) = plan_repair(open_catalog(bucket.url))
        assert found.index is not None
        first, second = read_segment_index(found.index.data, object_key="").groups
        source = FROM_DAMAGED if size == 5 else MADE_ANEW
        assert [each.metadata_from for each in found.ledgers] == [source, FROM_DAMAGED]
        assert first.timestamp_ms == (group.timestamp_ms if size == 5 else None)
        assert (second.entries, found.missing) == (3, 1)
        assert (found.index.data == segment.index) == (size == 5)


def test_a_damaged_end_of_an_open_ledger_is_not_believed() -> None:
    """If its last block is padded, nothing is behind its last entry."""
    segment = write_segment([Part(10, [b"a", b"b"], closed_ms=None)])
    assert segment.index[42:44] == b"\x10\x02"
    name, index_name = segment_objects(UUID_1, segment)
    for entries in (1, 3):
        damaged = b"\0" + segment.index[1:43] + bytes([entries]) + segment.index[44:]
        with memory_bucket({name: segment.data, index_name: damaged}) as bucket:
            (found,) = plan_repair(open_catalog(bucket.url))
        assert found.index is not None
        assert found.index.data == segment.index
        assert found.ledgers[0].metadata_from == MADE_ANEW


def test_a_ledger_that_begins_elsewhere_ends_as_it_says() -> None:
    """The metadata has its number of entries, and no end in the segment."""
    written = stream_ledgers(_ledgers((50, 60, 70)), (1,))
    *_, index_name = written.objects
    info = _segments_of(written.infos[10], end_entry_id=None)
    with streamed(written) as topic:
        topic.bucket.delete(index_name)
        topic.tell(info)
        (found,) = plan_repair(topic.catalog())
        assert found.index is not None
        topic.tell(replace(info, entries=4))
        (found,) = plan_repair(topic.catalog())
        assert type(found.error) is MissingEntriesError
        assert "is 2, 3 by the number of its entries" in found.error.message


def test_a_damaged_index_says_that_a_full_block_is_all() -> None:
    """If the ledger was closed with its last entry; if it is open, more may have been lost."""
    for closed_ms in (1, None):
        part = Part(10, [bytes(20)] * 4, closed_ms=closed_ms)
        segment = write_segment([part], block_bytes=128 + 4 * 32)
        assert len(segment.data) == 128 + 4 * 32
        name, index_name = segment_objects(UUID_1, segment)
        damaged = b"\0" + segment.index[1:]
        with memory_bucket({name: segment.data, index_name: damaged}) as bucket:
            (found,) = plan_repair(open_catalog(bucket.url))
        assert found.index is not None
        assert found.index.data == segment.index
        # The number of blocks is damaged too: nothing is left but the length.
        damaged = segment.index[:34] + b"\xff" + segment.index[35:]
        with memory_bucket({name: segment.data, index_name: damaged}) as bucket:
            (found,) = plan_repair(open_catalog(bucket.url))
        assert type(found.error) is MissingEntriesError
        assert "nothing says how many" in found.error.message
        assert (found.error.entry_id, found.error.offset) == (4, len(segment.data))


def test_verifying_compares_checksums() -> None:
    """An entry whose payload is damaged passes all but `verify`."""
    written = stream_ledgers(_ledgers((50, 60), (70, 80)), block_bytes=200, block_entries=1)
    with streamed(written) as topic:
        (index,) = _lose_indexes(topic, written).values()
        (name, sound), *_ = written.objects.items()
        starts = [row.offset for each in _said(index)[2] for row in each.rows]
        for start, place in zip(starts, [(10, 0), (10, 1), (20, 0), (20, 1)], strict=True):
            at = start + 140 + 45
            topic.bucket.put({name: sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]})
            (found,) = plan_repair(topic.catalog())
            assert found.index is not None
            (found,) = plan_repair(topic.catalog(), verify=True)
            assert type(found.error) is ChecksumError
            assert (found.error.ledger_id, found.error.entry_id) == place


@_goldens
def test_entries_beside_each_bound_are_read_back(golden: GoldenSegment) -> None:
    """By the new index object, behind the walk."""
    location = Location(str(golden.folder / "objects"))
    walked = walk_segment(RangeReader(location, str(golden.uuid), len(golden.data)))
    with _golden_topic(golden) as topic:
        topic.bucket.delete(f"{golden.uuid}-index")
        trace = RequestTrace(keep_records=True)
        (found,) = plan_repair(topic.catalog(trace=trace))
    assert found.index is not None
    starts = {each.start for each in trace.records if each.kind is RequestKind.RANGE_GET}
    assert starts >= {share.blocks[0].start for share in walked.shares}
    assert starts >= {each.last_position for each in walked.blocks if each.entry_count > 1}


def test_without_an_end_nothing_is_rebuilt() -> None:
    """Neither without metadata, nor if it says neither entries nor the segment's end."""
    written = stream_ledgers(_ledgers((50, 60)), block_bytes=300)
    info = replace(written.infos[10], entries=None, size_bytes=None, timestamp_ms=None)
    with streamed(written) as topic:
        _lose_indexes(topic, written)
        for known in (replace(_segments_of(info, end_entry_id=None)), None):
            if known is not None:
                topic.tell(known)
            catalog = _nameless(topic) if known is None else topic.catalog()
            (found,) = plan_repair(catalog)
            assert type(found.error) is TruncatedObjectError
            assert "nothing says where the segment ends" in found.error.message


def test_what_may_be_lost_and_nothing_counts_is_a_refusal() -> None:
    """Of a ledger that was trimmed, whose last block may have lost entries behind it."""
    written = stream_ledgers(
        _ledgers((200, 300, 1), (60,)), block_bytes=200, block_entries=3, miscounts=True
    )
    assert written.lost
    with streamed(written) as topic:
        _lose_indexes(topic, written)
        topic.tell(written.infos[20])
        (found,) = plan_repair(topic.catalog())
        assert type(found.error) is MissingEntriesError
        assert "nothing says how many there were" in found.error.message
        stop = found.error.offset
        assert stop is not None
        assert (found.error.ledger_id, found.error.entry_id) == (10, 2)
        assert written.objects[str(found.attempt.name.uuid)][stop : stop + 4] == b"\x26\xa6\x6d\x32"


def test_other_segments_say_when_a_ledger_was_closed() -> None:
    """If the metadata does not, as the admin API's answers may not."""
    written = stream_ledgers(_ledgers((50, 60, 70)), (2,), block_bytes=300)
    info = written.infos[10]
    assert info.offload is not None
    first, second = (each.uuid for each in info.offload.segments)
    index = written.objects[f"{first}-index"]
    with streamed(written) as topic:
        topic.tell(replace(info, timestamp_ms=None))
        topic.bucket.delete(f"{first}-index")
        _repaired(topic)
        assert _content(topic, f"{first}-index") == index
        topic.tell(replace(info, entries=None, size_bytes=None, timestamp_ms=None))
        topic.bucket.delete(f"{first}-index")
        (found,) = _repaired(topic)
        assert found.ledgers[0].metadata_from == f"the segment {second}"
        assert _content(topic, f"{first}-index") == index


def test_an_index_that_contradicts_others_is_found() -> None:
    """Though its own fields agree with each other; the sound ones stay as they are."""
    written = stream_ledgers(_ledgers((50, 60, 70)), (2,), block_bytes=300)
    assert written.infos[10].offload is not None
    first, second = (str(each.uuid) for each in written.infos[10].offload.segments)
    changed = stream_ledgers(_ledgers((50, 60, 70, 80)), (2, 3), block_bytes=300)
    with streamed(written) as topic:
        topic.bucket.put({f"{first}-index": changed.objects[f"{first}-index"]})
        found = {str(each.attempt.name.uuid): each for each in _repaired(topic)}
        assert found[second].refusal == IS_SOUND
        assert found[first].index is not None
        assert _content(topic, f"{first}-index") == written.objects[f"{first}-index"]


def test_an_index_of_an_open_ledger_stays_as_it_is() -> None:
    """It is sound though the ledger was closed since; a new one says that it was."""
    (golden,) = (each for each in golden_segments() if each.folder.name.endswith("open"))
    index_name = f"{golden.uuid}-index"
    with _golden_topic(golden) as topic:
        *others, last = topic.infos
        topic.tell(*others, replace(last, entries=12, size_bytes=9999, timestamp_ms=5))
        (found,) = _repaired(topic, last.ledger_id)
        assert found.refusal == IS_SOUND
        topic.bucket.delete(index_name)
        _repaired(topic)
        group = read_segment_index(_content(topic, index_name), object_key="").groups[-1]
        assert (group.entries, group.size_bytes, group.timestamp_ms) == (12, 9999, 5)


def test_an_audit_names_what_may_be_repaired() -> None:
    """Segments that the metadata names, whose data objects are there."""
    golden = golden_segments()[0]
    with _golden_topic(golden) as topic:
        topic.bucket.delete(f"{golden.uuid}-index")
        for objects in ({}, {f"{golden.uuid}-index": golden.index[:-1]}):
            topic.bucket.put(objects)
            for catalog, is_named in ((topic.catalog(), True), (_nameless(topic), False)):
                texts = [each.text for each in audit(catalog).findings if not each.topic]
                assert [REPAIRABLE in each for each in texts] == [is_named]


def _nameless(topic: Streamed) -> Catalog:
    """The bucket without metadata."""
    return open_catalog(topic.bucket.url)


def test_ledgers_that_are_named_choose_segments() -> None:
    """Those that have a share of them, and no others."""
    written = stream_ledgers(_ledgers((50,), (60, 70), (80,)), (1, 2), block_bytes=300)
    with streamed(written) as topic:
        _lose_indexes(topic, written)
        for ids, wanted in (((10,), {(10,)}), ((20,), {(20,), (20, 30)}), ((30,), {(20, 30)})):
            found = list(plan_repair(topic.catalog(), ids))
            assert {each.attempt.ledger_ids for each in found} == wanted
        assert list(plan_repair(topic.catalog(), (99,))) == []


def test_what_the_data_object_is_told_to_be_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user metadata may name a topic and a version; what names none is rebuilt likewise."""
    told = {FORMAT_VERSION_KEY: "1", MANAGED_LEDGER_NAME_KEY: "public/default/persistent/orders"}
    monkeypatch.setattr(Location, "user_metadata", lambda *_: told)
    for found in _refusals():
        assert found.index is not None
        assert found.index.user_metadata[MANAGED_LEDGER_NAME_KEY] == told[MANAGED_LEDGER_NAME_KEY]
    told[MANAGED_LEDGER_NAME_KEY] = "public/default/persistent/others"
    assert {type(each.error) for each in _refusals()} == {CorruptBlockError}
    del told[MANAGED_LEDGER_NAME_KEY]
    for found in _refusals():
        assert found.index is not None
        assert MANAGED_LEDGER_NAME_KEY not in found.index.user_metadata
    told[FORMAT_VERSION_KEY] = "2"
    assert {type(each.error) for each in _refusals()} == {UnknownFormatError}


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
    with streamed(_SCENE) as topic:
        wanted = _entries(topic)
        _lose_indexes(topic, _SCENE)
        name = next(each for each in _SCENE.objects if not each.endswith("-index"))
        sound = _SCENE.objects[name]
        data = bytearray(sound)
        for place, piece in changes:
            start = place % len(sound)
            # A piece of the object itself looks more like a block or an entry than random bytes do.
            own = sound[place % 97 : place % 97 + len(piece)] if is_own else piece
            data[start : start + len(own)] = own
        topic.bucket.put({name: bytes(data[: len(sound)])})
        found = _repaired(topic)
        assert _entries(topic).items() <= wanted.items()
        given_count = sum(info.entries or 0 for info in _SCENE.infos.values())
        if all(each.index is not None for each in found):
            counts = (ledger.entries + ledger.missing for each in found for ledger in each.ledgers)
            assert sum(counts) == given_count


def test_planning_writes_nothing() -> None:
    """Only `repair` does; a sound bucket has nothing to repair."""
    with streamed(_SCENE) as topic:
        assert _repaired(topic) == []
        lost = _lose_indexes(topic, _SCENE)
        catalog = topic.catalog()
        assert all(each.index is not None for each in plan_repair(catalog))
        assert not any(catalog.location.exists(name) for name in lost)
        assert catalog.location.trace.counts.put_requests == 0


def test_a_trimmed_ledger_is_told_as_an_open_one() -> None:
    """The metadata has it no more; the data object says up to where it goes."""
    written = stream_ledgers(_ledgers((50, 60), (70,)))
    with streamed(written) as topic:
        ((index_name, index),) = _lose_indexes(topic, written).items()
        topic.tell(written.infos[20])
        (found,) = _repaired(topic)
        assert [each.metadata_from for each in found.ledgers] == [MADE_ANEW, FROM_METADATA]
        rebuilt = read_segment_index(_content(topic, index_name), object_key="")
        first, second = rebuilt.groups
        assert (first.entries, first.is_closed, second.is_closed) == (2, False, True)
        topic.bucket.put({index_name: index[:-1]})
        (found,) = _repaired(topic)
        assert {each.metadata_from for each in found.ledgers} == {FROM_DAMAGED, FROM_METADATA}
        assert _said(_content(topic, index_name)) == _said(index)
