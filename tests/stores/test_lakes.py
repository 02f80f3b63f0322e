"""Tables of each format on S3, Google Cloud Storage and Azure have each row of a topic once."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import deltalake
import duckdb
import fsspec
import pytest
from pyiceberg.catalog import load_catalog

from arrow_io.errors import ConcurrentCopyError
from connector import CopySizes, MaintenanceSettings, copy_topics
from connector.lake.maintenance import maintain
from connector.tables.delta import DeltaTable
from connector.tables.iceberg import IcebergTable
from connector.tables.parquet import ParquetTable
from connector.tables.table_kinds import open_table
from tests.connector.conftest import bucket
from tests.stores.emulators import running_gateway
from tests.support.lake_copies import COLUMNS, SCHEMA, batch_rows, in_order, write_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask
    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable, MaintainedTable
    from tests.stores.emulators import Emulator
    from tests.support.buckets import MemoryBucket

__all__ = ["bucket"]

pytestmark = [
    pytest.mark.stores,
    # Of aiohttp, for the bodies that gcsfs and adlfs give it.
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
]

_FROM_NOW: Final = MaintenanceSettings(
    min_files=2, expire_after=timedelta(), delete_after=timedelta()
)


class _KilledError(BaseException):
    """The process is no more."""


@dataclass(frozen=True)
class Lake:
    """A table that does not exist yet, and how it is reached.

    Attributes:
        storage_options: Options of its file system.
        options: Options of the table.
    """

    kind: TableKind
    target: str
    storage_options: dict[str, object]
    options: dict[str, str] = field(default_factory=dict)

    def table(self) -> LakeTable:
        """Return the table."""
        return open_table(self.kind, self.target, self.storage_options, self.options)

    def copy(self, source: MemoryBucket, **options: Any) -> int:  # noqa: ANN401
        """Copy what is new, and return how many rows that was."""
        [summary] = copy_topics(
            source.url,
            "orders",
            self.target,
            format=self.kind,
            target_options=self.storage_options,
            table_options=self.options,
            schema=SCHEMA,
            **options,
        )
        return summary.rows

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, by the format's own library, or by DuckDB for plain Parquet."""
        return in_order(self._read().select(list(COLUMNS)))

    def _read(self) -> pa.Table:
        table = self.table()
        if isinstance(table, IcebergTable):
            with closing(table.catalog):
                return table.catalog.load_table(table.identifier).scan().to_arrow()
        if isinstance(table, DeltaTable):
            options = table._options()
            return deltalake.DeltaTable(self.target, storage_options=options).to_pyarrow_table()
        assert isinstance(table, ParquetTable)
        urls = [f"{self.target}/{each.path}" for each in table.files()]
        with duckdb.connect() as connection:
            protocol = self.target.partition("://")[0]
            file_system = fsspec.filesystem(protocol, **self.storage_options)
            connection.register_filesystem(file_system)
            connection.sql("set timezone = 'UTC'")
            return connection.sql("from read_parquet(?)", params=[urls]).to_arrow_table()


@pytest.fixture(scope="session", name="s3")
def _s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Storage options of a gateway from S3, with the bucket `lake`."""
    folder = str(tmp_path_factory.mktemp("gateway"))
    # It takes some requests of Arrow's client on a kept connection for malformed ones.
    with running_gateway(os.environ["VERSITYGW"], folder, keep_alive=False) as options:
        fsspec.filesystem("s3", **options).mkdir("lake")
        yield options


def _s3_lake(kind: TableKind, s3: dict[str, object], name: str) -> Lake:
    options = {
        "s3.endpoint": s3["endpoint_url"],
        "s3.access-key-id": s3["key"],
        "s3.secret-access-key": s3["secret"],
        "s3.region": "us-east-1",
    }
    texts = {name: str(each) for name, each in options.items()}
    return Lake(kind, f"s3://lake/{name}", s3, texts)


def _gcs_lake(kind: TableKind, gcs: Emulator) -> Lake:
    storage_options = gcs.options["fsspec"]
    options = {
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "gcs.service.host": str(storage_options["endpoint_url"]),
        "gcs.oauth2.token": "anon",
        "gcs.project-id": "none",
    }
    return Lake(kind, f"{gcs.new_container()}/table", storage_options, options)


def _azure_lake(kind: TableKind, azure: Emulator) -> Lake:
    storage_options = azure.options["fsspec"]
    options = {"adls.connection-string": str(storage_options["connection_string"])}
    # PyIceberg does not know the scheme az.
    url = azure.new_container().replace("az://", "abfs://")
    return Lake(kind, f"{url}/table", storage_options, options)


_LAKES: Final = (
    *("s3-parquet", "s3-delta", "s3-iceberg"),
    # The emulator of GCS does not have the requests that `deltalake` writes by.
    *("gcs-parquet", "gcs-iceberg"),
    *("azure-parquet", "azure-delta", "azure-iceberg"),
)


@pytest.fixture(params=_LAKES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table of each format in each store that can have it."""
    store, _, kind = request.param.partition("-")
    server = request.getfixturevalue(store)
    if store == "s3":
        lake = _s3_lake(kind, server, tmp_path.name)
    else:
        lake = (_gcs_lake if store == "gcs" else _azure_lake)(kind, server)
    if kind != "iceberg":
        return replace(lake, options={})
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": lake.target}
    lake = replace(lake, target="shop.orders", options=lake.options | catalog)
    with closing(load_catalog(**lake.options)) as opened:
        opened.create_namespace("shop")
    return lake


def test_each_run_copies_what_is_new(bucket: MemoryBucket, lake: Lake) -> None:
    """Other readers have the rows of a batch read."""
    write_topic(bucket.url, range(10))
    assert lake.copy(bucket, partition_by=["country"]) == 10
    assert lake.copy(bucket) == 0
    write_topic(bucket.url, range(10, 25), append=True)
    assert lake.copy(bucket) == 15

    assert lake.rows() == batch_rows(bucket.url)


def test_killed_between_two_commits(bucket: MemoryBucket, lake: Lake) -> None:
    """The next run continues after the last commit."""
    write_topic(bucket.url, range(18))
    calls = 0

    def run(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
        nonlocal calls
        calls += 1
        for each in tasks:
            written = write(each)
            if calls == 2:  # Its file is in the store, and in no table.
                raise _KilledError
            yield written

    small = CopySizes(task_bytes=1, commit_bytes=1)
    with pytest.raises(_KilledError):
        lake.copy(bucket, sizes=small, executor=run)
    before = len(lake.rows())
    assert 0 < before < 18

    assert lake.copy(bucket) == 18 - before
    assert lake.rows() == batch_rows(bucket.url)


def test_two_runs_at_a_time(bucket: MemoryBucket, lake: Lake) -> None:
    """The one whose files are committed later fails, and its rows are there once."""
    write_topic(bucket.url, range(6))
    lake.copy(bucket)
    write_topic(bucket.url, range(6, 12), append=True)

    def run(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
        written = [write(each) for each in tasks]
        assert lake.copy(bucket) == 6
        return iter(written)

    with pytest.raises(ConcurrentCopyError):
        lake.copy(bucket, executor=run)
    assert lake.copy(bucket) == 0
    assert lake.rows() == batch_rows(bucket.url)


# The emulator of Azure does not have the listings from a name on by which `deltalake` finds the
# third version of a table.
@pytest.mark.parametrize("lake", [each for each in _LAKES if each != "azure-delta"], indirect=True)
def test_maintenance(bucket: MemoryBucket, lake: Lake) -> None:
    """Files are merged and unneeded ones deleted; rows and progress remain."""
    for number in range(4):
        write_topic(bucket.url, range(number * 6, number * 6 + 6), append=number > 0)
        lake.copy(bucket)
    table = cast("MaintainedTable", lake.table())

    summary = maintain(table, lake.kind, _FROM_NOW, datetime.now(UTC) + timedelta(hours=2))

    assert (summary.merged_files, summary.new_files) == (4, 1)
    assert len([each for each in summary.deleted_files if each.endswith(".parquet")]) == 4
    assert lake.rows() == batch_rows(bucket.url)
    assert lake.copy(bucket) == 0
    write_topic(bucket.url, range(24, 30), append=True)
    assert lake.copy(bucket) == 6
    assert lake.rows() == batch_rows(bucket.url)
    if isinstance(table, IcebergTable):
        table.catalog.close()
