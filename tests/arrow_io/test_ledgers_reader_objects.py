"""What a ledger's two objects tell of each other is compared; what is cut or added is told."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    ObjectChangedError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.block_table import pack_entry_table, unpack_entry_table
from arrow_io.format.data_block import BLOCK_HEADER_BYTES
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.format.index_block import (
    FORMAT_VERSION_KEY,
    MANAGED_LEDGER_NAME_KEY,
    read_index_block,
)
from arrow_io.ledgers.ledger import Block
from arrow_io.ledgers.reader import ObjectVersions, OffloadedLedger
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag
from arrow_io.storage.trace import RequestTrace
from tests.support.buckets import (
    MANAGED_LEDGER,
    memory_bucket,
    object_name,
    offload_ledger,
    with_lost_entries,
)
from tests.support.faulty_storage import FakeBody, FakeS3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.buckets import MemoryBucket


pytestmark = pytest.mark.usefixtures("build")

_NAME: Final = object_name(7)
_ENTRIES: Final = [b"one", b"two", b"three"]
_BLOCK_BYTES: Final = 160
"""Room for the first two entries, and for two bytes of padding."""
_PADDING: Final = BLOCK_HEADER_BYTES + 2 * (ENTRY_HEADER_BYTES + 3)
_VERSION: Final = {FORMAT_VERSION_KEY: "1"}


def _objects() -> tuple[bytes, bytes]:
    """Data object and index object."""
    objects = offload_ledger(_NAME, _ENTRIES, block_bytes=_BLOCK_BYTES)
    return objects[_NAME.data_name], objects[_NAME.index_name]


def _opened(
    of_index: Mapping[str, str],
    of_data: Mapping[str, str] | None = None,
    index: bytes | None = None,
) -> OffloadedLedger:
    """The ledger on S3, with the user metadata of its two objects."""
    data, original = _objects()
    store = FakeS3(
        {"Body": FakeBody(index or original), "Metadata": of_index},
        {
            "Body": FakeBody(data),
            "Metadata": of_data or {},
            "ContentRange": f"bytes 0-{len(data) - 1}/{len(data)}",
        },
    )
    return OffloadedLedger.open(store.location(), _NAME)


def _without_name() -> bytes:
    """An index object that names no managed ledger, as the first releases wrote it."""
    index = read_index_block(_objects()[1], object_key=_NAME.index_name)
    metadata = replace(index.ledger_metadata, custom_metadata={})
    return replace(index, ledger_metadata=metadata).serialize()


@pytest.mark.parametrize(
    "of_index", [_VERSION, {**_VERSION, MANAGED_LEDGER_NAME_KEY: MANAGED_LEDGER}]
)
def test_index_object_as_the_offloader_leaves_it_is_no_cause_for_warnings(
    of_index: dict[str, str],
) -> None:
    """What its user metadata says is kept with the ledger."""
    ledger = _opened(of_index)

    assert ledger.warnings == ()
    assert ledger.user_metadata == of_index
    assert [entry.data for entry in ledger.read_entries(0, 2)] == _ENTRIES


def test_index_object_without_a_format_version_is_read_with_a_warning() -> None:
    """A copy made by another tool can lack it; a broker would refuse that."""
    (warning,) = _opened({}).warnings

    assert warning.startswith(f"{_NAME.index_name} has no user metadata {FORMAT_VERSION_KEY}")


def test_index_object_of_another_format_version_is_an_error() -> None:
    """It names the object and the ledger."""
    with pytest.raises(UnknownFormatError, match="offload format version '2'") as caught:
        _opened({FORMAT_VERSION_KEY: "2"})

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.index_name, 7)


def test_index_object_of_another_topic_is_an_error() -> None:
    """Its bytes name one managed ledger, its user metadata another one."""
    other = {**_VERSION, MANAGED_LEDGER_NAME_KEY: "another"}
    with pytest.raises(CorruptIndexError) as caught:
        _opened(other)

    assert f"of managed ledger '{MANAGED_LEDGER}', its user metadata says 'another'" in str(
        caught.value
    )
    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.index_name, 7)
    assert _opened(other, index=_without_name()).user_metadata == other


@pytest.mark.parametrize(("by_index", "by_data"), list(product([None, "one", "other"], repeat=2)))
def test_data_object_is_compared_with_what_the_user_metadata_of_the_index_names(
    by_index: str | None, by_data: str | None
) -> None:
    """Where the bytes of the index object name none; unless only one of the objects tells."""
    ledger = _opened(_named(by_index), _named(by_data), _without_name())

    if None in (by_index, by_data) or by_index == by_data:
        assert [entry.data for entry in ledger.read_entries(0, 2)] == _ENTRIES
    else:
        with pytest.raises(CorruptBlockError, match=f"of managed ledger '{by_data}'"):
            next(ledger.read_entries(0, 2))


def _named(managed_ledger: str | None) -> dict[str, str]:
    name = {} if managed_ledger is None else {MANAGED_LEDGER_NAME_KEY: managed_ledger}
    return {**_VERSION, **name}


def test_index_object_that_is_none_is_named() -> None:
    """As are the ledger and the place."""
    with pytest.raises(UnknownFormatError) as caught:
        _opened(_VERSION, index=b"what is this? Not an index object.")

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.index_name, 7)


def test_ledger_whose_length_is_not_known_is_read() -> None:
    """A length of 0 is none, a length of 1 is a wrong one."""
    index = read_index_block(_objects()[1], object_key=_NAME.index_name)
    for length_bytes in (0, 1):
        metadata = replace(index.ledger_metadata, length_bytes=length_bytes)
        ledger = _opened(_VERSION, index=replace(index, ledger_metadata=metadata).serialize())
        if length_bytes:
            with pytest.raises(CorruptIndexError, match="have 11 bytes, the ledger had 1"):
                list(ledger.read_entries(0, 2))
        else:
            assert [entry.data for entry in ledger.read_entries(0, 2)] == _ENTRIES


def test_versions_agree_unless_those_of_one_object_differ() -> None:
    """Of an object whose version is not known, nothing can be said."""
    tags = None, ETag("a"), ETag("b")
    for one, two, three, four in product(tags, repeat=4):
        differs = (None not in (one, three) and one != three) or (
            None not in (two, four) and two != four
        )
        assert ObjectVersions(one, two).agrees_with(ObjectVersions(three, four)) is not differs


@pytest.fixture
def bucket() -> Iterator[MemoryBucket]:
    """A bucket with the ledger."""
    data, index = _objects()
    with memory_bucket({_NAME.data_name: data, _NAME.index_name: index}) as filled:
        yield filled


def _in(bucket: MemoryBucket) -> OffloadedLedger:
    return OffloadedLedger.open(Location(bucket.url), _NAME)


def test_data_object_of_another_version_than_was_listed_is_an_error(bucket: MemoryBucket) -> None:
    """Not one of its entries is given."""
    location = Location(bucket.url)
    listed = {each.name: each.version for each in location.list_objects()}
    versions = ObjectVersions(data=listed[_NAME.data_name])
    ledger = OffloadedLedger.open(location, _NAME, versions=versions)
    assert [entry.data for entry in ledger.read_entries(0, 2)] == _ENTRIES

    bucket.put({_NAME.data_name: _objects()[0]})

    with pytest.raises(ObjectChangedError) as caught:
        next(ledger.read_entries(0, 2))
    assert caught.value.object_key == _NAME.data_name


def test_data_object_of_the_right_length_is_no_cause_for_warnings(bucket: MemoryBucket) -> None:
    """One byte more is a warning, one less an error that says where the object ends."""
    size, ledger = len(_objects()[0]), _in(bucket)

    assert ledger.with_data_size(size).warnings == ()
    assert len(ledger.with_data_size(size + 1).warnings) == 1
    with pytest.raises(TruncatedObjectError) as caught:
        ledger.with_data_size(size - 1)
    assert (caught.value.object_key, caught.value.offset) == (_NAME.data_name, size - 1)
    assert caught.value.ledger_id == 7


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 142, 143, 157, 158, 160, 161, 287, 288, 301])
def test_ledger_that_is_known_to_be_cut_is_read_as_far_as_it_goes(
    bucket: MemoryBucket, size: int
) -> None:
    """Nothing behind its end is asked for or given, though more should be there."""
    ledger = _in(bucket).cut_at(size)
    whole = (size >= _PADDING - ENTRY_HEADER_BYTES - 3) + (size >= _PADDING)

    assert ledger.data.data_stop == size
    tally = Tally(salvage=True)
    runs = list(ledger.data.entry_runs(0, 2, tally))

    assert [run.number(n, layout.ENTRY_ID) for run in runs for n in range(run.count)] == list(
        range(whole)
    )
    assert tally.metrics.lost[Unit.ENTRY, "TruncatedObjectError"] == 3 - whole
    is_in_entry = BLOCK_HEADER_BYTES <= size < _PADDING or size >= _BLOCK_BYTES + BLOCK_HEADER_BYTES
    message = rf"of {counted(size, 'byte')} \(|ends at"
    if is_in_entry:
        message = f"the block ends before entry {whole}"
    with pytest.raises(TruncatedObjectError, match=message):
        list(ledger.read_entries(0, 2))


def test_longer_object_than_the_index_tells_is_not_read_to_its_end(bucket: MemoryBucket) -> None:
    """The end that the index object gives is the ledger's."""
    size = len(_objects()[0])

    assert _in(bucket).data.data_stop == size
    assert _in(bucket).cut_at(size + 1).data.data_stop == size


def test_padding_that_is_cut_is_a_loss_of_the_block_alone(bucket: MemoryBucket) -> None:
    """All its entries are given, and whoever salvages nothing is told."""
    ledger, tally = _in(bucket).cut_at(_PADDING + 1), Tally(salvage=True)

    with pytest.raises(TruncatedObjectError) as caught:
        list(ledger.read_entries(0, 1))
    (run,) = ledger.data.entry_runs(0, 1, tally)

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.data_name, 7)
    assert caught.value.offset == _PADDING + 1
    assert run.count == 2
    assert tally.metrics.lost == {(Unit.BLOCK, "TruncatedObjectError"): 1}


@pytest.mark.parametrize("at", [_PADDING, _PADDING + 1])
def test_what_is_no_padding_is_a_loss_of_the_block_alone(bucket: MemoryBucket, at: int) -> None:
    """All its entries are given, and the error says behind which of them, and where."""
    data = bytearray(_objects()[0])
    data[at] ^= 0xFF
    bucket.rot(_NAME.data_name, bytes(data))
    tally = Tally(salvage=True)

    with pytest.raises(CorruptBlockError, match="is not padding") as caught:
        list(_in(bucket).read_entries(0, 1))
    (run,) = _in(bucket).data.entry_runs(0, 1, tally)

    assert (caught.value.object_key, caught.value.ledger_id) == (_NAME.data_name, 7)
    assert (caught.value.entry_id, caught.value.offset) == (1, _PADDING)
    assert run.count == 2
    assert tally.metrics.lost == {(Unit.BLOCK, "CorruptBlockError"): 1}
    assert tally.metrics.losses == [str(caught.value)]


# Blocks


_FIVE: Final = [bytes([number]) * 100 for number in range(5)]


def _opened_in_blocks(lost: int = 0) -> OffloadedLedger:
    """A ledger of which each of five entries has a block of its own; some more are lost."""
    name = object_name(7)
    objects = offload_ledger(name, _FIVE, block_bytes=240)
    if lost:
        objects[name.index_name] = with_lost_entries(objects[name.index_name], lost)
    with memory_bucket(objects) as bucket:
        return OffloadedLedger.open(Location(bucket.url), name)


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("last", range(5))
def test_blocks_are_those_of_the_entries(first: int, last: int) -> None:
    """All blocks that hold any of them, in order; none if there are no entries."""
    data = _opened_in_blocks().data

    blocks = [Block(entry, entry, 240 * entry, 240 * entry + 240) for entry in range(5)]
    assert data.blocks(first, last) == blocks[first : last + 1]


def test_lost_entries_have_no_block() -> None:
    """Of those that the offloader lost nothing is stored."""
    data = _opened_in_blocks(lost=3).data

    assert data.last_entry_id == 7
    assert [block.first_entry_id for block in data.blocks(3, 7)] == [3, 4]
    assert data.blocks(5, 7) == []
    assert data.extents(5, 7) == []
    assert data.byte_spans(5, 7) == []
    assert [(each.start, each.stop) for each in data.byte_spans(4, 7)] == [(960, 1200)]


def test_extents_are_whole_blocks_unless_positions_are_remembered() -> None:
    """An extent that begins at the first entry of a block includes the block's header."""
    name = object_name(7)
    with memory_bucket(offload_ledger(name, _FIVE, block_bytes=352)) as bucket:
        data = OffloadedLedger.open(Location(bucket.url), name).data
    ranges = [(0, 4), (1, 2), (2, 3), (3, 3)]

    assert [data.extents(*each) for each in ranges] == [
        [(0, 944)], [(0, 704)], [(352, 704)], [(352, 704)],
    ]  # fmt: skip
    for entry_id, position in [(1, 240), (2, 480), (3, 592), (4, 832)]:
        data.remember(entry_id, position)
    assert [data.extents(*each) for each in ranges] == [
        [(0, 944)], [(240, 592)], [(352, 704)], [(592, 704)],
    ]  # fmt: skip
    (span,) = data.byte_spans(1, 2)
    assert (span.start, span.sure_stop, span.stop) == (240, 592, 704)


def test_another_size_of_requests_gives_the_same_entries(bucket: MemoryBucket) -> None:
    """A block of 160 bytes takes two requests of 80 bytes."""
    trace = RequestTrace()
    data = OffloadedLedger.open(Location(bucket.url, trace=trace), _NAME).data

    (whole,) = data.entry_runs(0, 1, Tally())
    requests = trace.counts.range_requests
    runs = list(data.with_range_bytes(80).entry_runs(0, 1, Tally()))

    assert (requests, trace.counts.range_requests - requests) == (1, 2)
    assert sum(run.count for run in runs) == whole.count


def test_blocks_of_a_cut_object_end_where_it_does() -> None:
    """A block that is cut has fewer bytes, one behind the cut none."""
    data = _opened_in_blocks().cut_at(700).data

    sizes = [block.stop - block.start for block in data.blocks(0, 4)]
    assert sizes == [240, 240, 220, 0, 0]


@pytest.mark.parametrize("version", [None, ETag("abc")])
def test_it_is_the_same_in_another_process(version: ETag | None) -> None:
    """Whatever is known of it travels, with the ids of all blocks, and no class of the version."""
    data = replace(_opened_in_blocks().cut_at(700).data, version=version)

    pickled = pickle.dumps(data)
    copy = pickle.loads(pickled)

    assert b"ETag" not in pickled
    assert copy == data
    assert copy.blocks(0, 4) == data.blocks(0, 4)
    assert unpack_entry_table(pack_entry_table(data.table.entry_table)) == data.table.entry_table
