"""Staged rows of an increment → the files that they make of a table which has each key once.

Tasks stage all rows, in files that no table names. Of those only the latest of each key go on, and
the files of the table that have an older one are written again without it. A row of the table is
older than each of the increment: those of a topic partition follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError
from connector.lake.dead_letters import DEAD_LETTERS_SCHEMA, POSITION_COLUMNS
from connector.lake.file_reader import read_rows
from connector.lake.file_writer import FileWriter, delete_files
from connector.lake.latest_rows import NULL_VALUE, Identity, LatestRows
from connector.lake.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connector.inputs.topic_names import TopicName
    from connector.lake.data_file import DataFile
    from connector.lake.file_writer import FileSettings
    from connector.lake.latest_rows import KeySet
    from connector.lake.table import RewritableTable, TableFile, TableState

STAGED_COLUMNS = (*POSITION_COLUMNS, NULL_VALUE)
"""What is staged of each row besides its columns in the table."""


def _one_scope(_topic: TopicName) -> object:
    return None


@dataclass(frozen=True, slots=True)
class LatestPerKey:
    """How a table keeps the latest row of each key.

    Attributes:
        table: The table.
        key: Name of its column of keys.
        scope: Name of the column that has the topic partitions which a key is one of: topics or
            partitions. None: there is but one.
        only_staged: Those of `STAGED_COLUMNS` that the table does not have.
        to_scope: Gives what stands in the column `scope` of a topic or partition.
    """

    table: RewritableTable
    key: str
    scope: str | None = None
    only_staged: tuple[str, ...] = STAGED_COLUMNS
    to_scope: Callable[[TopicName], object] = _one_scope

    def check_topics(self, topics: Iterable[TopicName]) -> None:
        """Check that the table can tell rows of different topics and partitions apart.

        Args:
            topics: All that the table has rows of, or gets.

        Raises:
            OptionError: It cannot: rows of one would take the place of rows of the other.
        """
        topics_by_scope: dict[object, TopicName] = {}
        for topic in topics:
            other = topics_by_scope.setdefault(self.to_scope(topic), topic)
            if other != topic:
                message = (
                    f"{self.table.location} cannot tell keys of {topic} from those of {other}: copy"
                    " one of them to another table, or both at once to a new one"
                )
                raise OptionError(message)

    @property
    def columns(self) -> list[str]:
        """Those that the table must have."""
        return self._identity.columns

    @property
    def _identity(self) -> Identity:
        return Identity(self.key, self.scope)

    def staging(self, settings: FileSettings) -> FileSettings:
        """How rows are staged.

        Args:
            settings: How files of the table are written.
        """
        schema = settings.schema
        for each in STAGED_COLUMNS:
            # The table may stand with a column that others copied.
            if each not in schema.names:
                type_ = pa.bool_() if each == NULL_VALUE else DEAD_LETTERS_SCHEMA.field(each).type
                schema = schema.append(pa.field(each, type_))
        return replace(settings, schema=schema, partitioning=Partitioning())

    def write_replacement(
        self, staged: Sequence[DataFile], settings: FileSettings, state: TableState | None
    ) -> Replacement:
        """Write what the table gets; whatever happens, nothing is staged then.

        Args:
            staged: Files that were written by `staging`.
            settings: How files of the table are written.
            state: What the table is; None: there is none yet.

        Raises:
            LakeTableError: A file of the table cannot be read, or not be written again.
            PulsarOffloadError: Rows cannot be read or written. Nothing of it is left in the store
                then, unless a note on the error says so.
        """
        try:
            with FileWriter(settings) as writer:
                latest = self._latest(staged, settings)
                rows = 0
                for batch in self._survivors(latest, staged, settings):
                    rows += batch.num_rows
                    writer.write(batch)
                keys = latest.keys(settings.partitioning)
                replaced = list(self._rewrite_files(keys, writer, state))
                files = writer.finish()
                settings.location.delete_objects(each.path for each in staged)
        except BaseException as error:
            delete_files(settings.location, staged, error)
            raise
        removed = tuple(file for file, _ in replaced)
        return Replacement(files, rows, removed, sum(n for _, n in replaced), latest.keyless)

    def _latest(self, staged: Iterable[DataFile], settings: FileSettings) -> LatestRows:
        latest = LatestRows(self._identity)
        for number, file in enumerate(staged):
            columns = latest.staged_columns
            batches = read_rows(settings.location, file.path, file.size_bytes, columns)
            latest.add_file(number, pa.Table.from_batches(batches))
        return latest

    def _survivors(
        self, latest: LatestRows, staged: Iterable[DataFile], settings: FileSettings
    ) -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(staged):
            is_selected = latest.select_rows(number, file.rows)
            if not is_selected.true_count:
                continue
            columns = settings.schema.names
            batches = read_rows(settings.location, file.path, file.size_bytes, columns)
            yield from _filter_rows(batches, is_selected)

    def _rewrite_files(
        self, keys: KeySet, writer: FileWriter, state: TableState | None
    ) -> Iterator[tuple[TableFile, int]]:
        """Write the rows beside those of some keys, of each file that has such.

        Returns:
            These files, and how many rows of the keys each has.
        """
        if state is None or not len(keys):
            return
        for file in self.table.data_files(state, self.columns):
            if not keys.may_match(file):
                continue
            batches = list(self.table.read_file(state, file, self.columns))
            if not batches:  # Others deleted each of its rows.
                continue
            rows = pa.Table.from_batches(batches)
            is_matching = keys.match_rows(file, rows)
            matching = pc.sum(is_matching).as_py() or 0
            if not matching:
                continue
            if matching < len(rows):
                for batch in _filter_rows(
                    self.table.read_file(state, file), pc.invert(is_matching)
                ):
                    writer.write(batch)
            yield file, matching


@dataclass(frozen=True, slots=True)
class Replacement:
    """What an increment makes of a table.

    Attributes:
        files: Files that come to it.
        rows: How many rows are new.
        removed: Files that go.
        replaced: How many rows of the table these stand for, or are removed.
        keyless: How many messages were left out because they have no key.
    """

    files: tuple[DataFile, ...]
    rows: int
    removed: tuple[TableFile, ...] = ()
    replaced: int = 0
    keyless: int = 0


def _filter_rows(
    batches: Iterable[pa.RecordBatch], is_selected: pa.BooleanArray
) -> Iterator[pa.RecordBatch]:
    """Some of the rows that batches have together."""
    first = 0
    for batch in batches:
        selected = batch.filter(is_selected.slice(first, batch.num_rows))
        first += batch.num_rows
        if selected.num_rows:
            yield selected
