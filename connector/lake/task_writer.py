"""The writer of one scan task's files, which runs in a thread or in another process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from arrow_io.read_metrics import ReadMetrics, Unit
from connector.increments.increment import execute_increment
from connector.lake.change_events import ChangeFilter, LeftOut
from connector.statistics.ledger_parts import ZoneGatherer
from connector.tables.dead_letters import (
    DeadLetterMetrics,
    dead_letter_task,
    drop_dead_letters,
    read_dead_letters,
)
from connector.tables.file_writer import FileWriter, delete_files

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import pyarrow as pa

    from connector.scan.topic_read import ScanTask
    from connector.statistics.ledger_parts import LedgerPart
    from connector.tables.data_file import DataFile
    from connector.tables.file_writer import FileSettings

MAX_BUFFERED_DEAD_LETTERS: Final = 1 << 18
"""Dead letters that a task holds before it writes them: some 64 MiB, plus those of one batch."""
_OUTER_UNITS: Final = frozenset({Unit.BLOCK, Unit.LEDGER})


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """The files and metrics of a finished task. Can be pickled.

    Attributes:
        data_bytes: Bytes of data objects that the task covers.
        parts: Zones of the analyzed ledgers.
    """

    files: tuple[DataFile, ...]
    dead_letter_files: tuple[DataFile, ...]
    metrics: ReadMetrics
    data_bytes: int
    parts: tuple[LedgerPart, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """Writes the rows of a task. Can be pickled, like the task.

    Attributes:
        settings: How files of the table are written.
        dead_letter_settings: How files of the table of dead letters are written. None: a value that
            cannot be decoded fails the task.
        analyzed_ledgers: By topic, the ledgers whose zones are computed while they are read.
        changes: Which rows of change events are written. None: values are not unwrapped.
    """

    settings: FileSettings
    dead_letter_settings: FileSettings | None = None
    analyzed_ledgers: Mapping[str, Container[int]] = field(default_factory=dict)
    changes: ChangeFilter | None = None

    def __call__(self, task: ScanTask) -> WrittenTask:
        """Read a task and write its rows.

        Raises:
            PulsarOffloadError: The task cannot be read, decoded or written. Its files are deleted,
                unless a note on the error names some that are left.
        """
        topic = task.read.origin.topic
        ledger_ids = self.analyzed_ledgers.get(topic)
        gatherer = ZoneGatherer(topic, ledger_ids) if ledger_ids else None
        if self.dead_letter_settings is None:
            result = self._write_rows(task, gatherer)
        else:
            result = self._write_rows_and_dead_letters(task, self.dead_letter_settings, gatherer)
        # A lost block or ledger belongs to no zone, so none of the ledger's zones can be trusted.
        if gatherer is None or any(unit in _OUTER_UNITS for unit, _ in result.metrics.lost):
            return result
        return replace(result, parts=tuple(gatherer.parts))

    def _write_rows(self, task: ScanTask, gatherer: ZoneGatherer | None) -> WrittenTask:
        metrics, left_out = ReadMetrics(), LeftOut()
        names = task.read.options.projection.schema.names
        task = task if self.changes is None else self.changes.add_columns(task)
        with FileWriter(self.settings) as writer:
            for batch in execute_increment(task, metrics, gatherer=gatherer):
                writer.write(self._select(batch, names, left_out))
            return WrittenTask(writer.finish(), (), metrics, task.data_bytes, left_out=left_out)

    def _select(self, batch: pa.RecordBatch, names: list[str], left_out: LeftOut) -> pa.RecordBatch:
        """Return the rows and columns to write."""
        selected = batch if self.changes is None else self.changes.select(batch, left_out)
        return selected.select(names)

    def discard(self, result: WrittenTask, error: BaseException) -> None:
        """Delete a task's files after an error. If this fails, add a note to the error."""
        delete_files(self.settings.location, result.files, error)
        if self.dead_letter_settings is not None:
            delete_files(self.dead_letter_settings.location, result.dead_letter_files, error)

    def _write_rows_and_dead_letters(
        self, task: ScanTask, settings: FileSettings, gatherer: ZoneGatherer | None
    ) -> WrittenTask:
        metrics, left_out = DeadLetterMetrics(), LeftOut()
        names = task.read.options.projection.schema.names
        task = task if self.changes is None else self.changes.add_columns(task)
        with FileWriter(self.settings) as writer, FileWriter(settings) as dead_letter_writer:
            for batch in execute_increment(dead_letter_task(task), metrics, gatherer=gatherer):
                writer.write(self._select(drop_dead_letters(batch, metrics), names, left_out))
                if len(metrics.dead_letters) >= MAX_BUFFERED_DEAD_LETTERS:
                    self._write_dead_letters(task, metrics, dead_letter_writer)
            self._write_dead_letters(task, metrics, dead_letter_writer)
            files = writer.finish()
            letters = dead_letter_writer.finish()
            return WrittenTask(files, letters, metrics.counts(), task.data_bytes, left_out=left_out)

    def _write_dead_letters(
        self, task: ScanTask, metrics: DeadLetterMetrics, writer: FileWriter
    ) -> None:
        """Write the collected dead letters, and clear the collection."""
        reasons = metrics.take_dead_letters()
        for batch in read_dead_letters(task, reasons) if reasons else ():
            writer.write(batch)
