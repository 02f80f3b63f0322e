"""Which ledgers of statistics have the data objects that are read, in the versions that are."""

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
    """The part of a ledger that has an entry; or the one before it."""
    parts = ledger.parts
    return parts[max(0, bisect_right(parts, entry_id, key=_first_entry_id) - 1)]


class DataObjects:
    """The data objects of some ledgers, to be compared with those that statistics are of.

    Args:
        ledgers: Ledgers, with the name of the topic or partition of each.
    """

    def __init__(self, ledgers: Iterable[tuple[str, Ledger]]) -> None:
        self._data = {
            (topic, each.ledger_id): [
                (part.data_name, part.data_stop, version_text(part.version)) for part in each.parts
            ]
            for topic, each in ledgers
        }

    def are_same(self, ledgers: pa.Table) -> pa.BooleanArray:
        """For each row whether its ledger is one of these, with the same objects, all of them.

        Args:
            ledgers: Rows of `LEDGER_SCHEMA` of one file; those of a ledger together or not at all.
        """
        topics, ids, *identities = (ledgers.column(name).to_pylist() for name in IDENTITY)
        keys = list(zip(topics, ids, strict=True))
        identities_by_key: dict[tuple[str, int], list[_Identity]] = defaultdict(list)
        for key, identity in zip(keys, zip(*identities, strict=True), strict=True):
            identities_by_key[key].append(identity)
        same = {
            key: _are_same(recorded, self._data.get(key, ()))
            for key, recorded in identities_by_key.items()
        }
        return pa.array((same[key] for key in keys), pa.bool_())


def _are_same(recorded: Iterable[_Identity], current: Iterable[_Identity]) -> bool:
    """Whether objects are the same, each of them."""
    recorded_versions, current_versions = (
        {each[:2]: each[2] for each in every} for every in (recorded, current)
    )
    # Where one version is not known, there is nothing to tell them apart.
    return recorded_versions.keys() == current_versions.keys() and all(
        None in {version, current_versions[name]} or version == current_versions[name]
        for name, version in recorded_versions.items()
    )
