"""`Catalog.select` with metadata: what a read is told of, and what it reads all the same."""

from __future__ import annotations

import json
import warnings
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.errors import (
    CorruptMetadataError,
    IncompleteReadWarning,
    MissingObjectError,
)
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import running_admin_server
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import OTHER_UUID, SMALL, OwnedBucket

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connector import TopicDataset

CHUNKED = golden_topic("small-chunked")
TOPIC = TopicName.parse(CHUNKED.name)
OBJECTS = str(GOLDEN / SMALL / "objects")


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


def dataset(bucket: OwnedBucket, topic: str = "small-chunked", **options: object) -> TopicDataset:
    """A topic of the bucket, with its metadata, values as bytes."""
    return open_topic(
        str(bucket.objects),
        topic,
        **{"metadata": str(bucket.metadata), "value": "raw", **options},  # type: ignore[arg-type]
    )


def read(topic: TopicDataset) -> tuple[int, list[str]]:
    """How many rows a read gives, and what it tells."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rows = topic.to_table(columns=["__entry_id__"]).num_rows
    return rows, [str(each.message) for each in told if each.category is IncompleteReadWarning]


def test_what_is_missing_outside_of_the_bounds_is_passed_over(bucket: OwnedBucket) -> None:
    """A ledger lost long ago does not keep a read of newer ones from being strict."""
    lost = CHUNKED.ledgers[1]
    bucket.delete(lost.data_object.name, lost.index_object.name)

    for bounds in ({}, {"start": (15, 0)}, {"end": (15, 1)}, {"end": "2030-01-01"}):
        with pytest.raises(MissingObjectError):
            dataset(bucket, **bounds)
    newer = dataset(bucket, start=(lost.ledger_id + 1, 0))
    assert {each.ledger_id for each in newer.scan.topics[0].ledgers} >= set(range(16, 22))
    rows, told = read(dataset(bucket, end=(15, 0)))
    # A chunked message goes on in the ledger that is lost.
    assert rows > 0
    assert "1 chunked message was left out" in told[0]


def test_salvaging_reads_another_copy_and_says_so(bucket: OwnedBucket) -> None:
    """Where the copy that the metadata names is gone, the rows of another are given, not lost."""
    whole, _ = read(dataset(bucket))
    for ledger in CHUNKED.ledgers[:2]:
        bucket.copy_ledger(ledger, OTHER_UUID)
        bucket.delete(ledger.data_object.name, ledger.index_object.name)

    with pytest.raises(MissingObjectError, match="another copy with the uuid"):
        dataset(bucket)
    rows, told = read(dataset(bucket, on_corruption="salvage"))

    assert rows == whole
    assert len(told) == 1
    assert "2 ledgers were read from other copies" in told[0]


def test_malformed_metadata_is_a_problem_of_its_topic_alone(bucket: OwnedBucket) -> None:
    """The topic is an error, or what the bucket shows of it; others are read as ever."""
    whole, _ = read(dataset(bucket))
    for path in bucket.metadata.glob("*__small-chunked/*.bin"):
        path.write_bytes(b"\xff\xff")

    with pytest.raises(CorruptMetadataError):
        dataset(bucket)
    rows, told = read(dataset(bucket, on_corruption="salvage"))
    assert rows == whole
    assert any("CorruptMetadataError" in each for each in told)
    assert read(dataset(bucket, "small-compacted"))[0] > 0
    catalog = open_catalog(str(bucket.objects), metadata=str(bucket.metadata))
    broken = [each for each in catalog.every_ledger() if each.metadata_error is not None]
    assert [each.topic for each in broken] == [TOPIC]


def test_topic_that_the_metadata_does_not_know_is_told(tmp_path: Path) -> None:
    """Nothing tells whether what the bucket shows of it is all."""
    bucket = OwnedBucket.copied(tmp_path)
    known = {"small-compacted": next(bucket.metadata.glob("*__small-compacted"))}
    rows, told = read(dataset(bucket, metadata=known))

    assert rows > 0
    assert any("does not list 1 of the topics" in each for each in told)


def test_contradicting_answers_are_told_once_to_whoever_reads(bucket: OwnedBucket) -> None:
    """What the value and the admin API's answer say of a uuid otherwise is no secret of audits."""
    for file in ("internal-info.json", "internal-stats.json"):
        answer = (CHUNKED.folder / file).read_text("utf-8")
        other = answer.replace(CHUNKED.ledgers[0].uuid, str(OTHER_UUID))
        next(bucket.metadata.glob("*__small-chunked")).joinpath(file).write_text(other, "utf-8")
    bucket.prove(CHUNKED.name)

    _, told = read(dataset(bucket))

    (doubt,) = [each for each in told if str(OTHER_UUID) in each]
    assert doubt.count(CHUNKED.name) == 1


def test_buckets_that_no_metadata_names_are_looked_at(tmp_path: Path) -> None:
    """The admin API tells no bucket: those that the user names are all looked at, by uuid."""
    bucket = OwnedBucket.copied(tmp_path)
    elsewhere = tmp_path / "older"
    elsewhere.mkdir()
    for ledger in CHUNKED.ledgers[:3]:
        for name in (ledger.data_object.name, ledger.index_object.name):
            (bucket.objects / name).rename(elsewhere / name)

    with running_admin_server(SMALL) as server:
        options: dict[str, Any] = {"metadata": server.url, "buckets": {"older": str(elsewhere)}}
        with_it = read(dataset(bucket, **options))
        with pytest.raises(MissingObjectError):
            dataset(bucket, metadata=server.url)

    assert with_it == read(
        open_topic(OBJECTS, "small-chunked", metadata=str(GOLDEN / SMALL), value="raw")
    )


def test_same_schema_of_several_topics_is_their_schema(tmp_path: Path) -> None:
    """That it was registered at another time for each makes no difference."""
    bucket = OwnedBucket.copied(tmp_path)
    for number, name in enumerate(("small-bytes-batched-lz4", "small-compacted")):
        answer = {"version": 0, "type": "STRING", "timestamp": number, "data": "", "properties": {}}
        text = json.dumps({"getSchemaResponses": [answer]})
        next(bucket.metadata.glob(f"*__{name}")).joinpath("schemas-rest.json").write_text(text)
        bucket.prove(name)

    topics = ["small-bytes-batched-lz4", "small-compacted"]
    given = open_topic(str(bucket.objects), topics, metadata=str(bucket.metadata))

    assert str(given.schema.field("__value__").type) == "string"


def test_named_topic_asks_for_its_namespace_alone() -> None:
    """Neither tenants nor other namespaces are listed, which takes rights that readers lack."""
    with running_admin_server(SMALL) as server:
        open_topic(OBJECTS, "small-chunked", metadata=server.url, value="raw")
        asked = [path for path in server.paths if "tenants" in path or "namespaces" in path]

    assert asked == []


def test_relisted_snapshot_shows_what_is_there_now(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Its metadata stays; what was deleted since is missing."""
    path = tmp_path / "catalog.json.gz"
    open_catalog(str(bucket.objects), metadata=str(bucket.metadata)).save(path)
    lost = CHUNKED.ledgers[0]
    bucket.delete(lost.data_object.name, lost.index_object.name)

    trace = RequestTrace()
    catalog = open_catalog(str(bucket.objects), metadata=path, trace=trace)
    assert catalog.ledgers(TOPIC).problems == ()
    (problem,) = catalog.relisted().ledgers(TOPIC).problems
    assert isinstance(problem, MissingObjectError)


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("steps", list(product(("refreshed", "relisted"), repeat=2)))
def test_a_catalog_is_renewed_in_any_order(
    bucket: OwnedBucket, tmp_path: Path, steps: Sequence[str], *, saved: bool, has_metadata: bool
) -> None:
    """Listing again keeps the metadata of a snapshot, and nothing else of it."""
    metadata: Any = str(bucket.metadata) if has_metadata else None
    catalog = open_catalog(str(bucket.objects), metadata=metadata)
    topics = set(map(str, catalog.topics()))
    if saved:
        catalog.save(tmp_path / "catalog.json.gz")
        catalog = open_catalog(str(bucket.objects), metadata=tmp_path / "catalog.json.gz")
    for step in steps:
        catalog = getattr(catalog, step)()

    lost = CHUNKED.ledgers[0]
    bucket.delete(lost.data_object.name, lost.index_object.name)
    catalog = getattr(catalog, steps[-1])()

    assert set(map(str, catalog.topics())) == topics
    problems = catalog.ledgers(TOPIC).problems
    is_stale = saved and set(steps) == {"refreshed"}
    assert bool(problems) == (has_metadata and not is_stale)
