"""`connector.catalog.tables`: a catalog as tables."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import OptionError, TopicNotFoundError, UnusedStatisticsWarning
from connector import open_catalog
from connector.catalog.tables import (
    BLOCK_SCHEMA,
    LEDGER_SCHEMA,
    OBJECT_SCHEMA,
    RECORDED_ZONE_SCHEMA,
    TABLES,
    TOPIC_SCHEMA,
    blocks_table,
    ledgers_table,
    objects_table,
    topics_table,
    zones_table,
)
from connector.inputs.topic_names import TopicName
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topic, golden_topics
from tests.support.owned_bucket import (
    LONG_AGO,
    OTHER_UUID,
    SMALL,
    OwnedBucket,
    gone,
    not_offloaded,
)

if TYPE_CHECKING:
    from connector import Catalog
    from tests.support.golden import GoldenTopic

CHUNKED: Final = golden_topic("small-chunked")
SCHEMAS: Final = {
    "topics": TOPIC_SCHEMA,
    "ledgers": LEDGER_SCHEMA,
    "blocks": BLOCK_SCHEMA,
    "objects": OBJECT_SCHEMA,
}


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


def _catalog(set_name: str, *, has_metadata: bool) -> Catalog:
    metadata = GOLDEN / set_name if has_metadata else None
    return open_catalog(str(GOLDEN / set_name / "objects"), metadata=metadata)


def _topics(set_name: str) -> list[GoldenTopic]:
    return [topic for topic in golden_topics() if topic.set_name == set_name]


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_tables_of_golden_sets(set_name: str, *, has_metadata: bool) -> None:
    """They have what `topics.json` and the files have, each thing once."""
    catalog, topics = _catalog(set_name, has_metadata=has_metadata), _topics(set_name)
    ledgers = {ledger.ledger_id: ledger for topic in topics for ledger in topic.ledgers}
    files = {path.name: path for path in (GOLDEN / set_name / "objects").iterdir()}

    rows = ledgers_table(catalog).to_pylist()
    offloaded = {row["ledger_id"]: row for row in rows if row["state"] in {"offloaded", "both"}}
    assert offloaded.keys() == ledgers.keys()
    for ledger_id, row in offloaded.items():
        ledger = ledgers[ledger_id]
        assert (row["entries"], row["uuid"]) == (ledger.entry_count, ledger.uuid)
        assert (row["first_entry_id"], row["last_entry_id"]) == (0, ledger.entry_count - 1)
        assert row["bytes"] == ledger.data_object.stat().st_size
        assert row["entry_bytes"] == ledger.length_bytes
        assert (row["copies"], row["warnings"], row["problems"]) == (1, [], [])
        assert (row["driver"], row["closed"] is None) == (
            ("aws-s3", False) if has_metadata else (None, True)
        )
        assert row["created"] <= row["closed"] <= row["offloaded"] if has_metadata else True
    others = [row["state"] for row in rows if row["ledger_id"] not in ledgers]
    assert others == (["open"] * len(topics) if has_metadata else [])

    by_base: dict[str, list[GoldenTopic]] = {}
    for topic in topics:
        by_base.setdefault(str(TopicName.parse(topic.name).base), []).append(topic)
    summary = topics_table(catalog).to_pylist()
    assert [row["topic"] for row in summary] == sorted(by_base)
    for row in summary:
        parts = [ledger for topic in by_base[row["topic"]] for ledger in topic.ledgers]
        assert row["ledgers"] == len(parts)
        assert row["entries"] == sum(ledger.entry_count for ledger in parts)
        assert row["bytes"] == sum(ledger.data_object.stat().st_size for ledger in parts)
        pending = 0 if has_metadata else None
        assert (row["pending_ledgers"], row["pending_entries"]) == (pending, pending)
        assert (row["unsound"], row["problems"]) == (0, [])
    partitions = {row["topic"].rpartition("/")[2]: row["partitions"] for row in summary}
    assert sum(partitions.values()) == sum("-partition-" in topic.name for topic in topics)

    objects = objects_table(catalog).to_pylist()
    assert [row["object"] for row in objects] == sorted(files)
    assert all(row["bytes"] == files[row["object"]].stat().st_size for row in objects)
    assert {row["kind"] for row in objects} == {"data", "index"}
    topic_of = {ledger.ledger_id: topic.name for topic in topics for ledger in topic.ledgers}
    assert all(row["topic"] == topic_of[row["ledger_id"]] for row in objects)
    assert all(row["object"].startswith(row["uuid"]) for row in objects)


@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_blocks_are_the_data_objects_cut_in_pieces(set_name: str) -> None:
    """They follow each other without a gap, in bytes and in entries, and cover the ledger."""
    catalog = _catalog(set_name, has_metadata=False)
    rows = blocks_table(catalog).to_pylist()
    ledgers = {row["ledger_id"]: row for row in ledgers_table(catalog).to_pylist() if row["blocks"]}
    for ledger_id, ledger in ledgers.items():
        blocks = [row for row in rows if row["ledger_id"] == ledger_id]
        assert [row["block"] for row in blocks] == list(range(ledger["blocks"]))
        offset = entry_id = 0
        for row in blocks:
            assert (row["offset"], row["first_entry_id"]) == (offset, entry_id)
            offset, entry_id = offset + row["bytes"], row["last_entry_id"] + 1
        assert (offset, entry_id) == (ledger["bytes"], ledger["entries"])
        assert {row["object"] for row in blocks} == {f"{ledger['uuid']}-ledger-{ledger_id}"}
    assert {row["ledger_id"] for row in rows} == ledgers.keys()


@pytest.mark.parametrize("name", TABLES)
def test_schemas_hold_whatever_there_is(name: str, tmp_path: Path) -> None:
    """An empty bucket gives an empty table of the same columns."""
    full = TABLES[name](_catalog(GOLDEN_SETS[1], has_metadata=True), None)
    empty = TABLES[name](open_catalog(str(tmp_path)), None)

    assert full.schema == empty.schema == SCHEMAS[name]
    assert full.num_rows > empty.num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_topics_are_chosen_by_name(name: str) -> None:
    """A name, a glob or several: as for `open_topic`."""
    catalog = _catalog(GOLDEN_SETS[1], has_metadata=True)
    whole = TABLES[name](catalog, None).to_pylist()

    def of(*names: str) -> list[dict[str, Any]]:
        return [row for row in whole if row["topic"].rpartition("/")[2].startswith(names)]

    assert TABLES[name](catalog, "small-chunked").to_pylist() == of("small-chunked")
    assert TABLES[name](catalog, CHUNKED.name).to_pylist() == of("small-chunked")
    assert TABLES[name](catalog, "small-part*").to_pylist() == of("small-partitioned")
    both = ["small-chunked", "small-encrypted"]
    assert TABLES[name](catalog, both).to_pylist() == of(*both)
    with pytest.raises(TopicNotFoundError, match="small-chunked"):
        TABLES[name](catalog, "small-chunkt")


def test_states_of_ledgers(bucket: OwnedBucket) -> None:
    """What the metadata says and what lies there, one row a ledger."""
    missing, cut, trimmed = CHUNKED.ledgers[2], CHUNKED.ledgers[3], CHUNKED.ledgers[0]
    bucket.delete(missing.data_object.name, missing.index_object.name)
    bucket.write(cut.data_object.name, cut.data_object.read_bytes()[:-1])
    bucket.copy_ledger(CHUNKED.ledgers[4])
    known = bucket.known(CHUNKED.name)
    closed = replace(known.ledgers[-1], entries=5, size_bytes=55, timestamp_ms=1_795_265_336_000)
    bucket.tell(replace(known, ledgers=(*known.ledgers[:-1], closed)))
    bucket.change(CHUNKED.name, {trimmed.ledger_id: gone, 21: not_offloaded})
    bucket.delete(CHUNKED.ledgers[-1].data_object.name)

    catalog = bucket.catalog()
    rows = {row["ledger_id"]: row for row in ledgers_table(catalog, CHUNKED.name).to_pylist()}

    assert {ledger_id: row["state"] for ledger_id, row in rows.items()} == {
        14: "trimmed",
        15: "both",
        16: "missing",
        17: "unsound",
        18: "both",
        19: "both",
        20: "both",
        21: "bookkeeper",
        closed.ledger_id: "bookkeeper",
    }
    assert rows[16]["uuid"] == missing.uuid
    assert "index object is missing" in rows[16]["problems"][0]
    assert (rows[16]["entries"], rows[16]["entry_bytes"]) == (7, missing.length_bytes)
    assert [rows[16]["bytes"], rows[21]["bytes"]] == [None, None]
    assert rows[17]["bytes"] == cut.data_object.stat().st_size - 1
    assert f"{cut.data_object.stat().st_size - 1} bytes" in rows[17]["problems"][0]
    assert [rows[18]["copies"], rows[16]["copies"], rows[21]["copies"]] == [2, 0, 1]
    pending = rows[closed.ledger_id]
    assert (pending["entries"], pending["entry_bytes"], pending["uuid"]) == (5, 55, None)
    assert pending["bytes"] is None
    assert pending["closed"] == datetime(2026, 11, 21, 12, 48, 56, tzinfo=UTC)
    (summary,) = topics_table(catalog, CHUNKED.name).to_pylist()
    assert (summary["ledgers"], summary["unsound"]) == (4, 2)
    assert (summary["pending_ledgers"], summary["pending_entries"]) == (2, 8)
    assert len(summary["problems"]) == 2


def test_time_of_an_offload_is_that_of_the_object_without_metadata(bucket: OwnedBucket) -> None:
    """The index object is written last."""
    catalog = bucket.catalog(metadata=None)
    assert set(ledgers_table(catalog)["offloaded"].to_pylist()) == {LONG_AGO}


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, 253_402_300_800_000])
def test_times_that_no_calendar_has_are_null(bucket: OwnedBucket, timestamp_ms: int) -> None:
    """Metadata may hold any number."""
    bucket.change(CHUNKED.name, {15: lambda info: replace(info, timestamp_ms=timestamp_ms)})

    closed = ledgers_table(bucket.catalog(), CHUNKED.name)["closed"].to_pylist()

    assert closed[1] is None
    assert closed[2] is not None


def test_all_kinds_of_objects(bucket: OwnedBucket) -> None:
    """What is no ledger's is told too, and only where all objects are asked for."""
    bucket.write("backup.tar", b"12345")
    bucket.write("00000000-0000-0000-0000-0000000000ff", b"")
    bucket.write(f"{OTHER_UUID}-ledger-14", b"cut")
    catalog = bucket.catalog()

    rows = {row["object"]: row for row in objects_table(catalog).to_pylist()}

    assert len(rows) == 2 * 29 + 3
    assert rows["backup.tar"] == {
        "object": "backup.tar",
        "kind": "foreign",
        "topic": None,
        "partition": None,
        "segment_id": None,
        "ledger_id": None,
        "uuid": None,
        "bytes": 5,
        "modified": LONG_AGO,
    }
    assert rows["00000000-0000-0000-0000-0000000000ff"]["kind"] == "streaming"
    unfinished = rows[f"{OTHER_UUID}-ledger-14"]
    assert (unfinished["kind"], unfinished["ledger_id"]) == ("data", 14)
    assert (unfinished["uuid"], unfinished["topic"]) == (str(OTHER_UUID), None)
    assert objects_table(catalog, "small-*").num_rows == 2 * 29


def test_names_that_are_no_text(bucket: OwnedBucket) -> None:
    """A file may have any bytes as its name; those that are no UTF-8 are question marks."""
    (bucket.objects / os.fsdecode(b"caf\xe9")).write_bytes(b"")

    names = objects_table(bucket.catalog())["object"].to_pylist()

    assert "caf?" in names


# Zones


def _analyzed(catalog: Catalog, folder: Path, topics: str = "small-chunked") -> str:
    catalog.analyze(folder / "statistics", topics)
    return str(folder / "statistics")


def test_zones_are_those_of_the_statistics(bucket: OwnedBucket, tmp_path: Path) -> None:
    """One row a zone, in order, with all that is known but the keys; each is current."""
    catalog = bucket.catalog()
    statistics = _analyzed(catalog, tmp_path, "*")

    table = zones_table(catalog, statistics)

    files = [pq.read_table(path) for path in Path(statistics).iterdir()]
    order = [(name, "ascending") for name in ("topic", "ledger_id", "first_entry_id")]
    known = pa.concat_tables(files).sort_by(order).drop_columns("keys")
    assert table.schema == RECORDED_ZONE_SCHEMA
    assert table.drop_columns("is_current").to_pylist() == known.to_pylist()
    assert set(table["is_current"].to_pylist()) == {True}
    ledgers = [row["ledger_id"] for row in ledgers_table(catalog).to_pylist() if row["blocks"]]
    assert sorted(set(table["ledger_id"].to_pylist())) == sorted(ledgers)
    chosen = zones_table(catalog, statistics, CHUNKED.name)
    assert chosen.equals(table.filter(pc.equal(table["topic"], CHUNKED.name)))
    assert chosen.num_rows == len(CHUNKED.ledgers)


def test_zones_of_other_objects_are_not_current(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Another version, another copy, a ledger or a topic that is gone; the others stay current."""
    statistics = _analyzed(bucket.catalog(metadata=None), tmp_path, "*")
    changed, copied, deleted, *others = CHUNKED.ledgers
    bucket.age(changed.data_object.name, LONG_AGO.replace(year=2025))
    bucket.copy_ledger(copied, modified=LONG_AGO.replace(year=2027))
    bucket.delete(deleted.data_object.name, deleted.index_object.name)
    gone_topic = golden_topic("small-encrypted")
    for each in gone_topic.ledgers:
        bucket.delete(each.data_object.name, each.index_object.name)

    table = zones_table(bucket.catalog(metadata=None), statistics)

    rows = table.filter(pc.equal(table["topic"], CHUNKED.name)).to_pylist()
    current = {row["ledger_id"]: row["is_current"] for row in rows}
    assert current == dict.fromkeys(
        (changed.ledger_id, copied.ledger_id, deleted.ledger_id), False
    ) | {each.ledger_id: True for each in others}
    gone_rows = table.filter(pc.equal(table["topic"], gone_topic.name))["is_current"].to_pylist()
    assert gone_rows == [False] * len(gone_topic.ledgers)


def test_zones_that_are_damaged_are_told(bucket: OwnedBucket, tmp_path: Path) -> None:
    """A file that cannot be used is a warning; those of the others are listed."""
    catalog = bucket.catalog()
    statistics = _analyzed(catalog, tmp_path)
    [own] = Path(statistics).iterdir()
    _analyzed(catalog, tmp_path, "small-encrypted")
    data = own.read_bytes()
    own.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])

    for topic in (None, CHUNKED.name):
        with pytest.warns(UnusedStatisticsWarning, match=own.name):
            table = zones_table(catalog, statistics, topic)
        assert (table.num_rows > 0) == (topic is None)
        assert CHUNKED.name not in table["topic"].to_pylist()


def test_there_are_no_zones_without_statistics(tmp_path: Path) -> None:
    """An empty folder has none, with a warning; one that is missing is refused."""
    catalog = _catalog(SMALL, has_metadata=False)

    with pytest.warns(UnusedStatisticsWarning, match="there are no statistics"):
        table = zones_table(catalog, tmp_path)

    assert (table.num_rows, table.schema) == (0, RECORDED_ZONE_SCHEMA)
    with pytest.raises(TopicNotFoundError):
        zones_table(catalog, tmp_path, "nothing")
    with pytest.raises(OptionError, match="there is no folder"):
        zones_table(catalog, tmp_path / "nowhere")
