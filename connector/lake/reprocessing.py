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
from connector.increments.progress import Progress
from connector.inputs.topic_names import TopicName
from connector.lake.copy_plan import DEFAULT_SIZES
from connector.lake.latest_rows import NULL_VALUE, Identity, LatestRows
from connector.options.option import takes_options
from connector.options.topic_request import (
    DECODING_OPTIONS,
    OPTIONS,
    TopicRequest,
    check_options,
)
from connector.tables.copied_rows import CopiedRows, note_null_columns
from connector.tables.dead_letters import (
    DEAD_LETTERS,
    DEAD_LETTERS_SCHEMA,
    POSITION_COLUMNS,
    REASON_COLUMN,
    UNRECORDED_COLUMNS,
    decode_letters,
)
from connector.tables.file_writer import FileSettings, FileWriter
from connector.tables.letter_changes import POSITIONS, LetterChange, LetterTable
from connector.tables.rewriting import rewrite_without
from connector.tables.table import Commit, commit_files
from connector.tables.table_kinds import open_table
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
_MISSING_KEY: Final = "the table has no row of its key, which may have been deleted later"


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
        OptionError: An option is not allowed, or a library is not installed.
        LakeTableError: There is no table that a copy writes, or it cannot store the rows.
        ConcurrentCopyError: Another writer changed a table at the same time. Earlier commits
            remain. Run again.
        PulsarOffloadError: Letters cannot be read, or rows cannot be written.
    """
    options = _options(format, decoding_options)
    tables = [
        # Each kind of table can be rewritten.
        cast(
            "RewritableTable",
            open_table(format, each, hidden(target_options), hidden(table_options)),
        )
        for each in (target, target.rstrip("/") + DEAD_LETTERS)
    ]
    letters = LetterTable(tables[1], format, DEFAULT_SIZES.file_bytes)
    has_columns = decoding_options.get("columns") is not None
    own = _Reprocessing(tables[0], letters, options, has_columns, insert_missing_keys, dry_run)
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
class _Decoded:
    """Rows of the letters that can be decoded, and the positions of these letters."""

    rows: pa.Table
    positions: list[LetterPosition]


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
            change = LetterChange.from_state(self.table, state)
        else:
            state = self._state()
            change = LetterChange.from_state(self.table, state)
            letter_state = self.letters.catch_up(change, _progress(state))
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
        state = self.table.read_state()
        if state is None or state.progress is None:
            message = (
                f"{self.table.location} is not a table that a copy writes: no dead letters belong"
                " to it"
            )
            raise LakeTableError(message)
        rows = CopiedRows.from_state(self.table, state)
        if rows is not None and rows.has_changes:
            message = (
                f"{self.table.location} was copied with {option_name('unwrap')}: its dead letters"
                " cannot be decoded again, because a letter may be older than a row of its key"
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
        removed: list[tuple[TableFile, int]] = []
        with FileWriter(settings) as writer:
            if identity is not None:
                keys = _Keys(self.table, state, identity, decoded)
                removed = keys.remove_older(writer)
                decoded = keys.select(summary, insert_missing_keys=self.insert_missing_keys)
            for batch in decoded.rows.select(names).to_batches():
                writer.write(batch)
            files = writer.finish()
        if not decoded.positions:
            return change
        letter_state = self.letters.table.read_state()
        change = change.following(self.letters.last_change(letter_state), moved=decoded.positions)
        # Of these rows, and of earlier rows if the columns are new.
        null_columns = {*settings.schema.names} - ({*names} & {*state.schema.names})
        old_files = [file for file, _ in removed]
        self._commit(state, settings, files, change, removed=old_files, null_columns=null_columns)
        self.letters.apply(change, _progress(state), _progress(state), letter_state)
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
        commit = Commit(
            tuple(files),
            settings.schema,
            settings.partitioning,
            state.progress,
            note_null_columns(change.add_to(state.progress), null_columns),
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


class _Keys:
    """Decoded letters of a table that keeps the latest row of each key.

    Args:
        table: The table.
        state: Its state.
        identity: How rows are identified.
        decoded: The letters that can be decoded.
    """

    def __init__(
        self, table: RewritableTable, state: TableState, identity: Identity, decoded: _Decoded
    ) -> None:
        self._table, self._state, self._identity = table, state, identity
        self._decoded = decoded
        self._latest = LatestRows(identity)
        self._latest.add_file(0, decoded.rows.select(self._latest.staged_columns))
        self._keys = self._latest.keys(state.partitioning)
        self._positions = self._latest.positions()
        self._present: set[str] = set()
        self._newer: set[str] = set()

    def remove_older(self, writer: FileWriter) -> list[tuple[TableFile, int]]:
        """Rewrite files without older rows; return the files, and how many such rows each had."""
        columns = [*dict.fromkeys([*self._identity.columns, *POSITION_COLUMNS])]
        files = (
            each
            for each in self._table.data_files(self._state, columns)
            if self._keys.may_match(each)
        )
        return list(
            rewrite_without(
                self._table.file_reader(self._state), files, columns, self._are_older, writer
            )
        )

    def _are_older(self, file: TableFile, rows: pa.Table) -> pa.BooleanArray:
        indices = pc.indices_nonzero(self._keys.match_rows(file, rows))
        matching = rows.take(indices)
        numbers = (pc.fill_null(matching.column(each), -1) for each in POSITION_COLUMNS)
        older = []
        for index, identity, *position in zip(
            indices.to_pylist(),
            self._identity.identify(matching).to_pylist(),
            *(each.to_pylist() for each in numbers),
            strict=True,
        ):
            self._present.add(identity)
            if tuple(position) < self._positions[identity]:
                older.append(index)
            else:
                self._newer.add(identity)
        return pc.is_in(pa.array(range(len(rows))), value_set=pa.array(older, pa.int64()))

    def select(self, summary: ReprocessSummary, *, insert_missing_keys: bool) -> _Decoded:
        """Return the rows that are the latest of their keys, and the letters that do not stay.

        Call `remove_older` first.
        """
        rows = self._decoded.rows
        is_latest = self._latest.select_rows(0, rows.num_rows)
        identities = self._identity.identify(rows)
        missing = set[str]()
        if not insert_missing_keys:
            missing = set(identities.filter(is_latest).to_pylist()) - self._present
        excluded = pa.array([*self._newer, *missing], identities.type)
        is_new = pc.and_not(is_latest, pc.is_in(identities, value_set=excluded))
        stays = [each in missing for each in identities.to_pylist()]
        summary.remaining[_MISSING_KEY] += sum(stays)
        pairs = zip(self._decoded.positions, stays, strict=True)
        return _Decoded(rows.filter(is_new), [each for each, is_left in pairs if not is_left])


def _decode(letters: pa.Table, options: ReadOptions, remaining: Counter[str]) -> _Decoded:
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
    return _Decoded(pa.concat_tables(tables), positions)


def _letters(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return letters in the order of their positions, with the types of `DEAD_LETTERS_SCHEMA`."""
    table = pa.Table.from_batches(batches).select(DEAD_LETTERS_SCHEMA.names)
    return table.cast(DEAD_LETTERS_SCHEMA).sort_by([(each, "ascending") for each in POSITIONS])


def _progress(state: TableState) -> Progress:
    assert state.progress is not None  # noqa: S101 - checked by `_state`
    return Progress.from_json(state.progress)


def _add_notice(state: TableState, options: ReadOptions, summary: ReprocessSummary) -> None:
    """Add a sentence about columns that dead letters do not record, once."""
    names = [name for name, own in options.filterable.columns if own in UNRECORDED_COLUMNS]
    missing = [each for each in names if each in state.schema.names]
    if missing and not summary.notices:
        text = f"dead letters do not record {', '.join(missing)}, so these are null in their rows"
        summary.notices.append(text)
