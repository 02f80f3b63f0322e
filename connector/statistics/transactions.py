"""What statistics record of a topic's transactions: first entries and outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.statistics.data_objects import DataObjects
from connector.statistics.lookup import Answer, answers, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.statistics.store import Statistics
    from connector.statistics.zone_files import ZoneFile

_COLUMNS: Final = ("first_entry_id", "last_entry_id", "transactions", "outcomes")
_LOADED_LEDGERS: Final = 64
_LOADED_BYTES: Final = 4 << 30
"""Maximum number and bytes of ledgers that are looked up together: their zones are adjacent in a
file. The bytes bound memory: a zone's transactions may take as much memory as the zone."""


@dataclass(frozen=True, slots=True)
class ZoneTransactions:
    """The transactions of a zone, by `__txn_id__`.

    Attributes:
        first_entry_id: First entry of the zone.
        last_entry_id: Last entry (inclusive).
        first_entry_ids: For each transaction with messages in the zone, the first entry with one;
            in order.
        outcomes: For each transaction whose marker is in the zone, whether it was committed. The
            marker follows all messages of the transaction in the zone.
    """

    first_entry_id: int
    last_entry_id: int
    first_entry_ids: Mapping[str, int]
    outcomes: Mapping[str, bool]


class RecordedTransactions:
    """The transactions of one topic partition, in the ledgers that statistics record completely.

    "Completely" means: every entry of the current object, without damage. Not thread-safe.

    Attributes:
        problems: Why some of the statistics could not be used, as sentences.
    """

    def __init__(self, statistics: Statistics, topic: str) -> None:
        self._topic = topic
        self._statistics = statistics
        self._loaded: dict[int, list[ZoneTransactions] | None] = {}
        self.problems: list[str] = list(statistics.problems)

    @property
    def has_any(self) -> bool:
        """Whether any recorded ledger has messages of transactions; sends no request."""
        every = self._statistics.ledgers(self._topic)
        return any(pc.any(_is_over(ledgers, "transactional")).as_py() for _, ledgers in every)

    def have_transactions(self, ledgers: Sequence[Ledger]) -> dict[int, bool]:
        """Return, by ledger id, whether recorded ledgers have messages of transactions.

        Sends no request.
        """
        transactional: dict[int, bool] = {}
        for _, whole in self._whole(ledgers):
            is_transactional = _is_over(whole, "transactional").to_pylist()
            for ledger_id, has_any in zip(_ids(whole), is_transactional, strict=True):
                transactional[ledger_id] = transactional.get(ledger_id, False) or has_any
        return transactional

    def zones(self, ledgers: Sequence[Ledger], index: int) -> Sequence[ZoneTransactions] | None:
        """Return the recorded zones of a ledger, in order; None if it is not recorded.

        Zones without transactions may be left out.

        Args:
            ledgers: The ledger and others, ascending; the ones after it are looked up with it.
            index: Index of the ledger in `ledgers`.

        Raises:
            StorageError: The statistics cannot be read.
        """
        ledger_id = ledgers[index].ledger_id
        if ledger_id not in self._loaded:
            loaded_ledgers, size_bytes = [ledgers[index]], ledgers[index].stored_bytes
            for each in ledgers[index + 1 : index + _LOADED_LEDGERS]:
                size_bytes += each.stored_bytes
                if size_bytes > _LOADED_BYTES:
                    break
                loaded_ledgers.append(each)
            self._loaded = self._load(loaded_ledgers)
        return self._loaded[ledger_id]

    def _load(self, ledgers: Sequence[Ledger]) -> dict[int, list[ZoneTransactions] | None]:
        zones_by_ledger: dict[int, list[ZoneTransactions] | None] = {
            each.ledger_id: None for each in ledgers
        }
        for answer in answers(self._whole(ledgers), _load_zones):
            if answer.problem is not None:
                self.problems.append(answer.problem)
            zones_by_ledger |= answer.value or {}
        return zones_by_ledger

    def _whole(self, ledgers: Sequence[Ledger]) -> Iterator[tuple[ZoneFile, pa.Table]]:
        """Yield each file with rows (`LEDGER_SCHEMA`) of the ledgers that it records completely."""
        objects = DataObjects((self._topic, each) for each in ledgers)
        entries = {each.ledger_id: each.last_entry_id + 1 for each in ledgers}
        for file, ledger_rows in self._statistics.ledgers(self._topic, sorted(entries)):
            whole_rows = ledger_rows.filter(objects.are_same(ledger_rows))
            whole_rows = whole_rows.filter(_are_whole(whole_rows, entries))
            if whole_rows.num_rows:
                yield file, whole_rows


def _load_zones(
    file: ZoneFile, ledgers: pa.Table
) -> Answer[dict[int, list[ZoneTransactions] | None]]:
    has_any = pc.or_(_is_over(ledgers, "transactional"), _is_over(ledgers, "markers"))
    zones_by_ledger: dict[int, list[ZoneTransactions] | None] = {each: [] for each in _ids(ledgers)}
    for ledger_id, zones in _read_zones(file, ledgers.filter(has_any)):
        earlier_zones = zones_by_ledger[ledger_id]
        zones_by_ledger[ledger_id] = None
        if earlier_zones is not None and zones is not None:
            zones_by_ledger[ledger_id] = [*earlier_zones, *zones]
    return Answer(keys_of(ledgers), zones_by_ledger)


def _read_zones(
    file: ZoneFile, ledgers: pa.Table
) -> Iterator[tuple[int, list[ZoneTransactions] | None]]:
    """Yield zones by ledger id; None for a ledger if a zone's transactions are not recorded."""
    ids = iter(_ids(ledgers))
    for groups, rows in file.row_groups_of(ledgers):
        read = file.zones(groups, _COLUMNS)
        for first, count in rows:
            ledger_zones = read.slice(first, count)
            is_recorded = pc.and_(
                pc.is_valid(ledger_zones.column("transactions")),
                pc.is_valid(ledger_zones.column("outcomes")),
            )
            zones = None
            if pc.all(is_recorded).as_py():
                zones = [
                    ZoneTransactions(
                        each["first_entry_id"],
                        each["last_entry_id"],
                        {one["txn_id"]: one["first_entry_id"] for one in each["transactions"]},
                        {one["txn_id"]: one["committed"] for one in each["outcomes"]},
                    )
                    for each in ledger_zones.filter(_is_any(ledger_zones)).to_pylist()
                ]
            yield next(ids), zones


def _are_whole(ledgers: pa.Table, entry_counts: Mapping[int, int]) -> pa.BooleanArray:
    """Return whether all entries of each row's ledger are recorded, without damage."""
    names = ("first_entry_id", "last_entry_id", "damaged")
    columns = (ledgers.column(name).to_pylist() for name in names)
    unrecorded = dict(entry_counts)
    for ledger_id, first, last, damaged in zip(_ids(ledgers), *columns, strict=True):
        unrecorded[ledger_id] -= last - first + 1 - damaged
    return pa.array((unrecorded[each] == 0 for each in _ids(ledgers)), pa.bool_())


def _is_any(zones: pa.Table) -> pa.ChunkedArray:
    lengths = (pc.list_value_length(zones.column(name)) for name in ("transactions", "outcomes"))
    return pc.greater(pc.add(*lengths), 0)


def _is_over(ledgers: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.greater(ledgers.column(name), 0)


def _ids(ledgers: pa.Table) -> list[int]:
    return ledgers.column("ledger_id").to_pylist()  # type: ignore[no-any-return]
