"""The copy of topics to one table, in steps: each step writes an increment and commits it.

Each step resumes from the progress stored in the table, so a run can be stopped at any point and
continued by any engine. The commit of the rows also decides about dead letters
(`connector.tables.letter_changes`).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.core import telemetry
from arrow_io.core.option_names import option_name
from arrow_io.core.wording import counted
from arrow_io.errors import LakeTableError, OptionError
from arrow_io.read_metrics import ReadMetrics
from connector.increments.increment import Limits
from connector.increments.progress import Progress
from connector.lake.change_events import LeftOut
from connector.lake.copy_plan import DEFAULT_SIZES, plan_table_copy, small_partition_notices
from connector.lake.replacement import Replacement
from connector.lake.task_writer import TaskWriter
from connector.scan.execution import record_read
from connector.tables.copied_rows import CopiedRows
from connector.tables.executors import run_in_threads, run_tasks
from connector.tables.file_writer import FileSettings, delete_files
from connector.tables.letter_changes import LetterChange, LetterTable
from connector.tables.table import Commit, commit_files
from connector.tables.table_progress import read_progress
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from arrow_io.storage.location import Location
    from connector.increments.increment import Increment, Increments
    from connector.lake.change_events import ChangeFilter
    from connector.lake.copy_analysis import CopyAnalysis
    from connector.lake.copy_plan import CopyPlan, CopySizes
    from connector.lake.replacement import LatestPerKey
    from connector.lake.task_writer import WrittenTask
    from connector.tables.data_file import DataFile
    from connector.tables.evolution import TableKind
    from connector.tables.executors import Executor
    from connector.tables.table import LakeTable, RewritableTable, TableState

    ProgressCallback = Callable[[int, int], object]
    """Called with the bytes of data objects that were copied, and the total."""


@dataclass(slots=True)
class TableSummary:
    """What a copy to one table did.

    Attributes:
        target: The table.
        topic: Full name of the topic. If topics share the table: as they were named, joined by
            commas.
        rows: Rows added.
        replaced: Older rows that were replaced or removed, if the table keeps the latest row of
            each key.
        keyless: Messages without a key, which such a table leaves out.
        left_out: Messages of change events that change no row.
        files: Files added.
        written_bytes: Total length of these files.
        dead_letters: Rows added to the table of dead letters.
        data_bytes: Bytes of data objects read.
        commits: Number of commits.
        merged_files: Small files that maintenance merged.
        deleted_rows: Rows that maintenance deleted because of their age.
        analyzed_ledgers: Ledgers that were read completely and added to the statistics.
        progress: How far the topics are copied. None if nothing is.
        lag_bytes: Bytes of data objects that cannot be copied yet, because they follow an open
            transaction or a missing ledger.
        lag_ledgers: Number of ledgers that they belong to.
        newest_publish_time: Latest publish time of the rows added. None if there are no rows, or
            they have no column `__publish_time__`.
        metrics: Read metrics.
        notices: One sentence for each fact that a reader of the table must know.
    """

    target: str
    topic: str = ""
    rows: int = 0
    replaced: int = 0
    keyless: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    files: int = 0
    written_bytes: int = 0
    dead_letters: int = 0
    data_bytes: int = 0
    commits: int = 0
    merged_files: int = 0
    deleted_rows: int = 0
    analyzed_ledgers: int = 0
    progress: str | None = None
    lag_bytes: int = 0
    lag_ledgers: int = 0
    newest_publish_time: datetime | None = None
    metrics: ReadMetrics = field(default_factory=ReadMetrics)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TableCopy:
    """The copy of one or more topics to one table.

    Attributes:
        increments: Finds the new entries of the topics.
        kind: Format of the tables.
        dead_letter_table: The table of dead letters. None: a value that cannot be decoded is an
            error.
        latest: How the table keeps the latest row of each key. None: it keeps all rows.
        partition_by: How a new table is partitioned. None keeps the partitioning of an existing
            table.
        changes: Which rows of change events are written. None: values are not unwrapped.
        analysis: Collects statistics of ledgers that are read completely. None: no statistics.
        topic: As in `TableSummary`.
        source: Description of the topics, for the table's history.
    """

    increments: Increments
    kind: TableKind
    table: LakeTable
    dead_letter_table: RewritableTable | None = None
    latest: LatestPerKey | None = None
    changes: ChangeFilter | None = None
    partition_by: Sequence[str] | None = None
    sizes: CopySizes = DEFAULT_SIZES
    executor: Executor = run_in_threads
    on_progress: ProgressCallback | None = None
    analysis: CopyAnalysis | None = None
    topic: str = ""
    source: str = ""

    def plan(self) -> CopyPlan:
        """Return what a copy would do now; write nothing.

        Raises:
            PulsarOffloadError: See `copy`, for errors that occur before data is read.
        """
        state = self.table.read_state()
        partitioning = self._settings(state).partitioning
        increment = self._next_increment(read_progress(self.table, state))
        plan = plan_table_copy(str(self.table.location), increment, self.sizes)
        topics = self.increments.catalog.ledgers_of(list(increment.after.topics))
        small = small_partition_notices(topics, partitioning)
        plan = replace(plan, notices=(*plan.notices, *small))
        if self.latest is None:
            return plan
        notice = (
            "rows are written twice, and files of the table with older rows of their keys are"
            " rewritten: neither is included here, because the affected files are not known yet"
        )
        return replace(plan, notices=(*plan.notices, notice))

    def copy(self) -> TableSummary:
        """Copy all that is new, commit by commit.

        Raises:
            OptionError: A partition column does not exist, the table is partitioned differently, or
                the table keeps the latest row of each key and cannot distinguish the keys of these
                topics.
            LakeTableError: The table cannot store the rows; nothing was written in this step.
            ConcurrentCopyError: Another run copied to the table. Earlier commits of this run
                remain.
            PulsarOffloadError: Data cannot be read, decoded or written.
        """
        table = str(self.table.location)
        summary = TableSummary(table, self.topic)
        with telemetry.operation("copy", table=table, format=self.kind) as operation:
            try:
                self._copy(summary)
            finally:
                lag_bytes = summary.lag_bytes
                operation.note(topic=summary.topic, rows=summary.rows, lag_bytes=lag_bytes)
        return summary

    def _copy(self, summary: TableSummary) -> None:
        total = 0
        while True:
            state = self.table.read_state()
            # Fails before anything is written, even if there are no new rows.
            settings = self._settings(state)
            before = read_progress(self.table, state)
            summary.progress = None if state is None else state.progress
            letter_change = LetterChange.from_state(self.table, state)
            if self._letters is not None and not letter_change.is_empty:
                self._letters.catch_up(letter_change, before)
            increment = self._next_increment(before, Limits(max_bytes=self.sizes.commit_bytes))
            summary.lag_bytes = increment.lag.data_bytes
            summary.lag_ledgers = increment.lag.ledgers
            uncopied_bytes = increment.data_bytes + increment.lag.data_bytes
            telemetry.measure("lag", uncopied_bytes, topic=summary.topic, table=summary.target)
            summary.notices += [each for each in increment.notices if each not in summary.notices]
            if increment.after == before:
                summary.notices += self._left_out_notices(summary)
                return
            total = total or uncopied_bytes
            self._step(increment, settings, state, summary, partial(self._report_progress, total))

    def _left_out_notices(self, summary: TableSummary) -> Iterator[str]:
        if summary.keyless:
            yield f"{counted(summary.keyless, 'message')} without a key left out"
        yield from summary.left_out.sentences(keeps_latest=self.latest is not None)

    def _next_increment(self, before: Progress, limits: Limits | None = None) -> Increment:
        increment = self.increments.next_increment(before, limits)
        if self.latest is not None:
            self.latest.check_topics(increment.after.topics)
            self.latest.check_order(before, increment.after)
        if before != Progress() or not self.increments.options.bounds.has_start:
            return increment
        notice = (
            "messages before the start are not copied by later runs either: each run resumes where"
            " the previous one ended"
        )
        return replace(increment, notices=(notice, *increment.notices))

    def _report_progress(self, total_bytes: int, copied_bytes: int) -> None:
        if self.on_progress is not None:
            # The sum may exceed the total: a block that two increments share is counted twice.
            self.on_progress(copied_bytes, max(total_bytes, copied_bytes))

    def _step(
        self,
        increment: Increment,
        settings: FileSettings,
        state: TableState | None,
        summary: TableSummary,
        on_progress: Callable[[int], object],
    ) -> None:
        letters = self._letters
        letter_state = None if letters is None else letters.table.read_state()
        writer = TaskWriter(
            settings if self.latest is None else self.latest.staging(settings),
            None if letters is None else letters.staging(letter_state),
        )
        writer = replace(writer, changes=self.changes)
        if self.analysis is not None:
            writer = replace(writer, analyzed_ledgers=self.analysis.select_ledgers(increment.reads))
        results = self._write_tasks(writer, increment, summary.data_bytes, on_progress)
        files = tuple(file for each in results for file in each.files)
        metrics = ReadMetrics()
        for each in results:
            metrics.add(each.metrics)
        letter_files = tuple(file for each in results for file in each.dead_letter_files)
        letter_change = LetterChange.from_state(self.table, state)
        if letters is not None:
            letter_change = (
                letter_change.following(letters.last_change(letter_state), letter_files)
                if letter_files
                else letter_change.applied()
            )
        letter_places = [] if letters is None else [(letters.table.location, letter_files)]
        change = Replacement(files, _rows(files))
        if self.latest is not None:
            with _delete_on_error(letter_places):
                change = self.latest.write_replacement(files, settings, state)
        commit = Commit(
            change.files,
            settings.schema,
            settings.partitioning,
            None if state is None else state.progress,
            letter_change.add_to(self._next_progress(increment.after, settings, state, metrics)),
            self._commit_summary(change.rows),
            change.removed,
            latest_per_key=self.latest is not None,
            key_columns=self._key_columns,
        )
        commit_files(self.kind, self.table, commit, state, letter_places)
        if letters is not None and letter_files:
            letters.apply(letter_change, increment.before, increment.after, letter_state)
        self._add_step(summary, change, results, metrics)
        if self.analysis is not None:
            parts = (part for each in results for part in each.parts)
            summary.analyzed_ledgers += self.analysis.add(increment.reads, parts)

    @staticmethod
    def _add_step(
        summary: TableSummary,
        change: Replacement,
        results: Sequence[WrittenTask],
        metrics: ReadMetrics,
    ) -> None:
        """Add a committed step to the summary, and report its read metrics."""
        summary.commits += 1
        summary.files += len(change.files)
        summary.rows += change.rows
        summary.replaced += change.replaced
        summary.keyless += change.keyless
        summary.written_bytes += sum(each.size_bytes for each in change.files)
        summary.newest_publish_time = max(
            filter(None, (summary.newest_publish_time, *map(_publish_time, change.files))),
            default=None,
        )
        for each in results:
            summary.dead_letters += _rows(each.dead_letter_files)
            summary.data_bytes += each.data_bytes
            summary.left_out.add(each.left_out)
        record_read(summary.topic, metrics)
        summary.metrics.add(metrics)

    def _next_progress(
        self,
        after: Progress,
        settings: FileSettings,
        state: TableState | None,
        metrics: ReadMetrics,
    ) -> str:
        rows = CopiedRows.from_state(self.table, state)
        if rows is None:
            return after.to_json()
        current = None if state is None else state.schema
        rows = rows.add_columns(current, settings.schema).add_copy(
            self.increments.options,
            read_progress(self.table, state),
            after,
            has_losses=bool(metrics.lost),
        )
        return rows.add_to(after.to_json())

    def _write_tasks(
        self,
        writer: TaskWriter,
        increment: Increment,
        read_bytes: int,
        on_progress: Callable[[int], object],
    ) -> list[WrittenTask]:
        """Run all tasks and return their results. If one fails, delete all files and re-raise."""
        tasks = [task for each in increment.reads for task in each.tasks(self.sizes.task_bytes)]

        def report(result: WrittenTask) -> None:
            nonlocal read_bytes
            read_bytes += result.data_bytes
            on_progress(read_bytes)

        with self.increments.catalog.explain_missing():
            return run_tasks(self.executor, writer, tasks, report)

    @property
    def _letters(self) -> LetterTable | None:
        if self.dead_letter_table is None:
            return None
        return LetterTable(self.dead_letter_table, self.kind, self.sizes.file_bytes)

    @property
    def _row_schema(self) -> pa.Schema:
        latest = self.latest
        only_staged = () if latest is None else latest.only_staged
        # They identify the rows of a new Iceberg table, so they cannot be null.
        identifier = latest.columns if latest is not None and self.kind == "iceberg" else ()
        rows = self.increments.options.projection.schema
        fields = [each for each in rows if each.name not in only_staged]
        return pa.schema([each.with_nullable(each.name not in identifier) for each in fields])

    def _settings(self, state: TableState | None) -> FileSettings:
        """Return how files are written. Raises `LakeTableError` or `OptionError`."""
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
                    f"{self.table.location} is partitioned by {current}, and a copy cannot change"
                    " that: leave out partition_by, or copy to another table"
                )
                raise OptionError(message)
        return self._file_settings(self.table, schema, partitioning)

    def _check_same_rows(self, state: TableState) -> None:
        """Raise `OptionError` if the table and the copy disagree on `latest_per_key`."""
        if state.latest_per_key != (self.latest is not None):
            has, other = "every row", "without"
            if state.latest_per_key:
                has, other = "the latest row of each key", "with"
            message = (
                f"{self.table.location} keeps {has}, and a copy cannot change that: copy to it"
                f" {other} latest_per_key, or copy to another table"
            )
            raise OptionError(message)
        if state.latest_per_key and state.key_columns != self._key_columns:
            key = ", ".join(state.key_columns) or "the key of messages"
            message = (
                f"the rows of {self.table.location} are identified by {key}, and a copy cannot"
                f" change that: leave out or set {option_name('key_columns')}, or copy to another"
                " table"
            )
            raise OptionError(message)

    @property
    def _key_columns(self) -> tuple[str, ...]:
        """The columns that are stored as the key's; empty if it is the key of messages."""
        if self.latest is None or self.latest.has_message_key:
            return ()
        return self.latest.key_columns

    def _check_columns(self, state: TableState, latest: LatestPerKey) -> None:
        for each in latest.columns:
            if each not in state.schema.names:
                message = (
                    f"{self.table.location} has no column {each}, which latest_per_key needs to"
                    " identify rows: copy to another table"
                )
                raise LakeTableError(message)

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


@contextmanager
def _delete_on_error(places: Sequence[tuple[Location, Sequence[DataFile]]]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        for location, files in places:
            delete_files(location, files, error)
        raise


def _publish_time(file: DataFile) -> datetime | None:
    """Return the latest publish time of a file's rows, if its statistics record it."""
    stats = file.stats.get("__publish_time__")
    return stats.greatest if stats and isinstance(stats.greatest, datetime) else None


def _rows(files: Sequence[DataFile]) -> int:
    return sum(each.rows for each in files)
