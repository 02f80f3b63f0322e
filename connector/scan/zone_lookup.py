"""What statistics say of the zones of a topic, looked up in files side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.scan.skipping import column
from connector.scan.topic_read import Skipped
from connector.statistics.data_objects import DataObjects
from connector.statistics.lookup import Answer, answers, keys_of
from connector.statistics.store import UNUSABLE
from connector.statistics.zones import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.skipping import Asked, Counted
    from connector.scan.topic_read import EntryRange
    from connector.statistics.store import Statistics
    from connector.statistics.zone_files import ZoneFile

STRETCH: Final = ("ledger_id", "first_entry_id", "last_entry_id")
"""The columns that say which entries a zone has."""
_LOOKED_AT: Final = (*STRETCH, "start", "stop", "messages")
_NOTHING: Final = pa.table({name: pa.array([], pa.int64()) for name in (*STRETCH, "messages")})
_NOT_LOOKED_AT: Final = [name for name in IDENTITY if name not in {"topic", "ledger_id"}]
_MAX_REMEMBERED: Final = 10_000
"""Of how many ranges readers are told where they stand; others they find block by block."""


def unread_zones(
    topic: TopicLedgers,
    ranges: Sequence[EntryRange],
    asked: Asked | Counted,
    statistics: Statistics,
) -> tuple[pa.Table, Skipped]:
    """The zones, and whole ledgers, of a topic's ranges that need not be read.

    Args:
        topic: The topic.
        ranges: What would be read of it.
        asked: What is asked for.
        statistics: What is known of its zones.

    Returns:
        A table of the columns `STRETCH` and `messages`; and how much that is.

    Raises:
        StorageError: Statistics cannot be read.
    """
    name, wanted = str(topic.topic), {each.ledger_id for each in ranges}
    data = {each.ledger_id: each for each in topic.data if each.ledger_id in wanted}
    objects = DataObjects((name, each) for each in data.values())
    files = (
        # All these wait at once, and their names would be most of it.
        (file, ledgers.filter(objects.are_same(ledgers)).drop_columns(_NOT_LOOKED_AT))
        for file, ledgers in statistics.ledgers(name, sorted(wanted))
    )
    known = 0
    unread: list[pa.Table] = [_NOTHING]
    skipped = Skipped(problems=statistics.problems)
    for answer in answers(files, partial(_found, asked)):
        known += len(answer.ledgers)
        if answer.problem is not None:
            skipped += Skipped(problems=(answer.problem,))
        if answer.found is not None:
            unread.append(answer.found.unread)
            skipped += answer.found.skipped
            for ledger_id, entry_id, position in answer.found.positions:
                data[ledger_id].remember(entry_id, position)
    return pa.concat_tables(unread), skipped + Skipped(len(data) - known)


def sum_of(numbers: pa.ChunkedArray) -> int:
    """Their sum; 0 of none."""
    return int(pc.sum(numbers).as_py() or 0)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a file tells.

    Attributes:
        unread: What need not be read of its ledgers, as in `unread_zones`.
        skipped: How much that is.
        positions: A ledger, an entry, and where that begins in the data object: of those zones
            that are read without the one before or behind them.
    """

    unread: pa.Table
    skipped: Skipped
    positions: Sequence[tuple[int, int, int]]


def _found(asked: Asked | Counted, file: ZoneFile, ledgers: pa.Table) -> Answer[_Found]:
    may_pass = asked.may_pass(ledgers)
    whole = ledgers.filter(pc.invert(may_pass))
    known, problem = set(keys_of(ledgers)), None
    doubtful = ledgers.filter(pc.and_(may_pass, pc.invert(asked.surely_may_pass(ledgers))))
    try:
        looked_into = list(_looked_into(file, doubtful, asked))
    except UNUSABLE as error:
        # What the file tells of other ledgers stands in its footer, which is sound.
        known.difference_update(keys_of(doubtful))
        problem = str(error)
        looked_into = []
        whole = whole.filter(pa.array([each in known for each in keys_of(whole)], pa.bool_()))
    unread = [whole.select(_NOTHING.column_names)]
    skipped = Skipped(0, sum_of(whole.column("zones")), sum_of(whole.column("size_bytes")))
    positions: list[tuple[int, int, int]] = []
    for zones in looked_into:
        passing = column(zones, "may_pass")
        left_out = zones.filter(pc.invert(passing))
        unread.append(left_out.select(_NOTHING.column_names))
        size_bytes = pc.subtract(left_out.column("stop"), left_out.column("start"))
        skipped += Skipped(0, left_out.num_rows, sum_of(size_bytes))
        positions += _positions(zones, passing)
    return Answer(known, _Found(pa.concat_tables(unread), skipped, positions), problem)


def _looked_into(file: ZoneFile, ledgers: pa.Table, asked: Asked | Counted) -> Iterator[pa.Table]:
    """The zones of some ledgers of a file, with a column `may_pass`.

    Raises:
        CorruptStatisticsError: They are damaged.
        PulsarOffloadError: They cannot be read.
    """
    columns = sorted({*_LOOKED_AT, *asked.columns})
    for groups, rows in file.row_groups_of(ledgers):
        read = file.zones(groups, columns)
        zones = pa.concat_tables(read.slice(*each) for each in rows).combine_chunks()
        may_pass = asked.may_pass(zones)
        if asked.has_key and pc.any(may_pass).as_py():
            keys = file.zones(groups, ["keys"])
            zones = zones.append_column(
                "keys", pa.concat_tables(keys.slice(*each) for each in rows).column(0)
            )
            may_pass = asked.may_pass(zones)
        yield zones.select(_LOOKED_AT).append_column("may_pass", may_pass)


def _positions(zones: pa.Table, may_pass: pa.BooleanArray) -> Iterator[tuple[int, int, int]]:
    """Where those zones begin and end that are read without the next ones; see `_Found`."""
    edge = pa.array([False])
    before = pc.and_(may_pass, pc.invert(pa.concat_arrays([edge, may_pass[:-1]])))
    behind = pc.and_(may_pass, pc.invert(pa.concat_arrays([may_pass[1:], edge])))
    for wanted, name, offset, shift in (
        (before, "first_entry_id", "start", 0),
        (behind, "last_entry_id", "stop", 1),
    ):
        mine = zones.filter(wanted).slice(0, _MAX_REMEMBERED)
        columns = (mine.column(each).to_pylist() for each in ("ledger_id", name, offset))
        for ledger_id, entry_id, position in zip(*columns, strict=True):
            yield ledger_id, entry_id + shift, position
