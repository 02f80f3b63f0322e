"""An Iceberg table that topics are copied to, in any catalog that PyIceberg supports.

The progress of the copy is stored twice. The summary of each commit's snapshot has it, so that a
rollback of the table also restores the progress. A table property has the newest progress, which
survives when snapshots expire or another writer compacts the table.

The progress of the nearest ancestor of the current snapshot that has one is used. If no ancestor
has one, the property is used, unless an ancestor is older than the commit that wrote it. In that
case the table was rolled back to before that commit, and its progress is unknown.

Concurrency is optimistic: a commit is based on the snapshot whose progress was checked, or fails.
If another writer, such as a compaction, committed first, the progress is checked again.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, pyarrow_to_schema
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AssertTableUUID

from arrow_io.core.lazy import cached_property
from arrow_io.errors import (
    ConcurrentCopyError,
    LakeTableError,
    OptionError,
    PulsarOffloadError,
    StorageError,
)
from arrow_io.storage.location import Location
from arrow_io.storage.redaction import redacted, redacted_urls
from connector.lake.evolution import storable_schema, widen_schema
from connector.lake.iceberg_files import (
    ReplaceFiles,
    has_renamed_columns,
    iceberg_file,
    scan_task_from_file,
    table_file,
)
from connector.lake.iceberg_schema import (
    arrow_schema,
    find_misnumbered_field,
    partition_spec,
    partitioning_from_spec,
)
from connector.lake.iceberg_upkeep import needed_files, unneeded_names
from connector.lake.table import TableState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.update.snapshot import _SnapshotProducer as _Producer

    from connector.lake.table import Commit, TableFile

PROGRESS: Final = "pulsar-offload.progress"
"""The property of tables and snapshots that stores the progress."""
LATEST_PER_KEY: Final = "pulsar-offload.latest-per-key"
KEY_COLUMNS: Final = "pulsar-offload.key-columns"
"""The property of tables that keep the latest row of each key."""
PROGRESS_SEQUENCE_NUMBER: Final = "pulsar-offload.progress-sequence-number"
"""The property of tables with the sequence number of the snapshot that stored the progress."""

_COMMIT_ATTEMPTS: Final = 10
"""Number of attempts after which a commit fails because other writers keep committing first."""
_NEW_TABLE_PROPERTIES: Final = {
    # Otherwise each commit adds a manifest, and every query opens all of them.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    # Each metadata file repeats the progress of every retained snapshot.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}


@dataclass(frozen=True)
class IcebergTable:
    """A table of an Iceberg catalog. The first commit creates it.

    Attributes:
        identifier: The table's name in the catalog, `namespace.table`.
        url: URL of a new table's folder. None: the catalog chooses it.
        storage_options: Options of the fsspec file system that data files are written with. The
            catalog has its own for metadata.
    """

    catalog: Catalog
    identifier: str
    url: str | None = None
    storage_options: Mapping[str, object] | None = field(default=None, repr=False)

    @classmethod
    def open(
        cls,
        identifier: str,
        *,
        catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
        url: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> IcebergTable:
        """Return a table of a catalog that PyIceberg finds by its name.

        Args:
            identifier: The table's name in the catalog, `namespace.table`.
            catalog: The catalog's name in PyIceberg's configuration (`.pyiceberg.yaml`, or
                environment variables `PYICEBERG_CATALOG__…`). None means `default`.
            properties: Properties of the catalog, which override its configuration.
            url: See the class.
            storage_options: See the class.

        Raises:
            OptionError: `identifier` is not the name of a table.
            LakeTableError: There is no such catalog.
        """
        if "." not in identifier.strip(".") or "/" in identifier:
            message = (
                f"an Iceberg table is named namespace.table, not {redacted_urls(identifier)!r};"
                " set the folder of a new table with location, a table option"
            )
            raise OptionError(message)
        try:
            loaded = load_catalog(catalog, **(properties or {}))
        except Exception as error:  # noqa: BLE001 - what catalogs raise has no base
            text = _error_text(error, properties or {})
            message = f"cannot open the Iceberg catalog {catalog or 'default'}: {text}"
            raise LakeTableError(message) from None
        return cls(loaded, identifier, url, storage_options)

    @property
    def data_prefix(self) -> str:
        """The folder of data files below the table's folder, as other writers use it."""
        return "data/"

    @cached_property
    def location(self) -> Location:
        """The table's folder.

        Raises:
            LakeTableError: Neither the table nor its namespace exists, so its location is unknown.
            StorageError: The catalog failed.
        """
        return Location(_fsspec_url(self._url), self.storage_options)

    @cached_property
    def _url(self) -> str:
        """The table's folder, with the scheme that the catalog uses."""
        with self._catalog_errors():
            table = self._table()
            if table is not None:
                url = table.location()
            elif self.url is not None:
                url = self.url if "://" in self.url else f"file://{Location(self.url).url}"
            else:
                url = self._default_url()
            return url.rstrip("/")

    def _default_url(self) -> str:
        try:
            created = self.catalog.create_table_transaction(self.identifier, pa.schema([]))
        except NoSuchNamespaceError:
            message = (
                f"the Iceberg catalog {self.catalog.name} has no namespace for {self.identifier}:"
                " create it, or set the table option location"
            )
            raise LakeTableError(message) from None
        return created.table_metadata.location

    def read_state(self) -> TableState | None:
        """Return the table's state, or None if the table does not exist yet.

        Raises:
            LakeTableError: The table has columns or partitions that a copy cannot write.
            StorageError: The catalog failed.
        """
        with self._catalog_errors():
            table = self._table()
        if table is None:
            return None
        return TableState(
            schema=arrow_schema(table.schema()),
            partitioning=partitioning_from_spec(table.spec(), table.schema()),
            progress=_progress(table),
            token=table,
            latest_per_key=table.properties.get(LATEST_PER_KEY) == "true",
            key_columns=_key_columns(table),
        )

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """Iterate over the files of the snapshot that `read_state` read; see `RewritableTable`."""
        table = _table_from_state(state)
        with self._catalog_errors():
            tasks = list(table.scan().plan_files())
        folder = "" if has_renamed_columns(table.metadata) else f"{table.location().rstrip('/')}/"
        for each in tasks:
            spec = table.specs()[each.file.spec_id]
            yield table_file(each, table.schema(), spec, columns, folder)

    def read_file(
        self, state: TableState, file: TableFile, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of one of these files, without deleted rows; see `RewritableTable`."""
        table = _table_from_state(state)
        schema = table.schema() if columns is None else table.schema().select(*columns)
        with self._catalog_errors():
            yield from ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches(
                [scan_task_from_file(file)]
            )

    def storable(self, schema: pa.Schema, state: TableState | None) -> pa.Schema:
        """Return the columns, with field ids, that the table needs to fit rows; see `LakeTable`."""
        storable = storable_schema(schema, "iceberg")
        if state is None:
            return self._new_columns(storable)
        columns = widen_schema(state.schema, storable, "iceberg")
        return _evolve(cast("Table", state.token).transaction(), columns)

    def _new_columns(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of a new table, with the field ids that the catalog will assign."""
        with self._catalog_errors():
            try:
                created = self._create_transaction(columns)
            except PulsarOffloadError:
                raise
            except ValueError as error:
                message = f"no Iceberg table can have these columns: {error}"
                raise LakeTableError(message) from error
            return arrow_schema(created.table_metadata.schema())

    def commit(self, commit: Commit, state: TableState | None) -> None:
        """Create or widen the table, add and remove files, and store the progress, atomically.

        Args:
            commit: The change. Its schema is the result of `storable`.
            state: The table's state when the copy started.

        Raises:
            ConcurrentCopyError: The table's progress is no longer `commit.before`, or another
                writer changed its columns or partitions.
            StorageError: The catalog failed. The commit may have been made.
        """
        snapshot_id: int | None = None
        for _ in range(_COMMIT_ATTEMPTS):
            with self._catalog_errors():
                table = self._table()
                if (
                    table is not None
                    and snapshot_id is not None
                    and table.snapshot_by_id(snapshot_id)
                ):
                    return  # The commit was made, but its response was lost.
                self._check_progress(table, commit)
                if commit.removed:
                    self._check_same_files(table, state)
                transaction = self._prepare(table, commit)
                snapshot_id = transaction.table_metadata.current_snapshot_id
                try:
                    transaction.commit_transaction()
                except (CommitFailedException, TableAlreadyExistsError):
                    continue
                return
        message = (
            f"other writers committed to the Iceberg table {self.identifier} before each of"
            f" {_COMMIT_ATTEMPTS} attempts: run again when they have finished"
        )
        raise StorageError(message)

    def _prepare(self, table: Table | None, commit: Commit) -> Transaction:
        if table is None:
            schema = pyarrow_to_schema(commit.schema)
            spec = partition_spec(commit.partitioning, schema)
            transaction: Transaction = self._create_transaction(schema, spec)
        else:
            if partitioning_from_spec(table.spec(), table.schema()) != commit.partitioning:
                message = (
                    f"the partitions of the Iceberg table {self.identifier} changed during the"
                    " copy. Run again to use the new ones"
                )
                raise ConcurrentCopyError(message)
            transaction = _OneAttempt(table)
        changed = find_misnumbered_field(commit.schema, _evolve(transaction, commit.schema))
        if changed is not None:
            message = (
                f"column {changed} of the Iceberg table {self.identifier} changed during the copy,"
                " after files were written for it. Run again to use the new columns"
            )
            raise ConcurrentCopyError(message)
        metadata = transaction.table_metadata
        schema, spec = metadata.schema(), metadata.spec()
        properties = {
            PROGRESS: commit.after,
            PROGRESS_SEQUENCE_NUMBER: str(metadata.next_sequence_number()),
        }
        if commit.latest_per_key:
            properties[LATEST_PER_KEY] = "true"
        if commit.key_columns:
            properties[KEY_COLUMNS] = json.dumps(commit.key_columns)
        transaction.set_properties(properties)
        summary = {**commit.summary, PROGRESS: commit.after}
        update = transaction.update_snapshot(summary)
        merges = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
        if commit.removed and table is not None:
            producer: _Producer[Any] = ReplaceFiles(
                table, transaction, summary, has_same_rows=commit.has_same_rows
            )
        else:
            producer = update.merge_append() if merges else update.fast_append()
        with producer:
            for each in commit.removed:
                producer.delete_data_file(scan_task_from_file(each).file)
            for file in commit.files:
                url = f"{self._url}/{file.path}"
                producer.append_data_file(iceberg_file(file, url, spec, schema))
        return transaction

    def expire_versions(self, before: datetime, *, dry_run: bool) -> int:
        """Expire snapshots that were replaced before, except those of branches and tags."""
        with self._catalog_errors():
            table = self._table()
            if table is None:
                return 0
            heads = {each.snapshot_id for each in table.refs().values()}
            before_ms = before.timestamp() * 1000
            # Until a snapshot follows it, queries read a snapshot, whatever its age.
            young = {
                each.parent_snapshot_id
                for each in table.snapshots()
                if each.timestamp_ms >= before_ms
            }
            expired = [
                each.snapshot_id
                for each in table.snapshots()
                if each.snapshot_id not in heads | young and each.timestamp_ms < before_ms
            ]
            if expired and not dry_run:
                try:
                    table.maintenance.expire_snapshots().by_ids(expired).commit()
                except CommitFailedException:
                    message = (
                        f"another writer changed the Iceberg table {self.identifier} while its"
                        " snapshots expired. Run again"
                    )
                    raise ConcurrentCopyError(message) from None
            return len(expired)

    def delete_unneeded(self, before: datetime, *, dry_run: bool) -> list[str]:
        """Delete files below `data/` and `metadata/` that no snapshot needs."""
        # Listed before the metadata is read: files committed in between are not deleted.
        infos = self.location.list_tree()
        with self._catalog_errors():
            table = self._table()
            if table is None:
                return []
            needed = needed_files(table)
        old = {each.name for each in infos if each.modified is not None and each.modified < before}
        unneeded = unneeded_names((each.name for each in infos), needed, self._url)
        names = [each for each in unneeded if each in old]
        if not dry_run:
            self.location.delete_objects(names)
        return names

    def _table(self) -> Table | None:
        try:
            return self.catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create_transaction(
        self, columns: pa.Schema | Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> Transaction:
        return self.catalog.create_table_transaction(
            self.identifier, columns, self._url, spec, properties=_NEW_TABLE_PROPERTIES
        )

    def _check_progress(self, table: Table | None, commit: Commit) -> None:
        if (None if table is None else _progress(table)) != commit.before:
            message = (
                f"another run copied to the Iceberg table {self.identifier} at the same time."
                " Run again to continue from its progress"
            )
            raise ConcurrentCopyError(message)

    def _check_same_files(self, table: Table | None, state: TableState | None) -> None:
        """Raise `ConcurrentCopyError` if the table changed since the files to remove were read."""
        before = None if state is None else _table_from_state(state).current_snapshot()
        if table is None or table.current_snapshot() != before:
            message = (
                f"another writer changed the Iceberg table {self.identifier} while its files were"
                " rewritten. Run again to continue from the new version"
            )
            raise ConcurrentCopyError(message)

    @contextmanager
    def _catalog_errors(self) -> Iterator[None]:
        try:
            yield
        except PulsarOffloadError:
            raise
        except Exception as error:  # noqa: BLE001 - what catalogs raise has no base
            text = _error_text(error, self.catalog.properties)
            message = f"the Iceberg catalog failed for {self.identifier}: {text}"
            raise StorageError(message) from None


class _OneAttempt(Transaction):
    """A transaction that is committed on the snapshot it was prepared for, or fails.

    The library's own transaction retries on top of other writers' commits, which may include
    another copy of the same rows.
    """

    def commit_transaction(self) -> Table:
        same_table = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        self._table._do_commit(  # noqa: SLF001 - as the library's own does
            updates=self._updates, requirements=(*self._requirements, same_table)
        )
        return self._table


def _evolve(transaction: Transaction, columns: pa.Schema) -> pa.Schema:
    """Widen a table in a transaction so that columns fit; return all columns, with field ids."""
    try:
        with transaction.update_schema() as update:
            update.union_by_name(columns)
    except (ValueError, TypeError) as error:
        message = f"the Iceberg table cannot be widened: {error}"
        raise LakeTableError(message) from error
    return arrow_schema(transaction.table_metadata.schema())


def _table_from_state(state: TableState) -> Table:
    assert isinstance(state.token, Table)  # noqa: S101 - what `read_state` returned
    return state.token


def _key_columns(table: Table) -> tuple[str, ...]:
    text = table.properties.get(KEY_COLUMNS, "[]")
    try:
        return tuple(map(str, json.loads(text)))
    except (TypeError, ValueError):
        message = f"cannot read the property {KEY_COLUMNS} of the Iceberg table: {text[:100]!r}"
        raise LakeTableError(message) from None


def _progress(table: Table) -> str | None:
    """Return how far topics were copied to a table, or None if nothing was copied."""
    sequence_number = _sequence_number(table)
    current = table.current_snapshot()
    rolled_back = current is None
    for snapshot in ancestors_of(current, table.metadata):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if PROGRESS in summary:
            return summary[PROGRESS]
        rolled_back |= (snapshot.sequence_number or 0) < sequence_number
    progress = table.properties.get(PROGRESS)
    if rolled_back and progress is not None:
        message = (
            f"the Iceberg table {'.'.join(table.name())} was rolled back to before its last copy,"
            " and no snapshot has its progress: remove its property"
            f" {PROGRESS} to copy everything again"
        )
        raise LakeTableError(message)
    return progress


def _sequence_number(table: Table) -> int:
    """Return the sequence number of the snapshot that stored the newest progress."""
    text = table.properties.get(PROGRESS_SEQUENCE_NUMBER, "0")
    try:
        return int(text)
    except ValueError:
        message = (
            f"the property {PROGRESS_SEQUENCE_NUMBER} of the Iceberg table"
            f" {'.'.join(table.name())} is not a number: {text!r:.100}"
        )
        raise LakeTableError(message) from None


def _fsspec_url(url: str) -> str:
    """Replace Hadoop's schemes for S3."""
    scheme, separator, rest = url.partition("://")
    return f"s3://{rest}" if separator and scheme in {"s3a", "s3n"} else url


def _error_text(error: Exception, properties: Mapping[str, str]) -> str:
    """Return the text of a library's error, without secrets of the catalog."""
    return redacted(str(error), properties) or type(error).__name__
