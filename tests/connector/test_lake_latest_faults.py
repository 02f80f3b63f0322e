"""Whatever stops a copy of the latest rows, or runs beside it: the table has those rows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from arrow_io.errors import (
    ConcurrentCopyError,
    LakeTableError,
    OptionError,
    StorageError,
)
from connector.tables import iceberg
from connector.tables.iceberg import IcebergTable
from tests.support.buckets import MemoryBucket
from tests.support.lake_kinds import read_back, table_in
from tests.support.latest_rows import check_latest, copy_latest, write_keyed
from tests.support.stopped_iceberg import Killed, WatchedCatalog, watched

if TYPE_CHECKING:
    from pathlib import Path

_FIRST = [("a", b"1"), ("b", b"2"), ("c", b"3")]
_SECOND = [("b", b"4"), ("c", None), ("d", b"5")]
_OTHER = "persistent://public/default/other"


def _standing(bucket: MemoryBucket, folder: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergTable:
    """An Iceberg table that an increment was copied to; the next one replaces and removes rows."""
    folder.mkdir()
    catalog = WatchedCatalog(folder)
    monkeypatch.setattr(iceberg, "load_catalog", lambda *_, **__: catalog)
    write_keyed(bucket.url, _FIRST)
    copy_latest(bucket.url, folder, "iceberg", partition_by=["bucket(2, __key__)"])
    write_keyed(bucket.url, _SECOND, append=True)
    return IcebergTable(catalog, "shop.t")


@pytest.mark.parametrize("what", ["killed", "overtaken"])
def test_at_each_request_of_iceberg(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is killed, or another one is quicker; of both there is one more snapshot."""
    for stop in range(1, 100, 3):
        bucket, folder = MemoryBucket(), tmp_path / str(stop)
        table = _standing(bucket, folder, monkeypatch)
        happened: list[int] = []

        def happen(number: int, stop: int = stop, happened: list[int] = happened) -> None:
            if number >= stop:
                happened.append(number)
                if what == "killed":
                    raise Killed
                if number == stop:
                    copy_latest(bucket.url, folder, "iceberg")  # noqa: B023 - not called later

        with watched(happen), suppress(Killed, ConcurrentCopyError):
            copy_latest(bucket.url, folder, "iceberg")
        copy_latest(bucket.url, folder, "iceberg")
        check_latest(bucket.url, table)
        assert len(table.catalog.load_table("shop.t").snapshots()) == 2
        bucket.drop()
        table.catalog.close()
        if not happened:
            break
    assert stop > 8


@pytest.mark.parametrize("is_made", [True, False])
def test_a_commit_to_delta_without_an_answer(
    is_made: bool, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number in the log tells whether it was made, and it is not made again."""
    write = deltalake.DeltaTable.create_write_transaction

    def failing(*args: Any, **options: Any) -> None:  # noqa: ANN401
        if is_made:
            write(*args, **options)
        message = "no answer"
        raise OSError(message)

    write_keyed(bucket.url, _FIRST)
    copy_latest(bucket.url, tmp_path, "delta")
    write_keyed(bucket.url, _SECOND, append=True)
    with table_in(tmp_path, "delta") as table:
        with monkeypatch.context() as patches:
            patches.setattr(deltalake.DeltaTable, "create_write_transaction", failing)
            if is_made:
                assert copy_latest(bucket.url, tmp_path, "delta").replaced == 2
            else:
                with pytest.raises(StorageError, match="no answer"):
                    copy_latest(bucket.url, tmp_path, "delta")
        assert copy_latest(bucket.url, tmp_path, "delta").commits == (not is_made)
        check_latest(bucket.url, table)


def test_rows_rewritten_before_a_delta_table_is_widened(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are added behind a commit of others, which files then may be gone by."""
    write_keyed(bucket.url, _FIRST)
    copy_latest(bucket.url, tmp_path, "delta")
    write_keyed(bucket.url, [("e", b"1")], append=True)
    copy_latest(bucket.url, tmp_path, "delta")
    write_keyed(bucket.url, _SECOND, append=True)
    add_columns = deltalake.table.TableAlterer.add_columns

    def overtaken(*args: Any) -> None:  # noqa: ANN401
        deltalake.DeltaTable(str(tmp_path / "t")).optimize.compact()
        add_columns(*args)

    columns = ["*", "__sequence_id__", "__schema_version__"]
    with table_in(tmp_path, "delta") as table:
        with monkeypatch.context() as patches:
            patches.setattr(deltalake.table.TableAlterer, "add_columns", overtaken)
            with pytest.raises(ConcurrentCopyError, match="at the same time"):
                copy_latest(bucket.url, tmp_path, "delta", columns=columns)
        copy_latest(bucket.url, tmp_path, "delta", columns=columns)
        check_latest(bucket.url, table)


@pytest.mark.parametrize("partitions", [None, 2])
def test_a_topic_whose_keys_cannot_be_told_from_those_there(
    partitions: int | None, bucket: MemoryBucket, tmp_path: Path
) -> None:
    """It is refused before anything is written: its rows would take the place of the others'."""
    write_keyed(bucket.url, _FIRST, partitions=partitions)
    write_keyed(bucket.url, _SECOND, _OTHER, partitions=partitions)
    with table_in(tmp_path, "delta") as table:
        copy_latest(bucket.url, tmp_path, "delta")
        files = set(tmp_path.rglob("*"))
        with pytest.raises(OptionError, match=r"cannot distinguish keys of .*other.* from"):
            copy_latest(bucket.url, tmp_path, "delta", _OTHER)
        assert set(tmp_path.rglob("*")) == files
        assert copy_latest(bucket.url, tmp_path, "delta").commits == 0
        check_latest(bucket.url, table)


def test_a_table_that_others_made(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Its rows must have a column of keys, though files may be older than that."""
    write_keyed(bucket.url, _FIRST)
    deltalake.write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
    with pytest.raises(LakeTableError, match="has no column __key__"):
        copy_latest(bucket.url, tmp_path, "delta")

    table = deltalake.DeltaTable(tmp_path / "t")
    table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema({"__key__": pa.string()})).fields)
    deltalake.write_deltalake(table, pa.table({"x": [2], "__key__": ["a"]}), mode="append")
    summary = copy_latest(bucket.url, tmp_path, "delta")
    assert (summary.rows, summary.replaced) == (3, 1)
    with table_in(tmp_path, "delta") as opened:
        keys = read_back(opened)["__key__"].to_pylist()
    assert sorted(map(str, keys)) == ["None", "a", "b", "c"]


def test_topics_that_come_to_a_table_of_several(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Each row there says which topic it is of."""
    write_keyed(bucket.url, _FIRST)
    with table_in(tmp_path, "delta") as table:
        copy_latest(bucket.url, tmp_path, "delta", "*")
        write_keyed(bucket.url, _SECOND, _OTHER)
        copy_latest(bucket.url, tmp_path, "delta", [_OTHER, "*"])
        check_latest(bucket.url, table, "*")
