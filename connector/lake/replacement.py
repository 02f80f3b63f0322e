"""The change that an increment makes to a table that keeps the latest row of each key.

Tasks first write all rows to staged files, which no table lists. Only the latest row of each key is
then copied to files of the table. Files of the table that have an older row of such a key are
rewritten without it. Every row of the table is older than the rows of the increment, because
increments of a topic partition are in order, and so are those of a scalable topic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.errors import LateLedgerError, OptionError
from arrow_io.payloads.envelopes import DELETED_COLUMN
from connector.increments.progress import Position
from connector.lake.latest_rows import NULL_VALUE, SEGMENT_ID, Identity, LatestRows
from connector.tables.dead_letters import DEAD_LETTERS_SCHEMA, POSITION_COLUMNS
from connector.tables.file_reader import read_rows
from connector.tables.file_writer import FileWriter, delete_files
from connector.tables.rewriting import filter_rows, rewrite_without
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from connector.increments.progress import Progress
    from connector.inputs.topic_names import TopicName
    from connector.lake.latest_rows import KeySet
    from connector.scan.read_options import ReadOptions
    from connector.tables.data_file import DataFile
    from connector.tables.file_writer import FileSettings
    from connector.tables.table import RewritableTable, TableFile, TableState


def staged_columns(deletes: str, *, is_scalable: bool) -> tuple[str, ...]:
    """Return the columns that staged files have in addition to the table's.

    Args:
        deletes: Name of the column that marks rows which delete their key.
        is_scalable: Whether the rows are those of a scalable topic.
    """
    return (*((SEGMENT_ID,) if is_scalable else ()), *POSITION_COLUMNS, deletes)


_STAGED_SCHEMA = pa.schema(
    [
        pa.field(SEGMENT_ID, pa.int64()),
        *(DEAD_LETTERS_SCHEMA.field(each) for each in POSITION_COLUMNS),
        pa.field(NULL_VALUE, pa.bool_()),
        pa.field(DELETED_COLUMN, pa.bool_()),
    ]
)


def _one_scope(_topic: TopicName) -> object:
    return None


_SCOPES: Final[Mapping[str, Callable[[TopicName], object]]] = {
    "__topic__": str,
    "__partition__": attrgetter("partition"),
}
"""Columns that identify a topic or partition, and how to compute their value from its name."""


@dataclass(frozen=True, slots=True)
class LatestPerKey:
    """How a table keeps the latest row of each key.

    Attributes:
        key_columns: Names of the table's columns that identify rows.
        scope: Name of the column with a row's topic or partition, within which keys are unique.
            None: the table has a single topic partition.
        deletes: Name of the staged column that marks rows which delete their key.
        only_staged: Those of the staged columns that the table lacks.
        to_scope: Returns the value of the column `scope` for a topic or partition.
        is_scalable: Whether the rows are those of one scalable topic, whose segments share keys.
        has_text_key: As in `Identity`.
        has_message_key: Whether the key is that of the message.
    """

    table: RewritableTable
    key_columns: tuple[str, ...]
    scope: str | None = None
    deletes: str = NULL_VALUE
    only_staged: tuple[str, ...] = staged_columns(NULL_VALUE, is_scalable=False)
    to_scope: Callable[[TopicName], object] = _one_scope
    is_scalable: bool = False
    has_text_key: bool = True
    has_message_key: bool = True

    def check_topics(self, topics: Iterable[TopicName]) -> None:
        """Check that the table can distinguish the keys of all topics that it has or gets rows of.

        Raises:
            OptionError: It cannot: rows of one would replace rows of another.
        """
        topics_by_scope: dict[object, TopicName] = {}
        for topic in topics:
            owner = topic.scalable if self.is_scalable else topic
            other = topics_by_scope.setdefault(self.to_scope(topic), owner)
            if other != owner:
                message = (
                    f"{self.table.location} cannot distinguish keys of {topic} from those of"
                    f" {other}: copy one of them to another table, or both in one copy to a new one"
                )
                raise OptionError(message)

    def check_order(self, before: Progress, after: Progress) -> None:
        """Check that no rows of an increment are older than rows that the table has of their keys.

        Raises:
            LateLedgerError: Some are: a segment has rows, and one that continues it was copied.
        """
        copied = [
            topic
            for topic, progress in before.topics.items()
            if topic.segment is not None and progress.next > Position(0, 0)
        ]
        for topic, progress in after.topics.items():
            if progress.next == before.topic_progress(topic).next:
                continue
            later = next((each for each in copied if topic.precedes(each)), None)
            if later is not None:
                message = (
                    f"{topic} has new ledgers, but {later}, which continues it, was copied before:"
                    " the new rows are older than those of the table; copy the topic to a new"
                    " table, with metadata that has the ledgers of segments"
                )
                raise LateLedgerError(message)

    @property
    def columns(self) -> list[str]:
        """Columns that the table must have."""
        return self._identity.columns

    @property
    def _identity(self) -> Identity:
        return Identity(self.key_columns, self.has_text_key, self.scope)

    def staging(self, settings: FileSettings) -> FileSettings:
        """Return how rows are staged, from how files of the table are written."""
        # Messages without a key are staged too.
        schema = pa.schema([each.with_nullable(nullable=True) for each in settings.schema])
        for each in staged_columns(self.deletes, is_scalable=self.is_scalable):
            # An existing table may already have one of these columns.
            if each not in schema.names:
                schema = schema.append(_STAGED_SCHEMA.field(each))
        return replace(settings, schema=schema, partitioning=Partitioning())

    def write_replacement(
        self, staged: Sequence[DataFile], settings: FileSettings, state: TableState | None
    ) -> Replacement:
        """Write the new files of the table, and delete the staged files, even if this fails.

        The staged files were written as `staging` says, and `settings` are those of the table.

        Raises:
            LakeTableError: A file of the table cannot be read or rewritten.
            PulsarOffloadError: Rows cannot be read or written. No written file is left in the
                store, unless a note on the error names it.
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
        latest = LatestRows(self._identity, deletes=self.deletes, has_segments=self.is_scalable)
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
            yield from filter_rows(batches, is_selected)

    def _rewrite_files(
        self, keys: KeySet, writer: FileWriter, state: TableState | None
    ) -> Iterator[tuple[TableFile, int]]:
        """Rewrite files without the rows of some keys; yield each, and how many of them it had."""
        if state is None or not len(keys):
            return
        files = (
            each for each in self.table.data_files(state, self.columns) if keys.may_match(each)
        )
        read = self.table.file_reader(state)
        yield from rewrite_without(read, files, self.columns, keys.match_rows, writer)


def keep_latest(
    table: RewritableTable,
    options: ReadOptions,
    key_columns: tuple[str, ...] | None,
    scope: str | None,
    *,
    is_scalable: bool,
) -> tuple[LatestPerKey, ReadOptions]:
    """Return how a table keeps the latest row of each key, and how its staged rows are read.

    Raises:
        OptionError: The table has no columns with which rows are identified, or they have types
            that cannot identify rows.
    """
    column_names = {own: name for name, own in options.projection.columns}
    own_names = ["__key__"] if key_columns is None else []
    own_names += [] if scope is None else [scope]
    missing = [each for each in own_names if each not in column_names]
    missing += [each for each in key_columns or () if each not in options.projection.schema.names]
    if missing:
        identity = [*([] if scope is None else [scope]), *(key_columns or ["__key__"])]
        message = (
            f"latest_per_key identifies rows by {' and '.join(identity)}: columns must include"
            f" {' and '.join(sorted(missing, key=identity.index))}"
        )
        raise OptionError(message)
    names = key_columns or (column_names["__key__"],)
    types = [options.projection.schema.field(each).type for each in names]
    _check_key_types(names, types)
    deletes = DELETED_COLUMN if options.is_unwrapped else NULL_VALUE
    all_staged = staged_columns(deletes, is_scalable=is_scalable)
    only_staged = tuple(each for each in all_staged if each not in column_names)
    staged = [*(name for name, _ in options.projection.columns), *only_staged]
    latest = LatestPerKey(
        table,
        names,
        None if scope is None else column_names[scope],
        deletes,
        only_staged,
        _one_scope if scope is None else _SCOPES[scope],
        is_scalable=is_scalable and scope is None,
        has_text_key=len(types) == 1 and pa.types.is_string(types[0]),
        has_message_key=key_columns is None,
    )
    return latest, replace(options, projection=options.filterable.select(staged))


def _check_key_types(names: Sequence[str], types: Sequence[pa.DataType]) -> None:
    allowed = ("integer", "string", "decimal", "boolean", "date", "timestamp")
    checks = [getattr(pa.types, f"is_{each}") for each in allowed]
    for name, type_ in zip(names, types, strict=True):
        if not any(check(type_) for check in checks):
            message = f"the column {name} of type {type_} cannot identify rows: name other columns"
            raise OptionError(message)


@dataclass(frozen=True, slots=True)
class Replacement:
    """How an increment changes the files of a table.

    Attributes:
        rows: Number of new rows.
        replaced: Number of rows of the table that are replaced or removed.
        keyless: Number of messages left out because they have no key.
    """

    files: tuple[DataFile, ...]
    rows: int
    removed: tuple[TableFile, ...] = ()
    replaced: int = 0
    keyless: int = 0
