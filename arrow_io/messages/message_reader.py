"""Entries whose messages a client of Pulsar is given (`Delivery`), in order → message columns."""

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
from arrow_io.messages.message_columns import MessageColumns, Place
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally

_ROW_BYTES: Final = 8 * (layout.ENTRY_WIDTH + layout.ROW_WIDTH)
"""What is noted of a message that is not batched, besides its bytes."""


@dataclass(frozen=True, slots=True)
class Needs:
    """How deep a reader has to look to give the columns asked for.

    Attributes:
        metadata: Whether more is needed than where messages stand; only then checksums are
            compared.
        members: Whether anything is needed that stands inside a batch, which must then be
            decompressed and split. Without it, members of a batch that are `compacted_out` count as
            messages: only the batch itself tells of them.
        payload: Whether the value itself is needed.
    """

    metadata: bool = True
    members: bool = True
    payload: bool = True

    def __or__(self, other: Needs) -> Needs:
        """What is needed by one or the other."""
        return Needs(
            self.metadata or other.metadata,
            self.members or other.members,
            self.payload or other.payload,
        )


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large message columns grow before they are given.

    Attributes:
        first_rows: Rows of the first; each further one may have twice as many as the one before.
        max_rows: Rows at the most.
        first_bytes: Bytes after which the first takes no further entry; each further one may have
            twice as many as the one before.
        max_bytes: Bytes of entries, and of what is made of them, after which no further entry is
            added. That is what is decompressed or decrypted of an entry. Of any other it is a copy
            of the value, if that is wanted: the entry counts twice then.
    """

    first_rows: int = 2048
    max_rows: int = BATCH_ROWS
    first_bytes: int = 512 << 10
    max_bytes: int = BATCH_BYTES

    def limit_bytes(self, size_bytes: int) -> BatchLimits:
        """The same, or less: for columns that take about so many bytes while they are made.

        Args:
            size_bytes: Bytes of entries, of what is known of each, and of the columns.
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
        needs: How deep to look.
        tally: Says whether damage is raised, or counted in its metrics, which receive all counts.
        limits: How large the message columns grow.
        decryptor: Decrypts payloads; by default it has no key.
    """

    def __init__(
        self,
        runs: Iterable[EntryRun],
        needs: Needs,
        tally: Tally,
        *,
        limits: BatchLimits | None = None,
        decryptor: PayloadDecryptor | None = None,
    ) -> None:
        self._runs = runs
        self._needs = needs
        # How often an entry counts of which nothing is decompressed or decrypted.
        self._times_plain = 1 + needs.payload
        self._tally = tally
        self._limits = limits or BatchLimits()
        self._decryptor = decryptor or PayloadDecryptor()
        self._columns = MessageColumns(self._limits.first_rows)
        self._max_bytes = min(self._limits.first_bytes, self._limits.max_bytes)

    def __iter__(self) -> Iterator[MessageColumns]:
        """Message columns with at least one row each.

        All rows that stand before an error are given before it.

        Raises:
            CorruptEntryError: An entry cannot be decoded (counted instead when salvaging).
            ChecksumError: Its CRC32C does not match (likewise).
            DecryptionError: The key that is given for it does not open it (likewise).
            EncryptedPayloadError: What is asked for is encrypted, and no key is given for it.
            OptionError: A private key that was looked up cannot be used.
            PulsarOffloadError: The entries cannot be read.
        """
        try:
            yield from self._read()
        except PulsarOffloadError:
            if self._columns.count:
                yield self._columns
            raise

    def _read(self) -> Iterator[MessageColumns]:
        for run in self._runs:
            if run.is_in_range:
                self._tally.metrics.entries += run.count
            yield from self._read_run(run)
        if self._columns.count:
            yield self._columns

    def _read_run(self, run: EntryRun) -> Iterator[MessageColumns]:
        index = 0
        while index < run.count:
            special = run.next_flagged(index, layout.SPECIAL)
            if self._needs.members:
                yield from self._read_stretches(run, index, special)
            else:
                yield from self._read_positions(run, index, special)
            if special < run.count:
                yield from self._read_one(run, special)
            index = special + 1

    def _read_positions(self, run: EntryRun, index: int, stop: int) -> Iterator[MessageColumns]:
        batch_index = 0
        while index < stop:
            first = index
            fits = run.stop_with(index, stop, self._room)
            index, batch_index, code = self._columns.add_positions(run, index, batch_index, fits)
            self._hold(run, first, index)
            if code:
                error = CorruptEntryError(layout.REASONS[code])
                run.locate(error, index)
                self._tally.lose(Unit.ENTRY, error)
                index, batch_index = index + 1, 0
            if self._is_full():
                yield self._give()

    def _read_stretches(self, run: EntryRun, index: int, stop: int) -> Iterator[MessageColumns]:
        """Read entries that are not special, those of one kind together."""
        while index < stop:
            end = run.kind_stop(index, stop)
            flags = run.number(index, layout.FLAGS)
            bodies, is_any_alone = None, False
            add = self._add_batches if flags & layout.BATCHED else self._add_singles
            if flags & layout.COMPRESSED and (flags & layout.BATCHED or self._needs.payload):
                bodies, end, is_any_alone = decompress_bodies(run, index, end, self._room)
            else:
                end = run.stop_with(index, end, self._room // self._times_plain)
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
            self._hold(run, first, index, self._times_plain if bodies is None else 1)
            if bodies is not None:
                self._columns.size_bytes += run.body_bytes(first, index)
            if self._is_full():
                yield self._give()

    def _add_batches(
        self, run: EntryRun, index: int, stop: int, bodies: memoryview | None
    ) -> Iterator[MessageColumns]:
        place = Place(index)
        while place.entry < stop:
            start = place
            place, code = self._columns.split_batches(run, start, stop, bodies)
            if bodies is not None:
                self._columns.size_bytes += (
                    run.body_bytes(start.entry, place.entry) - start.position + place.position
                )
            if code:
                self._lose_rest(run, place, code)
                place = Place(place.entry + 1)
            times = self._times_plain if bodies is None else 1
            self._hold(run, start.entry, place.entry, times)
            if self._is_full():
                yield self._give()

    def _lose_rest(self, run: EntryRun, place: Place, code: int) -> None:
        """Count a message of a batch that is bad, and those behind it, which cannot be found."""
        error = CorruptEntryError(layout.REASONS[code])
        if code == layout.BAD_BATCH_SIZE:
            run.locate(error, place.entry)
            self._tally.lose(Unit.ENTRY, error)
            return
        error.located(batch_index=place.batch_index)
        run.locate(error, place.entry)
        members = run.number(place.entry, layout.BATCH_SIZE)
        self._tally.lose(Unit.MESSAGE, error, count=max(1, members - place.batch_index))

    def _read_one(self, run: EntryRun, index: int) -> Iterator[MessageColumns]:
        rows = self._read_special(run, index)
        if rows is not None:
            yield from rows
            return
        if self._columns.count:
            self._columns.size_bytes += run.entry_bytes(index)
        if self._is_full():
            yield self._give()

    def _hold(self, run: EntryRun, first: int, stop: int, times: int = 1) -> None:
        """Count the bytes of entries that rows come from, or that earlier rows keep in memory.

        Args:
            run: The entries' run.
            first: The first of them.
            stop: The one behind the last.
            times: How often each of their bytes counts.
        """
        if stop > first and self._columns.count:
            self._columns.size_bytes += times * run.bytes_between(first, stop)

    @property
    def _room(self) -> int:
        """Bytes of entries and bodies after which the columns take no further entry."""
        return self._max_bytes - self._columns.size_bytes

    def _is_full(self) -> bool:
        columns = self._columns
        return columns.count == columns.capacity or (
            columns.count > 0 and columns.size_bytes >= self._max_bytes
        )

    def _give(self) -> MessageColumns:
        full = self._columns
        self._max_bytes = min(2 * self._max_bytes, self._limits.max_bytes)
        self._columns = MessageColumns(min(2 * full.count, self._limits.max_rows))
        return full

    def _read_special(self, run: EntryRun, index: int) -> Iterator[MessageColumns] | None:
        """Read an entry by itself; gives the rows of a batch, or adds those of anything else."""
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
        """The value of a single message, made of its payload; None if it is null or not wanted."""
        flags = entry[layout.FLAGS]
        if not self._needs.payload or flags & layout.NULL_VALUE:
            return None
        if flags & layout.CHUNKED:
            stored = memoryview(run.joined[entry[layout.ENTRY_ID]])
        else:
            stored = self._decryptor.payload(run, index)
        return _decompress(entry, stored) if flags & layout.COMPRESSED else stored

    def _read_batch(self, run: EntryRun, index: int, entry: list[int]) -> Iterator[MessageColumns]:
        if not self._needs.members:
            # How many messages it has stands in the clear; what cannot be opened gives none.
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
        # As many bytes as are held of chunks that are not compressed.
        most_bytes=MAX_HELD_BYTES if entry[layout.FLAGS] & layout.CHUNKED else MAX_MESSAGE_BYTES,
    )
