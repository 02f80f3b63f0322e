"""Chunked messages (PIP-37): joins chunks to payloads by the rules of Pulsar's `ConsumerImpl`.

Chunk 0 opens a message, and replaces an unfinished message of the same uuid. Each following chunk
must be the next one. A repeated chunk is ignored; a gap loses the message.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptEntryError
from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from arrow_io.messages.encryption import PayloadDecryptor
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally

MAX_OPEN_MESSAGES = 10_000
MAX_HELD_BYTES = 256 << 20
MAX_REMEMBERED_UUIDS = 10_000


class ChunkLookback:
    """Finds the chunks of a message that precede the reader's entries: the *lookback*.

    Args:
        read_before: Called with a run; returns the runs before its range, nearest first, each with
            its entries in order. Returns None if messages that began there belong to another
            reader.
        is_read: Whether this or another reader returns the rows of an entry, by ledger and entry
            id. A message with a chunk in such an entry belongs to that reader. None: nobody reads
            the entries before.
    """

    def __init__(
        self,
        read_before: Callable[[EntryRun], Iterator[EntryRun] | None],
        is_read: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._read_before = read_before
        self._is_read = is_read

    def find(
        self, uuid: bytes, run: EntryRun, read_payload: Callable[[EntryRun, int], bytes]
    ) -> FoundChunks:
        """Return a message's chunks from its nearest earlier chunk 0 on.

        `run` holds a later chunk of the message, whose uuid is `uuid`. `read_payload` returns the
        decrypted payload of an entry.

        Raises:
            EncryptedPayloadError: There is no key for a chunk.
            PulsarOffloadError: The earlier entries cannot be read.
        """
        runs = self._read_before(run)
        if runs is None:
            return FoundChunks([], is_foreign=True)
        chunks: list[tuple[int, bytes]] = []
        damage: CorruptEntryError | None = None
        for earlier in runs:
            for index in reversed(list(earlier.flagged(layout.CHUNKED | layout.BROKEN))):
                if earlier.number(index, layout.FLAGS) & layout.BROKEN:
                    damage = damage or earlier.error(index)
                    continue
                if earlier.view(index, layout.UUID) != uuid:
                    continue
                position = earlier.ledger_id, earlier.number(index, layout.ENTRY_ID)
                if self._is_read is not None and self._is_read(*position):
                    return FoundChunks([], is_foreign=True)
                chunk_id = earlier.number(index, layout.CHUNK_ID)
                try:
                    chunks.append((chunk_id, read_payload(earlier, index)))
                except CorruptEntryError as error:
                    damage = damage or error
                if chunk_id == 0:
                    first = FirstChunk.from_entry(earlier, index)
                    return replace(_order_chunks(reversed(chunks), damage), first=first)
        return FoundChunks([], damage=damage)


class FirstChunk(NamedTuple):
    """The position of a message's first chunk, and its metadata that clients do not expose."""

    ledger_id: int
    entry_id: int
    sequence_id: int
    flags: int
    """Flags of the message's key."""

    @classmethod
    def from_entry(cls, run: EntryRun, index: int) -> Self:
        """Return the chunk in an entry of a run."""
        return cls(
            run.ledger_id,
            run.number(index, layout.ENTRY_ID),
            run.number(index, layout.SEQUENCE_ID),
            run.number(index, layout.FLAGS) & (layout.KEY_IS_BASE64 | layout.NULL_KEY),
        )


@dataclass(frozen=True, slots=True)
class FoundChunks:
    """The chunks of a message that precede the reader's entries.

    Attributes:
        parts: Payloads of its first chunks; empty if the first one, or one between them, is
            missing.
        first: The first chunk.
        is_foreign: Whether another reader returns the message.
        damage: Error of a preceding entry that cannot be decoded, and may have been a missing
            chunk.
    """

    parts: list[bytes]
    first: FirstChunk | None = None
    is_foreign: bool = False
    damage: CorruptEntryError | None = None


def _order_chunks(
    chunks: Iterable[tuple[int, bytes]], damage: CorruptEntryError | None
) -> FoundChunks:
    parts: list[bytes] = []
    for chunk_id, payload in chunks:
        if chunk_id > len(parts):
            return FoundChunks([], damage=damage)
        if chunk_id == len(parts):
            parts.append(payload)
    return FoundChunks(parts, damage=damage)


@dataclass(slots=True)
class _OpenMessage:
    first: FirstChunk | None
    chunk_count: int
    next_chunk: int = 0
    is_lost: bool = False
    parts: list[bytes] = field(default_factory=list)
    held_bytes: int = 0


class ChunkAssembler:
    """Joins the chunks of one topic partition, which may interleave and span ledgers.

    Args:
        tally: Counts duplicates and messages that stay incomplete.
        join_payloads: Whether to join payloads; if not, only the order of the chunks is checked.
        decryptor: Decrypts the chunks, each separately.
        lookback: Finds the first chunks of a message that began before the reader's entries; None
            if such a message belongs to another reader.
    """

    def __init__(
        self,
        tally: Tally,
        *,
        join_payloads: bool,
        decryptor: PayloadDecryptor,
        lookback: ChunkLookback | None,
    ) -> None:
        self._tally = tally
        self._join = join_payloads
        self._decryptor = decryptor
        self._lookback = lookback
        self._open: dict[bytes, _OpenMessage] = {}
        self._completed: OrderedDict[bytes, None] = OrderedDict()
        self._abandoned: OrderedDict[bytes, None] = OrderedDict()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._held_bytes = 0

    @property
    def has_unfinished(self) -> bool:
        """Whether a message has begun that can still be completed."""
        return any(not each.is_lost for each in self._open.values())

    def add(self, run: EntryRun, index: int) -> bytes | None:
        """Add one chunk.

        Returns:
            The whole payload, decrypted and still compressed, if this was the last chunk (empty
            without `join_payloads`); None if the message is not complete yet, or is lost, or this
            chunk is a duplicate.

        Raises:
            EncryptedPayloadError: There is no key for the chunk.
            CorruptEntryError: It cannot be decrypted, the chunks together do not have the announced
                size, or the message was dropped because the open messages exceeded the limits.
                Unless salvaging, also if an entry cannot be decoded that may have been an earlier
                chunk.
        """
        uuid = bytes(run.view(index, layout.UUID))
        chunk_id = run.number(index, layout.CHUNK_ID)
        is_last = chunk_id == run.number(index, layout.CHUNK_COUNT) - 1
        message = self._find_message(run, index, uuid, chunk_id)
        if message is None:
            return None
        if chunk_id < message.next_chunk:
            self._tally.metrics.duplicate_chunks += 1
            return None
        if message.is_lost or chunk_id > message.next_chunk:
            self._lose(message)
            if is_last:
                self._close(uuid, incomplete=True)
            return None
        self._hold(message, [self._payload(run, index)])
        if uuid not in self._open:
            raise _evicted_error()
        if not is_last:
            return None
        payload = b"".join(message.parts)
        self._close(uuid, incomplete=False)
        announced = run.number(index, layout.CHUNK_TOTAL_SIZE)
        if self._join and len(payload) != announced:
            have = counted(len(payload), "byte")
            text = f"the chunks together have {have}, not the {announced} announced"
            raise CorruptEntryError(text)
        return payload

    def skip(self) -> None:
        """Forget closed messages: any may begin again in the entries that are skipped.

        Call it only if the assembler has no unfinished message (`has_unfinished`).
        """
        self.finish()
        for uuids in (self._completed, self._abandoned, self._evicted):
            uuids.clear()

    def first_chunks(self) -> list[FirstChunk]:
        """Return the first chunks of messages that can still be completed."""
        return [each.first for each in self._open.values() if not each.is_lost and each.first]

    def complete(self, first: FirstChunk) -> None:
        """Forget a message whose other chunks were found elsewhere."""
        uuid = next(name for name, each in self._open.items() if each.first == first)
        self._close(uuid, incomplete=False)

    def finish(self) -> None:
        """Count the messages that are still open; call it after the last entry."""
        metrics = self._tally.metrics
        for uuid, message in list(self._open.items()):
            if not message.is_lost and message.first is not None:
                metrics.awaited_messages += 1
                metrics.awaited_chunks += message.chunk_count - message.next_chunk
            self._close(uuid, incomplete=True)

    def _find_message(
        self, run: EntryRun, index: int, uuid: bytes, chunk_id: int
    ) -> _OpenMessage | None:
        """Return the open message of a chunk, opened now if necessary; None if there is none."""
        if chunk_id == 0:
            self._close(uuid, incomplete=True)
            if run.is_in_range:
                chunk_count = run.number(index, layout.CHUNK_COUNT)
                self._open[uuid] = _OpenMessage(FirstChunk.from_entry(run, index), chunk_count)
            else:
                # A reader that has a later chunk of it in its ranges must look back.
                self._forget(uuid)
        elif uuid not in self._open and run.is_in_range:
            if uuid in self._evicted:
                raise _evicted_error()
            if uuid in self._completed:
                self._tally.metrics.duplicate_chunks += 1
            elif self._lookback is not None and uuid not in self._abandoned:
                chunk_count = run.number(index, layout.CHUNK_COUNT)
                chunks = self._lookback.find(uuid, run, self._payload)
                self._resume(chunks, uuid, chunk_id, chunk_count)
        return self._open.get(uuid)

    def _resume(self, chunks: FoundChunks, uuid: bytes, chunk_id: int, chunk_count: int) -> None:
        """Open a message with the chunks that precede the reader's entries."""
        is_gap = chunk_id > len(chunks.parts)
        if is_gap and chunks.damage is not None and not self._tally.salvage:
            raise chunks.damage
        if chunks.is_foreign:
            # From now on, only a chunk 0 opens a message of this uuid for this reader.
            _remember(self._abandoned, uuid)
        elif len(chunks.parts) == chunk_count:
            _remember(self._completed, uuid)
        else:
            message = self._open[uuid] = _OpenMessage(chunks.first, chunk_count)
            self._hold(message, chunks.parts)

    def _payload(self, run: EntryRun, index: int) -> bytes:
        return bytes(self._decryptor.payload(run, index)) if self._join else b""

    def _hold(self, message: _OpenMessage, payloads: list[bytes]) -> None:
        message.next_chunk += len(payloads)
        if self._join:
            size = sum(map(len, payloads))
            message.parts.extend(payloads)
            message.held_bytes += size
            self._held_bytes += size
        # A message that is never completed must not block the others. Pulsar's client also drops
        # the oldest.
        while self._held_bytes > MAX_HELD_BYTES or len(self._open) > MAX_OPEN_MESSAGES:
            oldest = next(iter(self._open))
            self._close(oldest, incomplete=True)
            _remember(self._evicted, oldest)

    def _lose(self, message: _OpenMessage) -> None:
        self._held_bytes -= message.held_bytes
        message.is_lost, message.held_bytes = True, 0
        message.parts.clear()

    def _forget(self, uuid: bytes) -> None:
        for uuids in (self._completed, self._abandoned, self._evicted):
            uuids.pop(uuid, None)

    def _close(self, uuid: bytes, *, incomplete: bool) -> None:
        message = self._open.pop(uuid, None)
        if message is None:
            return
        self._held_bytes -= message.held_bytes
        if incomplete:
            self._tally.metrics.incomplete_messages += 1
            # Only chunk 0 reopens it; the lookback does not.
            _remember(self._abandoned, uuid)
        else:
            _remember(self._completed, uuid)


def _evicted_error() -> CorruptEntryError:
    text = (
        f"this chunked message was dropped: the messages that were open at once exceed"
        f" {MAX_HELD_BYTES} bytes or {MAX_OPEN_MESSAGES} messages"
    )
    return CorruptEntryError(text)


def _remember(uuids: OrderedDict[bytes, None], uuid: bytes) -> None:
    uuids[uuid] = None
    if len(uuids) > MAX_REMEMBERED_UUIDS:
        uuids.popitem(last=False)
