"""Files of statistics that are asked side by side: of those that know a ledger, one tells all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import pyarrow as pa

from connector.statistics.store import UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from connector.statistics.zone_files import ZoneFile

_T = TypeVar("_T")
_Key = tuple[str, int]

_MOST_FILES: Final = 8
"""So many are looked into at once: each takes some megabytes, and some requests of its own."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[_T]):
    """What a file tells of some ledgers.

    Attributes:
        ledgers: Those of which it tells, as topic and id.
        value: What it tells; None if that is nothing.
        problem: Why it does not tell of the others that it knows, in words; None if there are none.
    """

    ledgers: Collection[_Key]
    value: _T | None
    problem: str | None = None


def answers(
    files: Iterable[tuple[ZoneFile, pa.Table]],
    ask: Callable[[ZoneFile, pa.Table], Answer[_T]],
) -> Iterator[Answer[_T]]:
    """Ask files of ledgers, each ledger of the first file that knows it.

    What a file does not tell because it is damaged, the next one is asked for.

    Args:
        files: Files, and the ledgers that they may be asked of: some rows of `LEDGER_SCHEMA` in
            the order of the file, with `topic` and `ledger_id` at least.
        ask: Asks a file of some of its ledgers, in any thread. It raises one of `UNUSABLE` if the
            file tells of none of them, and says in the answer if it tells of some.

    Raises:
        StorageError: Files cannot be read.
    """
    left, recorded = list(files), set[_Key]()
    while left:
        chosen = list(_choose(left, recorded))
        damaged = set[str]()
        with ThreadPoolExecutor(_MOST_FILES) as executor:
            every = executor.map(lambda each: _ask(ask, *each), chosen)
            for (file, _), answer in zip(chosen, every, strict=True):
                recorded.update(answer.ledgers)
                if answer.problem is not None:
                    damaged.add(file.name)
                yield answer
        left = [each for each in left if each[0].name not in damaged] if damaged else []


def keys_of(ledgers: pa.Table) -> Sequence[_Key]:
    """Topic and id of ledgers."""
    columns = (ledgers.column(name).to_pylist() for name in ("topic", "ledger_id"))
    return list(zip(*columns, strict=True))


def _choose(
    files: Iterable[tuple[ZoneFile, pa.Table]], recorded: Collection[_Key]
) -> Iterator[tuple[ZoneFile, pa.Table]]:
    """The files that know ledgers which are not known; of each ledger the first one that does."""
    assigned = set(recorded)
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
