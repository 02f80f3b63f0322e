"""Which ledgers of statistics have the data objects that are read, in the versions that are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.ledger_data import LedgerData
from connector.statistics.segments import IDENTITY, version_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.ledger import Ledger


def analyzable(ledgers: Iterable[Ledger]) -> list[LedgerData]:
    """The ledgers that statistics can know: those that lie in one object each."""
    return [each for each in ledgers if isinstance(each, LedgerData)]


class DataObjects:
    """The data objects of some ledgers, to be compared with those that statistics are of.

    Args:
        ledgers: Ledgers, with the name of the topic or partition of each.
    """

    def __init__(self, ledgers: Iterable[tuple[str, LedgerData]]) -> None:
        self._data = {(topic, each.ledger_id): each for topic, each in ledgers}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._data)

    def are_same(self, ledgers: pa.Table) -> pa.BooleanArray:
        """For each ledger of statistics whether it is one of these, with the same object."""
        columns = (ledgers.column(name).to_pylist() for name in IDENTITY)
        return pa.array((self._is_same(*each) for each in zip(*columns, strict=True)), pa.bool_())

    def _is_same(
        self, topic: str, ledger_id: int, name: str, size_bytes: int, version: str | None
    ) -> bool:
        data = self._data.get((topic, ledger_id))
        if data is None or data.data_stop != size_bytes:
            return False
        # Where one version is not known, there is nothing to tell them apart.
        own = version_text(data.version)
        return data.name.data_name == name and (None in {own, version} or own == version)
