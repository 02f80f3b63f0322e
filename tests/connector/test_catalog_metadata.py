"""`open_catalog` with metadata: whichever source tells it, a topic has the same ledgers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.errors import (
    IncompleteReadWarning,
    MissingObjectError,
    OptionError,
)
from arrow_io.read_metrics import Unit
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector import open_catalog, open_topic
from connector.catalog.catalog_options import CatalogOptions
from connector.catalog.metadata.topic_metadata import LedgerInfo
from connector.catalog.topic_ledgers import LedgerState
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import running_admin_server
from tests.support.golden import GOLDEN, GOLDEN_SETS, golden_topic, golden_topics
from tests.support.owned_bucket import (
    ANSWER_FILES,
    SCHEMAS_FILE,
    SMALL,
    VALUE_FILE,
    OwnedBucket,
    copy_metadata,
    gone,
    not_offloaded,
    under_way_elsewhere,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from arrow_io.messages.column_names import Naming
    from connector import Catalog
    from tests.support.golden import GoldenTopic
    from tests.support.owned_bucket import Change

SOURCES = ("folder", "values", "answers", "mapping", "admin")
CHUNKED = golden_topic("small-chunked")


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the small golden set."""
    return OwnedBucket.copied(tmp_path)


@contextmanager
def opened(set_name: str, source: str, folder: Path, **options: Any) -> Iterator[Catalog]:  # noqa: ANN401
    """The catalog of a golden set, with its metadata from one of the sources."""
    url, topics = str(GOLDEN / set_name / "objects"), _topics(set_name)
    match source:
        case "folder":
            yield open_catalog(url, metadata=GOLDEN / set_name, **options)
        case "values":
            only = copy_metadata(set_name, folder / "only", (VALUE_FILE, SCHEMAS_FILE))
            yield open_catalog(url, metadata=str(only), **options)
        case "answers":
            only = copy_metadata(set_name, folder / "only", (*ANSWER_FILES, SCHEMAS_FILE))
            yield open_catalog(url, metadata=str(only), **options)
        case "mapping":
            paths = {topic.name: topic.folder for topic in topics}
            yield open_catalog(url, metadata=paths, **options)
        case "admin":
            with running_admin_server(set_name, token="t0ken") as server:
                admin = {"token": "t0ken"}
                yield open_catalog(url, metadata=server.url, metadata_options=admin, **options)


def _topics(set_name: str) -> list[GoldenTopic]:
    return [topic for topic in golden_topics() if topic.set_name == set_name]


def _check(catalog: Catalog, set_name: str) -> None:
    """The catalog has what `topics.json` says: ledgers, uuids, entries, and nothing else."""
    topics = _topics(set_name)
    assert {str(topic) for topic in catalog.topics()} == {topic.name for topic in topics}
    for topic in topics:
        name = TopicName.parse(topic.name)
        found = catalog.ledgers(name)
        assert found.metadata is not None
        assert [
            (each.ledger_id, str(each.name.uuid), each.entry_count) for each in found.ledgers
        ] == [(each.ledger_id, each.uuid, each.entry_count) for each in topic.ledgers]
        *offloaded, last = found.states
        assert [each.ledger_id for each in offloaded] == [each.ledger_id for each in found.ledgers]
        assert {each.state for each in offloaded} <= {LedgerState.BOTH, LedgerState.OFFLOADED}
        assert last.state is LedgerState.OPEN
        assert (found.problems, found.pending, found.unknown) == ((), (), ())
        assert not any(each.others for each in found.states)
        has_schema = catalog.schema([name]) is not None
        assert has_schema == (topic.folder / SCHEMAS_FILE).exists()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("set_name", GOLDEN_SETS)
def test_every_source_gives_the_same_ledgers(set_name: str, source: str, tmp_path: Path) -> None:
    """Each golden topic has the ledgers of `topics.json`, and so has a snapshot of the catalog."""
    snapshot = tmp_path / "catalog.json.gz"
    with opened(set_name, source, tmp_path) as catalog:
        _check(catalog, set_name)
        catalog.save(snapshot)

    _check(open_catalog(str(GOLDEN / set_name / "objects"), metadata=snapshot), set_name)


def test_snapshot_keeps_topics_that_a_cluster_does_not_list(tmp_path: Path) -> None:
    """Brokers leave system topics out of their lists, and answer for them when they are asked."""
    snapshot = tmp_path / "catalog.json.gz"
    url = str(GOLDEN / SMALL / "objects")
    with running_admin_server(SMALL) as server:
        listed = ("admin", "v2", "persistent", "public", "default")
        server.answers[listed] = b"[]"
        open_catalog(url, metadata=server.url).save(snapshot)

    _check(open_catalog(url, metadata=snapshot), SMALL)


@pytest.mark.parametrize("source", [*SOURCES, "snapshot"])
@pytest.mark.parametrize("topic", ["small-avro-evolved", "small-partitioned"])
def test_schema_comes_with_the_metadata(topic: str, source: str, tmp_path: Path) -> None:
    """Values are typed as though the schema had been given."""
    url = str(GOLDEN / SMALL / "objects")
    folder = next(each.folder for each in _topics(SMALL) if topic in each.name)
    expected = open_topic(url, topic, schema=str(folder / SCHEMAS_FILE)).to_table()
    path = tmp_path / "catalog.json.gz"
    with opened(SMALL, "folder" if source == "snapshot" else source, tmp_path) as catalog:
        if source == "snapshot":
            catalog.save(path)
            found = open_topic(url, topic, metadata=path)
        else:
            found = open_topic(url, topic, catalog=catalog)
        table = found.to_table()

    assert table.equals(expected)
    assert "__value__" not in table.column_names


def test_topics_of_different_schemas_are_refused() -> None:
    """Topics of one dataset have one schema; the error names two, and what can be done."""
    catalog = open_catalog(
        str(GOLDEN / "pulsar-4.0.7" / "objects"), metadata=GOLDEN / "pulsar-4.0.7"
    )
    names = [TopicName.parse(each) for each in ("json-orders", "avro-orders", "bytes-single-none")]

    assert catalog.schema(names[:1]) is not None
    assert catalog.schema(names[2:]) is None
    assert catalog.schema([]) is None
    for differing, told in (
        (names[:2], r"avro-orders \(AVRO\) and .*json-orders \(JSON\): .* value='raw'"),
        (names[1:], r"avro-orders \(AVRO\) and .*bytes-single-none \(none\): "),
    ):
        with pytest.raises(OptionError, match=f"different schemas, such as .*{told}"):
            catalog.schema(differing)
        with pytest.raises(OptionError, match=f"different schemas, such as .*{told}"):
            open_topic(str(catalog.location), [str(name) for name in differing], catalog=catalog)


def test_topics_of_different_schemas_have_columns_in_common() -> None:
    """Where no value is asked for, and where bytes are, schemas that differ do no harm."""
    catalog = open_catalog(
        str(GOLDEN / "pulsar-4.0.7" / "objects"), metadata=GOLDEN / "pulsar-4.0.7"
    )
    names = ["json-orders", "avro-orders"]

    raw = open_topic(str(catalog.location), names, catalog=catalog, value="raw")
    keys = open_topic(str(catalog.location), names, catalog=catalog, columns=["__key__"])

    assert raw.schema.field("__value__").type == "binary"
    assert keys.to_table().num_rows == raw.count_rows() > 0
    asked: list[tuple[list[str], Naming]] = [
        (["__value__"], "pulsar-sql"),
        (["orderId"], "pulsar-spark"),
    ]
    for columns, naming in asked:
        with pytest.raises(OptionError, match="different schemas"):
            open_topic(
                str(catalog.location), names, catalog=catalog, columns=columns, naming=naming
            )


def test_version_of_the_schema_is_chosen_from_the_metadata() -> None:
    """`schema_version` picks one of the versions that the metadata has, or is refused."""
    golden = golden_topic("small-avro-evolved")
    url, path = str(golden.objects_folder), str(golden.folder / SCHEMAS_FILE)
    expected = open_topic(url, golden.name, schema=path, schema_version=0).schema

    opened = open_topic(url, golden.name, metadata=GOLDEN / SMALL, schema_version=0)

    assert opened.schema == expected
    with pytest.raises(OptionError, match="no schema is known"):
        open_topic(url, CHUNKED.name, metadata=GOLDEN / SMALL, schema_version=0)


def _dataset(bucket: OwnedBucket, **options: Any) -> Any:  # noqa: ANN401
    options = {"metadata": bucket.metadata, "value": "raw", **options}
    return open_topic(str(bucket.objects), CHUNKED.name, **options)


def _told(dataset: Any) -> str:  # noqa: ANN401
    """What a reader of the rows is warned of."""
    with pytest.warns(IncompleteReadWarning) as told:
        dataset.to_table()
    return "\n".join(str(each.message) for each in told)


def _ledger_ids(dataset: Any) -> list[int]:  # noqa: ANN401
    (topic,) = dataset.scan.topics
    return [each.ledger_id for each in topic.ledgers]


def test_missing_ledger_is_an_error_or_counted(bucket: OwnedBucket) -> None:
    """What is offloaded and not there is an error by default, and counted by salvage."""
    ledger = CHUNKED.ledgers[3]
    bucket.delete(ledger.data_object.name, ledger.index_object.name)

    with pytest.raises(MissingObjectError) as caught:
        _dataset(bucket)
    assert caught.value.object_key == ledger.index_object.name
    assert caught.value.ledger_id == ledger.ledger_id
    salvaged = _dataset(bucket, on_corruption="salvage")
    assert _ledger_ids(salvaged) == [14, 15, 16, 18, 19, 20, 21]
    assert re.search("1 × ledger lost: MissingObjectError", _told(salvaged))
    assert salvaged.metrics.lost == {(Unit.LEDGER, "MissingObjectError"): 1}


@pytest.mark.parametrize("change", [not_offloaded, under_way_elsewhere])
def test_tail_in_bookkeeper_is_told(bucket: OwnedBucket, change: Change) -> None:
    """Ledgers behind all that is offloaded are no error; a reader of the rows is warned."""
    last = CHUNKED.ledgers[-1]
    bucket.delete(last.data_object.name, last.index_object.name)
    bucket.change(CHUNKED.name, {last.ledger_id: change})

    dataset = _dataset(bucket)

    assert _ledger_ids(dataset) == list(range(14, 21))
    told = "1 ledger after those offloaded is in BookKeeper only, .* 3 entries"
    assert re.search(told, _told(dataset))
    assert (dataset.metrics.pending_ledgers, dataset.metrics.pending_entries) == (1, 3)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("index_object", lambda data: bytes([data[0] ^ 1]) + data[1:]),
        ("index_object", lambda data: data[:-20]),
        ("index_object", lambda _: b""),
        ("data_object", lambda data: data[:-20]),
        ("data_object", None),
    ],
    ids=["index flipped", "index cut", "index empty", "data cut", "data gone"],
)
def test_damaged_ledger_that_older_metadata_has_as_open_is_told(
    bucket: OwnedBucket, part: str, damage: Callable[[bytes], bytes] | None
) -> None:
    """A copy of it shows that it was offloaded since, however damaged, and whatever that tells."""
    bucket.change(CHUNKED.name, {21: lambda info: LedgerInfo(ledger_id=info.ledger_id), 62: gone})
    path = getattr(CHUNKED.ledgers[-1], part)
    bucket.delete(path.name)
    if damage is not None:
        bucket.write(path.name, damage(path.read_bytes()))

    dataset = _dataset(bucket)

    assert _ledger_ids(dataset) == list(range(14, 21))
    assert _told(dataset)
    assert dataset.metrics.unlisted_ledgers == 1


def test_ledgers_newer_than_the_metadata_are_told(bucket: OwnedBucket) -> None:
    """Metadata that was saved before the last ledgers does not hide them without a word."""
    known = bucket.known(CHUNKED.name)
    bucket.tell(replace(known, ledgers=known.ledgers[:6]))

    dataset = _dataset(bucket)

    assert _ledger_ids(dataset) == list(range(14, 20))
    assert re.search(
        "the metadata does not list 2 ledgers in the bucket as offloaded", _told(dataset)
    )
    assert dataset.metrics.unlisted_ledgers == 2


def test_requests_of_each_kind_of_metadata(tmp_path: Path) -> None:
    """Metadata costs the bucket no request, and a snapshot takes one in the place of all."""
    indexes = [ledger.index_object for topic in _topics(SMALL) for ledger in topic.ledgers]
    expected = RequestCounts(
        list_requests=1,
        index_requests=len(indexes),
        index_bytes=sum(index.stat().st_size for index in indexes),
    )
    snapshot = tmp_path / "catalog.json.gz"
    for source in SOURCES:
        trace = RequestTrace()
        (tmp_path / source).mkdir()
        with opened(SMALL, source, tmp_path / source, trace=trace) as catalog:
            _check(catalog, SMALL)
            catalog.save(snapshot)
        assert trace.counts == expected

    trace = RequestTrace()
    url = str(GOLDEN / SMALL / "objects")
    catalog = open_catalog(url, metadata=snapshot, trace=trace)
    _check(catalog, SMALL)
    catalog.select("small-*")
    assert trace.counts == RequestCounts(index_requests=1, index_bytes=snapshot.stat().st_size)


def test_refreshed_catalog_reads_the_metadata_anew(bucket: OwnedBucket) -> None:
    """Its ledgers are those of now, and no index object is read again."""
    trace = RequestTrace()
    catalog = bucket.catalog(trace=trace)
    name = TopicName.parse(CHUNKED.name)
    assert len(catalog.ledgers(name).ledgers) == 8
    before = trace.counts
    bucket.change(CHUNKED.name, {14: gone})

    after = catalog.refreshed()

    assert len(after.ledgers(name).ledgers) == 7
    assert len(catalog.ledgers(name).ledgers) == 8
    assert trace.counts == before + RequestCounts(list_requests=1)
    assert after.listed_at >= catalog.listed_at


def test_snapshot_is_not_refreshed(bucket: OwnedBucket, tmp_path: Path) -> None:
    """It stays what it was when it was taken."""
    snapshot = tmp_path / "catalog.json.gz"
    catalog = bucket.catalog()
    catalog.save(snapshot)
    opened = bucket.catalog(metadata=snapshot)

    assert opened.refreshed() is opened
    assert opened.listed_at == catalog.listed_at
    assert opened.refreshed().contents == catalog.contents


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"metadata_options": {"token": "s3cret"}},
            "metadata_options cannot be used without metadata",
        ),
        ({"buckets": {"b": "memory://b"}}, "buckets cannot be used without metadata"),
        (
            {"metadata": ""},
            "metadata must be a path or URL, such as s3://bucket/prefix, not an empty",
        ),
        ({"metadata": 5}, "not an int"),
        ({"metadata": {"orders": 5}}, "not an int"),
        ({"metadata": {"a/b": "folder"}}, "topic"),
        ({"metadata": GOLDEN / SMALL, "buckets": {"b": 5}}, "buckets must be URLs by"),
        (
            {"metadata": "http://127.0.0.1:1", "metadata_options": {"tokens": "s3cret"}},
            "unknown metadata option 'tokens'",
        ),
        ({"metadata": "http://user:s3cret@127.0.0.1:1"}, "credentials in the URL"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], told: str) -> None:
    """They are refused, and no secret is shown."""
    with pytest.raises(OptionError, match=told) as caught:
        open_catalog(str(GOLDEN / SMALL / "objects"), **options)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"metadata": GOLDEN / SMALL},
        {"metadata_options": {"token": "t"}},
        {"buckets": {"b": "memory://b"}},
    ],
)
def test_catalog_and_what_it_is_opened_with_are_not_both_given(options: dict[str, Any]) -> None:
    """A catalog has its metadata already."""
    url = str(GOLDEN / SMALL / "objects")
    with pytest.raises(OptionError, match="cannot be combined with catalog: pass"):
        open_topic(url, CHUNKED.name, catalog=open_catalog(url), value="raw", **options)


def test_options_show_no_secret() -> None:
    """What a catalog is opened with never shows what is in it."""
    secret = {"secret": "s3cret", "token": "s3cret"}
    options = CatalogOptions(
        location=Location("ftp://host", secret),
        metadata_options=secret,
        buckets={"b": "ftp://me:s3cret@host"},
    )
    assert "s3cret" not in repr(options)
    assert "s3cret" not in repr(options.location)
