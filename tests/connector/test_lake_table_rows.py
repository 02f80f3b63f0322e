"""A read with `lake` returns the rows of a read of the bucket, whatever the table has of them."""

from __future__ import annotations

import json
import pickle
import re
import struct
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptProgressError,
    IncompleteReadWarning,
    LakeTableError,
    MissingObjectError,
    OptionError,
    PayloadDecodeError,
    UnusedTableWarning,
)
from arrow_io.messages.message_metadata import Message
from arrow_io.storage.location import Location
from connector import (
    copy_topics,
    maintain_table,
    open_topic,
    register_duckdb,
    reprocess_dead_letters,
    write_messages,
)
from connector.increments.increment import _Step
from connector.increments.progress import Progress
from connector.increments.settled import position_after
from connector.inputs.bounds import Bounds
from connector.lake.copy_plan import CopySizes
from connector.lake.maintenance import MaintenanceSettings
from connector.scan.parts import PartReader, plan_parts
from connector.scan.plan_table import plan_table
from connector.scan.topic_read import EntryRange
from connector.tables.copied_rows import CopiedRows
from connector.tables.table_kinds import KINDS
from tests.support.buckets import TOPIC, memory_bucket
from tests.support.golden import golden_topic
from tests.support.lake_copies import COLUMNS, SCHEMA, write_topic
from tests.support.lake_kinds import table_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.storage.object_store import ObjectContent
    from connector import TopicDataset
    from connector.scan.topic_read import TopicRead
    from connector.tables.evolution import TableKind
    from tests.support.buckets import MemoryBucket
    from tests.support.s3_server import S3Server

_FIRST_TIME: Final = datetime.fromtimestamp(1_700_000_000, UTC)
_STEP: Final = timedelta(seconds=10_000)
"""Time between messages that `write_topic` numbers consecutively."""
_GOLDEN: Final = (
    "json-orders",
    "avro-evolved",
    "avro-logical",
    "protobuf-native",
    "kv-json-inline",
    "chunked",
    "transactions",
    "multi-ledger",
    "multi-block",
    "local-date",
)


def _options(folder: Path, kind: TableKind) -> dict[str, Any]:
    """Return the options `lake` and `lake_options` of the table of `table_in`."""
    if kind != "iceberg":
        return {"lake": str(folder / "t"), "lake_options": {"format": kind}}
    warehouse = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
    return {"lake": "shop.t", "lake_options": {"format": kind, "type": "sql", **warehouse}}


def _copy(url: str, folder: Path, kind: TableKind, **options: Any) -> None:  # noqa: ANN401
    """Copy a topic to the table of a folder."""
    given = {"topic": TOPIC, "schema": SCHEMA} | options
    own = _options(folder, kind)
    table_options = {n: each for n, each in own["lake_options"].items() if n != "format"}
    copy_topics(
        url, given.pop("topic"), own["lake"], format=kind, table_options=table_options, **given
    )


def _rows(table: pa.Table) -> list[str]:
    """Return the rows in an order of their own, because a table has none."""
    return sorted(map(repr, table.to_pylist()))


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedTableWarning)
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", _GOLDEN)
def test_golden_topics(name: str, kind: TableKind, tmp_path: Path) -> None:
    """The table has all rows, whatever the topic holds."""
    topic = golden_topic(f"persistent://public/default/{name}")
    url, schemas = str(topic.objects_folder), topic.folder / "schemas-rest.json"
    options: dict[str, Any] = {"schema": str(schemas)} if schemas.exists() else {"value": "raw"}
    with table_in(tmp_path, kind):
        _copy(url, tmp_path, kind, topic=topic.name, sizes=CopySizes(task_bytes=1), **options)
        plain = open_topic(url, topic.name, **options)
        joined = open_topic(url, topic.name, **options, **_options(tmp_path, kind))
        with _without_warnings():
            expected = plain.to_table(joined.schema.names)
            assert _rows(joined.to_table()) == _rows(expected)
            assert joined.count_rows() == plain.count_rows()


def _steps(read: TopicRead, index: int, ledger: Ledger, first: int) -> Iterator[_Step]:
    """Yield each entry as the step of an increment, with a size of one byte."""
    for last in range(first, ledger.last_entry_id + 1):
        ranges = read.intersect_ranges(EntryRange(ledger.ledger_id, last, last))
        yield _Step(index, ledger.ledger_id, position_after(ledger, last), 1, bool(ranges))


@pytest.mark.parametrize("name", ["chunked", "transactions", "multi-ledger"])
def test_boundaries_in_a_topic(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A boundary may divide the chunks of a message, or the messages of a transaction."""
    topic = golden_topic(f"persistent://public/default/{name}")
    url = str(topic.objects_folder)
    plain = open_topic(url, topic.name, value="raw")
    numbers: list[int] = []

    def check(*_: int) -> None:
        if not any(tmp_path.rglob("manifest-*.json")):
            return
        joined = open_topic(url, topic.name, value="raw", **_options(tmp_path, "parquet"))
        with _without_warnings():
            found = joined.to_table()
        assert _rows(found) == _rows(plain.to_table(joined.schema.names))
        assert joined.scan.table_read is not None
        numbers.append(joined.scan.table_read.rows or 0)

    monkeypatch.setattr("connector.increments.increment._steps", _steps)
    options = {"topic": topic.name, "schema": None, "value": "raw", "on_progress": check}
    _copy(url, tmp_path, "parquet", sizes=CopySizes(commit_bytes=12), **options)
    check()
    assert len({*numbers}) > 5
    assert numbers[-1] == plain.count_rows()


@dataclass
class _Lake:
    """A topic that grows, and a table that it is copied to now and then."""

    bucket: MemoryBucket
    folder: Path
    kind: TableKind
    written: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def append(self, numbers: list[int], *, with_odd: bool = False) -> None:
        is_first = not self.written
        write_topic(self.bucket.url, numbers, append=not is_first, with_odd=with_odd)
        self.written += len(numbers)

    def copy(self, **options: Any) -> None:  # noqa: ANN401
        _copy(self.bucket.url, self.folder, self.kind, **options)

    def maintain(self, **keep: timedelta) -> None:
        own = _options(self.folder, self.kind)
        table_options = {n: each for n, each in own["lake_options"].items() if n != "format"}
        newest = _FIRST_TIME + self.written * _STEP
        changes = MaintenanceSettings(min_files=2, **keep)  # type: ignore[arg-type]
        maintain_table(
            own["lake"],
            format=self.kind,
            table_options=table_options,
            settings=changes,
            now=newest,
        )

    def open(self, *, lake: bool = True, **options: Any) -> TopicDataset:  # noqa: ANN401
        own = _options(self.folder, self.kind) if lake else {}
        return open_topic(self.bucket.url, TOPIC, **{"schema": SCHEMA} | options | own)


_STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20)),
        st.tuples(st.just("copy"), st.sampled_from([None, 3, 11])),
        st.tuples(st.just("keep"), st.integers(1, 30)),
        st.tuples(st.just("merge"), st.just(0)),
    ),
    min_size=1,
    max_size=6,
)
_FILTERS: Final = (
    None,
    pc.field("number") > 7,
    pc.field("country") == "DE",
    pc.field("__key__") != "k1",
    pc.field("__publish_time__") >= pa.scalar(_FIRST_TIME + 9 * _STEP),
)


@given(
    kind=st.sampled_from(KINDS),
    steps=_STEPS,
    columns=st.lists(st.sampled_from(COLUMNS), unique=True),
    row_filter=st.sampled_from(range(len(_FILTERS))),
    bounds=st.tuples(*[st.sampled_from([None, "id", "time"])] * 2),
    shuffled=st.randoms(use_true_random=False),
)
@settings(max_examples=10, deadline=None)
def test_any_history(  # noqa: PLR0917 - Hypothesis passes each choice by its name
    tmp_path_factory: pytest.TempPathFactory,
    kind: TableKind,
    steps: list[tuple[str, Any]],
    columns: list[str],
    row_filter: int,
    bounds: tuple[str | None, str | None],
    shuffled: Any,  # noqa: ANN401
) -> None:
    """Copies with and without a start, deletions by age and merges, in any order."""
    folder = tmp_path_factory.mktemp("lake")
    with memory_bucket({}) as bucket, table_in(folder, kind):
        lake = _Lake(bucket, folder, kind)
        lake.append(list(range(5)))
        lake.copy()
        for step, argument in steps:
            if step == "append":
                numbers = list(range(lake.written, lake.written + argument))
                shuffled.shuffle(numbers)
                lake.append(numbers)
            elif step == "copy":
                start = None if argument is None else _FIRST_TIME + argument * _STEP
                lake.copy(start=start)
            else:
                lake.maintain(**({"keep": argument * _STEP} if step == "keep" else {}))
        limits: dict[str, Any] = {}
        for option, form, number in zip(("start", "end"), bounds, (4, 17), strict=True):
            if form is not None:
                limits[option] = _FIRST_TIME + number * _STEP if form == "time" else (number, 1, 1)

        plain, joined = lake.open(lake=False, **limits), lake.open(**limits)
        expression = _FILTERS[row_filter]
        expected = plain.to_table(columns, filter=expression)
        with _without_warnings():
            assert _rows(joined.to_table(columns, filter=expression)) == _rows(expected)
            assert joined.to_table(columns, filter=expression).num_rows == expected.num_rows
            assert joined.count_rows(expression) == expected.num_rows
            fragments = [
                each.to_table(columns=columns, filter=expression)
                for each in joined.get_fragments(expression)
            ]
            assert sum(each.num_rows for each in fragments) == expected.num_rows
            everything = plain.to_table(list(COLUMNS))
            assert _rows(_read_in_sql(lake, limits).cast(everything.schema)) == _rows(everything)


def _read_in_sql(lake: _Lake, limits: dict[str, Any], zone: str = "UTC") -> pa.Table:
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = '{zone}'")
        options = _options(lake.folder, lake.kind)
        register_duckdb(
            con, lake.bucket.url, schema=SCHEMA, columns=list(COLUMNS), **limits, **options
        )
        return con.sql(f"FROM read_pulsar('{TOPIC}')").to_arrow_table()


@pytest.fixture(name="lake", params=KINDS)
def _lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Lake]:
    """Twenty messages, of which twelve are in the table."""
    with memory_bucket({}) as bucket, table_in(tmp_path, request.param):
        lake = _Lake(bucket, tmp_path, request.param)
        lake.append(list(range(12)))
        lake.copy()
        lake.append(list(range(12, 20)))
        yield lake


def _check_equal(lake: _Lake, **options: Any) -> None:  # noqa: ANN401
    columns = list(COLUMNS)
    assert _rows(lake.open(**options).to_table(columns)) == _rows(
        lake.open(lake=False, **options).to_table(columns)
    )


def _table_rows(dataset: TopicDataset) -> int:
    """Return how many rows the table contributes to a read of a column."""
    read = dataset.scan.select(["number"]).table_read
    return (
        0
        if read is None
        else sum(
            batch.num_rows for task in read.tasks(1) for unit in task.units() for batch in unit()
        )
    )


def test_only_the_remainder_is_read_from_the_bucket(lake: _Lake) -> None:
    """The ledgers that were copied may even be gone: the table has their rows."""
    assert _table_rows(lake.open()) == 12
    names = [each.name for each in Location(lake.bucket.url).list_objects()]
    ledgers = sorted({_ledger_id(each) for each in names})
    for each in names:
        if _ledger_id(each) in ledgers[:2]:
            lake.bucket.delete(each)
    assert lake.open().count_rows() == 20


def _ledger_id(name: str) -> int:
    match = re.search(r"ledger-(\d+)", name)
    assert match is not None
    return int(match[1])


def test_processes_share_a_plan(lake: _Lake) -> None:
    """Parts are read wherever they and the reader are sent."""
    scan = lake.open().scan.select(["number"])
    reader = PartReader.from_scan(scan)
    parts = list(plan_parts(scan.reads(), 1))
    assert len(parts) > 1
    sent, reader = pickle.loads(pickle.dumps((parts, reader)))
    numbers = [
        n
        for part in sent
        for batch in reader.batches(part)
        for n in batch.column("number").to_pylist()
    ]
    assert sorted(numbers) == list(range(20))


def test_heads_and_numbered_rows(lake: _Lake) -> None:
    """They count the rows in the order of `to_table`."""
    dataset = lake.open()
    rows = dataset.to_table(["number"])
    assert dataset.head(15, columns=["number"]) == rows.slice(0, 15)
    assert dataset.take([0, 3, 13, 19], columns=["number"]) == rows.take([0, 3, 13, 19])
    with pytest.raises(IndexError, match="no row with the number 20"):
        dataset.take([20])


def test_the_end_is_read_from_the_bucket(lake: _Lake) -> None:
    """A table has no order."""
    numbers = lake.open().scanner(columns=["number"]).tail(15).column("number").to_pylist()
    assert numbers == list(range(5, 20))


def test_default_columns(lake: _Lake) -> None:
    """Those that the table has, so that `SELECT *` reads it."""
    assert set(lake.open().schema.names) == set(COLUMNS)


@pytest.mark.parametrize(
    ("columns", "condition"),
    [(["__sequence_id__"], None), (["number"], pc.field("__producer_name__") == "nobody")],
)
def test_columns_that_the_table_lacks(
    lake: _Lake, columns: list[str], condition: pc.Expression | None
) -> None:
    """All rows are decoded, and a warning says which column was missing."""
    name = "__sequence_id__" if condition is None else "__producer_name__"
    with pytest.warns(UnusedTableWarning, match=f"it has no column {name}"):
        found = lake.open().to_table(columns, filter=condition)
    assert found == lake.open(lake=False).to_table(columns, filter=condition)


def test_dead_letters_are_read_from_the_bucket(lake: _Lake) -> None:
    """A read that raises for them raises; one that salvages has and counts them."""
    lake.append(list(range(20, 40)), with_odd=True)
    lake.copy(dead_letters=True)
    lake.append(list(range(40, 45)))
    with pytest.raises(PayloadDecodeError):
        lake.open().to_table(["number"])
    with _without_warnings(), pytest.warns(IncompleteReadWarning, match="value lost"):
        _check_equal(lake, on_corruption="salvage")
    assert _table_rows(lake.open()) < 40
    joined = lake.open()
    assert joined.to_table(["__key__"]).num_rows == 45


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_that_appears_late(kind: TableKind, tmp_path: Path) -> None:
    """Its rows are in the bucket, and no copy reads them: one that salvages only says so."""
    with memory_bucket({}) as bucket, table_in(tmp_path, kind):
        lake = _Lake(bucket, tmp_path, kind)
        lake.append(list(range(18)))
        objects = Location(bucket.url)
        names = [each.name for each in objects.list_objects() if _ledger_id(each.name) == 1]
        late = {each: objects.read_object(each, max_bytes=1 << 20).data for each in names}
        for each in names:
            bucket.delete(each)
        lake.copy()
        bucket.put(late)
        with _without_warnings():
            _check_equal(lake)
            for number in (18, 19):
                lake.append([number])
                lake.copy(on_corruption="salvage")
                _check_equal(lake)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"has_uncommitted": True}, "another value of the option transactions"),
        ({"has_losses": True}, "a copy left out damaged data"),
        (None, "an earlier release copied to it"),
    ],
)
def test_tables_with_other_rows(
    lake: _Lake, change: dict[str, Any] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not used, and a warning gives the reason."""
    rows = None if change is None else CopiedRows(**change)
    monkeypatch.setattr(CopiedRows, "from_progress", staticmethod(lambda _: rows))
    with pytest.warns(UnusedTableWarning, match=reason):
        _check_equal(lake)


@pytest.mark.parametrize(
    "condition",
    [
        pc.field("number") > 11,
        pc.field("__publish_time__") >= pa.scalar(_FIRST_TIME + 12 * _STEP),
        (pc.field("country") == "ZZ") | (pc.field("number") == 11),
    ],
    ids=["number", "time", "either"],
)
def test_bounds_prune_files_and_row_groups(lake: _Lake, condition: pc.Expression) -> None:
    """By what the table records (plain Parquet: of times only), or else by footers of files."""
    lake.copy()
    scan = lake.open().scan.select(["number"]).where(condition)
    read = scan.table_read
    assert read is not None
    assert len(read.files.sizes) == 2
    units = [unit for task in read.tasks(1) for unit in task.units()]
    is_recorded = lake.kind != "parquet" or "__publish_time__" in str(condition)
    assert len(read.numbers) == (1 if is_recorded else 2)
    assert len(units) == 1
    _check_equal(lake)


@pytest.mark.parametrize("is_escaped", [False, True])
def test_bounds_of_rare_characters(is_escaped: bool, tmp_path: Path) -> None:
    """The library reads a character that takes two escapes in JSON as another one."""
    with memory_bucket({}) as bucket:
        payload = json.dumps({"number": 1, "country": "\U00020000"}).encode()
        write_messages(bucket.url, TOPIC, [Message(payload=payload, publish_time_ms=1)])
        lake = _Lake(bucket, tmp_path, "delta")
        lake.copy()
        [log] = (tmp_path / "t/_delta_log").glob("*.json")
        text = log.read_text("utf-8")
        assert "\U00020000" in text
        if is_escaped:
            log.write_text(text.replace("\U00020000", r"\\ud840\\udc00"), "utf-8")
        condition = pc.field("country") == "\U00020000"
        assert lake.open().count_rows(condition) == 1


_RECORD: Final = {"type": "record", "name": "Item", "fields": [{"name": "x", "type": "double"}]}
_PRICES: Final[list[tuple[str, object, bytes, bytes]]] = [
    ("price", "double", b"", b""),
    ("price.x", _RECORD, b"", b""),
    ("price[1]", {"type": "array", "items": "double"}, b"\2", b"\0"),
    ("price[1].x", {"type": "array", "items": _RECORD}, b"\2", b"\0"),
    ("price['k']", {"type": "map", "values": "double"}, b"\2\2k", b"\0"),
]
"""A number in SQL, its Avro type, and the bytes before and after its own."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("price", "type_", "before", "after"), _PRICES)
def test_not_a_number_in_sql(
    price: str, type_: object, before: bytes, after: bytes, *, kind: TableKind, tmp_path: Path
) -> None:
    """It is greater than any number for DuckDB, but in no bound that Parquet records."""
    field = {"name": "price", "type": type_}
    text = json.dumps({"type": "record", "name": "Order", "fields": [field]})
    options: dict[str, Any] = {"schema": {"type": "AVRO", "schema": text}, "columns": ["price"]}
    # DuckDB ignores bounds that are infinite.
    prices = [float("nan"), 0.5, -0.0, -1.5]
    payloads = [before + struct.pack("<d", each) + after for each in prices]
    messages = [Message(payload=each, publish_time_ms=1) for each in payloads]
    with memory_bucket({}) as bucket, table_in(tmp_path, kind), duckdb.connect() as con:
        write_messages(bucket.url, TOPIC, messages)
        _copy(bucket.url, tmp_path, kind, schema=options["schema"])
        register_duckdb(con, bucket.url, **options, **_options(tmp_path, kind))
        source = f"FROM read_pulsar('{TOPIC}')"
        rows = f"SELECT {price} {source}"
        assert str(con.sql(rows).fetchall()) == "[(nan,), (0.5,), (-0.0,), (-1.5,)]"
        for condition in (f"{price} > 1", f"isnan({price})", f"{price} = 'nan'"):
            assert str(con.sql(f"{rows} WHERE {condition}").fetchall()) == "[(nan,)]"
        assert str(con.sql(f"SELECT max({price}) {source}").fetchall()) == "[(nan,)]"


def test_a_plan_names_the_table(lake: _Lake) -> None:
    """Its row is the first; if it is not used, each topic has the reason."""
    plan = plan_table(lake.open().scan).to_pylist()
    assert len(plan) == 2
    assert plan[0]["bytes"] == plan[0]["read_bytes"] > 0
    assert plan[0]["tasks"] == 1
    assert (plan[1]["topic"], plan[1]["unused_table"]) == (
        TOPIC,
        None,
    )
    [topic] = plan_table(lake.open().scan.select(["__sequence_id__"])).to_pylist()
    assert topic["unused_table"].endswith("it has no column __sequence_id__")


@pytest.mark.parametrize("view", ["latest"])
def test_views_read_the_bucket(lake: _Lake, view: str) -> None:
    """A table has all messages, and no view of the latest ones."""
    with pytest.warns(UnusedTableWarning, match="no view of the latest messages"):
        _check_equal(lake, view=view)


def test_tables_of_the_latest_rows(tmp_path: Path) -> None:
    """They lack rows that a read of the topic has."""
    with memory_bucket({}) as bucket, table_in(tmp_path, "delta"):
        lake = _Lake(bucket, tmp_path, "delta")
        lake.append(list(range(9)))
        lake.copy(latest_per_key=True)
        with pytest.warns(UnusedTableWarning, match="only the latest row of each key"):
            _check_equal(lake)


@pytest.mark.parametrize(
    "partition_by", [["country"], ["day(__publish_time__)", "bucket(2, number)"]]
)
def test_partitions(tmp_path: Path, partition_by: list[str]) -> None:
    """Values of partition columns are in no file of a Delta table."""
    with memory_bucket({}) as bucket, table_in(tmp_path, "delta"):
        lake = _Lake(bucket, tmp_path, "delta")
        lake.append(list(range(20)))
        lake.copy(partition_by=partition_by)
        lake.append(list(range(20, 25)))
        with _without_warnings():
            _check_equal(lake)
            everything = lake.open(lake=False).to_table(list(COLUMNS))
            assert _rows(_read_in_sql(lake, {}).cast(everything.schema)) == _rows(everything)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize("name", ["country=XX", "it's", "a*", "[a]", "number=1, b"])
def test_names_of_folders(kind: TableKind, name: str, tmp_path: Path) -> None:
    """They are neither patterns nor values of columns for DuckDB, and end no text."""
    (tmp_path / name).mkdir()
    with memory_bucket({}) as bucket:
        lake = _Lake(bucket, tmp_path / name, kind)
        lake.append(list(range(12)))
        lake.copy()
        lake.append(list(range(12, 20)))
        everything = lake.open(lake=False).to_table(list(COLUMNS))
        assert _rows(_read_in_sql(lake, {}).cast(everything.schema)) == _rows(everything)


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Spark stores times as INT96, which are local times for DuckDB, but not for their writer."""
    with memory_bucket({}) as bucket:
        lake = _Lake(bucket, tmp_path, "delta")
        lake.append(list(range(12)))
        lake.copy()
        table = DeltaTable(tmp_path / "t")
        rows = table.to_pyarrow_table()
        table.delete()
        pq.write_table(rows, tmp_path / "t/part-0.parquet", use_deprecated_int96_timestamps=True)
        size_bytes = (tmp_path / "t/part-0.parquet").stat().st_size
        stats = json.dumps({"numRecords": len(rows)})
        action = AddAction("part-0.parquet", size_bytes, {}, 0, data_change=True, stats=stats)
        table.create_write_transaction([action], "append", table.schema(), [])
        everything = lake.open(lake=False).to_table(list(COLUMNS))
        assert _rows(_read_in_sql(lake, {}, "America/New_York").cast(everything.schema)) == _rows(
            everything
        )
        with _without_warnings():
            _check_equal(lake)


def test_topics_that_share_a_table(tmp_path: Path) -> None:
    """Only the rows of the requested topics are read, by their names."""
    with memory_bucket({}) as bucket:
        for number, name in enumerate(["sales-eu", "sales-us"]):
            write_topic(bucket.url, range(9), name, first_ledger_id=100 * number)
        target = str(tmp_path / "t")
        copy_topics(bucket.url, "sales-*", target, schema=SCHEMA)
        columns = ["__topic__", "number"]
        for name in ("sales-eu", "sales-*"):
            plain = open_topic(bucket.url, name, schema=SCHEMA)
            joined = open_topic(bucket.url, name, schema=SCHEMA, lake=target)
            with _without_warnings():
                assert _rows(joined.to_table(columns)) == _rows(plain.to_table(columns))
            assert joined.scan.table_read is not None


_EVOLVED: Final = {
    "type": "AVRO",
    "schema": json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "number", "type": "long"},
                {"name": "note", "type": ["null", "string"], "default": None},
                {"name": "unit", "type": "string", "default": "EUR"},
            ],
        }
    ),
}


@pytest.mark.parametrize(("column", "is_used"), [("number", True), ("note", True), ("unit", False)])
def test_columns_that_were_added_later(column: str, is_used: bool, lake: _Lake) -> None:
    """Earlier rows have null, which is wrong if the schema has another default."""
    definition = {**_EVOLVED, "type": "JSON"}
    lake.copy(schema=definition)
    lake.append([20])
    joined = lake.open(schema=definition)
    assert (joined.scan.select([column]).table_read is not None) == is_used
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedTableWarning)
        found = joined.to_table([column])
    assert _rows(found) == _rows(lake.open(lake=False, schema=definition).to_table([column]))


@pytest.mark.parametrize("damage", ["cut", "gone", "random", "types"])
def test_damaged_files(lake: _Lake, damage: str) -> None:
    """A typed error names the file."""
    [path] = [each for each in lake.folder.rglob("*.parquet") if "checkpoint" not in each.name]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "types":
        pq.write_table(pa.table({"number": ["many"]}), path)
    else:
        path.write_bytes(data[:-9] if damage == "cut" else bytes(len(data)))
    with pytest.raises((LakeTableError, MissingObjectError), match=path.name):
        lake.open().to_table(["number"])


def test_what_is_no_table(bucket: MemoryBucket, tmp_path: Path) -> None:
    """It is an error when the topic is opened, before a row is read."""
    write_topic(bucket.url, range(3))
    for options in ({"format": "delta"}, {"format": "parquet"}):
        with pytest.raises(LakeTableError, match="not a table that topics are copied to"):
            open_topic(bucket.url, TOPIC, lake=str(tmp_path), lake_options=options)
    with pytest.raises(OptionError, match="format must be one of"):
        open_topic(bucket.url, TOPIC, lake=str(tmp_path), lake_options={"format": "csv"})
    with pytest.raises(OptionError, match="lake_options need lake"):
        open_topic(bucket.url, TOPIC, lake_options={"format": "delta"})
    with pytest.raises(OptionError, match="leave out lake"):
        copy_topics(bucket.url, TOPIC, str(tmp_path / "t"), schema=SCHEMA, lake=str(tmp_path))


@pytest.mark.parametrize("text", ["null", "[]", '{"crc32": 1}', '{"starts": [], "crc32": 0}'])
def test_progress_that_was_changed(text: str) -> None:
    """Facts about the rows have a checksum."""
    starts, late_columns = {"t": Bounds((1, 2, 3), start_ms=4)}, frozenset({"a"})
    rows = CopiedRows(starts, late_columns=late_columns, late_ledgers={"t": (7,)})
    progress = rows.add_to(Progress().to_json())
    assert CopiedRows.from_progress(progress) == rows
    changed = json.dumps(json.loads(progress) | {"rows": json.loads(text)})
    if text == "null":
        assert CopiedRows.from_progress(changed) is None
        return
    with pytest.raises(CorruptProgressError, match="malformed or were changed"):
        CopiedRows.from_progress(changed)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_tables_in_a_store(kind: TableKind, s3_server: S3Server) -> None:
    """The options of the bucket are those of the table; large files are read in ranges."""
    url = f"s3://{s3_server.new_bucket()}/offloaded"
    options: dict[str, Any] = {"storage_options": s3_server.storage_options, "schema": SCHEMA}
    where: dict[str, Any] = {"storage_options": s3_server.storage_options}
    write_topic(url, range(20), **where)
    target = f"s3://{s3_server.new_bucket()}/t"
    copy_topics(url, TOPIC, target, format=kind, **options)
    write_topic(url, range(20, 25), append=True, **where)
    joined = open_topic(url, TOPIC, lake=target, lake_options={"format": kind}, **options)
    plain = open_topic(url, TOPIC, **options)
    with _without_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("connector.tables.file_reader._SMALL_BYTES", 0)
        assert _rows(joined.to_table()) == _rows(plain.to_table(list(joined.schema.names)))
    with duckdb.connect() as con:
        register_duckdb(con, url, lake=target, lake_options={"format": kind}, **options)
        count = con.execute("SELECT sum(number) FROM read_pulsar(?)", [TOPIC]).fetchone()
    assert count == (sum(range(25)),)


def test_letters_that_are_decoded_again(lake: _Lake) -> None:
    """A letter is in the bucket's part until it is a row; unrecorded columns need the bucket."""
    lake.append(list(range(20, 41)), with_odd=True)
    lake.copy(dead_letters=True)
    own = _options(lake.folder, lake.kind)
    table_options = {n: each for n, each in own["lake_options"].items() if n != "format"}
    reprocess_dead_letters(own["lake"], format=lake.kind, table_options=table_options, value="raw")
    columns = ["__ledger_id__", "__entry_id__", "__batch_index__", "__publish_time__"]
    with _without_warnings():
        found = lake.open(value="raw").to_table(columns)
    assert _rows(found) == _rows(lake.open(lake=False, value="raw").to_table(columns))
    problem = lake.open().scan.select(["country"]).table_problem
    assert problem is not None
    assert "column country is null in rows that were dead letters" in problem


def test_a_run_that_was_stopped_before_its_letters(
    lake: _Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letters are those that the rows' commit names, although their table lacks them."""
    lake.append(list(range(20, 41)), with_odd=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("connector.tables.letter_changes.LetterTable.apply", stop)
        with pytest.raises(KeyboardInterrupt):
            lake.copy(dead_letters=True)
    columns = ["__ledger_id__", "__entry_id__", "__batch_index__"]
    with _without_warnings():
        found = lake.open().to_table(columns)
    assert found.num_rows == 41
    lake.copy(dead_letters=True)
    with _without_warnings():
        assert _rows(lake.open().to_table(columns)) == _rows(found)


def test_a_small_file_is_read_once(lake: _Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its footer and its rows come from the same request."""
    names: list[str] = []
    read_object = Location.read_object

    def count(location: Location, name: str, **options: Any) -> ObjectContent:  # noqa: ANN401
        if name.endswith(".parquet"):
            names.append(name)
        return read_object(location, name, **options)

    joined = lake.open()
    monkeypatch.setattr(Location, "read_object", count)
    assert _table_rows(joined) == 12
    assert len(names) == len(joined.scan.table_read.files.sizes) == 1  # type: ignore[union-attr]
