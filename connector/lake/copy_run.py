"""The run of a request's copies: table after table, whatever happens to one of them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from arrow_io.core import telemetry
from arrow_io.errors import ConcurrentCopyError, OptionError, PulsarOffloadError
from connector.lake.copy_analysis import CopyAnalysis
from connector.lake.maintenance import maintain
from connector.scan.execution import warn_incomplete
from connector.tables.executors import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connector.lake.copy import CopyRequest
    from connector.lake.maintenance import MaintenanceSettings
    from connector.lake.metrics_file import MetricsFile
    from connector.lake.table_copy import ProgressCallback, TableCopy, TableSummary
    from connector.tables.executors import Executor
    from connector.tables.table import MaintainedTable


@dataclass(frozen=True, kw_only=True)
class CopyRun:
    """How copies of a request are run; for the attributes, see `copy_topics`."""

    maintenance: MaintenanceSettings | None = None
    on_progress: ProgressCallback | None = None
    on_table: Callable[[TableSummary], object] | None = None
    executor: Executor = run_in_threads

    def open_copy(
        self, table: str, topic: str, open_copy: Callable[[], TableCopy]
    ) -> TableCopy | None:
        """Return the copy to a table, or None to leave the table out.

        Args:
            table: Name of the table.
            topic: Name of its topics.
            open_copy: Opens the copy.

        Raises:
            PulsarOffloadError: It cannot be opened.
        """
        del table, topic
        return replace(open_copy(), on_progress=self.on_progress, executor=self.executor)


@dataclass(frozen=True, slots=True)
class CopyFailure:
    """A table that was not copied to, or not maintained afterwards.

    Attributes:
        table: Name of the table.
        topic: Name of its topics.
        error: The reason.
        is_copied: Whether only maintenance failed.
    """

    table: str
    topic: str
    error: PulsarOffloadError
    is_copied: bool = False

    @property
    def text(self) -> str:
        """What failed, in words."""
        return f"not {'maintained' if self.is_copied else 'copied'}: {self.table}"


def copy_tables(
    request: CopyRequest, run: CopyRun, metrics: MetricsFile
) -> tuple[list[TableSummary], list[CopyFailure]]:
    """Copy to each table of a request, and return the summaries and what failed.

    Raises:
        PulsarOffloadError: The request cannot be carried out for any table.
    """
    summaries: list[TableSummary] = []
    failures: list[CopyFailure] = []
    analysis: CopyAnalysis | None = None
    with ExitStack() as stack:
        for table, topic, open_copy in request.copies():
            try:
                copy = run.open_copy(table, topic, open_copy)
                if copy is None:
                    continue
                if request.analyze and analysis is None:
                    analysis = stack.enter_context(_open_analysis(copy))
                summary = replace(copy, analysis=analysis).copy()
            except PulsarOffloadError as error:
                failures.append(CopyFailure(table, topic, error))
                metrics.note_failure(table, topic, error)
                continue
            try:
                _maintain(copy, summary, run.maintenance)
            except PulsarOffloadError as error:
                # The rows are in the table, so they are reported.
                failures.append(CopyFailure(table, topic, error, is_copied=True))
                metrics.note_failure(table, topic, error)
            fields = {"topic": summary.topic, "table": summary.target}
            telemetry.measure("copy.last_success", time.time(), **fields)
            metrics.note_success(table, topic, summary)
            summaries.append(summary)
            # What this run had to leave out is copied by a later run.
            summary.notices += summary.metrics.waiting()
            if run.on_table is not None:
                run.on_table(summary)
            warn_incomplete(summary.metrics, summary.target, is_last=False)
    return summaries, failures


def _maintain(copy: TableCopy, summary: TableSummary, settings: MaintenanceSettings | None) -> None:
    """Maintain the tables of a copy, if needed; None does nothing."""
    if settings is None:
        return
    now = datetime.now(UTC)
    for each in (copy.table, copy.dead_letter_table):
        # Dead letters are kept until they are read again.
        own = settings if each is copy.table else replace(settings, keep=None, sort_by=())
        try:
            if each is None:
                continue
            table, executor = cast("MaintainedTable", each), copy.executor
            upkeep = maintain(table, copy.kind, own, now, executor=executor, if_needed=True)
            summary.merged_files += upkeep.merged_files
            summary.deleted_rows += upkeep.deleted_rows
        except ConcurrentCopyError as error:
            summary.notices.append(f"not maintained: {error}")


def _open_analysis(copy: TableCopy) -> CopyAnalysis:
    statistics = copy.increments.statistics
    if statistics is None:
        message = "analyze needs the option statistics: the folder that zones are written to"
        raise OptionError(message)
    return CopyAnalysis(statistics)


def raise_first(failures: Sequence[CopyFailure], copied_tables: int) -> None:
    """Raise the first error, if any, with a note for each failure if there are several tables.

    `copied_tables` is the number of tables that were copied.
    """
    if not failures:
        return
    first = failures[0].error
    if len(failures) + copied_tables > 1:
        for each in failures:
            first.add_note(each.text + (f": {each.error}" if each.error is not first else ""))
    raise first
