"""Which recorded ledgers still have the data objects that they were recorded from."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from connector.statistics.zones import IDENTITY, version_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.ledgers.ledger import DataPart, Ledger

    _Identity: TypeAlias = tuple[str, int, str | None]
    """Name, length, and version of a data object."""


_first_entry_id = attrgetter("first_entry_id")


def part_with(ledger: Ledger, entry_id: int) -> DataPart:
    """Return the part of a ledger that contains an entry, or else the part before it."""
    parts = ledger.parts
    return parts[max(0, bisect_right(parts, entry_id, key=_first_entry_id) - 1)]


class DataObjects:
    """The current data objects of ledgers, by topic or partition, to compare with recorded ones."""

    def __init__(self, ledgers: Iterable[tuple[str, Ledger]]) -> None:
        self._data = {
            (topic, each.ledger_id): [
                (part.data_name, part.data_stop, version_text(part.version)) for part in each.parts
            ]
            for topic, each in ledgers
        }

    def are_same(self, ledgers: pa.Table) -> pa.BooleanArray:
        """Return for each row whether its ledger has exactly the objects that were recorded.

        The rows are of `LEDGER_SCHEMA`, from one file: either all rows of a ledger or none.
        """
        topics, ids, *identities = (ledgers.column(name).to_pylist() for name in IDENTITY)
        keys = list(zip(topics, ids, strict=True))
        identities_by_key: dict[tuple[str, int], list[_Identity]] = defaultdict(list)
        for key, identity in zip(keys, zip(*identities, strict=True), strict=True):
            identities_by_key[key].append(identity)
        same = {
            key: _are_same(identities, self._data.get(key, ()))
            for key, identities in identities_by_key.items()
        }
        return pa.array((same[key] for key in keys), pa.bool_())


def _are_same(recorded: Iterable[_Identity], current: Iterable[_Identity]) -> bool:
    recorded_versions, current_versions = (
        {each[:2]: each[2] for each in every} for every in (recorded, current)
    )
    # If a version is unknown, name and length have to suffice.
    return recorded_versions.keys() == current_versions.keys() and all(
        None in {version, current_versions[name]} or version == current_versions[name]
        for name, version in recorded_versions.items()
    )
