"""A copy that is stopped at whatever request, and run again: the table has each row once."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from arrow_io.errors import ConcurrentCopyError, PulsarOffloadError, StorageError
from arrow_io.storage.location import Location
from connector import copy_topics
from connector.lake import task_writer
from connector.lake.copy_plan import CopySizes
from connector.tables import file_writer
from connector.tables.dead_letters import POSITION_COLUMNS
from connector.tables.delta import DeltaTable
from connector.tables.executors import run_in_threads
from connector.tables.parquet import ParquetTable
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.faulty_s3 import Fault, S3Faults
from tests.support.killed_lake_runs import Killed, Killer
from tests.support.lake_copies import (
    COLUMNS,
    SCHEMA,
    batch_rows,
    in_order,
    letters_target,
    sound_rows,
    write_topic,
)
from tests.support.lake_tables import table_of
from tests.support.s3_server import S3Server, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask
    from tests.support.grids import Grid

    Table = DeltaTable | ParquetTable

_SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1)
"""A commit for each data block, which here is for each ledger."""


@pytest.fixture
def source() -> Iterator[MemoryBucket]:
    """A bucket with a topic of three ledgers, in which some values cannot be decoded."""
    bucket = MemoryBucket()
    write_topic(bucket.url, range(13), with_odd=True)
    yield bucket
    bucket.drop()


def one_by_one(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
    """Run tasks in the order given, so that requests are always the same."""
    return map(write, tasks)


def copy(source: MemoryBucket, target: str, kind: str, **options: Any) -> None:  # noqa: ANN401
    """Copy what is new, in the smallest steps."""
    given: dict[str, Any] = {"format": kind, "partition_by": ["country"]}
    given |= {"sizes": _SMALL, "dead_letters": True, "schema": SCHEMA}
    copy_topics(source.url, TOPIC, target, **(given | options))


def check(
    source: MemoryBucket,
    target: str,
    kind: str,
    options: dict[str, Any] | None,
    *,
    latest: bool = False,
) -> None:
    """Compare both tables to what a batch read gives, or to the latest of it of each key."""
    rows, dead = sound_rows(source.url)
    if latest:
        of_keys = {row["__key__"]: number for number, row in enumerate(rows)}
        rows = [rows[number] for number in sorted(of_keys.values())]
    table = opened(target, kind, options)
    assert in_order(table_of(table).select(list(COLUMNS))) == rows
    letters = in_order(table_of(opened(letters_target(target), kind, options)))
    assert [each["__value__"] for each in letters] == dead
    assert {each["__topic__"] for each in letters} == {TOPIC}
    assert all(each["reason"] for each in letters)


def opened(target: str, kind: str, options: dict[str, Any] | None) -> Table:
    """A table."""
    location = Location(target, options)
    return DeltaTable(location) if kind == "delta" else ParquetTable(location)


@pytest.mark.parametrize(
    ("kind", "latest"),
    [("delta", False), ("parquet", False), ("delta", True)],
    ids=["delta", "parquet", "delta-latest"],
)
def test_killed_at_any_request(
    kind: str,
    *,
    latest: bool,
    grid: Grid,
    source: MemoryBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever request is the last one, the next run has each row and each dead letter once."""
    given: dict[str, Any] = {"executor": one_by_one}
    if latest:
        given |= {"latest_per_key": True, "partition_by": None}
    steps = grid.steps()
    for step in steps:
        target = str(tmp_path / str(step)) if kind == "delta" else f"memory://killed-copies/{step}"
        with monkeypatch.context() as patches:
            killer = Killer(patches, step)
            patches.setattr(file_writer, "PART_BYTES", 1 << 10)
            try:
                copy(source, target, kind, **given)
            except Killed:
                killer.revive()
                copy(source, target, kind, **given)
            else:
                steps.passed()
        check(source, target, kind, None, latest=latest)
    # Each of three ledgers has three files, staged ones among them, and a commit at least.
    assert steps.count >= 3 * 4
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("schemas", [(SCHEMA, "INT64"), ("INT64", SCHEMA)], ids=["more", "fewer"])
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_after_a_kill_another_schema_decodes_other_values(
    kind: str,
    schemas: tuple[object, object],
    *,
    grid: Grid,
    source: MemoryBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each message is a row or a dead letter, and none is both."""
    expected = batch_rows(source.url, value="raw", columns=list(POSITION_COLUMNS))
    first, second = schemas
    steps = grid.steps()
    for step in steps:
        target = str(tmp_path / str(step))
        with monkeypatch.context() as patches:
            killer = Killer(patches, step)
            given: dict[str, Any] = {"executor": one_by_one, "partition_by": None}
            try:
                copy(source, target, kind, schema=first, **given)
            except Killed:
                killer.revive()
                copy(source, target, kind, schema=second, **given)
            else:
                steps.passed()
        tables = [table_of(opened(each, kind, None)) for each in (target, letters_target(target))]
        # A table of plain Parquet without files shows no columns.
        rows = [each.select(POSITION_COLUMNS) for each in tables if each.num_columns]
        assert in_order(pa.concat_tables(rows, promote_options="permissive")) == expected


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_what_comes_after_a_kill_is_copied_too(
    kind: str, source: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The increment that is made again may be another one than that which was stopped."""
    for step in range(1, 20, 3):
        target = str(tmp_path / str(step))
        with monkeypatch.context() as patches:
            killer = Killer(patches, step)
            with pytest.raises(Killed):
                copy(source, target, kind)
            killer.revive()
        write_topic(source.url, range(step * 100, step * 100 + 9), with_odd=True, append=True)
        copy(source, target, kind, sizes=CopySizes())
        check(source, target, kind, None)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_of_two_runs_at_a_time_one_wins(kind: str, source: MemoryBucket, tmp_path: Path) -> None:
    """The other says so, deletes what it wrote, and the table has each row once."""
    target = str(tmp_path / "t")

    def overtaken(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
        written = [write(each) for each in tasks]
        copy(source, target, kind)
        return iter(written)

    with pytest.raises(ConcurrentCopyError):
        copy(source, target, kind, executor=overtaken)
    check(source, target, kind, None)
    named = sum(1 for _ in tmp_path.rglob("*.parquet"))
    copy(source, str(tmp_path / "other"), kind)
    assert sum(1 for _ in tmp_path.rglob("*.parquet")) == 2 * named


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_task_that_fails_leaves_no_files(
    kind: str, source: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other tasks of the same step wrote is deleted, and what was committed before stays."""
    target = tmp_path / "t"
    copy(source, str(target), kind)
    before = sorted(tmp_path.rglob("*.parquet"))
    write_topic(source.url, range(100, 124), append=True)
    written = itertools.count()
    finish = file_writer.FileWriter.finish

    def failing(writer: file_writer.FileWriter) -> Any:  # noqa: ANN401
        files = finish(writer)
        if next(written) == 5:
            message = "the disk is full"
            raise StorageError(message)
        return files

    monkeypatch.setattr(file_writer.FileWriter, "finish", failing)
    with pytest.raises(StorageError, match="disk is full"):
        copy(source, str(target), kind, sizes=CopySizes(task_bytes=1))
    assert sorted(tmp_path.rglob("*.parquet")) == before
    monkeypatch.undo()
    copy(source, str(target), kind)
    check(source, str(target), kind, None)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_an_unanswered_commit_names_the_files_that_are_kept(
    kind: str, source: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a commit that may have been made says which files nobody may delete yet."""
    table_class: Any = DeltaTable if kind == "delta" else ParquetTable
    commit = table_class.commit

    def unanswered(table: Table, *arguments: object) -> None:
        commit(table, *arguments)
        if str(table.location).endswith("/t"):
            message = "no answer came"
            raise StorageError(message)

    monkeypatch.setattr(table_class, "commit", unanswered)
    monkeypatch.setattr(file_writer, "_MAX_NAMES", 2)
    with pytest.raises(StorageError, match="no answer came") as raised:
        copy(source, str(tmp_path / "t"), kind, sizes=CopySizes(task_bytes=1))

    kept = [path.name for path in (tmp_path / "t").rglob("*.parquet")]
    note, letters_note = (each for each in raised.value.__notes__ if "they are kept" in each)
    assert "t_dead_letters has these files" in letters_note
    assert len(kept) > 3
    assert sum(name in note for name in kept) == 2
    assert note.endswith(f" and {len(kept) - 2} others")


@pytest.fixture(scope="module")
def faults() -> S3Faults:
    """What goes wrong with an S3 server."""
    return S3Faults()


@pytest.fixture(scope="module")
def server(faults: S3Faults) -> Iterator[S3Server]:
    """An S3 server."""
    with running_s3_server(faults.wrap) as server:
        yield server


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.ERROR_500], ids=["lost", "500"])
def test_any_request_to_s3_may_fail(
    kind: str, fault: Fault, *, grid: Grid, source: MemoryBucket, server: S3Server, faults: S3Faults
) -> None:
    """Ours or one of `deltalake`: done though no answer came, or not done, it changes no row.

    To lose the answer of a request that changes nothing is as if it failed.
    """
    options = server.storage_options
    given: dict[str, Any] = {"target_options": options, "executor": one_by_one}
    given |= {"sizes": CopySizes(), "partition_by": None}
    faults.heal()
    copy(source, f"s3://{server.new_bucket()}/t", kind, **given)
    steps = [
        step
        for step, request in enumerate(faults.requests, 1)
        if fault is Fault.ERROR_500 or not request.startswith(("GET", "HEAD"))
    ]
    assert len(steps) > 2
    for step in grid.of(steps):
        target = f"s3://{server.new_bucket()}/t"
        faults.plan(fault, first=step)
        try:
            copy(source, target, kind, **given)
        except PulsarOffloadError:
            faults.heal()
            copy(source, target, kind, **given)
        faults.heal()
        check(source, target, kind, options)


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()], ids=["err", "int"])
def test_tasks_under_way_leave_nothing(
    error: BaseException,
    source: MemoryBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If whoever hears of a task raises, what others wrote meanwhile is deleted, too."""
    begun, raised = threading.Event(), threading.Event()
    numbers = itertools.count()
    write = task_writer.TaskWriter.__call__

    def writing(writer: TaskWriter, task: ScanTask) -> WrittenTask:
        if next(numbers):
            begun.set()
            assert raised.wait(60)
        else:
            assert begun.wait(60)
        return write(writer, task)

    def told(*_: int) -> None:
        raised.set()
        raise error

    monkeypatch.setattr(task_writer.TaskWriter, "__call__", writing)
    monkeypatch.setattr("connector.tables.executors.processor_count", lambda: 2)
    sizes = CopySizes(task_bytes=1)
    with pytest.raises(type(error)):
        copy(source, str(tmp_path / "t"), "parquet", on_progress=told, sizes=sizes)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_tasks_that_wait_behind_one_that_fails_are_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What came of those under way is given, and the error raised then: nothing is waited for."""
    cancel, is_cancelled = Future.cancel, threading.Event()

    def noted(future: Future[Any]) -> bool:
        found = cancel(future)
        is_cancelled.set()
        return found

    def write(task: int) -> int:
        if task == 0:
            raise ValueError("failed")
        is_cancelled.wait()
        return task

    monkeypatch.setattr(Future, "cancel", noted)
    monkeypatch.setattr("connector.tables.executors.processor_count", lambda: 2)
    given: list[Any] = []
    with pytest.raises(ValueError, match="failed"):
        given.extend(run_in_threads(cast("TaskWriter", write), cast("Any", list(range(12)))))

    assert len(given) < 11
