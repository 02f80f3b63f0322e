"""Tests that a kind of objects needs nothing but its place in the list of kinds."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from arrow_io.errors import IncompleteReadWarning, MissingObjectError
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from connector.catalog.kinds import registry
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext
from connector.catalog.tables import blocks_table, ledgers_table, objects_table, zones_table
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.cleaning import plan_cleaning
from connector.upkeep.forecast.cost import opening_requests, read_cost, stored_bytes
from connector.upkeep.repair.repair import plan_repair
from connector.upkeep.verify.verification import verify
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.made_up_kind import DRIVER, BoxCopy, Boxes, BoxName, box
from tests.support.reading import read
from tests.support.streamed_topics import NAME, metadata_of
from tests.support.streaming import save_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector import Catalog
    from connector.catalog.kinds.object_kind import ObjectKind
    from tests.support.buckets import MemoryBucket

_BOX: Final = BoxName(UUID(int=2**100), 20)
_BOX_TEXTS: Final = ["20:0", "20:1", "20:2"]
_ALL_TEXTS: Final = ["10:0", "10:1", *_BOX_TEXTS, "30:0"]


def _entries(ledger_id: int, count: int) -> list[bytes]:
    payloads = [f"{ledger_id}:{number}".encode() for number in range(count)]
    return [
        encode_entry(
            [Message(payload=each)],
            batched=False,
            producer_name="p",
            sequence_id=0,
            publish_time=1,
        )
        for each in payloads
    ]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind has its line in the list of kinds."""
    made_up: ObjectKind[BoxName, BoxCopy] = Boxes()
    monkeypatch.setattr(registry, "KINDS", (made_up, *registry.KINDS))


@pytest.fixture
def bucket() -> Iterator[MemoryBucket]:
    """Ledgers 10 and 30 of PIP-17, and ledger 20 in a box."""
    found = offload([(10, _entries(10, 2)), (30, _entries(30, 1))])
    with memory_bucket(found | box(_BOX, _entries(20, 3), TOPIC)) as made:
        yield made


def _read(bucket: MemoryBucket, **options: Any) -> list[str]:  # noqa: ANN401
    table = open_topic(bucket.url, TOPIC, columns=["__value__"], **options).to_table()
    return [each.decode() for each in table["__value__"].to_pylist()]


def _box_states(catalog: Catalog) -> list[str]:
    return [each.state.value for each in catalog.ledgers(NAME).states if each.ledger_id == 20]


def test_a_kind_is_listed_and_read(bucket: MemoryBucket) -> None:
    """Its ledgers stand in their topic among those of other kinds, in every table."""
    catalog = open_catalog(bucket.url)

    assert catalog.bucket.copy_count == 3
    assert _read(bucket) == _ALL_TEXTS
    scan = open_topic(bucket.url, TOPIC).scan
    tasks = pickle.loads(pickle.dumps(scan.plan(task_bytes=1)))
    assert read(scan, tasks).num_rows == len(_ALL_TEXTS)
    assert ledgers_table(catalog)["entries"].to_pylist() == [2, 3, 1]
    assert _BOX.data_name in blocks_table(catalog)["object"].to_pylist()
    rows = {row["object"]: row for row in objects_table(catalog, TOPIC).to_pylist()}
    assert (rows[_BOX.data_name]["kind"], rows[_BOX.data_name]["ledger_id"]) == ("data", 20)
    assert (rows[_BOX.index_name]["kind"], rows[_BOX.index_name]["topic"]) == ("index", TOPIC)
    assert "orders" in catalog._repr_html_()


def test_a_kind_is_counted_by_cost(bucket: MemoryBucket) -> None:
    """What opening and reading ask for is foreseen to the byte, and what is stored is counted."""
    trace = RequestTrace()
    dataset = open_topic(bucket.url, TOPIC, value="raw", trace=trace)
    opened = trace.counts
    catalog = open_catalog(bucket.url)
    opening = opening_requests(catalog.opening([NAME]))
    reading = read_cost(dataset.scan).reading
    assert dataset.to_table().num_rows == len(_ALL_TEXTS)
    after = trace.counts

    assert (opening.index_requests, opening.index_bytes) == (
        opened.index_requests,
        opened.index_bytes,
    )
    assert reading.range_requests == after.range_requests - opened.range_requests
    assert reading.range_bytes == after.range_bytes - opened.range_bytes
    sizes = [info.size_bytes for info in catalog.location.list_objects()]
    assert stored_bytes(catalog.contents) == stored_bytes(catalog.contents, [NAME]) == sum(sizes)


def test_statistics_know_a_kind(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Its ledgers are analyzed, told apart by their data objects, and left out of reads."""
    place = str(tmp_path / "statistics")
    catalog = open_catalog(bucket.url)
    done = catalog.analyze(place)

    assert [(each.ledger_id, each.zones, each.losses) for each in done] == [
        (10, 1, ()),
        (20, 1, ()),
        (30, 1, ()),
    ]
    rows = zones_table(catalog, place).to_pylist()
    assert [(row["object"], row["is_current"]) for row in rows if row["ledger_id"] == 20] == [
        (_BOX.data_name, True)
    ]
    assert _read(bucket, statistics=place) == _ALL_TEXTS
    bucket.put(box(_BOX, _entries(20, 2), TOPIC))
    rows = zones_table(open_catalog(bucket.url), place).to_pylist()
    assert [row["is_current"] for row in rows if row["ledger_id"] == 20] == [False]


def test_a_kind_is_audited(bucket: MemoryBucket) -> None:
    """Sound objects are no finding; damaged, single and further ones are, and repair refuses."""
    assert audit(open_catalog(bucket.url)).findings == ()
    topics = [open_catalog(bucket.url).ledgers(NAME)]
    assert [(each.ledger_id, each.problems) for each in verify(topics)] == [
        (10, ()),
        (20, ()),
        (30, ()),
    ]

    bucket.rot(_BOX.index_name, b"no lid")
    other = BoxName(UUID(int=2**99), 25)
    bucket.put({other.data_name: b"data alone"})
    catalog = open_catalog(bucket.url)

    found = {(each.kind.value, each.ledger_id) for each in audit(catalog).findings}
    assert found == {("format mismatch", 20), ("data without index", 25)}
    plan = [(each.attempt.name, each.refusal) for each in plan_repair(catalog)]
    assert plan == [(name, "cartons of the packers cannot be rebuilt") for name in (_BOX, other)]


def test_metadata_names_a_kind(bucket: MemoryBucket, tmp_path: Path) -> None:
    """The driver decides which objects a ledger should have; missing ones are told by name."""
    infos = [
        LedgerInfo(
            ledger_id=copy.name.ledger_id,
            entries=copy.ledger.entry_count,
            size_bytes=copy.ledger.length_bytes,
            timestamp_ms=1,
            offload=OffloadContext(
                uuid=copy.name.uuid,
                complete=True,
                driver=DRIVER if copy.name == _BOX else "aws-s3",
                timestamp_ms=2,
            ),
        )
        for copy in open_catalog(bucket.url).contents.copies
        if copy.ledger is not None
    ]
    save_metadata(tmp_path, metadata_of(*infos))
    metadata = {TOPIC: str(tmp_path / "topic")}
    assert _read(bucket, metadata=metadata) == _ALL_TEXTS
    further = BoxName(UUID(int=2**98), 20)
    bucket.put(box(further, _entries(20, 3), TOPIC))
    found = audit(open_catalog(bucket.url, metadata=metadata))
    assert [(each.kind.value, each.objects) for each in found.findings] == [
        ("double", (further.index_name, further.data_name))
    ]
    (planned,) = plan_cleaning(found, now=found.listed_at)
    assert planned.refusal is not None

    for name in (_BOX.data_name, _BOX.index_name, further.data_name, further.index_name):
        bucket.delete(name)
    assert _box_states(open_catalog(bucket.url, metadata=metadata)) == ["missing"]
    with pytest.raises(MissingObjectError) as missing:
        _read(bucket, metadata=metadata)
    assert (missing.value.object_key, missing.value.ledger_id) == (_BOX.index_name, 20)


def test_a_catalog_snapshot_has_a_kind(bucket: MemoryBucket, tmp_path: Path) -> None:
    """A catalog snapshot opens again with its ledgers, sound or not, and reads them."""
    path = str(tmp_path / "catalog.json.gz")
    broken = BoxName(UUID(int=2**99), 25)
    bucket.put({broken.data_name: b"data", broken.index_name: b"no lid"})
    open_catalog(bucket.url).save(path)
    catalog = open_catalog(bucket.url, metadata=path)

    listed = open_catalog(bucket.url).contents.copies
    assert [each.name for each in catalog.contents.copies] == [each.name for each in listed]
    assert _box_states(catalog) == ["offloaded"]
    assert [str(each) for each in catalog.unattributed_errors()] == [
        str(each) for each in open_catalog(bucket.url).unattributed_errors()
    ]
    with pytest.warns(IncompleteReadWarning, match="1 × ledger lost"):
        assert _read(bucket, metadata=path, on_corruption="salvage") == _ALL_TEXTS


def test_what_was_read_of_a_kind_is_not_read_again(bucket: MemoryBucket) -> None:
    """A later listing that shows the same objects sends no request for their lids."""
    trace = RequestTrace()
    catalog = open_catalog(bucket.url, trace=trace)
    before = trace.counts.index_requests
    bucket.put(box(BoxName(UUID(int=2**99), 40), _entries(40, 1), TOPIC))
    later = catalog.refreshed()

    assert [each.ledger_id for each in later.ledgers(NAME).ledgers] == [10, 20, 30, 40]
    assert trace.counts.index_requests == before + 1
