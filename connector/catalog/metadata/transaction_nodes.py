"""The outcomes of a segment's transactions, from the nodes of a metadata store (PIP-473).

Segments of scalable topics have no markers of transactions. Brokers of Pulsar 5.0
(`MetadataTransactionBuffer`, `TxnMetadataStore`, `TxnPaths`) record the outcomes in these nodes:

=============================================== ================================================
Path                                            Value
=============================================== ================================================
`/txn/segment-state/watermark/<segment>`        position up to which no transaction is open:
                                                `{"ledgerId":81,"entryId":4}`
`/txn/segment-state/aborted/<segment>:<txn>`    last position of an aborted transaction; not read
`/txn/id/<txn>`                                 header, `{"state":"OPEN",…}`; or `COMMITTED`,
                                                `ABORTED`
`/txn/op/<txn>-<number>`                        operation that has not ended,
                                                `{"kind":"WRITE","segment":"segment://…",…}`
=============================================== ================================================

`<segment>` is the segment's name, URL-encoded with its slashes. `<txn>` is `<most>_<least>`, the
two halves of the transaction's id as signed decimal numbers. Unknown fields are ignored.

A message of a transaction in a segment is decided by the first rule that applies:

1. The transaction is among the aborted ones of the segment: aborted.
2. The watermark is at the message or after it: committed.
3. The transaction has a header: what its state says.
4. An operation of the transaction on the segment has not ended: aborted
   (`MetadataTransactionBuffer.applyHeaderForRecovery`).
5. Otherwise committed.

**Order of reads.** Brokers change the nodes meanwhile. To end a transaction, a broker changes its
header. For each segment it then writes the aborted node, deletes the operations and moves the
watermark; much later it deletes the header. It deletes an aborted node after the transaction's last
ledger was trimmed. Each rule therefore concludes from nodes that are read in this order:

- The aborted nodes are read last, so they include each transaction that the nodes before show as
  ended. If they were read before the headers, an aborted transaction could end in between, leave no
  header, and pass for a committed one.
- The list of ledgers is read after them. A ledger that is still listed then was not trimmed before,
  so its aborted nodes were still there.
- The list of ledgers is also read first. Rule 5 applies only to ledgers that were closed then:
  a transaction in a later ledger may have begun after the headers were read.
- An operation counts for rule 4 if it is listed before the headers and still exists after them.

Saved nodes may lack a folder, and absence then proves nothing. So rule 5 applies only to the nodes
of a running cluster, and only if the segment has a watermark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import ContextThreadPool
from arrow_io.core.wording import counted
from arrow_io.errors import CorruptMetadataError
from arrow_io.messages.transactions import Outcome, TransactionOutcomes
from connector.catalog.metadata.admin_answers import read_answer
from connector.catalog.metadata.topic_metadata import checked_position
from connector.inputs.topic_names import encode_local_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from arrow_io.messages.transactions import TransactionId
    from connector.catalog.metadata.metadata_store import MetadataStore
    from connector.catalog.metadata.topic_metadata import TopicMetadata

_WATERMARKS: Final = "/txn/segment-state/watermark"
_ABORTED: Final = "/txn/segment-state/aborted"
_HEADERS: Final = "/txn/id"
_OPERATIONS: Final = "/txn/op"

_STATES: Final = {
    "OPEN": Outcome.OPEN,
    "COMMITTED": Outcome.COMMITTED,
    "ABORTED": Outcome.ABORTED,
}
_ID: Final = re.compile(r"(-?[0-9]{1,19})_(-?[0-9]{1,19})")
_MAX_ID: Final = 1 << 63
_OPERATION: Final = re.compile(rf"{_ID.pattern}-[0-9]+")
_MAX_NODE_BYTES: Final = 64 << 10
_MAX_NODES: Final = 10_000
"""Maximum number of headers, and of operations, that are read. The transactions of the others count
as unknown after the watermark."""
_CONCURRENT_READS: Final = 16
_SHOWN_CHARACTERS: Final = 200
_START: Final = (-1, -1)


def read_segment_metadata(
    store: MetadataStore,
    segment: str,
    read_metadata: Callable[[], TopicMetadata | None],
    *,
    is_live: bool,
) -> TopicMetadata | None:
    """Return the metadata of a segment with the outcomes of transactions in its ledgers.

    Args:
        store: The nodes of the segment's cluster.
        segment: Full name of the segment, `segment://…`.
        read_metadata: Reads the segment's list of ledgers; called twice.
        is_live: Whether the nodes are those of a running cluster, so that none is missing.

    Returns:
        None if the segment does not exist.

    Raises:
        CorruptMetadataError: A node is malformed.
        PulsarOffloadError: `read_metadata` or the store raised it.
    """
    earlier = read_metadata()
    if earlier is None:
        return None
    # The open ledger has no number of entries, or 0.
    closed = [(each.ledger_id, each.entries - 1) for each in earlier.ledgers if each.entries]
    last = closed[-1] if closed else _START
    outcomes = read_outcomes(store, segment, last, is_live=is_live)
    metadata = read_metadata()
    return None if metadata is None else replace(metadata, segment_outcomes=outcomes)


def read_outcomes(
    store: MetadataStore, segment: str, last: tuple[int, int], *, is_live: bool
) -> TransactionOutcomes:
    """Return the outcomes of a segment's transactions.

    They hold for the ledgers that the segment still has after this call. The headers of
    transactions are read only if the watermark is before `last`.

    Args:
        store: The nodes.
        segment: Full name of the segment, `segment://…`.
        last: Ledger and entry id of the last entry of the segment's closed ledgers, which were
            listed before this call.
        is_live: Whether the nodes are those of a running cluster, so that none is missing.

    Raises:
        CorruptMetadataError: A node is malformed.
        OptionError: The store refuses the credentials.
        StorageError: The store cannot be read.
    """
    key = encode_local_name(segment)
    watermark = _read_watermark(store, f"{_WATERMARKS}/{key}")
    is_decided = last <= (watermark or _START)
    states = {} if is_decided else _read_states(store, segment)
    aborted = _transactions(store.children(_ABORTED), f"{key}:")
    ended = last[0] if is_live and watermark is not None and not is_decided else -1
    return TransactionOutcomes(watermark, frozenset(aborted), states, ended)


def _read_watermark(store: MetadataStore, path: str) -> tuple[int, int] | None:
    fields = _read_node(store, path)
    if fields is None:
        return None
    ledger_id, entry_id = fields.get("ledgerId"), fields.get("entryId")
    if type(ledger_id) is int and type(entry_id) is int:
        try:
            # A segment without messages has a position before the first ledger.
            return _START if ledger_id == -1 else checked_position(ledger_id, entry_id)
        except CorruptMetadataError as error:
            raise error.located(object_key=path) from None
    message = "the watermark of a segment's transactions is not a position"
    raise CorruptMetadataError(message, object_key=path)


def _read_states(store: MetadataStore, segment: str) -> dict[TransactionId, Outcome]:
    """Return the outcomes by the headers, and by operations without one."""
    operations = {name: _transaction(name, _OPERATION) for name in store.children(_OPERATIONS)}
    names = store.children(_HEADERS)
    states = dict.fromkeys(_transactions(names[_MAX_NODES:]), Outcome.UNKNOWN)
    headers = _read_nodes(store, _HEADERS, names[:_MAX_NODES])
    for (path, fields), transaction in zip(headers, _transactions(names), strict=False):
        if fields is not None:
            states[transaction] = _state(path, fields)
    remaining = [name for name, each in operations.items() if each not in states]
    states |= dict.fromkeys(map(operations.__getitem__, remaining[_MAX_NODES:]), Outcome.UNKNOWN)
    nodes = _read_nodes(store, _OPERATIONS, remaining[:_MAX_NODES])
    for name, (path, fields) in zip(remaining, nodes, strict=False):
        if fields is not None and _is_write(path, fields, segment):
            states[operations[name]] = Outcome.ABORTED
    return states


def _state(path: str, fields: Mapping[str, object]) -> Outcome:
    state = fields.get("state")
    if isinstance(state, str) and state in _STATES:
        return _STATES[state]
    message = f"a transaction has the unknown state {_shorten(state)}"
    raise CorruptMetadataError(message, object_key=path)


def _is_write(path: str, fields: Mapping[str, object], segment: str) -> bool:
    """Return whether an operation added messages to a segment."""
    kind, name = fields.get("kind"), fields.get("segment")
    if isinstance(kind, str) and isinstance(name, str):
        return kind == "WRITE" and name == segment
    message = "an operation of a transaction names no kind or no segment"
    raise CorruptMetadataError(message, object_key=path)


def _transactions(names: Iterable[str], prefix: str = "") -> list[TransactionId]:
    """Return the transactions of nodes whose names begin with a prefix."""
    return [_transaction(name.removeprefix(prefix)) for name in names if name.startswith(prefix)]


def _transaction(text: str, form: re.Pattern[str] = _ID) -> TransactionId:
    match = form.fullmatch(text)
    if match is not None:
        most, least = int(match[1]), int(match[2])
        if -_MAX_ID <= min(most, least) <= max(most, least) < _MAX_ID:
            return most, least
    message = f"a node names {_shorten(text)}, which is not the id of a transaction"
    raise CorruptMetadataError(message)


def _read_nodes(
    store: MetadataStore, folder: str, names: Iterable[str]
) -> list[tuple[str, Mapping[str, object] | None]]:
    """Return path and fields of nodes, None for the fields of a node that was deleted."""
    paths = [f"{folder}/{name}" for name in names]
    with ContextThreadPool(_CONCURRENT_READS) as executor:
        values = executor.map(lambda path: _read_node(store, path), paths)
        return list(zip(paths, values, strict=True))


def _read_node(store: MetadataStore, path: str) -> Mapping[str, object] | None:
    data = store.get(path)
    if data is None:
        return None
    if len(data) > _MAX_NODE_BYTES:
        message = f"a node of {counted(len(data), 'byte')}; {_MAX_NODE_BYTES} are allowed"
        raise CorruptMetadataError(message, object_key=path)
    try:
        return read_answer(data)
    except CorruptMetadataError as error:
        raise error.located(object_key=path) from None


def _shorten(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS]
