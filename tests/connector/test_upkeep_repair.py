"""`connector.upkeep.repair.repair`: what is rebuilt reads as before, and lacks no entry."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import (
    ChecksumError,
    CorruptBlockError,
    CorruptIndexError,
    MissingEntriesError,
    MissingObjectError,
    ObjectChangedError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.data_block import BlockHeader, padding, write_block_header
from arrow_io.format.index_block import FORMAT_VERSION_KEY, METADATA_OFFSET
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import LedgerOffloader, open_catalog
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.upkeep.repair.ledger_repair import FROM_DAMAGED, REBUILT
from connector.upkeep.repair.repair import plan_repair, repair
from tests.support.buckets import TOPIC, memory_bucket, offload_ledger
from tests.support.damage import WOVEN, flipped
from tests.support.golden import GOLDEN_SETS, golden_topic
from tests.support.offloads import (
    ENTRIES,
    LEDGER_ID,
    NAME,
    UUID_1,
    content,
    entries_of,
    ledger_of,
)
from tests.support.owned_bucket import OTHER_UUID, OwnedBucket, under_way, without_uuid
from tests.support.reading import read
from tests.support.repairs import index_of, known_topic, repair_scene
from tests.support.stopping_store import Killed, stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from arrow_io.errors import PulsarOffloadError
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from tests.support.grids import Grid
    from tests.support.repairs import RepairScene
    from tests.support.s3_server import S3Server

    Change = Callable[[LedgerInfo], LedgerInfo]

_HEADER_BYTES: Final = 128


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[RepairScene]:
    """A topic of two ledgers of several blocks, some of them padded."""
    with repair_scene(WOVEN, tmp_path) as found:
        yield found


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_every_golden_index_is_made_anew(tmp_path: Path, set_name: str) -> None:
    """Of a bucket with data objects and nothing else all rows are read; only metadata differs."""
    bucket = OwnedBucket.copied(tmp_path, set_name)
    rows = bucket.rows()
    indexes = {each.name: each.read_bytes() for each in bucket.objects.glob("*-index")}
    bucket.delete(*indexes)
    catalog = bucket.catalog()

    found = list(repair(catalog.location, plan_repair(catalog)))

    assert {each.ledger and each.ledger.metadata_from for each in found} == {REBUILT}
    assert {each.name for each in bucket.objects.glob("*-index")} == indexes.keys()
    for name in indexes:
        old = index_of(indexes, name)
        new = index_of({name: (bucket.objects / name).read_bytes()}, name)
        assert new.block_table == old.block_table
        kept = new.ledger_metadata
        assert kept.length_bytes == old.ledger_metadata.length_bytes
        assert kept.managed_ledger_name == old.ledger_metadata.managed_ledger_name
        assert kept.ctime_ms is None
    assert bucket.rows() == rows


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_with_another_copy_each_golden_index_is_the_brokers(tmp_path: Path, set_name: str) -> None:
    """Not a byte differs from what Pulsar wrote."""
    bucket = OwnedBucket.copied(tmp_path, set_name)
    indexes = {each.name: each.read_bytes() for each in bucket.objects.glob("*-index")}
    for name in indexes:
        other = bucket.objects / f"{OTHER_UUID}{name[36:]}"
        (bucket.objects / name).rename(other)
        data = bucket.objects / name.removesuffix("-index")
        other.with_name(other.name.removesuffix("-index")).write_bytes(data.read_bytes())
    catalog = bucket.catalog()

    found = [each for each in repair(catalog.location, plan_repair(catalog)) if each.index]

    assert {each.ledger and each.ledger.metadata_from for each in found} == {
        f"the copy with uuid {OTHER_UUID}"
    }
    assert indexes == {name: (bucket.objects / name).read_bytes() for name in indexes}


def _check_repaired(scene: RepairScene) -> None:
    """The rows are those of the sound topic, and the index object has what they depend on."""
    scene.repaired(scene.name.ledger_id)
    index = index_of({scene.index_name: scene.content(scene.index_name)}, scene.index_name)
    assert index.block_table == index_of(scene.sound.objects, scene.index_name).block_table
    assert read(scene.sound.opened().scan).equals(scene.sound.rows)


def _flipped_forms(index: bytes) -> Iterator[bytes]:
    for place, flip in itertools.product(range(len(index)), (0xFF, 0x01, 0x80)):
        yield flipped(index, place, flip)


def _cut_forms(index: bytes) -> Iterator[bytes]:
    return (index[:length] for length in range(len(index)))


@pytest.mark.parametrize("forms", [_flipped_forms, _cut_forms])
@pytest.mark.parametrize("name", [WOVEN, "bool", "transactions-open"])
def test_an_index_damaged_anywhere_is_repaired(
    tmp_path: Path, grid: Grid, name: str, forms: Callable[[bytes], Iterator[bytes]]
) -> None:
    """Whichever byte is flipped, and wherever it is cut, of ledgers of a broker too."""
    with repair_scene(name, tmp_path) as scene:
        for damaged in grid.of([*forms(scene.sound.objects[scene.index_name])], count=100):
            scene.sound.bucket.put({scene.index_name: damaged})
            _check_repaired(scene)


def test_damage_beside_the_metadata_leaves_the_index_as_it_was(scene: RepairScene) -> None:
    """What the damaged index object says of the ledger is kept, byte for byte."""
    index = scene.sound.objects[scene.index_name]
    scene.sound.bucket.put({scene.index_name: b"\0" * METADATA_OFFSET + index[METADATA_OFFSET:]})
    table = index_of(scene.sound.objects, scene.index_name).entry_table
    for place in (0, METADATA_OFFSET - 1, len(index) - len(table), len(index) - 1):
        damaged = bytearray(index)
        damaged[place] ^= 0xFF
        scene.sound.bucket.put({scene.index_name: bytes(damaged)})

        (found,) = scene.repaired(scene.name.ledger_id)

        assert found.ledger is not None
        assert found.ledger.metadata_from == FROM_DAMAGED
        assert scene.content(scene.index_name) == index


def test_a_sound_bucket_has_nothing_to_repair(scene: RepairScene) -> None:
    """Nothing is read then; a ledger that is asked for is compared with its data object."""
    assert scene.repaired() == []
    (found,) = scene.repaired(scene.name.ledger_id)
    assert found.index is None
    assert found.error is None
    assert found.refusal == "the index object matches the data object"


def test_planning_writes_nothing(scene: RepairScene) -> None:
    """Only `repair` does."""
    scene.lose_index()
    catalog = scene.catalog()
    (found,) = plan_repair(catalog)
    assert found.index is not None
    assert not catalog.location.exists(scene.index_name)
    assert catalog.location.trace.counts.put_requests == 0


def _refused(scene: RepairScene, error: type[PulsarOffloadError], text: str = "") -> None:
    (found,) = scene.repaired()
    assert type(found.error) is error
    assert text in found.error.message
    assert found.index is None
    assert found.error.ledger_id == scene.name.ledger_id
    scene.restore()


def test_a_cut_data_object_is_refused(scene: RepairScene) -> None:
    """Wherever it is cut: in a header, an entry, padding, between blocks, at its last byte."""
    data = scene.sound.objects[scene.data_name]
    table = index_of(scene.sound.objects, scene.index_name).block_table
    starts = {table.block_start(block) for block in range(1, table.block_count)}
    for length in sorted({*range(0, len(data), 22), *starts, len(data) - 1}):
        scene.lose_index()
        scene.sound.bucket.put({scene.data_name: data[:length]})
        _refused(scene, MissingEntriesError if length in starts else TruncatedObjectError)


def test_a_cut_between_blocks_shows_without_numbers(tmp_path: Path) -> None:
    """Blocks before the last are padded, or as long as each other, and the last one is not."""
    with repair_scene(WOVEN, tmp_path, with_numbers=False) as scene:
        data = scene.sound.objects[scene.data_name]
        table = index_of(scene.sound.objects, scene.index_name).block_table
        assert table.block_count > 2
        for block in range(1, table.block_count):
            scene.lose_index()
            scene.sound.bucket.put({scene.data_name: data[: table.block_start(block)]})
            _refused(scene, TruncatedObjectError)
        # What is left of the index object says so too.
        scene.sound.bucket.put({scene.data_name: data[: table.block_start(1)]})
        _refused(scene, CorruptIndexError, "the index object has 9 entries, the data object has")
        scene.lose_index()
        (found,) = scene.repaired()
        assert found.ledger is not None
        assert found.ledger.entries == table.entry_count


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda info: replace(info, entries=1),
            CorruptBlockError,
            "object, 1 according to the metadata",
        ),
        (lambda info: replace(info, entries=99), MissingEntriesError, "9 entries in the data"),
        (
            lambda info: replace(info, size_bytes=1),
            CorruptBlockError,
            "bytes, 1 according to the metadata",
        ),
    ],
    ids=["fewer", "more", "shorter"],
)
def test_other_numbers_of_the_metadata_are_a_refusal(
    scene: RepairScene, change: Change, error: type[PulsarOffloadError], text: str
) -> None:
    """The data object may be another ledger's."""
    known = known_topic(scene.sound.topic, scene.sound.objects)
    first, *others = known.ledgers
    changed = replace(known, ledgers=(change(first), *others))
    scene.metadata.write_bytes(serialize_managed_ledger_info(changed))
    scene.lose_index()
    _refused(scene, error, text)


def test_a_block_without_entries_is_a_refusal(scene: RepairScene) -> None:
    """Pulsar's writer leaves one if an entry is too large, and loses all behind it."""
    data = scene.sound.objects[scene.data_name]
    count = index_of(scene.sound.objects, scene.index_name).entry_count
    empty = write_block_header(BlockHeader(200, count)) + padding(72)
    scene.lose_index()
    scene.sound.bucket.put({scene.data_name: data + empty})
    _refused(scene, MissingEntriesError)


def test_a_process_that_is_killed_leaves_it_to_the_next(
    scene: RepairScene,
) -> None:
    """At whichever request: no index object is there then, and the next run writes it."""
    kinds = frozenset(RequestKind)
    for step in itertools.count(1):
        scene.lose_index()
        catalog = scene.catalog()
        with stopping(step, Killed, once=False, kinds=kinds) as stopped, suppress(Killed):
            list(repair(catalog.location, plan_repair(catalog)))
        if not stopped:
            break
        assert not scene.catalog().location.exists(scene.index_name)
        scene.repaired()
        assert read(scene.sound.opened().scan).equals(scene.sound.rows)
        scene.restore()
    assert step > 5


def test_what_someone_else_wrote_meanwhile_stays(scene: RepairScene) -> None:
    """An index object that came, was replaced, or was deleted since is not overwritten."""
    for before, since in ((None, b"new"), (b"damaged", b"replaced"), (b"damaged", None)):
        scene.lose_index()
        if before is not None:
            scene.sound.bucket.put({scene.index_name: before})
        catalog = scene.catalog()
        plan = list(plan_repair(catalog))
        if since is None:
            scene.lose_index()
        else:
            scene.sound.bucket.put({scene.index_name: since})
        with pytest.raises((ObjectChangedError, MissingObjectError)):
            list(repair(catalog.location, plan))
        assert since is None or scene.content(scene.index_name) == since
        scene.restore()


def test_data_that_changed_meanwhile_gets_no_index(scene: RepairScene) -> None:
    """It is not what was walked."""
    scene.lose_index()
    catalog = scene.catalog()
    plan = list(plan_repair(catalog))
    scene.sound.bucket.put({scene.data_name: b"something else"})
    with pytest.raises(ObjectChangedError):
        list(repair(catalog.location, plan))
    assert not catalog.location.exists(scene.index_name)


def test_what_the_metadata_does_not_name_stays_as_it_is(scene: RepairScene) -> None:
    """An offload that failed is not made a copy of its ledger."""
    stray = LedgerObjectName(OTHER_UUID, scene.name.ledger_id)
    scene.sound.bucket.put({stray.data_name: scene.sound.objects[scene.data_name]})
    (found,) = scene.repaired()
    assert found.attempt.name == stray
    assert found.refusal == "the metadata of no topic names this offload"
    scene.sound.bucket.delete(stray.data_name)


def test_without_metadata_one_sound_copy_is_enough(scene: RepairScene) -> None:
    """And what names its topic nowhere cannot be rebuilt."""
    stray = LedgerObjectName(OTHER_UUID, scene.name.ledger_id)
    scene.sound.bucket.put({stray.data_name: scene.sound.objects[scene.data_name]})
    (found,) = plan_repair(open_catalog(scene.sound.bucket.url))
    assert found.refusal is not None
    assert str(scene.name.uuid) in found.refusal
    scene.sound.bucket.delete(stray.data_name)
    scene.lose_index()
    (found,) = plan_repair(open_catalog(scene.sound.bucket.url))
    assert type(found.error) is CorruptIndexError


def test_verifying_compares_checksums(scene: RepairScene) -> None:
    """An entry whose payload is damaged, the first or the last, passes all but `verify`."""
    sound = scene.sound.objects[scene.data_name]
    first_stop = _HEADER_BYTES + 12 + int.from_bytes(sound[_HEADER_BYTES : _HEADER_BYTES + 4])
    for place, entry_id in ((first_stop - 1, 0), (len(sound) - 1, 8)):
        data = bytearray(sound)
        data[place] ^= 0xFF
        scene.sound.bucket.put({scene.data_name: bytes(data)})
        scene.lose_index()
        (found,) = plan_repair(scene.catalog())
        assert found.index is not None
        (found,) = plan_repair(scene.catalog(), verify=True)
        assert type(found.error) is ChecksumError
        assert found.error.entry_id == entry_id
        scene.restore()
    scene.lose_index()
    (found,) = plan_repair(scene.catalog(), verify=True)
    assert found.error is None


def test_entries_beside_each_bound_are_read_back(scene: RepairScene) -> None:
    """By the new index object, behind the walk."""
    scene.lose_index()
    trace = RequestTrace(keep_records=True)
    url, metadata = scene.sound.bucket.url, {scene.sound.topic: scene.metadata}
    list(plan_repair(open_catalog(url, metadata=metadata, trace=trace)))
    kind = RequestKind.RANGE_GET
    _, *ranges = [(each.start, each.stop) for each in trace.records if each.kind is kind]
    table = index_of(scene.sound.objects, scene.index_name).block_table
    ends = {table.block_start(block) for block in range(table.block_count)}
    ends.add(table.data_object_length_bytes)
    for end in ends:
        assert any(start <= end <= stop for start, stop in ranges if start is not None and stop)
    starts = {start for start, _ in ranges}
    assert len(starts) == table.block_count + 1, "each begins with the last entry of a block"


def test_numbers_tell_that_full_blocks_are_all(tmp_path: Path) -> None:
    """Else the last would look as though others had been behind it."""
    name = LedgerObjectName(OTHER_UUID, 5)
    objects = offload_ledger(name, [bytes(16)] * 12, block_bytes=_HEADER_BYTES + 4 * 28)
    path = tmp_path / "managed-ledger-info.bin"
    for with_numbers in (True, False):
        known = known_topic(TOPIC, objects, with_numbers=with_numbers)
        path.write_bytes(serialize_managed_ledger_info(known))
        with memory_bucket({name.data_name: objects[name.data_name]}) as bucket:
            (found,) = plan_repair(open_catalog(bucket.url, metadata={TOPIC: path}))
        assert (found.index is not None) == with_numbers


def test_a_damaged_index_may_name_the_topic(scene: RepairScene) -> None:
    """If nothing else does."""
    index = scene.sound.objects[scene.index_name]
    scene.sound.bucket.put({scene.index_name: b"\0" + index[1:]})
    catalog = open_catalog(scene.sound.bucket.url)
    (found,) = repair(catalog.location, plan_repair(catalog))
    assert found.ledger is not None
    assert found.ledger.metadata_from == FROM_DAMAGED
    assert str(found.attempt.topic) == scene.sound.topic
    assert scene.content(scene.index_name) == index


def test_an_index_that_is_replaced_meanwhile_is_an_error(scene: RepairScene) -> None:
    """What was listed is not what would be read."""
    scene.sound.bucket.put({scene.index_name: b"damaged"})
    catalog = scene.catalog()
    catalog.every_ledger()
    scene.sound.bucket.put({scene.index_name: b"damaged otherwise"})
    with pytest.raises(ObjectChangedError):
        list(plan_repair(catalog))


def _checked_entries(scene: RepairScene) -> dict[int, bytes]:
    """What the checksum of each sound entry of the first ledger covers, by entry id."""
    ledger = OffloadedLedger.open(Location(scene.sound.bucket.url), scene.name).data
    return {
        run.number(place, layout.ENTRY_ID): bytes(run.view(place, layout.CHECKED))
        for run in ledger.entry_runs(0, ledger.last_entry_id, Tally(), verify_checksums=True)
        for place in range(run.count)
        if not run.number(place, layout.ERROR)
    }


_CHANGES: Final = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=20)), min_size=1, max_size=4
)


@given(changes=_CHANGES, seed=st.integers(0, 3))
def test_hostile_data_never_reads_as_other_entries(
    hostile: RepairScene, changes: list[tuple[int, bytes]], seed: int
) -> None:
    """Whatever bytes are changed, what is rebuilt has all entries, and no wrong one."""
    sound = hostile.sound.objects[hostile.data_name]
    data = bytearray(sound)
    for place, piece in changes:
        start = place % len(sound)
        # A piece of the object itself looks more like a block or an entry than random bytes do.
        own = sound[place % 97 : place % 97 + len(piece)] if seed else piece
        data[start : start + len(own)] = own
    hostile.restore()
    wanted = _checked_entries(hostile)
    hostile.lose_index()
    hostile.sound.bucket.put({hostile.data_name: bytes(data[: len(sound)])})

    (found,) = hostile.repaired()

    if found.index is not None:
        read_back = _checked_entries(hostile)
        assert found.ledger is not None
        assert found.ledger.entries == len(wanted)
        assert read_back.items() <= wanted.items()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepairScene]:
    """A topic of whose ledgers nothing is known but that they are the topic's."""
    folder = tmp_path_factory.mktemp("hostile")
    with repair_scene(WOVEN, folder, with_numbers=False) as found:
        yield found


@pytest.mark.s3
def test_on_s3_no_metadata_is_needed(s3_server: S3Server) -> None:
    """The data object's user metadata names the topic, and the new index object's does too."""
    bucket = s3_server.new_bucket()
    url, options = f"s3://{bucket}", s3_server.storage_options
    offloader = LedgerOffloader(url, storage_options=options, cluster="west")
    offloader.offload(ledger_of(ENTRIES), UUID_1)
    before = offloader.location.user_metadata(NAME.index_name)
    index = content(offloader.location, NAME.index_name)
    for damage in (None, b"\0" * 40, index.replace(b"/orders", b"/ordets"), index[:-1]):
        if damage is None:
            s3_server.client.delete_object(Bucket=bucket, Key=NAME.index_name)
        else:
            s3_server.client.put_object(
                Bucket=bucket, Key=NAME.index_name, Body=damage, Metadata=before
            )
        catalog = open_catalog(url, storage_options=options)

        (found,) = repair(catalog.location, plan_repair(catalog))

        assert found.index is not None
        assert offloader.location.user_metadata(NAME.index_name) == before
        assert entries_of(offloader.read_offloaded(LEDGER_ID, UUID_1)) == ENTRIES
    assert content(offloader.location, NAME.index_name) == index


def test_what_the_metadata_says_of_offloads_counts(tmp_path: Path) -> None:
    """One without a uuid may be any; one that is under way is left alone."""
    bucket = OwnedBucket.copied(tmp_path)
    topic = golden_topic("small-chunked")
    untold, begun, *_ = topic.ledgers
    bucket.delete(untold.index_object.name, begun.index_object.name)
    bucket.change(topic.name, {untold.ledger_id: without_uuid, begun.ledger_id: under_way})

    found = {each.attempt.ledger_ids[0]: each for each in plan_repair(bucket.catalog())}

    assert found.keys() == {untold.ledger_id, begun.ledger_id}
    assert found[untold.ledger_id].index is not None
    assert (
        found[begun.ledger_id].refusal
        == "the metadata says that this offload is under way, or failed"
    )
    bucket.copy_ledger(untold)
    refusals = {each.attempt.ledger_ids[0]: each.refusal for each in plan_repair(bucket.catalog())}
    assert refusals[untold.ledger_id] == "the metadata of no topic names this offload"


def test_an_index_that_contradicts_the_metadata_is_found(scene: RepairScene) -> None:
    """Though its own fields agree with each other, no ledger need be named."""
    index = index_of(scene.sound.objects, scene.index_name)
    shorter = replace(index.ledger_metadata, last_entry_id=index.last_entry_id - 1)
    changed = replace(index, ledger_metadata=shorter, last_entry_id=index.last_entry_id - 1)
    scene.sound.bucket.put({scene.index_name: changed.serialize()})

    (found,) = scene.repaired()

    assert found.attempt.problem is not None
    assert "by the metadata" in found.attempt.problem
    assert found.ledger is not None
    assert found.ledger.metadata_from == FROM_DAMAGED
    assert scene.content(scene.index_name) == scene.sound.objects[scene.index_name]


def test_a_ledger_without_data_is_told(scene: RepairScene) -> None:
    """Its index object alone is nothing to rebuild."""
    scene.sound.bucket.delete(scene.data_name)
    (found,) = plan_repair(scene.catalog())
    assert found.refusal == "its data object is missing"
    assert found.error is None


@pytest.mark.s3
def test_another_format_version_is_a_refusal(s3_server: S3Server) -> None:
    """The data object may be of a format that only looks like this one."""
    url, options = f"s3://{s3_server.new_bucket()}", s3_server.storage_options
    offloader = LedgerOffloader(url, storage_options=options)
    offloader.offload(ledger_of(ENTRIES), UUID_1)
    location = offloader.location
    location.delete_objects([NAME.index_name])
    metadata = {**(location.user_metadata(NAME.data_name) or {}), FORMAT_VERSION_KEY: "2"}
    location.write_object(NAME.data_name, content(location, NAME.data_name), user_metadata=metadata)
    (found,) = plan_repair(open_catalog(url, storage_options=options))
    assert type(found.error) is UnknownFormatError


@pytest.mark.s3
def test_on_s3_both_names_of_the_topic_are_compared(s3_server: S3Server, tmp_path: Path) -> None:
    """A data object of another topic gets no index object of this one."""
    url, options = f"s3://{s3_server.new_bucket()}", s3_server.storage_options
    offloader = LedgerOffloader(url, storage_options=options)
    offloader.offload(ledger_of(ENTRIES), UUID_1)
    objects = {NAME.index_name: content(offloader.location, NAME.index_name)}
    offloader.location.delete_objects([NAME.index_name])
    topic = "persistent://public/default/other"
    path = tmp_path / "managed-ledger-info.bin"
    path.write_bytes(serialize_managed_ledger_info(known_topic(topic, objects)))

    (found,) = plan_repair(open_catalog(url, storage_options=options, metadata={topic: path}))

    assert type(found.error) is CorruptBlockError
    assert "the data object is of managed ledger" in str(found.error)
