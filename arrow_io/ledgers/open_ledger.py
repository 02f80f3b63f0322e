"""The base class of open ledgers, independent of their kind: entries → record batches."""

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
    """A ledger of any kind that is open for reading."""

    if TYPE_CHECKING:
        # Dataclasses that inherit this class have fields with these names. They would take
        # properties of a base class for default values.
        @property
        def location(self) -> Location:
            """Location of its objects."""

        @property
        def name(self) -> CopyName:
            """Names of its objects."""

        @property
        def ledger_metadata(self) -> LedgerMetadata | None:
            """BookKeeper's metadata of it; None if its objects do not contain that."""

        @property
        def user_metadata(self) -> Mapping[str, str] | None:
            """User metadata of its index object, names in lower case, if the store returned it."""

        @property
        def warnings(self) -> tuple[str, ...]:
            """Harmless irregularities, in words."""

    @property
    def data(self) -> Ledger:
        """The ledger interface to its entries."""
        raise NotImplementedError

    @property
    def parts(self) -> Sequence[DataPart]:
        """Its data objects, ascending by entry."""
        return self.data.parts

    @property
    def data_names(self) -> str:
        """Names of the data objects, separated by commas."""
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
        """Sum of the lengths of its entries; 0 if it is not recorded."""
        return self.data.length_bytes

    def broker_problems(self) -> list[str]:
        """Return the errors a broker would report in what readers ignore.

        These are errors in the user metadata of its data objects: one request per object. Kinds of
        objects without Pulsar's user metadata override it.
        """
        names = dict.fromkeys(part.data_name for part in self.parts)
        problems = (_user_metadata_problem(self.location, name) for name in names)
        return [each for each in problems if each is not None]

    def read_entries(self, first_entry_id: int, last_entry_id: int) -> Iterator[Entry]:
        """Read a range of entries, from the nearest remembered position before the first one.

        The position of the last entry is estimated from its id, and all bytes up to it are
        requested at once.

        Raises:
            EntryNotInLedgerError: The ledger has no such entries.
            CorruptBlockError: The block's header, lengths or ids contradict the index object.
            CorruptIndexError: The total length of all entries differs from the ledger's length.
            UnknownFormatError: The block does not begin with its format's magic.
            TruncatedObjectError: The data object ends too early.
            MissingEntriesError: The offloader lost the entries.
            MissingObjectError: The data object is missing.
            ObjectChangedError: The data object was replaced.
            StorageError: The store denied access, or requests failed until the deadline.
        """
        data = self.data
        if not 0 <= first_entry_id <= last_entry_id <= data.last_entry_id:
            message = (
                f"entries {first_entry_id} … {last_entry_id} were requested; the ledger has the"
                f" entries 0 … {data.last_entry_id}"
            )
            key = self.parts[0].data_name
            raise EntryNotInLedgerError(message, object_key=key, ledger_id=data.ledger_id)
        with RangePrefetcher(at_once=True) as prefetcher:
            for run in data.entry_runs(
                first_entry_id, last_entry_id, Tally(), prefetcher=prefetcher
            ):
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
        """Read all messages of this ledger, without its neighbours.

        Args:
            columns: Names of columns (`arrow_io.columns`); None for the default ones.
            tally: Decides whether damage is raised, or counted in its metrics.
            verify_checksums: Whether to compare the CRC32C of each entry.
            decryption_keys: Private keys for encrypted payloads.

        Raises:
            OptionError: There is no column of a name.
            PulsarOffloadError: See `entry_runs`, `Delivery`, `MessageReader` and
                `Assembly.record_batches`.
        """
        requested_columns = projection(columns)
        assembly = requested_columns.assembly(Origin())
        tally = tally or Tally()
        verify = verify_checksums and requested_columns.needs.metadata
        last = self.last_entry_id

        def read_after(run: EntryRun) -> Iterator[EntryRun]:
            # Lost entries are counted when the reader reaches them.
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
