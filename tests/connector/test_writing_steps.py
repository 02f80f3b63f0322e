"""Stage, publish and discard, as tasks and driver of a cluster do: each row once, come what may."""

from __future__ import annotations

import itertools
import json
import operator
import pickle
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptMetadataError, IncompleteReadWarning, OptionError, StorageError
from arrow_io.storage.location import Location
from connector import open_catalog, write_messages
from connector.options.write_request import WriteRequest
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.findings import FindingKind
from connector.writing.commit import begin, discard, metadata_files, publish
from connector.writing.commit_record import COMMIT_RECORDS_FOLDER, CommitRecord
from connector.writing.ledger_ids import mark_with_id
from connector.writing.staging import stage
from connector.writing.write_target import WriteTarget
from tests.support.appended_topics import keyed_rows, payloads_of
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.offloads import names
from tests.support.stopping_store import Killed, stopping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.grids import Grid


_STANDING: Final = range(5)
_ROWS: Final = range(5, 11)
_TASKS: Final = 2
_TASK_LEDGERS: Final = 10


def _target(url: str, folder: Path | None, partitions: int | None = None) -> WriteTarget:
    request = WriteRequest(
        append=True, partitions=partitions, metadata_folder=folder, ledger_entries=1,
        batch_messages=2,
    )  # fmt: skip
    return WriteTarget.from_name(url, TOPIC, request)


def _write(target: WriteTarget, write_id: str | None, rows: range = _ROWS) -> None:
    """What a cluster does: one attempt at a task is lost, and its objects stay."""
    # Of a stream, the id of the write is known to its tasks, and not to who begins it.
    plan = begin(target, target.commit_record_file(None), id_stride=_TASK_LEDGERS).plan
    target, plan = pickle.loads(pickle.dumps((target, plan)))
    plan = replace(plan, mark=mark_with_id(plan.mark, target.topic, write_id))
    file = target.commit_record_file(write_id, plan.mark)
    try:
        size = len(rows) // _TASKS
        staged = []
        for number in range(_TASKS):
            share, ids = rows[number * size :][:size], plan.ids.share(number, _TASK_LEDGERS)
            if number == 1:
                stage(target, plan, ids, keyed_rows(share))
            staged.append(stage(target, plan, ids, keyed_rows(share)))
        files = metadata_files(target)
        if files is not None:
            files.resume(file.mark)
        publish(target, pickle.loads(pickle.dumps(staged)), file, files=files)
    except BaseException:
        with suppress(StorageError):
            discard(target, file)
        raise


def _read(url: str, folder: Path | None) -> list[int]:
    with warnings.catch_warnings():
        # Readers are told of data without index, which the audit is asked for too.
        warnings.simplefilter("ignore", IncompleteReadWarning)
        return sorted(int(each) for each in payloads_of(url, folder))


def _left(url: str, folder: Path | None) -> Counter[FindingKind]:
    """What the audit finds."""
    metadata = None if folder is None else str(folder)
    found = audit(open_catalog(url, metadata=metadata))
    assert found.losses == ()
    return Counter(each.kind for each in found.findings)


@pytest.mark.parametrize("once", [False, True], ids=["killed", "a request fails"])
@pytest.mark.parametrize(
    ("has_metadata", "partitions"), [(False, None), (True, None), (True, 2)], ids=str
)
def test_a_write_that_is_repeated_is_there_once(
    grid: Grid, *, has_metadata: bool, partitions: int | None, once: bool
) -> None:
    """Stopped at any request, and stopped there once more, the third run leaves each row once.

    What else is left before it is what the audit calls data without index, and it deletes that.
    """
    left: Counter[FindingKind] = Counter()
    error = StorageError if once else Killed
    steps = grid.steps()
    for step in steps:
        bucket = MemoryBucket()
        with TemporaryDirectory() as name:
            folder = Path(name) if has_metadata else None
            write_messages(bucket.url, TOPIC, keyed_rows(_STANDING), partitions=partitions,
                           metadata_folder=folder, batch_messages=1)  # fmt: skip
            target = _target(bucket.url, folder, partitions)
            is_stopped = []
            for _ in range(2):
                # What is left to do when all is published may fail, and is told in a warning.
                stopped_at = stopping(step, lambda: error("stopped"), once=once)
                with stopped_at as stopped, suppress(error):
                    _write(target, "q-0")
                is_stopped.append(bool(stopped))
            if folder is None:
                left += _left(bucket.url, folder)
            _write(target, "q-0")

            assert _read(bucket.url, folder) == [*_STANDING, *_ROWS]
            assert _left(bucket.url, folder) == Counter()
            if folder is not None:
                assert [each.name for each in folder.iterdir() if each.is_file()] == []
        bucket.drop()
        if not is_stopped[0]:
            steps.passed()
    assert steps.count > 20
    assert has_metadata or {*left} == {FindingKind.DATA_WITHOUT_INDEX}


@pytest.mark.parametrize("has_metadata", [False, True], ids=["bucket", "metadata"])
def test_a_write_that_fails_and_has_no_id_is_undone(grid: Grid, *, has_metadata: bool) -> None:
    """Whatever request fails, all is as before, for nobody could go on with it."""
    steps = grid.steps()
    for step in steps:
        bucket = MemoryBucket()
        with TemporaryDirectory() as name:
            folder = Path(name) if has_metadata else None
            write_messages(bucket.url, TOPIC, keyed_rows(_STANDING), metadata_folder=folder)
            before = names(Location(bucket.url))
            with stopping(step, lambda: StorageError("refused"), once=True) as stopped:
                try:
                    _write(_target(bucket.url, folder), None)
                except StorageError:
                    assert names(Location(bucket.url)) == before
                    assert _read(bucket.url, folder) == [*_STANDING]
                    assert _left(bucket.url, folder) == Counter()
                    assert _records(bucket.url) == []
            bucket.drop()
            if not stopped:
                steps.passed()
    assert steps.count > 20


def _records(url: str) -> list[str]:
    return names(Location(url).child(COMMIT_RECORDS_FOLDER).child("public__default__orders"))


class TestRepeated:
    """A write of an id that was published."""

    def test_other_rows_are_not_written(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """What is staged meanwhile is deleted, and a small object remembers the id."""
        target = _target(bucket.url, tmp_path)
        _write(target, "q-0")
        there = names(Location(bucket.url))

        _write(target, "q-0", range(100, 106))

        assert _read(bucket.url, tmp_path) == [*_ROWS]
        assert names(Location(bucket.url)) == there
        assert _records(bucket.url) == ["q-0.json"]

    def test_another_id_is_another_write(self, bucket: MemoryBucket) -> None:
        """Batches of a stream follow each other."""
        target = _target(bucket.url, None)
        for number in range(3):
            _write(target, f"q-{number}", range(6 * number, 6 * number + 6))

        assert [int(each) for each in payloads_of(bucket.url, None)] == [*range(18)]

    def test_a_process_that_was_slow_changes_nothing(self, bucket: MemoryBucket) -> None:
        """Who comes to publish when another has, gets what that one has decided."""
        target, mark = _target(bucket.url, None), uuid4()
        plan = begin(target, target.commit_record_file(None, mark)).plan
        staged = stage(target, plan, plan.ids, keyed_rows(range(7)))
        _write(target, "q-0")

        published = publish(target, [staged], target.commit_record_file("q-0", mark), files=None)

        assert published.record.mark != mark
        assert _read(bucket.url, None) == [*_ROWS]

    def test_publishing_again_changes_nothing(self, bucket: MemoryBucket) -> None:
        """Neither objects nor what was decided."""
        target, mark = _target(bucket.url, None), uuid4()
        plan = begin(target, target.commit_record_file(None, mark)).plan
        staged = stage(target, plan, plan.ids, keyed_rows(range(7)))
        file = target.commit_record_file("q-0", mark)
        publish(target, [staged], file, files=None)
        there = names(Location(bucket.url))

        again = publish(target, [staged], file, files=None)
        discard(target, file)

        assert again.record.is_published
        assert names(Location(bucket.url)) == there
        assert _read(bucket.url, None) == [*range(7)]

    @pytest.mark.parametrize("write", ["whole", "killed"])
    def test_write_messages_takes_an_id_too(
        self, bucket: MemoryBucket, tmp_path: Path, write: str
    ) -> None:
        """The second call writes nothing, but what the first had left to do, and says so."""

        def run() -> Any:  # noqa: ANN401 - what was written
            return write_messages(
                bucket.url, TOPIC, keyed_rows(_ROWS), append=True, metadata_folder=tmp_path,
                write_id="2026-11-22", ledger_entries=1, batch_messages=2,
            )  # fmt: skip

        for step in itertools.count(1) if write == "killed" else ():
            with stopping(step, Killed, once=False), suppress(Killed):
                run()
            if _records(bucket.url):
                break
        written = run()

        assert _read(bucket.url, tmp_path) == [*_ROWS]
        assert written.message_count == len(_ROWS)
        written = run()
        assert "was published before: nothing was written now" in written.warnings[-1]
        assert _read(bucket.url, tmp_path) == [*_ROWS]
        assert _left(bucket.url, tmp_path) == Counter()


class TestTwoAtOnce:
    """Writers that do not know of each other."""

    def test_their_ids_hardly_ever_meet(self, bucket: MemoryBucket) -> None:
        """Both begin before either has staged anything, and both are published."""
        first, second = (_target(bucket.url, None) for _ in range(2))
        begun = [
            (
                target,
                mark,
                begin(target, target.commit_record_file(None, mark), id_stride=1000).plan,
            )
            for target, mark in ((first, uuid4()), (second, uuid4()))
        ]
        for number, (target, mark, plan) in enumerate(begun):
            rows = keyed_rows(range(10 * number, 10 * number + 10))
            staged = stage(target, plan, plan.ids.share(0, 1000), rows)
            publish(target, [staged], target.commit_record_file(None, mark), files=None)

        assert _read(bucket.url, None) == [*range(20)]

    def test_one_of_two_with_the_same_ids_is_discarded(self, bucket: MemoryBucket) -> None:
        """Before it is decided, so that none of its rows is seen."""
        target = _target(bucket.url, None)
        marks = uuid4(), uuid4()
        plans = [begin(target, target.commit_record_file(None, mark)).plan for mark in marks]
        staged = [
            stage(target, plan, plan.ids, keyed_rows(range(10 * number, 10 * number + 10)))
            for number, plan in enumerate(plans)
        ]

        for mark, each in zip(marks, staged, strict=True):
            with pytest.raises(OptionError, match="one writer at a time"):
                publish(target, [each], target.commit_record_file("q", mark), files=None)
            discard(target, target.commit_record_file("q", mark))
            break
        publish(target, [staged[1]], target.commit_record_file("r", marks[1]), files=None)

        assert _read(bucket.url, None) == [*range(10, 20)]


def test_a_task_with_too_many_ledgers_is_told(bucket: MemoryBucket) -> None:
    """The error names the option; nothing is left of the task."""
    target = _target(bucket.url, None)
    plan = begin(target, target.commit_record_file(None)).plan

    with pytest.raises(OptionError, match="may write 3 ledgers: raise task_ledgers"):
        stage(target, plan, plan.ids.share(5, 3), keyed_rows(range(8)))

    assert names(Location(bucket.url)) == []


def _decided(bucket: MemoryBucket) -> bytes:
    """The text of a decision that was not carried out."""
    target, mark = _target(bucket.url, None), uuid4()
    plan = begin(target, target.commit_record_file(None, mark)).plan
    staged = stage(target, plan, plan.ids, keyed_rows(range(3)))
    place = Location(bucket.url).child(COMMIT_RECORDS_FOLDER).child("public__default__orders")
    for step in itertools.count(1):
        with stopping(step, Killed, once=False), suppress(Killed):
            publish(target, [staged], target.commit_record_file("q", mark), files=None)
        if names(place):
            return place.read_object("q.json", max_bytes=1 << 20).data
    raise AssertionError


def test_a_decision_is_read_as_it_was_written(bucket: MemoryBucket) -> None:
    """Ledgers, their index objects, schemas and marks; and the short form."""
    text = _decided(bucket)
    record = CommitRecord.from_json(text)

    assert record.to_json() == text
    assert record.partitions is not None
    assert [each.ledger_id for each in record.partitions[0].ledgers] == [0, 1, 2]
    assert len(record.indexes) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"}", b""),
        (b"{", b"["),
        (b'"version": 1', b'"version": 2'),
        (b'"messages": 3', b'"messages": "three"'),
        (b"-index", b"-data"),
        (b'{"name": "', b'{"name": "../'),
        (b'"mark": "', b'"mark": "00000000-0000-4000-8000-000000000000", "x": "'),
        (b'"begun_ms": ', b'"begun_ms": 99999999999999999'),
        (b'"data": "', b'"data": "!'),
        (b'"partitions": ', b'"partitions": 5, "x": '),
    ],
    ids=str,
)
def test_a_decision_that_is_not_as_it_was_written_is_named(
    bucket: MemoryBucket, old: bytes, new: bytes
) -> None:
    """Nothing is published by it."""
    text = _decided(bucket).replace(old, new)
    place = Location(bucket.url).child(COMMIT_RECORDS_FOLDER).child("public__default__orders")
    place.write_object("q.json", text, user_metadata={})
    before = names(Location(bucket.url))

    with pytest.raises(CorruptMetadataError, match="commit record of a write is damaged") as raised:
        write_messages(bucket.url, TOPIC, keyed_rows(_ROWS), write_id="q")

    assert (raised.value.object_key or "").endswith("q.json")
    assert names(Location(bucket.url)) == before


def test_every_byte_of_a_decision_that_is_changed_is_noticed(bucket: MemoryBucket) -> None:
    """Changed or cut, it is a typed error; nothing is published that was not decided."""
    text = _decided(bucket)
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        for damaged in (changed, text[:at]):
            with pytest.raises(CorruptMetadataError, match="commit record of a write is damaged"):
                CommitRecord.from_json(damaged)


_DAMAGED: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    1e999,
    -1e999,
    float("nan"),
    1 << 80,
    "é",
    "",
    [],
    {},
    [1],
)


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """The way to each value in JSON, containers too."""
    yield way
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(each, (*way, key))


def test_any_value_in_a_decision_may_be_damaged(bucket: MemoryBucket) -> None:
    """Whatever JSON has in its place, it is a typed error, or a decision like one that is written.

    A text that is not checked, as that of an index object's own metadata, is a text nevertheless.
    """
    text = _decided(bucket)
    for way in _places(json.loads(text)):
        for damaged in _DAMAGED:
            fields = json.loads(text)
            if way:
                *path, last = way
                reduce(operator.getitem, path, fields)[last] = damaged
            else:
                fields = damaged
            if isinstance(fields, dict) and way != ("crc32",):
                # As if it was written so: the checksum alone would hide what else is checked.
                fields.pop("crc32", None)
                fields["crc32"] = json_crc32(fields)
            try:
                record = CommitRecord.from_json(json.dumps(fields).encode())
            except CorruptMetadataError:
                continue
            numbers = record.message_count, record.started_ms
            assert {type(each) for each in numbers} == {int}, (way, damaged)
            assert record.message_count >= 0, (way, damaged)
            assert record.to_json(), (way, damaged)
