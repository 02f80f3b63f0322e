"""Changes of a table of dead letters, each recorded by the commit of the rows it belongs to.

Rows and dead letters are in two tables, and no commit covers both. So the commit of the rows
decides: the progress that it stores contains the last change of the dead letters, which are files
to add and letters that became rows. Afterwards the change is applied to the table of dead letters,
whose progress has its number. A run that finds a change that is not applied yet applies it first.
So a run that is stopped between the two commits neither loses nor doubles a dead letter.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.json_checksum import json_crc32
from arrow_io.core.wording import counted
from arrow_io.errors import (
    ConcurrentCopyError,
    CorruptProgressError,
    LakeTableError,
    MissingObjectError,
)
from connector.increments.progress import Progress
from connector.tables.data_file import DataFile
from connector.tables.dead_letters import DEAD_LETTERS_SCHEMA, POSITION_COLUMNS
from connector.tables.file_reader import read_rows
from connector.tables.file_writer import FileSettings, FileWriter
from connector.tables.rewriting import rewrite_without
from connector.tables.table import Commit, commit_files, send_commit
from connector.tables.table_progress import (
    add_member,
    parse_progress,
    read_member,
    read_progress,
)
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable, RewritableTable, TableFile, TableState

    LetterPosition = tuple[str, int, int, int]
    """Topic, ledger id, entry id and batch index, which is −1 if the message is not batched."""

POSITIONS: Final = ("__topic__", *POSITION_COLUMNS)
"""Columns that identify a dead letter."""
_MEMBER: Final = "dead_letters"
"""The member of the progress that has the change."""


@dataclass(frozen=True, slots=True)
class LetterChange:
    """A change of the dead letters of a table.

    Attributes:
        number: Greater than those of all earlier changes; 0 if the table never had dead letters.
        files: Files to add, in the folder of the table of dead letters, not partitioned.
        moved: Positions of letters that became rows, ascending.
    """

    number: int = 0
    files: tuple[DataFile, ...] = ()
    moved: tuple[LetterPosition, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to add or to remove."""
        return not (self.files or self.moved)

    def following(
        self,
        last: LetterChange,
        files: Iterable[DataFile] = (),
        moved: Iterable[LetterPosition] = (),
    ) -> LetterChange:
        """Return the next change. `last` is the last one that was applied."""
        # The table of the rows may have been restored to an earlier version.
        number = max(self.number, last.number) + 1
        return LetterChange(number, tuple(files), tuple(sorted(moved)))

    def applied(self) -> LetterChange:
        """Return what later commits of the rows record of the change: its id."""
        return LetterChange(self.number)

    @classmethod
    def from_state(cls, table: LakeTable, state: TableState | None) -> Self:
        """Return the change that the progress of a table contains; an empty one if it has none.

        Raises:
            CorruptProgressError: The change is malformed, or was modified. The message names the
                table.
        """
        return parse_progress(table, state, cls.from_progress, cls())

    @classmethod
    def from_progress(cls, progress: str) -> Self:
        """Return the change that a progress contains.

        Raises:
            CorruptProgressError: The change is malformed, or was modified.
        """
        value = read_member(progress, _MEMBER)
        if value is None:
            return cls()
        try:
            expected = value.pop("crc32")
            files = tuple(DataFile(path, size, rows) for path, size, rows in value["files"])
            moved = tuple(_positions(value["moved"]))
            change = cls(operator.index(value["number"]), files, moved)
        except (AttributeError, KeyError, TypeError, ValueError):
            expected, change = None, cls()
        if expected is None or expected != json_crc32(value):
            message = "the change of its dead letters was truncated or modified"
            raise CorruptProgressError(message)
        return change

    def add_to(self, progress: str) -> str:
        """Return a progress that contains the change."""
        if not self.number:
            return progress
        moved: dict[str, dict[str, list[int]]] = {}
        for topic, ledger_id, *rest in self.moved:
            moved.setdefault(topic, {}).setdefault(str(ledger_id), []).extend(rest)
        files = [[each.path, each.size_bytes, each.rows] for each in self.files]
        value: dict[str, object] = {"number": self.number, "files": files, "moved": moved}
        return add_member(progress, _MEMBER, value)


def _positions(moved: dict[str, dict[str, list[int]]]) -> Iterator[LetterPosition]:
    for topic, ledgers in moved.items():
        for ledger_id, numbers in ledgers.items():
            for entry_id, batch_index in zip(numbers[::2], numbers[1::2], strict=True):
                yield topic, int(ledger_id), entry_id, batch_index


def identify(rows: pa.Table | pa.RecordBatch) -> pa.StringArray:
    """Return a text for each dead letter that identifies its message."""
    topic, *numbers = (rows.column(each) for each in POSITIONS)
    texts = (pc.fill_null(each, -1).cast(pa.string()) for each in numbers)
    joined = pc.binary_join_element_wise(topic, *texts, ":")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


class LetterVersion(NamedTuple):
    """A version of a table and of its dead letters."""

    state: TableState | None
    letter_state: TableState | None
    change: LetterChange
    """The change that the former records, if it is not applied to the latter; else an empty one."""


@dataclass(frozen=True, slots=True)
class LetterTable:
    """The table of the dead letters of another table, which need not exist yet.

    Attributes:
        file_bytes: Approximate size at which a file is completed and the next one is started.
    """

    table: RewritableTable
    kind: TableKind
    file_bytes: int

    def last_change(self, state: TableState | None) -> LetterChange:
        """Return the last change that was applied: its number alone."""
        return LetterChange.from_state(self.table, state)

    def read_versions(self, rows: LakeTable) -> LetterVersion:
        """Return a version of a table and of its dead letters at which no message is missing.

        Raises:
            PulsarOffloadError: The store or the catalog failed, or a progress is malformed.
        """
        previous: tuple[int, int] | None = None
        while True:
            state, letter_state = rows.read_state(), self.table.read_state()
            change = LetterChange.from_state(rows, state)
            numbers = change.number, self.last_change(letter_state).number
            if numbers[0] > numbers[1]:
                return LetterVersion(state, letter_state, change)
            # A later change may have moved letters to rows that this version does not have, unless
            # the table was restored to an earlier version.
            if numbers[0] == numbers[1] or numbers == previous:
                return LetterVersion(state, letter_state, change.applied())
            previous = numbers

    def read(self, state: TableState | None, change: LetterChange) -> Iterator[pa.RecordBatch]:
        """Read the dead letters of a version, as they will be after a change.

        The batches have the columns `DEAD_LETTERS_SCHEMA`, and possibly none of the letters.

        Args:
            state: The version of the table of dead letters.
            change: A change that is not applied yet, or an empty one.

        Raises:
            PulsarOffloadError: The letters cannot be read.
        """
        moved = pa.array([":".join(map(str, each)) for each in change.moved], pa.string())
        if state is not None:
            for each in list(self.table.data_files(state, ())):
                for batch in self.table.file_reader(state)(each, DEAD_LETTERS_SCHEMA.names):
                    is_moved = pc.is_in(identify(batch), value_set=moved)
                    yield batch.filter(pc.invert(is_moved))
        for file in change.files:
            yield from self._read_staged(file, state)

    def staging(self, state: TableState | None) -> FileSettings:
        """Return how files are written that a change adds."""
        return replace(self._settings(state), partitioning=Partitioning())

    def catch_up(self, change: LetterChange, progress: Progress) -> TableState | None:
        """Apply a change that an earlier run recorded, if needed, and return the table's state.

        Args:
            change: The change that the table of the rows records.
            progress: The progress of the rows.

        Raises:
            ConcurrentCopyError: Another run changed the dead letters at the same time.
            PulsarOffloadError: Letters cannot be read or written.
        """
        state = self.table.read_state()
        if change.is_empty or self.last_change(state).number >= change.number:
            return state
        with self._unless_applied(change):
            self._rewrite(change, progress, state)
        return self.table.read_state()

    def apply(
        self,
        change: LetterChange,
        before: Progress,
        after: Progress,
        state: TableState | None,
    ) -> None:
        """Apply a change that was just recorded.

        Args:
            change: The change.
            before: The progress of the rows before the commit that recorded it.
            after: The same after that commit.
            state: The table's state before that commit, with all earlier changes.

        Raises:
            ConcurrentCopyError: Another run changed the dead letters at the same time.
            PulsarOffloadError: Letters cannot be read or written. The next run applies the change.
        """
        own = read_progress(self.table, state)
        is_ahead = any(
            own.topic_progress(each).next > before.topic_progress(each).next
            for each in after.topics
        )
        is_partitioned = state is not None and bool(state.partitioning.fields)
        with self._unless_applied(change):
            # The table of the rows may have been restored to an earlier version.
            if change.moved or is_ahead or is_partitioned:
                self._rewrite(change, after, state)
            else:
                settings = self._settings(state)
                commit = self._commit(change, after, state, settings, change.files, ())
                # The files are never deleted: the record names them.
                send_commit(self.kind, self.table, commit, state)

    def _rewrite(self, change: LetterChange, progress: Progress, state: TableState | None) -> None:
        """Add the letters that the table lacks, remove those that became rows, and commit."""
        settings = self._settings(state)
        removed: list[TableFile] = []
        with FileWriter(settings) as writer:
            if state is not None and change.moved:
                ids = pa.array([":".join(map(str, each)) for each in change.moved], pa.string())
                ledger_ids = [each[1] for each in change.moved]
                rewritten = rewrite_without(
                    self.table.file_reader(state),
                    self._files(state, min(ledger_ids), max(ledger_ids)),
                    POSITIONS,
                    lambda _, rows: pc.is_in(identify(rows), value_set=ids),
                    writer,
                )
                removed = [file for file, _ in rewritten]
            for file in change.files:
                for batch in self._read_staged(file, state):
                    writer.write(self._missing_letters(batch, state))
            files = writer.finish()
        commit = self._commit(change, progress, state, settings, files, removed)
        commit_files(self.kind, self.table, commit, state)

    def _read_staged(self, file: DataFile, state: TableState | None) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_rows(self.table.location, file.path, file.size_bytes)
        except MissingObjectError:
            # Somebody may have deleted the table, with the file.
            if state is not None:
                message = (
                    f"{file.path} is missing at {self.table.location}: a run was stopped before it"
                    f" could add its {counted(file.rows, 'dead letter')}, and somebody deleted the"
                    " file since. To give these letters up, delete the table of dead letters"
                )
                raise LakeTableError(message, object_key=file.path) from None

    def _missing_letters(self, batch: pa.RecordBatch, state: TableState | None) -> pa.RecordBatch:
        """Return the letters of a batch that the table does not have."""
        if state is None or not batch.num_rows:
            return batch
        bounds = pc.min_max(batch.column("__ledger_id__")).as_py()
        present = [pa.array([], pa.string())]
        for file in self._files(state, bounds["min"], bounds["max"]):
            present += (identify(each) for each in self.table.file_reader(state)(file, POSITIONS))
        is_present = pc.is_in(identify(batch), value_set=pa.concat_arrays(present))
        return batch.filter(pc.invert(is_present))

    def _files(self, state: TableState, first: int, last: int) -> Iterator[TableFile]:
        """Iterate over the files that may have letters of ledgers with an id in `[first, last]`."""
        for file in self.table.data_files(state, POSITIONS):
            least, greatest = (each for each in file.bounds["__ledger_id__"])
            is_after = isinstance(least, int) and least > last
            is_before = isinstance(greatest, int) and greatest < first
            if not is_after and not is_before:
                yield file

    def _settings(self, state: TableState | None) -> FileSettings:
        return FileSettings(
            self.table.location,
            self.table.data_prefix,
            self.table.storable(DEAD_LETTERS_SCHEMA, state),
            Partitioning() if state is None else state.partitioning,
            self.kind,
            file_bytes=self.file_bytes,
        )

    def _commit(  # noqa: PLR0917 - in the order of what a commit has
        self,
        change: LetterChange,
        progress: Progress,
        state: TableState | None,
        settings: FileSettings,
        files: Sequence[DataFile],
        removed: Sequence[TableFile],
    ) -> Commit:
        after = _later(read_progress(self.table, state), progress)
        return Commit(
            tuple(files),
            settings.schema,
            settings.partitioning,
            None if state is None else state.progress,
            change.applied().add_to(after.to_json()),
            {"pulsar-offload.rows": str(sum(each.rows for each in files))},
            tuple(removed),
        )

    @contextmanager
    def _unless_applied(self, change: LetterChange) -> Iterator[None]:
        """Ignore a concurrent change if it is the same one: another run found it recorded."""
        try:
            yield
        except ConcurrentCopyError:
            if self.last_change(self.table.read_state()).number < change.number:
                raise


def _later(one: Progress, other: Progress) -> Progress:
    """Return the later progress of each topic."""
    topics: dict[Any, Any] = dict(one.topics)
    for topic, each in other.topics.items():
        if topic not in topics or topics[topic].next < each.next:
            topics[topic] = each
    return Progress(topics)
