"""Each kind of table takes files and progress in one step, which only one of two runs can take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError, StorageError
from arrow_io.storage.location import Location
from connector.tables.delta import DeltaTable
from connector.tables.delta_options import delta_storage_options
from connector.tables.parquet import ParquetTable
from connector.tables.table import Commit, TableState
from connector.tables.transforms import Partitioning
from tests.support.lake_tables import rows_of, staged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.s3_server import S3Server

SCHEMA = pa.schema([("n", pa.int64()), ("country", pa.string()), ("at", pa.timestamp("us", "UTC"))])
PARTITIONS = [[], ["country"], ["day(at)", "bucket(4, n)"], ["year(at)", "country"], ["at"]]

Table = DeltaTable | ParquetTable


@pytest.fixture(params=["folder", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of each kind."""
    if request.param == "bucket":
        server: S3Server = request.getfixturevalue("s3_server")
        return Location(f"s3://{server.new_bucket()}/tables/t", server.storage_options)
    return Location(str(tmp_path / "t"))


@pytest.fixture(params=[DeltaTable, ParquetTable], ids=["delta", "parquet"])
def table(request: pytest.FixtureRequest, location: Location) -> Table:
    """A table of each kind that is not there yet."""
    made: Table = request.param(location)
    return made


def batch_of(numbers: range) -> pa.RecordBatch:
    """Rows with these numbers."""
    countries = [[None, "DE", "a/b c", "007"][n % 4] for n in numbers]
    times = pa.array([n * 40_000_000_001 for n in numbers], pa.timestamp("us", "UTC"))
    return pa.record_batch([pa.array(numbers), countries, times], schema=SCHEMA)


def add(
    table: Table,
    rows: pa.RecordBatch,
    after: str,
    standing: TableState | None,
    partition_by: Sequence[str] = (),
) -> None:
    """Write rows, and commit them."""
    table.commit(staged(table, standing, rows, after, partition_by, {"tool": "test"}), standing)


class TestCommits:
    """Steps that add files."""

    @pytest.mark.parametrize("partition_by", PARTITIONS, ids=str)
    def test_rows_and_progress_are_there_together(
        self, table: Table, partition_by: list[str]
    ) -> None:
        """What was committed is what stands, and what every reader gives."""
        assert table.read_state() is None
        add(table, batch_of(range(10)), "ten", None, partition_by)
        first = table.read_state()
        assert first is not None
        add(table, batch_of(range(10, 15)), "fifteen", first)
        second = table.read_state()
        assert second is not None

        assert (first.progress, second.progress) == ("ten", "fifteen")
        assert second.schema.equals(SCHEMA)
        assert list(second.partitioning.texts) == partition_by
        assert rows_of(table, SCHEMA.names) == batch_of(range(15)).to_pylist()

    def test_a_commit_without_files_keeps_progress(self, table: Table) -> None:
        """What was new may have held no row."""
        commit = Commit((), SCHEMA, Partitioning(), None, "nothing yet")
        table.commit(commit, None)
        standing = table.read_state()
        assert standing is not None
        assert standing.progress == "nothing yet"
        add(table, batch_of(range(3)), "three", standing)
        assert rows_of(table, ["n"]) == [{"n": 0}, {"n": 1}, {"n": 2}]

    def test_of_two_that_create_one_wins(self, table: Table) -> None:
        """The second is told, and adds nothing."""
        add(table, batch_of(range(3)), "first", None)
        with pytest.raises(ConcurrentCopyError, match="Run again"):
            add(table, batch_of(range(3, 9)), "second", None)
        standing = table.read_state()
        assert standing is not None
        assert standing.progress == "first"
        assert len(rows_of(table, ["n"])) == 3

    def test_a_table_gets_further_columns(self, table: Table) -> None:
        """Rows from before have nulls there; the partitions stay."""
        add(table, batch_of(range(3)), "a", None, ["country"])
        standing = table.read_state()
        wider = batch_of(range(3, 5)).append_column("price", pa.array([1.5, None]))
        add(table, wider, "b", standing)

        after = table.read_state()
        assert after is not None
        assert after.schema.names == [*SCHEMA.names, "price"]
        assert [each["price"] for each in rows_of(table, ["n", "price"])] == [
            None,
            None,
            None,
            1.5,
            None,
        ]


class TestOtherTables:
    """What stands at the place already."""

    def test_a_table_of_another_kind_is_refused(self, location: Location) -> None:
        """Files of two kinds of tables are not mixed."""
        add(DeltaTable(location), batch_of(range(3)), "a", None)
        with pytest.raises(LakeTableError, match="is a Delta table"):
            ParquetTable(location).read_state()
        other = location.child("other")
        add(ParquetTable(other), batch_of(range(3)), "a", None)
        with pytest.raises(LakeTableError, match="is a table of plain Parquet"):
            DeltaTable(other).read_state()

    def test_a_delta_table_of_somebody_else_is_added_to(self, tmp_path: Path) -> None:
        """Its columns and partitions are kept; it has no progress."""
        pl.DataFrame({"n": [7], "country": ["DE"]}).write_delta(
            str(tmp_path / "t"), delta_write_options={"partition_by": ["country"]}
        )
        table = DeltaTable(Location(str(tmp_path / "t")))
        standing = table.read_state()
        assert standing is not None
        assert standing.progress is None
        assert standing.partitioning.texts == ("country",)
        add(table, batch_of(range(3)), "a", standing)
        assert [each["n"] for each in rows_of(table, ["n"])] == [0, 1, 2, 7]

    def test_others_may_write_to_the_delta_table_meanwhile(self, tmp_path: Path) -> None:
        """A commit that has nothing to do with ours is no concurrent copy."""
        table = DeltaTable(Location(str(tmp_path / "t")))
        add(table, batch_of(range(3)), "a", None)
        standing = table.read_state()
        pl.DataFrame({"n": [7]}, schema={"n": pl.Int64}).write_delta(
            str(tmp_path / "t"), mode="append", delta_write_options={"schema_mode": "merge"}
        )
        add(table, batch_of(range(3, 5)), "b", standing)
        assert [each["n"] for each in rows_of(table, ["n"])] == [0, 1, 2, 3, 4, 7]

    def test_progress_outlives_the_log(self, tmp_path: Path) -> None:
        """Checkpoints, the cleaning of old commits, vacuuming and compaction do not touch it."""
        table = DeltaTable(Location(str(tmp_path / "t")))
        add(table, batch_of(range(3)), "a", None)
        add(table, batch_of(range(3, 6)), "b", table.read_state())
        library = table._snapshot()
        assert library is not None
        library.optimize.compact()
        library.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        library.create_checkpoint()
        for each in sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[:-1]:
            each.unlink()

        standing = table.read_state()
        assert standing is not None
        assert standing.progress == "b"
        assert len(rows_of(table, ["n"])) == 6


class TestDeltaDetails:
    """What a Delta log says of files."""

    def test_statistics_stand_in_the_log(self, tmp_path: Path) -> None:
        """Engines prune by them: bounds are rounded outwards to whole ms."""
        table = DeltaTable(Location(str(tmp_path / "t")))
        add(table, batch_of(range(1, 4)), "a", None)
        log = (tmp_path / "t" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        [added] = [json.loads(line)["add"] for line in log if '"add"' in line]
        assert json.loads(added["stats"]) == {
            "numRecords": 3,
            "minValues": {"n": 1, "country": "007", "at": "1970-01-01T11:06:40.000Z"},
            "maxValues": {"n": 3, "country": "a/b c", "at": "1970-01-02T09:20:00.001Z"},
            "nullCount": {"n": 0, "country": 0, "at": 0},
        }
        assert pl.scan_delta(str(tmp_path / "t")).filter(pl.col("n") > 2).collect().height == 1

    def test_a_failure_is_told_without_secrets(self, s3_server: S3Server) -> None:
        """What the library says of a bucket that is not there."""
        table = DeltaTable(Location("s3://no-such-bucket/t", s3_server.storage_options))
        with pytest.raises(StorageError, match="Delta table at s3://no-such-bucket/t") as caught:
            table.read_state()
        assert "test-secret-key" not in str(caught.value)

    def test_storage_options_are_handed_on(self) -> None:
        """What s3fs calls them becomes what deltalake calls them."""
        options = {
            "key": "k",
            "secret": "s",
            "token": "t",
            "anon": True,
            "client_kwargs": {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000"},
            "request_attempts": 3,
            "use_ssl": False,
        }
        assert delta_storage_options(Location("s3://bucket/t", options)) == {
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_SESSION_TOKEN": "t",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": "http://minio:9000",
            "AWS_ALLOW_HTTP": "true",
        }
        assert delta_storage_options(Location("/folder", {"auto_mkdir": True})) == {}

    @pytest.mark.parametrize(
        ("url", "options", "expected"),
        [
            (
                "az://container/t",
                {"connection_string": "AccountName=a;AccountKey=k;BlobEndpoint=http://host/a"},
                {
                    "account_name": "a",
                    "account_key": "k",
                    "endpoint": "http://host/a",
                    "allow_http": "true",
                },
            ),
            (
                "abfss://container@a.dfs.core.windows.net/t",
                {"sas_token": "s", "max_concurrency": 3, "request_attempts": 3},
                {"account_name": "a", "sas_key": "s"},
            ),
            ("gs://bucket/t", {"token": "anon", "project": "p"}, {"skip_signature": "true"}),
        ],
    )
    def test_options_of_other_clouds(
        self, url: str, options: dict[str, object], expected: dict[str, str]
    ) -> None:
        """Those of adlfs and gcsfs, too; if deltalake's own are there, they alone count."""
        location = Location(url, options)
        assert delta_storage_options(location) == expected
        assert DeltaTable(location, {"account_name": "own"})._options() == {"account_name": "own"}

    @pytest.mark.parametrize(
        ("url", "options"),
        [
            ("memory://t", {}),
            ("s3://bucket", {"profile": "nightly"}),
            ("gs://bucket", {"token": "browser"}),
            ("az://container", {"credential": object()}),
        ],
        ids=["memory", "profile", "browser", "credential"],
    )
    def test_places_that_deltalake_cannot_reach_are_refused(
        self, url: str, options: dict[str, object]
    ) -> None:
        """Before anything is written."""
        with pytest.raises(OptionError):
            delta_storage_options(Location(url, options))


class TestParquetDetails:
    """What plain files and manifests are."""

    def test_duckdb_has_the_values_of_transforms(self, tmp_path: Path) -> None:
        """Folders are named as Hive names them; a column of texts stays one."""
        table = ParquetTable(Location(str(tmp_path)))
        add(table, batch_of(range(10)), "a", None, ["day(at)", "country"])
        paths = [str(tmp_path / each.path) for each in table.files()]
        found = duckdb.execute(
            "select count(*), count(distinct at_day), max(typeof(at_day)), min(country)"
            " from read_parquet(?)",
            [paths],
        ).fetchall()
        assert found == [(10, 5, "DATE", "007")]

    def test_a_manifest_says_what_it_adds(self, tmp_path: Path) -> None:
        """By words that people read too."""
        table = ParquetTable(Location(str(tmp_path)))
        add(table, batch_of(range(4)), "a", None, ["country"])
        [path] = (tmp_path / "_pulsar_offload").iterdir()
        manifest = json.loads(path.read_text())
        assert path.name == f"manifest-{1:020}.json"
        assert manifest["columns"]["at"] == "timestamp[us, tz=UTC]"
        assert [each["partition"] for each in manifest["files"]] == [
            {"country": None},
            {"country": "DE"},
            {"country": "a/b c"},
            {"country": "007"},
        ]
        assert sum(each["rows"] for each in manifest["files"]) == 4
        assert pq.read_table(tmp_path / manifest["files"][0]["path"]).num_rows == 1

    def test_what_no_manifest_names_can_be_cleaned(self, location: Location) -> None:
        """Files that a killed run left are told from those of the table."""
        table = ParquetTable(location)
        add(table, batch_of(range(8)), "a", None, ["country"])
        left = ["lost.parquet", "country-DE/lost.parquet"]
        for each in left:
            folder, _, name = each.rpartition("/")
            place = location.child(folder) if folder else location
            place.write_object(name, b"rows", user_metadata={})
        assert sorted(table.find_unnamed_files()) == sorted(left)
        location.delete_objects(table.find_unnamed_files())
        assert table.find_unnamed_files() == []
        assert len(rows_of(table, ["n"])) == 8

    def test_a_store_that_cannot_decide_is_refused(self, tmp_path: Path) -> None:
        """Before anything is written."""
        options = {"path": str(tmp_path), "target_protocol": "file"}
        with pytest.raises(OptionError, match="cannot create an object atomically"):
            ParquetTable(Location("dir://below", options)).read_state()
