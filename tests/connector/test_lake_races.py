"""Of two runs that copy the same rows at a time, one adds them, wherever one comes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from arrow_io.errors import ConcurrentCopyError
from connector.tables import delta, iceberg, parquet
from connector.tables.table_kinds import KINDS
from tests.support.interruption import Interruption
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import staged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from connector.tables.evolution import TableKind
    from connector.tables.table import Commit, LakeTable, TableState

_CODE: Final = {"delta": delta.__file__, "iceberg": iceberg.__file__, "parquet": parquet.__file__}
_LEAST_LINES: Final = 3
NARROW: Final = pa.schema([("n", pa.int64())])
WIDE: Final = NARROW.append(pa.field("price", pa.float64()))


def prepared(
    table: LakeTable, numbers: range, schema: pa.Schema, after: str
) -> tuple[Commit, TableState | None]:
    """A commit that only has to be made: its files are written."""
    standing = table.read_state()
    rows = pa.Table.from_pylist([{"n": n} for n in numbers], schema)
    return staged(table, standing, rows, after), standing


_SCHEMAS: Final = {
    "none-widens": (NARROW, NARROW),
    "one-widens": (WIDE, NARROW),
    "both-widen": (WIDE, WIDE),
}
"""Of the rows of the run, and of the other one."""


@pytest.mark.parametrize(
    ("kind", "schemas"),
    [
        # A table of Iceberg takes long, and the case with most lines stands for all by default.
        pytest.param(kind, schemas, marks=pytest.mark.exhaustive)
        if kind == "iceberg" and schemas != "one-widens"
        else (kind, schemas)
        for kind in KINDS
        for schemas in _SCHEMAS
    ],
)
def test_one_of_two_runs_wins_at_every_step(kind: TableKind, schemas: str, tmp_path: Path) -> None:
    """Another run commits the same rows before each line of a commit that calls anything."""
    own, other = _SCHEMAS[schemas]
    lines: set[tuple[str, int]] = set()
    for attempt in count():
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with table_in(folder, kind) as ours, table_in(folder, kind) as theirs:
            ours.commit(*prepared(ours, range(3), NARROW, "three"))
            steps = {
                "ours": partial(ours.commit, *prepared(ours, range(3, 6), own, "ours")),
                "theirs": partial(theirs.commit, *prepared(theirs, range(3, 6), other, "theirs")),
            }
            won: list[str] = []
            come_between = partial(take, "theirs", steps, won)
            with Interruption({_CODE[kind]}, lines, come_between) as interruption:
                take("ours", steps, won)
            if not interruption.is_over:
                assert len(lines) > _LEAST_LINES, "the commit was not followed"
                return
            standing = ours.read_state()
            assert standing is not None
            assert [standing.progress] == won, lines
            assert sorted(read_back(ours)["n"].to_pylist()) == list(range(6)), lines


def take(run: str, steps: Mapping[str, Callable[[], None]], won: list[str]) -> None:
    """Let a run commit."""
    with suppress(ConcurrentCopyError):
        steps[run]()
        won.append(run)
