"""A Hypothesis strategy for whole topics: ledgers of entries, and the messages they deliver.

A topic is woven from *threads*, each a run of entries that belong together: one entry, one marker,
one chunked message, one transaction with its marker. Each thread knows by construction which of its
entries delivers which message, so that neither a decoder nor the reference is asked. Entries of one
thread keep their order, threads interleave at will, and the whole is cut into ledgers anywhere.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from hypothesis import strategies as st

from tests.support.codecs import CODECS
from tests.support.entries import (
    Framing,
    Message,
    OuterFields,
    encode_chunks,
    encode_entry,
    encode_marker,
    renumbered,
)
from tests.support.pulsar_proto import MessageMetadata
from tests.support.reference import NOT_BATCHED, TXN_ABORT, TXN_COMMIT, Position, TxnId

if TYPE_CHECKING:
    from collections.abc import Sequence

# Serialised fields that no version of PulsarApi.proto has, one of each wire type in use.
_UNKNOWN_FIELDS: Final = (
    b"\xc0\x3e\x96\x01",
    b"\xc1\x3e\x01\x02\x03\x04\x05\x06\x07\x08",
    b"\xc2\x3e\x05hello",
    b"\xc5\x3e\x01\x02\x03\x04",
)
_SUPERSEDED_FIELDS: Final = (
    MessageMetadata(producer_name="superseded", publish_time=1).SerializePartialToString(),
    MessageMetadata(sequence_id=2**64 - 1).SerializePartialToString(),
)
_TXN_COMMITTING: Final = 20
SHAPES: Final = ("single", "batch", "marker", "chunked", "transaction")
_INDEX_STEP: Final = 1000
_TIMES_MS: Final = st.integers(min_value=1, max_value=4_000_000_000_000)

# Few draws and telling values: of every width that a varint or a length can have in practice.
_U64: Final = st.sampled_from((0, 1, 127, 128, 2**32, 2**63 - 1, 2**63, 2**64 - 1))
_TEXT: Final = st.sampled_from(("", "a", "b", "поток", "数据 ledger", "nul\0", "x" * 130))
_BYTES: Final = st.sampled_from((b"", b"\0", b"\xff\x00\x01", b"ordering", b"\xfe" * 200))
_PAYLOADS: Final = st.binary(min_size=8, max_size=40) | st.integers(2, 200).map(
    lambda count: b"ledger " * count
)
_PROPERTIES: Final = st.lists(st.tuples(_TEXT, _TEXT), max_size=4).map(tuple)
_EVENT_TIMES_MS: Final = st.none() | st.just(0) | _TIMES_MS
_SEQUENCE_IDS: Final = st.none() | _U64


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that an entry gives to consumers.

    Attributes:
        message: The message, with the values of the entry's metadata where it has none itself.
        outer: Fields of the entry's metadata.
        framing: Framing of the entry.
        batch_index: 0-based place in the batch; -1: not batched.
        batch_size: Number of messages in the batch; 1 if not batched.
        first_chunk_step: Place in the thread of the message's first chunk; None: not chunked.
    """

    message: Message
    outer: OuterFields
    framing: Framing
    batch_index: int = NOT_BATCHED
    batch_size: int = 1
    first_chunk_step: int | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    """Entries that belong together.

    Attributes:
        entries: The entries, in order.
        delivered: `(step, message)`: the place in `entries` where a message is complete.
        txn_id: The transaction of all the messages; None: none.
        committed: Whether the messages are visible.
        open: Whether the thread is a transaction without an outcome.
    """

    entries: list[bytes]
    delivered: list[tuple[int, Delivered]]
    txn_id: TxnId | None = None
    committed: bool = True
    open: bool = False


@dataclass(frozen=True, slots=True)
class DeliveredAt:
    """A message with its place in the topic."""

    position: Position
    first_chunk: Position | None
    delivered: Delivered
    txn_id: TxnId | None
    committed: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """A generated topic.

    Attributes:
        ledgers: `(ledger_id, entries)`, ids ascending, no ledger empty.
        delivered: Messages in the order of their positions, those of aborted and open transactions
            among them.
        open_transactions: Transactions with messages and without an outcome.
    """

    ledgers: list[tuple[int, list[bytes]]]
    delivered: list[DeliveredAt]
    open_transactions: set[TxnId]


def framings(*, message_count: int = 1) -> st.SearchStrategy[Framing]:
    """Framings of an entry; its index leaves room for the messages before the last."""
    indexes = st.integers(min_value=message_count - 1, max_value=2**40)
    return st.builds(
        Framing,
        broker_metadata=st.none() | st.tuples(_TIMES_MS, indexes),
        checksum=st.booleans(),
        codec=st.sampled_from(CODECS),
        other_client=st.booleans(),
    )


@st.composite
def messages(draw: st.DrawFn, *, nullable: bool = True) -> Message:
    """One message, with or without each of its fields.

    Args:
        draw: Hypothesis' own.
        nullable: Whether the value may be null or empty; else it has 8 bytes at least.
    """
    message = Message(
        payload=draw(_PAYLOADS),
        properties=draw(_PROPERTIES),
        ordering_key=draw(st.none() | _BYTES),
        event_time=draw(_EVENT_TIMES_MS),
        sequence_id=draw(_SEQUENCE_IDS),
        extra_fields=draw(st.just(b"") | st.sampled_from(_UNKNOWN_FIELDS)),
        null_value=draw(st.sampled_from((None, False))),
    )
    match draw(st.sampled_from(("full", "full", "empty", "null"))) if nullable else "full":
        case "empty":
            message = replace(message, payload=b"")
        case "null":
            message = replace(message, payload=b"", null_value=True)
    match draw(st.sampled_from(("absent", "text", "base64", "null"))):
        case "text":
            message = replace(message, partition_key=draw(_TEXT))
        case "base64":
            key = base64.b64encode(draw(_BYTES)).decode()
            message = replace(message, partition_key=key, partition_key_b64_encoded=True)
        case "null":
            message = replace(message, null_partition_key=True)
    return message


_OuterStrategy: TypeAlias = st.SearchStrategy[OuterFields]
_OUTER_FIELDS: Final = cast(
    "_OuterStrategy",
    st.fixed_dictionaries(
        {"producer_name": _TEXT, "sequence_id": _U64, "publish_time": _TIMES_MS},
        optional={
            "replicated_from": _TEXT,
            "replicate_to": st.lists(_TEXT, max_size=2),
            "schema_version": st.sampled_from((b"", bytes(8), b"\0\0\0\0\0\0\1\0", b"opaque")),
            "deliver_at_time": _TIMES_MS,
            "highest_sequence_id": _U64,
            # One half of a transaction id makes no transaction.
            "txnid_most_bits": st.just(7),
        },
    ),
)

# Values that the members of a batch inherit, or must not inherit.
_OUTER_FIELDS_OF_MEMBERS: Final = cast(
    "_OuterStrategy",
    st.fixed_dictionaries(
        {},
        optional={
            "event_time": _TIMES_MS,
            "null_value": st.sampled_from((False, False, True)),
            "partition_key": _TEXT,
            "partition_key_b64_encoded": st.booleans(),
            "ordering_key": _BYTES,
        },
    ),
)

_OUTER_FIELDS_OF_BATCH: Final = st.builds(
    lambda outer, of_members: cast("OuterFields", {**outer, **of_members}),
    _OUTER_FIELDS,
    _OUTER_FIELDS_OF_MEMBERS,
)


def _with_txn(outer: OuterFields, txn_id: TxnId | None) -> OuterFields:
    if txn_id is None:
        return outer
    most, least = txn_id
    return OuterFields(**{**outer, "txnid_most_bits": most, "txnid_least_bits": least})


def _resolved(message: Message, outer: OuterFields) -> Message:
    """The message with the values that it takes from its entry."""
    return replace(
        message,
        event_time=outer.get("event_time", 0) if message.event_time is None else message.event_time,
        sequence_id=outer["sequence_id"] if message.sequence_id is None else message.sequence_id,
        null_value=(
            outer.get("null_value", False) if message.null_value is None else message.null_value
        ),
    )


@st.composite
def single_threads(draw: st.DrawFn, txn_id: TxnId | None = None) -> Thread:
    """One entry with one message, not batched."""
    message = draw(messages())
    outer = _with_txn(draw(_OUTER_FIELDS), txn_id)
    framing = draw(framings())
    # A field that occurs twice counts by its last occurrence.
    superseded = draw(st.just(b"") | st.sampled_from(_SUPERSEDED_FIELDS))
    message = replace(message, extra_fields=superseded + message.extra_fields)
    entry = encode_entry([message], batched=False, framing=framing, **outer)
    return Thread([entry], [(0, Delivered(_resolved(message, outer), outer, framing))])


def _compacted_out(message: Message) -> Message:
    return replace(message, payload=b"", compacted_out=True)


@st.composite
def batch_threads(
    draw: st.DrawFn, txn_id: TxnId | None = None, *, compacted: bool = True
) -> Thread:
    """One entry with a batch, some of whose members may be compacted out."""
    member = messages() | messages().map(_compacted_out) if compacted else messages()
    members = draw(st.lists(member, min_size=1, max_size=6))
    outer = _with_txn(draw(_OUTER_FIELDS_OF_BATCH), txn_id)
    framing = draw(framings(message_count=len(members)))
    entry = encode_entry(members, batched=True, framing=framing, **outer)
    delivered = [
        (0, Delivered(_resolved(member, outer), outer, framing, batch_index, len(members)))
        for batch_index, member in enumerate(members)
        if not member.compacted_out
    ]
    return Thread([entry], delivered)


@st.composite
def chunked_threads(draw: st.DrawFn, uuid: str, txn_id: TxnId | None = None) -> Thread:
    """The chunks of one message: whole, with duplicates, with a gap, or sent again after a gap."""
    message = draw(messages(nullable=False))
    outer = _with_txn(draw(_OUTER_FIELDS), txn_id)
    framing = draw(framings())
    count = draw(st.integers(2, 4))
    chunks = encode_chunks(message, chunk_count=count, uuid=uuid, framing=framing, **outer)
    before, whole, after = draw(
        st.sampled_from(
            ((False, True, False), (False, True, True), (True, True, False), (True, False, False))
        )
    )
    chunk_ids: list[int] = []
    delivered: list[tuple[int, Delivered]] = []
    if before:
        chunk_ids += draw(_broken_attempts(count))
    if whole:
        attempt = draw(_whole_attempts(count))
        first = len(chunk_ids) + attempt.index(1) - 1
        last = len(chunk_ids) + attempt.index(count - 1)
        chunk_ids += attempt
        resolved = _resolved(message, outer)
        delivered = [(last, Delivered(resolved, outer, framing, first_chunk_step=first))]
    if after:
        chunk_ids += draw(_broken_attempts(count))
    return Thread([chunks[chunk_id] for chunk_id in chunk_ids], delivered)


@st.composite
def _broken_attempts(draw: st.DrawFn, count: int) -> list[int]:
    """All chunk ids but one, which may come too late, with those after it once more."""
    missing = draw(st.integers(0, count - 1))
    attempt = [chunk_id for chunk_id in range(count) if chunk_id != missing]
    # Of the first chunk, too late means at the start; of the last, it means in time.
    if 0 < missing < count - 1 and draw(st.booleans()):
        attempt += range(missing, count)
    return attempt


@st.composite
def _whole_attempts(draw: st.DrawFn, count: int) -> list[int]:
    """All chunk ids in order, each perhaps followed by duplicates that change nothing.

    Chunk 0 again, once chunk 1 has come, would start the message anew.
    """
    attempt: list[int] = []
    for chunk_id in range(count):
        earlier = st.integers(min(chunk_id, 1), chunk_id)
        attempt += [chunk_id, *draw(st.lists(earlier, max_size=1))]
    return attempt


@st.composite
def transaction_threads(
    draw: st.DrawFn, txn_id: TxnId, uuid: str, *, compacted: bool = True
) -> Thread:
    """The entries of one transaction, and its marker if its outcome is known."""
    parts = draw(
        st.lists(st.sampled_from(("single", "batch")), min_size=1, max_size=3)
        | st.just(["single", "chunked"])
    )
    entries: list[bytes] = []
    delivered: list[tuple[int, Delivered]] = []
    for part in parts:
        match part:
            case "single":
                thread = draw(single_threads(txn_id))
            case "batch":
                thread = draw(batch_threads(txn_id, compacted=compacted))
            case _:
                thread = draw(chunked_threads(uuid, txn_id))
        delivered += [
            (step + len(entries), _moved(d, len(entries))) for step, d in thread.delivered
        ]
        entries += thread.entries
    framing = draw(framings())
    outcome = draw(st.sampled_from(("commit", "abort", "open", "committing")))
    match outcome:
        case "commit":
            entries.append(encode_marker(TXN_COMMIT, txn_id=txn_id, framing=framing))
        case "abort":
            entries.append(encode_marker(TXN_ABORT, txn_id=txn_id, framing=framing))
        case "committing":
            entries.append(encode_marker(_TXN_COMMITTING, txn_id=txn_id, framing=framing))
    return Thread(
        entries,
        delivered,
        txn_id,
        committed=outcome == "commit",
        open=outcome in {"open", "committing"},
    )


def _moved(delivered: Delivered, steps: int) -> Delivered:
    if delivered.first_chunk_step is None:
        return delivered
    return replace(delivered, first_chunk_step=delivered.first_chunk_step + steps)


@st.composite
def marker_threads(draw: st.DrawFn) -> Thread:
    """A marker of replicated subscriptions, or of a transaction without messages here."""
    marker_type = draw(st.sampled_from((0, 10, 11, 12, 13, 21, 22)))
    txn_id = (0, 2**62) if marker_type in {21, 22} else None
    entry = encode_marker(
        marker_type,
        txn_id=txn_id,
        payload=draw(st.binary(max_size=10)),
        publish_time=draw(_TIMES_MS),
        framing=draw(framings()),
    )
    return Thread([entry], [])


@st.composite
def topics(
    draw: st.DrawFn,
    *,
    max_threads: int = 6,
    compacted: bool = True,
    shapes: tuple[str, ...] = SHAPES,
) -> Topic:
    """A topic of one ledger or several, with all shapes of entries.

    Args:
        draw: Hypothesis' own.
        max_threads: Bound of the number of threads, inclusive; a thread has 1 to about 10 entries.
        compacted: Whether batches may have members that compaction emptied. Real ones are in no
            ledger that is offloaded.
        shapes: The shapes of threads that it is woven from.
    """
    kinds = draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=max_threads))
    threads = []
    for number, kind in enumerate(kinds):
        match kind:
            case "single":
                threads.append(draw(single_threads()))
            case "batch":
                threads.append(draw(batch_threads(compacted=compacted)))
            case "marker":
                threads.append(draw(marker_threads()))
            case "chunked":
                threads.append(draw(chunked_threads(f"chunked-{number}")))
            case _:
                txn_id = (draw(st.integers(0, 2)), number)
                uuid = f"transactional-{number}"
                threads.append(draw(transaction_threads(txn_id, uuid, compacted=compacted)))
    order = [number for number, thread in enumerate(threads) for _ in thread.entries]
    return _woven(threads, draw(st.permutations(order)), draw(_ledger_ids(len(order))))


@st.composite
def _ledger_ids(draw: st.DrawFn, entry_count: int) -> list[int]:
    """The ledger of each entry of a topic, ascending."""
    ledger_id = draw(st.integers(0, 2**40))
    ledger_ids = []
    for _ in range(entry_count):
        ledger_ids.append(ledger_id)
        ledger_id += draw(st.sampled_from((0, 0, 0, 0, 1, 3)))
    return ledger_ids


def _woven(threads: Sequence[Thread], order: Sequence[int], ledger_ids: Sequence[int]) -> Topic:
    """Lay the threads' entries out.

    Args:
        threads: The threads.
        order: For each entry of the topic, the number of the thread that gives the next one.
        ledger_ids: For each entry of the topic, its ledger.
    """
    ledgers: dict[int, list[bytes]] = {}
    positions: list[list[Position]] = [[] for _ in threads]
    indexes: dict[Position, int] = {}
    index = ledger_ids[0]
    for number, ledger_id in zip(order, ledger_ids, strict=True):
        entries = ledgers.setdefault(ledger_id, [])
        step = len(positions[number])
        positions[number].append((ledger_id, len(entries)))
        # Through a topic they rise, by the number of each entry's messages at the least.
        index += _INDEX_STEP
        indexes[ledger_id, len(entries)] = index
        entries.append(renumbered(threads[number].entries[step], index))
    delivered = [
        DeliveredAt(
            position=places[step],
            first_chunk=None if d.first_chunk_step is None else places[d.first_chunk_step],
            delivered=_renumbered(d, indexes[places[step]]),
            txn_id=thread.txn_id,
            committed=thread.committed,
        )
        for thread, places in zip(threads, positions, strict=True)
        for step, d in thread.delivered
    ]
    delivered.sort(key=lambda at: (at.position, at.delivered.batch_index))
    still_open = {thread.txn_id for thread in threads if thread.open and thread.txn_id is not None}
    return Topic(list(ledgers.items()), delivered, still_open)


def _renumbered(delivered: Delivered, index: int) -> Delivered:
    if delivered.framing.broker_metadata is None:
        return delivered
    broker_metadata = (delivered.framing.broker_metadata[0], index)
    framing = replace(delivered.framing, broker_metadata=broker_metadata)
    return replace(delivered, framing=framing)
