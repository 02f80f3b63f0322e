"""Lookups in several statistics files at once, where several files may record a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import pyarrow as pa

from arrow_io.core.threads import ContextThreadPool
from connector.statistics.store import UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from connector.statistics.zone_files import ZoneFile

_T = TypeVar("_T")
_Key = tuple[str, int]

_MAX_FILES: Final = 8
"""Maximum number of files read at once: each takes some megabytes, and some requests."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[_T]):
    """What a file says about some ledgers.

    Attributes:
        ledgers: The ledgers it answers for, as topic and id.
        value: The answer, or None.
        problem: Why it does not answer for other ledgers that it records; None if there are none.
    """

    ledgers: Collection[_Key]
    value: _T | None
    problem: str | None = None


def answers(
    files: Iterable[tuple[ZoneFile, pa.Table]],
    ask: Callable[[ZoneFile, pa.Table], Answer[_T]],
) -> Iterator[Answer[_T]]:
    """Yield answers about ledgers, each from the first sound file that records the ledger.

    Args:
        files: Files, and the ledgers to look up in each: some rows of `LEDGER_SCHEMA` in the file's
            order, with at least `topic` and `ledger_id`.
        ask: Looks up some ledgers in a file; called in any thread. It raises one of `UNUSABLE` if
            the file can answer for none of them, and sets `Answer.problem` if it answers for some.

    Raises:
        StorageError: Files cannot be read.
    """
    remaining, answered = list(files), set[_Key]()
    while remaining:
        assignments = list(_choose(remaining, answered))
        damaged = set[str]()
        with ContextThreadPool(_MAX_FILES) as executor:
            every = executor.map(lambda each: _ask(ask, *each), assignments)
            for (file, _), answer in zip(assignments, every, strict=True):
                answered.update(answer.ledgers)
                if answer.problem is not None:
                    damaged.add(file.name)
                yield answer
        remaining = [each for each in remaining if each[0].name not in damaged] if damaged else []


def keys_of(ledgers: pa.Table) -> Sequence[_Key]:
    """Return topic and id of each ledger."""
    columns = (ledgers.column(name).to_pylist() for name in ("topic", "ledger_id"))
    return list(zip(*columns, strict=True))


def _choose(
    files: Iterable[tuple[ZoneFile, pa.Table]], answered: Collection[_Key]
) -> Iterator[tuple[ZoneFile, pa.Table]]:
    """Assign each ledger to the first file that records it; yield files with their ledgers."""
    assigned = set(answered)
    for file, ledgers in files:
        keys, rows = keys_of(ledgers), ledgers
        if not assigned.isdisjoint(keys):
            rows = ledgers.filter(pa.array([each not in assigned for each in keys], pa.bool_()))
        if rows.num_rows:
            assigned.update(keys)
            yield file, rows


def _ask(
    ask: Callable[[ZoneFile, pa.Table], Answer[_T]], file: ZoneFile, ledgers: pa.Table
) -> Answer[_T]:
    try:
        return ask(file, ledgers)
    except UNUSABLE as error:
        return Answer((), None, str(error))
