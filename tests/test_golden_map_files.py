"""Topics that brokers offloaded as MapFiles give the rows that Pulsar's own client read."""

from __future__ import annotations

import pickle
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from arrow_io.errors import IncompleteReadWarning
from arrow_io.read_metrics import ReadMetrics
from connector import open_catalog, open_topic
from connector.scan.execution import execute
from tests.support.builds import BUILDS, using_build
from tests.support.command_line import lines_of
from tests.support.encryption import KEY_FOLDER
from tests.support.expected import COLUMNS, rows_of
from tests.support.golden import GOLDEN, MAP_FILE_SETS, map_file_topics
from tests.support.golden_datasets import (
    as_the_client_tells,
    client_rows,
    open_golden,
    reference_rows,
)
from tests.support.golden_values import comparable, expected_values, golden_schema, values_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector import Catalog, TopicDataset
    from tests.support.golden import GoldenTopic

pytestmark = pytest.mark.both_builds

_TOPICS = map_file_topics()
_TYPED = [
    topic for topic in _TOPICS if values_file(topic).exists() and "encrypted" not in topic.name
]
_POSITION = ["__ledger_id__", "__entry_id__", "__batch_index__"]


@pytest.fixture(scope="module", params=[False, True], ids=["bucket alone", "with metadata"])
def catalogs(request: pytest.FixtureRequest) -> dict[str, Catalog]:
    """A catalog of each set, without the metadata of the cluster and with it."""
    return {
        name: open_catalog(
            str(GOLDEN / name / "objects"), metadata=GOLDEN / name if request.param else None
        )
        for name in MAP_FILE_SETS
    }


def _open(topic: GoldenTopic, **options: Any) -> TopicDataset:  # noqa: ANN401 - open_topic's
    keys = KEY_FOLDER if "encrypted" in topic.name else None
    return open_golden(topic, columns=COLUMNS, decryption_keys=keys, **options)


@contextmanager
def _open_transactions(topic: GoldenTopic) -> Iterator[None]:
    """Ignore the warning of a topic that ends with an open transaction."""
    with warnings.catch_warnings():
        if topic.name.endswith("-open"):
            warnings.simplefilter("ignore", IncompleteReadWarning)
        yield


def test_topics_are_all_there() -> None:
    """Nothing is proved by topics that are not looked at."""
    assert len(_TOPICS) == 28
    assert sum(topic.message_count for topic in _TOPICS) == 10_999
    assert len(_TYPED) == 17


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _TOPICS, ids=str)
def test_rows_are_those_that_the_client_read(
    catalogs: dict[str, Catalog], topic: GoldenTopic, build: str
) -> None:
    """Each field of each row, with metadata and without it; cut into tasks, the same rows."""
    keys = KEY_FOLDER if "encrypted" in topic.name else None
    catalog = catalogs[topic.set_name]
    expected = client_rows(topic)

    with using_build(build):
        scan = open_topic(
            str(topic.objects_folder),
            topic.name,
            catalog=catalog,
            columns=COLUMNS,
            value="raw",
            decryption_keys=keys,
        ).scan
        metrics = ReadMetrics()
        batches = [batch for task in scan.plan() for batch in execute(task, metrics)]
        tasks = [pickle.loads(pickle.dumps(task)) for task in scan.plan(task_bytes=1)]
        parts = [list(execute(task, ReadMetrics())) for task in reversed(tasks)]

    table = pa.Table.from_batches(batches, scan.options.projection.schema)
    table.validate(full=True)
    rows = rows_of(table)
    assert as_the_client_tells(rows, expected) == expected
    assert "encrypted" in topic.name or rows == reference_rows(topic)
    assert metrics.rows == len(rows) == topic.message_count
    assert metrics.open_messages == (7 if topic.name.endswith("-open") else 0)
    assert not metrics.lost
    assert not metrics.incomplete_messages
    assert len(tasks) == len(topic.ledgers)
    assert table.equals(
        pa.Table.from_batches([each for part in reversed(parts) for each in part], table.schema)
    )


def _in_duckdb(dataset: TopicDataset) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("ds", dataset)
        return connection.sql("select * from ds").to_arrow_table().cast(dataset.schema)


def _in_pandas(dataset: TopicDataset) -> pa.Table:
    frame = dataset.to_pandas(arrow_types=True)
    return pa.Table.from_pandas(frame, schema=dataset.schema, preserve_index=False)


@pytest.mark.parametrize("topic", _TOPICS, ids=str)
def test_rows_in_each_engine(topic: GoldenTopic) -> None:
    """DuckDB, pandas, Polars and Arrow's C stream have each row that the client read."""
    dataset = _open(topic)
    expected = client_rows(topic)

    with _open_transactions(topic):
        found = [
            rows_of(_in_duckdb(dataset)),
            rows_of(_in_pandas(dataset)),
            dataset.scan_polars().collect().to_dicts(),
            rows_of(pa.RecordBatchReader.from_stream(dataset).read_all()),
        ]

    for rows in found:
        assert as_the_client_tells(rows, expected) == expected


@pytest.mark.parametrize("topic", _TYPED, ids=str)
def test_typed_values(topic: GoldenTopic) -> None:
    """With the schema of its metadata, each value is the one that the client decoded."""
    schema = golden_schema(topic)
    names = ["__value__", *(["__key"] if schema.reader.type == "KEY_VALUE" else [])]
    dataset = open_topic(
        str(topic.objects_folder),
        topic.name,
        metadata=GOLDEN / topic.set_name,
        value="struct",
        columns=[*_POSITION, *names],
    )
    expected = expected_values(topic)

    with _open_transactions(topic):
        table = dataset.to_table()

    positions = zip(*(table[name].to_pylist() for name in _POSITION), strict=True)
    assert list(positions) == [
        (each.ledger_id, each.entry_id, each.batch_index) for each in expected
    ]
    assert comparable(table["__value__"]) == [each.value for each in expected]
    if "__key" in names:
        assert comparable(table["__key"]) == [each.key for each in expected]


@pytest.mark.parametrize("topic", _TOPICS[::3], ids=str)
def test_rows_after_any_start(topic: GoldenTopic) -> None:
    """From each position on, a read returns the rows after it; up to each, those before it."""
    expected = client_rows(topic)
    positions = sorted({(row["__ledger_id__"], row["__entry_id__"]) for row in expected})

    for position in positions[:: max(len(positions) // 7, 1)]:
        for bound in ("start", "end"):
            with warnings.catch_warnings():
                # Bounds cut chunked messages and transactions.
                warnings.simplefilter("ignore", IncompleteReadWarning)
                found = rows_of(_open(topic, **{bound: position}).to_table())
            rows = [
                row
                for row in expected
                if ((row["__ledger_id__"], row["__entry_id__"]) >= position) == (bound == "start")
            ]
            assert as_the_client_tells(found, expected) == rows


@pytest.mark.parametrize("name", MAP_FILE_SETS)
def test_commands_list_what_the_metadata_lists(name: str) -> None:
    """The commands `topics` and `ledgers` have the entries and bytes that the broker recorded."""
    url, metadata = str(GOLDEN / name / "objects"), ["--metadata", str(GOLDEN / name)]
    topics = [topic for topic in _TOPICS if topic.set_name == name]

    listed = lines_of("topics", url, *metadata)
    ledgers = lines_of("ledgers", url, "persistent://*/*/*", *metadata)

    assert sum(row["ledgers"] for row in listed) == sum(len(each.ledgers) for each in topics)
    expected = {
        (topic.name, each.ledger_id): (each.entry_count, each.length_bytes, each.uuid)
        for topic in topics
        for each in topic.ledgers
    }
    offloaded = [row for row in ledgers if row["state"] in {"offloaded", "both"}]
    assert expected == {
        (row["topic"], row["ledger_id"]): (row["entries"], row["entry_bytes"], row["uuid"])
        for row in offloaded
    }


@pytest.mark.parametrize("topic", _TOPICS[::4], ids=str)
def test_the_command_head_prints_each_message(topic: GoldenTopic) -> None:
    """The command `head` prints all messages of a topic."""
    keys = ["--decryption-keys", str(KEY_FOLDER)] if "encrypted" in topic.name else []
    rows = lines_of("head", str(topic.objects_folder), topic.name, "-n", "100000", *keys)

    expected = client_rows(topic)
    assert [
        (row["__ledger_id__"], row["__entry_id__"], row["__sequence_id__"]) for row in rows
    ] == [(row["__ledger_id__"], row["__entry_id__"], row["__sequence_id__"]) for row in expected]
