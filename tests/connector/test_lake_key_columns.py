"""Rows are identified by columns of any type, whoever wrote the files of the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import LakeTableError
from connector import copy_topics, write_messages
from connector.tables import iceberg_files
from connector.tables.iceberg import IcebergTable
from tests.support.lake_kinds import read_back, table_in
from tests.support.latest_rows import catalog_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connector.tables.evolution import TableKind
    from tests.support.buckets import MemoryBucket

_TYPES: Final = {
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "flag": "boolean",
    "text": "string",
    "number": "long",
    "version": "int",
}
_KEY: Final = tuple(name for name in _TYPES if name != "version")
_ROWS: Final[tuple[dict[str, Any], ...]] = (
    {"at": 1, "day": 0, "price": 1.5, "flag": True, "text": "", "number": 1, "version": 0},
    {"at": -(10**6), "day": -1, "price": 0, "flag": False, "text": "é", "number": -1, "version": 0},
)


def _write_as_spark(folder: Path) -> None:
    """Encode all files as Spark does: without Arrow's schema, and Delta's times as INT96."""
    sizes = {}
    for path in folder.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read()
        is_delta = (folder / "t").exists()
        pq.write_table(rows, path, store_schema=False, use_deprecated_int96_timestamps=is_delta)
        sizes[path.name] = path.stat().st_size
    for log in folder.rglob("_delta_log/*.json"):
        actions = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        for each in actions:
            if "add" in each:
                each["add"]["size"] = sizes[each["add"]["path"].rpartition("/")[2]]
        log.write_text("\n".join(map(json.dumps, actions)), "utf-8")


def _write(bucket: MemoryBucket, rows: Sequence[dict[str, Any]], *, append: bool = False) -> None:
    values = pa.array([json.dumps(each).encode() for each in rows], pa.binary())
    write_messages(bucket.url, "orders", pa.table({"__value__": values}), append=append)


def _options(folder: Path, kind: TableKind) -> dict[str, Any]:
    place: dict[str, Any] = {"target": f"{folder}/t"}
    if kind == "iceberg":
        place = {"target": "shop.t", "table_options": catalog_options(folder)}
    return {"format": kind, **place}


def _schema() -> dict[str, str]:
    fields = [{"name": name, "type": each} for name, each in _TYPES.items()]
    record = {"type": "record", "name": "Order", "fields": fields}
    return {"type": "JSON", "schema": json.dumps(record)}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("key_columns", "partition_by"),
    [
        (["at"], []),
        (["at"], ["at"]),
        (["price"], []),
        (["text"], ["bucket(3, text)"]),
        (_KEY, []),
        (_KEY, ["day", "price"]),
        (_KEY, ["flag", "number"]),
    ],
    ids=str,
)
def test_a_row_is_replaced_in_a_file_of_another_writer(
    kind: TableKind,
    key_columns: Sequence[str],
    partition_by: list[str],
    bucket: MemoryBucket,
    tmp_path: Path,
) -> None:
    """Values of a key are the same in each of the forms in which files store them."""
    options: dict[str, Any] = {
        "schema": _schema(),
        "latest_per_key": True,
        "key_columns": list(key_columns),
    }
    with table_in(tmp_path, kind) as table:
        place = _options(tmp_path, kind)
        _write(bucket, _ROWS)
        copy_topics(bucket.url, "orders", partition_by=partition_by, **place, **options)
        _write_as_spark(tmp_path)
        _write(bucket, [_ROWS[0] | {"version": 1}], append=True)

        [summary] = copy_topics(bucket.url, "orders", **place, **options)

        assert (summary.rows, summary.replaced, summary.keyless) == (1, 1, 0)
        rows = read_back(table).to_pylist()
        assert sorted((row["number"], row["version"]) for row in rows) == [(-1, 0), (1, 1)]


@pytest.mark.parametrize("text", ["", "[", '"at"', '{"at": 1}', "[1]", "[" * 100_000])
def test_key_columns_that_were_changed(text: str, bucket: MemoryBucket, tmp_path: Path) -> None:
    """They are an error that names the property, and nothing is copied."""
    options: dict[str, Any] = {"schema": _schema(), "latest_per_key": True, "key_columns": ["at"]}
    with table_in(tmp_path, "iceberg") as table:
        assert isinstance(table, IcebergTable)
        _write(bucket, _ROWS)
        copy_topics(bucket.url, "orders", **_options(tmp_path, "iceberg"), **options)
        with table.catalog.load_table("shop.t").transaction() as transaction:
            transaction.set_properties({"pulsar-offload.key-columns": text})
        with pytest.raises(LakeTableError, match=r"cannot read the property .*key-columns"):
            copy_topics(bucket.url, "orders", **_options(tmp_path, "iceberg"), **options)


@pytest.mark.parametrize("column", ["number", "text"])
def test_bounds_that_are_malformed(
    column: str, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with them is read, because it may have any keys."""
    options: dict[str, Any] = {"schema": _schema(), "latest_per_key": True, "key_columns": [column]}
    place = _options(tmp_path, "iceberg")
    with table_in(tmp_path, "iceberg") as table:
        _write(bucket, _ROWS)
        with monkeypatch.context() as patch:
            patch.setattr(iceberg_files, "to_bytes", lambda *_: b"\xff")
            copy_topics(bucket.url, "orders", **place, **options)
        _write(bucket, [_ROWS[0] | {"version": 1}], append=True)
        [summary] = copy_topics(bucket.url, "orders", **place, **options)
        assert (summary.rows, summary.replaced) == (1, 1)
        assert sorted(read_back(table)["version"].to_pylist()) == [0, 1]
