"""`maintain_table`: upkeep of a table that copies write, so that it stays fast and small for years.

Every step keeps the progress of copies, so the next copy resumes where the last one ended. A run
that is stopped leaves a complete table, and a later run continues.

Libraries expire versions, and vacuum Delta tables. Files are rewritten here: PyIceberg has no
compaction, and two that `deltalake` (1.6) runs at a time may both be committed, which doubles rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from arrow_io.core.option_values import check_whole_number
from arrow_io.errors import ConcurrentCopyError, OptionError
from arrow_io.storage.hidden import hidden
from connector.lake.copy_plan import DEFAULT_SIZES
from connector.tables.executors import run_in_threads
from connector.tables.file_writer import FileSettings
from connector.tables.rewriting import (
    count_rows_before,
    delete_rows_before,
    plan_bins,
    rewrite_bins,
    split_bins,
)
from connector.tables.table_kinds import open_table
from connector.tables.table_progress import check_copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.tables.evolution import TableKind
    from connector.tables.executors import Executor
    from connector.tables.rewriting import DeletedRows
    from connector.tables.table import MaintainedTable, TableState

PUBLISH_TIME: Final = "__publish_time__"
"""The column that retention compares. It is null in rows that were copied before the table had it:
these have no known age, and stay."""
_MAX_AGE: Final = timedelta(days=365_000)
"""A time that is earlier by a larger age may be before the year 1."""
_COMMIT_BYTES: Final = 4 << 30
"""Approximate size of the files that one commit replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """When a table needs upkeep, and what it gets.

    Attributes:
        file_bytes: Target size of files. Files below three quarters of it are merged.
        min_files: Number of small files of a partition from which on they are merged.
        sort_by: Columns by which the rows of each merged file are sorted. Empty: by the table's own
            sort order, if it has one.
        keep: Age by publish time above which rows are deleted. None keeps all rows. A row that was
            copied without its publish time stays.
        expire_after: Age above which earlier versions of the table expire: snapshots of Iceberg,
            manifests of plain Parquet. Delta's log follows its own `delta.logRetentionDuration`.
        delete_after: Age above which files that no version needs are deleted. It must exceed the
            duration of every copy and query, whose files look the same.

    Raises:
        OptionError: A number or an age is too small or too large.
    """

    file_bytes: int = DEFAULT_SIZES.file_bytes
    min_files: int = 5
    sort_by: tuple[str, ...] = ()
    keep: timedelta | None = None
    expire_after: timedelta = timedelta(days=7)
    delete_after: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        check_whole_number("file_bytes", self.file_bytes, 1, 1 << 40)
        check_whole_number("min_files", self.min_files, 2, 1 << 20)
        ages = {"keep": self.keep, "expire_after": self.expire_after}
        for name, age in {**ages, "delete_after": self.delete_after}.items():
            if age is not None and not timedelta() <= age <= _MAX_AGE:
                message = f"{name} must be an age between 0 and {_MAX_AGE.days} days: {age}"
                raise OptionError(message)


@dataclass(slots=True)
class MaintenanceSummary:
    """What maintenance did to a table, or would do.

    Attributes:
        target: The table.
        deleted_rows: Rows that were too old. Of a dry run, the rows of the files that have some.
        merged_files: Small files that were replaced.
        new_files: Files that replaced them; of a dry run, approximately.
        merged_bytes: Length of the small files.
        expired_versions: Earlier versions that expired.
        deleted_files: Files that no version needed, relative to the table's folder.
    """

    target: str
    deleted_rows: int = 0
    merged_files: int = 0
    new_files: int = 0
    merged_bytes: int = 0
    expired_versions: int = 0
    deleted_files: tuple[str, ...] = ()


def maintain_table(
    target: str,
    *,
    format: TableKind = "delta",  # noqa: A002 - as in `copy_topics`
    target_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, object] | None = None,
    settings: MaintenanceSettings | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
    executor: Executor = run_in_threads,
) -> MaintenanceSummary:
    """Delete old rows, merge small files, expire versions and delete unneeded files of a table.

    The rows of the table stay the same, except for those that are older than `settings.keep`.
    Copies may run at the same time: one of two that rewrite the same files fails, and changes
    nothing.

    Args:
        target: URL of the table's folder. For Iceberg, the table's name, `namespace.table`.
        format: `delta`, `iceberg` or `parquet`.
        target_options: Options of the target's fsspec file system.
        table_options: See `copy_topics`.
        settings: When and what.
        dry_run: Whether to report only. Files and versions that the run itself would make unneeded
            are not counted.
        now: The current time, with time zone. None asks the clock.
        executor: Runs the tasks that rewrite files.

    Raises:
        OptionError: An option is not allowed, a library is not installed, or there is no such
            branch.
        LakeTableError: There is no table that a copy writes, or its files cannot be rewritten.
        ConcurrentCopyError: Another writer changed the table at the same time. Earlier steps
            remain.
        PulsarOffloadError: The store or the catalog failed.
    """
    table = open_table(format, target, hidden(target_options), hidden(table_options))
    return maintain(
        # Each kind of table is one.
        cast("MaintainedTable", table),
        format,
        settings or MaintenanceSettings(),
        now or datetime.now(UTC),
        dry_run=dry_run,
        executor=executor,
    )


def maintain(
    table: MaintainedTable,
    kind: TableKind,
    settings: MaintenanceSettings,
    now: datetime,
    *,
    dry_run: bool = False,
    executor: Executor = run_in_threads,
    if_needed: bool = False,
) -> MaintenanceSummary:
    """Maintain an open table; see `maintain_table`.

    Args:
        table: The table.
        kind: Its format.
        settings: See `maintain_table`, as for the parameters that are not named here.
        now: The current time, with time zone.
        dry_run: Whether to report only.
        executor: Runs the tasks.
        if_needed: Whether to expire versions and delete files only if rows were deleted or files
            merged. A table or branch that does not exist needs nothing.
    """
    upkeep = _Upkeep(table, kind, settings, executor, dry_run)
    summary = MaintenanceSummary(str(table.location))
    state = table.read_state()
    if if_needed and (state is None or state.progress is None or state.new_branch):
        return summary
    state = check_copied(table, state)
    if settings.keep is not None:
        deleted = upkeep.delete_rows(state, now - settings.keep)
        summary.deleted_rows = deleted.rows
        if deleted.files and not dry_run:
            state = _reread(table)
    upkeep.merge_files(state, summary)
    if if_needed and not (summary.deleted_rows or summary.merged_files):
        return summary
    summary.expired_versions = table.expire_versions(now, settings.expire_after, dry_run=dry_run)
    unneeded = table.delete_unneeded(now - settings.delete_after, dry_run=dry_run)
    summary.deleted_files = tuple(unneeded)
    return summary


@dataclass(frozen=True, slots=True)
class _Upkeep:
    """The steps of a run that rewrite files."""

    table: MaintainedTable
    kind: TableKind
    settings: MaintenanceSettings
    executor: Executor
    dry_run: bool

    def delete_rows(self, state: TableState, time: datetime) -> DeletedRows:
        """Delete the rows that were published earlier."""
        _check_ages(self.table, state)
        if self.dry_run:
            return count_rows_before(self.table, state, PUBLISH_TIME, time)
        file_settings = self._file_settings(state)
        return delete_rows_before(
            self.table, state, file_settings, PUBLISH_TIME, time, executor=self.executor
        )

    def merge_files(self, state: TableState, summary: MaintenanceSummary) -> None:
        """Merge small files, and add to the summary what was done."""
        settings = self.settings
        bins = plan_bins(self.table.data_files(state, ()), settings.file_bytes, settings.min_files)
        for number, step in enumerate(split_bins(bins, _COMMIT_BYTES)):
            if not self.dry_run:
                state = _reread(self.table) if number else state
                summary.new_files += rewrite_bins(
                    self.table,
                    state,
                    step,
                    self._file_settings(state),
                    executor=self.executor,
                    sort_by=settings.sort_by or state.sort_by,
                )
            else:
                summary.new_files += len(step)
            summary.merged_files += sum(len(each.files) for each in step)
            summary.merged_bytes += sum(each.size_bytes for each in step)

    def _file_settings(self, state: TableState) -> FileSettings:
        return FileSettings(
            self.table.location,
            self.table.data_prefix,
            state.schema,
            state.partitioning,
            self.kind,
            file_bytes=self.settings.file_bytes,
        )


def _reread(table: MaintainedTable) -> TableState:
    """Return the state after a commit of this run."""
    state = table.read_state()
    if state is None:
        message = f"{table.location} disappeared while it was maintained"
        raise ConcurrentCopyError(message)
    return state


def _check_ages(table: MaintainedTable, state: TableState) -> None:
    """Raise `OptionError` unless rows may be deleted by their age."""
    if state.latest_per_key:
        message = (
            f"{table.location} keeps the latest row of each key, which may be old: leave out keep"
        )
        raise OptionError(message)
    if PUBLISH_TIME not in state.schema.names:
        message = f"{table.location} has no column {PUBLISH_TIME}, which keep needs"
        raise OptionError(message)
