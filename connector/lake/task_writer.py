"""A scan task → the files of its rows: what runs in a thread, or in another process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from arrow_io.read_metrics import ReadMetrics, Unit
from connector.increments.increment import execute_increment
from connector.lake.dead_letters import (
    DeadLetterMetrics,
    dead_letter_task,
    letters_of,
    without_letters,
)
from connector.lake.file_writer import FileWriter, delete_files
from connector.statistics.ledger_parts import ZoneGatherer

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from connector.lake.data_file import DataFile
    from connector.lake.file_writer import FileSettings
    from connector.scan.topic_read import ScanTask
    from connector.statistics.ledger_parts import LedgerPart

MAX_HELD_LETTERS: Final = 1 << 18
"""Positions and reasons of dead letters that a task holds, some 64 MiB; and those of a batch."""
_AROUND: Final = frozenset({Unit.BLOCK, Unit.LEDGER})


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """What came of a task. Can be pickled.

    Attributes:
        files: Files of the table.
        letters: Files of the table of dead letters.
        metrics: What was met besides rows.
        data_bytes: Bytes of data objects that the task is of.
        parts: What was learned of the ledgers that are to be analyzed.
    """

    files: tuple[DataFile, ...]
    letters: tuple[DataFile, ...]
    metrics: ReadMetrics
    data_bytes: int
    parts: tuple[LedgerPart, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskWriter:
    """Writes the rows of tasks. Can be pickled, as tasks can.

    Attributes:
        settings: How files of the table are written.
        letters: How those of the table of dead letters are; None: a value that cannot be decoded
            stops the task.
        letters_from: By topic, the ledger and entry id before which that table has all of them.
        analyzed: By topic, the ledgers whose zones are made in passing.
    """

    settings: FileSettings
    letters: FileSettings | None = None
    letters_from: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    analyzed: Mapping[str, Container[int]] = field(default_factory=dict)

    def __call__(self, task: ScanTask) -> WrittenTask:
        """Read a task, and write its rows.

        Raises:
            PulsarOffloadError: It cannot be read, decoded or written; nothing of it is left in the
                store then, unless a note on the error says so.
        """
        topic = task.read.origin.topic
        wanted = self.analyzed.get(topic)
        gatherer = ZoneGatherer(topic, wanted) if wanted else None
        if self.letters is None:
            written = self._written(task, gatherer)
        else:
            written = self._with_letters(task, self.letters, gatherer)
        # What lies around entries is in no zone, and makes all of a ledger's doubtful.
        if gatherer is None or any(unit in _AROUND for unit, _ in written.metrics.lost):
            return written
        return replace(written, parts=tuple(gatherer.parts))

    def _written(self, task: ScanTask, gatherer: ZoneGatherer | None) -> WrittenTask:
        metrics = ReadMetrics()
        with FileWriter(self.settings) as writer:
            for batch in execute_increment(task, metrics, gatherer=gatherer):
                writer.write(batch)
            return WrittenTask(writer.finish(), (), metrics, task.data_bytes)

    def discard(self, written: WrittenTask, error: BaseException) -> None:
        """Delete the files of a task because of an error, which gets a note if some are left."""
        delete_files(self.settings.location, written.files, error)
        if self.letters is not None:
            delete_files(self.letters.location, written.letters, error)

    def _with_letters(
        self, task: ScanTask, settings: FileSettings, gatherer: ZoneGatherer | None
    ) -> WrittenTask:
        metrics = DeadLetterMetrics()
        names = task.read.options.projection.schema.names
        with FileWriter(self.settings) as writer, FileWriter(settings) as letters:
            for batch in execute_increment(dead_letter_task(task), metrics, gatherer=gatherer):
                writer.write(without_letters(batch, metrics).select(names))
                if len(metrics.letters) >= MAX_HELD_LETTERS:
                    self._write_letters(task, metrics, letters)
            self._write_letters(task, metrics, letters)
            files = writer.finish()
            return WrittenTask(files, letters.finish(), metrics.counts(), task.data_bytes)

    def _write_letters(
        self, task: ScanTask, metrics: DeadLetterMetrics, letters: FileWriter
    ) -> None:
        """Write the letters that metrics have, unless their table has them, and forget them."""
        origin = task.read.origin.topic
        taken = metrics.taken_letters(self.letters_from.get(origin, (0, 0)))
        for batch in letters_of(task, taken) if taken else ():
            letters.write(batch)
