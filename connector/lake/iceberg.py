"""An Iceberg table that topics are copied to, in any catalog that PyIceberg knows.

The progress of the copy is kept twice. Each commit's snapshot has it in its summary, so a table
that is rolled back goes back to the progress that it had then. A property of the table has the
newest, which stays when snapshots expire or when others compact the table. So the nearest ancestor
of the current snapshot that has one is right. If none is left, the property is, unless an ancestor
is older than the commit that wrote it: then the table was rolled back to before that, and nothing
says how far it was copied.

Optimistic concurrency: a commit is made on the snapshot whose progress was looked at, or not at
all. If others (a compaction, say) were quicker, it is looked at again.
"""

from __future__ import annotations

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
from connector.lake.iceberg_files import ReplaceFiles, iceberg_file, scan_task_from_file, table_file
from connector.lake.iceberg_schema import (
    arrow_schema,
    find_misnumbered_field,
    partition_spec,
    partitioning_from_spec,
)
from connector.lake.table import TableState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.update.snapshot import _SnapshotProducer as _Producer

    from connector.lake.table import Commit, TableFile

PROGRESS: Final = "pulsar-offload.progress"
"""The property of tables and of snapshots that has the progress."""
LATEST_PER_KEY: Final = "pulsar-offload.latest-per-key"
"""The property of tables that keep the latest row of each key."""
PROGRESS_SEQUENCE_NUMBER: Final = "pulsar-offload.progress-sequence-number"
"""The property of tables that says which snapshot the progress came with."""

_COMMIT_ATTEMPTS: Final = 10
"""How often other writers may be quicker before a commit is given up."""
_NEW_TABLE_PROPERTIES: Final = {
    # A commit a day, for years, would else leave as many manifests for each query to open.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    # Each commit writes the progress that every retained snapshot has into one more of them.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}


@dataclass(frozen=True)
class IcebergTable:
    """A table of an Iceberg catalog; it is created by the first commit.

    Attributes:
        catalog: Knows the table.
        identifier: Its name there, `namespace.table`.
        url: Where a new table lies; None: where the catalog puts it.
        storage_options: Options of the fsspec file system that data files are written with; the
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
        """A table of a catalog that PyIceberg finds by its name.

        Args:
            identifier: The table's name in the catalog, `namespace.table`.
            catalog: The catalog's name in PyIceberg's configuration (`.pyiceberg.yaml`, or
                variables `PYICEBERG_CATALOG__…`); None: `default`.
            properties: Properties of the catalog, which go before its configuration's.
            url: As for the class.
            storage_options: As for the class.

        Raises:
            OptionError: The name is not that of a table.
            LakeTableError: There is no such catalog.
        """
        if "." not in identifier.strip(".") or "/" in identifier:
            message = (
                f"an Iceberg table is named namespace.table, not {redacted_urls(identifier)!r};"
                " where a new one lies is said by location, among the options of the table"
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
        """Where data files lie in the table's folder, as other writers have it."""
        return "data/"

    @cached_property
    def location(self) -> Location:
        """The table's folder.

        Raises:
            LakeTableError: The table is not there yet, and neither is its namespace, which would
                say where it will lie.
            StorageError: The catalog failed.
        """
        return Location(_fsspec_url(self._url), self.storage_options)

    @cached_property
    def _url(self) -> str:
        """The table's folder as Iceberg names it."""
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
        """Where the catalog would put a new table."""
        try:
            created = self.catalog.create_table_transaction(self.identifier, pa.schema([]))
        except NoSuchNamespaceError:
            message = (
                f"the Iceberg catalog {self.catalog.name} has no namespace for {self.identifier}:"
                " create it, or say where the table shall lie"
            )
            raise LakeTableError(message) from None
        return created.table_metadata.location

    def read_state(self) -> TableState | None:
        """What the table is now; None: there is none yet.

        Raises:
            LakeTableError: It has columns or partitions that a copy cannot write.
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
        )

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """The files of the snapshot that `read_state` read; see `RewritableTable`.

        Raises:
            StorageError: The catalog failed.
        """
        table = _table_from_state(state)
        with self._catalog_errors():
            tasks = list(table.scan().plan_files())
        for each in tasks:
            spec = table.specs()[each.file.spec_id]
            yield table_file(each, table.schema(), spec, columns)

    def read_file(
        self, state: TableState, file: TableFile, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one of these files; see `RewritableTable`.

        Raises:
            StorageError: The file, or what others deleted of it, cannot be read.
        """
        table = _table_from_state(state)
        schema = table.schema() if columns is None else table.schema().select(*columns)
        with self._catalog_errors():
            yield from ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches(
                [scan_task_from_file(file)]
            )

    def storable(self, schema: pa.Schema, state: TableState | None) -> pa.Schema:
        """The columns that the table has once it takes rows of a schema, with their numbers.

        Args:
            schema: Columns of the rows.
            state: What the table is; None: there is none yet.

        Raises:
            LakeTableError: Iceberg cannot keep a column, or cannot change so that it fits.
            StorageError: The catalog failed.
        """
        storable = storable_schema(schema, "iceberg")
        if state is None:
            return self._new_columns(storable)
        columns = widen_schema(state.schema, storable, "iceberg")
        return _evolve(cast("Table", state.token).transaction(), columns)

    def _new_columns(self, columns: pa.Schema) -> pa.Schema:
        """The columns of a new table, with the numbers that it will have for them."""
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
        """Create the table, or widen it; add and remove files; keep the progress: in one step.

        Args:
            commit: What changes; its schema is what `storable` gave.
            state: What the table was when the copy began.

        Raises:
            ConcurrentCopyError: The table's progress is no longer `commit.before`; or others
                changed its columns or partitions meanwhile.
            LakeTableError: The table cannot take the commit.
            StorageError: The catalog failed; the commit may have been made.
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
                    return  # It was made, and the answer that said so was lost.
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
            f"others committed to the Iceberg table {self.identifier} before each of"
            f" {_COMMIT_ATTEMPTS} attempts: run again when they are done"
        )
        raise StorageError(message)

    def _prepare(self, table: Table | None, commit: Commit) -> Transaction:
        """All of a commit but the step that makes it."""
        if table is None:
            schema = pyarrow_to_schema(commit.schema)
            spec = partition_spec(commit.partitioning, schema)
            transaction: Transaction = self._create_transaction(schema, spec)
        else:
            if partitioning_from_spec(table.spec(), table.schema()) != commit.partitioning:
                message = (
                    f"the partitions of the Iceberg table {self.identifier} were changed meanwhile."
                    " Run again to write by them"
                )
                raise ConcurrentCopyError(message)
            transaction = _OneAttempt(table)
        changed = find_misnumbered_field(commit.schema, _evolve(transaction, commit.schema))
        if changed is not None:
            message = (
                f"column {changed} of the Iceberg table {self.identifier} is not the one that files"
                " were written for: its columns were changed meanwhile. Run again to write by them"
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
        transaction.set_properties(properties)
        summary = {**commit.summary, PROGRESS: commit.after}
        update = transaction.update_snapshot(summary)
        merges = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
        if commit.removed and table is not None:
            producer: _Producer[Any] = ReplaceFiles(table, transaction, summary)
        else:
            producer = update.merge_append() if merges else update.fast_append()
        with producer:
            for each in commit.removed:
                producer.delete_data_file(scan_task_from_file(each).file)
            for file in commit.files:
                url = f"{self._url}/{file.path}"
                producer.append_data_file(iceberg_file(file, url, spec, schema))
        return transaction

    def _table(self) -> Table | None:
        try:
            return self.catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create_transaction(
        self, columns: pa.Schema | Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> Transaction:
        """The table as it would be created."""
        return self.catalog.create_table_transaction(
            self.identifier, columns, self._url, spec, properties=_NEW_TABLE_PROPERTIES
        )

    def _check_progress(self, table: Table | None, commit: Commit) -> None:
        if (None if table is None else _progress(table)) != commit.before:
            message = (
                f"another run copied to the Iceberg table {self.identifier} meanwhile."
                " Run again to go on behind it"
            )
            raise ConcurrentCopyError(message)

    def _check_same_files(self, table: Table | None, state: TableState | None) -> None:
        """Refuse to remove files that others may have changed, or deleted rows of, meanwhile."""
        before = None if state is None else _table_from_state(state).current_snapshot()
        if table is None or table.current_snapshot() != before:
            message = (
                f"others changed the Iceberg table {self.identifier} meanwhile, whose files were to"
                " be written again. Run again to go on behind that"
            )
            raise ConcurrentCopyError(message)

    @contextmanager
    def _catalog_errors(self) -> Iterator[None]:
        """Let every failure of a catalog leave as an error of this project."""
        try:
            yield
        except PulsarOffloadError:
            raise
        except Exception as error:  # noqa: BLE001 - what catalogs raise has no base
            text = _error_text(error, self.catalog.properties)
            message = f"the Iceberg catalog failed for {self.identifier}: {text}"
            raise StorageError(message) from None


class _OneAttempt(Transaction):
    """A transaction that is made as it was prepared, or not at all.

    The library's own goes on with the same files on top of whatever others committed meanwhile,
    another copy of the same rows among them.
    """

    def commit_transaction(self) -> Table:
        same_table = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        self._table._do_commit(  # noqa: SLF001 - as the library's own does
            updates=self._updates, requirements=(*self._requirements, same_table)
        )
        return self._table


def _evolve(transaction: Transaction, columns: pa.Schema) -> pa.Schema:
    """Widen a table so that columns fit; all that it has then, with their numbers.

    Raises:
        LakeTableError: They do not fit.
    """
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


def _progress(table: Table) -> str | None:
    """How far topics were copied to a table.

    Raises:
        LakeTableError: It was rolled back to before its last copy, and no snapshot says.
    """
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
            " and no snapshot says how far it was copied then: to copy all again, remove its"
            f" property {PROGRESS}"
        )
        raise LakeTableError(message)
    return progress


def _sequence_number(table: Table) -> int:
    """The sequence number of the snapshot that the newest progress came with."""
    text = table.properties.get(PROGRESS_SEQUENCE_NUMBER, "0")
    try:
        return int(text)
    except ValueError:
        message = (
            f"the property {PROGRESS_SEQUENCE_NUMBER} of the Iceberg table"
            f" {'.'.join(table.name())} is no number: {text!r:.100}"
        )
        raise LakeTableError(message) from None


def _fsspec_url(url: str) -> str:
    """Hadoop has names of its own for S3."""
    scheme, separator, rest = url.partition("://")
    return f"s3://{rest}" if separator and scheme in {"s3a", "s3n"} else url


def _error_text(error: Exception, properties: Mapping[str, str]) -> str:
    """What a library's error says, without what only the catalog should be told."""
    return redacted(str(error), properties) or type(error).__name__
