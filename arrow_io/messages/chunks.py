"""Chunked messages (PIP-37): chunks → the whole payload, by the rules of Pulsar's `ConsumerImpl`.

Chunk 0 opens a message, and replaces an unfinished one of the same uuid; each further chunk must be
the next; one that was already seen is ignored; a gap loses the message.
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
    """Finds the chunks that stand before the entries which a reader was given.

    Args:
        before: Gives the entries before the range that a run stands in, afresh at each call, from
            the nearest to the farthest run; each run in order. None if what began there belongs to
            another reader.
        is_read: Whether this reader or another one gives the rows of an entry, by ledger and entry
            id. A message that has a chunk in such an entry is theirs. None: nobody gives rows of
            the entries before.
    """

    def __init__(
        self,
        before: Callable[[EntryRun], Iterator[EntryRun] | None],
        is_read: Callable[[int, int], bool] | None = None,
    ) -> None:
        self._before = before
        self._is_read = is_read

    def find(
        self, uuid: bytes, run: EntryRun, read_payload: Callable[[EntryRun, int], bytes]
    ) -> FoundChunks:
        """The chunks of a message back to the nearest chunk 0, by the rules of joining them.

        Args:
            uuid: Uuid of the message.
            run: Where a later chunk of it stands.
            read_payload: Gives the payload of an entry, in the clear.

        Raises:
            EncryptedPayloadError: There is no key for a chunk.
            PulsarOffloadError: The entries before cannot be read.
        """
        runs = self._before(run)
        if runs is None:
            return FoundChunks([], is_foreign=True)
        later: list[tuple[int, bytes]] = []
        damage: CorruptEntryError | None = None
        for before in runs:
            for index in reversed(list(before.flagged(layout.CHUNKED | layout.BROKEN))):
                if before.number(index, layout.FLAGS) & layout.BROKEN:
                    damage = damage or before.error(index)
                    continue
                if before.view(index, layout.UUID) != uuid:
                    continue
                position = before.ledger_id, before.number(index, layout.ENTRY_ID)
                if self._is_read is not None and self._is_read(*position):
                    return FoundChunks([], is_foreign=True)
                chunk_id = before.number(index, layout.CHUNK_ID)
                try:
                    later.append((chunk_id, read_payload(before, index)))
                except CorruptEntryError as error:
                    damage = damage or error
                if chunk_id == 0:
                    first = FirstChunk.from_entry(before, index)
                    return replace(_order_chunks(reversed(later), damage), first=first)
        return FoundChunks([], damage=damage)


class FirstChunk(NamedTuple):
    """Where the first chunk of a message stands, and what it says that no client tells."""

    ledger_id: int
    entry_id: int
    sequence_id: int
    flags: int
    """Those of the message's key."""

    @classmethod
    def from_entry(cls, run: EntryRun, index: int) -> Self:
        """The chunk in an entry of a run."""
        return cls(
            run.ledger_id,
            run.number(index, layout.ENTRY_ID),
            run.number(index, layout.SEQUENCE_ID),
            run.number(index, layout.FLAGS) & (layout.KEY_IS_BASE64 | layout.NULL_KEY),
        )


@dataclass(frozen=True, slots=True)
class FoundChunks:
    """The chunks of a message that stand before the entries which a reader was given.

    Attributes:
        parts: Payloads of its first chunks; none if a chunk between them, or the first, is missing.
        first: The first of them.
        is_foreign: Whether another reader gives the message.
        damage: The error of an entry on the way back that cannot be decoded, and may have been the
            missing chunk.
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
    """Joins the chunks of one topic partition, which may interleave and lie in several ledgers.

    Args:
        tally: Counts duplicates and messages that stay incomplete.
        join_payloads: Whether the payload is wanted; if not, only the order of the chunks is
            followed.
        decryptor: Decrypts the chunks, each by itself.
        lookback: Finds the first chunks of a message that began before the entries given; None
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
        """Whether a message has begun that may still be completed."""
        return any(not each.is_lost for each in self._open.values())

    def add(self, run: EntryRun, index: int) -> bytes | None:
        """Take one chunk.

        Returns:
            The whole payload, decrypted and still compressed, if this was the last chunk (empty
            if payloads are not wanted); None if the message is not whole yet, or is lost, or
            this chunk is a duplicate.

        Raises:
            EncryptedPayloadError: There is no key for the chunk.
            CorruptEntryError: It cannot be decrypted, the chunks together do not have the size that
                they announce, or the message was given up because more was open at once than is
                held; or, unless salvaging, an entry that may have been an earlier chunk cannot be
                decoded.
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
        """Forget what became of messages: any may begin anew in the entries that are passed over.

        To be called only unless it `has_unfinished` messages.
        """
        self.finish()
        for uuids in (self._completed, self._abandoned, self._evicted):
            uuids.clear()

    def first_chunks(self) -> list[FirstChunk]:
        """The first chunks of messages that may still be completed."""
        return [each.first for each in self._open.values() if not each.is_lost and each.first]

    def complete(self, first: FirstChunk) -> None:
        """Forget a message whose other chunks were found elsewhere."""
        uuid = next(name for name, each in self._open.items() if each.first == first)
        self._close(uuid, incomplete=False)

    def finish(self) -> None:
        """Count what is still open: called when there are no more entries."""
        metrics = self._tally.metrics
        for uuid, message in list(self._open.items()):
            if not message.is_lost and message.first is not None:
                metrics.awaited_messages += 1
                metrics.awaited_chunks += message.chunk_count - message.next_chunk
            self._close(uuid, incomplete=True)

    def _find_message(
        self, run: EntryRun, index: int, uuid: bytes, chunk_id: int
    ) -> _OpenMessage | None:
        """The message of a chunk; None if it is somebody else's, or was completed."""
        if chunk_id == 0:
            self._close(uuid, incomplete=True)
            if run.is_in_range:
                chunk_count = run.number(index, layout.CHUNK_COUNT)
                self._open[uuid] = _OpenMessage(FirstChunk.from_entry(run, index), chunk_count)
            else:
                # Whoever meets a later chunk of it in its own entries has to look back.
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
        """Begin a message with the chunks that stand before the entries which are read."""
        is_gap = chunk_id > len(chunks.parts)
        if is_gap and chunks.damage is not None and not self._tally.salvage:
            raise chunks.damage
        if chunks.is_foreign:
            # From now on only a chunk 0 begins a message of this uuid that is this reader's.
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
        # What is never completed must not stand in the way of what is: Pulsar's client, too, drops
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
            # Only chunk 0 brings it back, not the chunks before the entries that were given.
            _remember(self._abandoned, uuid)
        else:
            _remember(self._completed, uuid)


def _evicted_error() -> CorruptEntryError:
    text = (
        f"this chunked message, and others that were open at once, have more than {MAX_HELD_BYTES}"
        f" bytes, or are more than {MAX_OPEN_MESSAGES}"
    )
    return CorruptEntryError(text)


def _remember(uuids: OrderedDict[bytes, None], uuid: bytes) -> None:
    uuids[uuid] = None
    if len(uuids) > MAX_REMEMBERED_UUIDS:
        uuids.popitem(last=False)
