"""Maintenance changes which files a table has, and never its rows or the progress of copies."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError
from connector.lake import maintenance
from connector.lake.maintenance import MaintenanceSettings, maintain
from connector.tables import delta, executors, iceberg, parquet, rewriting
from connector.tables.executors import run_in_threads
from connector.tables.iceberg import IcebergTable
from connector.tables.iceberg_upkeep import unneeded_names
from connector.tables.parquet import ParquetTable
from connector.tables.table_kinds import KINDS, open_table
from tests.support.executors import run_elsewhere, run_here
from tests.support.interruption import Interruption
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import staged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.lake.maintenance import MaintenanceSummary
    from connector.tables.evolution import TableKind
    from connector.tables.executors import Executor
    from connector.tables.table import LakeTable, MaintainedTable

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEMA: Final = pa.schema(
    [
        ("__publish_time__", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("country", pa.string()),
    ]
)
_COMMITS: Final = 7
_ROWS: Final = 6
_FEW: Final = 3
_EVERYTHING: Final = MaintenanceSettings(
    min_files=2, expire_after=timedelta(), delete_after=timedelta()
)
"""Nothing is too young."""
_LATER: Final = timedelta(hours=1)
_CODE: Final = {"delta": delta.__file__, "iceberg": iceberg.__file__, "parquet": parquet.__file__}


_INTERRUPTED: Final = [
    # A table of Iceberg takes long.
    pytest.param(kind, marks=pytest.mark.exhaustive) if kind == "iceberg" else kind
    for kind in KINDS
]


_ITEM: Final = pa.struct([("price", pa.float64())])


class _KilledError(BaseException):
    """The process is no more."""


def _batch(numbers: range) -> pa.RecordBatch:
    """One row for each number, an hour apart."""
    times = [_EPOCH + timedelta(hours=n) for n in numbers]
    countries = [["DE", None, "FR"][n % 3] for n in numbers]
    return pa.record_batch([times, list(numbers), countries], schema=_SCHEMA)


def _copy(table: LakeTable, numbers: range, partition_by: tuple[str, ...] = ()) -> None:
    """Commit rows as a copy does."""
    state = table.read_state()
    table.commit(staged(table, state, _batch(numbers), str(numbers.stop), partition_by), state)


def _filled(
    table: LakeTable, partition_by: tuple[str, ...] = (), *, commits: int = _COMMITS
) -> MaintainedTable:
    """Return a table with several small files."""
    for number in range(commits):
        _copy(table, range(number * _ROWS, (number + 1) * _ROWS), partition_by)
    return cast("MaintainedTable", table)


def _maintain(
    table: MaintainedTable,
    kind: TableKind,
    settings: MaintenanceSettings,
    **options: Any,  # noqa: ANN401 - those of `maintain`
) -> MaintenanceSummary:
    # The store's clock sets the times of files.
    return maintain(table, kind, settings, datetime.now(UTC) + _LATER, **options)


def _numbers(table: LakeTable) -> list[int]:
    numbers: list[int] = sorted(read_back(table)["n"].to_pylist())
    return numbers


def _file_count(table: MaintainedTable) -> int:
    state = table.read_state()
    assert state is not None
    return sum(1 for _ in table.data_files(state, ()))


def _progress(table: LakeTable) -> str | None:
    state = table.read_state()
    assert state is not None
    return state.progress


@pytest.fixture(name="folder_table", params=KINDS)
def _folder_table(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[LakeTable, TableKind]]:
    with table_in(tmp_path, request.param) as table:
        yield table, request.param


@pytest.mark.parametrize("partition_by", [(), ("country",), ("day(__publish_time__)",)])
@pytest.mark.parametrize(
    ("sort_by", "executor"), [((), run_in_threads), (("country", "n"), run_elsewhere)]
)
def test_the_rows_and_the_progress_stay(
    folder_table: tuple[LakeTable, TableKind],
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    executor: Executor,
) -> None:
    """Small files of a partition become one, and the next copy continues."""
    table, kind = _filled(folder_table[0], partition_by), folder_table[1]
    files, rows = _file_count(table), list(range(_COMMITS * _ROWS))
    settings = MaintenanceSettings(min_files=2, sort_by=sort_by)

    summary = _maintain(table, kind, settings, executor=executor)

    partitions = {(): 1, ("country",): 3, ("day(__publish_time__)",): 2}[partition_by]
    assert _file_count(table) == summary.new_files == partitions
    assert summary.merged_files == files
    assert _numbers(table) == rows
    assert _progress(table) == str(len(rows))
    _copy(table, range(len(rows), len(rows) + 2))
    assert _numbers(table) == [*rows, *range(len(rows), len(rows) + 2)]
    _copy(table, range(100, 101))
    assert _progress(table) == "101"


def test_nulls_at_every_depth_stay(
    folder_table: tuple[LakeTable, TableKind], tmp_path: Path
) -> None:
    """A null list, map or struct is no empty one, and rows that a struct lacks are null."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    struct = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    values: list[Any] = [
        None,
        [],
        [None],
        [{"a": None, "b": None}],
        [{"a": 1, "b": []}, {"a": 2, "b": [None, {"c": None}, {"c": "x"}]}],
    ]
    columns = {
        "list": pa.array(values, pa.list_(struct)),
        "lists": pa.array(
            [None, [None], *([each] for each in values[:3])], pa.list_(pa.list_(struct))
        ),
        "map": pa.array(
            [None, [], [("k", None)], [("k", {"a": 1})], None], pa.map_(pa.string(), struct)
        ),
        "struct": pa.array([None, {}, {"a": 1}, {"b": []}, {"b": [None]}], struct),
    }
    times = pa.array([_EPOCH + timedelta(hours=n) for n in range(len(values))])
    rows = pa.table({"__publish_time__": times.cast(pa.timestamp("us", "UTC"))} | columns)
    wider = rows.append_column("new", pa.array(range(len(values))))
    for number, each in enumerate([rows, rows, wider]):
        state = table.read_state()
        table.commit(staged(table, state, each, str(number)), state)
    now = _EPOCH + timedelta(hours=1)
    for settings in (
        MaintenanceSettings(min_files=2, keep=timedelta()),
        MaintenanceSettings(min_files=2, delete_after=timedelta()),
    ):
        maintain(table, kind, settings, now)
    maintain(table, kind, _EVERYTHING, datetime.now(UTC) + _LATER)

    [path] = [each for each in tmp_path.rglob("*.parquet") if "checkpoint" not in each.name]
    expected = [each for each in rows.to_pylist() if each["__publish_time__"] >= now]
    wanted = [*(each | {"new": None} for each in expected * 2)]
    wanted += [each | {"new": n} for n, each in enumerate(expected, 1)]
    found = pq.read_table(path).to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_a_file_that_the_library_would_change(tmp_path: Path) -> None:
    """Its scan loses nulls, so files are refused that need it: those of renamed columns."""
    with table_in(tmp_path, "iceberg") as opened:
        table = cast("MaintainedTable", opened)
        assert isinstance(opened, IcebergTable)
        for after in ("1", "2"):
            state = table.read_state()
            rows = pa.table({"n": [1], "items": pa.array([None], pa.list_(_ITEM))})
            table.commit(staged(table, state, rows, after), state)
        with opened.catalog.load_table("shop.t").update_schema() as update:
            update.rename_column("n", "m")

        with pytest.raises(LakeTableError, match="renamed since"):
            _maintain(table, "iceberg", _EVERYTHING)

        with opened.catalog.load_table("shop.t").update_schema() as update:
            update.delete_column("items")
        assert _maintain(table, "iceberg", _EVERYTHING).merged_files == 2
        assert read_back(table).to_pylist() == [{"m": 1}] * 2


def test_a_dry_run_changes_nothing(
    folder_table: tuple[LakeTable, TableKind], tmp_path: Path
) -> None:
    """It reports what a run would merge, and no byte changes."""
    table, kind = _filled(folder_table[0]), folder_table[1]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    planned = _maintain(table, kind, _EVERYTHING, dry_run=True)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    done = _maintain(table, kind, _EVERYTHING)
    assert planned.merged_files == done.merged_files == _COMMITS
    assert planned.merged_bytes == done.merged_bytes > 0
    assert planned.new_files == done.new_files == 1


def test_old_versions_and_their_files_disappear(
    folder_table: tuple[LakeTable, TableKind], tmp_path: Path
) -> None:
    """With files of a run that was killed; what the current version needs remains."""
    table, kind = _filled(folder_table[0]), folder_table[1]
    staged(table, table.read_state(), _batch(range(1000, 1003)), "never committed")

    _maintain(table, kind, _EVERYTHING)
    # Files that the first run made unneeded were not yet when it looked.
    second = _maintain(table, kind, _EVERYTHING)

    assert second.merged_files == 0
    data = [path for path in tmp_path.rglob("*.parquet") if "checkpoint" not in path.name]
    assert len(data) == 1
    assert _numbers(table) == list(range(_COMMITS * _ROWS))
    if kind == "parquet":
        manifests = list((tmp_path / "t" / "_pulsar_offload").iterdir())
        assert [each.name for each in manifests] == [f"manifest-{_COMMITS + 1:020}.json"]
    _copy(table, range(500, 502))
    assert _numbers(table)[-2:] == [500, 501]
    assert _maintain(table, kind, MaintenanceSettings()).deleted_files == ()


def test_old_manifests_expire_before_young_checkpoints(tmp_path: Path) -> None:
    """A table that is merged each day always has a young checkpoint."""
    with table_in(tmp_path, "parquet") as opened:
        table = _filled(opened)
        settings = MaintenanceSettings(min_files=2)
        _maintain(table, "parquet", settings)
        for number in range(100, 103):
            _copy(table, range(number, number + 1))
        eight_days_ago = datetime.now(UTC).timestamp() - timedelta(days=8).total_seconds()
        for each in (tmp_path / "t").rglob("*"):
            os.utime(each, (eight_days_ago, eight_days_ago))
        _copy(table, range(103, 104))

        summary = _maintain(table, "parquet", settings)

        assert summary.merged_files == 5
        assert summary.expired_versions == len(summary.deleted_files) == _COMMITS
        assert _numbers(table) == [*range(_COMMITS * _ROWS), *range(100, 104)]


def test_what_streams_of_iceberg_see(tmp_path: Path) -> None:
    """A merge is no change of the rows, while a deletion is one."""
    with table_in(tmp_path, "iceberg") as opened:
        table = _filled(opened, commits=_FEW)
        assert isinstance(table, IcebergTable)
        now = _EPOCH + timedelta(hours=_ROWS + 1)
        maintain(table, "iceberg", MaintenanceSettings(min_files=2, keep=timedelta(hours=1)), now)

        *_, deletion, merge = table.catalog.load_table(table.identifier).snapshots()

        summaries = [each.summary for each in (deletion, merge) if each.summary]
        assert [each.operation.value for each in summaries] == ["overwrite", "replace"]
        rows = str((_FEW - 1) * _ROWS)
        assert [each["total-records"] for each in summaries] == [rows, rows]


def test_a_snapshot_that_was_replaced_late(tmp_path: Path) -> None:
    """Queries of it may still run, however long ago it was created."""
    with table_in(tmp_path, "iceberg") as opened:
        table = _filled(opened, commits=_FEW)
        assert isinstance(table, IcebergTable)
        *_, last = table.catalog.load_table(table.identifier).snapshots()
        replaced = datetime.fromtimestamp(last.timestamp_ms / 1000, UTC)

        assert table.expire_versions(replaced, timedelta(), dry_run=False) == _FEW - 2
        assert (
            table.expire_versions(replaced + timedelta(seconds=1), timedelta(), dry_run=False) == 1
        )


def test_young_files_and_versions_remain(folder_table: tuple[LakeTable, TableKind]) -> None:
    """They may belong to a copy or a query that runs."""
    table, kind = _filled(folder_table[0]), folder_table[1]
    staged(table, table.read_state(), _batch(range(1000, 1003)), "not yet committed")
    settings = MaintenanceSettings(min_files=2)

    for _ in range(2):
        summary = _maintain(table, kind, settings)
        assert summary.deleted_files == ()
        assert summary.expired_versions == 0


@pytest.mark.parametrize(
    ("partition_by", "executor"),
    [((), run_in_threads), (("day(__publish_time__)",), run_elsewhere)],
)
def test_old_rows_are_deleted(
    folder_table: tuple[LakeTable, TableKind], partition_by: tuple[str, ...], executor: Executor
) -> None:
    """Exactly those that were published before."""
    table, kind = _filled(folder_table[0], partition_by), folder_table[1]
    kept = 25
    now = _EPOCH + timedelta(hours=kept, microseconds=500) + timedelta(days=90)
    settings = MaintenanceSettings(keep=timedelta(days=90), min_files=1000)

    planned = maintain(table, kind, settings, now, dry_run=True)
    summary = maintain(table, kind, settings, now, executor=executor)

    assert planned.deleted_rows >= summary.deleted_rows == kept + 1
    assert _numbers(table) == list(range(kept + 1, _COMMITS * _ROWS))
    assert _progress(table) == str(_COMMITS * _ROWS)
    assert maintain(table, kind, settings, now).deleted_rows == 0


def test_what_cannot_be_maintained(
    folder_table: tuple[LakeTable, TableKind], tmp_path: Path
) -> None:
    """A table that does not exist, a column that it lacks, or the latest row of each key."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    with pytest.raises(LakeTableError, match="not a table that topics are copied to"):
        _maintain(table, kind, _EVERYTHING)
    _filled(table)
    with pytest.raises(OptionError, match="no column nothing to sort by"):
        _maintain(table, kind, MaintenanceSettings(min_files=2, sort_by=("nothing",)))
    assert _numbers(table) == list(range(_COMMITS * _ROWS))
    with pytest.raises(OptionError, match="min_files"):
        MaintenanceSettings(min_files=1)
    for age in (-timedelta(days=1), timedelta.max):
        with pytest.raises(OptionError, match="keep must be an age between 0 and 365000 days"):
            MaintenanceSettings(keep=age)
    assert tmp_path.exists()


def test_a_task_that_fails(
    folder_table: tuple[LakeTable, TableKind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the other tasks are deleted, and the table stays."""
    table, kind = _filled(folder_table[0], ("country",)), folder_table[1]
    before = set(tmp_path.rglob("*.parquet"))
    write = rewriting.BinWriter.__call__

    def fail(writer: rewriting.BinWriter, task: rewriting.FileBin) -> rewriting.RewrittenBin:
        result = write(writer, task)
        if task.files[0].partition["country"] is None:
            raise LakeTableError("no")
        return result

    monkeypatch.setattr(rewriting.BinWriter, "__call__", fail)
    for executor in (run_in_threads, run_here):
        with pytest.raises(LakeTableError, match="no"):
            _maintain(table, kind, _EVERYTHING, executor=executor)

    left = set(tmp_path.rglob("*.parquet")) - before
    assert len(left) == 2, "that task itself cannot know"
    assert _numbers(table) == list(range(_COMMITS * _ROWS))


def test_a_run_that_is_not_needed(folder_table: tuple[LakeTable, TableKind]) -> None:
    """It reads the state of the table once, and deletes nothing."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    assert _maintain(table, kind, _EVERYTHING, if_needed=True).merged_files == 0
    _filled(table, commits=1)
    staged(table, table.read_state(), _batch(range(1000, 1003)), "never committed")

    summary = _maintain(table, kind, _EVERYTHING, if_needed=True)

    assert (summary.merged_files, summary.deleted_files) == (0, ())
    assert _maintain(table, kind, _EVERYTHING).deleted_files != ()


def _interrupted(
    kind: TableKind,
    tmp_path: Path,
    interrupt: Any,  # noqa: ANN401 - of a table
) -> Iterator[MaintainedTable]:
    """Interrupt a run at each of its lines in turn; yield the table after each."""
    files = {_CODE[kind], executors.__file__, maintenance.__file__, rewriting.__file__}
    lines: set[tuple[str, int]] = set()
    settings = MaintenanceSettings(
        min_files=2,
        keep=timedelta(hours=1),
        expire_after=timedelta(),
        delete_after=timedelta(),
    )
    now = _EPOCH + timedelta(hours=_ROWS + 1)
    for attempt in count():
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with table_in(folder, kind) as opened, table_in(folder, kind) as other:
            table = _filled(opened, commits=_FEW)
            interruption = Interruption(files, lines, partial(interrupt, other))
            with suppress(_KilledError, ConcurrentCopyError), interruption:
                # In other threads it would not be interrupted.
                maintain(table, kind, settings, now, executor=run_here)
            if not interruption.is_over:
                assert len(lines) > 20, "the run was not followed"
                return
            with suppress(ConcurrentCopyError):
                maintain(table, kind, settings, now)
            yield table


@pytest.mark.parametrize("kind", _INTERRUPTED)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_killed_at_each_line(kind: TableKind, tmp_path: Path) -> None:
    """The table has its rows and its progress, and the next run finishes the work."""

    def kill(_: LakeTable) -> None:
        raise _KilledError

    for table in _interrupted(kind, tmp_path, kill):
        assert _numbers(table) == list(range(_ROWS, _FEW * _ROWS))
        assert _progress(table) == str(_FEW * _ROWS)
        assert _file_count(table) == 1


@pytest.mark.parametrize("kind", _INTERRUPTED)
def test_a_copy_at_each_line(kind: TableKind, tmp_path: Path) -> None:
    """Its rows are there once, as are all others."""

    def copy(other: LakeTable) -> None:
        _copy(other, range(100, 103))

    for table in _interrupted(kind, tmp_path, copy):
        assert _numbers(table) == [*range(_ROWS, _FEW * _ROWS), *range(100, 103)]
        assert _progress(table) == "103"
        _copy(table, range(200, 201))


@pytest.mark.parametrize("kind", _INTERRUPTED)
def test_two_runs_at_a_time(kind: TableKind, tmp_path: Path) -> None:
    """One of them may fail; the rows stay."""

    def run(other: LakeTable) -> None:
        with suppress(ConcurrentCopyError):
            # Files that the first run may still need are younger than that.
            settings = replace(_EVERYTHING, delete_after=timedelta(days=1))
            maintain(cast("MaintainedTable", other), kind, settings, datetime.now(UTC))

    for table in _interrupted(kind, tmp_path, run):
        assert _numbers(table) == list(range(_ROWS, _FEW * _ROWS))


def test_a_copy_whose_version_expired(tmp_path: Path) -> None:
    """The number of its manifest is free again, but no version of the table would list it."""
    with table_in(tmp_path, "parquet") as opened:
        table = _filled(opened)
        state = table.read_state()
        commit = staged(table, state, _batch(range(1000, 1003)), "late")
        _copy(table, range(100, 102))
        _maintain(table, "parquet", _EVERYTHING)

        with pytest.raises(ConcurrentCopyError, match="replaced and expired it"):
            table.commit(commit, state)

        _copy(table, range(102, 104))
        assert _numbers(table) == [*range(_COMMITS * _ROWS), *range(100, 104)]


def test_an_expired_manifest_that_is_needed(tmp_path: Path) -> None:
    """A table whose checkpoint disappeared is refused, instead of read without its first files."""
    with table_in(tmp_path, "parquet") as opened:
        table = _filled(opened)
        _maintain(table, "parquet", _EVERYTHING)
        _copy(table, range(100, 102))
        [checkpoint, _] = sorted((tmp_path / "t" / "_pulsar_offload").iterdir())
        checkpoint.unlink()

        with pytest.raises(LakeTableError, match="is missing"):
            table.read_state()
        assert isinstance(table, ParquetTable)
        with pytest.raises(LakeTableError, match="is missing"):
            list(table.files())


@pytest.mark.parametrize("folder", ["orders", "data", "data/orders"])
@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("outer", KINDS)
def test_a_table_inside_another(
    outer: TableKind, inner: TableKind, folder: str, tmp_path: Path
) -> None:
    """Files of the inner table are never deleted, however old they are."""
    with table_in(tmp_path, outer) as opened:
        table = _filled(opened)
        path = Path(opened.location.url.removeprefix("file://")) / folder
        names = dict.fromkeys(KINDS, str(path)) | {"iceberg": "shop.inner"}
        options = None
        if inner == "iceberg":
            uri = f"sqlite:///{tmp_path}/inner.db"
            options = {"type": "sql", "uri": uri, "location": path.as_uri()}
        other = open_table(inner, names[inner], None, options)
        if isinstance(other, IcebergTable):
            other.catalog.create_namespace("shop")
        _filled(other)
        files = {each for each in path.rglob("*") if each.is_file()}

        deleted = {*_maintain(table, outer, _EVERYTHING).deleted_files}
        deleted |= {*_maintain(table, outer, _EVERYTHING).deleted_files}

        assert all(each.exists() for each in files)
        own = [each for each in deleted if each.endswith(".parquet")]
        assert len(own) == (0 if (outer, folder) == ("iceberg", "data") else _COMMITS)
        assert len(_numbers(table)) == len(_numbers(other)) == _COMMITS * _ROWS
        if isinstance(other, IcebergTable):
            other.catalog.close()


def test_files_are_reported_once(folder_table: tuple[LakeTable, TableKind]) -> None:
    """By their names in the store, even in folders of values that URLs and logs escape."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    values = ["a/b", "ü x", "100%", "q?#", "x%2Fy", "~'\"", ":;,@", None]
    for number in range(_FEW):
        state = table.read_state()
        rows = pa.record_batch(
            [[_EPOCH] * len(values), [number] * len(values), values], schema=_SCHEMA
        )
        table.commit(staged(table, state, rows, str(number), ("country",)), state)
    folder = Path(table.location.url.removeprefix("file://"))
    before = {str(each.relative_to(folder)) for each in folder.rglob("*.parquet")}

    deleted = [*_maintain(table, kind, _EVERYTHING).deleted_files]
    deleted += _maintain(table, kind, _EVERYTHING).deleted_files

    after = {str(each.relative_to(folder)) for each in folder.rglob("*.parquet")}
    assert sorted(each for each in deleted if each.endswith(".parquet")) == sorted(before - after)
    assert before.isdisjoint(after)
    assert _numbers(table) == sorted([*range(_FEW)] * len(values))


def test_other_files_beside_a_plain_table(tmp_path: Path) -> None:
    """Only files whose names are those of a copy's files are deleted."""
    with table_in(tmp_path, "parquet") as opened:
        table = _filled(opened)
        for name in ("archive.parquet", "2026/part-0.parquet"):
            (tmp_path / "t" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "t" / name).write_bytes(b"x")

        summary = _maintain(table, "parquet", _EVERYTHING)

        assert len(summary.deleted_files) == _COMMITS
        assert (tmp_path / "t" / "archive.parquet").exists()
        assert (tmp_path / "t" / "2026" / "part-0.parquet").exists()


def test_other_files_beside_an_iceberg_table(tmp_path: Path) -> None:
    """Only files below `data/` and `metadata/` are deleted."""
    with table_in(tmp_path, "iceberg") as opened:
        table = _filled(opened)
        assert isinstance(opened, IcebergTable)
        folder = opened.location.url.removeprefix("file://")
        for name in ("notes.txt", "data/left.parquet", "metadata/version-hint.text"):
            with open(os.path.join(folder, name), "wb") as file:  # noqa: PTH118, PTH123
                file.write(b"x")

        summary = _maintain(table, "iceberg", _EVERYTHING)

        assert "data/left.parquet" in summary.deleted_files
        assert "notes.txt" not in summary.deleted_files
        assert "metadata/version-hint.text" not in summary.deleted_files


@pytest.mark.parametrize(
    ("folder", "other"),
    [
        ("s3a://b/shop/t", "s3://b/shop/t"),
        ("hdfs://nameservice/shop/t/", "hdfs://namenode:8020/shop/t"),
        ("abfss://c@account.dfs.core.windows.net/t", "wasbs://c@account.blob.core.windows.net/t"),
        ("file:///shop/t", "file:/shop/t"),
        ("file:///shop/t", "/shop/t"),
    ],
)
def test_files_with_another_url_of_the_store(folder: str, other: str) -> None:
    """Engines may have written URLs with another scheme or host; the files are the table's."""
    needed = {f"{other}/data/1.parquet", f"{other}/metadata/1.avro"}
    names = ["data/1.parquet", "data/2.parquet", "metadata/1.avro"]
    assert list(unneeded_names(names, needed, folder)) == ["data/2.parquet"]
