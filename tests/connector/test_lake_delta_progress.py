"""Which progress files a Delta table keeps, and where a copy to a restored table goes on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from arrow_io.errors import ConcurrentCopyError, LakeTableError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestKind
from connector import copy_topics
from connector.lake.copy_plan import CopySizes
from connector.tables import delta_progress
from connector.tables.delta import DeltaTable
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.lake_copies import COLUMNS, SCHEMA, batch_rows, in_order, write_topic
from tests.support.lake_tables import table_of
from tests.support.stopping_store import Killed, stopping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask
    from tests.support.grids import Grid


@pytest.fixture
def source() -> Iterator[MemoryBucket]:
    """A bucket with a topic of seven ledgers, each of which is a commit of a copy."""
    bucket = MemoryBucket()
    write_topic(bucket.url, range(42))
    yield bucket
    bucket.drop()


@pytest.fixture(autouse=True)
def _cleaned_by_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_progress, "_CLEANING_INTERVAL", 1)


def copy(source: MemoryBucket, folder: Path, **options: Any) -> None:  # noqa: ANN401
    """Copy what is new, a commit for each ledger."""
    given: dict[str, Any] = {"executor": one_by_one, "sizes": CopySizes(commit_bytes=1)}
    copy_topics(source.url, TOPIC, str(folder), schema=SCHEMA, **(given | options))


def one_by_one(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
    """Run tasks in the order given."""
    return map(write, tasks)


def check(source: MemoryBucket, folder: Path) -> None:
    """Assert that a table has each row once."""
    rows = in_order(table_of(DeltaTable(Location(str(folder)))).select(list(COLUMNS)))
    assert rows == batch_rows(source.url)


def progress_files(folder: Path) -> set[str]:
    """The names of the progress files that a table has."""
    return {each.name for each in (folder / "_pulsar_offload").iterdir()}


def forget_versions_before(folder: Path, version: int) -> None:
    """Clean the log as Delta does when its retention is over."""
    deltalake.DeltaTable(str(folder), version=version).create_checkpoint()
    for each in (folder / "_delta_log").glob("*.json"):
        if int(each.stem) < version:
            each.unlink()


def number_at(folder: Path, version: int) -> int | None:
    """The number of the transaction at a version."""
    table = deltalake.DeltaTable(str(folder), version=version)
    return table.transaction_version(delta_progress.APPLICATION)


def check_each_version(source: MemoryBucket, folder: Path, first: int, scratch: Path) -> None:
    """Assert that each version from one on can be restored, and be copied to from there."""
    last = deltalake.DeltaTable(str(folder)).version()
    for version in range(first, last):
        restored = scratch / f"{folder.name}-{version}"
        shutil.copytree(folder, restored)
        deltalake.DeltaTable(str(restored)).restore(version)
        copy(source, restored)
        check(source, restored)


def test_a_restored_table_is_copied_to_from_there(source: MemoryBucket, tmp_path: Path) -> None:
    """Rows that a restored version has not are copied again, those that it has are not."""
    folder = tmp_path / "t"
    copy(source, folder)
    last = deltalake.DeltaTable(str(folder)).version()
    assert last >= 6
    check_each_version(source, folder, 0, tmp_path)


def test_of_several_restores_the_last_one_counts(source: MemoryBucket, tmp_path: Path) -> None:
    """Back, forth, and back to a version that was itself restored; with other commits between."""
    folder = tmp_path / "t"
    copy(source, folder)
    table = deltalake.DeltaTable(str(folder))
    last = table.version()
    for version in (2, last, 4, last + 1, 1, last + 3):
        table.restore(version)
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
    copy(source, folder)
    check(source, folder)
    assert number_at(folder, deltalake.DeltaTable(str(folder)).version()) is not None


def test_only_what_retained_versions_need_is_kept(source: MemoryBucket, tmp_path: Path) -> None:
    """The files of versions that the log has no more are deleted, no other one is."""
    folder = tmp_path / "t"
    copy(source, folder)
    kept = progress_files(folder)
    assert len(kept) == 7
    forget_versions_before(folder, 4)
    write_topic(source.url, range(100, 106), append=True)

    copy(source, folder)

    last = deltalake.DeltaTable(str(folder)).version()
    needed = {f"progress-{number_at(folder, each):020}.json" for each in range(4, last + 1)}
    assert progress_files(folder) == needed
    assert len(needed) == last - 3
    check_each_version(source, folder, 4, tmp_path)


def test_killed_at_any_request_each_version_keeps_its_progress(
    source: MemoryBucket, grid: Grid, tmp_path: Path
) -> None:
    """A run that cleans may end at each of its requests; the next one goes on, and cleans too."""
    base = tmp_path / "base"
    copy(source, base)
    forget_versions_before(base, 4)
    write_topic(source.url, range(100, 106), append=True)
    deleted = 0
    steps = grid.steps()
    for step in steps:
        folder = tmp_path / str(step)
        shutil.copytree(base, folder)
        try:
            with stopping(step, Killed, once=False, kinds=frozenset(RequestKind)) as stopped:
                copy(source, folder)
        except Killed:
            assert stopped
        deleted += any("delete" in each.lower() for each in stopped)
        copy(source, folder)
        check(source, folder)
        last = deltalake.DeltaTable(str(folder)).version()
        needed = {f"progress-{number_at(folder, each):020}.json" for each in range(4, last + 1)}
        assert needed <= progress_files(folder)
        if not stopped:
            steps.passed()
    assert deleted > (1 if grid.is_whole else 0)


def test_cleaning_keeps_the_file_of_a_run_that_is_to_commit(
    source: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may clean between any two requests of this one."""
    folder = tmp_path / "t"
    copy(source, folder)
    forget_versions_before(folder, deltalake.DeltaTable(str(folder)).version())
    write_topic(source.url, range(100, 106), append=True)
    table = DeltaTable(Location(str(folder)))
    number = number_at(folder, deltalake.DeltaTable(str(folder)).version())
    assert number is not None
    create = deltalake.DeltaTable.create_write_transaction
    files = []

    def cleaned_first(*args: Any, **options: Any) -> None:  # noqa: ANN401
        delta_progress.delete_unneeded(table.location, number, table._number_at)
        files.append(progress_files(folder))
        create(*args, **options)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", cleaned_first)
    copy(source, folder)
    check(source, folder)
    assert [len(each) for each in files] == [2]


def test_a_table_restored_while_a_copy_runs_is_noticed(
    source: MemoryBucket, tmp_path: Path
) -> None:
    """Its rows are not those that the copy goes on from."""
    folder = tmp_path / "t"
    copy(source, folder)
    write_topic(source.url, range(100, 106), append=True)

    def restored_meanwhile(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
        deltalake.DeltaTable(str(folder)).restore(2)
        return map(write, tasks)

    with pytest.raises(ConcurrentCopyError, match="changed the table"):
        copy(source, folder, executor=restored_meanwhile)
    copy(source, folder)
    check(source, folder)


def test_a_table_restored_to_a_time_is_refused(source: MemoryBucket, tmp_path: Path) -> None:
    """Writers write times in their own zones; the error says what to do."""
    folder = tmp_path / "t"
    copy(source, folder)
    table = deltalake.DeltaTable(str(folder))
    table.restore(3)
    path = folder / "_delta_log" / f"{table.version():020}.json"
    text = path.read_text()
    path.write_text(text.replace('"version":"3"', '"timestamp":"2026-11-21 10:00:00"'))
    assert path.read_text() != text

    with pytest.raises(LakeTableError, match="restore it to a version number"):
        copy(source, folder)

    deltalake.DeltaTable(str(folder)).restore(3)
    copy(source, folder)
    check(source, folder)


@pytest.mark.parametrize("target", [99, -1, "x", None, [1]])
def test_a_commit_that_restores_nothing_is_refused(
    target: object, source: MemoryBucket, tmp_path: Path
) -> None:
    """What a log says is not believed unseen."""
    folder = tmp_path / "t"
    copy(source, folder)
    table = deltalake.DeltaTable(str(folder))
    table.restore(3)
    path = folder / "_delta_log" / f"{table.version():020}.json"
    shown = {None: "null", "x": '"x"'}.get(str(target) if target is not None else None, str(target))
    path.write_text(path.read_text().replace('"version":"3"', f'"version":{shown}'))

    with pytest.raises(LakeTableError, match=f"version {table.version()} |{table.version():020}"):
        copy(source, folder)
