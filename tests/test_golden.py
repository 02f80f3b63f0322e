"""Every golden topic gives the rows that Pulsar's own client read, whichever way it is cut."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from arrow_io.errors import DecryptionError, EncryptedPayloadError, IncompleteReadWarning
from arrow_io.read_metrics import ReadMetrics, Unit
from connector import open_topic
from connector.inputs.decryption_keys import read_decryption_keys
from connector.scan.execution import execute
from tests.support.buckets import memory_bucket, offload
from tests.support.builds import BUILDS, using_build
from tests.support.encryption import KEY_FOLDER
from tests.support.expected import CLEAR_COLUMNS, COLUMNS, fingerprint, rows_of
from tests.support.golden import GoldenTopic, golden_topic, golden_topics
from tests.support.golden_datasets import (
    as_the_client_tells,
    client_rows,
    open_golden,
    reference_rows,
)
from tests.support.golden_entries import golden_entries
from tests.support.reading import block_table
from tests.support.reference import encrypted_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from connector.scan.topic_read import ScanTask
    from connector.scan.topic_scan import Scan
    from tests.support.expected import Row

pytestmark = pytest.mark.both_builds

_ENCRYPTED = [topic for topic in golden_topics() if "encrypted" in topic.name]
_CLEAR = [topic for topic in golden_topics() if topic not in _ENCRYPTED]
_OPEN_TRANSACTION = golden_topic("transactions-open")
_ENCRYPTED_CHUNKED = golden_topic("clients-encrypted-chunked")
_BATCHES_ONLY = golden_topic("clients-cpp-encrypted")


def _table(scan: Scan, tasks: Iterable[ScanTask]) -> tuple[pa.Table, ReadMetrics]:
    metrics = ReadMetrics()
    batches = [batch for task in tasks for batch in execute(task, metrics)]
    return pa.Table.from_batches(batches, scan.options.projection.schema), metrics


def _block_count(scan: Scan) -> int:
    return sum(block_table(each).block_count for topic in scan.topics for each in topic.ledgers)


def test_golden_topics_are_all_there() -> None:
    """Nothing is proved by topics that are not looked at."""
    assert (len(_CLEAR), len(_ENCRYPTED)) == (66, 5)
    assert sum(topic.message_count for topic in golden_topics()) == 8095


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _CLEAR, ids=str)
def test_rows_are_those_that_the_client_read(topic: GoldenTopic, build: str) -> None:
    """Each field of each row is what the client gave, or the oracle where it gave none."""
    scan = open_golden(topic).scan.select(COLUMNS)
    expected = client_rows(topic)

    with using_build(build):
        table, metrics = _table(scan, scan.plan())

    table.validate(full=True)
    rows = rows_of(table)
    assert rows == reference_rows(topic)
    assert as_the_client_tells(rows, expected) == expected
    assert metrics.rows == len(rows) == topic.message_count
    assert metrics.open_messages == (7 if topic == _OPEN_TRANSACTION else 0)
    assert not metrics.lost
    assert not metrics.incomplete_messages


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _CLEAR, ids=str)
def test_a_task_for_each_block_gives_the_same_rows(topic: GoldenTopic, build: str) -> None:
    """Tasks of one block, executed in reverse order as other processes get them: the same rows."""
    scan = open_golden(topic).scan.select(COLUMNS)

    with using_build(build):
        whole, _ = _table(scan, scan.plan())
        tasks = scan.plan(task_bytes=1)
        parts = [_table(scan, [pickle.loads(pickle.dumps(task))])[0] for task in reversed(tasks)]

    assert len(tasks) == _block_count(scan)
    assert pa.concat_tables(reversed(parts)).equals(whole)


@pytest.mark.parametrize("build", BUILDS)
def test_default_columns_are_the_first_ones(build: str) -> None:
    """A read that names no columns gives those that are not on request, with the same values."""
    dataset = open_golden(golden_topic("multi-ledger"))

    with using_build(build):
        table = dataset.to_table()

    assert table.column_names == COLUMNS[:11]
    assert table.equals(dataset.to_table(columns=COLUMNS).select(table.column_names))


def test_open_transaction_is_told() -> None:
    """A read that leaves out an open transaction ends with a warning that counts its messages."""
    dataset = open_golden(_OPEN_TRANSACTION)

    with pytest.warns(IncompleteReadWarning, match="7 messages of 1 transaction without an"):
        table = dataset.to_table()

    assert table.num_rows == _OPEN_TRANSACTION.message_count
    assert dataset.metrics.open_messages == 7


def test_all_transactions_are_given_on_request() -> None:
    """With `transactions="all"` each message that the ledgers hold is a row, markers are not."""
    dataset = open_golden(_OPEN_TRANSACTION, transactions="all")

    rows = rows_of(dataset.to_table(columns=["__txn_id__"]))

    assert len(rows) == _OPEN_TRANSACTION.message_count + 7 + 6
    assert dataset.metrics.markers == 2


def _runs_of_entries(rows: list[Row]) -> Iterator[tuple[int, int, int]]:
    """Ledger, first and last entry of each run of rows from consecutive entries."""
    positions = enumerate((row["__ledger_id__"], row["__entry_id__"]) for row in rows)
    for _, run in itertools.groupby(positions, lambda pair: (pair[1][0], pair[1][1] - pair[0])):
        members = [position for _, position in run]
        yield (*members[0], members[-1][1])


def _without_value(rows: Iterable[Row]) -> list[Row]:
    return [{name: row[name] for name in row if name != "__value__"} for row in rows]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", [t for t in _ENCRYPTED if t != _BATCHES_ONLY], ids=str)
def test_clear_columns_of_encrypted_singles_are_given(topic: GoldenTopic, build: str) -> None:
    """What stands in clear metadata is given for encrypted messages that are not in a batch."""
    expected = _without_value(reference_rows(topic))
    told_by_client = _without_value(
        row for row in client_rows(topic) if row["__batch_index__"] is None
    )
    rows = []

    with using_build(build):
        for ledger_id, first, last in _runs_of_entries(expected):
            dataset = open_golden(topic, start=(ledger_id, first), end=(ledger_id, last + 1))
            rows += rows_of(dataset.to_table(columns=CLEAR_COLUMNS))

    assert rows == expected
    assert as_the_client_tells(rows, told_by_client) == told_by_client


@pytest.mark.parametrize("build", BUILDS)
def test_clear_columns_of_encrypted_chunked_messages_are_given(build: str) -> None:
    """A topic of encrypted chunked messages is read whole, but for the values."""
    with using_build(build):
        table = open_golden(_ENCRYPTED_CHUNKED).to_table(columns=CLEAR_COLUMNS)

    assert rows_of(table) == _without_value(reference_rows(_ENCRYPTED_CHUNKED))
    assert table.num_rows == _ENCRYPTED_CHUNKED.message_count


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_encrypted_payload_is_an_error_that_names_the_key(topic: GoldenTopic, build: str) -> None:
    """Whoever asks for an encrypted value hears which key it takes, and where it stands."""
    key = "client-ec" if topic.name.endswith("-ec") else "client-rsa"

    with using_build(build), pytest.raises(EncryptedPayloadError, match=key) as caught:
        open_golden(topic).to_table(columns=["__value__"])

    ledger = next(each for each in topic.ledgers if each.ledger_id == caught.value.ledger_id)
    assert caught.value.object_key == ledger.data_object.name
    assert caught.value.entry_id is not None


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_encrypted_batch_is_an_error_whatever_is_asked(topic: GoldenTopic, build: str) -> None:
    """The messages of an encrypted batch cannot be told apart, so no column of them is given."""
    batches = encrypted_batches(golden_entries(topic))
    assert bool(batches) == (topic != _ENCRYPTED_CHUNKED)

    with using_build(build):
        for batch in batches[:3]:
            start = (batch.ledger_id, batch.entry_id)
            dataset = open_golden(topic, columns=["__entry_id__"], start=start)
            with pytest.raises(EncryptedPayloadError, match=batch.key_names[0]) as caught:
                dataset.to_table()
            assert (caught.value.ledger_id, caught.value.entry_id) == start


# With the private keys


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_decrypted_rows_are_those_that_the_client_read(topic: GoldenTopic, build: str) -> None:
    """Each payload that RSA or ECIES keys open is the one the client got, and so is each field."""
    scan = open_golden(topic, columns=COLUMNS, decryption_keys=KEY_FOLDER).scan
    expected = client_rows(topic)

    with using_build(build):
        table, metrics = _table(scan, scan.plan())

    table.validate(full=True)
    rows = rows_of(table)
    assert as_the_client_tells(rows, expected) == expected
    assert len(rows) == topic.message_count
    assert not metrics.lost
    assert not metrics.incomplete_messages


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_decrypted_rows_of_tasks_of_an_entry(topic: GoldenTopic, build: str) -> None:
    """Cut at almost each entry, executed elsewhere, the tasks give together the same rows."""
    ledgers = golden_entries(topic)
    objects = offload(ledgers, block_bytes=140, managed_ledger=topic.managed_ledger)
    expected = client_rows(topic)

    with memory_bucket(objects) as bucket, using_build(build):
        scan = open_topic(bucket.url, topic.name, columns=COLUMNS, decryption_keys=KEY_FOLDER).scan
        tasks = scan.plan(task_bytes=1)
        parts = [_table(scan, [pickle.loads(pickle.dumps(task))])[0] for task in tasks]

    rows = [row for part in parts for row in rows_of(part)]
    rows.sort(key=lambda row: (row["__ledger_id__"], row["__entry_id__"]))
    assert len(tasks) == _block_count(scan) > sum(len(entries) for _, entries in ledgers) / 2
    assert as_the_client_tells(rows, expected) == expected


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_decrypted_rows_behind_any_start(topic: GoldenTopic, build: str) -> None:
    """From each position on, the rows behind it are given, chunks before it looked up."""
    expected = client_rows(topic)
    starts = {(row["__ledger_id__"], row["__entry_id__"]) for row in expected}

    with using_build(build):
        for start in sorted(starts)[1::5]:
            dataset = open_golden(topic, start=start, decryption_keys=KEY_FOLDER)
            rows = rows_of(dataset.to_table(columns=COLUMNS))
            behind = [
                row for row in expected if (row["__ledger_id__"], row["__entry_id__"]) >= start
            ]
            assert as_the_client_tells(rows, behind) == behind


@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_decrypted_rows_of_each_ledger(topic: GoldenTopic) -> None:
    """A ledger by itself is decrypted too, where no message goes beyond it."""
    keys = read_decryption_keys(KEY_FOLDER)
    scan = open_golden(topic).scan
    expected = client_rows(topic)

    rows = [
        row
        for ledger in scan.topics[0].ledgers
        for batch in ledger.record_batches(["__value__"], decryption_keys=keys)
        for row in rows_of(batch)
    ]

    assert [fingerprint(row["__value__"]) for row in rows] == [r["__value__"] for r in expected]


@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_encrypted_rows_are_counted(topic: GoldenTopic) -> None:
    """With the keys, messages are counted without a payload being decrypted."""
    assert open_golden(topic, decryption_keys=KEY_FOLDER).count_rows() == topic.message_count


@pytest.mark.parametrize("topic", _ENCRYPTED, ids=str)
def test_wrong_key_is_an_error_that_names_it(topic: GoldenTopic) -> None:
    """The key of another pair is told from no key; salvaging, nothing is given and all counted."""
    right, wrong = ("ec", "rsa") if topic.name.endswith("-ec") else ("rsa", "ec")
    keys = {f"client-{right}": KEY_FOLDER / f"client-{wrong}-priv.pem"}

    with pytest.raises(DecryptionError, match=f"the private key client-{right}") as caught:
        open_golden(topic, decryption_keys=keys).to_table()
    dataset = open_golden(topic, decryption_keys=keys, on_corruption="salvage")
    with pytest.warns(IncompleteReadWarning) as told:
        table = dataset.to_table()

    assert caught.value.object_key is not None
    assert table.num_rows == 0
    assert set(dataset.metrics.lost) == {(Unit.ENTRY, "DecryptionError")}
    assert "entry lost: DecryptionError" in str(told[-1].message)
