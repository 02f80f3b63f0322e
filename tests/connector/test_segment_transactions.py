"""Transactions of scalable topics: a committed message is a row, an aborted one never is."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import IncompleteReadWarning, OpenTransactionError, PulsarOffloadError
from arrow_io.messages.transactions import Outcome, TransactionOutcomes
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog, open_topic
from connector.catalog.metadata.topic_metadata import TopicMetadata
from connector.catalog.snapshot.json import metadata_json, read_metadata_json
from connector.increments.increment import execute_increment
from connector.increments.progress import Progress
from connector.inputs.topic_names import TopicName
from tests.support.buckets import memory_bucket
from tests.support.builds import BUILDS, using_build
from tests.support.expected import rows_of
from tests.support.golden_datasets import as_the_client_tells
from tests.support.golden_scalable import FOLDER, OBJECTS, PAYMENTS, golden_scalable_topic
from tests.support.increments import increments_of, read_increment, read_on
from tests.support.memory_metadata_store import MemoryMetadataStore, nodes_of_folder
from tests.support.reading import read
from tests.support.statistics import analyzed
from tests.support.transaction_buffer import MOST, SEGMENTS, TransactionModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from connector import Catalog
    from connector.catalog.metadata.metadata_store import MetadataStore
    from tests.support.buckets import MemoryBucket

# The names of some nodes have colons.
pytestmark = [pytest.mark.both_builds, pytest.mark.posix]

_KEYS: Final = [
    f"segment%3A%2F%2Fpublic%2Fdefault%2Fpayments%2F{each}" for each in ("0000-7fff-0",)
]
_OPEN: Final = {(79, 4), (79, 5)}
"""The entries of transaction 0_8 in segment 0."""
NODES: Final = FOLDER / "metadata-store"
STORE: Final = "zk://model"
MODEL_TOPIC: Final = "topic://public/default/pay:s"
POSITION: Final = ["__ledger_id__", "__entry_id__"]
COMPARED: Final = (
    *("__topic__", "__ledger_id__", "__entry_id__", "__batch_index__", "__publish_time__"),
    *("__producer_name__", "__sequence_id__", "__key__", "__properties__", "__value__"),
)


def _using(store: MetadataStore) -> AbstractContextManager[object]:
    """Answer as the metadata store that `STORE` names."""
    return patch("connector.catalog.metadata.source.open_metadata_store", return_value=store)


@pytest.fixture(params=["store", "folder", "folder of the topic", "snapshot"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """The golden bucket, with metadata from each source that has the nodes of transactions."""
    metadata: str | Mapping[str, str] = str(FOLDER)
    if request.param == "folder of the topic":
        copy = tmp_path / "payments"
        shutil.copytree(golden_scalable_topic(PAYMENTS).folder, copy)
        shutil.copytree(NODES, copy / NODES.name)
        metadata = {PAYMENTS: str(copy)}
    if request.param == "snapshot":
        path = str(tmp_path / "saved.json.gz")
        open_catalog(str(OBJECTS), metadata=metadata).save(path)
        metadata = path
    if request.param == "store":
        metadata = STORE
    with _using(MemoryMetadataStore(nodes_of_folder(NODES))):
        yield open_catalog(str(OBJECTS), metadata=metadata)


def _payments(catalog: Catalog, **options: Any) -> Any:  # noqa: ANN401
    columns = [*COMPARED, "__txn_id__"]
    return open_topic(
        str(OBJECTS), PAYMENTS, catalog=catalog, **{"value": "raw", "columns": columns, **options}
    )


@pytest.mark.parametrize("build", BUILDS)
def test_golden_rows_are_those_of_the_client(catalog: Catalog, build: str) -> None:
    """Exactly the 116 messages that Pulsar's client read, from tasks of any process."""
    expected = [
        {each: row[each] for each in COMPARED} for row in golden_scalable_topic(PAYMENTS).rows
    ]

    with using_build(build), warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteReadWarning)
        dataset = _payments(catalog)
        metrics = ReadMetrics()
        tasks = pickle.loads(pickle.dumps(dataset.scan.plan(1)))
        split = read(dataset.scan, tasks, metrics)
        rows = rows_of(dataset.to_table())

    assert len(expected) == 116
    assert as_the_client_tells(rows, [dict.fromkeys(COMPARED)]) == expected
    assert rows_of(split) == rows
    assert metrics.aborted_messages == dataset.metrics.aborted_messages == 41
    assert metrics.undecided_messages == 0
    assert dataset.count_rows() == 116


def test_all_messages_of_transactions() -> None:
    """If the user requests them, outcomes do not matter."""
    every = _payments(open_catalog(str(OBJECTS)), transactions="all")

    assert every.count_rows() == every.to_table().num_rows == 157


def test_messages_without_a_known_outcome_are_reported() -> None:
    """The bucket alone cannot tell committed from aborted, so neither is a row."""
    with pytest.warns(IncompleteReadWarning, match="101 messages of 20 transactions were left out"):
        table = _payments(open_catalog(str(OBJECTS))).to_table()

    assert table.num_rows == 56
    assert table.column("__txn_id__").null_count == 56


def test_messages_after_an_open_transaction_are_rows() -> None:
    """A batch read leaves out those of the open one alone, and reports them."""
    nodes = nodes_of_folder(NODES)
    watermark = f"/txn/segment-state/watermark/{_KEYS[0]}"
    nodes[watermark] = b'{"ledgerId":79,"entryId":3}'
    nodes["/txn/id/0_8"] = b'{"state":"OPEN"}'
    with _using(MemoryMetadataStore(nodes)):
        dataset = _payments(open_catalog(str(OBJECTS), metadata=STORE))
        with pytest.warns(IncompleteReadWarning, match="of 1 transaction without an outcome"):
            rows = rows_of(dataset.to_table())
        source = increments_of(str(OBJECTS), (PAYMENTS,), {"metadata": STORE}, columns=POSITION)
        batches, progress = read_on(source, Progress())
        increment = source.next_increment(progress)

    expected = golden_scalable_topic(PAYMENTS).rows
    omitted = [each for each in expected if (each["__ledger_id__"], each["__entry_id__"]) in _OPEN]
    assert [each["__txn_id__"] for each in rows if each["__ledger_id__"] == 79].count("(0,8)") == 0
    assert len(rows) == len(expected) - len(omitted)
    assert dataset.metrics.open_messages == len(omitted) > 0
    assert dataset.metrics.open_transactions == 1
    positions = [each for batch in batches for each in _positions(batch)]
    assert max(each for each in positions if each[0] in {49, 78, 79, 80}) == (79, 1)
    assert increment.after == progress
    assert any(
        "no outcome in the metadata of the cluster yet" in each for each in increment.notices
    )


def test_a_stream_continues_when_the_nodes_arrive() -> None:
    """Without nodes it ends before the first message of a transaction in each segment."""
    nodes = nodes_of_folder(NODES)
    store = MemoryMetadataStore({k: v for k, v in nodes.items() if not k.startswith("/txn")})
    with _using(store):
        source = increments_of(str(OBJECTS), (PAYMENTS,), {"metadata": STORE}, columns=POSITION)
        first, progress = read_on(source, Progress())
        store.nodes = nodes
        source.refresh()
        rest, _ = read_on(source, progress)

    rows = [[each for batch in part for each in _positions(batch)] for part in (first, rest)]
    assert rows[0] == [(49, 0)] * 2
    assert len(rows[1]) == 114
    assert (49, 0) not in rows[1]


def test_rows_are_discarded_if_a_task_meets_an_unknown_outcome() -> None:
    """If no sample shows a transaction, the task that meets one raises an error."""
    nodes = {k: v for k, v in nodes_of_folder(NODES).items() if not k.startswith("/txn")}
    with _using(MemoryMetadataStore(nodes)):
        source = increments_of(str(OBJECTS), (PAYMENTS,), {"metadata": STORE})
        with patch("connector.increments.settled._shows_transaction", return_value=False):
            increment = source.next_increment(Progress())
        with pytest.raises(OpenTransactionError, match="no outcome in the metadata of the cluster"):
            read_increment(increment)


def test_entries_up_to_the_watermark_are_read_once() -> None:
    """A stream looks for no transactions there, neither in samples nor in all entries."""
    trace = RequestTrace(keep_records=True)
    with _using(MemoryMetadataStore(nodes_of_folder(NODES))):
        catalog = {"metadata": STORE, "trace": trace}
        source = increments_of(str(OBJECTS), (PAYMENTS,), catalog, columns=POSITION)
        increment = source.next_increment(Progress())
        tasks = [task for read in increment.reads for task in read.tasks(1 << 20)]
        rows = sum(each.num_rows for task in tasks for each in execute_increment(task))
    requests = [each.name for each in trace.records if each.kind is RequestKind.RANGE_GET]

    assert rows == 116
    assert len(requests) == len(set(requests)) == 7


def _data_requests(**catalog_options: Any) -> list[str]:  # noqa: ANN401
    trace = RequestTrace(keep_records=True)
    catalog = open_catalog(str(OBJECTS), trace=trace, **catalog_options)
    scan = _payments(catalog).scan
    read(scan, scan.plan(1))
    return [each.name for each in trace.records if each.kind is RequestKind.RANGE_GET]


@pytest.mark.parametrize("metadata", [None, str(FOLDER)])
def test_nothing_is_read_in_search_of_markers(metadata: str | None) -> None:
    """Each data object is read once, however many tasks there are."""
    requests = _data_requests(metadata=metadata)

    assert len(requests) == len(set(requests)) == 7


# ------------------------------------------------------------------------------- random clusters


def _bucket_of(model: TransactionModel, bucket: MemoryBucket) -> None:
    bucket.put(model.objects())


def _positions(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(*(table.column(each).to_pylist() for each in POSITION), strict=True))


def _open_model(url: str, model: TransactionModel, **options: Any) -> Any:  # noqa: ANN401
    with _using(model):
        return open_topic(
            url,
            MODEL_TOPIC,
            metadata=STORE,
            **{"value": "raw", "columns": POSITION, "on_corruption": "raise", **options},
        )


def _stepped(seed: int, steps: int, *, trims: bool) -> TransactionModel:
    model = TransactionModel(random.Random(seed), trims=trims)
    # Something must be offloaded.
    while not model.objects():
        model.step()
    for _ in range(steps):
        model.step()
    return model


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 200), task_bytes=st.sampled_from((1, 400)))
def test_a_batch_read_is_right_and_loses_nothing_silently(
    seed: int, steps: int, task_bytes: int
) -> None:
    """Each message is a row, or aborted, or reported as one without an outcome."""
    model = _stepped(seed, steps, trims=True)
    metrics = ReadMetrics()
    with memory_bucket(model.objects()) as bucket:
        if not model.objects():
            return
        scan = _open_model(bucket.url, model).scan
        rows = _positions(read(scan, pickle.loads(pickle.dumps(scan.plan(task_bytes))), metrics))
    messages = list(model.messages())
    truth = dict(messages)

    assert rows == [each for each in truth if each in set(rows)]
    aborted = [t for t in truth.values() if t is not None and model.outcomes.get(t) is False]
    assert metrics.aborted_messages <= len(aborted)
    for position in rows:
        transaction = truth[position]
        assert transaction is None or model.outcomes.get(transaction) is True
    assert len(truth) == len(rows) + metrics.aborted_messages + metrics.undecided_messages
    assert {each for each, transaction in messages if transaction is None} <= set(rows)


@given(
    seed=st.integers(0, 2**32),
    pauses=st.lists(st.integers(0, 60), max_size=4),
    knows_statistics=st.booleans(),
)
def test_a_stream_gives_each_row_once_and_waits_for_outcomes(
    seed: int, pauses: list[int], knows_statistics: bool
) -> None:
    """It stops before the first message without an outcome, and continues once there is one."""
    model = _stepped(seed, 0, trims=False)
    rows: list[tuple[int, int]] = []
    progress = Progress()
    with memory_bucket(model.objects()) as bucket, memory_bucket({}) as folder, _using(model):
        options: dict[str, Any] = {"columns": POSITION}
        if knows_statistics:
            analyzed(bucket.url, MODEL_TOPIC, folder.url)
            options["statistics"] = folder.url
        source = increments_of(bucket.url, (MODEL_TOPIC,), {"metadata": STORE}, **options)
        for pause in [*pauses, None]:
            for _ in range(pause or 0):
                model.step()
            if pause is None:
                model.settle()
            bucket.put(model.objects())
            source.refresh()
            batches, progress = read_on(source, progress)
            rows += [position for each in batches for position in _positions(each)]
            truth = dict(model.messages())
            for each in rows:
                transaction = truth[each]
                assert transaction is None or model.outcomes.get(transaction)
            assert len(rows) == len(set(rows))

    expected = [each for each, t in model.messages() if t is None or model.outcomes[t]]
    assert sorted(rows) == sorted(expected)


@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_stream_stops_before_each_transaction_in_turn(has_statistics: bool) -> None:
    """Even if several begin in one data block, and the whole ledger is one zone."""
    model = TransactionModel(random.Random(0))
    segment = model.segments[0]
    ledger = segment.ledgers[0]
    ledger.entries.extend([None, 0, 1, 1, None])
    model.roll(segment)
    watermark = f"/txn/segment-state/watermark/{segment.key}"
    states = [["OPEN", "OPEN"], ["COMMITTED", "OPEN"], ["COMMITTED", "COMMITTED"]]
    rows = []
    progress = Progress()
    with memory_bucket(model.objects()) as bucket, memory_bucket({}) as folder, _using(model):
        options: dict[str, Any] = {"columns": POSITION}
        if has_statistics:
            analyzed(bucket.url, MODEL_TOPIC, folder.url, zone_bytes=1 << 20)
            options["statistics"] = folder.url
        source = increments_of(bucket.url, (MODEL_TOPIC,), {"metadata": STORE}, **options)
        for last, both in enumerate(states):
            position = {"ledgerId": ledger.ledger_id, "entryId": last}
            model.nodes[watermark] = json.dumps(position).encode()
            for transaction, state in enumerate(both):
                header = json.dumps({"state": state}).encode()
                model.nodes[f"/txn/id/{MOST}_{transaction}"] = header
            source.refresh()
            batches, progress = read_on(source, progress)
            rows.append([entry_id for each in batches for _, entry_id in _positions(each)])

    assert rows == [[0], [1], [2, 3, 4]]


# ----------------------------------------------------------------------------- catalog snapshots

_IDS: Final = st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2)
_OUTCOMES: Final = st.builds(
    TransactionOutcomes,
    watermark=st.none() | st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1)),
    aborted=st.frozensets(_IDS, max_size=3),
    states=st.dictionaries(_IDS, st.sampled_from(Outcome), max_size=3),
    ended_ledger_id=st.integers(-1, 2**63 - 1),
)
_SEGMENT: Final = TopicName.parse(SEGMENTS[0])


def _saved(outcomes: TransactionOutcomes | None) -> Any:  # noqa: ANN401 - any JSON
    metadata = TopicMetadata(topic=_SEGMENT, ledgers=(), segment_outcomes=outcomes)
    return json.loads(json.dumps(metadata_json(metadata)))


@given(outcomes=st.none() | _OUTCOMES)
def test_snapshot_keeps_the_outcomes(outcomes: TransactionOutcomes | None) -> None:
    """They are the only record once the cluster has deleted its nodes."""
    metadata = read_metadata_json(_saved(outcomes), _SEGMENT, ())

    assert metadata.segment_outcomes == outcomes


@given(
    outcomes=_OUTCOMES,
    name=st.sampled_from(["watermark", "aborted", "states", "ended", None]),
    other=st.sampled_from(
        [
            None,
            "",
            0,
            False,
            5,
            "x",
            [],
            {},
            [1],
            [[]],
            [[1]],
            [[1, 2, "x"]],
            [[1, "2"]],
            [2**63, 0],
        ]
    ),
)
def test_other_outcomes_in_a_snapshot_are_refused_or_harmless(
    outcomes: TransactionOutcomes, name: str | None, other: object
) -> None:
    """What is read can be looked up."""
    value = _saved(outcomes)
    if name is None:
        value["outcomes"] = other
    else:
        value["outcomes"][name] = other
    with suppress(PulsarOffloadError, AttributeError, LookupError, TypeError, ValueError):
        found = read_metadata_json(value, _SEGMENT, ()).segment_outcomes
        if found is not None:
            check = (found.outcome(0, 0, (1, 1)), found.outcome(-1, 2**63 - 1, (2**63 - 1, 0)))
            assert set(check) <= set(Outcome)
            assert isinstance(pickle.loads(pickle.dumps(found)), TransactionOutcomes)
