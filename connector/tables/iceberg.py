"""An Iceberg table that topics are copied to, in any catalog that PyIceberg supports.

The progress of the copy, and the key of the rows, are stored in snapshots and table properties
(`connector.tables.iceberg_progress`).

Concurrency is optimistic: a commit is based on the snapshot whose progress was checked, or fails.
If another writer, such as a compaction, committed first, the progress is checked again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import ManageSnapshots

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
from connector.tables.evolution import storable_schema, widen_schema
from connector.tables.iceberg_files import (
    ReplaceFiles,
    has_renamed_columns,
    iceberg_file,
    read_file,
    scan_task_from_file,
    table_file,
)
from connector.tables.iceberg_options import (
    IcebergOptions,
    check_branch,
    check_tag,
    check_version,
    sort_columns,
    sort_order,
    split_options,
)
from connector.tables.iceberg_progress import (
    PROGRESS,
    branch_snapshot,
    has_latest_rows,
    key_properties,
    new_branch,
    progress_properties,
    read_key_columns,
    read_progress,
)
from connector.tables.iceberg_schema import (
    arrow_schema,
    find_misnumbered_field,
    new_schema,
    partition_spec,
    partitioning_from_spec,
)
from connector.tables.iceberg_upkeep import (
    check_folder,
    expired_snapshots,
    needed_files,
    unneeded_names,
)
from connector.tables.table import TableState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import timedelta

    from pyiceberg.catalog import Catalog
    from pyiceberg.table.update.snapshot import _SnapshotProducer as _Producer

    from connector.tables.table import Commit, FileReader, TableFile

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
        options: The branch to change, and what a new table has.
    """

    catalog: Catalog
    identifier: str
    url: str | None = None
    storage_options: Mapping[str, object] | None = field(default=None, repr=False)
    options: IcebergOptions = field(default_factory=IcebergOptions)

    @classmethod
    def open(
        cls,
        identifier: str,
        options: Mapping[str, str],
        storage_options: Mapping[str, object] | None = None,
    ) -> IcebergTable:
        """Return a table of a catalog that PyIceberg finds by its name.

        Args:
            identifier: The table's name in the catalog, `namespace.table`.
            options: Options of the table (`connector.tables.iceberg_options`), and of its catalog:
                `catalog` is the catalog's name in PyIceberg's configuration (`.pyiceberg.yaml`, or
                environment variables `PYICEBERG_CATALOG__…`), by default `default`. `location` is
                the URL of a new table's folder. All others are properties of the catalog, which
                override its configuration.
            storage_options: See the class.

        Raises:
            OptionError: `identifier` is not the name of a table, or an option is malformed.
            LakeTableError: There is no such catalog.
        """
        if "." not in identifier.strip(".") or "/" in identifier:
            message = (
                f"an Iceberg table is named namespace.table, not {redacted_urls(identifier)!r};"
                " set the folder of a new table with location, a table option"
            )
            raise OptionError(message)
        own, properties = split_options(options)
        catalog, url = properties.pop("catalog", None), properties.pop("location", None)
        try:
            loaded = load_catalog(catalog, **properties)
        except Exception as error:  # noqa: BLE001 - what catalogs raise has no base
            text = _error_text(error, properties)
            message = f"cannot open the Iceberg catalog {catalog or 'default'}: {text}"
            raise LakeTableError(message) from None
        return cls(loaded, identifier, url, storage_options, own)

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
            OptionError: The table has no rows that a branch can start with, or the branch is a tag.
            LakeTableError: The table has columns, partitions or a format version that a copy cannot
                write.
            StorageError: The catalog failed.
        """
        with self._catalog_errors():
            table = self._table()
        if table is None or table.current_snapshot() is None:
            check_branch(self.options.branch, self.identifier)
        if table is None:
            return None
        check_version(table)
        return TableState(
            schema=arrow_schema(table.schema()),
            partitioning=partitioning_from_spec(table.spec(), table.schema()),
            progress=read_progress(table, self.options.branch),
            token=table,
            latest_per_key=has_latest_rows(table),
            key_columns=read_key_columns(table),
            sort_by=sort_columns(table),
            new_branch=new_branch(table, self.options.branch),
        )

    def data_files(self, state: TableState, columns: Sequence[str]) -> Iterator[TableFile]:
        """Iterate over the files of the snapshot that `read_state` read; see `RewritableTable`."""
        table = _table_from_state(state)
        head = branch_snapshot(table, self.options.branch)
        with self._catalog_errors():
            tasks = list(table.scan(snapshot_id=head.snapshot_id if head else None).plan_files())
        folder = "" if has_renamed_columns(table.metadata) else f"{table.location().rstrip('/')}/"
        for each in tasks:
            spec = table.specs()[each.file.spec_id]
            yield table_file(each, table.schema(), spec, columns, folder)

    def file_reader(self, state: TableState) -> FileReader:
        """Return the reader of these files, without deleted rows; see `RewritableTable`."""
        table = _table_from_state(state)
        return partial(read_file, table.metadata, table.io)

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
                created = self.catalog.create_table_transaction(
                    self.identifier, columns, self._url, properties=self._new_properties
                )
            except PulsarOffloadError:
                raise
            except ValueError as error:
                message = f"no Iceberg table can have these columns: {error}"
                raise LakeTableError(message) from error
            schema = created.table_metadata.schema()
            sort_order(self.options.sort_by, schema)  # Fails before files are written.
            return arrow_schema(schema)

    @property
    def _new_properties(self) -> dict[str, str]:
        """Properties of a new table."""
        return {**_NEW_TABLE_PROPERTIES, **self.options.properties}

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
                transaction, snapshot_id = self._prepare(table, commit)
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

    def _prepare(self, table: Table | None, commit: Commit) -> tuple[Transaction, int]:
        """Return a transaction that makes a commit, and the id of its snapshot."""
        if table is None:
            schema = new_schema(commit.schema, has_identifier=commit.latest_per_key)
            transaction: Transaction = self.catalog.create_table_transaction(
                self.identifier,
                schema,
                self._url,
                partition_spec(commit.partitioning, schema),
                sort_order(self.options.sort_by, schema),
                self._new_properties,
            )
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
        branch = self.options.branch
        properties = progress_properties(commit.after, branch, metadata)
        transaction.set_properties(properties | key_properties(commit))
        head = metadata.current_snapshot_id
        if branch not in metadata.refs and head is not None:
            ManageSnapshots(transaction).create_branch(head, branch).commit()
        summary = {**commit.summary, PROGRESS: commit.after}
        update = transaction.update_snapshot(summary, branch)
        merges = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
        if commit.removed and table is not None:
            producer: _Producer[Any] = ReplaceFiles(
                table, transaction, summary, branch, has_same_rows=commit.has_same_rows
            )
        else:
            producer = update.merge_append() if merges else update.fast_append()
        with producer:
            for each in commit.removed:
                producer.delete_data_file(scan_task_from_file(each).file)
            for file in commit.files:
                url = f"{self._url}/{file.path}"
                producer.append_data_file(iceberg_file(file, url, spec, schema))
        tag = self.options.tag_at(datetime.now(UTC))
        if tag is not None and not commit.has_same_rows:
            check_tag(tag, transaction.table_metadata.refs)
            ManageSnapshots(transaction).create_tag(producer.snapshot_id, tag).commit()
        return transaction, producer.snapshot_id

    def expire_versions(self, now: datetime, age: timedelta, *, dry_run: bool) -> int:
        """Expire snapshots, except those that a branch or tag keeps; see `MaintainedTable`."""
        with self._catalog_errors():
            table = self._table()
            if table is None:
                return 0
            expired = expired_snapshots(table, now, age)
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
        """Delete files below `data/` and `metadata/` that no snapshot needs.

        Raises:
            LakeTableError: The folder also has metadata of another table.
        """
        # Listed before the metadata is read: files committed in between are not deleted.
        infos = self.location.list_tree()
        with self._catalog_errors():
            table = self._table()
            if table is None:
                return []
            needed = needed_files(table)
        old = {each.name for each in infos if each.modified is not None and each.modified < before}
        unneeded = list(unneeded_names((each.name for each in infos), needed, self._url))
        names = [each for each in unneeded if each in old]
        if names:
            with self._catalog_errors():
                check_folder(table, unneeded, self._url)
        if not dry_run:
            self.location.delete_objects(names)
        return names

    def _table(self) -> Table | None:
        try:
            return self.catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _check_progress(self, table: Table | None, commit: Commit) -> None:
        branch = self.options.branch
        if (None if table is None else read_progress(table, branch)) != commit.before:
            message = (
                f"another run copied to the Iceberg table {self.identifier} at the same time."
                " Run again to continue from its progress"
            )
            raise ConcurrentCopyError(message)

    def _check_same_files(self, table: Table | None, state: TableState | None) -> None:
        """Raise `ConcurrentCopyError` if the table changed since the files to remove were read."""
        branch = self.options.branch
        before = None if state is None else branch_snapshot(_table_from_state(state), branch)
        if table is None or branch_snapshot(table, branch) != before:
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
        except TableAlreadyExistsError:
            message = (
                f"another run created the Iceberg table {self.identifier} at the same time. Run"
                " again to continue from its progress"
            )
            raise ConcurrentCopyError(message) from None
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


def _fsspec_url(url: str) -> str:
    """Replace Hadoop's schemes for S3, and its URLs of local folders, which have one slash."""
    if url.startswith("file:/") and not url.startswith("file://"):
        return f"file://{url.removeprefix('file:')}"
    scheme, separator, rest = url.partition("://")
    return f"s3://{rest}" if separator and scheme in {"s3a", "s3n"} else url


def _error_text(error: Exception, properties: Mapping[str, str]) -> str:
    """Return the text of a library's error, without secrets of the catalog."""
    return redacted(str(error), properties) or type(error).__name__
