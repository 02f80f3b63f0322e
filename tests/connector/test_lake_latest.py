"""Tables that keep the latest row of each key have what a dictionary of all rows would have."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from arrow_io.errors import ConcurrentCopyError, LakeTableError, OptionError
from connector.lake.copy_plan import CopySizes
from connector.lake.replacement import LatestPerKey
from connector.tables import delta, iceberg
from connector.tables.delta import DeltaTable
from connector.tables.file_writer import FileSettings, FileWriter
from connector.tables.iceberg import IcebergTable
from connector.tables.table import Commit
from connector.tables.transforms import Partitioning
from tests.support.buckets import MemoryBucket
from tests.support.golden import golden_topic
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_rows import batches
from tests.support.latest_rows import (
    check_latest,
    copy_latest,
    plan_latest,
    write_keyed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask
    from connector.tables.evolution import TableKind

KINDS: Final[tuple[TableKind, ...]] = ("delta", "iceberg")
SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1, file_bytes=1)
"""A commit for each ledger, and a file for each row group."""
_KEYS: Final = st.none() | st.sampled_from(["a", "b", "", "a\nb", "0\na", "é", "b" * 70, "c/ %"])
_MESSAGES: Final = st.lists(
    st.tuples(_KEYS, st.none() | st.binary(max_size=3)), min_size=1, max_size=8
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    increments=st.lists(_MESSAGES, max_size=2),
    partitions=st.sampled_from([None, 2]),
    partition_by=st.sampled_from(
        [[], ["day(__publish_time__)"], ["bucket(3, __key__)"], ["__partition__"]]
    ),
    sizes=st.sampled_from([SMALL, CopySizes(), CopySizes(task_bytes=1)]),
    by_pattern=st.booleans(),
)
def test_a_dictionary_has_the_same(  # noqa: PLR0917 - Hypothesis names them
    kind: TableKind,
    increments: Sequence[Sequence[tuple[str | None, bytes | None]]],
    partitions: int | None,
    partition_by: list[str],
    sizes: CopySizes,
    by_pattern: bool,
) -> None:
    """Whatever the keys, however increments are cut and the table is divided."""
    if partition_by == ["__partition__"] and (by_pattern or partitions is None):
        partition_by = []
    topic = "order*" if by_pattern else "orders"
    bucket = MemoryBucket()
    with tempfile.TemporaryDirectory() as name, table_in(Path(name), kind) as table:
        first = 0
        options: dict[str, Any] = {"partition_by": partition_by, "sizes": sizes, "topic": topic}
        # Keys for both partitions: a topic whose last partition is empty cannot be appended to.
        for each in ([(key, b"0") for key in "abcd"], *increments):
            write_keyed(bucket.url, each, first=first, append=first > 0, partitions=partitions)
            first += len(each)
            summary = copy_latest(bucket.url, Path(name), kind, **options)
            check_latest(bucket.url, table, topic)
            keyless = sum(1 for key, _ in each if key is None)
            assert summary.keyless == keyless
            assert any("without a key" in notice for notice in summary.notices) == bool(keyless)
        assert copy_latest(bucket.url, Path(name), kind, **options).commits == 0
    bucket.drop()


@pytest.mark.parametrize("name", ["compacted", "small-compacted"])
def test_a_compacted_topic_has_the_same(name: str, tmp_path: Path) -> None:
    """The table has the rows that a broker compacted the topic to, for Pulsar's own client."""
    golden = golden_topic(name)
    url, metadata = str(golden.objects_folder), str(golden.folder.parent)
    copy_latest(url, tmp_path, "delta", name, metadata=metadata, sizes=SMALL)
    with table_in(tmp_path, "delta") as table:
        rows = read_back(table).to_pylist()
    with gzip.open(golden.folder / "compacted.jsonl.gz", "rt") as lines:
        seen = [json.loads(line) for line in lines]
    assert {(*_position(row), row["__key__"], row["__value__"].decode()) for row in rows} == {
        (each["ledger"], each["entry"], each["batch"], each["key"], each["value"]) for each in seen
    }
    assert len(rows) == len(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_the_other_sort_is_refused(
    kind: TableKind, bucket: MemoryBucket, tmp_path: Path
) -> None:
    """A table keeps all rows or the latest ones, from its first copy on, and the other writes."""
    for number, latest in enumerate((True, False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_keyed(bucket.url, [("a", b"1"), ("a", b"2")], append=number > 0)
        with table_in(folder, kind) as table:
            copy_latest(bucket.url, folder, kind, latest_per_key=latest)
            before, files = read_back(table).to_pylist(), set(folder.rglob("*"))
            for run in (copy_latest, plan_latest):
                with pytest.raises(OptionError, match="copy cannot change that") as refused:
                    run(bucket.url, folder, kind, latest_per_key=not latest)
                assert ("it with " if latest else "it without ") in str(refused.value)
            assert set(folder.rglob("*")) == files
            assert read_back(table).to_pylist() == before
            assert copy_latest(bucket.url, folder, kind, latest_per_key=latest).commits == 0


def test_what_tells_rows_apart_must_be_in_the_table(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Keys, and partitions or topics if there are several; nothing is written without them."""
    write_keyed(bucket.url, [("a", b"1")] * 4, partitions=2)
    write_keyed(bucket.url, [("a", b"1")], "other")
    for topic, missing in (
        ("other", "__key__"),
        ("orders", "__partition__"),
        ("o*", "__topic__"),
        (["orders", "other"], "__topic__"),
    ):
        columns = [each for each in ("__topic__", "__partition__", "__key__") if each != missing]
        with pytest.raises(OptionError, match=f"columns must include {missing}"):
            copy_latest(bucket.url, tmp_path, "delta", topic, columns=columns)
    with pytest.raises(OptionError, match="needs a Delta or Iceberg table"):
        copy_latest(bucket.url, tmp_path, "parquet", "other")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_columns_that_are_named(
    kind: TableKind, bucket: MemoryBucket, tmp_path: Path
) -> None:
    """Positions are staged, and are no columns unless someone names them; nor is the null flag."""
    write_keyed(bucket.url, [("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None)])
    names = ["__key", "value"]
    with table_in(tmp_path, kind) as table:
        copy_latest(bucket.url, tmp_path, kind, naming="pulsar-spark", columns=names)
        write_keyed(bucket.url, [("b", b"4"), ("c", b"5")], append=True)
        summary = copy_latest(bucket.url, tmp_path, kind, naming="pulsar-spark", columns=names)
        found = read_back(table)
    assert found.column_names == names
    assert sorted(found.to_pylist(), key=str) == [
        {"__key": key, "value": value} for key, value in [("a", b"3"), ("b", b"4"), ("c", b"5")]
    ]
    assert (summary.rows, summary.replaced) == (2, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_new_fields_widen_the_table(kind: TableKind, bucket: MemoryBucket, tmp_path: Path) -> None:
    """Rows from before, in files that are written again, have null there."""
    narrow = _record({"name": "n", "type": "long"})
    fields: list[dict[str, Any]] = [{"name": "x", "type": "long"}]
    inner = {"type": "record", "name": "At", "fields": fields}
    wide = _record({"name": "n", "type": "long"}, {"name": "at", "type": ["null", inner]})
    fields.append({"name": "y", "type": ["null", "string"]})
    wider = _record({"name": "n", "type": "long"}, {"name": "at", "type": ["null", inner]})
    options: dict[str, Any] = {"value": "flat", "partition_by": ["bucket(1, __key__)"]}
    with table_in(tmp_path, kind) as table:
        for first, schema in enumerate((narrow, wide, wider)):
            values = {"n": first, "at": {"x": first, "y": str(first)}}
            messages = [(key, json.dumps(values).encode()) for key in "abc"[first:]]
            write_keyed(bucket.url, messages, append=first > 0)
            copy_latest(bucket.url, tmp_path, kind, schema=schema, **options)
        rows = {row["__key__"]: (row["n"], row["at"]) for row in read_back(table).to_pylist()}
    assert rows == {"a": (0, None), "b": (1, {"x": 1, "y": None}), "c": (2, {"x": 2, "y": "2"})}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_moves_to_another_partition(
    kind: TableKind, bucket: MemoryBucket, tmp_path: Path
) -> None:
    """The partition of the older row, that of null too, loses it."""
    schema = _record({"name": "c", "type": ["null", "string"]}, {"name": "n", "type": "long"})
    options: dict[str, Any] = {"schema": schema, "partition_by": ["c", "n"], "value": "flat"}
    with table_in(tmp_path, kind) as table:
        for first, countries in enumerate(([None, "a/b", "DE"], ["DE", None, "DE"])):
            values = [{"c": each, "n": first} for each in countries]
            messages = [("xyz"[n], json.dumps(each).encode()) for n, each in enumerate(values)]
            write_keyed(bucket.url, messages[: 3 - first], append=first > 0)
            copy_latest(bucket.url, tmp_path, kind, **options)
        rows = {row["__key__"]: (row["c"], row["n"]) for row in read_back(table).to_pylist()}
        assert rows == {"x": ("DE", 1), "y": (None, 1), "z": ("DE", 0)}
        assert read_back(table).num_rows == 3


def test_manifests_do_not_pile_up(bucket: MemoryBucket, tmp_path: Path) -> None:
    """One that names no file which the table has is left out of the next snapshot."""
    with table_in(tmp_path, "iceberg") as table:
        assert isinstance(table, IcebergTable)
        for number in range(4):
            write_keyed(bucket.url, [("a", b"%d" % number)], append=number > 0)
            copy_latest(bucket.url, tmp_path, "iceberg")
        found = table.catalog.load_table(table.identifier)
        snapshot = found.current_snapshot()
        assert snapshot is not None
        # What was added last, and what was removed for that.
        assert len(snapshot.manifests(found.io)) == 2
        assert len(found.snapshots()) == 4
        check_latest(bucket.url, table)


def test_a_table_whose_progress_was_forgotten(bucket: MemoryBucket, tmp_path: Path) -> None:
    """All is copied again, and it keeps the latest rows as before."""
    write_keyed(bucket.url, [("a", b"1"), ("b", b"2"), ("a", b"3")])
    with table_in(tmp_path, "iceberg") as table:
        assert isinstance(table, IcebergTable)
        copy_latest(bucket.url, tmp_path, "iceberg")
        for snapshot in table.catalog.load_table(table.identifier).snapshots():
            found = table.catalog.load_table(table.identifier)
            found.append(found.scan().to_arrow().slice(0, 0))
            found.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        with found.transaction() as transaction:
            transaction.remove_properties("pulsar-offload.progress")
        with pytest.raises(OptionError, match="keeps the latest row of each key"):
            copy_latest(bucket.url, tmp_path, "iceberg", latest_per_key=False)
        assert copy_latest(bucket.url, tmp_path, "iceberg").replaced == 2
        check_latest(bucket.url, table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_replaces_nothing(
    kind: TableKind, bucket: MemoryBucket, tmp_path: Path
) -> None:
    """The latest row of a key is the latest that can be decoded; the other is told of."""
    options: dict[str, Any] = {"value": "flat", "schema": "INT64", "dead_letters": True}
    with table_in(tmp_path, kind) as table:
        for first, payload in enumerate((b"\0" * 8, b"no number")):
            write_keyed(bucket.url, [("a", payload), ("b", b"\0" * 8)], append=first > 0)
            summary = copy_latest(bucket.url, tmp_path, kind, **options)
            assert summary.dead_letters == first
        rows = read_back(table).to_pylist()
    first_ledger = min(row["__ledger_id__"] for row in rows)
    assert {(row["__key__"], row["__ledger_id__"] == first_ledger) for row in rows} == {
        ("a", True),
        ("b", False),
    }


@pytest.mark.parametrize("key", ["a/b c%\u00fc", "x:y=z", "#?&", "'"])
def test_names_of_folders_that_are_escaped(key: str, bucket: MemoryBucket, tmp_path: Path) -> None:
    """A file in such a folder is removed as its log names it."""
    with table_in(tmp_path, "delta") as table:
        for first, value in enumerate((b"1", b"2")):
            write_keyed(bucket.url, [(key, value)], append=first > 0)
            copy_latest(bucket.url, tmp_path, "delta", partition_by=["__key__"])
            check_latest(bucket.url, table)
        assert [row["__value__"] for row in read_back(table).to_pylist()] == [b"2"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partition_by", [[], ["bucket(5, __key__)"], ["__partition__"]])
def test_only_files_that_may_have_the_keys_are_read(
    kind: TableKind,
    partition_by: list[str],
    bucket: MemoryBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounds of keys, of partitions, and buckets rule files out."""
    read: list[Sequence[str] | None] = []
    for module in (delta, iceberg):
        read_file = module.read_file

        def reading(*args: Any, read_file: Any = read_file) -> Any:  # noqa: ANN401
            read.append(args[3] if len(args) > 3 else None)
            return read_file(*args)

        monkeypatch.setattr(module, "read_file", reading)
    options: dict[str, Any] = {"partition_by": partition_by}
    with table_in(tmp_path, kind) as table:
        # A commit, and a file at least, for each two keys.
        for first in range(0, 8, 2):
            messages = [(f"k{n:02}", b"1") for n in (first, first + 1) for _ in range(2)]
            write_keyed(bucket.url, messages, append=first > 0, partitions=2)
            copy_latest(bucket.url, tmp_path, kind, **options)
        read.clear()
        write_keyed(bucket.url, [("k05", b"2")], append=True, partitions=2)
        summary = copy_latest(bucket.url, tmp_path, kind, **options)
        check_latest(bucket.url, table)
    assert summary.replaced == 1
    # The file with the key: the columns that tell rows apart, and then all if there are others.
    assert 1 <= len(read) <= 2
    assert read[0] == ["__partition__", "__key__"]


def test_tables_with_rows_that_files_do_not_tell_of(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Files whose rows were deleted by a vector are not written again, as though they were not."""
    write_keyed(bucket.url, [("a", b"1")])
    copy_latest(bucket.url, tmp_path, "delta")
    features = deltalake.TableFeatures.DeletionVectors
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    table.alter.add_feature(features, allow_protocol_versions_increase=True)
    write_keyed(bucket.url, [("a", b"2")], append=True)
    with pytest.raises(LakeTableError, match="if it has deletionVectors"):
        copy_latest(bucket.url, tmp_path, "delta")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_that_was_staged(
    kind: TableKind, bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither behind a commit nor behind an error, wherever that comes from."""
    write_keyed(bucket.url, [("a", b"1"), ("b", b"2"), ("a", b"3")] * 3)
    with table_in(tmp_path, kind) as table:
        summary = copy_latest(bucket.url, tmp_path, kind, sizes=CopySizes(task_bytes=1))
        found = set(tmp_path.rglob("*.parquet"))
        assert len(found) == summary.files == 1
        write_keyed(bucket.url, [("a", b"4"), (None, b"5")] * 3, append=True)
        class_ = type(table)
        for name in ("data_files", "file_reader", "commit"):
            with monkeypatch.context() as patches:
                error = LakeTableError("no")
                patches.setattr(class_, name, _raising(error))
                with pytest.raises(LakeTableError, match="no"):
                    copy_latest(bucket.url, tmp_path, kind)
            assert set(tmp_path.rglob("*.parquet")) == found
        copy_latest(bucket.url, tmp_path, kind)
        check_latest(bucket.url, table)


@pytest.mark.parametrize("what", ["delete", "compact", "append", "iceberg-delete"])
def test_whoever_changes_the_table_meanwhile_goes_first(
    what: str, bucket: MemoryBucket, tmp_path: Path
) -> None:
    """Rows of a file that others wrote again are not added once more; the next run goes on."""
    kind: TableKind = "iceberg" if what.startswith("iceberg") else "delta"
    with table_in(tmp_path, kind) as table:
        for number, keys in enumerate(("ab", "cd", "a")):
            write_keyed(bucket.url, [(key, b"1") for key in keys], append=number > 0)
            if number < 2:
                copy_latest(bucket.url, tmp_path, kind)

        def overtaken(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
            for each in tasks:
                yield write(each)
            if isinstance(table, IcebergTable):
                table.catalog.load_table(table.identifier).delete("__key__ = 'b'")
                return
            found = deltalake.DeltaTable(table.location.url)
            if what == "compact":
                assert found.optimize.compact()["numFilesRemoved"] == 2
            elif what == "delete":
                found.delete("__key__ = 'b'")
            else:
                deltalake.write_deltalake(
                    found, found.to_pyarrow_table().slice(0, 0), mode="append"
                )

        with pytest.raises(ConcurrentCopyError):
            copy_latest(bucket.url, tmp_path, kind, executor=overtaken)
        assert copy_latest(bucket.url, tmp_path, kind).replaced == 1
        keys = "".join(sorted(row["__key__"] for row in read_back(table).to_pylist()))
    assert keys == ("acd" if "delete" in what else "abcd")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(batch=batches(), others=st.sets(st.integers(0, 5), min_size=1))
def test_rows_that_are_written_again_stay_as_they_are(
    kind: TableKind, batch: pa.RecordBatch, others: set[int]
) -> None:
    """Of every type that a table keeps, null and nested, while rows beside them go."""
    # Two rows of nulls stand behind those that Hypothesis chose.
    count = batch.num_rows + 2
    whole = pa.table({"__key__": [f"k{n}" for n in range(count)], "n": range(count)})
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        column = pa.chunked_array([values, pa.nulls(2, values.type)])
        whole = whole.append_column(f"v_{name}", column)
    with tempfile.TemporaryDirectory() as name, table_in(Path(name), kind) as table:
        assert isinstance(table, DeltaTable | IcebergTable)
        latest = LatestPerKey(table, ("__key__",))
        try:
            _commit(table, kind, latest, whole, range(count))
        except LakeTableError as error:
            # `deltalake` does not see a time without a zone inside of another type.
            assert "timestampNtz" in str(error)  # noqa: PT017 - any other is a fault
            reject()
        before = read_back(table)
        gone = whole.filter(pc.is_in(whole["n"], pa.array(sorted(others), pa.int64())))
        _commit(table, kind, latest, gone, ())
        kept = read_back(table)
    places = pc.index_in(kept["n"], before["n"])
    assert kept.equals(before.take(places).cast(kept.schema))
    assert sorted(kept["n"].to_pylist()) == [n for n in range(count) if n not in others]


def _commit(
    table: DeltaTable | IcebergTable,
    kind: TableKind,
    latest: LatestPerKey,
    rows: pa.Table,
    kept: Collection[int],
) -> None:
    """Commit rows as those of an increment; those of numbers that are not kept remove their key."""
    standing = table.read_state()
    schema = table.storable(rows.schema, standing)
    files = FileSettings(table.location, table.data_prefix, schema, Partitioning(), kind)
    numbers = range(len(rows))
    staged = rows
    for name, values in {
        "__ledger_id__": pa.array([1] * len(rows), pa.int64()),
        "__entry_id__": pa.array(numbers, pa.int64()),
        "__batch_index__": pa.nulls(len(rows), pa.int32()),
        "__null_value__": pa.array([n not in kept for n in rows["n"].to_pylist()], pa.bool_()),
    }.items():
        staged = staged.append_column(name, values)
    with FileWriter(latest.staging(files)) as writer:
        for each in staged.to_batches():
            writer.write(each)
        written = writer.finish()
    change = latest.write_replacement(written, files, standing)
    before = None if standing is None else standing.progress
    after = f"{before}+"
    commit = Commit(change.files, schema, Partitioning(), before, after, {}, change.removed)
    table.commit(commit, standing)


def _position(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["__ledger_id__"], row["__entry_id__"], row["__batch_index__"]


def _record(*fields: dict[str, Any]) -> dict[str, str]:
    record = {"type": "record", "name": "Order", "fields": list(fields)}
    return {"type": "JSON", "schema": json.dumps(record)}


def _raising(error: Exception) -> Callable[..., Any]:
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising
