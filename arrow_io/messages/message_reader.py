"""The message reader: entries for a Pulsar consumer (`Delivery`) → message columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.core import builds
from arrow_io.core.option_values import BATCH_BYTES, BATCH_ROWS
from arrow_io.errors import CorruptEntryError, PulsarOffloadError
from arrow_io.messages import layout
from arrow_io.messages.bodies import decompress_bodies
from arrow_io.messages.chunks import MAX_HELD_BYTES
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES, decompress
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_columns import MessageColumns
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally

_ROW_BYTES: Final = 8 * (layout.ENTRY_WIDTH + layout.ROW_WIDTH)
"""Table size of a message that is not batched, besides its own bytes."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The parts of an entry that a reader must decode for the requested columns.

    Attributes:
        metadata: Whether more is needed than the positions of messages; only then are checksums
            compared.
        members: Whether anything stored inside a batch is needed, so that batches must be
            decompressed and split. Without it, members of a batch that are `compacted_out` count as
            messages, because only the batch itself identifies them.
        payload: Whether values are needed.
    """

    metadata: bool = True
    members: bool = True
    payload: bool = True

    def __or__(self, other: Needs) -> Needs:
        """Return the union of both needs."""
        return Needs(
            self.metadata or other.metadata,
            self.members or other.members,
            self.payload or other.payload,
        )


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The growth limits of message columns.

    Attributes:
        first_rows: Rows of the first columns; the limit doubles with each following columns.
        max_rows: Maximum number of rows.
        first_bytes: Bytes after which no entry is added to the first columns; the limit doubles
            with each following columns.
        max_bytes: Bytes of entries, and of data made from them, after which no entry is added. For
            compressed or encrypted entries, that data is the decompressed or decrypted payload. For
            other entries it is a copy of the value, so they count twice if values are needed.
    """

    first_rows: int = 2048
    max_rows: int = BATCH_ROWS
    first_bytes: int = 512 << 10
    max_bytes: int = BATCH_BYTES

    def limit_bytes(self, size_bytes: int) -> BatchLimits:
        """Return the same limits, or lower ones that keep columns within a memory budget.

        Args:
            size_bytes: Memory for the entries, their tables, and the columns, while they are built.
        """
        rows = max(1, min(self.max_rows, size_bytes // 2 // _ROW_BYTES))
        return replace(
            self,
            first_rows=min(self.first_rows, rows),
            max_rows=rows,
            max_bytes=min(self.max_bytes, size_bytes // 3),
        )


class MessageReader:
    """Reads the messages of consecutive entries.

    Args:
        runs: The entries.
        needs: The parts to decode.
        tally: Decides whether damage is raised, or counted in its metrics, which receive all
            counts.
        limits: The growth limits of the message columns.
        decryptor: Decrypts payloads; by default it has no key.
        verify: Whether to compare the checksums of runs that are not verified.
        copy_values: Whether the values of all rows are requested as bytes, so that those of batches
            are copied when the batches are split.
    """

    def __init__(
        self,
        runs: Iterable[EntryRun],
        needs: Needs,
        tally: Tally,
        *,
        limits: BatchLimits | None = None,
        decryptor: PayloadDecryptor | None = None,
        verify: bool = False,
        copy_values: bool = False,
    ) -> None:
        self._runs = runs
        self._needs = needs
        # How often the bytes of an entry count that is neither decompressed nor decrypted.
        self._plain_weight = 1 + needs.payload
        self._tally = tally
        self._limits = limits or BatchLimits()
        self._decryptor = decryptor or PayloadDecryptor()
        self._verify = verify
        self._copy_values = copy_values
        self._columns = MessageColumns(self._limits.first_rows)
        self._max_bytes = min(self._limits.first_bytes, self._limits.max_bytes)

    def __iter__(self) -> Iterator[MessageColumns]:
        """Return message columns with at least one row each.

        All rows before an error are returned first.

        Raises:
            CorruptEntryError: An entry cannot be decoded (counted instead when salvaging).
            ChecksumError: The CRC32C of an entry does not match (counted likewise).
            DecryptionError: The key for an entry does not decrypt it (counted likewise).
            EncryptedPayloadError: A requested column is encrypted, and there is no key for it.
            OptionError: A looked-up private key cannot be used.
            PulsarOffloadError: The entries cannot be read.
        """
        try:
            for run in self._runs:
                if run.is_in_range:
                    self._tally.metrics.entries += run.count
                yield from self._read_run(run)
        except PulsarOffloadError:
            if self._columns.count:
                yield self._columns
            raise
        if self._columns.count:
            yield self._columns

    def _read_run(self, run: EntryRun) -> Iterator[MessageColumns]:
        index = 0
        if self._verify and not run.is_verified and not self._verifies_late(run):
            run.verify_checksums()
        while index < run.count:
            special = run.next_flagged(index, layout.SPECIAL)
            if self._needs.members:
                yield from self._read_ordinary(run, index, special)
            else:
                yield from self._read_positions(run, index, special)
            if special < run.count:
                yield from self._read_one(run, special)
            index = special + 1

    def _verifies_late(self, run: EntryRun) -> bool:
        """Return whether the entries of a run are verified when their batches are split.

        Other runs are verified as a whole, before they are read.
        """
        return self._needs.members and run.has_only_plain_batches

    def _read_positions(self, run: EntryRun, index: int, stop: int) -> Iterator[MessageColumns]:
        batch_index = 0
        while index < stop:
            first = index
            fits = run.stop_at_bytes(index, stop, self._room)
            index, batch_index, code = self._columns.add_positions(run, index, batch_index, fits)
            self._count_bytes(run, first, index)
            if code:
                error = CorruptEntryError(layout.REASONS[code])
                run.locate(error, index)
                self._tally.lose(Unit.ENTRY, error)
                index, batch_index = index + 1, 0
            if self._is_full():
                yield self._swap_columns()

    def _read_ordinary(self, run: EntryRun, index: int, stop: int) -> Iterator[MessageColumns]:
        """Read entries that are not special; consecutive entries of one kind together."""
        while index < stop:
            end = run.kind_stop(index, stop)
            flags = run.number(index, layout.FLAGS)
            bodies, is_any_alone = None, False
            add = self._add_batches if flags & layout.BATCHED else self._add_singles
            if flags & layout.COMPRESSED and (flags & layout.BATCHED or self._needs.payload):
                bodies, end, is_any_alone = decompress_bodies(run, index, end, self._room)
            else:
                end = run.stop_at_bytes(index, end, self._room // self._plain_weight)
            while index < end:
                alone = end
                if is_any_alone:
                    entries = builds.in_use.entries
                    alone = entries.next_flagged(run.table, index, end, layout.ALONE)
                yield from add(run, index, alone, bodies)
                if alone < end:
                    yield from self._read_one(run, alone)
                index = min(alone + 1, end)

    def _add_singles(
        self, run: EntryRun, index: int, stop: int, bodies: memoryview | None
    ) -> Iterator[MessageColumns]:
        while index < stop:
            first = index
            index = self._columns.add_singles(run, index, stop, bodies)
            self._count_bytes(run, first, index, self._plain_weight if bodies is None else 1)
            if bodies is not None:
                self._columns.size_bytes += run.body_bytes(first, index)
            if self._is_full():
                yield self._swap_columns()

    def _add_batches(
        self, run: EntryRun, index: int, stop: int, bodies: memoryview | None
    ) -> Iterator[MessageColumns]:
        weight = self._plain_weight if bodies is None else 1
        verify = self._verify and not run.is_verified and bodies is None
        value_bytes = position = batch_index = 0
        if self._copy_values and bodies is None:
            value_bytes = self._expected_value_bytes(run, index, stop)
        while index < stop:
            index, position, batch_index, code = self._columns.split_batches(
                run, index, stop, bodies, position=position, batch_index=batch_index,
                weight=weight, verify=verify, value_bytes=value_bytes,
            )  # fmt: skip
            is_broken = code == layout.BAD_CHECKSUM
            if code and not is_broken:
                self._lose_rest(run, index, batch_index, code)
            if self._is_full():
                yield self._swap_columns()
            if is_broken:
                yield from self._read_one(run, index)
            if code:
                index, position, batch_index = index + 1, 0, 0

    def _expected_value_bytes(self, run: EntryRun, first: int, stop: int) -> int:
        """Return the size of the values of full columns, if all batches resemble `[first, stop)`.

        The last batch may exceed the limit of the columns.
        """
        size_bytes = run.total_bytes(layout.PAYLOAD, first, stop)
        counted = self._plain_weight * run.bytes_between(first, stop)
        return size_bytes * self._max_bytes // counted + size_bytes // (stop - first) + 1

    def _lose_rest(self, run: EntryRun, index: int, batch_index: int, code: int) -> None:
        """Count a bad message of a batch, and those after it, which cannot be located."""
        error = CorruptEntryError(layout.REASONS[code])
        if code == layout.BAD_BATCH_SIZE:
            run.locate(error, index)
            self._tally.lose(Unit.ENTRY, error)
            return
        error.located(batch_index=batch_index)
        run.locate(error, index)
        members = run.number(index, layout.BATCH_SIZE)
        self._tally.lose(Unit.MESSAGE, error, count=max(1, members - batch_index))

    def _read_one(self, run: EntryRun, index: int) -> Iterator[MessageColumns]:
        rows = self._read_special(run, index)
        if rows is not None:
            yield from rows
            return
        if self._columns.count:
            self._columns.size_bytes += run.entry_bytes(index)
        if self._is_full():
            yield self._swap_columns()

    def _count_bytes(self, run: EntryRun, first: int, stop: int, weight: int = 1) -> None:
        """Count bytes of entries `weight` times, if rows keep the entries in memory."""
        if stop > first and self._columns.count:
            self._columns.size_bytes += weight * run.bytes_between(first, stop)

    @property
    def _room(self) -> int:
        """Bytes of entries and bodies that the columns can still take."""
        return self._max_bytes - self._columns.size_bytes

    def _is_full(self) -> bool:
        columns = self._columns
        return columns.count == columns.capacity or (
            columns.count > 0 and columns.size_bytes >= self._max_bytes
        )

    def _swap_columns(self) -> MessageColumns:
        """Replace the columns by empty ones with higher limits; return the full ones."""
        full = self._columns
        self._max_bytes = min(2 * self._max_bytes, self._limits.max_bytes)
        self._columns = MessageColumns(min(2 * full.count, self._limits.max_rows))
        return full

    def _read_special(self, run: EntryRun, index: int) -> Iterator[MessageColumns] | None:
        """Read one entry on its own. Return the rows of a batch; add any other message."""
        entry = run.fields(index)
        flags = entry[layout.FLAGS]
        try:
            if flags & layout.BROKEN:
                raise run.error(index)
            if flags & layout.BATCHED:
                return self._read_batch(run, index, entry)
            self._read_single(run, index, entry)
        except CorruptEntryError as error:
            run.locate(error, index)
            self._tally.lose(Unit.ENTRY, error)
        return None

    def _read_single(self, run: EntryRun, index: int, entry: list[int]) -> None:
        value = self._value(run, index, entry)
        run.set_body(index, value)
        self._columns.add_singles(run, index, index + 1, run.data if value is None else value)
        self._columns.size_bytes += 0 if value is None else len(value)

    def _value(self, run: EntryRun, index: int, entry: list[int]) -> memoryview | None:
        """Return the value of a single message; None if it is null or not needed."""
        flags = entry[layout.FLAGS]
        if not self._needs.payload or flags & layout.NULL_VALUE:
            return None
        if flags & layout.CHUNKED:
            stored = memoryview(run.joined_payloads[entry[layout.ENTRY_ID]])
        else:
            stored = self._decryptor.payload(run, index)
        return _decompress(entry, stored) if flags & layout.COMPRESSED else stored

    def _read_batch(self, run: EntryRun, index: int, entry: list[int]) -> Iterator[MessageColumns]:
        if not self._needs.members:
            # The number of messages is not encrypted; a batch that cannot be decrypted has no rows.
            self._decryptor.check(run, index)
            return self._read_positions(run, index, index + 1)
        body = self._decryptor.payload(run, index)
        if entry[layout.FLAGS] & layout.COMPRESSED:
            body = _decompress(entry, body)
        run.set_body(index, body)
        return self._add_batches(run, index, index + 1, body)


def _decompress(entry: list[int], payload: memoryview) -> memoryview:
    return decompress(
        entry[layout.COMPRESSION],
        payload,
        entry[layout.UNCOMPRESSED_SIZE],
        # Chunked messages have the same limit as the chunks that are held for them.
        max_bytes=MAX_HELD_BYTES if entry[layout.FLAGS] & layout.CHUNKED else MAX_MESSAGE_BYTES,
    )
