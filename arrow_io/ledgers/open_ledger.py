"""A ledger that is open for reading, whatever holds it: its entries → record batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.columns import Origin, projection
from arrow_io.errors import EntryNotInLedgerError, FormatError, MissingObjectError
from arrow_io.format.index_block import check_format_version
from arrow_io.messages import layout
from arrow_io.messages.chunks import ChunkLookback
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import Tally
from arrow_io.storage.range_prefetch import RangePrefetcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.format.object_names import CopyName
    from arrow_io.ledgers.ledger import DataPart, Ledger
    from arrow_io.messages.encryption import DecryptionKeys
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.storage.location import Location


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as the broker wrote it to BookKeeper."""

    ledger_id: int
    entry_id: int
    data: bytes


class OpenLedger:
    """A ledger that is open for reading, of any kind."""

    if TYPE_CHECKING:
        # Fields of its dataclasses, which would take properties of a base class for their defaults.
        @property
        def location(self) -> Location:
            """Where its objects are."""

        @property
        def name(self) -> CopyName:
            """Names of its objects."""

        @property
        def ledger_metadata(self) -> LedgerMetadata | None:
            """BookKeeper's metadata of it; None if its objects do not have that."""

        @property
        def user_metadata(self) -> Mapping[str, str] | None:
            """That of its index object, names in lower case, if the store gave it."""

        @property
        def warnings(self) -> tuple[str, ...]:
            """What is odd, yet harmless, in words."""

    @property
    def data(self) -> Ledger:
        """The part of it that reads entries."""
        raise NotImplementedError

    @property
    def parts(self) -> Sequence[DataPart]:
        """Its data objects, ascending by entry."""
        return self.data.parts

    @property
    def data_names(self) -> str:
        """Names of the data objects, with commas between."""
        return ", ".join(dict.fromkeys(part.data_name for part in self.parts))

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.data.ledger_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        return self.data.last_entry_id

    @property
    def entry_count(self) -> int:
        """Number of entries, whether they are stored or lost."""
        return self.last_entry_id + 1

    @property
    def length_bytes(self) -> int:
        """Sum of the lengths of its entries; 0 if nothing says it."""
        return self.data.length_bytes

    def user_metadata_problems(self) -> list[str]:
        """Return what a broker would refuse in the user metadata of its data objects.

        A request for each. A kind whose objects have no user metadata of Pulsar's overrides it.
        """
        names = dict.fromkeys(part.data_name for part in self.parts)
        found = (_user_metadata_problem(self.location, name) for name in names)
        return [each for each in found if each is not None]

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
            UnknownFormatError: The block does not begin with its format's magic.
            TruncatedObjectError: The data object ends too early.
            MissingEntriesError: The offloader lost the entries.
            MissingObjectError: There is no data object.
            ObjectChangedError: The data object was replaced.
            StorageError: The store refused, or went on failing.
        """
        data = self.data
        if not 0 <= first_entry_id <= last_entry_id <= data.last_entry_id:
            message = (
                f"entries {first_entry_id} … {last_entry_id} were asked for; the ledger has the"
                f" entries 0 … {data.last_entry_id}"
            )
            key = self.parts[0].data_name
            raise EntryNotInLedgerError(message, object_key=key, ledger_id=data.ledger_id)
        with RangePrefetcher(at_once=True) as prefetcher:
            for run in data.entry_runs(first_entry_id, last_entry_id, Tally(), ahead=prefetcher):
                for index in range(run.count):
                    content = bytes(run.view(index, layout.FRAME))
                    yield Entry(self.ledger_id, run.number(index, layout.ENTRY_ID), content)

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
            tally: Says whether damage is raised, or counted in its metrics.
            verify_checksums: Whether to compare the CRC32C of each entry.
            decryption_keys: Private keys for encrypted payloads.

        Raises:
            OptionError: There is no column of a name.
            PulsarOffloadError: What `entry_runs`, `Delivery`, `MessageReader` or
                `Assembly.record_batches` raises.
        """
        requested_columns = projection(columns)
        assembly = requested_columns.assembly(Origin())
        tally = tally or Tally()
        verify = verify_checksums and requested_columns.needs.metadata
        last = self.last_entry_id

        def read_after(run: EntryRun) -> Iterator[EntryRun]:
            # What is lost there is counted when the reader comes to it.
            first = run.last_entry_id + 1
            return self.data.entry_runs(first, last, tally.uncounted(), verify_checksums=verify)

        entries = self.data.entry_runs(0, last, tally, verify_checksums=verify)
        decryptor = PayloadDecryptor(decryption_keys)
        runs = Delivery(
            TransactionLookahead(entries, read_after),
            tally,
            decryptor,
            join_payloads=requested_columns.needs.payload,
            lookback=ChunkLookback(lambda _: iter(())),
        )
        for rows in MessageReader(runs, requested_columns.needs, tally, decryptor=decryptor):
            tally.metrics.rows += rows.count
            yield from assembly.record_batches(rows, tally)


def _user_metadata_problem(location: Location, data_name: str) -> str | None:
    try:
        metadata = location.user_metadata(data_name)
        return None if metadata is None else check_format_version(metadata, object_key=data_name)
    except FormatError as error:
        return str(error)
    except MissingObjectError:
        # Reading the entries reports it.
        return None
