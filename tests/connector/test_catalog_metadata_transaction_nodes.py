"""Outcomes of a segment's transactions, from nodes that a cluster changes while they are read."""

from __future__ import annotations

import json
import pickle
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptMetadataError
from arrow_io.messages.transactions import Outcome, TransactionOutcomes
from connector.catalog.metadata import transaction_nodes
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
from connector.catalog.metadata.transaction_nodes import read_outcomes, read_segment_metadata
from connector.inputs.topic_names import TopicName
from tests.support.memory_metadata_store import MemoryMetadataStore
from tests.support.transaction_buffer import MOST, TransactionModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.transaction_buffer import ModelSegment

SEGMENT: Final = "segment://public/default/a b/0000-7fff-1"
KEY: Final = "segment%3A%2F%2Fpublic%2Fdefault%2Fa+b%2F0000-7fff-1"
WATERMARK: Final = f"/txn/segment-state/watermark/{KEY}"
LAST: Final = (9, 9)


def _decisions(
    model: TransactionModel, segment: ModelSegment
) -> Iterator[tuple[int, tuple[int, int], Outcome]]:
    """Transaction, position and outcome of each transactional message in closed ledgers."""
    # One request after the other, so that an example can be repeated.
    with patch.object(transaction_nodes, "_CONCURRENT_READS", 1):
        metadata = read_segment_metadata(
            model, segment.name, lambda: model.metadata(segment), is_live=True
        )
    assert metadata is not None
    outcomes = metadata.segment_outcomes
    assert outcomes is not None
    ledgers = {each.ledger_id: each for each in (*segment.trimmed, *segment.ledgers)}
    for info in metadata.ledgers:
        for entry_id in range(info.entries or 0):
            transaction = ledgers[info.ledger_id].entries[entry_id]
            if transaction is not None:
                position = info.ledger_id, entry_id
                yield transaction, position, outcomes.outcome(MOST, transaction, position)


@given(seed=st.integers(0, 2**32), pause=st.integers(0, 40), max_steps=st.sampled_from((2, 5, 20)))
def test_no_outcome_is_wrong(seed: int, pause: int, max_steps: int) -> None:
    """Whenever nodes are read, a committed message is never called aborted, nor the reverse."""
    model = TransactionModel(random.Random(seed), max_steps)
    for _ in range(10):
        for _ in range(pause):
            model.step()
        for segment in model.segments:
            for transaction, position, outcome in list(_decisions(model, segment)):
                if outcome is Outcome.COMMITTED:
                    assert model.outcomes.get(transaction) is True, position
                elif outcome is Outcome.ABORTED:
                    assert model.outcomes.get(transaction) is False, position


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 300))
def test_every_outcome_is_known_in_the_end(seed: int, steps: int) -> None:
    """Once the brokers have nothing left to do, the nodes decide about each message."""
    model = TransactionModel(random.Random(seed))
    for _ in range(steps):
        model.step()
    model.settle()
    for segment in model.segments:
        for transaction, _, outcome in _decisions(model, segment):
            expected = Outcome.COMMITTED if model.outcomes[transaction] else Outcome.ABORTED
            assert outcome is expected


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _nodes(**more: bytes) -> dict[str, bytes]:
    """Nodes of a segment whose watermark is at 5:4, with one aborted transaction before it."""
    nodes = {
        WATERMARK: _json({"ledgerId": 5, "entryId": 4, "later": None}),
        f"/txn/segment-state/aborted/{KEY}:1_-7": _json({"maxLedgerId": 4, "maxEntryId": 0}),
        f"/txn/segment-state/aborted/{KEY}1:1_8": b"of another segment",
        "/txn/id/1_2": _json({"state": "COMMITTED", "timeout": 1.5}),
        "/txn/id/1_3": _json({"state": "ABORTED"}),
        "/txn/id/1_4": _json({"state": "OPEN"}),
    }
    return nodes | more


def _outcomes(nodes: Mapping[str, bytes], *, is_live: bool = True) -> TransactionOutcomes:
    return read_outcomes(MemoryMetadataStore(nodes), SEGMENT, LAST, is_live=is_live)


@pytest.mark.parametrize(
    ("ids", "position", "outcome"),
    [
        ((1, -7), (4, 0), Outcome.ABORTED),
        ((1, -7), (9, 0), Outcome.ABORTED),
        ((1, 8), (5, 4), Outcome.COMMITTED),
        ((1, 4), (5, 4), Outcome.COMMITTED),
        ((1, 4), (5, 5), Outcome.OPEN),
        ((1, 2), (5, 5), Outcome.COMMITTED),
        ((1, 3), (5, 5), Outcome.ABORTED),
        ((1, 8), (5, 5), Outcome.COMMITTED),
        ((1, 8), (9, 99), Outcome.COMMITTED),
        ((1, 8), (10, 0), Outcome.UNKNOWN),
        ((8, 1), (10, 0), Outcome.UNKNOWN),
    ],
)
def test_first_rule_that_applies_decides(
    ids: tuple[int, int], position: tuple[int, int], outcome: Outcome
) -> None:
    """Aborted nodes come first, then the watermark, the headers, and what is absent."""
    assert _outcomes(_nodes()).outcome(*ids, position) is outcome


@pytest.mark.parametrize(
    ("operation", "outcome"),
    [
        ({"kind": "WRITE", "segment": SEGMENT}, Outcome.ABORTED),
        ({"kind": "WRITE", "segment": f"{SEGMENT}1"}, Outcome.COMMITTED),
        ({"kind": "ACK", "segment": SEGMENT}, Outcome.COMMITTED),
    ],
)
def test_operation_without_header_is_of_an_aborted_transaction(
    operation: dict[str, str], outcome: Outcome
) -> None:
    """Only if it wrote to this segment; the operations of an open transaction tell nothing."""
    nodes = _nodes() | {"/txn/op/1_8-0007": _json(operation), "/txn/op/1_4-0001": b"not read"}

    assert _outcomes(nodes).outcome(1, 8, (7, 0)) is outcome
    assert _outcomes(nodes).outcome(1, 4, (7, 0)) is Outcome.OPEN


def test_nothing_follows_from_the_absence_of_saved_nodes() -> None:
    """A folder of nodes may lack headers; what it has counts."""
    outcomes = _outcomes(_nodes(), is_live=False)

    assert outcomes.outcome(1, 8, (7, 0)) is Outcome.UNKNOWN
    assert outcomes.outcome(1, 2, (7, 0)) is Outcome.COMMITTED
    assert outcomes.outcome(1, 8, (5, 0)) is Outcome.COMMITTED


def test_nothing_follows_without_a_watermark() -> None:
    """Each segment with transactions that ended has one, so the nodes are incomplete."""
    nodes = _nodes()
    del nodes[WATERMARK]
    outcomes = _outcomes(nodes)

    assert outcomes.outcome(1, 8, (1, 0)) is Outcome.UNKNOWN
    assert outcomes.outcome(1, -7, (1, 0)) is Outcome.ABORTED
    assert _outcomes({}).outcome(1, 8, (0, 0)) is Outcome.UNKNOWN


def test_headers_are_not_read_if_the_watermark_decides() -> None:
    """As for most offloaded ledgers, two requests are enough."""
    store = MemoryMetadataStore(_nodes())

    outcomes = read_outcomes(store, SEGMENT, (5, 4), is_live=True)

    assert store.requests == [WATERMARK, "/txn/segment-state/aborted/*"]
    assert outcomes.outcome(1, 8, (5, 5)) is Outcome.UNKNOWN


@pytest.mark.parametrize("open_entries", [None, 0])
def test_nodes_are_requested_in_an_order_that_proves_something(open_entries: int | None) -> None:
    """Ledgers first and last; operations before headers, and the aborted nodes after both."""
    operation = _json({"kind": "WRITE", "segment": SEGMENT})
    store = MemoryMetadataStore(_nodes() | {"/txn/op/1_9-0001": operation, "/txn/op/1_4-0001": b""})
    infos = [LedgerInfo(ledger_id=9, entries=10), LedgerInfo(ledger_id=10, entries=open_entries)]

    def read_metadata() -> TopicMetadata:
        store.requests.append("ledgers")
        return TopicMetadata(topic=TopicName.parse(SEGMENT), ledgers=infos)

    with patch.object(transaction_nodes, "_CONCURRENT_READS", 1):
        metadata = read_segment_metadata(store, SEGMENT, read_metadata, is_live=True)

    assert store.requests == [
        "ledgers",
        WATERMARK,
        "/txn/op/*",
        "/txn/id/*",
        *(f"/txn/id/1_{each}" for each in (2, 3, 4)),
        "/txn/op/1_9-0001",
        "/txn/segment-state/aborted/*",
        "ledgers",
    ]
    assert metadata is not None
    assert metadata.segment_outcomes is not None
    assert metadata.segment_outcomes.ended_ledger_id == 9


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_transactions_beyond_the_limit_are_unknown(limit: int) -> None:
    """Neither headers nor operations that were not read pass for absent ones."""
    operation = _json({"kind": "WRITE", "segment": SEGMENT})
    nodes = _nodes() | {f"/txn/op/1_{each}-0001": operation for each in (50, 51, 52)}
    with patch.object(transaction_nodes, "_MAX_NODES", limit):
        outcomes = _outcomes(nodes)

    headers = [outcomes.outcome(1, each, (7, 0)) for each in (2, 3, 4)]
    operations = [outcomes.outcome(1, each, (7, 0)) for each in (50, 51, 52)]
    states = [Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN]
    assert headers == states[:limit] + [Outcome.UNKNOWN] * (3 - limit)
    assert operations == [Outcome.ABORTED] * limit + [Outcome.UNKNOWN] * (3 - limit)


_OPERATION: Final = "/txn/op/1_9-0001"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (WATERMARK, b""),
        (WATERMARK, b"{"),
        (WATERMARK, b"[]"),
        (WATERMARK, b"[" * 100_000),
        (WATERMARK, b"{}"),
        (WATERMARK, _json({"ledgerId": 1})),
        (WATERMARK, _json({"ledgerId": 1, "entryId": True})),
        (WATERMARK, _json({"ledgerId": "1", "entryId": 1})),
        (WATERMARK, _json({"ledgerId": 1, "entryId": 1.0})),
        (WATERMARK, _json({"ledgerId": -2, "entryId": 0})),
        (WATERMARK, _json({"ledgerId": 1, "entryId": 2**63})),
        (WATERMARK, b'{"ledgerId": ' + b"9" * 10_000 + b', "entryId": 0}'),
        (WATERMARK, _json({"ledgerId": 1, "entryId": 1, "more": "x" * (64 << 10)})),
        ("/txn/id/1_9", _json({"state": "LOST"})),
        ("/txn/id/1_9", _json({"state": ["OPEN"]})),
        ("/txn/id/1_9", b"\xff"),
        (_OPERATION, _json({"kind": "WRITE"})),
        (_OPERATION, _json({"kind": 1, "segment": SEGMENT})),
    ],
)
def test_malformed_node_is_named(path: str, value: bytes) -> None:
    """Nothing is concluded from it, and the error has its path."""
    with pytest.raises(CorruptMetadataError) as caught:
        _outcomes(_nodes() | {path: value})

    assert caught.value.object_key == path
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "path",
    [
        "/txn/id/1",
        "/txn/id/1_",
        "/txn/id/1_2_3",
        "/txn/id/\u0661_1",
        f"/txn/id/1_{2**63}",
        f"/txn/id/1_{'9' * 1000}",
        "/txn/op/1_2",
        f"/txn/segment-state/aborted/{KEY}:",
        f"/txn/segment-state/aborted/{KEY}:1_-",
    ],
)
def test_malformed_name_of_a_node_is_an_error(path: str) -> None:
    """The ids of transactions are two numbers of 64 bits with a sign."""
    with pytest.raises(CorruptMetadataError):
        _outcomes(_nodes() | {path: _json({"state": "OPEN"})})


def test_ids_are_all_of_64_bits_with_a_sign() -> None:
    """The least and the greatest are ids."""
    nodes = _nodes() | {f"/txn/id/{2**63 - 1}_{-(2**63)}": _json({"state": "ABORTED"})}

    assert _outcomes(nodes).outcome(2**63 - 1, -(2**63), (7, 0)) is Outcome.ABORTED


@given(nodes=st.dictionaries(st.sampled_from([WATERMARK, "/txn/id/1_9", _OPERATION]), st.binary()))
def test_any_bytes_are_read_or_refused(nodes: dict[str, bytes]) -> None:
    """No other error comes of them."""
    with suppress(CorruptMetadataError):
        assert _outcomes(_nodes() | nodes).outcome(1, -7, (7, 0)) is Outcome.ABORTED


def test_outcomes_of_many_transactions_are_small() -> None:
    """Each takes about twenty bytes in a pickle, which tasks carry."""
    aborted = frozenset((0, each) for each in range(100_000))

    assert len(pickle.dumps(TransactionOutcomes((1, 1), aborted))) < 24 * len(aborted)


def test_start_of_a_segment_is_a_watermark() -> None:
    """Before a segment has messages, its watermark is before all ledgers."""
    nodes = _nodes() | {WATERMARK: _json({"ledgerId": -1, "entryId": -1})}

    assert _outcomes(nodes).outcome(1, 4, (0, 0)) is Outcome.OPEN


def test_a_segment_that_does_not_exist_has_no_outcomes() -> None:
    """Nor has one that is deleted while its nodes are read."""
    store = MemoryMetadataStore(_nodes())
    metadata = TransactionModel(random.Random(0)).segments[0].metadata
    answers: list[TopicMetadata | None] = [None, metadata]

    assert read_segment_metadata(store, SEGMENT, lambda: None, is_live=True) is None
    assert read_segment_metadata(store, SEGMENT, answers.pop, is_live=True) is None
    assert not answers
