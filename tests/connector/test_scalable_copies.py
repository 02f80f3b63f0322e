"""Copies and followers of scalable topics, while segments split, merge and come in."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from arrow_io.errors import IncompleteReadWarning, LateLedgerError, OptionError
from arrow_io.read_metrics import ReadMetrics
from connector import (
    copy_topics,
    open_catalog,
    open_topic,
    register_duckdb,
    replay_topic,
    write_messages,
)
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.increments.following import new_in_bucket
from connector.live.broker import Brokers
from connector.replay.partition_replay import PartitionReplay, ReplaySummary
from connector.tables.table_kinds import open_table
from connector.upkeep.audit.audit import audit
from tests.support.buckets import memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_scalable import FOLDER, MIGRATED, OBJECTS, ORDERS, golden_scalable_topic
from tests.support.lake_kinds import read_back, table_in
from tests.support.latest_rows import copy_latest
from tests.support.scalable_model import KEYS, TOPIC, ScalableWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.inputs.topic_names import TopicName
    from connector.tables.evolution import TableKind

NAME: Final = str(TOPIC)
OTHER: Final = offload(
    [(10**6, [encode_entry([Message(payload=b"0")], batched=False)])],
    managed_ledger="public/default/persistent/classic",
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ScalableWorld]:
    """A migrated topic of two partitions, all of whose ledgers are in a bucket."""
    with memory_bucket(OTHER) as bucket:
        world = ScalableWorld(bucket, tmp_path / "metadata", Random(7), 2)
        world.publish([*KEYS, None])
        world.migrate()
        yield world


def _change(world: ScalableWorld, number: int) -> None:
    """Let the topic go on: messages, ledgers, a split or a merge."""
    world.publish(list(KEYS))
    segments = world.active
    if number % 3 == 2:
        world.merge(segments[0])
    else:
        world.split(segments[number % len(segments)], writes_meanwhile=KEYS)
    world.publish(list(KEYS))
    for each in world.current:
        world.roll(each)


def _offload_all(world: ScalableWorld) -> None:
    for each in world.current:
        for _ in each.ledgers:
            world.offload(each)


def _copy(world: ScalableWorld, folder: Path, kind: TableKind) -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        return copy_latest(
            world.bucket.url, folder, kind, NAME, metadata=world.save(), columns=["*"]
        )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_table_of_latest_rows(world: ScalableWorld, tmp_path: Path, kind: TableKind) -> None:
    """A key has one row, of the last segment that has it, whatever the ids of ledgers."""
    folder = tmp_path / "lake"
    folder.mkdir()
    with table_in(folder, kind):
        pass
    for number in range(5):
        _change(world, number)
        # Half of the time, a parent is not offloaded before its child.
        for each in world.current[:: -1 if number % 2 else 1]:
            world.offload(each)
        _copy(world, folder, kind)
        with table_in(folder, kind) as table:
            rows = read_back(table).to_pylist()
        assert len({row["__key__"] for row in rows}) == len(rows)
        assert all(int(row["__value__"]) in world.rows() for row in rows)
    world.offload_everything()
    _copy(world, folder, kind)
    with table_in(folder, kind) as table:
        numbers = [int(row["__value__"]) for row in read_back(table).to_pylist()]
    assert set(numbers) == world.latest(list(world.keys))
    assert len(numbers) == len(KEYS)


def test_latest_rows_of_a_late_parent(world: ScalableWorld, tmp_path: Path) -> None:
    """Rows of a segment never replace those of a segment that continues it.

    Without metadata of ledgers, the last ledger of a parent may come in after its children.
    """
    for each in world.active:
        world.publish(list(KEYS))
        world.roll(each)
    _offload_all(world)
    parent = world.active[0]
    world.split(parent, writes_meanwhile=KEYS)
    world.publish(list(KEYS))
    for each in world.active:
        world.roll(each)
        world.offload(each)
    world.save(with_ledgers=False)

    def copy() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteReadWarning)
            metadata = world.save(with_ledgers=False)
            copy_latest(world.bucket.url, tmp_path, "delta", NAME, metadata=metadata, columns=["*"])

    def numbers() -> set[int]:
        with table_in(tmp_path, "delta") as table:
            return {int(row["__value__"]) for row in read_back(table).to_pylist()}

    copy()
    earlier = numbers()
    world.offload(parent)
    with pytest.raises(LateLedgerError, match=f"{parent.name}.*copied before"):
        copy()
    assert numbers() == earlier


def test_leftovers_of_a_trimmed_parent(world: ScalableWorld, tmp_path: Path) -> None:
    """A segment waits for no object of a parent that was trimmed, as nothing more comes of it."""
    parent = world.active[0]
    world.publish(list(KEYS))
    _change(world, 0)
    world.offload_everything()
    metadata = replace(world.metadata(parent), ledgers=())
    folder = Path(world.save())
    value = folder / "orders" / f"segment-{parent.segment.id}" / "managed-ledger-info.bin"
    value.write_bytes(serialize_managed_ledger_info(metadata))
    options: Any = {"format": "parquet", "value": "raw", "columns": ["__value__"]}
    target = str(tmp_path / "table")
    [summary] = copy_topics(world.bucket.url, NAME, target, metadata=str(folder), **options)
    assert not [each for each in summary.notices if "precede" in each]
    table = read_back(open_table("parquet", target, None, None))
    expected = world.rows([each for each in world.current if each is not parent])
    assert sorted(map(int, table["__value__"].to_pylist())) == sorted(expected)


def test_table_of_all_rows(world: ScalableWorld, tmp_path: Path) -> None:
    """Copies of a topic that changes have each row once, with its segment."""
    target = str(tmp_path / "table")
    options: Any = {"format": "parquet", "value": "raw", "columns": ["__value__", "__segment_id__"]}
    for number in range(4):
        _change(world, number)
        _offload_all(world)
        [summary] = copy_topics(world.bucket.url, NAME, target, metadata=world.save(), **options)
    world.offload_everything()
    [summary] = copy_topics(world.bucket.url, NAME, target, metadata=world.save(), **options)
    assert not summary.notices
    table = read_back(open_table("parquet", target, None, None))
    assert sorted(map(int, table["__value__"].to_pylist())) == sorted(world.rows())
    assert set(table["__segment_id__"].to_pylist()) == {
        None if each.name.segment is None else each.segment.id
        for each in world.current
        if each.offloaded
    }


@pytest.mark.parametrize("has_metadata", [True, False])
def test_copies_of_a_classic_name_report_the_migration(tmp_path: Path, has_metadata: bool) -> None:
    """A copy of a topic that was migrated meanwhile says where the topic continues."""
    golden = golden_scalable_topic(MIGRATED)
    options: Any = {"format": "parquet", "value": "raw"}
    if has_metadata:
        options["metadata"] = str(FOLDER)
    classic = "persistent://public/default/migrated"
    [summary] = copy_topics(str(OBJECTS), classic, str(tmp_path / "classic"), **options)
    assert 0 < summary.rows < len(golden.rows)
    [notice] = [each for each in summary.notices if "scalable topic" in each]
    assert classic in notice
    assert MIGRATED in notice
    [summary] = copy_topics(str(OBJECTS), MIGRATED, str(tmp_path / "whole"), **options)
    assert not [each for each in summary.notices if "scalable topic" in each]


def test_latest_rows_need_a_table_of_one_topic(tmp_path: Path) -> None:
    """Keys of a scalable topic move between segments, so a shared table cannot keep them."""
    with pytest.raises(OptionError, match="needs a table of its own"):
        copy_latest(str(OBJECTS), tmp_path, "delta", [ORDERS, MIGRATED], metadata=str(FOLDER))


def test_tables_by_topic(tmp_path: Path) -> None:
    """With a placeholder, partitions of a migrated topic go into the table of its segments."""
    tables = copy_topics(
        str(OBJECTS),
        ["topic://public/default/o*s", "migrat*"],
        str(tmp_path / "{topic}"),
        metadata=str(FOLDER),
        value="raw",
        format="parquet",
    )
    rows = {each.target.rpartition("/")[2]: each.rows for each in tables}
    assert rows == {
        "orders": len(golden_scalable_topic(ORDERS).rows),
        "migrated": len(golden_scalable_topic(MIGRATED).rows),
    }


def test_follower_of_new_segments(world: ScalableWorld) -> None:
    """A follower is given rows of segments that appear while it runs."""
    _change(world, 0)
    _offload_all(world)
    catalog = open_catalog(world.bucket.url, metadata=world.save())
    scan = open_topic(
        world.bucket.url, NAME, catalog=catalog, value="raw", columns=["__value__"]
    ).scan
    known = set(world.rows())
    new_rows = new_in_bucket(catalog, [NAME], scan)
    found: list[int] = []
    for number in range(3):
        _change(world, number)
        _offload_all(world)
        world.save()
        for batch in new_rows(ReadMetrics()):
            found += map(int, batch["__value__"].to_pylist())
    world.offload_everything()
    world.save()
    for batch in new_rows(ReadMetrics()):
        found += map(int, batch["__value__"].to_pylist())
    assert sorted(found) == sorted(set(world.rows()) - known)
    for numbers in world.by_key(found):
        assert numbers == sorted(numbers)


@dataclass
class _Client:
    """A client of brokers that have the unpartitioned topic to which messages are sent."""

    def partitions(self, topic: TopicName) -> list[TopicName]:
        return [topic]


def test_replay_waits_for_segments_before(
    world: ScalableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment is replayed when all before it that share its keys are offloaded and sent."""
    sent: list[str] = []

    def replay(self: PartitionReplay, *_: object) -> ReplaySummary:
        sent.append(str(self.topic.topic))
        return ReplaySummary(sent[-1], ())

    monkeypatch.setattr(PartitionReplay, "replay", replay)
    monkeypatch.setattr(Brokers, "connect", lambda _: nullcontext(_Client()))
    options: Any = {"to": "pulsar://127.0.0.1:1", "to_topic": "copied", "by_key": True}
    _change(world, 0)
    _offload_all(world)
    partition = next(each for each in world.current if each.name.segment is None)
    # The last ledger of a partition is only in BookKeeper again.
    partition.ledgers[-1].uuid = None
    summaries = replay_topic(world.bucket.url, NAME, metadata=world.save(), **options)
    names = [str(each.name) for each in world.current]
    assert [each.topic for each in summaries] == names
    assert sent == [each for each in names if each.startswith("persistent://")]
    assert all(
        str(partition.name) in each.notices[0]
        for each in summaries
        if each.topic.startswith("segment://")
    )
    sent.clear()
    world.offload_everything()
    replay_topic(world.bucket.url, NAME, metadata=world.save(), **options)
    assert sent == names
    with pytest.raises(OptionError, match=r"a replay needs a persistent:// topic"):
        replay_topic(world.bucket.url, NAME, **(options | {"to_topic": ORDERS}))


def test_writes_create_no_scalable_topic(tmp_path: Path) -> None:
    """A write to a scalable topic or a segment is refused."""
    for name in (ORDERS, "segment://public/default/orders/0000-ffff-0"):
        with pytest.raises(OptionError, match=r"a write needs a persistent:// topic"):
            write_messages(str(tmp_path), name, [])


@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
@pytest.mark.parametrize("has_metadata", [True, False])
def test_upgraded_cluster(has_metadata: bool) -> None:
    """In the bucket of a cluster that was upgraded, classic and scalable topics are read whole."""
    classic = golden_topic("json-orders")
    folder = classic.objects_folder
    metadata = None
    if has_metadata:
        metadata = {
            classic.name: classic.folder,
            ORDERS: golden_scalable_topic(ORDERS).folder,
        }
    catalog = open_catalog(str(folder), metadata=metadata)
    assert open_topic(str(folder), classic.name, catalog=catalog, value="raw").count_rows() == (
        classic.message_count
    )
    rows = golden_scalable_topic(ORDERS).rows
    dataset = open_topic(str(folder), "orders", catalog=catalog, value="raw", columns=["__key__"])
    assert dataset.to_table()["__key__"].to_pylist() == [row["__key__"] for row in rows]
    assert not audit(catalog).losses


def test_statistics_of_segments(tmp_path: Path) -> None:
    """Statistics record zones of segments, and prune them."""
    folder = str(tmp_path / "statistics")
    catalog = open_catalog(str(OBJECTS), metadata=str(FOLDER))
    analyzed = catalog.analyze(folder, ORDERS)
    assert len(analyzed) == len(golden_scalable_topic(ORDERS).offloaded)
    dataset = open_topic(str(OBJECTS), ORDERS, catalog=catalog, value="raw", statistics=folder)
    assert dataset.count_rows() == len(golden_scalable_topic(ORDERS).rows)
    assert dataset.metrics.unknown_ledgers == 0
    with duckdb.connect() as connection:
        register_duckdb(connection, url=str(OBJECTS), metadata=str(FOLDER))
        rows = connection.sql("select count(*) from read_pulsar('orders')").fetchall()
    assert rows == [(len(golden_scalable_topic(ORDERS).rows),)]
