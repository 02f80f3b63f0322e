"""The interface that every kind of table offers to a copy: its state, and an atomic commit.

Data files are written before the commit that adds them. A copy that stops before the commit leaves
unreferenced files, never half a commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from arrow_io.core import telemetry
from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError
from connector.tables.file_writer import delete_files, note_uncertain_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    import pyarrow as pa

    from arrow_io.storage.location import Location
    from connector.tables.data_file import DataFile
    from connector.tables.evolution import TableKind
    from connector.tables.transforms import Partitioning


@dataclass(frozen=True, slots=True)
class TableState:
    """The current version of a table.

    Attributes:
        schema: The table's columns.
        partitioning: How its rows are partitioned.
        progress: How far its topics are copied, according to the last commit. None if nothing was
            copied yet.
        token: The table kind's own handle of the version; only for the methods of the table that
            returned it.
        latest_per_key: Whether the table keeps only the latest row of each key.
        key_columns: The columns with this key. Empty if it is the key of the messages.
        sort_by: Columns of the table's own sort order, if it has one.
        new_branch: The branch that the next commit creates from the main branch. Empty: none.
    """

    schema: pa.Schema
    partitioning: Partitioning
    progress: str | None
    token: object
    latest_per_key: bool = False
    key_columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    new_branch: str = ""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of a table's current version.

    Attributes:
        token: The table kind's own handle of the file; only for the methods of the table that
            returned it.
        bounds: The minimum and maximum of each requested column. None if a bound is not recorded.
        partition: The value of each partition field, by the field's text. None stands for null.
        size_bytes: Length of the file.
        rows: Number of rows. None if it is not recorded, or rows were deleted since.
        not_null: Requested columns that certainly have no null.
        path: Name of the Parquet file in the table's folder, if a reader that knows only the file
            and `constants` reads its rows. None if it has deleted rows, columns that were renamed
            since, or a place outside the folder.
        constants: Values of columns that the file does not contain, by column.
    """

    token: object
    bounds: Mapping[str, tuple[object, object]]
    partition: Mapping[str, object]
    size_bytes: int
    rows: int | None
    not_null: frozenset[str] = frozenset()
    path: str | None = None
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """The files that one atomic step adds to a table and removes from it.

    Attributes:
        files: Data files that are already stored in the table's folder.
        schema: The table's columns after the commit: the current ones, possibly widened, then new
            ones.
        partitioning: How the rows are partitioned.
        before: The progress that the table must have before the commit.
        after: The progress that the commit stores.
        summary: Additional text for people, stored with the commit if the table kind supports it.
        removed: Files that the commit removes; they were part of the table when the copy started.
        latest_per_key: See `TableState`. It is the same in each commit to a table.
        key_columns: See `TableState`. They are the same in each commit, too.
        has_same_rows: Whether the files that are added have the rows of those that are removed.
    """

    files: tuple[DataFile, ...]
    schema: pa.Schema
    partitioning: Partitioning
    before: str | None
    after: str
    summary: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[TableFile, ...] = ()
    latest_per_key: bool = False
    key_columns: tuple[str, ...] = ()
    has_same_rows: bool = False


class LakeTable(Protocol):
    """A table that data files can be added to."""

    @property
    def location(self) -> Location:
        """The table's folder. Paths of its files are relative to it."""

    @property
    def data_prefix(self) -> str:
        """The folder of new files below `location`: empty, or ends in `/`."""

    def storable(self, schema: pa.Schema, state: TableState | None) -> pa.Schema:
        """Return the columns that the table needs so that rows of a schema fit.

        These are the current columns, widened if needed, followed by the new ones. Each has the
        type in which this kind of table stores it. `connector.tables.evolution.fit_rows` casts rows
        to these types, without loss, before they are written.

        Args:
            schema: Columns of the rows.
            state: The table's state. None if the table does not exist yet.

        Raises:
            LakeTableError: This kind of table cannot store a column, or cannot be changed to fit
                it. The message names the column.
        """

    def read_state(self) -> TableState | None:
        """Return the table's state, or None if the table does not exist yet.

        Raises:
            LakeTableError: The location has something other than a table that can be copied to.
            StorageError: The store or the catalog failed.
        """

    def commit(self, commit: Commit, state: TableState | None) -> None:
        """Create or widen the table if needed, change its files and store the progress, atomically.

        Args:
            commit: The change.
            state: The table's state when the copy started, from `read_state`.

        Raises:
            ConcurrentCopyError: The table's progress is no longer `commit.before`, or another
                writer changed files that the commit removes.
            LakeTableError: The table cannot take the commit.
            StorageError: The store or the catalog failed. The commit may or may not have been made.
        """


class FileReader(Protocol):
    """Reads the rows of files of one version of a table. Can be pickled."""

    def __call__(
        self, file: TableFile, columns: Sequence[str] | None = None, /
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of a file, in the same order each time, with the columns of the file.

        Args:
            file: One of the table's `data_files`.
            columns: Columns of the table to read. None reads all.

        Raises:
            LakeTableError: The file is malformed.
            StorageError: The store failed.
        """


class RewritableTable(LakeTable, Protocol):
    """A table whose files can be read, and be removed by a commit."""

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """Iterate over the table's data files.

        Args:
            state: The table's state.
            columns: Columns of the table whose bounds are needed.

        Raises:
            LakeTableError: The table has files that cannot be rewritten.
            StorageError: The store or the catalog failed.
        """

    def file_reader(self, state: TableState) -> FileReader:
        """Return the reader of the `data_files` of a state."""


class MaintainedTable(RewritableTable, Protocol):
    """A table that is maintained: each kind of table, as far as its library can."""

    def expire_versions(self, now: datetime, age: timedelta, *, dry_run: bool) -> int:
        """Expire versions that were replaced longer ago than an age. Return how many.

        Args:
            now: The current time, with time zone.
            age: The minimum age.
            dry_run: Whether to report only.

        Raises:
            ConcurrentCopyError: Another writer changed the table.
            LakeTableError: The table cannot be read.
            StorageError: The store or the catalog failed.
        """

    def delete_unneeded(self, before: datetime, *, dry_run: bool) -> list[str]:
        """Delete files that no version needs and that were written before a time.

        Returns:
            Their paths, relative to the table's folder.

        Raises:
            LakeTableError: The table cannot be read.
            StorageError: The store or the catalog failed.
        """


_REFUSALS: Final = (ConcurrentCopyError, LakeTableError, OptionError)
"""Errors after which a commit was certainly not made. After any other error, it may have been."""


def commit_files(
    kind: TableKind,
    table: LakeTable,
    commit: Commit,
    state: TableState | None,
    letters: Sequence[tuple[Location, Sequence[DataFile]]] = (),
) -> None:
    """Commit, or delete the new files if the commit was refused.

    If it may have been made, a note on the error names them. `letters` are files of dead letters
    that the progress names; they are deleted or named too.

    Raises:
        PulsarOffloadError: See `LakeTable.commit`.
    """
    files = ((table.location, commit.files), *letters)
    try:
        send_commit(kind, table, commit, state)
    except _REFUSALS as error:
        for location, each in files:
            delete_files(location, each, error)
        raise
    except BaseException as error:
        for location, each in files:
            note_uncertain_files(location, each, error)
        raise


def send_commit(
    kind: TableKind, table: LakeTable, commit: Commit, state: TableState | None
) -> None:
    """Commit, and report it as an operation. An error leaves the new files in the store.

    Raises:
        PulsarOffloadError: See `LakeTable.commit`.
    """
    fields = {"files": len(commit.files), "rows": sum(each.rows for each in commit.files)}
    with telemetry.operation("commit", table=str(table.location), format=kind, **fields):
        table.commit(commit, state)
