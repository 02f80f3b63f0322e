"""Options of tables: branches, tags, properties, sort orders and identifiers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.refs import SnapshotRefType

from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError
from connector import (
    CopySizes,
    MaintenanceSettings,
    copy_topics,
    maintain_table,
    open_topic,
    write_messages,
)
from connector.tables import iceberg
from connector.tables.iceberg import IcebergTable
from connector.tables.iceberg_options import IcebergOptions
from connector.tables.iceberg_schema import new_schema
from connector.tables.table_kinds import open_table
from tests.connector.test_lake_iceberg import copy, numbers, numbers_in, sql_catalog
from tests.support.buckets import TOPIC
from tests.support.lake_copies import SCHEMA, write_topic
from tests.support.lake_tables import staged
from tests.support.stopped_iceberg import Killed, WatchedCatalog, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

    from tests.support.buckets import MemoryBucket
    from tests.support.grids import Grid

_NAME: Final = "shop.orders"
_MERGE: Final = MaintenanceSettings(min_files=2, expire_after=timedelta(), delete_after=timedelta())


@pytest.fixture(name="catalog")
def _catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog of its own, which `_options` lead to."""
    catalog = sql_catalog(tmp_path)
    yield catalog
    catalog.close()


def _options(folder: Path, **options: str) -> dict[str, str]:
    return {
        "catalog": "lake",
        "type": "sql",
        "uri": f"sqlite:///{folder}/lake.db",
        "warehouse": f"file://{folder}/lake",
        **options,
    }


def _commit(catalog: SqlCatalog, number: int, options: IcebergOptions | None = None) -> None:
    """Commit one row as a copy does; the number is also the progress."""
    copy(catalog, numbers(number), str(number), options=options)


def _progress(catalog: SqlCatalog, branch: str = "main") -> str | None:
    state = IcebergTable(catalog, _NAME, options=IcebergOptions(branch)).read_state()
    assert state is not None
    return state.progress


def _numbers_of(table: Table, name: str) -> list[int]:
    snapshot = table.snapshot_by_name(name)
    assert snapshot is not None
    rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return sorted(rows["n"].to_pylist())


# ------------------------------------------------------------------------------ branches and tags


def test_a_branch_has_rows_that_the_table_lacks(catalog: SqlCatalog) -> None:
    """A branch starts with the rows and the progress of the main branch, and goes its own way."""
    audit = IcebergOptions("audit")
    _commit(catalog, 1)
    _commit(catalog, 2, audit)
    _commit(catalog, 3, audit)

    table = catalog.load_table(_NAME)
    assert _numbers_of(table, "main") == numbers_in(catalog) == [1]
    assert _numbers_of(table, "audit") == [1, 2, 3]
    assert (_progress(catalog), _progress(catalog, "audit")) == ("1", "3")

    # Published as Iceberg's procedure fast_forward does.
    audited = table.metadata.refs["audit"].snapshot_id
    table.manage_snapshots().set_current_snapshot(audited).commit()
    assert _progress(catalog) == "3"
    _commit(catalog, 4)
    assert numbers_in(catalog) == [1, 2, 3, 4]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_branch_of_no_rows(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path, *, is_new: bool
) -> None:
    """A table gets its first rows in its main branch."""
    write_topic(bucket.url, range(3))
    if not is_new:
        catalog.create_table(_NAME, pa.schema({"number": pa.int64()}))

    with pytest.raises(OptionError, match="no rows yet, so it cannot have the branch audit"):
        _copy(bucket, _options(tmp_path, branch="audit"))


def test_two_copies_to_one_branch(catalog: SqlCatalog) -> None:
    """One fails; a copy to another branch at the same time does not matter."""
    audit = IcebergOptions("audit")
    _commit(catalog, 1)
    _commit(catalog, 2, audit)
    table = IcebergTable(catalog, _NAME, options=audit)
    state = table.read_state()
    commit = staged(table, state, numbers(3), "3")
    _commit(catalog, 5)
    table.commit(commit, state)
    with pytest.raises(ConcurrentCopyError, match="another run copied"):
        table.commit(commit, state)
    assert _numbers_of(catalog.load_table(_NAME), "audit") == [1, 2, 3]
    assert numbers_in(catalog) == [1, 5]


def test_a_branch_of_what_was_copied_meanwhile(catalog: SqlCatalog) -> None:
    """A new branch would start with rows that its first copy has, too."""
    _commit(catalog, 1)
    table = IcebergTable(catalog, _NAME, options=IcebergOptions("audit"))
    state = table.read_state()
    commit = staged(table, state, numbers(2), "2")
    _commit(catalog, 2)

    with pytest.raises(ConcurrentCopyError, match="another run copied"):
        table.commit(commit, state)


def test_the_progress_of_another_branch(catalog: SqlCatalog) -> None:
    """A branch whose snapshots with progress expired does not take that of another."""
    _commit(catalog, 1)
    made = catalog.load_table(_NAME)
    made.overwrite(pa.table(numbers(1)))
    head = made.refresh().current_snapshot()
    assert head is not None
    made.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    _commit(catalog, 2)
    with catalog.load_table(_NAME).maintenance.expire_snapshots() as expire:
        expire.older_than(datetime.now() + timedelta(days=1))  # noqa: DTZ005 - as it wants them

    with pytest.raises(LakeTableError, match=r"shop\.orders, in its branch audit was rolled back"):
        _progress(catalog, "audit")
    assert _progress(catalog) == "2"


def test_tags(catalog: SqlCatalog) -> None:
    """A tag moves with each commit; one with a time stays where that time ended."""
    day = f"copied-{datetime.now(UTC):%Y}"
    _commit(catalog, 1, IcebergOptions(tag="copied-%Y"))
    _commit(catalog, 2, IcebergOptions(tag="latest"))
    _commit(catalog, 3, IcebergOptions(tag="latest"))

    table = catalog.load_table(_NAME)
    assert _numbers_of(table, day) == [1]
    assert _numbers_of(table, "latest") == [1, 2, 3]
    assert table.metadata.refs["latest"].snapshot_ref_type is SnapshotRefType.TAG
    with pytest.raises(OptionError, match=r"latest is a tag of .* not a branch"):
        _progress(catalog, "latest")


def test_a_tag_with_the_name_of_a_branch(catalog: SqlCatalog) -> None:
    """A commit never turns a branch into a tag."""
    _commit(catalog, 1)
    for options in (IcebergOptions("audit", "audit"), IcebergOptions("audit", "main")):
        with pytest.raises(OptionError, match="is a branch"):
            _commit(catalog, 2, options)
    assert list(catalog.load_table(_NAME).metadata.refs) == ["main"]


def test_a_branch_is_maintained(bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path) -> None:
    """Its files are merged, and the rows of the main branch stay as they are."""
    options = _options(tmp_path, branch="audit")
    for number in range(3):
        write_topic(bucket.url, range(number * 3, number * 3 + 3), append=number > 0)
        branch = options if number else _options(tmp_path)
        _copy(bucket, branch)

    settings = MaintenanceSettings(min_files=2, keep=timedelta(days=365_000))
    summary = maintain_table(_NAME, format="iceberg", table_options=options, settings=settings)

    assert (summary.merged_files, summary.new_files) == (3, 1)
    table = catalog.load_table(_NAME)
    audit = table.snapshot_by_name("audit")
    assert audit is not None
    assert len(list(table.scan(snapshot_id=audit.snapshot_id).plan_files())) == 1
    assert (table.scan(snapshot_id=audit.snapshot_id).count(), table.scan().count()) == (9, 3)
    assert _copy(bucket, options) == 0


def test_a_branch_that_does_not_exist(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """Only a copy creates a branch. A mistyped name is an error, not the main branch."""
    write_topic(bucket.url, range(3))
    _copy(bucket, _options(tmp_path))
    options: dict[str, Any] = {
        "format": "iceberg",
        "table_options": _options(tmp_path, branch="adit"),
    }
    lake = {"format": "iceberg", **options["table_options"]}
    for refused in (
        lambda: maintain_table(_NAME, **options),
        lambda: maintain_table(_NAME, dry_run=True, **options),
        lambda: open_topic(bucket.url, TOPIC, schema=SCHEMA, lake=_NAME, lake_options=lake),
    ):
        with pytest.raises(OptionError, match="no branch adit: only copies create branches"):
            refused()
    assert {*catalog.load_table(_NAME).metadata.refs} == {"main"}


def test_killed_at_each_request(bucket: MemoryBucket, grid: Grid, tmp_path: Path) -> None:
    """A copy to a new branch is killed anywhere: the next one has each row, and main stays."""
    steps = grid.steps()
    write_topic(bucket.url, range(8))
    options = {"branch": "audit", "tag": "audited"}
    small: dict[str, Any] = {"sizes": CopySizes(task_bytes=1, commit_bytes=1), "executor": map}
    for step in steps:
        folder = tmp_path / str(step)
        folder.mkdir()
        catalog = WatchedCatalog(folder)
        _commit_rows_of_others(catalog)

        def kill(number: int, step: int = step) -> None:
            if number + 1 >= step:
                raise Killed

        with mock.patch.object(iceberg, "load_catalog", return_value=catalog):
            try:
                with watched(kill):
                    _copy(bucket, options, **small)
            except Killed:
                _copy(bucket, options, **small)
            else:
                steps.passed()
        table = catalog.load_table(_NAME)
        for name in ("audit", "audited"):
            ref = table.metadata.refs[name]
            rows = table.scan(snapshot_id=ref.snapshot_id).to_arrow()
            assert sorted(rows["number"].to_pylist()) == [-1, *range(8)], step
        assert table.scan().to_arrow()["number"].to_pylist() == [-1]
        catalog.close()
    assert steps.count > 20


def _commit_rows_of_others(catalog: SqlCatalog) -> None:
    rows = pa.table({"number": [-1]})
    catalog.create_table(_NAME, rows.schema).append(rows)


def _copy(bucket: MemoryBucket, options: dict[str, str], **more: Any) -> int:  # noqa: ANN401
    arguments = {"schema": SCHEMA, "format": "iceberg", **more}
    [summary] = copy_topics(bucket.url, "orders", _NAME, table_options=options, **arguments)
    return summary.rows


# ---------------------------------------------------------------------------------- a new table


def test_properties_and_sort_order(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """A new table has them, maintenance sorts by them, and an existing table keeps its own."""
    options = _options(tmp_path)
    options |= {"sort-order": "country, number", "table-default.history.expire.min-snapshots": "3"}
    options["table-default.write.metadata.previous-versions-max"] = "7"
    write_topic(bucket.url, range(9))
    assert _copy(bucket, options) == 9
    write_topic(bucket.url, range(9, 20), append=True)
    assert _copy(bucket, options | {"sort-order": "number"}) == 11

    table = catalog.load_table(_NAME)
    assert table.properties["write.metadata.previous-versions-max"] == "7"
    assert table.properties["commit.manifest-merge.enabled"] == "true"
    columns = [
        table.schema().find_column_name(each.source_id) for each in table.sort_order().fields
    ]
    assert columns == ["country", "number"]

    maintain_table(_NAME, format="iceberg", table_options=options, settings=_MERGE)
    [file] = catalog.load_table(_NAME).scan().plan_files()
    rows = pq.read_table(file.file.file_path.removeprefix("file://"))
    assert rows.select(["country", "number"]).equals(
        rows.select(["country", "number"]).sort_by(
            [("country", "ascending"), ("number", "ascending")]
        )
    )


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("nowhere", "cannot be sorted by nowhere: no such column"),
        ("number,", "cannot be empty"),
        ("", "cannot be empty"),
    ],
)
def test_sort_orders_of_no_table(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path, order: str, message: str
) -> None:
    """They are refused before anything is written."""
    write_topic(bucket.url, range(3))

    with pytest.raises(OptionError, match=message):
        _copy(bucket, _options(tmp_path, **{"sort-order": order}))
    assert catalog.list_tables("shop") == []
    assert not (tmp_path / "lake").exists()


def test_the_identifier_of_latest_rows(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """A table with the latest row of each key is identified by it, so it is never null."""
    options = _options(tmp_path)
    rows = {"__key__": ["a", "b", None], "__value__": [b"1", b"2", b"3"]}
    write_messages(bucket.url, "orders", pa.table(rows))
    assert _copy(bucket, options, schema="BYTES", latest_per_key=True) == 2
    write_messages(
        bucket.url, "orders", pa.table({"__key__": ["a"], "__value__": [b"4"]}), append=True
    )
    assert _copy(bucket, options, schema="BYTES", latest_per_key=True) == 1

    table = catalog.load_table(_NAME)
    assert table.schema().identifier_field_names() == {"__key__"}
    assert sorted(table.scan().to_arrow()["__key__"].to_pylist()) == ["a", "b"]
    maintain_table(_NAME, format="iceberg", table_options=options, settings=_MERGE)
    assert sorted(catalog.load_table(_NAME).scan().to_arrow()["__key__"].to_pylist()) == ["a", "b"]


@pytest.mark.parametrize(
    ("type_", "expected"), [(pa.int64(), ["id", "text"]), (pa.float64(), [])], ids=str
)
def test_columns_that_cannot_identify_rows(type_: pa.DataType, expected: list[str]) -> None:
    """Floating-point numbers cannot; columns that may be null do not."""
    metadata = [{"PARQUET:field_id": str(number)} for number in (1, 2, 3)]
    columns = pa.schema(
        [
            pa.field("id", type_, nullable=False, metadata=metadata[0]),
            pa.field("n", pa.int64(), metadata=metadata[1]),
            pa.field("text", pa.string(), nullable=False, metadata=metadata[2]),
        ]
    )

    assert sorted(new_schema(columns, has_identifier=True).identifier_field_names()) == expected
    assert new_schema(columns, has_identifier=False).identifier_field_ids == []


def test_an_older_table_of_latest_rows(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """A table without an identifier, as earlier versions made it, is copied to."""
    options = _options(tmp_path)
    write_messages(bucket.url, "orders", pa.table({"__key__": ["a"], "__value__": [b"1"]}))
    _copy(bucket, options, schema="BYTES", latest_per_key=True)
    with catalog.load_table(_NAME).update_schema() as update:
        update.set_identifier_fields()
        update.make_column_optional("__key__")
    write_messages(
        bucket.url, "orders", pa.table({"__key__": ["a"], "__value__": [b"2"]}), append=True
    )

    assert _copy(bucket, options, schema="BYTES", latest_per_key=True) == 1
    assert catalog.load_table(_NAME).scan().to_arrow()["__key__"].to_pylist() == ["a"]


def test_properties_of_delta(bucket: MemoryBucket, tmp_path: Path) -> None:
    """A new table has those that start with `delta.`."""
    write_topic(bucket.url, range(3))
    target = str(tmp_path / "t")
    options = {"delta.logRetentionDuration": "interval 3 days"}

    copy_topics(bucket.url, "orders", target, schema=SCHEMA, table_options=options)

    assert deltalake.DeltaTable(target).metadata().configuration == options


def test_a_delta_table_that_takes_new_rows_only(bucket: MemoryBucket, tmp_path: Path) -> None:
    """No row of it is replaced, which the error says; its files may be merged."""
    target, options = str(tmp_path / "t"), {"delta.appendOnly": "true"}
    arguments: dict[str, Any] = {"schema": SCHEMA, "table_options": options}
    for numbers_ in (range(5), range(5, 8)):
        write_topic(bucket.url, numbers_, append=numbers_.start > 0)
        copy_topics(bucket.url, "orders", target, **arguments)
    assert maintain_table(target, settings=_MERGE).merged_files == 2

    latest = str(tmp_path / "latest")
    copy_topics(bucket.url, "orders", latest, latest_per_key=True, **arguments)
    write_topic(bucket.url, range(8, 10), append=True)
    with pytest.raises(LakeTableError, match="is append-only: set its property"):
        copy_topics(bucket.url, "orders", latest, latest_per_key=True, **arguments)
    assert len(deltalake.DeltaTable(latest).to_pyarrow_table()) == 5


def test_a_property_that_delta_does_not_know(bucket: MemoryBucket, tmp_path: Path) -> None:
    """The library refuses it, and no file remains."""
    write_topic(bucket.url, range(3))
    options = {"delta.logRetentionDuraton": "interval 3 days"}

    with pytest.raises(LakeTableError, match="logRetentionDuraton"):
        copy_topics(bucket.url, "orders", str(tmp_path / "t"), schema=SCHEMA, table_options=options)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("delta", "branch", "Delta tables have no branches"),
        ("delta", "tag", "Delta tables have no tags"),
        ("delta", "sort-order", "Delta tables have no sort order"),
        ("delta", "location", "named by the URL"),
        ("delta", "delta.minReaderVersion", "a copy cannot set"),
        ("delta", "delta.columnMapping.mode", "a copy cannot set"),
        ("delta", "table-default.x", "start with delta"),
        ("iceberg", "delta.appendOnly", "have the prefix table-default"),
        ("iceberg", "table-default.delta.appendOnly", "property of Delta tables"),
        ("parquet", "branch", "plain Parquet has none"),
        ("iceberg", "table-default.format-version", "cannot have the format version 'value'"),
    ],
)
def test_options_of_other_formats(kind: Any, name: str, message: str) -> None:  # noqa: ANN401
    """They are refused, rather than ignored."""
    with pytest.raises(OptionError, match=message):
        open_table(kind, "shop.t", None, {name: "value"})


def test_dead_letters_have_a_folder(
    bucket: MemoryBucket, catalog: SqlCatalog, tmp_path: Path
) -> None:
    """With a location of its own, the table does not share it with that of its dead letters."""
    options = _options(tmp_path, location=str(tmp_path / "own"))
    options["sort-order"] = "number"
    write_topic(bucket.url, range(20), with_odd=True)

    _copy(bucket, options, dead_letters=True)

    letters = catalog.load_table(f"{_NAME}_dead_letters")
    assert letters.location() == f"file://{tmp_path}/own_dead_letters"
    assert letters.sort_order().is_unsorted
    for name in (_NAME, f"{_NAME}_dead_letters"):
        maintain_table(name, format="iceberg", table_options=options, settings=_MERGE)


def test_one_folder_for_many_topics(bucket: MemoryBucket, tmp_path: Path) -> None:
    """A location cannot be that of each topic's table."""
    write_topic(bucket.url, range(2))

    with pytest.raises(OptionError, match="location is the folder of one table"):
        copy_topics(
            bucket.url,
            "orders",
            "shop.{topic}",
            format="iceberg",
            table_options=_options(tmp_path, location=str(tmp_path / "x")),
            schema=SCHEMA,
        )
