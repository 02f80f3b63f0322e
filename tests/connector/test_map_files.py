"""Topics with ledgers in MapFiles, as a user of the bucket expects them."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

from arrow_io.errors import (
    IncompleteReadWarning,
    MissingObjectError,
    TruncatedObjectError,
)
from arrow_io.format.object_names import LedgerObjectName, MapFileName
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector import copy_topics, open_catalog, open_topic
from connector.catalog.tables import ledgers_table
from connector.catalog.topic_ledgers import LedgerState
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import audit
from connector.upkeep.forecast.cost import read_cost
from tests.support.buckets import MANAGED_LEDGER, TOPIC, memory_bucket, offload_ledger
from tests.support.command_line import run
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN, GoldenTopic, map_file_topics
from tests.support.golden_entries import golden_entries
from tests.support.map_files import COMPRESSIONS, write_map_file
from tests.support.owned_bucket import (
    ANSWER_FILES,
    OwnedBucket,
    copy_metadata,
    under_way,
    without_uuid,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from connector import TopicDataset
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from tests.support.s3_server import S3Server

_SET = "filesystem-4.0.8-broker-record"
_BLOCK_SET = "filesystem-4.0.6-broker-pulsar"
_TOPICS = [each for each in map_file_topics() if each.set_name == _SET]
(_TOPIC,) = (each for each in _TOPICS if each.name.endswith("r-multi-ledger"))
_FOLDER = "public/default/persistent/r-multi-ledger"


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A copy of the set in records, with its metadata."""
    return OwnedBucket.copied(tmp_path, _SET)


def _open(bucket: OwnedBucket, **options: Any) -> TopicDataset:  # noqa: ANN401 - open_topic's
    options = {"metadata": bucket.metadata, **options}
    return open_topic(str(bucket.objects), _TOPIC.name, value="raw", **options)


def _name(number: int) -> MapFileName:
    ledger = _TOPIC.ledgers[number]
    return MapFileName(_TOPIC.managed_ledger, UUID(ledger.uuid), ledger.ledger_id)


# Where the files are


def _below(base_path: str) -> Callable[[LedgerInfo], LedgerInfo]:
    def change(info: LedgerInfo) -> LedgerInfo:
        assert info.offload is not None
        properties = {"storageBasePath": base_path}
        return replace(info, offload=replace(info.offload, driver_properties=properties))

    return change


def _moved(bucket: OwnedBucket, base: Path, base_path: str) -> None:
    """Move two ledgers below another base path, and record it in the metadata."""
    for number in (2, 3):
        folder = _name(number).folder
        (base / folder).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(bucket.objects / folder, base / folder)
    bucket.change(_TOPIC.name, dict.fromkeys((16, 17), _below(base_path)))


def test_ledgers_below_another_base_path(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The option `buckets` maps the base path that the metadata names to a URL."""
    expected, base_path = _open(bucket).to_table(), "hdfs://namenode:8020/old"
    _moved(bucket, tmp_path / "old", base_path)
    snapshot = tmp_path / "catalog.json.gz"

    with pytest.raises(MissingObjectError, match=f"base path '{base_path}'.*buckets"):
        _open(bucket)
    buckets = {base_path: str(tmp_path / "old")}
    assert _open(bucket, buckets=buckets).to_table().equals(expected)
    bucket.catalog(buckets=buckets).save(snapshot)
    assert _open(bucket, metadata=snapshot).to_table().equals(expected)


def test_a_relative_base_path_is_below_the_url(bucket: OwnedBucket) -> None:
    """Pulsar 2.10 records `pulsar`, relative to the folder that the broker ran in."""
    expected = _open(bucket).to_table()
    _moved(bucket, bucket.objects / "pulsar", "pulsar")

    assert _open(bucket).to_table().equals(expected)


@pytest.mark.parametrize("path", ["../old", "a/../../old", "/old", "a//b", "file:///old", "a:b"])
def test_a_base_path_leads_nowhere_else(bucket: OwnedBucket, tmp_path: Path, path: str) -> None:
    """Only the user names a folder that is not below the URL."""
    _moved(bucket, tmp_path / "old", path)

    with pytest.raises(MissingObjectError, match="give its URL with buckets"):
        _open(bucket)


def test_a_lost_ledger_of_the_same_base_path_is_missing(bucket: OwnedBucket) -> None:
    """If the base path is that of the URL, the message does not send its reader elsewhere."""
    shutil.rmtree(bucket.objects / _name(2).folder)
    bucket.change(_TOPIC.name, {16: _below(f"file://{bucket.objects}/")})

    with pytest.raises(MissingObjectError) as caught:
        _open(bucket)

    assert "base path" not in str(caught.value)
    assert caught.value.ledger_id == 16


# Which driver wrote a ledger


def _offloaded_to_s3(bucket: OwnedBucket, number: int, entries: list[bytes]) -> None:
    """Offload a ledger with another driver, and let the metadata say so."""
    ledger = _TOPIC.ledgers[number]
    name = LedgerObjectName(UUID(int=ledger.ledger_id), ledger.ledger_id)
    for each, data in offload_ledger(name, entries, managed_ledger=_TOPIC.managed_ledger).items():
        bucket.write(each, data)

    def change(info: LedgerInfo) -> LedgerInfo:
        assert info.offload is not None
        offload = replace(info.offload, uuid=name.uuid, driver="aws-s3", driver_properties={})
        return replace(info, offload=offload)

    bucket.change(_TOPIC.name, {ledger.ledger_id: change})


def test_a_cluster_that_changed_its_driver(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The metadata decides for each ledger, which may have copies of both drivers."""
    expected = _open(bucket).to_table()
    entries = dict(golden_entries(_TOPIC))
    for number, ledger in enumerate(_TOPIC.ledgers[:4]):
        _offloaded_to_s3(bucket, number, entries[ledger.ledger_id])
    shutil.rmtree(bucket.objects / _name(0).folder)

    def assert_whole(**options: Any) -> None:  # noqa: ANN401 - open_topic's
        dataset = _open(bucket, **options)
        assert dataset.to_table().equals(expected)
        ledgers = dataset.scan.topics[0].ledgers
        assert [type(each.name) for each in ledgers] == [LedgerObjectName] * 4 + [MapFileName] * 5

    assert_whole()
    snapshot = tmp_path / "catalog.json.gz"
    bucket.catalog().save(snapshot)
    assert_whole(metadata=snapshot)
    assert _open(bucket, metadata=None).to_table().equals(expected)


def test_the_admin_api_names_no_driver(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Its answers have no driver, and some have no uuid: either kind is found."""
    expected = _open(bucket).to_table()
    entries = dict(golden_entries(_TOPIC))
    _offloaded_to_s3(bucket, 0, entries[14])
    shutil.rmtree(bucket.objects / _name(0).folder)
    statistics = copy_metadata(_SET, tmp_path / "statistics", ANSWER_FILES[1:])

    assert _open(bucket, metadata=statistics).to_table().equals(expected)
    bucket.change(_TOPIC.name, {each.ledger_id: without_uuid for each in _TOPIC.ledgers})
    assert _open(bucket).to_table().equals(expected)


# Offloads that did not finish


def _cut(bucket: OwnedBucket, number: int, *, data_bytes: int = 5000) -> MapFileName:
    """Leave what a full disk leaves: the start of the data, and an empty index."""
    name = _name(number)
    for each, size in ((name.data_name, data_bytes), (name.index_name, 0)):
        data = (bucket.objects / each).read_bytes()
        bucket.write(each, data[:size])
    for each in name.checksum_names:
        bucket.write(each, b"")
    return name


@pytest.mark.parametrize("data_bytes", [0, 100, 5000])
def test_an_unfinished_folder(bucket: OwnedBucket, data_bytes: int) -> None:
    """Metadata says whether it is an offload in progress or a loss; the bucket alone cannot."""
    name = _cut(bucket, -2, data_bytes=data_bytes)

    with pytest.raises(TruncatedObjectError, match="open the topic with metadata") as caught:
        _open(bucket, metadata=None)
    assert (caught.value.object_key, caught.value.ledger_id) == (name.data_name, 21)
    with pytest.raises(TruncatedObjectError, match="metadata says that the ledger is offloaded"):
        _open(bucket)

    bucket.change(_TOPIC.name, {21: under_way})
    topic = TopicName.parse(_TOPIC.name)
    states = {each.ledger_id: each.state for each in bucket.catalog().ledgers(topic).states}
    # Later ledgers are offloaded, so its messages are missing, but only BookKeeper's are.
    assert states[21] is LedgerState.OFFLOADING


def test_the_last_offload_is_under_way(bucket: OwnedBucket) -> None:
    """A read returns the messages before it, and counts the ledger as not offloaded yet."""
    expected = _open(bucket, end=(22, 0)).to_table()
    _cut(bucket, -1, data_bytes=100)
    bucket.change(_TOPIC.name, {22: under_way})

    dataset = _open(bucket)

    with pytest.warns(IncompleteReadWarning, match="1 ledger"):
        assert dataset.to_table().equals(expected)
    assert dataset.metrics.pending_ledgers == 1
    assert not dataset.metrics.lost


@pytest.mark.s3
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_an_unfinished_folder_in_a_bucket(
    bucket: OwnedBucket, s3_server: S3Server, client: str
) -> None:
    """The store's times and versions do not make a file look as though it kept changing."""
    _cut(bucket, 1)
    files = [path for path in bucket.objects.rglob("*") if path.is_file()]
    objects = {str(path.relative_to(bucket.objects)): path.read_bytes() for path in files}
    address = s3_server.upload(objects)
    options = {**address.storage_options, "client": client}

    contents = open_catalog(address.url, storage_options=options).contents

    (unfinished,) = (each for each in contents.copies if each.is_unfinished)
    assert unfinished.name.ledger_id == 15
    assert unfinished.cut is not None


def _writing(bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let a broker write the last ledger, one step after each listing and each look at it."""
    name = _name(-1)
    paths = [bucket.objects / name.data_name, bucket.objects / name.index_name]
    contents = [path.read_bytes() for path in paths]
    times = iter(range(1, steps + 1))

    def write() -> None:
        step = next(times, None)
        if step is not None:
            length = len(contents[0]) * step // steps
            paths[0].write_bytes(contents[0][:length])
            paths[1].write_bytes(contents[1] if step == steps else b"")

    paths[0].write_bytes(b"")
    paths[1].write_bytes(b"")
    for method in ("list_tree", "find"):
        original = getattr(Location, method)

        def change_after(*args: Any, original: Any = original) -> Any:  # noqa: ANN401
            answer = original(*args)
            write()
            return answer

        monkeypatch.setattr(Location, method, change_after)


@pytest.mark.parametrize("has_metadata", [False, True])
def test_a_folder_that_a_broker_finishes_meanwhile(
    bucket: OwnedBucket,
    monkeypatch: pytest.MonkeyPatch,
    has_metadata: bool,
) -> None:
    """It is read again, and is whole by then; no other topic is disturbed."""
    expected = _open(bucket).to_table()
    _writing(bucket, monkeypatch, 2)

    dataset = _open(bucket, metadata=bucket.metadata if has_metadata else None)

    assert dataset.to_table().equals(expected)


def test_a_folder_that_keeps_changing_is_unfinished(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offload in progress stops no other topic, nor its own if metadata says that it is one."""
    expected = _open(bucket, end=(22, 0)).to_table()
    bucket.change(_TOPIC.name, {22: under_way})
    _writing(bucket, monkeypatch, 1000)

    with pytest.raises(TruncatedObjectError, match="open the topic with metadata"):
        _open(bucket, metadata=None)
    other = _TOPICS[0]
    rows = open_topic(str(bucket.objects), other.name, value="raw").count_rows()
    assert rows == other.message_count
    with pytest.warns(IncompleteReadWarning, match="1 ledger"):
        assert _open(bucket).to_table().equals(expected)


@pytest.mark.parametrize("many", [False, True], ids=["by name", "by listing"])
def test_metadata_that_is_newer_than_the_bucket(
    bucket: OwnedBucket,
    monkeypatch: pytest.MonkeyPatch,
    many: bool,
) -> None:
    """An offload that was in progress when the bucket was read is looked up once more."""
    expected, name = _open(bucket).to_table(), _name(-1)
    whole = {
        each: (bucket.objects / each).read_bytes() for each in (name.data_name, name.index_name)
    }
    _cut(bucket, -1, data_bytes=300)
    catalog = bucket.catalog()
    assert len([each for each in catalog.contents.copies if each.is_unfinished]) == 1
    for each, data in whole.items():
        bucket.write(each, data)
    monkeypatch.setattr("connector.catalog.bucket._MAX_LOOKUPS_BY_NAME", 0 if many else 256)

    dataset = open_topic(str(bucket.objects), _TOPIC.name, catalog=catalog, value="raw")

    assert dataset.to_table().equals(expected)


def test_a_snapshot_of_a_damaged_index(bucket: OwnedBucket, tmp_path: Path) -> None:
    """A catalog snapshot has the same warnings, findings and ledgers."""
    bucket.write(_name(3).index_name, b"")
    _cut(bucket, 5)
    path = tmp_path / "catalog.json.gz"
    catalog = bucket.catalog()
    catalog.save(path)

    reopened = open_catalog(str(bucket.objects), metadata=str(path))

    assert audit(reopened).findings == audit(catalog).findings
    assert len(audit(reopened).findings) == 2
    tables = [ledgers_table(each) for each in (reopened, catalog)]
    assert tables[0].equals(tables[1])
    assert any(tables[0]["warnings"].to_pylist())


@pytest.mark.parametrize("has_metadata", [False, True])
def test_salvaging_reads_the_whole_entries(bucket: OwnedBucket, has_metadata: bool) -> None:
    """Rows of a cut file are those before the cut, and the rest is counted."""
    expected = _open(bucket).to_table()
    _cut(bucket, 1)
    metadata = bucket.metadata if has_metadata else None

    dataset = _open(bucket, metadata=metadata, on_corruption="salvage")
    with pytest.warns(IncompleteReadWarning, match="entry lost: TruncatedObjectError"):
        found = dataset.to_table()

    lost = dataset.metrics.lost.total()
    is_cut = [ledger_id == 15 for ledger_id in expected["__ledger_id__"].to_pylist()]
    assert 0 < lost < 40
    assert found.num_rows < expected.num_rows
    others = [index for index, cut in enumerate(is_cut) if not cut]
    ids = found["__ledger_id__"].to_pylist()
    assert found.take([i for i, each in enumerate(ids) if each != 15]).equals(expected.take(others))


# Copies of the bucket


@contextmanager
def _uploaded(name: str, store: str, s3_server: S3Server) -> Iterator[dict[str, Any]]:
    """Yield what opens a golden set, which was copied to a store unless that is its folder."""
    folder = GOLDEN / name / "objects"
    if store == "folder":
        yield {"url": str(folder)}
        return
    objects = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    if store.startswith("s3"):
        address = s3_server.upload(objects, prefix="a/b")
        client = {"client": "obstore"} if store == "s3 by obstore" else {}
        options = {**address.storage_options, **client}
        yield {"url": address.url, "storage_options": options}
    else:
        with memory_bucket(objects) as bucket:
            yield {"url": bucket.url}


@pytest.mark.s3
@pytest.mark.parametrize("store", ["s3", "s3 by obstore", "memory"])
@pytest.mark.parametrize("name", [_SET, _BLOCK_SET])
def test_an_object_store_has_the_same_rows(name: str, store: str, s3_server: S3Server) -> None:
    """Names of objects have the encoded local names, which no request decodes."""
    local = open_catalog(str(GOLDEN / name / "objects"))

    with _uploaded(name, store, s3_server) as place:
        catalog = open_catalog(**place)
        assert catalog.topics() == local.topics()
        for topic in _some_topics(name):
            tables = [
                open_topic(each.location.url, topic.name, catalog=each, value="raw").to_table()
                for each in (catalog, local)
            ]
            assert tables[0].equals(tables[1])
            assert tables[0].num_rows == topic.message_count


def _some_topics(name: str) -> list[GoldenTopic]:
    """Topics of a set, among them the largest and the one whose name is encoded."""
    words = ("orders-", "multi-block", "chunked", "transactions")
    return [
        each
        for each in map_file_topics()
        if each.set_name == name
        and any(word in each.name for word in words)
        and "encrypted" not in each.name
        and not each.name.endswith("-open")
    ]


# Forecasts


@pytest.mark.s3
@pytest.mark.parametrize("name", [_SET, _BLOCK_SET])
@pytest.mark.parametrize("store", ["s3", "folder"])
def test_a_forecast_counts_what_is_sent(name: str, store: str, s3_server: S3Server) -> None:
    """Opening and reading takes the requests and bytes that were forecast."""
    with _uploaded(name, store, s3_server) as place:
        catalog = open_catalog(**place)
        topics = catalog.topics()
        opening = catalog.opening(topics)
        names = [each.name for each in _some_topics(name)]
        scans = [
            open_topic(catalog.location.url, each, catalog=catalog, value="raw").scan
            for each in names
        ]
        forecast = read_cost(*scans, openings=[opening])

        trace = RequestTrace()
        again = open_catalog(**place, trace=trace)
        opened = trace.counts
        for each in names:
            open_topic(again.location.url, each, catalog=again, value="raw").to_table()

    assert opened.range_requests >= 2 * len(opening.copies)
    assert _without_heads(forecast.opening) == _without_heads(opened)
    assert _without_heads(forecast.counts) == _without_heads(trace.counts)


def _without_heads(counts: RequestCounts) -> RequestCounts:
    """Leave out requests that only folders need to find out versions."""
    return replace(counts, head_requests=0)


# Statistics, streams and copies


def _long_entries(count: int = 8000) -> list[bytes]:
    """Entries of a kilobyte that no codec shortens, a millisecond apart, with ten keys."""
    source = random.Random(1)
    return [
        encode_entry(
            [Message(payload=source.randbytes(1000), partition_key=f"key {number * 10 // count}")],
            batched=False,
            publish_time=1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_statistics_prune_zones(compression: str, tmp_path: Path) -> None:
    """A read with statistics has the same rows from fewer bytes; positions are estimates."""
    statistics, name = str(tmp_path / "statistics"), MapFileName(MANAGED_LEDGER, UUID(int=5), 15)
    map_file = write_map_file(_long_entries(), compression=compression)

    with memory_bucket(map_file.objects(name)) as bucket:
        (analyzed,) = open_catalog(bucket.url).analyze(statistics)
        assert analyzed.losses == ()
        whole = open_topic(bucket.url, TOPIC, value="raw").to_table()
        for number in (0, 4, 9):
            keyed = pc.equal(whole["__key__"], f"key {number}")
            read_bytes = []
            for folder in (None, statistics):
                trace = RequestTrace()
                dataset = open_topic(bucket.url, TOPIC, value="raw", trace=trace, statistics=folder)
                opened = trace.counts.range_bytes
                found = dataset.to_table(filter=pc.field("__key__") == f"key {number}")
                assert found.equals(whole.filter(keyed))
                read_bytes.append(trace.counts.range_bytes - opened)
            assert read_bytes[1] < 0.8 * read_bytes[0]


def test_copies_and_increments(bucket: OwnedBucket, tmp_path: Path) -> None:
    """Steps of a copy have each message once, whatever was offloaded before and after them."""
    expected, url, target = _open(bucket).to_table(), str(bucket.objects), str(tmp_path / "table")
    later = [_name(number).folder for number in range(4, 9)]
    for folder in later:
        shutil.move(bucket.objects / folder, tmp_path / folder.rpartition("/")[2])

    counts = []
    for step in range(3):
        if step == 1:
            for folder in later:
                shutil.move(tmp_path / folder.rpartition("/")[2], bucket.objects / folder)
        (summary,) = copy_topics(url, _TOPIC.name, target, format="parquet", value="raw")
        counts.append(summary.rows)

    assert counts[0] > 0
    assert counts[1] > 0
    assert counts[2] == 0
    columns = ["__ledger_id__", "__entry_id__", "__batch_index__", "__value__"]
    order = [(name, "ascending") for name in columns[:3]]
    table = pads.dataset(target, format="parquet", partitioning="hive").to_table(columns=columns)
    assert table.sort_by(order).equals(expected.select(columns).cast(table.schema))


def test_reports_and_plans(bucket: OwnedBucket, tmp_path: Path) -> None:
    """The HTML report of a bucket and the plan of a read show ledgers and ranges."""
    url, page = str(bucket.objects), tmp_path / "page.html"

    run("report", url, "--metadata", str(bucket.metadata), "--output", str(page))
    plan = json.loads(run("plan", url, _TOPIC.name, "--json").stdout)

    assert "r-multi-ledger" in page.read_text()
    assert {row["ledger_id"] for row in plan["ranges"]} == {_name(n).ledger_id for n in range(9)}


def test_names_of_map_files_are_looked_up_alone(bucket: OwnedBucket) -> None:
    """A ledger that is missing from the listing is requested by the names of one driver."""
    trace = RequestTrace(keep_records=True)
    name = _name(2)
    shutil.rmtree(bucket.objects / name.folder)

    with pytest.raises(MissingObjectError):
        _open(bucket, trace=trace)

    heads = {each.name for each in trace.records if str(each.name).endswith("-index")}
    assert heads == set()
    assert Location(str(bucket.objects)).find(name.index_name) is None


def test_bounds_within_a_ledger() -> None:
    """From each entry on, for each compression, a read returns the rows after it."""
    entries = dict(golden_entries(_TOPIC))[15]
    for compression in COMPRESSIONS:
        name = MapFileName(_TOPIC.managed_ledger, UUID(int=5), 15)
        map_file = write_map_file(
            entries,
            managed_ledger=_TOPIC.managed_ledger,
            compression=compression,
            block_bytes=500,
            interval=2,
        )
        with memory_bucket(map_file.objects(name)) as bucket:
            whole = open_topic(bucket.url, _TOPIC.name, value="raw").to_table()
            for start in (0, 1, 17, 39):
                part = open_topic(bucket.url, _TOPIC.name, value="raw", start=(15, start))
                ids = whole["__entry_id__"].to_pylist()
                rows = [index for index, each in enumerate(ids) if each >= start]
                assert part.to_table().equals(whole.take(rows))
