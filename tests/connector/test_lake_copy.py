"""Copies have the rows of a batch read, in every kind of table, whatever the topic holds."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import (
    LakeTableError,
    OptionError,
    PayloadDecodeError,
)
from arrow_io.storage.location import Location
from connector import copy_topics, open_topic
from connector.lake.copy import CopyRequest, plan_copy
from connector.lake.copy_plan import CopySizes
from connector.lake.maintenance import MaintenanceSettings
from connector.tables.delta import DeltaTable
from connector.tables.executors import run_in_threads
from connector.tables.parquet import ParquetTable
from tests.support.executors import run_elsewhere
from tests.support.golden import golden_topic
from tests.support.lake_copies import (
    COLUMNS,
    SCHEMA,
    in_order,
    letters_target,
    write_topic,
)
from tests.support.lake_tables import table_of

if TYPE_CHECKING:
    from pathlib import Path

    from connector.inputs.bounds import Bound
    from connector.lake.table_copy import TableSummary
    from tests.support.buckets import MemoryBucket

KINDS = ["delta", "parquet"]
POSITION = ["__ledger_id__", "__entry_id__", "__batch_index__"]
GOLDEN = [
    "persistent://public/default/json-orders",
    "persistent://public/default/avro-evolved",
    "persistent://public/default/avro-logical",
    "persistent://public/default/protobuf-native",
    "persistent://public/default/kv-json-inline",
    "persistent://public/default/chunked",
    "persistent://public/default/transactions",
    "persistent://public/default/multi-ledger",
    "persistent://public/default/multi-block",
    "persistent://public/default/local-date",
    "persistent://public/default/time",
]


def opened(target: Path | str, kind: str) -> DeltaTable | ParquetTable:
    """A table."""
    location = Location(str(target))
    return DeltaTable(location) if kind == "delta" else ParquetTable(location)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GOLDEN, ids=lambda name: name.rpartition("/")[2])
def test_a_table_equals_a_batch_read(name: str, kind: str, tmp_path: Path) -> None:
    """Of golden topics, copied in the smallest commits, by tasks that went to another process."""
    topic = golden_topic(name)
    options: dict[str, Any] = {"columns": [*POSITION, "*"], "time_unit": "us"}
    schemas = topic.folder / "schemas-rest.json"
    options |= {"schema": str(schemas)} if schemas.exists() else {"value": "raw"}
    table = opened(tmp_path / "t", kind)

    [summary] = copy_topics(
        str(topic.objects_folder),
        name,
        str(tmp_path / "t"),
        format=kind,  # type: ignore[arg-type]
        sizes=CopySizes(task_bytes=1, commit_bytes=1),
        executor=run_elsewhere,
        **options,
    )

    expected = open_topic(str(topic.objects_folder), name, **options).to_table()
    assert summary.rows == expected.num_rows
    found = table_of(table).select(expected.schema.names)
    by_position = [(column, "ascending") for column in POSITION]
    as_kept = table.storable(expected.schema, None)
    found = found.cast(as_kept).sort_by(by_position).combine_chunks()
    assert found.equals(expected.cast(as_kept).sort_by(by_position).combine_chunks())


def test_a_schema_that_is_not_known_makes_dead_letters(tmp_path: Path) -> None:
    """Each message of a version that nobody knows is a letter of its own, with its position."""
    topic = golden_topic("persistent://public/default/avro-evolved")
    answer = json.loads((topic.folder / "schemas-rest.json").read_text())
    versions = answer["getSchemaResponses"]
    newest = max(each["version"] for each in versions)
    known = {"getSchemaResponses": [each for each in versions if each["version"] != newest]}
    (tmp_path / "schemas.json").write_text(json.dumps(known))
    [summary] = copy_topics(
        str(topic.objects_folder),
        topic.name,
        str(tmp_path / "t"),
        schema=str(tmp_path / "schemas.json"),
        dead_letters=True,
    )
    of_version = open_topic(
        str(topic.objects_folder),
        topic.name,
        value="raw",
        columns=[*POSITION, "__schema_version__", "__value__"],
    ).to_table()
    dead = of_version.filter(pc.equal(of_version["__schema_version__"], newest))
    assert dead.num_rows > 1
    assert summary.rows == of_version.num_rows - dead.num_rows
    letters = table_of(opened(letters_target(str(tmp_path / "t")), "delta"))
    assert in_order(letters.select(dead.schema.names)) == in_order(dead)


class TestTargets:
    """Which topics go where."""

    def test_each_topic_may_have_a_table(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """A placeholder stands for its name; partitions of a topic share the table."""
        write_topic(bucket.url, range(8), "sales-eu")
        write_topic(bucket.url, range(8), "sales-us", partitions=2, first_ledger_id=100)
        target = str(tmp_path / "{tenant}.{namespace}.{topic}")
        summaries = copy_topics(bucket.url, "sales-*", target, schema=SCHEMA)
        assert [each.target for each in summaries] == [
            str(tmp_path / "public.default.sales-eu"),
            str(tmp_path / "public.default.sales-us"),
        ]
        assert [each.rows for each in summaries] == [8, 8]

    @pytest.mark.parametrize("bad", [{"eu"}, {"asia", "eu"}, {"us"}], ids=["mid", "two", "last"])
    @pytest.mark.parametrize("how", ["values", "target"])
    def test_a_bad_topic_stops_no_other(
        self, how: str, bad: set[str], bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """All others are copied, and told of; the error names each that was not."""
        regions = ["asia", "eu", "us"]
        for number, region in enumerate(regions):
            is_odd = how == "values" and region in bad
            write_topic(bucket.url, range(8), region, with_odd=is_odd, first_ledger_id=100 * number)
            if how == "target" and region in bad:
                (tmp_path / region).mkdir()
                (tmp_path / region / "_delta_log").mkdir()
        heard: list[TableSummary] = []

        def run() -> None:
            copy_topics(
                bucket.url,
                "*",
                str(tmp_path / "{topic}"),
                format="parquet",
                schema=SCHEMA,
                on_table=heard.append,
            )

        with pytest.raises((PayloadDecodeError, LakeTableError)) as raised:
            run()
        told = raised.value.__notes__
        sound = [str(tmp_path / each) for each in regions if each not in bad]
        assert [(each.target, each.rows) for each in heard] == [(each, 8) for each in sound]
        assert len(told) == len(bad)
        for note, region in zip(told, sorted(bad), strict=True):
            assert str(tmp_path / region) in note
        heard.clear()
        with pytest.raises((PayloadDecodeError, LakeTableError)):
            run()
        assert [each.rows for each in heard] == [0] * len(sound)

    @pytest.mark.parametrize("first", ["sales-e*", "sales-[e]u", "*-eu", ["sales-eu", "*s-eu"]])
    def test_a_pattern_makes_a_table_of_several_topics(
        self, first: str | list[str], bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """Each row tells its topic, however many there are when the table is made."""
        write_topic(bucket.url, range(4), "sales-us", first_ledger_id=100)
        write_topic(bucket.url, range(4), "sales-eu")
        target = str(tmp_path / "t")
        copy_topics(bucket.url, first, target, schema=SCHEMA)
        copy_topics(bucket.url, "sales-*", target, schema=SCHEMA)
        table = table_of(opened(target, "delta"))
        assert table.column_names[0] == "__topic__"
        topics = [f"persistent://public/default/{each}" for each in ("sales-eu", "sales-us")]
        assert sorted(table.column("__topic__").to_pylist()) == sorted(4 * topics)

    def test_a_topic_whose_name_looks_like_a_pattern_is_one(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """Its rows need not tell it."""
        write_topic(bucket.url, range(4), "sales[1]")
        copy_topics(bucket.url, "sales[1]", str(tmp_path / "t"), schema=SCHEMA)
        assert table_of(opened(tmp_path / "t", "delta")).column_names == list(COLUMNS)

    def test_a_name_leads_to_no_other_folder(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Whoever names a topic does not say where we write."""
        name = "persistent://public/default/../../elsewhere"
        write_topic(bucket.url, range(2), name)
        [summary] = copy_topics(bucket.url, name, str(tmp_path / "lake" / "{topic}"), schema=SCHEMA)
        assert summary.target == str(tmp_path / "lake" / "_._elsewhere")

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("ending", ["", "/", "//"])
    def test_dead_letters_lie_beside_the_table(
        self, kind: str, ending: str, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """However the folder's URL ends: no file of the one table lies in the other."""
        write_topic(bucket.url, range(20), with_odd=True)
        target = f"{tmp_path}/{{topic}}{ending}"
        options: dict[str, Any] = {"format": kind, "schema": SCHEMA, "dead_letters": True}
        [summary] = copy_topics(bucket.url, "orders", target, **options)
        assert summary.dead_letters > 0
        found = sorted(each.name for each in tmp_path.iterdir())
        assert found == ["orders", letters_target("orders")]
        letters = table_of(opened(letters_target(str(tmp_path / "orders")), kind))
        assert letters.num_rows == summary.dead_letters
        assert copy_topics(bucket.url, "orders", target, **options)[0].rows == 0

    def test_topics_of_one_name_are_told(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Two that would have one table by accident are an error."""
        write_topic(bucket.url, range(2), "persistent://a/b/orders")
        write_topic(bucket.url, range(2), "persistent://a/c/orders", first_ledger_id=100)
        topics = ["persistent://a/b/orders", "persistent://a/c/orders"]
        with pytest.raises(OptionError, match="would share the table"):
            copy_topics(bucket.url, topics, str(tmp_path / "{topic}"), schema=SCHEMA)


class TestColumns:
    """Which columns a table has."""

    def test_columns_can_be_named(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """Then there are no others, dead letters or not."""
        write_topic(bucket.url, range(20), with_odd=True)
        columns = ["number", "__topic__"]
        [summary] = copy_topics(
            bucket.url,
            "orders",
            str(tmp_path / "t"),
            schema=SCHEMA,
            columns=columns,
            dead_letters=True,
        )
        assert table_of(opened(tmp_path / "t", "delta")).column_names == columns
        assert summary.dead_letters > 0

    def test_what_does_not_fit_the_table_is_told_first(
        self, bucket: MemoryBucket, tmp_path: Path
    ) -> None:
        """Before a file is written."""
        target = str(tmp_path / "t")
        write_topic(bucket.url, range(3))
        copy_topics(bucket.url, "orders", target, schema=SCHEMA)
        write_topic(bucket.url, range(3, 6), append=True)
        before = sorted(tmp_path.rglob("*"))
        other = SCHEMA | {"schema": SCHEMA["schema"].replace('"long"', '"string"')}
        with pytest.raises(LakeTableError, match="number"):
            copy_topics(bucket.url, "orders", target, schema=other)
        with pytest.raises(OptionError, match="is partitioned by nothing"):
            copy_topics(bucket.url, "orders", target, schema=SCHEMA, partition_by=["country"])
        assert sorted(tmp_path.rglob("*")) == before


class TestOptions:
    """What is refused, and what is planned."""

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"format": "hudi"}, "delta, iceberg, parquet"),
            ({"partition_by": ["day(nothing)"]}, "nothing"),
            ({"colour": "red"}, "no option 'colour'"),
            ({"end": (5, 0)}, "has no end"),
            ({"end": "2023-11-20"}, "has no end"),
            ({"format": "parquet", "table_options": {"a": 1}}, "table_options"),
            ({"partition_by": "day(__publish_time__)"}, "a list"),
        ],
        ids=[
            "format",
            "partition",
            "unknown",
            "end",
            "end-time",
            "table-options",
            "partition-text",
        ],
    )
    def test_what_is_not_allowed_is_told(
        self, bucket: MemoryBucket, tmp_path: Path, options: dict[str, Any], said: str
    ) -> None:
        """Before a file is written."""
        write_topic(bucket.url, range(3))
        with pytest.raises(OptionError, match=said):
            copy_topics(bucket.url, "orders", str(tmp_path / "t"), schema=SCHEMA, **options)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["file_bytes", "task_bytes", "commit_bytes"])
    @pytest.mark.parametrize("size", [0, -1])
    def test_sizes_are_positive(self, name: str, size: int) -> None:
        """Nothing can be put together to less than a byte."""
        with pytest.raises(OptionError, match=name):
            CopySizes(**{name: size})

    def test_a_plan_takes_the_options_of_a_copy(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """So that the same can be asked of both."""
        write_topic(bucket.url, range(3))
        options: dict[str, Any] = {"analyze": True, "on_progress": print, "on_table": print}
        options |= {"executor": run_in_threads, "metrics_file": tmp_path / "m.prom"}
        options["maintenance"] = MaintenanceSettings()
        own = inspect.signature(copy_topics).parameters.keys()
        defaults = set(CopyRequest.__dataclass_fields__) | options.keys()
        assert own <= defaults
        [plan] = plan_copy(bucket.url, "orders", str(tmp_path / "t"), schema=SCHEMA, **options)
        assert plan.data_bytes > 0
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["orders.v1", ".orders", "a.b.c"])
    def test_a_name_leads_to_no_other_namespace(self, name: str, bucket: MemoryBucket) -> None:
        """Dots divide the names of Iceberg tables, so those of topics become something else."""
        write_topic(bucket.url, range(3), name)
        request = CopyRequest(
            url=bucket.url,
            topic=name,
            target="shop.{topic}",
            format="iceberg",
            topic_options={"schema": SCHEMA},
        )
        [(target, topic, _)] = request.copies()
        assert target == "shop." + name.replace(".", "_")
        assert topic.endswith(name)

    def test_a_plan_writes_nothing(self, bucket: MemoryBucket, tmp_path: Path) -> None:
        """It says what a copy would read."""
        write_topic(bucket.url, range(12))
        [plan] = plan_copy(bucket.url, "orders", str(tmp_path / "t"), schema=SCHEMA)
        assert plan.ledgers == 2
        told: list[tuple[int, int]] = []
        [summary] = copy_topics(
            bucket.url,
            "orders",
            str(tmp_path / "t"),
            schema=SCHEMA,
            sizes=CopySizes(commit_bytes=1),
            on_progress=lambda done, total: told.append((done, total)),
            executor=run_in_threads,
        )
        assert summary.data_bytes == plan.data_bytes
        assert [total for _, total in told] == [plan.data_bytes] * 2
        assert told[0][0] < told[1][0] == plan.data_bytes
        assert summary.commits == 2
        [plan] = plan_copy(bucket.url, "orders", str(tmp_path / "t"), schema=SCHEMA)
        assert plan.data_bytes == 0

    @pytest.mark.parametrize("start", [(1, 0), datetime.fromtimestamp(1_700_060_000, tz=UTC)])
    def test_rows_behind_a_start_are_copied(
        self, bucket: MemoryBucket, tmp_path: Path, start: Bound
    ) -> None:
        """A first run need not begin with the oldest ledger; that it passed over rows is told."""
        write_topic(bucket.url, range(12))
        target = str(tmp_path / "t")
        options: dict[str, Any] = {"schema": SCHEMA, "start": start}
        [plan] = plan_copy(bucket.url, "orders", target, **options)
        [summary] = copy_topics(bucket.url, "orders", target, **options)
        assert summary.rows == 6
        [notice] = summary.notices
        assert "are not copied by later runs either" in notice
        assert list(plan.notices) == [notice]
        for later in (options, {"schema": SCHEMA}):
            [summary] = copy_topics(bucket.url, "orders", target, **later)
            assert (summary.rows, summary.notices) == (0, [])
        table = table_of(opened(tmp_path / "t", "delta"))
        assert isinstance(table, pa.Table)
        assert sorted(table.column("number").to_pylist()) == list(range(6, 12))
