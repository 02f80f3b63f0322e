"""What every kind of table offers to a copy: what it is now, and one step that changes its files.

The files of a commit are written before it, and no table names them until it. So whatever stops a
copy before the commit leaves garbage, and never half a commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from arrow_io.storage.location import Location
    from connector.lake.data_file import DataFile
    from connector.lake.transforms import Partitioning


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table is now.

    Attributes:
        schema: Its columns.
        partitioning: How its files are split.
        progress: How far it was copied to, as the last commit said; None: nothing was copied yet.
        token: What the kind of table knows its version by; for its own methods alone.
        latest_per_key: Whether it keeps the latest row of each key, and no other.
    """

    schema: pa.Schema
    partitioning: Partitioning
    progress: str | None
    token: object
    latest_per_key: bool = False


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table, as the table stands.

    Attributes:
        token: What the kind of table knows it by; for its own methods alone.
        bounds: For columns that were asked for, the least and the greatest value; None: not known.
        partition: The value of each field of the partitioning, by the field's text; None: null.
    """

    token: object
    bounds: Mapping[str, tuple[object, object]]
    partition: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Commit:
    """What is added to a table, and taken from it, in one step.

    Attributes:
        files: Files that lie at the table's location already.
        schema: The columns that the table has then: what it stood with, perhaps widened.
        partitioning: How the files are split.
        before: The progress that the table must have.
        after: The progress that it has then.
        summary: Further words for people, which the table keeps with the commit if it can.
        removed: Files of the table, as it stood when the copy began, that it has no more then.
        latest_per_key: See `TableState`; the same in each commit to a table.
    """

    files: tuple[DataFile, ...]
    schema: pa.Schema
    partitioning: Partitioning
    before: str | None
    after: str
    summary: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[TableFile, ...] = ()
    latest_per_key: bool = False


class LakeTable(Protocol):
    """A table that files can be added to."""

    @property
    def location(self) -> Location:
        """The table's folder, which the paths of its files are relative to."""

    @property
    def data_prefix(self) -> str:
        """Where in its folder new files lie: empty, or ends in `/`."""

    def storable(self, schema: pa.Schema, state: TableState | None) -> pa.Schema:
        """The columns of the table once it takes rows of a schema, as its files have to hold them.

        They are those that it stands with, widened, and behind them the new ones; each with the
        type in which this kind of table keeps it. Rows are cast to them, without loss, before they
        are written (`connector.lake.evolution.fit_rows`).

        Args:
            schema: Columns of the rows.
            state: What the table is; None: there is none yet.

        Raises:
            LakeTableError: This kind of table cannot keep a column, or cannot change so that it
                fits; the message names it.
        """

    def read_state(self) -> TableState | None:
        """What the table is now; None: there is none yet.

        Raises:
            LakeTableError: What stands there is no table that can be copied to.
            StorageError: The store or the catalog failed.
        """

    def commit(self, commit: Commit, state: TableState | None) -> None:
        """Create the table, or widen it, if needed; add the files; keep the progress: in one step.

        Args:
            commit: What is added.
            state: What the table was when the copy began, by `read_state`.

        Raises:
            ConcurrentCopyError: The table's progress is no longer `commit.before`; or others
                changed it so that what is removed is not what was read.
            LakeTableError: The table cannot take the commit.
            StorageError: The store or the catalog failed; the commit may have been made.
        """


class RewritableTable(LakeTable, Protocol):
    """A table whose files can be read, and be taken from it in a commit."""

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """The files that a table has.

        Args:
            state: What the table is.
            columns: Columns of it, of which bounds are wanted.

        Raises:
            LakeTableError: It has files that cannot be written again.
            StorageError: The store or the catalog failed.
        """

    def read_file(
        self, state: TableState, file: TableFile, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in the same order each time; columns as the file has them.

        Args:
            state: What the table is.
            file: One of its `data_files`.
            columns: Columns of the table; None: all.

        Raises:
            LakeTableError: The file is malformed.
            StorageError: The store failed.
        """
