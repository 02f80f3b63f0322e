"""Maintenance of Iceberg tables: which snapshots expire, and which files are deleted."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import LakeTableError
from connector.tables import iceberg_upkeep
from connector.tables.iceberg import IcebergTable
from connector.tables.iceberg_options import IcebergOptions
from tests.connector.test_lake_iceberg import copy, numbers, numbers_in, sql_catalog
from tests.support.lake_tables import staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

_NAME: Final = "shop.orders"
_LATER: Final = timedelta(hours=1)


@pytest.fixture(name="catalog")
def _catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog of its own."""
    catalog = sql_catalog(tmp_path)
    yield catalog
    catalog.close()


def _commit(catalog: SqlCatalog, number: int, options: IcebergOptions | None = None) -> None:
    """Commit one row as a copy does; the number is also the progress."""
    copy(catalog, numbers(number), str(number), options=options)


def _numbers_of(table: Table, name: str) -> list[int]:
    snapshot = table.snapshot_by_name(name)
    assert snapshot is not None
    rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return sorted(rows["n"].to_pylist())


def _snapshots(catalog: SqlCatalog) -> int:
    return len(catalog.load_table(_NAME).snapshots())


def _expire(catalog: SqlCatalog) -> int:
    table = IcebergTable(catalog, _NAME)
    return table.expire_versions(datetime.now(UTC) + _LATER, timedelta(), dry_run=False)


@pytest.mark.parametrize(
    ("properties", "remaining"),
    [
        ({}, 1),
        ({"history.expire.min-snapshots-to-keep": "3"}, 3),
        ({"history.expire.min-snapshots-to-keep": "99"}, 5),
        ({"history.expire.max-snapshot-age-ms": "1"}, 1),
        ({"history.expire.max-snapshot-age-ms": str(2 * 3_600_000)}, 5),
    ],
)
def test_snapshots_that_a_table_keeps(
    catalog: SqlCatalog, properties: dict[str, str], remaining: int
) -> None:
    """The table's own properties protect snapshots from an age that would let them expire."""
    for number in range(5):
        _commit(catalog, number, IcebergOptions(properties=properties))

    assert _expire(catalog) == 5 - remaining
    assert _snapshots(catalog) == remaining


def test_branches_and_tags_keep_their_snapshots(catalog: SqlCatalog) -> None:
    """A tag keeps its snapshot, and a branch as many as it says, or all that are young."""
    _commit(catalog, 0, IcebergOptions(tag="first"))
    for number in range(1, 4):
        _commit(catalog, number)
    table = catalog.load_table(_NAME)
    head = table.current_snapshot()
    assert head is not None
    branch = table.manage_snapshots().create_branch(
        head.snapshot_id, "two", min_snapshots_to_keep=2
    )
    branch.commit()
    for number in range(4, 7):
        _commit(catalog, number)

    assert _expire(catalog) == 3
    table = catalog.load_table(_NAME)
    assert _numbers_of(table, "first") == [0]
    assert _numbers_of(table, "two") == [0, 1, 2, 3]
    assert numbers_in(catalog) == list(range(7))
    names = IcebergTable(catalog, _NAME).delete_unneeded(datetime.now(UTC) + _LATER, dry_run=False)
    assert names
    assert _numbers_of(catalog.load_table(_NAME), "first") == [0]
    assert numbers_in(catalog) == list(range(7))


def test_two_tables_in_one_folder(catalog: SqlCatalog, tmp_path: Path) -> None:
    """Neither deletes files of the other: maintenance refuses, and says what to do."""
    folder = str(tmp_path / "shared")
    tables = [IcebergTable(catalog, name, folder) for name in ("shop.one", "shop.two")]
    for table in tables:
        for number in range(3):
            state = table.read_state()
            table.commit(staged(table, state, numbers(number), str(number)), state)

    for table in tables:
        table.expire_versions(datetime.now(UTC) + _LATER, timedelta(), dry_run=False)
        for dry_run in (True, False):
            with pytest.raises(LakeTableError, match="has metadata of another table"):
                table.delete_unneeded(datetime.now(UTC) + _LATER, dry_run=dry_run)
    for table in tables:
        rows = catalog.load_table(table.identifier).scan().to_arrow()
        assert sorted(rows["n"].to_pylist()) == [0, 1, 2]


def test_young_metadata_of_another_table(catalog: SqlCatalog, tmp_path: Path) -> None:
    """Old files are not deleted either while another table has just begun."""
    folder = str(tmp_path / "shared")
    one, two = (IcebergTable(catalog, name, folder) for name in ("shop.one", "shop.two"))
    for table in (one, two):
        state = table.read_state()
        table.commit(staged(table, state, numbers(1), "1"), state)
    cut = datetime.now(UTC) - _LATER
    for path in (tmp_path / "shared").rglob("*.parquet"):
        os.utime(path, (0, 0))

    with pytest.raises(LakeTableError, match="has metadata of another table"):
        one.delete_unneeded(cut, dry_run=False)


def test_metadata_of_no_table(catalog: SqlCatalog, tmp_path: Path) -> None:
    """A metadata file that a killed run left half written, or never committed, is deleted."""
    _commit(catalog, 1)
    folder = tmp_path / "lake" / "shop" / "orders" / "metadata"
    [current] = folder.glob("*.metadata.json")
    data = current.read_bytes()
    names = {
        "00001-a.metadata.json": data,
        "00001-b.metadata.json": data[:-5],
        "00001-c.gz.metadata.json": gzip.compress(data),
        "00001-d.gz.metadata.json": gzip.compress(data)[:-9],
        "00001-e.metadata.json": b"[]",
        "00001-f.metadata.json": b"[" * 100_000,
        "v1.metadata.json.gz": gzip.compress(data)[:20] + b"no block" + bytes(40),
    }
    for name, content in names.items():
        (folder / name).write_bytes(content)
    table = IcebergTable(catalog, _NAME)

    deleted = table.delete_unneeded(datetime.now(UTC) + _LATER, dry_run=False)
    assert set(deleted) == {f"metadata/{name}" for name in names}

    other = data.replace(str(catalog.load_table(_NAME).metadata.table_uuid).encode(), b"other")
    (folder / "v2.metadata.json.gz").write_bytes(gzip.compress(other))
    (folder / "orphan.avro").write_bytes(b"")
    with pytest.raises(LakeTableError, match=r"another table, such as metadata/v2\."):
        table.delete_unneeded(datetime.now(UTC) + _LATER, dry_run=False)
    assert (folder / "orphan.avro").exists()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_long_metadata(
    pack: Callable[[bytes], bytes],
    catalog: SqlCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not unpacked beyond a limit; it may be that of another table, so nothing is deleted."""
    _commit(catalog, 1)
    monkeypatch.setattr(iceberg_upkeep, "_MAX_METADATA_BYTES", 1 << 16)
    folder = tmp_path / "lake" / "shop" / "orders" / "metadata"
    for length in (1 << 16, (1 << 16) + 1):
        (folder / "v1.metadata.json.gz").write_bytes(pack(b" " * length))
        (folder / "orphan.avro").write_bytes(b"")
        table = IcebergTable(catalog, _NAME)
        if length == 1 << 16:
            names = table.delete_unneeded(datetime.now(UTC) + _LATER, dry_run=False)
            assert set(names) == {"metadata/v1.metadata.json.gz", "metadata/orphan.avro"}
            continue
        with pytest.raises(LakeTableError, match=r"v1\.metadata\.json\.gz is longer than 65\.5 kB"):
            table.delete_unneeded(datetime.now(UTC) + _LATER, dry_run=False)
        assert (folder / "orphan.avro").exists()
