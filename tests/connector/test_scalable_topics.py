"""Scalable topics (Pulsar 5.0): their rows are those that Pulsar's client read of them."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest

from arrow_io.errors import (
    CorruptMetadataError,
    IncompleteReadWarning,
    OptionError,
    TopicNotFoundError,
)
from connector import copy_topics, open_catalog, open_topic
from connector.catalog.tables import ledgers_table, topics_table
from connector.upkeep.audit.audit import audit
from connector.upkeep.audit.findings import FindingKind
from tests.support.admin_server import running_admin_server
from tests.support.buckets import memory_bucket, offload
from tests.support.command_line import INCOMPLETE, OK, lines_of, run
from tests.support.entries import Message, encode_entry
from tests.support.expected import rows_of
from tests.support.golden_datasets import as_the_client_tells
from tests.support.golden_scalable import (
    EXTERNAL,
    FOLDER,
    MIGRATED,
    NAMES,
    OBJECTS,
    ODD,
    ORDERS,
    PAYMENTS,
    golden_scalable_topic,
    scalable_answers,
)
from tests.support.memory_metadata_store import nodes_of_folder
from tests.support.oxia_server import running_oxia_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from connector import Catalog
    from tests.support.admin_server import AdminServer
    from tests.support.expected import Row

EXTRA: Final = ("*", "__topic__", "__segment_id__", "__message_id__", "__txn_id__")
COMPARED: Final = (
    "__topic__",
    "__segment_id__",
    "__partition__",
    "__ledger_id__",
    "__entry_id__",
    "__batch_index__",
    "__publish_time__",
    "__event_time__",
    "__sequence_id__",
    "__producer_name__",
    "__key__",
    "__properties__",
    "__value__",
)


@pytest.fixture
def server() -> Iterator[AdminServer]:
    """The admin API of the cluster, which lists no ledgers of segments."""
    with running_admin_server() as server:
        server.answers.update(scalable_answers())
        yield server


@pytest.fixture
def store() -> Iterator[str]:
    """The metadata store of the cluster."""
    with running_oxia_server(nodes_of_folder(FOLDER / "metadata-store")) as server:
        yield server.url


@pytest.fixture(params=["bucket", "folder", "snapshot", "admin API", "metadata store"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    """The golden bucket, with metadata from each source."""
    match request.param:
        case "bucket":
            metadata = None
        case "admin API":
            metadata = request.getfixturevalue("server").url
        case "metadata store":
            metadata = request.getfixturevalue("store")
        case "folder":
            metadata = str(FOLDER)
        case "snapshot":
            metadata = str(tmp_path / "saved.json.gz")
            open_catalog(str(OBJECTS), metadata=str(FOLDER)).save(metadata)
    return open_catalog(str(OBJECTS), metadata=metadata)


def _expected(name: str, columns: Sequence[str] = COMPARED) -> list[Row]:
    return [{each: row[each] for each in columns} for row in golden_scalable_topic(name).rows]


def _comparable(rows: list[Row], columns: Sequence[str] = COMPARED) -> list[Row]:
    return as_the_client_tells(rows, [dict.fromkeys(columns)])


def _open(name: str, catalog: Catalog, **options: Any) -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        return open_topic(
            str(OBJECTS), name, catalog=catalog, **{"value": "raw", "columns": EXTRA, **options}
        )


@pytest.mark.parametrize("name", [each for each in NAMES if each != PAYMENTS])
@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_rows_are_those_of_the_client(catalog: Catalog, name: str) -> None:
    """Each row is there once, in the order of migrated partitions and then of segments."""
    dataset = _open(name, catalog)
    assert _comparable(rows_of(dataset.to_table())) == _expected(name)
    assert dataset.count_rows() == len(_expected(name))
    assert not dataset.metrics.lost


@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_rows_without_transactions_of_a_topic_with_them(catalog: Catalog) -> None:
    """What the client read outside of transactions is read, whatever became of these."""
    in_transactions = _open(PAYMENTS, catalog, transactions="all").to_table(
        columns=["__message_id__", "__txn_id__"]
    )
    ids = {each["__message_id__"] for each in in_transactions.to_pylist() if each["__txn_id__"]}
    assert len(ids) > 50
    rows = [
        row
        for row in rows_of(_open(PAYMENTS, catalog).to_table())
        if row["__message_id__"] not in ids
    ]
    expected = [
        {each: row[each] for each in COMPARED}
        for row in golden_scalable_topic(PAYMENTS).rows
        if row["__message_id__"] not in ids
    ]
    assert _comparable(rows) == expected


@pytest.mark.parametrize("name", [ORDERS, MIGRATED, ODD, EXTERNAL])
@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_latest_of_each_key(catalog: Catalog, name: str) -> None:
    """The latest message of a key is in the last segment that has the key."""
    latest: dict[str, Row] = {}
    for row in _expected(name):
        if row["__key__"] is not None:
            latest[row["__key__"]] = row
    rows = _comparable(rows_of(_open(name, catalog, view="latest").to_table()))
    assert len(rows) == len(latest)
    assert {row["__key__"]: row for row in rows} == latest


@pytest.mark.parametrize("catalog", ["folder", "snapshot", "admin API"], indirect=True)
@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_typed_columns(catalog: Catalog) -> None:
    """A scalable topic has one schema for all segments and migrated partitions."""
    for name in (ORDERS, MIGRATED):
        table = _open(name, catalog, value="flat", columns=["orderId", "__segment_id__"]).to_table()
        rows = golden_scalable_topic(name).rows
        assert table["__segment_id__"].to_pylist() == [row["__segment_id__"] for row in rows]
        assert table["orderId"].null_count == 0


@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
def test_engines_give_the_same_rows() -> None:
    """DuckDB, Polars and pandas read a scalable topic like any other."""
    catalog = open_catalog(str(OBJECTS), metadata=str(FOLDER))
    for name in (ORDERS, MIGRATED):
        dataset = _open(name, catalog)
        expected = _expected(name)
        with duckdb.connect() as connection:
            connection.execute("set timezone = 'UTC'")
            connection.register("ds", dataset)
            found: pa.Table = connection.sql("from ds").to_arrow_table().cast(dataset.schema)
        assert _comparable(rows_of(found)) == expected
        frame = dataset.to_pandas(arrow_types=True)
        assert frame["__segment_id__"].isna().sum() == sum(
            row["__segment_id__"] is None for row in expected
        )
        assert frame["__entry_id__"].tolist() == [row["__entry_id__"] for row in expected]
        ids = dataset.scan_polars().filter(pl.col("__segment_id__") > 2).collect()
        assert ids["__message_id__"].to_list() == [
            row["__message_id__"]
            for row in golden_scalable_topic(name).rows
            if (row["__segment_id__"] or 0) > 2
        ]


def test_sql_functions_of_duckdb() -> None:
    """`read_pulsar` takes the name of a scalable topic, and the option `segments`."""
    result = run(
        "query",
        str(OBJECTS),
        "select __segment_id__ as segment, count(*) as n from"
        " read_pulsar('topic://public/default/orders', columns := ['__segment_id__'],"
        " value := 'raw', segments := 'all') group by all",
        "--metadata",
        str(FOLDER),
        "--json",
    )
    counts = {row["segment"]: row["n"] for row in map(json.loads, result.stdout.splitlines())}
    expected = [row["__segment_id__"] for row in golden_scalable_topic(ORDERS).rows]
    assert counts == {each: expected.count(each) for each in set(expected)}


def test_tables_of_a_query() -> None:
    """A query names a scalable topic in short, unless there is a classic one of that name."""
    rows = lines_of("query", str(OBJECTS), "show tables")
    assert [row["name"] for row in rows] == [
        "external",
        "migrated",
        "odd été:2026 v1",
        "orders",
        "payments",
        MIGRATED,
    ]
    for sql, count, ends in (
        ("select count(*) as n from orders", len(_expected(ORDERS)), OK),
        ('select count(*) as n from "topic://public/default/orders"', len(_expected(ORDERS)), OK),
        ("select count(*) as n from migrated", 130, INCOMPLETE),
        (
            'select count(*) as n from "topic://public/default/migrated"',
            len(_expected(MIGRATED)),
            OK,
        ),
    ):
        assert lines_of("query", str(OBJECTS), sql, ends=ends) == [{"n": count}]


def test_command_line() -> None:
    """Commands name scalable topics in full, and find them by their short name too."""
    rows = lines_of("head", str(OBJECTS), "orders", "-n", "1000", "--columns", "__entry_id__")
    assert [row["__entry_id__"] for row in rows] == [
        row["__entry_id__"] for row in golden_scalable_topic(ORDERS).rows
    ]
    listed = {row["topic"]: row for row in lines_of("topics", str(OBJECTS))}
    assert listed[ORDERS]["segments"] == 6
    assert listed[MIGRATED]["segments"] == 2
    assert listed["persistent://public/default/migrated"]["partitions"] == 2
    ledgers = lines_of("ledgers", str(OBJECTS), MIGRATED)
    assert [(row["segment_id"], row["partition"]) for row in ledgers] == [
        *([(None, 0)] * len([row for row in ledgers if row["partition"] == 0])),
        *([(None, 1)] * len([row for row in ledgers if row["partition"] == 1])),
        *([(2, -1)] * 2),
        *([(3, -1)] * 1),
    ]


@pytest.mark.parametrize("has_metadata", [True, False])
def test_segment_is_a_topic(has_metadata: bool) -> None:
    """One segment is read by its own name."""
    catalog = open_catalog(str(OBJECTS), metadata=str(FOLDER) if has_metadata else None)
    name = "segment://public/default/orders/0000-bfff-5"
    rows = _comparable(rows_of(_open(name, catalog).to_table()))
    assert rows == [row for row in _expected(ORDERS) if row["__segment_id__"] == 5]
    assert topics_table(catalog, name).num_rows == 1


@pytest.mark.parametrize("name", NAMES)
def test_last_ledger_of_a_sealed_segment_is_offloaded(name: str) -> None:
    """Only a segment that gets messages has an open ledger; a sealed one is in the bucket."""
    catalog = open_catalog(str(OBJECTS), metadata=str(FOLDER))
    states = {each["topic"]: each["state"] for each in ledgers_table(catalog, name).to_pylist()}
    graph = golden_scalable_topic(name).graph
    for node, member in zip(graph.nodes, graph.members, strict=True):
        assert states[str(member)] == ("both" if node.is_sealed else "open"), member


def test_filters_on_segments_prune_segments() -> None:
    """A filter on the id of the segment reads the ledgers of that segment alone."""
    catalog = open_catalog(str(OBJECTS), metadata=str(FOLDER))
    dataset = _open(MIGRATED, catalog)
    narrowed = dataset.filter(pc.field("__segment_id__") == 3)
    assert set(narrowed.to_table()["__segment_id__"].to_pylist()) == {3}
    assert [each.origin.segment_id for each in narrowed.scan.reads()] == [3]


def test_sound_bucket_has_no_findings(catalog: Catalog) -> None:
    """An audit compares segments like topics, and finds nothing wrong."""
    found = audit(catalog)
    assert not found.losses
    assert not [each for each in found.findings if each.kind is not FindingKind.ORPHAN]
    assert not any(each.deletable for each in found.findings)
    assert not [each for each in found.findings if str(each.topic).startswith("segment://")]


def test_segments_whose_ledgers_are_unknown(server: AdminServer) -> None:
    """The admin API has no ledgers of segments, so a reader learns that some may be missing."""
    dataset = open_topic(str(OBJECTS), ORDERS, metadata=server.url, value="raw")
    with pytest.warns(IncompleteReadWarning, match="has no ledgers of 6 segments"):
        assert dataset.count_rows() == len(_expected(ORDERS))
    assert dataset.metrics.segments_by_bucket == 6


def test_brokers_cannot_be_asked() -> None:
    """The clients of older brokers read no segment, so the live tail is refused."""
    with pytest.raises(OptionError, match=r"live cannot be combined with scalable topics"):
        open_topic(
            str(OBJECTS), ORDERS, metadata=str(FOLDER), live="pulsar://127.0.0.1:1", value="raw"
        )


def test_malformed_graph(tmp_path: Path) -> None:
    """A graph that cannot be read is an error of its topic alone; salvage reads the bucket."""
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "scalable-metadata.json").write_bytes(b'{"nextSegmentId": 0, "segments": {"0": 1}}')
    catalog = open_catalog(str(OBJECTS), metadata={ORDERS: str(folder)})
    with pytest.raises(CorruptMetadataError, match="a segment is not a JSON object") as error:
        open_topic(str(OBJECTS), ORDERS, catalog=catalog)
    assert str(error.value.object_key).endswith("orders/scalable-metadata.json")
    dataset = _open(ORDERS, catalog, on_corruption="salvage")
    with pytest.warns(IncompleteReadWarning) as caught:
        assert dataset.count_rows() == len(_expected(ORDERS))
    assert any("taken from the bucket alone" in str(each.message) for each in caught)
    found = audit(catalog, is_one_cluster=True)
    (loss,) = found.losses
    assert (loss.kind, str(loss.topic)) == (FindingKind.METADATA, ORDERS)
    assert not any(each.deletable for each in found.findings)


@pytest.fixture
def pruned(tmp_path: Path) -> str:
    """Metadata of a cluster that has pruned the first segment of a topic."""
    folder = tmp_path / "orders"
    shutil.copytree(golden_scalable_topic(ORDERS).folder, folder)
    value = json.loads((folder / "scalable-metadata.json").read_text())
    del value["segments"]["0"]
    for each in ("1", "2"):
        value["segments"][each]["parentIds"] = []
    (folder / "scalable-metadata.json").write_text(json.dumps(value))
    return str(folder)


def test_pruned_segment(pruned: str) -> None:
    """A segment that the cluster pruned is counted, and read only on request; audits keep it."""
    catalog = open_catalog(str(OBJECTS), metadata={ORDERS: pruned})
    current = [row for row in _expected(ORDERS) if row["__segment_id__"]]
    dataset = open_topic(str(OBJECTS), "orders", catalog=catalog, value="raw")
    with pytest.warns(IncompleteReadWarning, match=r"does not name 1 segment .* segments='all'"):
        assert dataset.count_rows() == len(current)
    assert dataset.metrics.unnamed_segments == 1
    every = _open(ORDERS, catalog, segments="all")
    with pytest.warns(IncompleteReadWarning, match="does not list 1 of the topics"):
        assert _comparable(rows_of(every.to_table())) == _expected(ORDERS)
    assert every.metrics.unnamed_segments == 0
    findings = [each for each in audit(catalog, is_one_cluster=True).findings if each.objects]
    of_topic = [each for each in findings if "/orders/" in str(each.topic)]
    assert {str(each.topic) for each in of_topic} == {"segment://public/default/orders/0000-ffff-0"}
    assert all(each.doubt and not each.deletable for each in of_topic)


def test_deleted_topic(pruned: str) -> None:
    """A topic with the mark of deletion is not found, and its objects are kept."""
    path = Path(pruned) / "scalable-metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"deleted": True}))
    catalog = open_catalog(str(OBJECTS), metadata={ORDERS: pruned})
    with pytest.raises(TopicNotFoundError):
        open_topic(str(OBJECTS), ORDERS, catalog=catalog)
    with pytest.warns(IncompleteReadWarning):
        count = _open(ORDERS, catalog, segments="all").count_rows()
    assert count == len(_expected(ORDERS))
    assert not any(each.deletable for each in audit(catalog, is_one_cluster=True).findings)


def test_absent_segments(tmp_path: Path) -> None:
    """Without metadata, a missing id is reported, because nothing says what became of it."""
    objects = json.loads((FOLDER / "objects.json").read_text())
    for name, each in objects.items():
        if each["user_metadata"]["managedledgername"].endswith(("/0000-7fff-1", "/0000-bfff-5")):
            shutil.copy(OBJECTS / name, tmp_path)
    dataset = open_topic(str(tmp_path), "orders", value="raw")
    with pytest.warns(
        IncompleteReadWarning, match="4 segments before others are not in the bucket"
    ):
        assert dataset.count_rows() == sum(
            row["__segment_id__"] in {1, 5} for row in _expected(ORDERS)
        )
    segment = open_topic(str(tmp_path), "segment://public/default/orders/0000-bfff-5", value="raw")
    assert segment.count_rows()
    assert segment.metrics.absent_segments == 0


def test_bucket_tells_a_namesake_from_a_migrated_topic(tmp_path: Path) -> None:
    """A classic topic precedes segments only if their ids leave room for its partitions."""
    for path in OBJECTS.iterdir():
        shutil.copy(path, tmp_path)
    namesake = offload(
        [(10**6, [encode_entry([Message(payload=b"x")], batched=False)])],
        managed_ledger="public/default/persistent/orders",
    )
    for name, data in namesake.items():
        (tmp_path / name).write_bytes(data)
    assert open_topic(str(tmp_path), ORDERS, value="raw").count_rows() == len(_expected(ORDERS))
    classic = open_topic(str(tmp_path), "orders", value="raw")
    with pytest.warns(IncompleteReadWarning, match="15 ledgers of its segments"):
        assert classic.count_rows() == 1


@pytest.mark.parametrize("names", ["ord*", ["persistent://public/default/orders", ORDERS]])
def test_latest_rows_of_a_namesake(names: str | list[str]) -> None:
    """A key of a classic topic is none of a scalable topic that does not continue it."""
    topics = {
        5: ("persistent/orders", b"classic"),
        9: ("segment/orders/0000-ffff-0", b"scalable"),
    }
    with memory_bucket({}) as bucket:
        for ledger_id, (name, payload) in topics.items():
            entry = encode_entry([Message(payload=payload, partition_key="k")], batched=True)
            managed_ledger = f"public/default/{name}"
            bucket.put(offload([(ledger_id, [entry])], managed_ledger=managed_ledger))
        rows = open_topic(
            bucket.url, names, value="raw", columns=["__value__"], view="latest"
        ).to_table()
        assert rows["__value__"].to_pylist() == [b"classic", b"scalable"]
        with pytest.raises(OptionError, match="copy each of them to a target"):
            copy_topics(bucket.url, names, "{topic}", format="parquet", value="raw")


def test_snapshot_of_the_admin_api(server: AdminServer, tmp_path: Path) -> None:
    """A snapshot keeps the graph of segments whose ledgers the metadata does not have."""
    path = str(tmp_path / "saved.json.gz")
    open_catalog(str(OBJECTS), metadata=server.url).save(path)
    dataset = open_topic(str(OBJECTS), ORDERS, metadata=path, value="raw")
    with pytest.warns(IncompleteReadWarning, match="has no ledgers of 6 segments"):
        assert dataset.count_rows() == len(_expected(ORDERS))


def test_owner_of_the_bucket() -> None:
    """A sound bucket is verified whole, nothing of it is deleted, and its reads have a cost."""
    verified = run("audit", str(OBJECTS), "--verify", "--metadata", str(FOLDER))
    assert "32 ledgers, 254 entries, 0 problems" in verified.stdout + verified.stderr
    assert "14 segments" in verified.stdout
    cleaned = run("clean", str(OBJECTS), "--metadata", str(FOLDER), "--one-cluster")
    assert cleaned.stdout.startswith("0 objects")
    (cost,) = lines_of("cost", str(OBJECTS), "orders")
    assert cost["data"]["requests"] == 15
    fates = lines_of(
        "policy",
        str(OBJECTS),
        "orders",
        *("--metadata", str(FOLDER), "--set", "managedLedgerOffloadThresholdInBytes=0"),
    )
    assert len({row["topic"] for row in fates}) == 6
