"""What `connector.upkeep.segment_repair` goes by: what it believes, what it refuses, and why."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    MissingEntriesError,
    PulsarOffloadError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.index_block import FORMAT_VERSION_KEY, MANAGED_LEDGER_NAME_KEY
from arrow_io.format.streaming_index import read_segment_index, serialize_segment_index
from arrow_io.storage.location import Location
from connector import open_catalog
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, OffloadSegment
from connector.topic_name import TopicName
from connector.upkeep.attempt import FROM_DAMAGED, FROM_METADATA, IS_SOUND, MADE_ANEW
from connector.upkeep.repair import plan_repair
from connector.upkeep.repairable import repairable_attempts
from tests.support.buckets import memory_bucket
from tests.support.offloads import UUID_1
from tests.support.segment_repairs import (
    SCENE,
    content_of,
    each_golden,
    golden_topic,
    ledgers_of,
    lose_indexes,
    repaired,
    said,
    with_segments,
    without_metadata,
)
from tests.support.streamed_topics import NAME, metadata_of, streamed
from tests.support.streaming import (
    GoldenSegment,
    Part,
    StreamedLedgers,
    golden_segments,
    save_metadata,
    segment_objects,
    stream_ledgers,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connector.upkeep.attempt import Repair

    Change = Callable[[LedgerInfo], LedgerInfo]


@each_golden
def test_a_cut_data_object_is_refused_or_told(golden: GoldenSegment) -> None:
    """Wherever it is cut: at each block's start, in a header, an entry, padding."""
    segment, data = golden.open(), golden.data
    starts = segment.starts or tuple(
        each.offset for group in segment.index.groups for each in group.rows
    )
    lengths = {*starts, *range(0, len(data), 499), *(start + 100 for start in starts)}
    with golden_topic(golden) as topic:
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
    ((_, entries),) = ledgers_of((200, 300, 0, 0))
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
        assert (cut.missing, cut.index is not None) == (2, True)
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


def _refusals(*infos: LedgerInfo, **objects: bytes) -> list[Repair]:
    """What becomes of `SCENE` without index objects, by other metadata and with other objects."""
    with streamed(SCENE) as topic:
        lose_indexes(topic, SCENE)
        topic.bucket.put(objects)
        if infos:
            topic.tell(*infos)
        return list(plan_repair(topic.catalog()))


def test_the_scene_is_repaired_as_it_is() -> None:
    """Else the refusals below would prove nothing."""
    first, second = _refusals()
    assert None not in (first.index, second.index)


def test_what_the_metadata_does_not_name_stays_as_it_is() -> None:
    """A segment that failed is not made one of the topic."""
    last = SCENE.infos[20]
    found = _refusals(replace(SCENE.infos[10], offload=None), replace(last, offload=None))
    assert {each.refusal for each in found} == {"the metadata of no topic names this offload"}
    found = _refusals(*(with_segments(each, complete=False) for each in SCENE.infos.values()))
    told = "the metadata says that this offload is under way, or failed"
    assert {each.refusal for each in found} == {told}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda info: replace(info, entries=3), CorruptBlockError, "the metadata tells of 3"),
        (
            lambda info: with_segments(replace(info, entries=9), end_entry_id=None),
            MissingEntriesError,
            "4 entries in the data object, 9 by the metadata",
        ),
        (lambda info: replace(info, size_bytes=1), CorruptBlockError, "bytes, 1 by the metadata"),
        (
            lambda info: with_segments(info, end_entry_id=1),
            CorruptBlockError,
            "is 3, 1 by",
        ),
        (
            lambda info: with_segments(info, end_entry_id=99),
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
    written = stream_ledgers(ledgers_of((50,), (500, 40, 60, 80)), block_bytes=300)
    with streamed(written) as topic:
        lose_indexes(topic, written)
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
    written = stream_ledgers(ledgers_of((50, 60, 70, 80)), (1,), block_bytes=200, block_entries=1)
    _, _, name, index_name = written.objects
    stop = read_segment_index(written.objects[index_name], object_key="").groups[0].rows[1].offset
    with streamed(written) as topic:
        topic.bucket.delete(index_name)
        topic.bucket.put({name: written.objects[name][stop:]})
        (found,) = plan_repair(topic.catalog())
    assert type(found.error) is MissingEntriesError
    assert "begins with entry 2 in the data object, behind 0" in found.error.message
    assert (found.error.ledger_id, found.error.entry_id) == (10, 1)


_NUMBERS: Final = ("entries", "size_bytes", "timestamp_ms")


@pytest.mark.parametrize("number", [2, 9, (1 << 63) - 1])
def test_segments_that_say_something_else_are_a_refusal(number: int) -> None:
    """Two that agree stay as they are though the metadata differs; and none is made beside one."""
    written = stream_ledgers(ledgers_of((50, 60, 70, 80)), (2,), block_bytes=300)
    _, index_name, *_ = written.objects
    told: list[dict[str, Any]] = [{each: number} for each in _NUMBERS]
    for each, is_lost in itertools.product(told, (False, True)):
        with streamed(written) as topic:
            if is_lost:
                topic.bucket.delete(index_name)
            topic.tell(replace(written.infos[10], **each))
            found = list(plan_repair(topic.catalog(), (10,)))
            assert found[0].index is None
            assert isinstance(found[0].error, (CorruptIndexError, CorruptBlockError))
            assert is_lost or found[1].index is None


@pytest.mark.parametrize("name", _NUMBERS)
def test_sound_segments_that_contradict_each_other_stay(name: str) -> None:
    """If the metadata does not say who is right: neither is made what the other is."""
    written = stream_ledgers(ledgers_of((50, 60, 70, 80)), (2,), block_bytes=300)
    info = replace(written.infos[10], entries=None, size_bytes=None, timestamp_ms=None)
    _, index_name, *_ = written.objects
    index = read_segment_index(written.objects[index_name], object_key="")
    (group,) = index.groups
    told: Any = {name: 77}
    shares = [(replace(group, **told), group.rows)]
    content = serialize_segment_index(index.data_object_length_bytes, 128, shares)
    with streamed(written, {index_name: content}) as topic:
        topic.tell(info)
        for catalog in (topic.catalog(), without_metadata(topic)):
            found = list(plan_repair(catalog, (10,)))
            assert [each.index for each in found] == [None, None]
            assert all(each.error is not None for each in found)


def test_a_size_that_the_metadata_lacks_is_not_lost() -> None:
    """Other segments have it, or all entries are there; sound index objects stay as they are."""
    for cuts in ((), (2,)):
        written = stream_ledgers(ledgers_of((50, 60, 70, 80)), cuts, block_bytes=300)
        _, index_name, *_ = written.objects
        with streamed(written) as topic:
            topic.tell(replace(written.infos[10], size_bytes=None))
            assert {each.refusal for each in repaired(topic, 10)} == {IS_SOUND}
            topic.bucket.delete(index_name)
            repaired(topic)
            assert content_of(topic, index_name) == written.objects[index_name]


@pytest.mark.parametrize("first_entry_id", [1 << 31, (1 << 63) - 2, (1 << 63) - 1])
def test_no_entry_id_ends_a_repair(first_entry_id: int) -> None:
    """The next segments are still to be repaired."""
    segment = write_segment([Part(10, [b"one"])])
    name, index_name = segment_objects(UUID_1, segment)
    data = bytearray(segment.data)
    for place in (20, 128 + 4):
        data[place : place + 8] = first_entry_id.to_bytes(8)
    with memory_bucket({name: bytes(data), index_name: segment.index[:30]}) as bucket:
        (found,) = plan_repair(open_catalog(bucket.url))
    assert isinstance(found.error, CorruptIndexError) == (first_entry_id + 1 == 1 << 63)


def test_a_damaged_index_is_believed_where_it_fits() -> None:
    """Of a closed ledger its size must be right; of an open one its end counts lost entries."""
    ((_, entries),) = ledgers_of((200, 300, 1))
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
    written = stream_ledgers(ledgers_of((50, 60, 70)), (1,))
    *_, index_name = written.objects
    info = with_segments(written.infos[10], end_entry_id=None)
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


def test_without_an_end_nothing_is_rebuilt() -> None:
    """Neither without metadata, nor if it says neither entries nor the segment's end."""
    written = stream_ledgers(ledgers_of((50, 60)), block_bytes=300)
    info = replace(written.infos[10], entries=None, size_bytes=None, timestamp_ms=None)
    with streamed(written) as topic:
        lose_indexes(topic, written)
        for known in (replace(with_segments(info, end_entry_id=None)), None):
            if known is not None:
                topic.tell(known)
            catalog = without_metadata(topic) if known is None else topic.catalog()
            (found,) = plan_repair(catalog)
            assert type(found.error) is TruncatedObjectError
            assert "nothing says where the segment ends" in found.error.message


def test_what_may_be_lost_and_nothing_counts_is_a_refusal() -> None:
    """Of a ledger that was trimmed, whose last block may have lost entries behind it."""
    written = stream_ledgers(
        ledgers_of((200, 300, 1), (60,)), block_bytes=200, block_entries=3, miscounts=True
    )
    assert written.lost
    with streamed(written) as topic:
        lose_indexes(topic, written)
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
    written = stream_ledgers(ledgers_of((50, 60, 70)), (2,), block_bytes=300)
    info = written.infos[10]
    assert info.offload is not None
    first, second = (each.uuid for each in info.offload.segments)
    index = written.objects[f"{first}-index"]
    with streamed(written) as topic:
        topic.tell(replace(info, timestamp_ms=None))
        topic.bucket.delete(f"{first}-index")
        repaired(topic)
        assert content_of(topic, f"{first}-index") == index
        topic.tell(replace(info, entries=None, size_bytes=None, timestamp_ms=None))
        topic.bucket.delete(f"{first}-index")
        (found,) = repaired(topic)
        assert found.ledgers[0].metadata_from == f"the segment {second}"
        assert content_of(topic, f"{first}-index") == index


def test_an_index_of_an_open_ledger_stays_as_it_is() -> None:
    """It is sound though the ledger was closed since; a new one says that it was."""
    (golden,) = (each for each in golden_segments() if each.folder.name.endswith("open"))
    index_name = f"{golden.uuid}-index"
    with golden_topic(golden) as topic:
        *others, last = topic.infos
        topic.tell(*others, replace(last, entries=12, size_bytes=9999, timestamp_ms=5))
        (found,) = repaired(topic, last.ledger_id)
        assert found.refusal == IS_SOUND
        topic.bucket.delete(index_name)
        repaired(topic)
        group = read_segment_index(content_of(topic, index_name), object_key="").groups[-1]
        assert (group.entries, group.size_bytes, group.timestamp_ms) == (12, 9999, 5)


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


def test_a_trimmed_ledger_is_told_as_an_open_one() -> None:
    """The metadata has it no more; the data object says up to where it goes."""
    written = stream_ledgers(ledgers_of((50, 60), (70,)))
    with streamed(written) as topic:
        ((index_name, index),) = lose_indexes(topic, written).items()
        topic.tell(written.infos[20])
        (found,) = repaired(topic)
        assert [each.metadata_from for each in found.ledgers] == [MADE_ANEW, FROM_METADATA]
        rebuilt = read_segment_index(content_of(topic, index_name), object_key="")
        first, second = rebuilt.groups
        assert (first.entries, first.is_closed, second.is_closed) == (2, False, True)
        topic.bucket.put({index_name: index[:-1]})
        (found,) = repaired(topic)
        assert {each.metadata_from for each in found.ledgers} == {FROM_DAMAGED, FROM_METADATA}
        assert said(content_of(topic, index_name)) == said(index)


def test_a_segment_without_data_is_told() -> None:
    """Its index object alone is nothing to rebuild; what is wrong with it is known nevertheless."""
    name, index_name = list(SCENE.objects)[:2]
    with streamed(SCENE) as topic:
        topic.bucket.put({index_name: b"damaged"})
        (damaged,) = repairable_attempts(topic.catalog())
        assert damaged.problem is not None
        assert index_name in damaged.problem
        assert (damaged.topic, damaged.ledger_ids, damaged.refusal) == (NAME, (10,), None)
        topic.bucket.delete(name)
        (found,) = plan_repair(topic.catalog())
        assert (found.refusal, found.error) == ("its data object is not there", None)


def test_two_topics_have_no_segment_together(tmp_path: Path) -> None:
    """No writer makes such a one: the metadata of one of them is wrong."""
    other = TopicName.parse("persistent://public/default/other")
    with streamed(SCENE) as topic:
        lose_indexes(topic, SCENE)
        told = replace(metadata_of(*topic.infos), topic=other)
        metadata = {
            str(NAME): str(topic.folder / "topic"),
            str(other): str(save_metadata(tmp_path, told)),
        }
        found = list(plan_repair(open_catalog(topic.bucket.url, metadata=metadata)))
    assert {each.refusal for each in found} == {"the metadata of several topics names this segment"}


@pytest.mark.parametrize(
    ("of_segment", "of_ledger", "is_rebuilt"),
    [(True, False, True), (None, False, False), (None, True, True), (False, True, False)],
)
def test_a_segment_may_be_complete_before_its_ledger(
    of_segment: bool | None,
    of_ledger: bool,
    is_rebuilt: bool,
) -> None:
    """What is said of the segment counts, and of the ledger's offload if nothing is."""
    infos = []
    for info in SCENE.infos.values():
        changed = with_segments(info, complete=of_segment)
        assert changed.offload is not None
        infos.append(replace(changed, offload=replace(changed.offload, complete=of_ledger)))
    found = _refusals(*infos)
    assert {each.index is not None for each in found} == {is_rebuilt}


def test_sound_segments_are_chosen_by_what_they_say() -> None:
    """Without metadata too; no other is read."""
    with streamed(SCENE) as topic:
        catalog = without_metadata(topic)
        assert [each.ledger_ids for each in repairable_attempts(catalog, (10,))] == [
            (10,),
            (10, 20),
        ]
        assert [each.ledger_ids for each in repairable_attempts(catalog, (20,))] == [(10, 20)]
        assert repairable_attempts(catalog, (99,)) == []
        assert {each.refusal for each in plan_repair(catalog, (20,))} == {IS_SOUND}
