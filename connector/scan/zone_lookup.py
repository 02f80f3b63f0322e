"""Zone lookup: which zones of a topic can be pruned, from several statistics files at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.scan.topic_read import Pruning
from connector.scan.zone_predicates import column
from connector.statistics.data_objects import DataObjects
from connector.statistics.lookup import Answer, answers, keys_of
from connector.statistics.store import UNUSABLE
from connector.statistics.zones import IDENTITY, LEDGER_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.topic_read import EntryRange
    from connector.scan.zone_predicates import CountPredicate, ZonePredicate
    from connector.statistics.store import Statistics
    from connector.statistics.zone_files import ZoneFile

ENTRY_COLUMNS: Final = ("ledger_id", "first_entry_id", "last_entry_id")
"""The columns that identify a zone's entries."""
_ZONE_COLUMNS: Final = (*ENTRY_COLUMNS, "start", "stop", "messages")
_UNUSED_COLUMNS: Final = [name for name in IDENTITY if name not in {"topic", "ledger_id"}]
_MAX_REMEMBERED: Final = 10_000
"""Maximum number of zone edges whose offsets readers get; they find others block by block."""


def prunable_zones(
    topic: TopicLedgers,
    ranges: Sequence[EntryRange],
    predicate: ZonePredicate | CountPredicate,
    statistics: Statistics,
    columns: Sequence[str] = (),
) -> tuple[pa.Table, Pruning]:
    """Return the zones, and whole ledgers, of a topic's ranges that need not be read.

    Returns a table with the columns `ENTRY_COLUMNS`, `messages` and `columns` of the statistics,
    and the resulting pruning.

    Raises:
        StorageError: Statistics cannot be read.
    """
    name, ledger_ids = str(topic.topic), {each.ledger_id for each in ranges}
    data = {each.ledger_id: each for each in topic.data if each.ledger_id in ledger_ids}
    objects = DataObjects((name, each) for each in data.values())
    files = (
        # All files' rows are in memory at once, and these columns would take most of it.
        (file, ledgers.filter(objects.are_same(ledgers)).drop_columns(_UNUSED_COLUMNS))
        for file, ledgers in statistics.ledgers(name, sorted(ledger_ids))
    )
    recorded_count = 0
    prunable: list[pa.Table] = [no_zones(columns)]
    pruning = Pruning(problems=statistics.problems)
    for answer in answers(files, partial(_look_up, predicate, columns)):
        recorded_count += len(answer.ledgers)
        if answer.problem is not None:
            pruning += Pruning(problems=(answer.problem,))
        if answer.value is not None:
            prunable.append(answer.value.prunable)
            pruning += answer.value.pruning
            for ledger_id, entry_id, offset in answer.value.offsets:
                data[ledger_id].remember(entry_id, offset)
    return pa.concat_tables(prunable), pruning + Pruning(len(data) - recorded_count)


def no_zones(columns: Sequence[str] = ()) -> pa.Table:
    """Return an empty table with the columns of `prunable_zones`."""
    names = [*ENTRY_COLUMNS, "messages", *columns]
    return pa.schema([LEDGER_SCHEMA.field(name) for name in names]).empty_table()


def sum_of(numbers: pa.ChunkedArray) -> int:
    """Return the sum as an integer; 0 if there are no numbers."""
    return int(pc.sum(numbers).as_py() or 0)


@dataclass(frozen=True, slots=True)
class _FileAnswer:
    """What one statistics file says.

    Attributes:
        prunable: What need not be read of its ledgers, as in `prunable_zones`.
        pruning: The resulting pruning.
        offsets: Ledger id, entry id and offset in the data object of each edge between a zone that
            is read and one that is not.
    """

    prunable: pa.Table
    pruning: Pruning
    offsets: Sequence[tuple[int, int, int]]


def _look_up(
    predicate: ZonePredicate | CountPredicate,
    columns: Sequence[str],
    file: ZoneFile,
    ledgers: pa.Table,
) -> Answer[_FileAnswer]:
    names = no_zones(columns).column_names
    may_match = predicate.may_match(ledgers)
    pruned = ledgers.filter(pc.invert(may_match))
    keys, problem = set(keys_of(ledgers)), None
    doubtful = ledgers.filter(pc.and_(may_match, pc.invert(predicate.all_may_match(ledgers))))
    try:
        zones_by_group = list(_read_zones(file, doubtful, predicate, columns))
    except UNUSABLE as error:
        # For the other ledgers the footer suffices, and it is sound.
        keys.difference_update(keys_of(doubtful))
        problem = str(error)
        zones_by_group = []
        pruned = pruned.filter(pa.array([each in keys for each in keys_of(pruned)], pa.bool_()))
    prunable = [pruned.select(names)]
    pruning = Pruning(0, sum_of(pruned.column("zones")), sum_of(pruned.column("size_bytes")))
    offsets: list[tuple[int, int, int]] = []
    for zones in zones_by_group:
        may_match = column(zones, "may_match")
        left_out = zones.filter(pc.invert(may_match))
        prunable.append(left_out.select(names))
        size_bytes = pc.subtract(left_out.column("stop"), left_out.column("start"))
        pruning += Pruning(0, left_out.num_rows, sum_of(size_bytes))
        offsets += _edge_offsets(zones, may_match)
    return Answer(keys, _FileAnswer(pa.concat_tables(prunable), pruning, offsets), problem)


def _read_zones(
    file: ZoneFile,
    ledgers: pa.Table,
    predicate: ZonePredicate | CountPredicate,
    additional: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield zones of some ledgers of a file, with an additional column `may_match`.

    Raises one of `UNUSABLE` if they are damaged, and a `StorageError` if they cannot be read.
    """
    columns = sorted({*_ZONE_COLUMNS, *predicate.columns, *additional})
    for groups, rows in file.row_groups_of(ledgers):
        read = file.zones(groups, columns)
        zones = pa.concat_tables(read.slice(*each) for each in rows).combine_chunks()
        may_match = predicate.may_match(zones)
        if predicate.has_key and pc.any(may_match).as_py():
            keys = file.zones(groups, ["keys"])
            zones = zones.append_column(
                "keys", pa.concat_tables(keys.slice(*each) for each in rows).column(0)
            )
            may_match = predicate.may_match(zones)
        yield zones.select([*_ZONE_COLUMNS, *additional]).append_column("may_match", may_match)


def _edge_offsets(zones: pa.Table, may_match: pa.BooleanArray) -> Iterator[tuple[int, int, int]]:
    """Yield `_FileAnswer.offsets`."""
    edge = pa.array([False])
    is_first = pc.and_(may_match, pc.invert(pa.concat_arrays([edge, may_match[:-1]])))
    is_last = pc.and_(may_match, pc.invert(pa.concat_arrays([may_match[1:], edge])))
    for is_edge, name, offset_name, shift in (
        (is_first, "first_entry_id", "start", 0),
        (is_last, "last_entry_id", "stop", 1),
    ):
        edges = zones.filter(is_edge).slice(0, _MAX_REMEMBERED)
        columns = (edges.column(each).to_pylist() for each in ("ledger_id", name, offset_name))
        for ledger_id, entry_id, offset in zip(*columns, strict=True):
            yield ledger_id, entry_id + shift, offset
