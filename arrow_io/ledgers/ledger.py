"""The interface of a ledger for readers, independent of how its entries are stored."""

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
    """Entries of one ledger that are stored contiguously."""

    first_entry_id: int
    last_entry_id: int
    """Inclusive."""
    start: int
    """First byte in the data object."""
    stop: int
    """End in the data object (exclusive)."""


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
        """Version that the data object must have; None if unknown."""

    @property
    def first_entry_id(self) -> int:
        """Id of the first entry that is read from it."""

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive), whether it is stored or lost."""

    @property
    def block_count(self) -> int:
        """Number of blocks that hold entries."""

    @property
    def missing_from_entry_id(self) -> int | None:
        """First entry that the offloader lost, with all later ones; None if it lost none."""

    @property
    def may_lack_entries(self) -> bool:
        """Whether the offloader lost entries, or may have lost some."""

    def blocks(self, first_entry_id: int, last_entry_id: int) -> Sequence[Block]:
        """Return blocks; see `Ledger.blocks`."""


class Ledger(Protocol):
    """A readable ledger, whose entries are numbered from 0. Can be pickled; holds no connection."""

    @property
    def location(self) -> Location:
        """Location of its objects."""

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive), whether it is stored or lost."""

    @property
    def parts(self) -> Sequence[DataPart]:
        """Its data objects, ascending by entry; empty if it is not stored in objects."""

    def blocks(self, first_entry_id: int, last_entry_id: int) -> Sequence[Block]:
        """Return the blocks with any entry of a range, ascending; lost entries have none."""

    @property
    def length_bytes(self) -> int:
        """Sum of the lengths of its entries' data; 0 if it is not recorded."""

    @property
    def stored_bytes(self) -> int:
        """Size of its blocks in the data objects, in bytes."""

    def with_range_bytes(self, range_bytes: int) -> Ledger:
        """Return the same ledger with another maximum size of a range request."""

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """Return the byte ranges `[start, stop)` of each object that surely contain some entries.

        The list is empty if all of the entries are lost.
        """

    def position_of(self, entry_id: int) -> int | None:
        """Return the start of an entry's header in its object, if this process remembers it.

        The first entries of blocks may be missing from that memory.
        """

    def remember(self, entry_id: int, position: int) -> None:
        """Remember, for later reads, that an entry's header starts at a position.

        Without effect if no entry of its block has that id.
        """

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """Return the bytes that `entry_runs` reads from each object, in this order; may be none."""

    def entry_runs(
        self,
        first_entry_id: int,
        last_entry_id: int,
        tally: Tally,
        *,
        verify_checksums: bool = False,
        is_in_range: bool = True,
        prefetcher: RangePrefetcher | None = None,
    ) -> Iterator[EntryRun]:
        """Read a range of entries, in order, as runs of consecutive entries.

        Args:
            first_entry_id: First entry; nothing is read if it is greater than the last.
            last_entry_id: Last entry (inclusive).
            tally: Decides whether damage is raised, or counted in its metrics.
            verify_checksums: Whether to compare the CRC32C of each entry.
            is_in_range: See `EntryRun.is_in_range`.
            prefetcher: Sends the requests, and those for later reads; None to request only the
                bytes of these entries.

        Raises:
            PulsarOffloadError: Entries are lost or damaged (counted instead when salvaging), or
                cannot be read.
        """
