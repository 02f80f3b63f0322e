"""A Delta table, through `deltalake`: one commit changes the files and stores the progress.

The progress is stored in files next to the log, and commits name them
(`connector.tables.delta_progress`).
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, Schema
from deltalake import DeltaTable as Snapshot
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

from arrow_io.errors import (
    ConcurrentCopyError,
    LakeTableError,
    OptionError,
    PulsarOffloadError,
    StorageError,
)
from arrow_io.storage.redaction import redacted
from arrow_io.storage.store_kinds import StoreKind, store_kind
from connector.tables.delta_files import data_files, read_file, removals
from connector.tables.delta_options import delta_storage_options
from connector.tables.delta_progress import (
    APPLICATION,
    delete_unneeded,
    find_progress_number,
    next_number,
    read_progress,
    unreadable_progress_error,
    write_progress,
)
from connector.tables.evolution import storable_schema, widen_schema
from connector.tables.nested_tables import nested_folders
from connector.tables.parquet import ParquetTable
from connector.tables.partition_folders import delta_text
from connector.tables.table import TableState
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from arrow_io.storage.location import Location
    from connector.tables.data_file import DataFile
    from connector.tables.table import Commit, FileReader, TableFile
    from connector.tables.transforms import PartitionField

_Answer = TypeVar("_Answer")

_MS = timedelta(milliseconds=1)
_REFUSALS: Final = (DeltaError, OSError, ValueError)
"""Exceptions that the library raises."""


@dataclass(frozen=True, slots=True)
class _Token:
    """The version that was read. A commit is checked against all later versions."""

    snapshot: Snapshot
    number: int | None
    """The application's transaction number. None if nothing was copied yet."""


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table.

    Attributes:
        storage_options: Additional options of `deltalake`'s own storage.
        properties: Properties of a new table.
    """

    location: Location
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    data_prefix: str = ""

    def storable(self, schema: pa.Schema, state: TableState | None) -> pa.Schema:
        """Return the columns that the table needs so that rows of a schema fit; see `LakeTable`."""
        storable = storable_schema(schema, "delta")
        return storable if state is None else widen_schema(state.schema, storable, "delta")

    def read_state(self) -> TableState | None:
        """Return the state of the newest version, or None if there is no table yet.

        Raises:
            OptionError: The storage options have no counterpart in `deltalake`.
            LakeTableError: The table, or the progress of a copy to it, cannot be read.
        """
        snapshot = self._snapshot()
        if snapshot is None:
            if ParquetTable(self.location).exists:
                message = f"{self.location} is a table of plain Parquet: use format parquet"
                raise LakeTableError(message)
            return None
        number = self._call(lambda: snapshot.transaction_version(APPLICATION))
        schema = self._call(lambda: pa.schema(snapshot.schema().to_arrow()))
        token = _Token(snapshot, number)
        partition_columns = self._call(lambda: snapshot.metadata().partition_columns)
        if number is not None:
            number = find_progress_number(self.location, snapshot.version(), self._number_at)
        if number is None:
            partitioning = Partitioning.parse(partition_columns, schema)
            return TableState(schema, partitioning, None, token)
        content = read_progress(self.location, number)
        texts = content["partitioning"]
        # Columns with the values of transforms are not columns of the rows.
        rows = pa.schema(
            [each for each in schema if each.name not in partition_columns or each.name in texts]
        )
        try:
            partitioning = Partitioning.parse(texts, rows)
        except (OptionError, AttributeError) as error:
            raise unreadable_progress_error(self.location, number, error) from None
        key_columns = tuple(map(str, content["key_columns"]))
        progress, latest_per_key = content["progress"], content["latest_per_key"]
        return TableState(rows, partitioning, progress, token, latest_per_key, key_columns)

    def commit(self, commit: Commit, state: TableState | None) -> None:
        """Add and remove files, and set the transaction to the number of a new progress file."""
        token = None if state is None else state.token
        assert token is None or isinstance(token, _Token)  # noqa: S101 - what `read_state` returned
        if token is not None and commit.removed and not commit.has_same_rows:
            self._check_rows_may_go(token.snapshot)
        number = next_number(None if token is None else token.number)
        content = {
            "progress": commit.after,
            "partitioning": list(commit.partitioning.texts),
            "latest_per_key": commit.latest_per_key,
            "key_columns": list(commit.key_columns),
        }
        write_progress(self.location, number, content)
        try:
            if token is None:
                self._create(commit, number)
            else:
                self._append(commit, number, token)
        except _REFUSALS as error:
            # The response may have been lost: only the log tells whether the commit was made.
            if self._number_now() != number:
                raise self._commit_error(error, token) from None
        # The commit was made, so a failure is ignored: the next cleanup deletes the leftovers.
        with suppress(PulsarOffloadError):
            delete_unneeded(self.location, number, self._number_at)

    def _check_rows_may_go(self, snapshot: Snapshot) -> None:
        """Raise `LakeTableError` if the table takes new rows only."""
        properties = self._call(lambda: snapshot.metadata().configuration)
        if properties.get("delta.appendOnly") == "true":
            message = (
                f"the Delta table at {self.location} is append-only: set its property"
                " delta.appendOnly to false so that rows can be replaced or deleted"
            )
            raise LakeTableError(message)

    def _create(self, commit: Commit, number: int) -> None:
        create_table_with_add_actions(
            self._url,
            Schema.from_arrow(_table_schema(commit)),
            [self._action(each, commit) for each in commit.files],
            partition_by=[each.name for each in commit.partitioning.fields],
            configuration=self.properties,
            storage_options=self._options(),
            commit_properties=_properties(commit, number),
        )

    def _append(self, commit: Commit, number: int, token: _Token) -> None:
        schema = Schema.from_arrow(_table_schema(commit))
        snapshot = token.snapshot
        if schema != snapshot.schema():
            # A separate commit, which adds no row: if the run stops after it, the next one resumes.
            current_fields = {each.name: each for each in snapshot.schema().fields}
            changed = [each for each in schema.fields if current_fields.get(each.name) != each]
            version = snapshot.version()
            snapshot.alter.add_columns(changed)
            # That commit was rebased on other writers' commits, so they must be checked here.
            if snapshot.transaction_version(APPLICATION) != token.number:
                message = "rows were committed before the columns were added"
                raise CommitFailedError(message)
            if commit.removed and snapshot.version() != version + 1:
                message = "files may have been rewritten before the columns were added"
                raise CommitFailedError(message)
        added = [self._action(each, commit) for each in commit.files]
        snapshot.create_write_transaction(
            [*added, *removals(commit)],
            "append",
            schema,
            partition_by=[each.name for each in commit.partitioning.fields],
            commit_properties=_properties(commit, number),
        )

    def _action(self, file: DataFile, commit: Commit) -> AddAction:
        fields = commit.partitioning.fields
        values = {
            each.name: None if value is None else delta_text(each, value)
            for each, value in zip(fields, file.partition, strict=True)
        }
        now_ms = time_ns() // 1_000_000
        # Streams that read the table skip files whose rows they have read.
        is_new = not commit.has_same_rows
        return AddAction(file.path, file.size_bytes, values, now_ms, is_new, _stats(file))

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """Iterate over the files of the version that `read_state` read; see `RewritableTable`."""
        token = state.token
        assert isinstance(token, _Token)  # noqa: S101 - what `read_state` returned
        yield from self._call(lambda: list(data_files(token.snapshot, state.partitioning, columns)))

    def file_reader(self, state: TableState) -> FileReader:
        """Return the reader of these files; see `RewritableTable`."""
        return partial(read_file, self.location, state.schema)

    def expire_versions(self, now: datetime, age: timedelta, *, dry_run: bool) -> int:
        """Write a checkpoint and delete expired log files; see `MaintainedTable`.

        Versions expire by the table's own `delta.logRetentionDuration`, by default 30 days, instead
        of the age. A dry run does not know them.
        """
        del now, age
        snapshot = self._snapshot()
        if dry_run or snapshot is None:
            return 0
        log = self.location.child("_delta_log")
        commits = sum(each.name.endswith(".json") for each in log.list_objects())
        self._call(snapshot.create_checkpoint)
        self._call(snapshot.cleanup_metadata)
        return commits - sum(each.name.endswith(".json") for each in log.list_objects())

    def delete_unneeded(self, before: datetime, *, dry_run: bool) -> list[str]:
        """Vacuum the table, also of files that its log never named; see `MaintainedTable`.

        If other tables have folders inside this table's folder, only files that its log removed.
        """
        snapshot = self._snapshot()
        if snapshot is None:
            return []
        names = {each.name for each in self.location.list_tree()}
        is_full = not nested_folders(names)
        hours = math.ceil((datetime.now(UTC) - before) / timedelta(hours=1))
        deleted = self._call(
            lambda: snapshot.vacuum(
                max(hours, 0), dry_run=dry_run, enforce_retention_duration=False, full=is_full
            )
        )
        # It also returns files that an earlier run deleted, as long as the log has their removal.
        return [each for each in deleted if each in names]

    # ----------------------------------------------------------------------------- the library

    @property
    def _url(self) -> str:
        return self.location.url

    def _options(self) -> dict[str, str]:
        if self.storage_options and store_kind(self.location.url) is not StoreKind.S3:
            return dict(self.storage_options)  # The others may have no counterpart.
        return {**delta_storage_options(self.location), **self.storage_options}

    def _snapshot(self) -> Snapshot | None:
        try:
            return Snapshot(self._url, storage_options=self._options())
        except TableNotFoundError:
            return None
        except _REFUSALS as error:
            raise self._library_error(error) from None

    def _number_now(self) -> int | None:
        snapshot = self._snapshot()
        if snapshot is None:
            return None
        return self._call(lambda: snapshot.transaction_version(APPLICATION))

    def _number_at(self, version: int) -> int | None:
        def read_number() -> int | None:
            snapshot = Snapshot(self._url, version, storage_options=self._options())
            return snapshot.transaction_version(APPLICATION)

        return self._call(read_number)

    def _call(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except _REFUSALS as error:
            raise self._library_error(error) from None

    def _commit_error(self, error: Exception, token: _Token | None) -> Exception:
        is_conflict = isinstance(error, CommitFailedError)
        if is_conflict or self._number_now() != (token.number if token else None):
            message = (
                f"another run copied to {self.location}, or changed the table, at the same time:"
                f" {self._error_text(error)}. Run again to continue from its progress"
            )
            return ConcurrentCopyError(message)
        return self._library_error(error)

    def _library_error(self, error: Exception) -> LakeTableError | StorageError:
        kind = StorageError if isinstance(error, OSError) else LakeTableError
        return kind(f"Delta table at {self.location}: {self._error_text(error)}")

    def _error_text(self, error: Exception) -> str:
        # The lines after the first are a backtrace of the library.
        text = redacted(str(error), {**(self.location.storage_options or {}), **self._options()})
        return text.splitlines()[0] if text else type(error).__name__


def _properties(commit: Commit, number: int) -> CommitProperties:
    return CommitProperties(
        custom_metadata=dict(commit.summary),
        # A retry would rebase on a compaction that has rewritten the files removed here.
        max_commit_retries=0 if commit.removed else None,
        app_transactions=[Transaction(APPLICATION, number)],
    )


def _table_schema(commit: Commit) -> pa.Schema:
    """Return the columns of the rows, followed by one column for each transform."""
    schema = commit.schema
    for each in commit.partitioning.fields:
        if each.transform != "identity":
            schema = schema.append(pa.field(each.name, _transform_type(each)))
    return schema


def _transform_type(partition: PartitionField) -> pa.DataType:
    """Return the column type of a transform's values; years, months and hours are texts."""
    if partition.transform == "bucket":
        return pa.int32()
    return pa.date32() if partition.transform == "day" else pa.string()


def _stats(file: DataFile) -> str:
    bounds = {
        name: (_bound(each.least), _bound(each.greatest, is_upper=True))
        for name, each in file.stats.items()
    }
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {name: low for name, (low, _) in bounds.items() if low is not None},
            "maxValues": {name: high for name, (_, high) in bounds.items() if high is not None},
            "nullCount": {name: each.nulls for name, each in file.stats.items()},
        },
        allow_nan=False,
        # Arrow's JSON reader in Rust, which Delta's libraries use, misreads escaped surrogates.
        ensure_ascii=False,
    )


def _bound(value: object, *, is_upper: bool = False) -> object:
    """Return a bound as a JSON value, or None if Delta or JSON cannot represent it."""
    if isinstance(value, datetime):
        naive = value.replace(tzinfo=None)
        past_ms = timedelta(microseconds=naive.microsecond % 1000)
        naive -= past_ms
        try:
            naive += _MS if is_upper and past_ms else timedelta()
        except OverflowError:  # It is in the last ms of the year 9999.
            return None
        return naive.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if isinstance(value, bool | bytes | time | timedelta) else value
