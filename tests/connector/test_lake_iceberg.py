"""A copy's commits to an Iceberg table: what other engines read, and what the table keeps."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThanOrEqual, IsNull
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import StringType

from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError, StorageError
from connector.tables.evolution import fit_rows, storable_schema
from connector.tables.iceberg import IcebergTable
from connector.tables.iceberg_options import IcebergOptions
from connector.tables.iceberg_progress import PROGRESS
from connector.tables.table import Commit
from connector.tables.transforms import Partitioning
from tests.support.lake_rows import batches
from tests.support.lake_tables import staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.table import Table


_TIME: Final = pa.timestamp("us", "UTC")
_NAME: Final = "shop.orders"


@pytest.fixture(name="catalog")
def _catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog of its own."""
    catalog = sql_catalog(tmp_path)
    yield catalog
    catalog.close()


def sql_catalog(folder: Path) -> SqlCatalog:
    """A catalog in a folder, with the namespace `shop`, and the warehouse beside it."""
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{folder}/lake.db", warehouse=f"file://{folder}/lake"
    )
    catalog.create_namespace_if_not_exists("shop")
    return catalog


def copy(
    catalog: SqlCatalog,
    batch: pa.RecordBatch,
    after: str,
    by: tuple[str, ...] = (),
    options: IcebergOptions | None = None,
) -> IcebergTable:
    """Do what a run of a copy does."""
    table = IcebergTable(catalog, _NAME, options=options or IcebergOptions())
    standing = table.read_state()
    table.commit(staged(table, standing, batch, after, by), standing)
    return table


def numbers(*values: int) -> pa.RecordBatch:
    """Rows of one column."""
    return pa.record_batch({"n": pa.array(values, pa.int32())})


def numbers_in(catalog: SqlCatalog) -> list[int | None]:
    """What stands in the table, in order."""
    return sorted(catalog.load_table(_NAME).scan().to_arrow()["n"].to_pylist())


def _progress(catalog: SqlCatalog) -> str | None:
    standing = IcebergTable(catalog, _NAME).read_state()
    assert standing is not None
    return standing.progress


def test_created_by_the_first_commit(catalog: SqlCatalog, tmp_path: Path) -> None:
    """The first commit makes the table and its rows at once; until it there is no table."""
    table = IcebergTable(catalog, _NAME)
    assert table.read_state() is None
    commit = staged(table, None, numbers(1, 2), "first")
    assert catalog.list_tables("shop") == []

    table.commit(commit, None)

    assert numbers_in(catalog) == [1, 2]
    found = catalog.load_table(_NAME)
    assert found.location() == f"file://{tmp_path}/lake/shop/orders"
    assert len(found.snapshots()) == 1
    standing = table.read_state()
    assert standing is not None
    assert standing.schema == pa.schema({"n": pa.int32()})
    assert (standing.partitioning, standing.progress) == (Partitioning(), "first")


def test_no_namespace(catalog: SqlCatalog, tmp_path: Path) -> None:
    """A namespace that is not there is told, and not made, unless it need not say a place."""
    with pytest.raises(
        LakeTableError, match=r"^the Iceberg catalog lake has no namespace for shpo"
    ):
        IcebergTable(catalog, "shpo.orders").storable(pa.schema({"n": pa.int32()}), None)
    assert catalog.list_namespaces() == [("shop",)]

    table = IcebergTable(catalog, "other.orders", url=str(tmp_path / "elsewhere"))
    table.commit(staged(table, None, numbers(1), "first"), None)
    assert catalog.load_table("other.orders").scan().count() == 1


@settings(max_examples=20)
@given(batches())
def test_read_back(tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch) -> None:
    """Rows of every type, however deep, come back from PyIceberg and Polars as they went in."""
    catalog = sql_catalog(tmp_path_factory.mktemp("lake"))
    expected = fit_rows(batch, storable_schema(batch.schema, "iceberg"), "iceberg")
    copy(catalog, batch, "all")
    table = catalog.load_table(_NAME)

    rows = table.scan().to_arrow()

    assert storable_schema(rows.schema, "iceberg") == expected.schema
    assert table.scan().count() == rows.num_rows == batch.num_rows
    # PyIceberg itself takes a null list of structs for an empty one.
    with mock.patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):
        assert_frame_equal(pl.scan_iceberg(table).collect(), pl.DataFrame(expected))
    catalog.close()


_AT: Final = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
_PARTITIONED: Final = pa.record_batch(
    {
        "at": pa.array(
            [_AT, _AT + timedelta(days=1), None, datetime(1969, 12, 31, 23, tzinfo=UTC)], _TIME
        ),
        "id": pa.array(["a", "b", "c", None]),
        "born": pa.array([date(2000, 1, 1), None, date(1960, 1, 1), date(2000, 1, 1)]),
        "price": pa.array([Decimal("1.50"), Decimal("-2.00"), None, Decimal("0.00")]),
        "code": pa.array([b"\0", b"", None, b"\xff" * 20]),
        "flag": pa.array([True, False, None, True]),
        "weight": pa.array([0.5, float("nan"), None, -0.0]),
    }
)


@pytest.mark.parametrize(
    "by",
    [
        ("day(at)",),
        ("hour(at)", "bucket(4, id)"),
        ("month(at)", "id"),
        ("year(born)", "flag"),
        ("born", "price"),
        ("at",),
        ("code", "bucket(3, price)"),
    ],
    ids=" ".join,
)
def test_partitions(catalog: SqlCatalog, by: tuple[str, ...]) -> None:
    """A table is partitioned as asked, and filters find each row and no file without it."""
    copy(catalog, _PARTITIONED, "all", by)
    table = catalog.load_table(_NAME)
    standing = IcebergTable(catalog, _NAME).read_state()

    assert standing is not None
    assert standing.partitioning == Partitioning.parse(by, _PARTITIONED.schema)
    assert [field.name for field in table.spec().fields] == [
        field.name for field in standing.partitioning.fields
    ]
    rows = storable_schema(_PARTITIONED.schema, "iceberg")
    expected = fit_rows(_PARTITIONED, rows, "iceberg").to_pylist()
    for column in ("at", "id", "born", "price", "code", "flag"):
        for row in expected:
            value: Any = row[column]
            scan = table.scan(_equals(column, value))
            found = scan.to_arrow().to_pylist()
            assert [each["id"] for each in found] == [
                each["id"] for each in sorted_rows(expected, found) if each[column] == value
            ]
    recent = table.scan(_not_before("at", _AT + timedelta(hours=1)))
    if by[0].endswith("(at)"):
        assert len(list(recent.plan_files())) == 1
        assert len(list(table.scan().plan_files())) == 4


def _equals(column: str, value: object) -> BooleanExpression:
    # The annotations are those of classes that it is made from.
    if value is None:
        return IsNull(column)  # type: ignore[call-arg, arg-type]
    return EqualTo(column, value)  # type: ignore[call-arg, arg-type]


def _not_before(column: str, at: datetime) -> BooleanExpression:
    return GreaterThanOrEqual(column, at)  # type: ignore[call-arg, arg-type]


def sorted_rows(rows: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of others, which files of partitions may change; the rest behind them."""
    keys = [each["id"] for each in like]
    return sorted(rows, key=lambda row: keys.index(row["id"]) if row["id"] in keys else len(keys))


def test_bounds_of_columns(catalog: SqlCatalog) -> None:
    """Files have bounds and counts of nulls, long texts cut so that the bound still is one."""
    batch = pa.record_batch(
        {
            "n": pa.array([3, None, -1], pa.int64()),
            "text": pa.array(["b" * 40, "a" * 40, "a"]),
            "top": pa.array([chr(0x10FFFF) * 20] * 3),
            "before_surrogates": pa.array([chr(0xD7FF) * 20] * 3),
            "bytes": pa.array([b"\xff" * 20, b"\x01" * 20, None]),
            "price": pa.array([Decimal("1.50"), Decimal("0.00"), None]),
            "weight": pa.array([1.0, float("nan"), None]),
            "zero": pa.array([0.0, -0.0, 0.0]),
        }
    )
    copy(catalog, batch, "all")

    (file,) = catalog.load_table(_NAME).inspect.files().to_pylist()

    metrics = {
        name: (each["null_value_count"], each["lower_bound"], each["upper_bound"])
        for name, each in file["readable_metrics"].items()
    }
    assert metrics == {
        "n": (1, -1, 3),
        "text": (0, "a", "b" * 15 + "c"),
        "top": (0, chr(0x10FFFF) * 16, None),
        "before_surrogates": (0, chr(0xD7FF) * 16, None),
        "bytes": (1, b"\x01" * 16, None),
        "price": (1, Decimal("0.00"), Decimal("1.50")),
        "weight": (1, None, None),
        "zero": (0, -0.0, 0.0),
    }
    assert file["record_count"] == 3


def test_widened_in_the_same_commit(catalog: SqlCatalog) -> None:
    """New columns, new fields and wider types come with the rows that need them, in one step."""
    first = pa.RecordBatch.from_pylist(
        [{"n": 1, "s": [{"a": 1}], "m": [("k", 1)]}],
        pa.schema(
            {
                "n": pa.int32(),
                "s": pa.list_(pa.struct({"a": pa.float32()})),
                "m": pa.map_(pa.string(), pa.int32()),
            }
        ),
    )
    second = pa.RecordBatch.from_pylist(
        [{"m": [("k", 2**40)], "s": [{"b": "x", "a": 0.1}], "n": 2**40, "__key.id": 7}],
        pa.schema(
            {
                "m": pa.map_(pa.string(), pa.int64()),
                "s": pa.list_(pa.struct({"b": pa.string(), "a": pa.float64()})),
                "n": pa.int64(),
                "__key.id": pa.decimal128(20, 0),
            }
        ),
    )
    copy(catalog, first, "first")
    before = catalog.load_table(_NAME)

    copy(catalog, second, "second")

    after = catalog.load_table(_NAME)
    assert len(after.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert after.scan().to_arrow().sort_by("n").to_pylist() == [
        {"n": 1, "s": [{"a": 1.0, "b": None}], "m": [("k", 1)], "__key.id": None},
        {"n": 2**40, "s": [{"a": 0.1, "b": "x"}], "m": [("k", 2**40)], "__key.id": 7},
    ]


def test_names_that_iceberg_cannot_tell_apart(catalog: SqlCatalog) -> None:
    """A column whose name is that of a field of another is refused, by name."""
    columns = pa.schema({"a.b": pa.int32(), "a": pa.struct({"b": pa.int32()})})

    with pytest.raises(LakeTableError, match=r"a\.b"):
        IcebergTable(catalog, _NAME).storable(columns, None)


def test_a_commit_without_files(catalog: SqlCatalog) -> None:
    """Progress without rows is kept too, in a new table and in one that stands."""
    for before, after in ((None, "first"), ("first", "second")):
        table = IcebergTable(catalog, _NAME)
        standing = table.read_state()
        schema = table.storable(pa.schema({"n": pa.int32()}), standing)
        table.commit(Commit((), schema, Partitioning(), before, after), standing)

        assert _progress(catalog) == after
        assert numbers_in(catalog) == []


def test_words_for_people(catalog: SqlCatalog) -> None:
    """The summary of a commit stands in its snapshot."""
    table = IcebergTable(catalog, _NAME)
    schema = table.storable(pa.schema({"n": pa.int32()}), None)

    table.commit(Commit((), schema, Partitioning(), None, "first", {"topics": "orders"}), None)

    snapshot = catalog.load_table(_NAME).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["topics"], snapshot.summary[PROGRESS]) == ("orders", "first")


def test_manifests_are_merged(catalog: SqlCatalog) -> None:
    """Many commits do not leave as many manifests."""
    table = copy(catalog, numbers(0), "0")
    with catalog.load_table(_NAME).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})

    for number in range(1, 6):
        standing = table.read_state()
        commit = staged(table, standing, numbers(number), str(number))
        table.commit(commit, standing)

    assert numbers_in(catalog) == [0, 1, 2, 3, 4, 5]
    assert len(catalog.load_table(_NAME).inspect.manifests()) < 4


@pytest.mark.parametrize("text", ["", "soon", "1.5", "9" * 5000])
def test_a_property_that_is_no_number_is_named(catalog: SqlCatalog, text: str) -> None:
    """Others may write properties of the table, too."""
    table = copy(catalog, numbers(0), "0")
    with catalog.load_table(_NAME).transaction() as transaction:
        transaction.set_properties({"pulsar-offload.progress-sequence-number": text})

    with pytest.raises(LakeTableError, match=r"progress-sequence-number .* is not a number"):
        table.read_state()


def test_old_metadata_files_are_deleted(catalog: SqlCatalog, tmp_path: Path) -> None:
    """Each has the progress of all snapshots: many commits leave a bounded number of them."""
    table = copy(catalog, numbers(0), "0")
    with catalog.load_table(_NAME).transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "2"})

    for number in range(1, 6):
        copy(catalog, numbers(number), str(number))

    assert numbers_in(catalog) == [0, 1, 2, 3, 4, 5]
    assert len(list((tmp_path / "lake").rglob("*.metadata.json"))) == 3
    standing = table.read_state()
    assert standing is not None
    assert standing.progress == "5"


# -------------------------------------------------------------------- what others do to the table


def _others_append(table: Table) -> None:
    table.append(pa.table(numbers(9)))


def _others_compact(table: Table) -> None:
    rows = table.scan().to_arrow()
    table.overwrite(rows)


def _others_expire_snapshots(table: Table) -> None:
    _others_append(table)
    table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(1)).commit()  # noqa: DTZ005 - as it wants them


def _others_compact_and_expire(table: Table) -> None:
    _others_compact(table)
    table.refresh()
    _others_expire_snapshots(table)


@pytest.mark.parametrize(
    "others",
    [
        _others_append,
        _others_compact,
        _others_expire_snapshots,
        _others_compact_and_expire,
    ],
)
def test_progress_outlives_others(catalog: SqlCatalog, others: Any) -> None:  # noqa: ANN401
    """The progress is still known after what others do to a table and its snapshots."""
    copy(catalog, numbers(1), "first")
    copy(catalog, numbers(2), "second")

    others(catalog.load_table(_NAME))

    assert _progress(catalog) == "second"
    copy(catalog, numbers(3), "third")
    assert [each for each in numbers_in(catalog) if each != 9] == [1, 2, 3]


def test_rolled_back(catalog: SqlCatalog) -> None:
    """A table that is rolled back has the progress of then, so the rows that went come again."""
    copy(catalog, numbers(1), "first")
    copy(catalog, numbers(2), "second")
    table = catalog.load_table(_NAME)
    first, _ = table.snapshots()

    table.manage_snapshots().set_current_snapshot(first.snapshot_id).commit()

    assert numbers_in(catalog) == [1]
    assert _progress(catalog) == "first"
    copy(catalog, numbers(2), "second")
    assert numbers_in(catalog) == [1, 2]


def test_a_table_of_others(catalog: SqlCatalog) -> None:
    """A table that others made, with rows of theirs, has no progress and takes a first copy."""
    made = catalog.create_table(_NAME, pa.schema({"n": pa.int64()}))
    assert _progress(catalog) is None
    made.append(pa.table({"n": [9]}))

    copy(catalog, numbers(1), "first")

    assert numbers_in(catalog) == [1, 9]
    assert _progress(catalog) == "first"


def test_rolled_back_to_before_the_first_copy(catalog: SqlCatalog) -> None:
    """A table that is rolled back to rows of others is refused, and taken again if told so."""
    made = catalog.create_table(_NAME, pa.schema({"n": pa.int64()}))
    made.append(pa.table({"n": [9]}))
    copy(catalog, numbers(1), "first")
    table = catalog.load_table(_NAME)
    table.manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()

    with pytest.raises(LakeTableError, match=r"shop\.orders was rolled back to before its last"):
        IcebergTable(catalog, _NAME).read_state()

    with catalog.load_table(_NAME).transaction() as transaction:
        transaction.remove_properties(PROGRESS)
    assert _progress(catalog) is None


def test_partitions_that_a_copy_cannot_write(catalog: SqlCatalog) -> None:
    """A table that others partitioned by what copies do not know is refused, by the field."""
    copy(catalog, pa.record_batch({"text": ["a"]}), "first")
    with catalog.load_table(_NAME).update_spec() as update:
        update.add_field("text", TruncateTransform(2), "text_trunc")

    with pytest.raises(LakeTableError, match=r"partitioned by text_trunc \(truncate\[2\] of text"):
        IcebergTable(catalog, _NAME).read_state()


def test_partitions_changed_meanwhile(catalog: SqlCatalog) -> None:
    """Files that are divided in another way than the table is now are not added to it."""
    table = copy(catalog, numbers(1), "first")
    standing = table.read_state()
    commit = staged(table, standing, numbers(2), "second")
    with catalog.load_table(_NAME).update_spec() as update:
        update.add_identity("n")

    with pytest.raises(ConcurrentCopyError, match=r"partitions of the Iceberg table shop\.orders"):
        table.commit(commit, standing)

    assert numbers_in(catalog) == [1]
    copy(catalog, numbers(2), "second")
    assert numbers_in(catalog) == [1, 2]


def test_a_column_is_renamed(catalog: SqlCatalog) -> None:
    """Rows that were copied keep a column's values under its new name; later ones get another."""
    copy(catalog, numbers(1), "first")
    with catalog.load_table(_NAME).update_schema() as update:
        update.rename_column("n", "old")

    copy(catalog, numbers(2), "second")

    rows = catalog.load_table(_NAME).scan().to_arrow().sort_by("old").to_pylist()
    assert rows == [{"old": 1, "n": None}, {"old": None, "n": 2}]


@pytest.mark.parametrize("change", ["new", "dropped"])
def test_columns_changed_meanwhile(catalog: SqlCatalog, change: str) -> None:
    """Files whose numbers of columns the table gave to others meanwhile are not added to it."""
    table = copy(catalog, numbers(1), "first")
    standing = table.read_state()
    batch = pa.record_batch({"n": pa.array([2], pa.int32()), "mine": ["x"]})
    commit = staged(table, standing, batch, "second")
    with catalog.load_table(_NAME).update_schema() as update:
        if change == "new":
            update.add_column("theirs", StringType())
        else:
            update.delete_column("n")

    with pytest.raises(ConcurrentCopyError, match="changed during the copy"):
        table.commit(commit, standing)

    copy(catalog, batch, "second")
    rows = catalog.load_table(_NAME).scan().to_arrow()
    assert sorted(rows["mine"].to_pylist(), key=str) == [None, "x"]


def test_columns_that_do_not_matter(catalog: SqlCatalog) -> None:
    """A column that others add meanwhile does not stop rows that bring no new one."""
    table = copy(catalog, numbers(1), "first")
    standing = table.read_state()
    commit = staged(table, standing, numbers(2), "second")
    with catalog.load_table(_NAME).update_schema() as update:
        update.add_column("theirs", StringType())

    table.commit(commit, standing)

    assert numbers_in(catalog) == [1, 2]


def test_an_unknown_catalog() -> None:
    """A catalog that PyIceberg does not know is an error with its name."""
    with pytest.raises(LakeTableError, match="cannot open the Iceberg catalog nowhere"):
        IcebergTable.open(_NAME, {"catalog": "nowhere"})


@pytest.mark.parametrize("name", ["orders", "s3://lake/shop.orders", "shop/orders", ".orders", ""])
def test_names_of_no_table(name: str) -> None:
    """A folder, or a name without a namespace, is told before any catalog is asked."""
    with pytest.raises(OptionError, match=r"an Iceberg table is named namespace\.table, not '"):
        IcebergTable.open(name, {"catalog": "nowhere"})


def test_secrets_of_a_catalog() -> None:
    """An error shows none of the properties that a catalog is opened with."""
    properties = {"type": "rest-of-secret", "token": "my-secret-token"}

    with pytest.raises(LakeTableError) as refused:
        IcebergTable.open(_NAME, {"catalog": "lake", **properties})

    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_a_catalog_that_fails(tmp_path: Path) -> None:
    """A catalog that cannot be asked is an error of storage, which names the table."""
    catalog = sql_catalog(tmp_path)
    catalog.destroy_tables()

    with pytest.raises(
        StorageError, match=r"the Iceberg catalog failed for shop\.orders: "
    ) as failed:
        IcebergTable(catalog, _NAME).read_state()
    assert str(tmp_path) not in str(failed.value)
    catalog.close()


def test_folders_as_hadoop_names_them(catalog: SqlCatalog, tmp_path: Path) -> None:
    """A URL of a local folder may have one slash: rows are written there, and read there."""
    folder = f"file:{tmp_path}/hadoop"
    made = catalog.create_table(_NAME, pa.schema({"n": pa.int32()}), location=folder)
    assert made.location() == folder

    table = copy(catalog, numbers(1), "first")

    assert table.location.url == f"file://{tmp_path}/hadoop"
    assert numbers_in(catalog) == [1]
    assert len(list((tmp_path / "hadoop" / "data").iterdir())) == 1
    assert table.delete_unneeded(datetime.now(UTC) + timedelta(hours=1), dry_run=False) == []
    assert numbers_in(catalog) == [1]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3a://bucket/orders", "s3://bucket/orders"),
        ("s3n://bucket/o/", "s3://bucket/o"),
        ("hdfs://host:9000/o", "hdfs://host:9000/o"),
    ],
)
def test_places_as_hadoop_names_them(catalog: SqlCatalog, url: str, shown: str) -> None:
    """Data is written to S3 whichever of Hadoop's names a table has for it."""
    assert IcebergTable(catalog, _NAME, url=url).location.url == shown
