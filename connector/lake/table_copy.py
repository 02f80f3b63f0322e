"""The copy of topics to one table: increments, each written and then committed, until all is there.

A step begins where the table says that the one before it ended, so it does not matter who made
that, or what stopped whom. Dead letters are committed before the rows. If a run is stopped between
the two, the next one meets the same letters again, and leaves out what the table of dead letters
says that it has.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.core.wording import counted
from arrow_io.errors import (
    ConcurrentCopyError,
    CorruptProgressError,
    LakeTableError,
    OptionError,
)
from arrow_io.read_metrics import ReadMetrics
from connector.increments.increment import Limits
from connector.increments.progress import Progress
from connector.lake.copy_plan import DEFAULT_SIZES, plan_table_copy
from connector.lake.dead_letters import DEAD_LETTERS_SCHEMA
from connector.lake.executors import run_in_threads
from connector.lake.file_writer import FileSettings, delete_files, note_uncertain_files
from connector.lake.replacement import Replacement
from connector.lake.table import Commit
from connector.lake.task_writer import TaskWriter
from connector.lake.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from arrow_io.storage.location import Location
    from connector.increments.increment import Increment, Increments
    from connector.lake.copy_analysis import CopyAnalysis
    from connector.lake.copy_plan import CopyPlan, CopySizes
    from connector.lake.data_file import DataFile
    from connector.lake.evolution import TableKind
    from connector.lake.executors import Executor
    from connector.lake.replacement import LatestPerKey
    from connector.lake.table import LakeTable, TableState
    from connector.lake.task_writer import WrittenTask

    ProgressCallback = Callable[[int, int], object]
    """Hears how many bytes of data objects were copied, of how many."""


@dataclass(slots=True)
class TableSummary:
    """What a copy to one table did.

    Attributes:
        target: The table.
        rows: Rows that were added.
        replaced: Rows that they stand for, or that were removed, of a table that keeps the latest
            row of each key.
        keyless: Messages without a key, which such a table leaves out.
        files: Files that were added.
        written_bytes: Length of these files.
        dead_letters: Rows that were added to the table of dead letters.
        data_bytes: Bytes of data objects that were read.
        commits: How many commits were made.
        analyzed_ledgers: Ledgers that were read whole, and are new in the statistics.
        progress: How far the topics are copied; None: nothing of them is.
        lag_bytes: Bytes of data objects that could not be copied yet: what stands behind an open
            transaction or a missing ledger.
        metrics: Counts of what was met besides rows.
        notices: One sentence for each thing a reader of the table must know of.
    """

    target: str
    rows: int = 0
    replaced: int = 0
    keyless: int = 0
    files: int = 0
    written_bytes: int = 0
    dead_letters: int = 0
    data_bytes: int = 0
    commits: int = 0
    analyzed_ledgers: int = 0
    progress: str | None = None
    lag_bytes: int = 0
    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TableCopy:
    """What is copied, and to where.

    Attributes:
        increments: Say what is new.
        kind: Format of the tables.
        table: The table.
        dead_letter_table: The table of dead letters; None: a value that cannot be decoded is an
            error.
        latest: How the table keeps the latest row of each key; None: it keeps all rows.
        partition_by: How a new table is partitioned; None: as it stands, or not at all.
        sizes: How much is put together.
        executor: What runs the tasks.
        on_progress: Hears how far it came.
        analysis: Learns the ledgers that are read whole; None: nothing does.
        source: What is copied, for people who look at the table's history.
    """

    increments: Increments
    kind: TableKind
    table: LakeTable
    dead_letter_table: LakeTable | None = None
    latest: LatestPerKey | None = None
    partition_by: Sequence[str] | None = None
    sizes: CopySizes = DEFAULT_SIZES
    executor: Executor = run_in_threads
    on_progress: ProgressCallback | None = None
    analysis: CopyAnalysis | None = None
    source: str = ""

    def plan(self) -> CopyPlan:
        """What would be copied now; writes nothing.

        Raises:
            PulsarOffloadError: As `copy`, as far as that can be told.
        """
        state = self.table.read_state()
        self._settings(state)
        increment = self._next_increment(_read_progress(str(self.table.location), state))
        plan = plan_table_copy(str(self.table.location), increment, self.sizes)
        if self.latest is None:
            return plan
        notice = (
            "rows are written twice, and so are files of the table that have older rows of their"
            " keys: neither is counted here, for nobody knows yet which these are"
        )
        return replace(plan, notices=(*plan.notices, notice))

    def copy(self) -> TableSummary:
        """Copy all that is new, commit by commit.

        Raises:
            OptionError: Columns to partition by are not there, or the table is partitioned in
                another way; or it is to have the latest row of each key, and cannot tell keys of
                these topics apart.
            LakeTableError: The table cannot take the rows; nothing was written of this step.
            ConcurrentCopyError: Another run copied to the table; what this one committed before
                stays.
            PulsarOffloadError: Data cannot be read, decoded or written.
        """
        summary = TableSummary(str(self.table.location))
        total = 0
        while True:
            state = self.table.read_state()
            # What cannot be kept is told before anything is written, be there rows or not.
            settings = self._settings(state)
            before = _read_progress(str(self.table.location), state)
            summary.progress = None if state is None else state.progress
            increment = self._next_increment(before, Limits(max_bytes=self.sizes.commit_bytes))
            summary.lag_bytes = increment.lag.data_bytes
            summary.notices += [each for each in increment.notices if each not in summary.notices]
            if increment.after == before:
                if summary.keyless:
                    messages = counted(summary.keyless, "message")
                    summary.notices.append(f"{messages} without a key left out")
                return summary
            total = total or increment.data_bytes + increment.lag.data_bytes
            self._step(increment, settings, state, summary, partial(self._report_progress, total))

    def _next_increment(self, before: Progress, limits: Limits | None = None) -> Increment:
        increment = self.increments.next_increment(before, limits)
        if self.latest is not None:
            self.latest.check_topics(increment.after.topics)
        if before != Progress() or not self.increments.options.bounds.has_start:
            return increment
        notice = (
            "what lies before the start is not copied by a later run either: each goes on where the"
            " one before it ended"
        )
        return replace(increment, notices=(notice, *increment.notices))

    def _report_progress(self, total_bytes: int, copied_bytes: int) -> None:
        if self.on_progress is not None:
            # A block that two increments share is counted by both.
            self.on_progress(copied_bytes, max(total_bytes, copied_bytes))

    def _step(
        self,
        increment: Increment,
        settings: FileSettings,
        state: TableState | None,
        summary: TableSummary,
        on_progress: Callable[[int], object],
    ) -> None:
        """Write an increment, and commit it."""
        dead_letters = (
            None
            if self.dead_letter_table is None
            else self._open_dead_letter_table(self.dead_letter_table)
        )
        task_settings = settings if self.latest is None else self.latest.staging(settings)
        writer = (
            TaskWriter(task_settings)
            if dead_letters is None
            else dead_letters.writer(task_settings)
        )
        if self.analysis is not None:
            writer = replace(writer, analyzed_ledgers=self.analysis.select_ledgers(increment.reads))
        results = self._write_tasks(writer, increment, summary.data_bytes, on_progress)
        files = tuple(file for each in results for file in each.files)
        dead_letter_files = tuple(file for each in results for file in each.dead_letter_files)
        if dead_letters is not None and dead_letter_files:
            with _delete_on_error(self.table.location, files):
                dead_letters.commit(
                    dead_letter_files,
                    increment.after,
                    self._commit_summary(_rows(dead_letter_files)),
                )
        change = Replacement(files, _rows(files))
        if self.latest is not None:
            change = self.latest.write_replacement(files, settings, state)
        commit = Commit(
            change.files,
            settings.schema,
            settings.partitioning,
            None if state is None else state.progress,
            increment.after.to_json(),
            self._commit_summary(change.rows),
            change.removed,
            latest_per_key=self.latest is not None,
        )
        with _delete_on_refusal(self.table.location, change.files):
            self.table.commit(commit, state)
        summary.commits += 1
        summary.files += len(change.files)
        summary.rows += change.rows
        summary.replaced += change.replaced
        summary.keyless += change.keyless
        summary.written_bytes += sum(each.size_bytes for each in change.files)
        summary.dead_letters += _rows(dead_letter_files)
        for each in results:
            summary.data_bytes += each.data_bytes
            summary.metrics.add(each.metrics)
        if self.analysis is not None:
            parts = (part for each in results for part in each.parts)
            summary.analyzed_ledgers += self.analysis.add(increment.reads, parts)

    def _write_tasks(
        self,
        writer: TaskWriter,
        increment: Increment,
        read_bytes: int,
        on_progress: Callable[[int], object],
    ) -> list[WrittenTask]:
        """What came of all tasks; of none, if one fails."""
        tasks = [task for each in increment.reads for task in each.tasks(self.sizes.task_bytes)]
        results: list[WrittenTask] = []
        try:
            with self.increments.catalog.explaining():
                for each in self.executor(writer, tasks):
                    results.append(each)
                    read_bytes += each.data_bytes
                    on_progress(read_bytes)
        except BaseException as error:
            for each in results:
                writer.discard(each, error)
            raise
        return results

    @property
    def _row_schema(self) -> pa.Schema:
        rows = self.increments.options.projection.schema
        only_staged = () if self.latest is None else self.latest.only_staged
        return pa.schema([each for each in rows if each.name not in only_staged])

    def _settings(self, state: TableState | None) -> FileSettings:
        """How files are written; raises `LakeTableError` or `OptionError`."""
        if state is not None and (state.latest_per_key or state.progress is not None):
            self._check_same_rows(state)
        if state is not None and self.latest is not None:
            self._check_columns(state, self.latest)
        schema = self.table.storable(self._row_schema, state)
        partition_texts = self.partition_by
        if state is None:
            partitioning = Partitioning.parse(partition_texts or (), schema)
        else:
            partitioning = state.partitioning
            if partition_texts is not None and tuple(partition_texts) != partitioning.texts:
                current = ", ".join(partitioning.texts) or "nothing"
                message = (
                    f"{self.table.location} is partitioned by {current}, which a copy does not"
                    " change: leave partition_by out, or copy to another table"
                )
                raise OptionError(message)
        return self._file_settings(self.table, schema, partitioning)

    def _check_same_rows(self, state: TableState) -> None:
        """Refuse a table that was copied to in the other way."""
        if state.latest_per_key != (self.latest is not None):
            has, other = "each row", "without it"
            if state.latest_per_key:
                has, other = "the latest row of each key", "with it"
            message = (
                f"{self.table.location} has {has}, which a copy does not change: copy to it"
                f" {other} (latest_per_key), or to another table"
            )
            raise OptionError(message)

    def _check_columns(self, state: TableState, latest: LatestPerKey) -> None:
        """Refuse a table whose rows do not say which of them the new ones replace."""
        for each in latest.columns:
            if each not in state.schema.names:
                message = (
                    f"{self.table.location} has no column {each}, which is needed to tell rows"
                    " apart: copy to another table"
                )
                raise LakeTableError(message)

    def _open_dead_letter_table(self, table: LakeTable) -> _DeadLetterTable:
        state = table.read_state()
        schema = table.storable(DEAD_LETTERS_SCHEMA, state)
        partitioning = Partitioning() if state is None else state.partitioning
        settings = self._file_settings(table, schema, partitioning)
        return _DeadLetterTable(table, state, settings, _read_progress(str(table.location), state))

    def _file_settings(
        self, table: LakeTable, schema: pa.Schema, partitioning: Partitioning
    ) -> FileSettings:
        return FileSettings(
            table.location,
            table.data_prefix,
            schema,
            partitioning,
            self.kind,
            file_bytes=self.sizes.file_bytes,
        )

    def _commit_summary(self, rows: int) -> dict[str, str]:
        return {"pulsar-offload.source": self.source, "pulsar-offload.rows": str(rows)}


@dataclass(frozen=True, slots=True)
class _DeadLetterTable:
    """The table of dead letters, as it stands.

    Attributes:
        table: The table.
        state: What it is.
        settings: How its files are written.
        progress: It has the letters of all rows before.
    """

    table: LakeTable
    state: TableState | None
    settings: FileSettings
    progress: Progress

    def writer(self, settings: FileSettings) -> TaskWriter:
        """What writes rows by some settings, and letters that the table has not."""
        positions = {str(topic): each.next for topic, each in self.progress.topics.items()}
        return TaskWriter(settings, self.settings, positions)

    def commit(self, files: Sequence[DataFile], after: Progress, summary: dict[str, str]) -> None:
        """Add letters."""
        commit = Commit(
            tuple(files),
            self.settings.schema,
            self.settings.partitioning,
            None if self.state is None else self.state.progress,
            _merge_progress(self.progress, after).to_json(),
            summary,
        )
        with _delete_on_refusal(self.table.location, files):
            self.table.commit(commit, self.state)


_REFUSALS: Final = (ConcurrentCopyError, LakeTableError, OptionError)
"""Errors of a commit that was surely not made; after any other, it may have been."""


@contextmanager
def _delete_on_error(location: Location, files: Sequence[DataFile]) -> Iterator[None]:
    """Delete files if an error leaves the block."""
    try:
        yield
    except BaseException as error:
        delete_files(location, files, error)
        raise


@contextmanager
def _delete_on_refusal(location: Location, files: Sequence[DataFile]) -> Iterator[None]:
    """Delete the files of a commit that is refused, and name those of one that may be made."""
    try:
        yield
    except _REFUSALS as error:
        delete_files(location, files, error)
        raise
    except BaseException as error:
        note_uncertain_files(location, files, error)
        raise


def _read_progress(target: str, state: TableState | None) -> Progress:
    if state is None or state.progress is None:
        return Progress()
    try:
        return Progress.from_json(state.progress)
    except CorruptProgressError as error:
        message = f"how far topics were copied to {target} cannot be read: {error.message}"
        raise CorruptProgressError(message) from None


def _merge_progress(one: Progress, other: Progress) -> Progress:
    """Of each topic, the progress that reaches further."""
    topics = dict(one.topics)
    for topic, each in other.topics.items():
        if topic not in topics or topics[topic].next < each.next:
            topics[topic] = each
    return Progress(topics)


def _rows(files: Sequence[DataFile]) -> int:
    return sum(each.rows for each in files)
