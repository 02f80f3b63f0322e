"""A ledger as readers see it, whatever holds its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import Tally
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.ranges import ByteSpan


class Block(NamedTuple):
    """Entries of one ledger that are stored together."""

    first_entry_id: int
    last_entry_id: int
    """Inclusive."""
    start: int
    """First byte in the object that holds them."""
    stop: int
    """Byte behind the last one (half-open)."""


class DataPart(Protocol):
    """The entries of one ledger in one data object."""

    @property
    def data_name(self) -> str:
        """Name of the data object."""

    @property
    def data_stop(self) -> int:
        """End of the ledger in the data object, in bytes (exclusive)."""

    @property
    def version(self) -> ObjectVersion | None:
        """The only version of the data object that is read; None if none is known."""

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry that is read of it."""

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive), whether it is stored or lost."""

    @property
    def block_count(self) -> int:
        """Number of blocks that hold entries."""

    @property
    def missing_from_entry_id(self) -> int | None:
        """First entry that the offloader lost, with all after it; None if it lost none."""

    @property
    def may_lack_entries(self) -> bool:
        """Whether the offloader lost entries, or may have."""

    def blocks(self, first_entry_id: int, last_entry_id: int) -> Sequence[Block]:
        """See `Ledger.blocks`."""


class Ledger(Protocol):
    """One ledger that can be read: its ids, its blocks, its entries.

    A value that can be pickled, and holds no connection. Its entries are numbered from 0.
    """

    @property
    def location(self) -> Location:
        """Where it lies."""

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive), whether it is stored or lost."""

    @property
    def parts(self) -> Sequence[DataPart]:
        """Its data objects, ascending by entry; none if no object holds it."""

    def blocks(self, first_entry_id: int, last_entry_id: int) -> Sequence[Block]:
        """The blocks that hold at least one of some entries, ascending; lost entries have none.

        Args:
            first_entry_id: First entry.
            last_entry_id: Last entry (inclusive).
        """

    @property
    def length_bytes(self) -> int:
        """Sum of the lengths of its entries' data; 0 if nothing says it."""

    @property
    def stored_bytes(self) -> int:
        """How many bytes its blocks take of the objects that hold them."""

    def with_range_bytes(self, range_bytes: int) -> Ledger:
        """The same ledger, of which one request asks for so many bytes at most."""

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """The bytes `[start, stop)` of each object in which some entries surely stand.

        There are none if all of the entries are lost.

        Args:
            first_entry_id: First entry.
            last_entry_id: Last entry (inclusive).
        """

    def position_of(self, entry_id: int) -> int | None:
        """Where the header of an entry begins in the object that holds it, if this process knows.

        Entries with which a block begins need not be known.
        """

    def remember(self, entry_id: int, position: int) -> None:
        """Have readers know that the header of an entry begins at a position.

        If no entry of its block has that id, nothing comes of it.
        """

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """The bytes that `entry_runs` reads of each object, in this order; perhaps none.

        Args:
            first_entry_id: First entry.
            last_entry_id: Last entry (inclusive).
        """

    def entry_runs(
        self,
        first_entry_id: int,
        last_entry_id: int,
        tally: Tally,
        *,
        verify_checksums: bool = False,
        is_in_range: bool = True,
        ahead: RangePrefetcher | None = None,
    ) -> Iterator[EntryRun]:
        """Read some entries, in order, as the hot loop wants them.

        Args:
            first_entry_id: First entry; none is read if it is greater than the last.
            last_entry_id: Last entry (inclusive).
            tally: Says whether damage is raised, or counted in its metrics.
            verify_checksums: Whether to compare the CRC32C of each entry.
            is_in_range: See `EntryRun.is_in_range`.
            ahead: Sends the requests; None: nothing is requested beyond these entries.

        Raises:
            PulsarOffloadError: Entries are lost or damaged (counted instead when salvaging), or
                cannot be read.
        """
