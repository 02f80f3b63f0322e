"""Segments with transactions, and the nodes that a cluster of Pulsar 5.0 has of them meanwhile.

Each change that a broker makes with one request is a step of its own, and any number of steps may
be taken between two requests of a reader. What became of a transaction is kept beside the nodes.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus
from uuid import UUID

from arrow_io.format.object_names import LedgerObjectName
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.scalable import (
    ScalableTopic,
    SegmentNode,
    node_path,
    scalable_topic_json,
)
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.topic_names import TopicName
from tests.support.buckets import offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

MOST: Final = -3
"""Ids are signed."""
MAX_HEADERS: Final = 5
"""With more, reading them all would take longer than any transaction lasts."""
SEGMENTS: Final = tuple(
    f"segment://public/default/pay:s/{each}" for each in ("0000-7fff-1", "8000-ffff-2")
)


@dataclass
class ModelLedger:
    """A ledger: each entry is the lower half of a transaction's id, or None."""

    ledger_id: int
    uuid: UUID
    entries: list[int | None] = field(default_factory=list)
    is_closed: bool = False


@dataclass
class ModelSegment:
    """A segment, with the requests that its broker has yet to send."""

    name: str
    ledgers: list[ModelLedger]
    trimmed: list[ModelLedger] = field(default_factory=list)
    ongoing: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The first position of each transaction that has not ended here."""
    last_positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    requests: deque[Callable[[], object]] = field(default_factory=deque)

    @property
    def key(self) -> str:
        """Its name in paths of nodes."""
        return quote_plus(self.name)

    @property
    def last(self) -> tuple[int, int]:
        """The position of its last entry."""
        ledger = next((each for each in reversed(self.ledgers) if each.entries), self.ledgers[0])
        return ledger.ledger_id, len(ledger.entries) - 1

    @property
    def max_read_position(self) -> tuple[int, int]:
        """The last position before the first message of any transaction that has not ended."""
        if not self.ongoing:
            return self.last
        ledger_id, entry_id = min(self.ongoing.values())
        return ledger_id, entry_id - 1

    @property
    def metadata(self) -> TopicMetadata:
        """Its managed ledger, with the ledgers that were not trimmed."""
        infos = [
            LedgerInfo(
                ledger_id=each.ledger_id,
                entries=len(each.entries),
                size_bytes=0,
                timestamp_ms=1,
                offload=OffloadContext(uuid=each.uuid, complete=True),
            )
            if each.is_closed
            else LedgerInfo(ledger_id=each.ledger_id)
            for each in self.ledgers
        ]
        return TopicMetadata(topic=TopicName.parse(self.name), ledgers=infos)


class TransactionModel:
    """A cluster with two segments, which is a metadata store too.

    Args:
        chance: Chooses steps.
        max_steps: How many steps at most are taken before each request of a reader.
        trims: Whether ledgers are trimmed.

    Attributes:
        outcomes: What became of each transaction, by the lower half of its id: whether it was
            committed. Open ones are not in it.
    """

    url = "model://"

    def __init__(self, chance: random.Random, max_steps: int = 0, *, trims: bool = True) -> None:
        self._chance = chance
        self._max_steps = max_steps
        self._trims = trims
        self._next_ledger = 0
        self._next_transaction = 0
        self._next_operation = 0
        self.nodes: dict[str, bytes] = {}
        self.outcomes: dict[int, bool] = {}
        self.segments = [ModelSegment(name, [self._ledger()]) for name in SEGMENTS]

    # ------------------------------------------------------------------------- what readers call

    def get(self, path: str) -> bytes | None:
        """Return a node's value after some steps; None if there is no such node."""
        self._drift()
        return (self.nodes | self._other_nodes).get(path)

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children after some steps."""
        self._drift()
        below = (each for each in self.nodes | self._other_nodes if each.startswith(f"{path}/"))
        return sorted({each.removeprefix(f"{path}/").partition("/")[0] for each in below})

    def metadata(self, segment: ModelSegment) -> TopicMetadata:
        """Return a segment's managed ledger after some steps."""
        self._drift()
        return segment.metadata

    @property
    def _other_nodes(self) -> dict[str, bytes]:
        """The nodes that are not about transactions."""
        names = [TopicName.parse(each.name) for each in self.segments]
        numbers = [each.segment for each in names if each.segment is not None]
        graph = ScalableTopic(
            topic=names[0].base,
            nodes=tuple(SegmentNode(segment=each, is_sealed=False) for each in numbers),
        )
        ledgers = {
            f"/managed-ledgers/{name.managed_ledger_name}": segment.metadata
            for name, segment in zip(names, self.segments, strict=True)
        }
        return {node_path(graph.topic): json.dumps(scalable_topic_json(graph)).encode()} | {
            path: serialize_managed_ledger_info(each) for path, each in ledgers.items()
        }

    def objects(self) -> dict[str, bytes]:
        """Return the objects of all ledgers that were closed and not trimmed."""
        found: dict[str, bytes] = {}
        for segment in self.segments:
            name = TopicName.parse(segment.name).managed_ledger_name
            for each in segment.ledgers:
                if each.is_closed:
                    entries = [_entry(each.ledger_id, *pair) for pair in enumerate(each.entries)]
                    object_name = LedgerObjectName(each.uuid, each.ledger_id)
                    found |= offload_ledger(object_name, entries, managed_ledger=name)
        return found

    def messages(self) -> Iterator[tuple[tuple[int, int], int | None]]:
        """Yield position and transaction of each message in closed ledgers, by segment."""
        for segment in self.segments:
            for each in segment.ledgers:
                for entry_id, transaction in enumerate(each.entries if each.is_closed else ()):
                    yield (each.ledger_id, entry_id), transaction

    def _drift(self) -> None:
        for _ in range(self._chance.randint(0, self._max_steps)):
            self.step()

    # ------------------------------------------------------------------------------ what happens

    def step(self) -> None:
        """Take one step, chosen at random; it may do nothing."""
        segment = self._chance.choice(self.segments)
        choices: list[tuple[Callable[[], object], int]] = [
            (self.begin, 3),
            (lambda: self._publish(segment, None), 2),
            (lambda: self._publish_in_transaction(segment), 6),
            (lambda: self.roll(segment), 2),
            (self._end, 3),
            (lambda: self._send(segment), 8),
            (lambda: self._apply(segment), 4),
            (self._delete_header, 2),
            (self._lose_header, 1),
            (lambda: self._trim(segment), 1 if self._trims else 0),
        ]
        actions, weights = zip(*choices, strict=True)
        [action] = self._chance.choices(actions, weights)
        action()

    def settle(self) -> None:
        """End what is open, and let the brokers finish all that they have to do."""
        for transaction in range(self._next_transaction):
            if transaction not in self.outcomes:
                self._decide(transaction)
        for segment in self.segments:
            while segment.ongoing or segment.requests:
                self._apply(segment)
                self._send(segment)

    def begin(self) -> None:
        """Begin a transaction, unless there are many."""
        if sum(each.startswith("/txn/id/") for each in self.nodes) >= MAX_HEADERS:
            return
        self._put(f"/txn/id/{MOST}_{self._next_transaction}", {"state": "OPEN", "timeout": 60})
        self._next_transaction += 1

    def _publish_in_transaction(self, segment: ModelSegment) -> None:
        is_open = [each for each in range(self._next_transaction) if each not in self.outcomes]
        if not is_open:
            return
        transaction = self._chance.choice(is_open)
        if transaction not in segment.ongoing:
            value = {"kind": "WRITE", "segment": segment.name, "ledgerId": 0, "entryId": 0}
            self._next_operation += 1
            self._put(f"/txn/op/{MOST}_{transaction}-{self._next_operation:020}", value)
        self._publish(segment, transaction)
        segment.ongoing.setdefault(transaction, segment.last)
        segment.last_positions[transaction] = segment.last

    def _publish(self, segment: ModelSegment, transaction: int | None) -> None:
        segment.ledgers[-1].entries.append(transaction)

    def roll(self, segment: ModelSegment) -> None:
        """Close a segment's ledger, unless it is empty, and begin another."""
        if segment.ledgers[-1].entries:
            segment.ledgers[-1].is_closed = True
            segment.ledgers.append(self._ledger())

    def _end(self) -> None:
        is_open = [each for each in range(self._next_transaction) if each not in self.outcomes]
        if is_open:
            self._decide(self._chance.choice(is_open))

    def _decide(self, transaction: int) -> None:
        is_committed = self._chance.random() < 0.5
        self.outcomes[transaction] = is_committed
        state = "COMMITTED" if is_committed else "ABORTED"
        self._put(f"/txn/id/{MOST}_{transaction}", {"state": state, "timeout": 60})

    def _apply(self, segment: ModelSegment) -> None:
        """End a transaction in a segment, whose broker then sends its requests one by one."""
        ended = [each for each in segment.ongoing if each in self.outcomes]
        if not ended:
            return
        transaction = self._chance.choice(ended)
        del segment.ongoing[transaction]
        requests = segment.requests
        if not self.outcomes[transaction]:
            segment.aborted.add(transaction)
            path = f"/txn/segment-state/aborted/{segment.key}:{MOST}_{transaction}"
            ledger_id, entry_id = segment.last_positions[transaction]
            value = {"maxLedgerId": ledger_id, "maxEntryId": entry_id}
            requests.append(lambda: self._put(path, value))
        requests.append(lambda: self._delete_operations(segment, transaction))
        position = segment.max_read_position
        watermark = {"ledgerId": position[0], "entryId": position[1]}
        path_ = f"/txn/segment-state/watermark/{segment.key}"
        requests.append(lambda: self._put(path_, watermark))

    def _send(self, segment: ModelSegment) -> None:
        if segment.requests:
            segment.requests.popleft()()

    def _delete_operations(self, segment: ModelSegment, transaction: int) -> None:
        for path, value in list(self.nodes.items()):
            is_own = path.startswith(f"/txn/op/{MOST}_{transaction}-")
            if is_own and json.loads(value)["segment"] == segment.name:
                del self.nodes[path]

    def _delete_header(self) -> None:
        for transaction in self.outcomes:
            prefix = f"/txn/op/{MOST}_{transaction}-"
            if not any(each.startswith(prefix) for each in self.nodes):
                self.nodes.pop(f"/txn/id/{MOST}_{transaction}", None)
                # A few at a time.
                if self._chance.random() < 0.5:
                    return

    def _lose_header(self) -> None:
        """Delete the header of an open transaction, which aborts it."""
        is_open = [each for each in range(self._next_transaction) if each not in self.outcomes]
        if is_open and self._chance.random() < 0.2:
            transaction = self._chance.choice(is_open)
            self.outcomes[transaction] = False
            del self.nodes[f"/txn/id/{MOST}_{transaction}"]

    def _trim(self, segment: ModelSegment) -> None:
        if len(segment.ledgers) < 2 or segment.requests:
            return
        trimmed = segment.ledgers.pop(0)
        segment.trimmed.append(trimmed)
        for transaction in sorted(segment.aborted):
            if segment.last_positions[transaction][0] <= trimmed.ledger_id:
                path = f"/txn/segment-state/aborted/{segment.key}:{MOST}_{transaction}"
                segment.requests.append(partial(self.nodes.pop, path, None))
                segment.aborted.discard(transaction)

    def _ledger(self) -> ModelLedger:
        self._next_ledger += 1
        return ModelLedger(self._next_ledger, UUID(int=self._chance.getrandbits(128)))

    def _put(self, path: str, value: object) -> None:
        self.nodes[path] = json.dumps(value).encode()


def _entry(ledger_id: int, entry_id: int, transaction: int | None) -> bytes:
    message = Message(payload=f"{ledger_id}:{entry_id}".encode())
    if transaction is None:
        return encode_entry([message], batched=False)
    return encode_entry(
        [message], batched=False, txnid_most_bits=MOST % 2**64, txnid_least_bits=transaction
    )
