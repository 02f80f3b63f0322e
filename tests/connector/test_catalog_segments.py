"""Topics of which streaming offload wrote ledgers, or some of them."""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    IncompleteReadWarning,
    MissingEntriesError,
    MissingObjectError,
    OptionError,
    TopicNotFoundError,
    TruncatedObjectError,
)
from arrow_io.format.object_names import parse_object_name
from arrow_io.read_metrics import ReadMetrics, Unit
from arrow_io.storage.location import Location
from connector import open_catalog, open_topic, write_messages
from connector.catalog.bucket import Bucket
from connector.catalog.bucket_listing import list_bucket
from connector.catalog.metadata.manifest import MANIFEST_FILE, manifest_json
from connector.catalog.metadata.topic_metadata import (
    LedgerInfo,
    OffloadContext,
    OffloadSegment,
)
from connector.catalog.tables import blocks_table, ledgers_table, objects_table, topics_table
from connector.increments.increment import Increments, Limits
from connector.increments.progress import Progress
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.findings import FindingKind
from connector.upkeep.forecast.cost import stored_bytes
from connector.upkeep.verify.journal import VerificationJournal
from connector.upkeep.verify.verification import verify
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Framing, Message, encode_entry
from tests.support.expected import COLUMNS
from tests.support.increments import read_on
from tests.support.reading import read
from tests.support.streamed_topics import NAME, Streamed, metadata_of, streamed
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
from tests.support.topics import topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector import Catalog
    from tests.support.topics import Topic


def entry(text: str) -> bytes:
    """An entry with one message."""
    return encode_entry(
        [Message(payload=text.encode())],
        batched=False,
        framing=Framing(),
        producer_name="p",
        sequence_id=0,
        publish_time=1,
    )


def ledgers(*sizes: int) -> list[tuple[int, list[bytes]]]:
    """Ledgers 10, 20, … of so many entries each, whose payloads are `ledger:entry`."""
    return [
        (10 * number, [entry(f"{10 * number}:{each}") for each in range(size)])
        for number, size in enumerate(sizes, 1)
    ]


def texts(*sizes: int) -> list[str]:
    """The payloads of `ledgers`."""
    return [f"{10 * of}:{each}" for of, size in enumerate(sizes, 1) for each in range(size)]


@given(
    topic=topics(compacted=False),
    block_bytes=st.sampled_from((200, 500, 1 << 20)),
    task_bytes=st.sampled_from((1, 700, 1 << 20)),
    data=st.data(),
)
@settings(max_examples=25)
def test_both_kinds_of_ledgers_give_the_rows_of_one(
    topic: Topic, block_bytes: int, task_bytes: int, data: st.DataObject
) -> None:
    """Ledgers of both kinds in any order, cut anywhere, are the topic as PIP-17 would have it."""
    filled = [each for each in topic.ledgers if each[1]]
    kinds = data.draw(st.lists(st.booleans(), min_size=len(filled), max_size=len(filled)))
    objects: dict[str, bytes] = {}
    infos: list[LedgerInfo] = []
    for place, (each, is_segmented) in enumerate(zip(filled, kinds, strict=True)):
        if not is_segmented:
            (name, _), *_ = (mine := offload([each], block_bytes=block_bytes)).items()
            objects |= mine
            attempt = open_name(name)
            infos.append(
                LedgerInfo(
                    ledger_id=each[0],
                    entries=len(each[1]),
                    offload=OffloadContext(uuid=attempt, complete=True),
                )
            )
            continue
        # Neighbours share segments.
        if place == 0 or not kinds[place - 1]:
            stop = next((n for n in range(place, len(kinds)) if not kinds[n]), len(kinds))
            run = filled[place:stop]
            total = sum(len(entries) for _, entries in run)
            cuts = data.draw(st.lists(st.integers(1, total), max_size=3))
            found = stream_ledgers(run, cuts, block_bytes=block_bytes, number=0xB000 + 100 * place)
            objects |= found.objects
            infos += found.infos.values()
    with memory_bucket(offload(topic.ledgers, block_bytes=block_bytes)) as bucket:
        expected = read(open_topic(bucket.url, TOPIC, columns=COLUMNS).scan)
    with memory_bucket(objects) as bucket, tempfile.TemporaryDirectory() as folder:
        mixed = Streamed(bucket, Path(folder), infos)
        scan = open_topic(bucket.url, TOPIC, catalog=mixed.catalog(), columns=COLUMNS).scan
        metrics = ReadMetrics()
        tasks = pickle.loads(pickle.dumps(scan.plan(task_bytes=task_bytes)))
        given_rows = read(scan, tasks, metrics)
    order = [(name, "ascending") for name in ("__ledger_id__", "__entry_id__", "__batch_index__")]
    assert given_rows.sort_by(order).equals(expected.sort_by(order))
    assert not metrics.lost


def open_name(data_name: str) -> Any:  # noqa: ANN401
    """The uuid in the name of an object."""
    parsed = parse_object_name(data_name)
    assert parsed is not None
    return parsed.uuid


@pytest.mark.parametrize("limits", [None, Limits(max_ledgers=1), Limits(max_bytes=1)])
def test_increments_read_on_over_both_kinds(limits: Limits | None) -> None:
    """What is new in a topic is given once, wherever a segment ends, and nothing is skipped."""
    given = ledgers(4, 3, 2)
    found = stream_ledgers(given[:2], (2, 5), block_bytes=200)
    with streamed(found, offload(given[2:])) as topic:
        infos = topic.infos
        topic.tell(infos[0])
        columns = ["__value__"]
        scan = open_topic(topic.bucket.url, TOPIC, catalog=topic.catalog(), columns=columns).scan
        batches, progress = read_on(
            Increments(topic.catalog(), [TOPIC], scan.options), Progress(), limits
        )
        attempt = open_name(next(name for name in topic_objects(topic) if "-ledger-30" in name))
        context = OffloadContext(uuid=attempt, complete=True)
        topic.tell(*infos, LedgerInfo(ledger_id=30, entries=2, offload=context))
        more, _ = read_on(Increments(topic.catalog(), [TOPIC], scan.options), progress, limits)
    values = (value for each in (*batches, *more) for value in each["__value__"].to_pylist())
    assert [each.decode() for each in values] == texts(4, 3, 2)


@pytest.mark.parametrize("golden", golden_segments(), ids=lambda each: each.folder.name)
def test_goldens_are_read_message_by_message(golden: GoldenSegment) -> None:
    """All entries of Pulsar's own segments, as a topic; what its writer lost is counted."""
    infos = {
        group.ledger_id: LedgerInfo(
            ledger_id=group.ledger_id,
            entries=group.entries,
            size_bytes=group.size_bytes,
            offload=OffloadContext(
                uuid=None,
                complete=True,
                segments=(OffloadSegment(uuid=golden.uuid, complete=True),),
            ),
        )
        for group in golden.open().index.groups
    }
    objects = {str(golden.uuid): golden.data, f"{golden.uuid}-index": golden.index}
    # In another one, the entries given have broker indexes that go back, which is told.
    is_whole = golden.folder.name.endswith(("blocks", "entry"))
    is_cut = golden.folder.name.endswith("middle")
    with streamed(StreamedLedgers(objects, infos, set())) as topic:
        columns = ["__ledger_id__", "__entry_id__"]
        if golden.is_damaged or is_cut:
            with pytest.raises((CorruptBlockError, MissingEntriesError)) as caught:
                topic.read()
            where = (541, 14) if golden.is_damaged else (521, 0)
            assert (caught.value.ledger_id, caught.value.entry_id) == where
        opened = open_topic(
            topic.bucket.url,
            TOPIC,
            catalog=topic.catalog(),
            columns=columns,
            on_corruption="raise" if is_whole else "salvage",
        )
        metrics = ReadMetrics()
        rows = read(opened.scan, metrics=metrics).to_pylist()
    lost = {(541, 14), (541, 26)} if golden.is_damaged else set()
    found = {(row["__ledger_id__"], row["__entry_id__"]) for row in rows}
    assert found == golden.entries.keys() - lost
    assert metrics.lost.total() == (12 if is_cut else len(lost))


def test_a_ledger_that_begins_in_a_segment_that_is_gone_is_told() -> None:
    """Of the golden segment that starts in the middle, nothing has the entries before."""
    found = stream_ledgers(ledgers(6), (2,))
    first = f"{found.infos[10].offload.segments[0].uuid}"  # type: ignore[union-attr]
    del found.objects[first], found.objects[f"{first}-index"]
    with streamed(found) as topic:
        with pytest.raises(MissingObjectError) as caught:
            topic.read()
        assert caught.value.object_key == f"{first}-index"
        assert caught.value.ledger_id == 10
        assert salvaged(topic) == (texts(6)[2:], {(Unit.ENTRY, "MissingEntriesError"): 2})


def salvaged(
    topic: Streamed, catalog: Catalog | None = None
) -> tuple[list[str], dict[tuple[Unit, str], int]]:
    """What is read of a damaged topic, and what is counted."""
    opened = open_topic(
        topic.bucket.url,
        TOPIC,
        catalog=catalog or topic.catalog(),
        columns=["__value__"],
        on_corruption="salvage",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        rows = opened.to_table()["__value__"].to_pylist()
    return [each.decode() for each in rows], dict(opened.metrics.lost)


def test_a_segment_that_the_metadata_does_not_name_fills_no_hole() -> None:
    """Index objects leave entries out that the metadata's segments do not have."""
    found = stream_ledgers(ledgers(6), (2, 4))
    info = found.infos[10]
    assert info.offload is not None
    first, _, third = info.offload.segments
    found.infos[10] = replace(info, offload=replace(info.offload, segments=(first, third)))
    with streamed(found) as topic:
        with pytest.raises(MissingEntriesError) as caught:
            topic.read()
        assert (caught.value.ledger_id, caught.value.entry_id) == (10, 2)
        assert caught.value.object_key == str(first.uuid)
        rows, lost = salvaged(topic)
        assert rows == texts(6)[:2] + texts(6)[4:]
        assert lost == {(Unit.ENTRY, "MissingEntriesError"): 2}


def test_a_cut_segment_keeps_the_ledgers_before_the_cut() -> None:
    """A ledger whose share is whole is read; the others are told."""
    found = stream_ledgers(ledgers(2, 2), block_bytes=4096)
    (data_name,) = (name for name in found.objects if not name.endswith("index"))
    found.objects[data_name] = found.objects[data_name][:4200]
    with streamed(found) as topic:
        with pytest.raises(TruncatedObjectError) as caught:
            topic.read()
        assert (caught.value.object_key, caught.value.ledger_id) == (data_name, 20)
        rows, lost = salvaged(topic)
        assert rows == texts(2)
        assert sum(lost.values()) == 2


def test_a_miscounted_segment_is_read_but_for_what_its_writer_lost() -> None:
    """Sound entries keep their rows, each loss is counted, and the ledger has a warning."""
    payload = "x" * 300
    given = [(10, [entry(f"{n}{payload}") for n in range(8)])]
    given[0][1][0] = entry("0" + payload * 3)
    found = stream_ledgers(given, block_bytes=1000, miscounts=True)
    assert not found.lost
    with streamed(found) as topic:
        assert [each[0] for each in topic.read()] == list("01234567")
        (warning,) = ledgers_table(topic.catalog())["warnings"][0].as_py()
        assert "miscounted" in warning


def test_without_metadata_user_metadata_names_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index objects say the rest, and copies of PIP-17 may be among them."""
    found = stream_ledgers(ledgers(4, 3), (2, 5))
    more = [(30, [entry("30:0"), entry("30:1")])]
    with streamed(found, offload(more)) as topic:
        catalog = open_catalog(topic.bucket.url)
        with pytest.raises(CorruptIndexError, match="nothing names the topic") as caught:
            topic.read(catalog)
        assert caught.value.object_key is not None
        assert salvaged(topic, catalog) == (
            ["30:0", "30:1"],
            {(Unit.LEDGER, "CorruptIndexError"): 2},
        )
        told = {"managedledgername": "public/default/persistent/orders"}
        monkeypatch.setattr(Location, "user_metadata", lambda *_: told)
        catalog = open_catalog(topic.bucket.url)
        assert topic.read(catalog) == [*texts(4, 3), "30:0", "30:1"]
        assert topic.read(catalog.refreshed()) == [*texts(4, 3), "30:0", "30:1"]


def named_in(parts: Sequence[Part]) -> StreamedLedgers:
    """A ledger with a segment for each part, which the metadata names."""
    uuids = [UUID(int=0xD000 + number) for number, _ in enumerate(parts)]
    objects: dict[str, bytes] = {}
    for uuid, part in zip(uuids, parts, strict=True):
        objects |= segment_objects(uuid, write_segment([part]))
    segments = tuple(OffloadSegment(uuid=each, complete=True) for each in uuids)
    context = OffloadContext(uuid=None, complete=True, segments=segments)
    info = LedgerInfo(ledger_id=parts[0].ledger_id, offload=context)
    return StreamedLedgers(objects, {info.ledger_id: info}, set())


def test_segments_that_have_more_than_the_closed_ledger_are_told() -> None:
    """One that was written before the ledger was closed cannot have entries behind its end."""
    ((ledger_id, entries),) = ledgers(9)
    size_bytes = sum(map(len, entries[:7]))
    before = Part(ledger_id, entries, closed_ms=None)
    found = named_in([before, Part(ledger_id, entries[5:7], 5, 7, size_bytes)])
    with (
        streamed(found) as topic,
        pytest.raises(CorruptIndexError, match="disagree about its number"),
    ):
        topic.read()


def test_a_ledger_of_both_kinds_is_read_once() -> None:
    """The metadata says which one counts."""
    given = ledgers(3)
    found = stream_ledgers(given, (1,))
    other = offload([(10, [entry("other"), *given[0][1][1:]])])
    with streamed(found, other) as topic:
        assert topic.read() == texts(3)
        context = OffloadContext(uuid=open_name(next(iter(other))), complete=True)
        topic.tell(LedgerInfo(ledger_id=10, entries=3, offload=context))
        assert topic.read() == ["other", *texts(3)[1:]]


def test_segments_in_another_bucket_are_found_there() -> None:
    """Each segment has the bucket recorded that it was written to."""
    found = stream_ledgers(ledgers(4), (2,))
    info = found.infos[10]
    assert info.offload is not None
    segments = [
        replace(each, driver="aws-s3", driver_properties={"bucket": "other"})
        for each in info.offload.segments
    ]
    info = replace(info, offload=replace(info.offload, segments=tuple(segments)))
    here = StreamedLedgers(offload([(5, [entry("a")])]), {10: info}, set())
    with streamed(here) as topic, memory_bucket(found.objects) as other:
        catalog = topic.catalog(buckets={"other": other.url})
        assert topic.read(catalog) == texts(4)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_catalog_of_segments_is_not_saved(tmp_path: Path, *, is_stored: bool) -> None:
    """Whether the bucket has one or the metadata alone names it, and the error says which."""
    found = stream_ledgers(ledgers(3, 4), (2,))
    names = [f"{TOPIC} has ledger 10"] if not is_stored else found.objects
    here = found if is_stored else StreamedLedgers(offload(ledgers(1)), found.infos, set())
    with streamed(here) as topic:
        catalog = open_catalog(topic.bucket.url) if is_stored else topic.catalog()
        with pytest.raises(OptionError, match="streaming offload") as caught:
            catalog.save(tmp_path / "saved.json.gz")
    assert any(name in str(caught.value) for name in names)
    assert not list(tmp_path.iterdir())


def test_tables_tell_blocks_and_objects() -> None:
    """Each object is listed once, whatever the number of ledgers in it."""
    found = stream_ledgers(ledgers(4, 3), (2,), block_bytes=300)
    with streamed(found) as topic:
        catalog = topic.catalog()
        told = ledgers_table(catalog).to_pylist()[:2]
        assert [each["last_entry_id"] for each in told] == [3, 2]
        blocks = blocks_table(catalog).to_pylist()
        assert next(each["first_entry_id"] for each in blocks if each["ledger_id"] == 10) == 0
        assert {each["object"] for each in blocks} == {
            name for name in found.objects if not name.endswith("index")
        }
        objects = objects_table(catalog)
        assert sorted(objects["object"].to_pylist()) == sorted(found.objects)
        assert sum(objects["bytes"].to_pylist()) == sum(map(len, found.objects.values()))
        assert stored_bytes(catalog.contents) == sum(map(len, found.objects.values()))
        topic_row = topics_table(catalog).to_pylist()[0]
        assert (topic_row["ledgers"], topic_row["entries"]) == (2, 7)


def test_ledgers_in_segments_are_verified(tmp_path: Path) -> None:
    """Each is read whole, and a journal tells those of one object apart."""
    found = stream_ledgers(ledgers(4, 4), (2,))
    with streamed(found) as topic:
        catalog = topic.catalog()
        journal = VerificationJournal(tmp_path / "journal")
        read_now: list[int] = []
        for _ in range(2):
            verified = list(
                verify(
                    catalog.ledgers_of([NAME]),
                    journal=journal,
                    progress=lambda each: read_now.append(each.ledger_id),
                )
            )
            assert [(each.ledger_id, each.entries) for each in verified] == [(10, 4), (20, 4)]
            assert not any(each.problems for each in verified)
        assert read_now == [10, 20]


def test_a_journal_knows_all_segments_of_a_ledger(tmp_path: Path) -> None:
    """One that took another one's place, of the same size, was not verified."""
    found = stream_ledgers(ledgers(4), (2,))
    segments = [each.uuid for each in found.infos[10].offload.segments]  # type: ignore[union-attr]
    damaged = bytearray(found.objects[str(segments[1])])
    damaged[150] ^= 1
    taken = UUID(int=0xC000)
    found.objects[str(taken)] = bytes(damaged)
    found.objects[f"{taken}-index"] = found.objects[f"{segments[1]}-index"]
    journal = VerificationJournal(tmp_path / "journal")
    with streamed(found) as topic:
        (sound,) = verify(topic.catalog().ledgers_of([NAME]), journal=journal)
        assert not sound.problems
        named = tuple(OffloadSegment(uuid=each, complete=True) for each in (segments[0], taken))
        context = OffloadContext(uuid=None, complete=True, segments=named)
        topic.tell(replace(found.infos[10], offload=context))
        (other,) = verify(topic.catalog().ledgers_of([NAME]), journal=journal)
    assert other.problems


def topic_objects(topic: Streamed) -> list[str]:
    """The names of the bucket's objects."""
    return [info.name for info in Location(topic.bucket.url).list_objects()]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_segments_are_counted_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Even those of ledgers that a proven metadata does not have any more."""
    told = {"managedledgername": "public/default/persistent/orders"}
    monkeypatch.setattr(Location, "user_metadata", lambda *_: told)
    found = stream_ledgers(ledgers(2, 2, 2), (4,))
    catalog = proven(tmp_path, found.objects, list(found.infos.values())[kept:])
    result = audit(catalog, is_one_cluster=True)
    assert (result.findings, result.streaming_ledgers) == ((), 3)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_segments_that_name_no_topic_are_losses_without_metadata(*, is_damaged: bool) -> None:
    """They may be of any topic; so may those whose index object cannot be read."""
    found = stream_ledgers(ledgers(2))
    data_name, index_name = found.objects
    if is_damaged:
        found.objects[index_name] = bytes(80)
    with memory_bucket(found.objects) as bucket:
        result = audit(open_catalog(bucket.url))
    (finding,) = result.losses
    kind = FindingKind.FORMAT_MISMATCH if is_damaged else FindingKind.STREAMING
    assert (finding.kind, finding.objects) == (kind, (index_name, data_name))
    assert (finding.deletable, result.streaming_ledgers) == (False, 0 if is_damaged else 1)


def proven(folder: Path, objects: dict[str, bytes], infos: Sequence[LedgerInfo]) -> Catalog:
    """A catalog of old objects, with metadata that is proven to be whole."""
    bucket = folder / "bucket"
    bucket.mkdir()
    for name, data in objects.items():
        (bucket / name).write_bytes(data)
        os.utime(bucket / name, (1_700_000_000, 1_700_000_000))
    saved = save_metadata(folder, metadata_of(*infos))
    files = {each.name: each.read_bytes() for each in saved.iterdir()}
    (saved / MANIFEST_FILE).write_bytes(manifest_json(NAME, files))
    return open_catalog(str(bucket), metadata={TOPIC: str(saved)})


@pytest.mark.parametrize("is_miscounted", [False, True])
def test_what_a_miscounted_segment_may_lack_stays(tmp_path: Path, *, is_miscounted: bool) -> None:
    """Its writer may have lost entries, which a copy of PIP-17 has."""
    given = [(10, [entry(f"{n}" + "x" * 300) for n in range(8)])]
    found = stream_ledgers(given, block_bytes=200, miscounts=is_miscounted)
    own = offload([(5, [entry("a")])])
    attempt = OffloadContext(uuid=open_name(next(iter(own))), complete=True)
    infos = (LedgerInfo(ledger_id=5, entries=1, offload=attempt), *found.infos.values())
    objects = found.objects | own | offload(given)
    result = audit(proven(tmp_path, objects, infos), is_one_cluster=True)
    (finding,) = result.findings
    assert finding.kind is FindingKind.DOUBLE
    assert not finding.deletable
    assert ("may lack entries" in finding.text) == is_miscounted


def test_a_catalog_shows_the_ledgers_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their topic if they name one, and as soon as index objects are read."""
    found = stream_ledgers(ledgers(4, 3), (2, 5))
    told = {"managedledgername": "public/default/persistent/orders"}
    with streamed(found) as topic:
        assert "0 ledgers, with metadata" in repr(topic.catalog())
        assert "0 topics, 2 ledgers" in repr(open_catalog(topic.bucket.url))
        assert "topic unknown" in open_catalog(topic.bucket.url)._repr_html_()
        with pytest.raises(TopicNotFoundError, match="3 segments of streaming offload"):
            open_topic(topic.bucket.url, "other", catalog=topic.catalog())
        monkeypatch.setattr(Location, "user_metadata", lambda *_: told)
        catalog = open_catalog(topic.bucket.url)
        assert "1 topic, 2 ledgers" in repr(catalog)
        assert TOPIC in catalog._repr_html_()


def test_what_is_written_takes_no_id_of_a_segments_ledger() -> None:
    """The names of its objects do not tell it, so index objects are read."""
    found = stream_ledgers(ledgers(4, 3), (2, 5))
    with memory_bucket(found.objects) as bucket:
        write_messages(
            bucket.url, "persistent://public/default/new", pa.table({"__value__": [b"new"]})
        )
        names = [parse_object_name(each.name) for each in Location(bucket.url).list_objects()]
        written = {each.ledger_id for each in names if each is not None} - {None}
        assert min(each for each in written if each is not None) > 20


def test_metadata_that_names_no_segment_takes_all_of_a_ledger() -> None:
    """As the admin API's answers are: they say that a ledger is offloaded, and not where."""
    found = stream_ledgers(ledgers(4, 3), (2, 5))
    with streamed(found) as topic:
        context = OffloadContext(uuid=None, complete=True)
        topic.tell(*(replace(each, offload=context) for each in topic.infos))
        assert topic.read() == texts(4, 3)
        (known,) = topic.catalog().ledgers_of([NAME])
        assert [len(each.others) for each in known.states[:-1]] == [0, 0]


def test_a_segment_that_was_deleted_since_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention may take objects between the listing and the reading of their index objects."""
    told = {"managedledgername": "public/default/persistent/orders"}
    monkeypatch.setattr(Location, "user_metadata", lambda *_: told)
    found = stream_ledgers(ledgers(2, 3), (2,))
    first = min(name for name in found.objects if not name.endswith("index"))
    with memory_bucket(found.objects) as bucket:
        listing = list_bucket(Location(bucket.url))
        bucket.delete(first)
        bucket.delete(f"{first}-index")
        contents = Bucket(listing).open_all()
        assert [copy.name.ledger_id for copy in contents.copies] == [20]
        assert [str(each.name.uuid) for each in contents.pairs] != [first]


def test_a_segment_that_failed_does_not_count() -> None:
    """The metadata notes each one before it is written, and may keep it."""
    found = stream_ledgers(ledgers(4), (2,))
    info = found.infos[10]
    assert info.offload is not None
    failed = OffloadSegment(uuid=UUID(int=0xDEAD), complete=False)
    segments = (*info.offload.segments[:1], failed, *info.offload.segments[1:])
    found.infos[10] = replace(info, offload=replace(info.offload, segments=segments))
    with streamed(found) as topic:
        assert topic.read() == texts(4)


def test_the_table_of_blocks_has_each_entry_once() -> None:
    """Where segments overlap, a block has the entries that are read of it."""
    ((ledger_id, entries),) = ledgers(6)
    size_bytes = sum(map(len, entries))
    parts = [Part(ledger_id, entries), Part(ledger_id, entries[2:4], 2, 6, size_bytes)]
    found = stream_ledgers(ledgers(6), (2,))
    for uuid, part in zip(map(UUID, list(found.objects)[::2]), parts, strict=True):
        found.objects |= segment_objects(uuid, write_segment([part]))
    info = found.infos[ledger_id]
    assert info.offload is not None
    ends = zip(info.offload.segments, (5, 3), strict=True)
    segments = tuple(replace(each, end_entry_id=end) for each, end in ends)
    found.infos[ledger_id] = replace(info, offload=replace(info.offload, segments=segments))
    with streamed(found) as topic:
        assert topic.read() == texts(6)
        rows = blocks_table(topic.catalog()).to_pylist()

    assert [(row["first_entry_id"], row["last_entry_id"]) for row in rows] == [
        (0, 1),
        (2, 3),
        (4, 5),
    ]
