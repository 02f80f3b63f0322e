"""`reprocess_dead_letters`: dead letters that another schema or option decodes become rows.

A letter has the bytes of its value, so the bucket is not read. The commit that adds rows also
records which letters they were (`connector.tables.letter_changes`), so each becomes a row once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.option_names import option_name
from arrow_io.errors import LakeTableError, OptionError
from arrow_io.payloads.value_columns import VALUE_COLUMN
from arrow_io.storage.hidden import hidden
from connector.inputs.topic_names import TopicName
from connector.lake.copy_plan import DEFAULT_SIZES
from connector.lake.latest_letters import DecodedLetters, LatestLetters
from connector.lake.latest_rows import NULL_VALUE, Identity
from connector.options.option import takes_options
from connector.options.topic_request import (
    DECODING_OPTIONS,
    OPTIONS,
    TopicRequest,
    check_options,
)
from connector.tables.copied_rows import CopiedRows, lacks, note_decoded_letters
from connector.tables.dead_letters import (
    DEAD_LETTERS,
    DEAD_LETTERS_SCHEMA,
    POSITION_COLUMNS,
    REASON_COLUMN,
    UNRECORDED_COLUMNS,
    dead_letter_options,
    decode_letters,
    refuse_branches,
)
from connector.tables.evolution import fit_rows
from connector.tables.file_writer import FileSettings, FileWriter
from connector.tables.letter_changes import POSITIONS, LetterChange, LetterTable
from connector.tables.table import Commit, commit_files
from connector.tables.table_kinds import open_table
from connector.tables.table_progress import check_copied, read_progress
from connector.topic import read_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connector.scan.read_options import ReadOptions
    from connector.tables.data_file import DataFile
    from connector.tables.evolution import TableKind
    from connector.tables.letter_changes import LetterPosition
    from connector.tables.table import RewritableTable, TableFile, TableState

_STEP_ROWS: Final = 1 << 15
"""Number of letters of a commit, approximately: the progress has the position of each."""
_STEP_BYTES: Final = 64 << 20
"""Size of the letters of a commit, approximately, in Arrow's memory."""
_MESSAGE_COLUMNS: Final = frozenset(
    {*DEAD_LETTERS_SCHEMA.names, "__partition__", "__segment_id__"}
) - {VALUE_COLUMN, REASON_COLUMN}
"""Message columns that rows of letters have, if the table has them."""


@dataclass(slots=True)
class ReprocessSummary:
    """What happened to the dead letters of a table, or would happen.

    Attributes:
        target: The table of the rows.
        rows: Letters that became rows. Of a dry run, letters that can be decoded.
        replaced: Older rows that they replaced, if the table keeps the latest row of each key.
        superseded: Letters that were removed without becoming rows, because such a table has a
            newer row of their key, or they have no key.
        remaining: Number of letters that stay, by the reason.
        commits: Number of commits that added rows.
        notices: One sentence for each fact that a reader of the table must know.
    """

    target: str
    rows: int = 0
    replaced: int = 0
    superseded: int = 0
    remaining: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    notices: list[str] = field(default_factory=list)


@takes_options(OPTIONS, secrets=("target_options", "table_options"))
def reprocess_dead_letters(
    target: str,
    *,
    format: TableKind = "delta",  # noqa: A002 - as in `copy_topics`
    target_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, object] | None = None,
    insert_missing_keys: bool = False,
    dry_run: bool = False,
    **decoding_options: Any,  # noqa: ANN401 - those of `open_topic`
) -> ReprocessSummary:
    """Decode the dead letters of a table again, and move those that can be decoded into the table.

    Each becomes a row exactly once, even if a run is stopped, or copies and other runs are active.
    The bucket is not read. Letters that still cannot be decoded stay.

    Args:
        target: URL of the table's folder. For Iceberg, the table's name, `namespace.table`.
        format: `delta`, `iceberg` or `parquet`.
        target_options: Options of the target's fsspec file system.
        table_options: See `copy_topics`.
        insert_missing_keys: Whether a letter becomes a row if a table with the latest row of each
            key has no row of its key. The key may have been deleted after the letter, which the
            table does not record. By default, such a letter stays.
        dry_run: Whether to count only.
        decoding_options: Options of `open_topic` that define how values are decoded:
            `schema`, which is required unless `value` is `raw`, `schema_options`, `schema_version`,
            `value`, `columns`, `time_unit` and `naming`; and `storage_options` to read the schema.
            By default, `columns` are those of the copy's defaults that the table has, and the
            value columns.

    Raises:
        OptionError: An option is not allowed, a library is not installed, or letters of such a
            table cannot become rows: it has changes of a database, or the latest rows of a
            scalable topic.
        LakeTableError: There is no table that a copy writes, or it cannot store the rows.
        ConcurrentCopyError: Another writer changed a table at the same time. Earlier commits
            remain. Run again.
        PulsarOffloadError: Letters cannot be read, or rows cannot be written.
    """
    options = _options(format, decoding_options)
    refuse_branches(table_options)
    table, letter_table = (
        # Each kind of table can be rewritten.
        cast("RewritableTable", open_table(format, name, hidden(target_options), hidden(each)))
        for name, each in (
            (target, table_options),
            (target.rstrip("/") + DEAD_LETTERS, dead_letter_options(table_options)),
        )
    )
    letters = LetterTable(letter_table, format, DEFAULT_SIZES.file_bytes)
    has_columns = decoding_options.get("columns") is not None
    own = _Reprocessing(table, letters, options, has_columns, insert_missing_keys, dry_run)
    return own.run()


def _options(kind: TableKind, values: Mapping[str, Any]) -> ReadOptions:
    check_options(values)
    for each in values:
        if each not in DECODING_OPTIONS:
            message = (
                f"{option_name(each)} does not concern dead letters; these options do:"
                f" {', '.join(map(option_name, DECODING_OPTIONS))}"
            )
            raise OptionError(message)
    unit: dict[str, Any] = {} if kind == "parquet" else {"time_unit": "us"}
    request = TopicRequest(**(unit | dict(values)))
    options = read_options(request)
    if options.filterable.values is None and request.value != "raw":
        message = (
            f"values cannot be decoded without a schema that describes them: give"
            f" {option_name('schema')}, or {option_name('value', 'raw')} to keep their bytes"
        )
        raise OptionError(message)
    return options


@dataclass(frozen=True, slots=True)
class _Reprocessing:
    """The work on one table and its dead letters."""

    table: RewritableTable
    letters: LetterTable
    options: ReadOptions
    has_columns: bool
    insert_missing_keys: bool
    dry_run: bool

    def run(self) -> ReprocessSummary:
        summary = ReprocessSummary(str(self.table.location))
        while not self._examine_all(summary):
            summary.remaining.clear()
        return summary

    def _examine_all(self, summary: ReprocessSummary) -> bool:
        """Examine each letter once. Return whether no other run changed the letters meanwhile."""
        if self.dry_run:
            summary.rows = 0
            state, letter_state, pending = self.letters.read_versions(self.table)
            self._check(state)
            change = LetterChange.from_state(self.table, state)
        else:
            state = self._state()
            change = LetterChange.from_state(self.table, state)
            letter_state = self.letters.catch_up(change, read_progress(self.table, state))
            pending = LetterChange()
        for step in self._steps(letter_state, pending):
            state = self._state()
            if LetterChange.from_state(self.table, state).number != change.number:
                # These letters may be rows by now.
                return False
            change = self._move(step, state, change, summary)
        if change.moved and not self.dry_run:
            # The positions are recorded for as long as letters may have to be removed.
            state = self._state()
            if LetterChange.from_state(self.table, state) == change:
                self._commit(state, self._settings(state, state.schema), (), change.applied())
        return True

    def _state(self) -> TableState:
        return self._check(self.table.read_state())

    def _check(self, state: TableState | None) -> TableState:
        """Return a state of the table. Raises an error if no letters can become its rows."""
        state = check_copied(self.table, state)
        rows = CopiedRows.from_state(self.table, state)
        if rows is not None and rows.has_changes:
            message = (
                f"{self.table.location} was copied with {option_name('unwrap')}: its dead letters"
                " cannot be decoded again, because a letter may be older than a row of its key"
            )
            raise OptionError(message)
        segments = [
            each for each in read_progress(self.table, state).topics if each.segment is not None
        ]
        if state.latest_per_key and segments:
            message = (
                f"{self.table.location} has the latest rows of segments of the scalable topic"
                f" {segments[0].scalable}: its dead letters cannot be decoded again, because"
                " positions do not tell whether a letter is newer than a row of another segment."
                " Copy the topic to a new table by the other schema"
            )
            raise OptionError(message)
        return state

    def _steps(self, letter_state: TableState | None, pending: LetterChange) -> Iterator[pa.Table]:
        """Iterate over the letters of a version."""
        batches: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        for batch in self.letters.read(letter_state, pending):
            for start in range(0, batch.num_rows, _STEP_ROWS):
                batches.append(batch.slice(start, _STEP_ROWS))
                rows += batches[-1].num_rows
                size_bytes += batches[-1].nbytes
                if rows >= _STEP_ROWS or size_bytes >= _STEP_BYTES:
                    yield _letters(batches)
                    batches, rows, size_bytes = [], 0, 0
        if batches:
            yield _letters(batches)

    def _move(
        self, step: pa.Table, state: TableState, change: LetterChange, summary: ReprocessSummary
    ) -> LetterChange:
        """Move the letters of a step that can be decoded. Return the last recorded change."""
        identity = self._identity(state)
        options = self._projection(state, identity)
        _add_notice(state, options, summary)
        decoded = _decode(step, options, summary.remaining)
        if self.dry_run:
            summary.rows += len(decoded.positions)
        if self.dry_run or not decoded.positions:
            return change
        names = [
            each
            for each in decoded.rows.schema.names
            if each != NULL_VALUE or each in state.schema.names
        ]
        settings = self._settings(state, decoded.rows.select(names).schema)
        null_columns = _null_columns(settings.schema, state.schema, decoded.rows, options)
        removed: list[tuple[TableFile, int]] = []
        with FileWriter(settings) as writer:
            if identity is not None:
                # Values of keys are compared in the types of the table.
                decoded = replace(decoded, rows=_fit(decoded.rows, settings))
                keys = LatestLetters(self.table, state, identity, decoded)
                removed = keys.remove_older(writer)
                decoded = keys.select(summary.remaining, insert_missing=self.insert_missing_keys)
            for batch in decoded.rows.select(names).to_batches():
                writer.write(batch)
            files = writer.finish()
        if not decoded.positions:
            return change
        letter_state = self.letters.table.read_state()
        change = change.following(self.letters.last_change(letter_state), moved=decoded.positions)
        old_files = [file for file, _ in removed]
        self._commit(state, settings, files, change, removed=old_files, null_columns=null_columns)
        progress = read_progress(self.table, state)
        self.letters.apply(change, progress, progress, letter_state)
        summary.rows += decoded.rows.num_rows
        summary.replaced += sum(count for _, count in removed)
        summary.superseded += len(decoded.positions) - decoded.rows.num_rows
        summary.commits += 1
        return change

    def _commit(
        self,
        state: TableState,
        settings: FileSettings,
        files: Sequence[DataFile],
        change: LetterChange,
        *,
        removed: Sequence[TableFile] = (),
        null_columns: Iterable[str] = (),
    ) -> None:
        assert state.progress is not None  # noqa: S101 - checked by `_state`
        after = change.add_to(state.progress)
        if files:
            after = note_decoded_letters(after, self.options.filterable, null_columns)
        commit = Commit(
            tuple(files),
            settings.schema,
            settings.partitioning,
            state.progress,
            after,
            {"pulsar-offload.reprocessed": str(len(change.moved))},
            tuple(removed),
            latest_per_key=state.latest_per_key,
            key_columns=state.key_columns,
        )
        commit_files(settings.kind, self.table, commit, state)

    def _settings(self, state: TableState, rows: pa.Schema) -> FileSettings:
        # Letters without a key are never rows of a table whose rows are identified by it.
        required = {each.name for each in state.schema if not each.nullable}
        rows = pa.schema([each.with_nullable(each.name not in required) for each in rows])
        return FileSettings(
            self.table.location,
            self.table.data_prefix,
            self.table.storable(rows, state),
            state.partitioning,
            self.letters.kind,
            file_bytes=self.letters.file_bytes,
        )

    def _identity(self, state: TableState) -> Identity | None:
        """Return how rows are identified, if the table keeps the latest row of each key."""
        if not state.latest_per_key:
            return None
        for each in POSITION_COLUMNS:
            if each not in state.schema.names:
                message = (
                    f"{self.table.location} keeps the latest row of each key, and has no column"
                    f" {each}, which tells whether a row is newer than a dead letter"
                )
                raise LakeTableError(message)
        names = self._names
        scopes = (names["__topic__"], names["__partition__"])
        scope = next((each for each in scopes if each in state.schema.names), None)
        key_columns = state.key_columns or (names["__key__"],)
        types = [state.schema.field(each).type for each in key_columns]
        has_text_key = len(types) == 1 and pa.types.is_string(types[0])
        return Identity(key_columns, has_text_key, scope)

    @property
    def _names(self) -> dict[str, str]:
        return {own: name for name, own in self.options.filterable.columns}

    def _projection(self, state: TableState, identity: Identity | None) -> ReadOptions:
        """Return the options with the columns of the rows."""
        columns = dict(self.options.projection.columns)
        if not self.has_columns:
            message_columns = {
                name: own
                for own, name in self._names.items()
                if own in _MESSAGE_COLUMNS and name in state.schema.names
            }
            others = _MESSAGE_COLUMNS | UNRECORDED_COLUMNS
            values = {name: own for name, own in columns.items() if own not in others}
            columns = message_columns | values
        if identity is not None:
            needed = [*identity.columns, *POSITION_COLUMNS, NULL_VALUE]
            columns |= dict.fromkeys(needed, "")
        return replace(self.options, projection=self.options.filterable.select(columns))


def _decode(letters: pa.Table, options: ReadOptions, remaining: Counter[str]) -> DecodedLetters:
    """Decode letters of any topics, and count those that stay."""
    tables: list[pa.Table] = []
    positions: list[LetterPosition] = []
    for topic in letters.column("__topic__").unique().to_pylist():
        own = letters.filter(pc.equal(letters.column("__topic__"), topic))
        rows, reasons = decode_letters(own, TopicName.parse(topic), options)
        remaining.update(reasons.values())
        is_decoded = pa.array([each not in reasons for each in range(own.num_rows)])
        tables.append(rows.filter(is_decoded))
        columns = (own.filter(is_decoded).column(each).to_pylist() for each in POSITIONS)
        for *position, batch_index in zip(*columns, strict=True):
            positions.append((*position, -1 if batch_index is None else batch_index))
    return DecodedLetters(pa.concat_tables(tables), positions)


def _fit(rows: pa.Table, settings: FileSettings) -> pa.Table:
    """Return rows with the columns and types of a table, and nullable; other columns follow."""
    others = [each for each in rows.schema if each.name not in settings.schema.names]
    fields = [each.with_nullable(nullable=True) for each in (*settings.schema, *others)]
    schema = pa.schema(fields)
    fitted = (fit_rows(each, schema, settings.kind) for each in rows.to_batches())
    return pa.Table.from_batches(fitted, schema)


def _null_columns(
    schema: pa.Schema, current: pa.Schema, rows: pa.Table, options: ReadOptions
) -> list[str]:
    """Return the columns in which rows are null, or have null fields, unlike their messages.

    Args:
        schema: The columns of the table with the new rows.
        current: Its columns before: other ones are null in its earlier rows.
        rows: The new rows.
        options: How they were decoded.
    """
    recorded = [n for n, own in options.projection.columns if own not in UNRECORDED_COLUMNS]
    known = rows.select(recorded).schema
    return [each.name for each in schema if lacks(current, each) or lacks(known, each)]


def _letters(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return letters in the order of their positions, with the types of `DEAD_LETTERS_SCHEMA`."""
    table = pa.Table.from_batches(batches).select(DEAD_LETTERS_SCHEMA.names)
    return table.cast(DEAD_LETTERS_SCHEMA).sort_by([(each, "ascending") for each in POSITIONS])


def _add_notice(state: TableState, options: ReadOptions, summary: ReprocessSummary) -> None:
    """Add a sentence about columns that dead letters do not record, once."""
    names = [name for name, own in options.filterable.columns if own in UNRECORDED_COLUMNS]
    missing = [each for each in names if each in state.schema.names]
    if missing and not summary.notices:
        text = f"dead letters do not record {', '.join(missing)}, so these are null in their rows"
        summary.notices.append(text)
