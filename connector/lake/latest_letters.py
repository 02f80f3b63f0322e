"""Which decoded dead letters are the latest rows of their keys, in a table that keeps these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.lake.latest_rows import LatestRows
from connector.tables.dead_letters import POSITION_COLUMNS
from connector.tables.rewriting import rewrite_without

if TYPE_CHECKING:
    from collections import Counter

    from connector.lake.latest_rows import Identity
    from connector.tables.file_writer import FileWriter
    from connector.tables.letter_changes import LetterPosition
    from connector.tables.table import RewritableTable, TableFile, TableState

_MISSING_KEY: Final = "the table has no row of its key, which may have been deleted later"


@dataclass(frozen=True, slots=True)
class DecodedLetters:
    """Rows of the letters that can be decoded, and the positions of these letters."""

    rows: pa.Table
    positions: list[LetterPosition]


class LatestLetters:
    """Decoded letters of a table that keeps the latest row of each key.

    Args:
        table: The table.
        state: Its state.
        identity: How rows are identified.
        decoded: The letters that can be decoded.
    """

    def __init__(
        self, table: RewritableTable, state: TableState, identity: Identity, decoded: DecodedLetters
    ) -> None:
        self._table, self._state, self._identity = table, state, identity
        self._decoded = decoded
        self._latest = LatestRows(identity)
        self._latest.add_file(0, decoded.rows.select(self._latest.staged_columns))
        self._keys = self._latest.keys(state.partitioning)
        self._positions = self._latest.positions()
        self._present: set[str] = set()
        self._newer: set[str] = set()

    def remove_older(self, writer: FileWriter) -> list[tuple[TableFile, int]]:
        """Rewrite files without older rows; return the files, and how many such rows each had."""
        columns = [*dict.fromkeys([*self._identity.columns, *POSITION_COLUMNS])]
        files = (
            each
            for each in self._table.data_files(self._state, columns)
            if self._keys.may_match(each)
        )
        return list(
            rewrite_without(
                self._table.file_reader(self._state), files, columns, self._are_older, writer
            )
        )

    def _are_older(self, file: TableFile, rows: pa.Table) -> pa.BooleanArray:
        indices = pc.indices_nonzero(self._keys.match_rows(file, rows))
        matching = rows.take(indices)
        numbers = (pc.fill_null(matching.column(each), -1) for each in POSITION_COLUMNS)
        older = []
        for index, identity, *position in zip(
            indices.to_pylist(),
            self._identity.identify(matching).to_pylist(),
            *(each.to_pylist() for each in numbers),
            strict=True,
        ):
            self._present.add(identity)
            if tuple(position) < self._positions[identity]:
                older.append(index)
            else:
                self._newer.add(identity)
        return pc.is_in(pa.array(range(len(rows))), value_set=pa.array(older, pa.int64()))

    def select(self, remaining: Counter[str], *, insert_missing: bool) -> DecodedLetters:
        """Return the rows that are the latest of their keys, and the letters that do not stay.

        Call `remove_older` first.

        Args:
            remaining: Counts the letters that stay, by the reason.
            insert_missing: Whether a letter becomes a row if the table has no row of its key.
        """
        rows = self._decoded.rows
        is_latest = self._latest.select_rows(0, rows.num_rows)
        identities = self._identity.identify(rows)
        missing = set[str]()
        if not insert_missing:
            missing = set(identities.filter(is_latest).to_pylist()) - self._present
        excluded = pa.array([*self._newer, *missing], identities.type)
        is_new = pc.and_not(is_latest, pc.is_in(identities, value_set=excluded))
        stays = [each in missing for each in identities.to_pylist()]
        remaining[_MISSING_KEY] += sum(stays)
        pairs = zip(self._decoded.positions, stays, strict=True)
        return DecodedLetters(rows.filter(is_new), [each for each, is_left in pairs if not is_left])
