"""`connector.upkeep.verify.verification`: reading whole ledgers finds whatever is wrong."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import OptionError, StorageError, TrimmedEntriesError
from arrow_io.format.index_block import FORMAT_VERSION_KEY
from arrow_io.ledgers.data import LedgerData
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog
from connector.catalog.live_cluster import explain_missing_in_topic
from connector.statistics.store import open_statistics
from connector.upkeep.verify import verification
from connector.upkeep.verify.journal import VerificationJournal
from connector.upkeep.verify.verification import verify
from tests.support.buckets import memory_bucket, offload
from tests.support.damage import Part, flipped, regions, woven_objects
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topic, golden_topics
from tests.support.large_bucket import LargeBucket
from tests.support.owned_bucket import SMALL, OwnedBucket
from tests.support.s3_server import running_s3_server
from tests.support.slow_store import SlowStore
from tests.support.statistics import rows_of
from tests.support.stopping_store import Killed, stopping
from tests.support.trimmed_topic import TOPIC as TRIMMED_TOPIC
from tests.support.trimmed_topic import trimmed_topic

if TYPE_CHECKING:
    from pathlib import Path

    from connector import Catalog
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.upkeep.verify.journal import VerifiedLedger

CHUNKED: Final = golden_topic("small-chunked")
# Nothing tells what these bytes should be: they are never read, and no checksum covers them.
_UNCHECKED: Final = frozenset({Part.BLOCK_FILL, Part.PADDING, Part.BROKER_METADATA})


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


def _topics(catalog: Catalog) -> list[TopicLedgers]:
    return [catalog.ledgers(topic) for topic in catalog.topics()]


def _verified(catalog: Catalog, **options: Any) -> list[VerifiedLedger]:  # noqa: ANN401
    return list(verify(_topics(catalog), **options))


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_golden_ledgers_are_sound(set_name: str) -> None:
    """Every entry that `topics.json` has is there, with its checksum."""
    ledgers = {
        ledger.data_object.name: (topic.name, ledger)
        for topic in golden_topics()
        if topic.set_name == set_name
        for ledger in topic.ledgers
    }
    told: list[VerifiedLedger] = []

    found = _verified(open_catalog(str(GOLDEN / set_name / "objects")), progress=told.append)

    assert told == found
    assert sorted(each.object for each in found) == sorted(ledgers)
    for each in found:
        topic, ledger = ledgers[each.object]
        assert (each.topic, each.ledger_id) == (topic, ledger.ledger_id)
        assert (each.entries, each.unchecked_entries) == (ledger.entry_count, 0)
        assert each.stored_bytes == ledger.data_object.stat().st_size
        assert each.problems == ()


def test_each_byte_that_anything_tells_of() -> None:
    """A flipped bit in a header, an entry, or the padding behind the last entry is found."""
    objects = woven_objects()
    met = set()
    with memory_bucket(objects) as memory:
        topics = _topics(open_catalog(memory.url))
        assert not any(each.problems for each in verify(topics))
        for name in (each for each in objects if not each.endswith("-index")):
            for region in regions(objects[name]):
                met.add(region.part)
                for position in range(region.start, region.stop):
                    memory.rot(name, flipped(objects[name], position, 1 << position % 8))
                    damaged = [each.object for each in verify(topics) if each.problems]
                    assert damaged == [name] or (damaged == [] and region.part in _UNCHECKED)
            memory.rot(name, objects[name])
    assert met == set(Part)


def test_all_damage_of_a_ledger_is_told(bucket: OwnedBucket) -> None:
    """Not only the first; what is sound around it is counted, other ledgers are not touched."""
    ledger = CHUNKED.ledgers[0]
    data = ledger.data_object.read_bytes()
    checked = [each for each in regions(data) if each.part is Part.CHECKED]
    for region in (checked[1], checked[4]):
        data = flipped(data, region.stop - 1, 1)
    bucket.write(ledger.data_object.name, data)

    found = {each.object: each for each in _verified(bucket.catalog())}

    damaged = found.pop(ledger.data_object.name)
    assert damaged.entries == ledger.entry_count - 2
    assert len(damaged.problems) == 2
    assert "entry 1" in damaged.problems[0]
    assert "entry 4" in damaged.problems[1]
    assert not any(each.problems for each in found.values())


@pytest.mark.parametrize(("more", "line"), [(1, "1 more is lost"), (3, "3 more are lost")])
def test_endless_damage_is_counted(
    more: int, line: str, monkeypatch: pytest.MonkeyPatch, bucket: OwnedBucket
) -> None:
    """The first problems are told, of the others how many they are."""
    ledger = CHUNKED.ledgers[0]
    monkeypatch.setattr("arrow_io.read_metrics.MAX_LOSSES", ledger.entry_count - more)
    data = ledger.data_object.read_bytes()
    for region in regions(data):
        if region.part is Part.CHECKED:
            data = flipped(data, region.stop - 1, 1)
    bucket.write(ledger.data_object.name, data)

    found = {each.object: each for each in _verified(bucket.catalog())}

    *told, last = found[ledger.data_object.name].problems
    assert (len(told), last) == (ledger.entry_count - more, line)
    assert found[ledger.data_object.name].entries == 0


@pytest.mark.parametrize("which", ["data_object", "index_object"])
def test_object_that_is_deleted_meanwhile_is_a_problem(bucket: OwnedBucket, which: str) -> None:
    """A ledger that is trimmed while others are read does not end the run."""
    topics = _topics(bucket.catalog())
    bucket.delete(getattr(CHUNKED.ledgers[0], which).name)

    found = {each.object: each for each in verify(topics)}

    assert len(found) == 29
    gone = found.pop(CHUNKED.ledgers[0].data_object.name)
    if which == "data_object":
        [problem] = gone.problems
        assert "the data object is missing, but its index object exists" in problem
    else:
        # It was read before, and is not needed again.
        assert gone.problems == ()
    assert not any(each.problems for each in found.values())


@pytest.mark.parametrize(
    ("lost", "problem"), [(1, "1 entry of 3 was not found"), (2, "2 entries of 3 were not found")]
)
def test_entries_that_no_error_accounts_for_are_a_problem(
    lost: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that drops entries without an error is found by their number."""
    entry_runs = LedgerData.entry_runs

    def dropping(ledger: LedgerData, first: int, last: int, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        return entry_runs(ledger, first, last - lost, *args, **options)

    monkeypatch.setattr(LedgerData, "entry_runs", dropping)
    entry = encode_entry([Message()], batched=False)
    with memory_bucket(offload([(7, [entry] * 3)])) as memory:
        (found,) = _verified(open_catalog(memory.url))

    assert (found.entries, found.problems) == (3 - lost, (problem,))


@pytest.mark.s3
def test_user_metadata_that_a_broker_would_refuse() -> None:
    """A data object without the format's version can be read here, and by no broker."""
    ledger = CHUNKED.ledgers[-1]
    sound = {FORMAT_VERSION_KEY: "1"}
    with running_s3_server() as server:
        bucket = server.new_bucket()
        for metadata, told in (
            (sound, ""),
            ({}, "has no user metadata"),
            ({FORMAT_VERSION_KEY: "2"}, "offload format version '2', expected '1'"),
        ):
            for path, given in ((ledger.index_object, sound), (ledger.data_object, metadata)):
                server.client.put_object(
                    Bucket=bucket, Key=path.name, Body=path.read_bytes(), Metadata=given
                )
            catalog = open_catalog(f"s3://{bucket}", storage_options=server.storage_options)
            (found,) = _verified(catalog)

            assert found.entries == ledger.entry_count
            assert len(found.problems) == (told != "")
            assert told in " ".join(found.problems)


def test_journal_spares_what_was_verified(bucket: OwnedBucket, tmp_path: Path) -> None:
    """A run that was stopped goes on where it was, and gives the whole result."""
    path = tmp_path / "journal.jsonl"
    expected = _verified(bucket.catalog())
    started = verify(_topics(bucket.catalog()), journal=VerificationJournal(path))
    assert list(itertools.islice(started, 10)) == expected[:10]
    trace = RequestTrace(keep_records=True)
    catalog = bucket.catalog(trace=trace)
    opened = len(trace.records)
    told: list[VerifiedLedger] = []

    found = _verified(catalog, journal=VerificationJournal(path), progress=told.append)

    assert found == expected
    assert told == expected[10:]
    ranges = [each for each in trace.records[opened:] if each.kind is RequestKind.RANGE_GET]
    read = {record.name for record in ranges}
    assert read == {each.object for each in expected[10:]}
    assert len(path.read_text().splitlines()) == len(expected)


def test_failure_of_the_store_ends_a_run_that_can_go_on(
    bucket: OwnedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was verified before it is not read again."""
    path, entry_runs = tmp_path / "journal.jsonl", LedgerData.entry_runs
    calls = itertools.count()

    def failing(ledger: LedgerData, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if next(calls) == 5:
            message = "the store is gone"
            raise StorageError(message)
        return entry_runs(ledger, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LedgerData, "entry_runs", failing)
        with pytest.raises(StorageError, match="the store is gone"):
            _verified(bucket.catalog(), journal=VerificationJournal(path))
    told: list[VerifiedLedger] = []

    found = _verified(bucket.catalog(), journal=VerificationJournal(path), progress=told.append)

    assert (len(found), len(told)) == (29, 24)


def test_journal_goes_on_after_a_kill(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Wherever in its last line a run was killed, later runs find a journal, and no line twice."""
    path = tmp_path / "journal.jsonl"
    topics = [each for each in _topics(bucket.catalog()) if str(each.topic) == CHUNKED.name]
    expected = list(verify(topics, journal=VerificationJournal(path)))
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for stop in range(start, len(whole)):
        path.write_bytes(whole[:stop])
        told: list[VerifiedLedger] = []

        found = list(verify(topics, journal=VerificationJournal(path), progress=told.append))

        assert found == expected
        assert told == expected[-1:]
        assert path.read_bytes() == whole


def test_problems_are_looked_at_again(bucket: OwnedBucket, tmp_path: Path) -> None:
    """What was found wrong may have been mended; what is sound stays so."""
    path = tmp_path / "journal.jsonl"
    ledger = CHUNKED.ledgers[0]
    data = ledger.data_object.read_bytes()
    bucket.write(ledger.data_object.name, flipped(data, len(data) - 1, 1))
    first = _verified(bucket.catalog(), journal=VerificationJournal(path))
    bucket.write(ledger.data_object.name, data)
    told: list[VerifiedLedger] = []

    second = _verified(bucket.catalog(), journal=VerificationJournal(path), progress=told.append)
    third = _verified(bucket.catalog(), journal=VerificationJournal(path), progress=told.append)

    assert [each.object for each in first if each.problems] == [ledger.data_object.name]
    assert [each.object for each in told] == [ledger.data_object.name]
    assert not any(each.problems for each in second)
    assert third == second


def test_journal_of_another_bucket_spares_nothing(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Copies of one object are not equally sound."""
    path = tmp_path / "journal.jsonl"
    url = str(GOLDEN / SMALL / "objects")
    assert not any(
        each.problems for each in _verified(open_catalog(url), journal=VerificationJournal(path))
    )
    ledger = CHUNKED.ledgers[0]
    data = ledger.data_object.read_bytes()
    bucket.write(ledger.data_object.name, flipped(data, len(data) - 1, 1))

    found = _verified(bucket.catalog(), journal=VerificationJournal(path))

    assert [each.object for each in found if each.problems] == [ledger.data_object.name]


def _line(**changes: object) -> bytes:
    fields = {
        "url": "/bucket",
        "topic": "persistent://a/b/c",
        "ledger_id": 5,
        "object": "o",
        "stored_bytes": 6,
        "entries": 7,
        "unchecked_entries": 0,
        "problems": ["bad"],
    }
    return json.dumps(fields | changes).encode() + b"\n"


@pytest.mark.parametrize(
    "text",
    [
        b"my only copy of something",
        b"my only copy of something\n",
        b"{}\n",
        b"[]\n",
        b"5\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        _line(entries="7"),
        _line(entries=True),
        _line(stored_bytes=[]),
        _line(object=None),
        _line(problems=None),
        _line(problems=[5]),
        _line(broker_problems=[5]),
        _line(more=5),
    ],
    ids=range(15),
)
def test_file_that_is_no_journal_is_left_alone(text: bytes, tmp_path: Path) -> None:
    """A path that was mistyped costs nothing."""
    path = tmp_path / "journal.jsonl"
    for content in (text, _line() + text):
        path.write_bytes(content)
        with pytest.raises(OptionError, match="is not a verification journal"):
            VerificationJournal(path)
        assert path.read_bytes() == content


def test_journal_is_made_at_once(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The file is there before anything is verified, and an empty file is a journal."""
    path = tmp_path / "journal.jsonl"
    catalog = bucket.catalog()
    topic = _topics(catalog)[0]
    ledger = topic.ledgers[0]
    journal = VerificationJournal(path)
    assert path.read_bytes() == b""
    assert VerificationJournal(path).find(ledger) is journal.find(ledger) is None

    journal.add(next(verify([topic])))

    assert VerificationJournal(path).find(ledger) == journal.find(ledger)
    assert journal.find(ledger) is not None


def test_place_where_no_journal_can_be(tmp_path: Path) -> None:
    """A folder, or a path in none, is told before anything is read."""
    for path in (tmp_path, tmp_path / "no" / "such" / "journal"):
        with pytest.raises(OptionError, match="cannot be opened"):
            VerificationJournal(path)


def test_journal_that_cannot_be_written_any_more(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The run ends, with an error that names the file."""
    path = tmp_path / "folder" / "journal.jsonl"
    path.parent.mkdir()
    journal = VerificationJournal(path)
    path.unlink()
    path.parent.rmdir()

    with pytest.raises(StorageError, match=r"journal\.jsonl cannot be written"):
        next(verify(_topics(bucket.catalog()), journal=journal))


def test_statistics_are_what_analyzing_gives(bucket: OwnedBucket) -> None:
    """Each zone as `analyze` has it, of damaged ledgers too; what is known is not added."""
    ledger = CHUNKED.ledgers[0]
    data = ledger.data_object.read_bytes()
    bucket.write(ledger.data_object.name, flipped(data, len(data) - 1, 1))
    catalog = bucket.catalog()
    plain = _verified(catalog)
    with memory_bucket({}) as folder, memory_bucket({}) as other:
        assert _verified(catalog, statistics=open_statistics(folder.url)) == plain
        catalog.analyze(other.url, storage_options={})
        tables = [
            sorted(
                (row for each in catalog.topics() for row in rows_of(known, str(each))),
                key=lambda row: (row["topic"], row["ledger_id"], row["first_entry_id"]),
            )
            for known in (open_statistics(folder.url), open_statistics(other.url))
        ]
        _verified(catalog, statistics=open_statistics(folder.url))
        assert len(open_statistics(folder.url).files) == 1

    assert tables[0] == tables[1]
    assert {row["ledger_id"] for row in tables[0]} == {each.ledger_id for each in plain}
    assert [row["ledger_id"] for row in tables[0] if row["damaged"]] == [ledger.ledger_id]


def test_a_verification_killed_at_any_request_leaves_nothing_unlearned(tmp_path: Path) -> None:
    """Whatever its journal knows by then, the next run learns what was not written."""
    journal = tmp_path / "journal.jsonl"
    with memory_bucket(woven_objects()) as bucket:
        topics = _topics(open_catalog(bucket.url))
        expected = [each.ledger_id for each in verify(topics)]
        for step in itertools.count(1):
            with memory_bucket({}) as folder:
                journal.unlink(missing_ok=True)
                options: Any = {"statistics": open_statistics(folder.url)}
                kinds = frozenset(RequestKind)
                with (
                    stopping(step, Killed, once=False, kinds=kinds) as stopped,
                    suppress(Killed),
                ):
                    list(verify(topics, journal=VerificationJournal(journal), **options))
                options = {"statistics": open_statistics(folder.url)}
                list(verify(topics, journal=VerificationJournal(journal), **options))
                [name] = {str(each.topic) for each in topics}
                learned = {row["ledger_id"] for row in rows_of(open_statistics(folder.url), name)}
            assert learned == set(expected)
            if not stopped:
                break
    assert step > 2 * len(expected)


def test_ledgers_are_requested_ahead() -> None:
    """While one is read, the next ones are on their way."""
    store = SlowStore(LargeBucket.of(1, 40).objects(), waves=[40, 1, 4, 8], tells_times=False)
    try:
        found = list(verify(open_catalog(store.url).every_ledger()))
    finally:
        store.drop()

    assert store.waves_left == []
    assert [each.problems for each in found] == [()] * 40


def test_entries_are_not_kept_until_their_ledger_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ledgers of gigabytes, what is found of each zone takes little memory."""
    held: list[int] = []

    def noted(zone: Any) -> Any:  # noqa: ANN401
        buffers = (zone.first.data, zone.first.table)
        held.append(sum(memoryview(each.obj).nbytes for each in buffers))
        return zone

    checked = verification._check_zone
    monkeypatch.setattr(verification, "_check_zone", lambda *given: noted(checked(*given)))
    monkeypatch.setattr("connector.statistics.whole_ledgers.ZONE_BYTES", 1)

    _verified(open_catalog(str(CHUNKED.objects_folder)))

    assert len(held) > 10
    assert max(held) < 1000


def test_a_ledger_that_the_cluster_trims_is_no_damage(tmp_path: Path) -> None:
    """A lost ledger is damaged; one that retention took while others were read ends the run."""
    with trimmed_topic(tmp_path / "bucket") as topic:
        catalogs = [open_catalog(topic.url, metadata=topic.metadata) for _ in range(2)]
        selected = [each.select(TRIMMED_TOPIC) for each in catalogs]
        runs = [
            verify(topics, explaining=partial(explain_missing_in_topic, catalog.cluster(topics)))
            for catalog, topics in zip(catalogs, selected, strict=True)
        ]
        topic.lose()
        assert [len(each.problems) for each in runs[0]] == [1, 0, 0]
        topic.trim()
        with pytest.raises(TrimmedEntriesError, match="open it again"):
            list(runs[1])
