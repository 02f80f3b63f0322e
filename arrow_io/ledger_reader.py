"""One offloaded ledger, open for reading: its objects → entries → record batches.

What comes in are the index object, read whole, and ranges of the data object, planned by the index
(`BlobStoreBackedReadHandleImpl` is Pulsar's own reader). Unlike Pulsar, block headers are checked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from arrow_io.columns import Origin, projection
from arrow_io.errors import (
    CorruptIndexError,
    EntryNotInLedgerError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.index_block import (
    MANAGED_LEDGER_NAME_KEY,
    MAX_INDEX_OBJECT_BYTES,
    IndexBlock,
    check_format_version,
    read_index_block,
)
from arrow_io.lazy import cached_property
from arrow_io.ledger_data import LedgerData
from arrow_io.messages import layout
from arrow_io.messages.chunks import ChunkLookback
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.storage.object_version import agree
from arrow_io.storage.ranges_ahead import RangesAhead
from arrow_io.tally import Tally
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from arrow_io.format.object_names import LedgerObjectName
    from arrow_io.messages.encryption import DecryptionKeys
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_version import ObjectVersion


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as the broker wrote it to BookKeeper."""

    ledger_id: int
    entry_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ObjectVersions:
    """Versions of the two objects of a ledger (`ObjectInfo.version`); None if not known."""

    index: ObjectVersion | None = None
    data: ObjectVersion | None = None

    def agrees_with(self, other: ObjectVersions) -> bool:
        """Whether these may be the same versions as others: none that both know differs."""
        return agree(self.index, other.index) and agree(self.data, other.data)


UNKNOWN_VERSIONS = ObjectVersions()


@dataclass(frozen=True)
class OffloadedLedger:
    """One offloaded ledger. Can be pickled; holds no connection.

    Attributes:
        location: Where its objects are.
        name: Names of its objects.
        index: Its index block.
        warnings: What is odd, yet harmless, in words.
        cut_bytes: Length of the data object if it is known to be cut; None if it is whole.
        user_metadata: That of its index object, names in lower case, if the store gave it.
        versions: The only versions of its objects that are read.
    """

    location: Location
    name: LedgerObjectName
    index: IndexBlock
    warnings: tuple[str, ...] = field(default=(), compare=False)
    cut_bytes: int | None = None
    user_metadata: Mapping[str, str] | None = field(default=None, compare=False)
    versions: ObjectVersions = field(default=UNKNOWN_VERSIONS, compare=False)

    @classmethod
    def open(
        cls,
        location: Location,
        name: LedgerObjectName,
        *,
        data_size_bytes: int | None = None,
        versions: ObjectVersions = UNKNOWN_VERSIONS,
    ) -> Self:
        """Read the index object: one request.

        Args:
            location: Where the objects are.
            name: Names of the objects.
            data_size_bytes: Real length of the data object if it is known, as from a listing.
            versions: Versions of the objects as far as they are known, likewise.

        Raises:
            MissingObjectError: There is no index object.
            UnknownFormatError: It is not an index object of PIP-17, or of another format version.
            CorruptIndexError: Its fields contradict each other or its user metadata.
            FormatError: It is longer than any index object that is read.
            TruncatedObjectError: It, or the data object, is shorter than it says.
            ObjectChangedError: It is of another version.
            StorageError: The store refused, or went on failing.
        """
        key = name.index_name
        warnings = []
        try:
            content = location.read_object(
                key, max_bytes=MAX_INDEX_OBJECT_BYTES, version=versions.index
            )
            if content.user_metadata is not None:
                unversioned = check_format_version(content.user_metadata, object_key=key)
                warnings.extend([unversioned] if unversioned else [])
            index = read_index_block(content.data, object_key=key)
            _check_owner(index, content.user_metadata or {}, object_key=key)
        except PulsarOffloadError as error:
            error.located(ledger_id=name.ledger_id)
            raise
        ledger = cls(
            location,
            name,
            index,
            (*warnings, *index.warnings),
            user_metadata=content.user_metadata,
            versions=replace(versions, index=versions.index or content.version),
        )
        return ledger if data_size_bytes is None else ledger.with_data_size(data_size_bytes)

    def with_data_size(self, data_size_bytes: int) -> Self:
        """The same ledger, after a comparison of its data object's length with the index object's.

        Args:
            data_size_bytes: Real length of the data object.

        Raises:
            TruncatedObjectError: It is shorter than the index object says.
        """
        if data_size_bytes == self.index.data_object_length_bytes:
            return self
        message = (
            f"the data object has {counted(data_size_bytes, 'byte')}, its index object says"
            f" {self.index.data_object_length_bytes}"
        )
        if data_size_bytes < self.index.data_object_length_bytes:
            raise TruncatedObjectError(
                message,
                object_key=self.name.data_name,
                ledger_id=self.ledger_id,
                offset=data_size_bytes,
            )
        return replace(self, warnings=(f"{self.name.data_name}: {message}", *self.warnings))

    def cut_at(self, data_size_bytes: int) -> Self:
        """The same ledger, to be read as far as its data object goes."""
        return replace(self, cut_bytes=data_size_bytes)

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.name.ledger_id

    @cached_property
    def data(self) -> LedgerData:
        """The part of it that reads entries."""
        metadata = self.index.ledger_metadata
        owner = metadata.managed_ledger_name
        if owner is None:
            owner = (self.user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        return LedgerData(
            self.location,
            self.name,
            self.index.block_table,
            metadata.length_bytes,
            None if owner is None else sys.intern(owner),
            self.versions.data,
            self.cut_bytes,
        )

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        return self.index.last_entry_id

    def read_entries(self, first_entry_id: int, last_entry_id: int) -> Iterator[Entry]:
        """Read some entries, from the nearest place known before the first.

        The last one's place is estimated from its id, and all up to there is requested at once.

        Args:
            first_entry_id: First entry.
            last_entry_id: Last entry (inclusive).

        Raises:
            EntryNotInLedgerError: The ledger has no such entries.
            CorruptBlockError: The block's header, lengths or ids contradict the index object.
            CorruptIndexError: All entries together are not as long as the ledger was.
            UnknownFormatError: The block does not begin with the magic of PIP-17.
            TruncatedObjectError: The data object ends too early.
            MissingEntriesError: The offloader lost the entries.
            MissingObjectError: There is no data object.
            ObjectChangedError: The data object was replaced.
            StorageError: The store refused, or went on failing.
        """
        if not 0 <= first_entry_id <= last_entry_id <= self.last_entry_id:
            message = (
                f"entries {first_entry_id} … {last_entry_id} were asked for; the ledger has the"
                f" entries 0 … {self.last_entry_id}"
            )
            raise EntryNotInLedgerError(
                message, object_key=self.name.data_name, ledger_id=self.ledger_id
            )
        with RangesAhead(at_once=True) as ahead:
            for run in self.data.entry_runs(first_entry_id, last_entry_id, Tally(), ahead=ahead):
                for index in range(run.count):
                    data = bytes(run.view(index, layout.FRAME))
                    yield Entry(self.ledger_id, run.number(index, layout.ENTRY_ID), data)

    def record_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        tally: Tally | None = None,
        verify_checksums: bool = True,
        decryption_keys: DecryptionKeys | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read all messages of this ledger alone.

        Args:
            columns: Names of columns (`arrow_io.columns`); None for the default ones.
            tally: Says whether damage is raised, or counted in its report.
            verify_checksums: Whether to compare the CRC32C of each entry.
            decryption_keys: Private keys for encrypted payloads.

        Raises:
            OptionError: There is no column of a name.
            PulsarOffloadError: What `entry_runs`, `MessageReader` or `Projection.record_batch`
                raises.
        """
        wanted = projection(columns)
        tally = tally or Tally()
        verify = verify_checksums and wanted.needs.metadata
        last = self.last_entry_id

        def behind(run: EntryRun) -> Iterator[EntryRun]:
            # What is lost there is counted when the reader comes to it.
            first = run.last_entry_id + 1
            return self.data.entry_runs(first, last, tally.uncounted(), verify_checksums=verify)

        entries = self.data.entry_runs(0, last, tally, verify_checksums=verify)
        runs = TransactionLookahead(entries, behind)
        lookback = ChunkLookback(lambda _: iter(()))
        decryptor = PayloadDecryptor(decryption_keys)
        reader = MessageReader(runs, wanted.needs, tally, lookback=lookback, decryptor=decryptor)
        for rows in reader:
            tally.report.rows += rows.count
            yield wanted.record_batch(rows, Origin(), tally)


def _check_owner(index: IndexBlock, user_metadata: Mapping[str, str], *, object_key: str) -> None:
    """Compare the two places that name the managed ledger: no checksum covers either of them."""
    inside = index.ledger_metadata.managed_ledger_name
    outside = user_metadata.get(MANAGED_LEDGER_NAME_KEY)
    if inside is not None and outside is not None and inside != outside:
        message = (
            f"the index object is of managed ledger {inside!r}, its user metadata says {outside!r}"
        )
        raise CorruptIndexError(message, object_key=object_key)
