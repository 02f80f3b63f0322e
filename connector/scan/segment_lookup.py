"""What statistics say of the segments of a topic, looked up in files side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.scan.skipping import column
from connector.scan.topic_read import Skipped
from connector.statistics.data_objects import DataObjects, analyzable
from connector.statistics.segments import IDENTITY
from connector.statistics.store import UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.skipping import Asked, Counted
    from connector.scan.topic_read import EntryRange
    from connector.statistics.segment_files import SegmentFile
    from connector.statistics.store import Statistics

STRETCH: Final = ("ledger_id", "first_entry_id", "last_entry_id")
"""The columns that say which entries a segment has."""
_LOOKED_AT: Final = (*STRETCH, "start", "stop", "messages")
_NOTHING: Final = pa.table({name: pa.array([], pa.int64()) for name in (*STRETCH, "messages")})
_MOST_FILES: Final = 8
"""So many are looked into at once: each takes some megabytes, and some requests of its own."""
_MAX_REMEMBERED: Final = 10_000
"""Of how many ranges readers are told where they stand; others they find block by block."""


def unread_segments(
    topic: TopicLedgers,
    ranges: Sequence[EntryRange],
    asked: Asked | Counted,
    statistics: Statistics,
) -> tuple[pa.Table, Skipped]:
    """The segments, and whole ledgers, of a topic's ranges that need not be read.

    Args:
        topic: The topic.
        ranges: What would be read of it.
        asked: What is asked for.
        statistics: What is known of its segments.

    Returns:
        A table of the columns `STRETCH` and `messages`; and how much that is.

    Raises:
        StorageError: Statistics cannot be read.
    """
    name, wanted = str(topic.topic), {each.ledger_id for each in ranges}
    data = {each.ledger_id: each for each in topic.data if each.ledger_id in wanted}
    objects = DataObjects((name, each) for each in analyzable(data.values()))
    known: set[int] = set()
    unread: list[pa.Table] = [_NOTHING]
    skipped = Skipped(problems=statistics.problems)
    # What one file does not tell, because it is damaged, another one may.
    damaged: list[SegmentFile] = []
    is_told = False
    while not is_told:
        files = (each for each in statistics.ledgers(name) if each[0] not in damaged)
        chosen = list(_chosen(files, objects, known))
        is_told = True
        with ThreadPoolExecutor(_MOST_FILES) as executor:
            every = executor.map(lambda each: _found(each[0], each[1], asked), chosen)
            for (file, _), found in zip(chosen, every, strict=True):
                known |= found.known
                unread.append(found.unread)
                skipped += found.skipped
                for ledger_id, entry_id, position in found.positions:
                    data[ledger_id].remember(entry_id, position)
                if found.skipped.problems:
                    damaged.append(file)
                    is_told = False
    return pa.concat_tables(unread), skipped + Skipped(len(data) - len(known))


def sum_of(numbers: pa.ChunkedArray) -> int:
    """Their sum; 0 of none."""
    return int(pc.sum(numbers).as_py() or 0)


def _chosen(
    files: Iterable[tuple[SegmentFile, pa.Table]], objects: DataObjects, known: set[int]
) -> Iterator[tuple[SegmentFile, pa.Table]]:
    """The files that tell of ledgers that are not known; of each ledger the first one that does."""
    taken = set(known)
    for file, ledgers in files:
        left = pa.array([each not in taken for each in ledgers.column("ledger_id").to_pylist()])
        mine = ledgers.filter(pc.and_(objects.are_same(ledgers), left))
        if mine.num_rows:
            taken.update(mine.column("ledger_id").to_pylist())
            # All these wait at once, and their names would be most of it.
            yield file, mine.drop_columns([name for name in IDENTITY if name != "ledger_id"])


@dataclass(frozen=True, slots=True)
class _Found:
    """What a file tells.

    Attributes:
        known: The ledgers of which it tells.
        unread: What need not be read of them, as in `unread_segments`.
        skipped: How much that is; or why the file cannot be used.
        positions: A ledger, an entry, and where that begins in the data object: of those segments
            that are read without the one before or behind them.
    """

    known: set[int]
    unread: pa.Table
    skipped: Skipped
    positions: Sequence[tuple[int, int, int]]


def _found(file: SegmentFile, ledgers: pa.Table, asked: Asked | Counted) -> _Found:
    may_pass = asked.may_pass(ledgers)
    whole = ledgers.filter(pc.invert(may_pass))
    unread = [whole.select(_NOTHING.column_names)]
    skipped = Skipped(0, sum_of(whole.column("segments")), sum_of(whole.column("size_bytes")))
    known = set(ledgers.column("ledger_id").to_pylist())
    doubtful = ledgers.filter(pc.and_(may_pass, pc.invert(asked.surely_may_pass(ledgers))))
    try:
        looked_into = list(_looked_into(file, doubtful, asked))
    except UNUSABLE as error:
        # What the file tells of whole ledgers stands in its footer, which is sound.
        known.difference_update(doubtful.column("ledger_id").to_pylist())
        skipped += Skipped(problems=(str(error),))
        looked_into = []
    positions: list[tuple[int, int, int]] = []
    for segments in looked_into:
        passing = column(segments, "may_pass")
        left_out = segments.filter(pc.invert(passing))
        unread.append(left_out.select(_NOTHING.column_names))
        size_bytes = pc.subtract(left_out.column("stop"), left_out.column("start"))
        skipped += Skipped(0, left_out.num_rows, sum_of(size_bytes))
        positions += _positions(segments, passing)
    return _Found(known, pa.concat_tables(unread), skipped, positions)


def _looked_into(
    file: SegmentFile, ledgers: pa.Table, asked: Asked | Counted
) -> Iterator[pa.Table]:
    """The segments of some ledgers of a file, with a column `may_pass`.

    Raises:
        CorruptStatisticsError: They are damaged.
        PulsarOffloadError: They cannot be read.
    """
    columns = sorted({*_LOOKED_AT, *asked.columns})
    for groups, rows in file.row_groups_of(ledgers):
        read = file.segments(groups, columns)
        segments = pa.concat_tables(read.slice(*each) for each in rows).combine_chunks()
        may_pass = asked.may_pass(segments)
        if asked.has_key and pc.any(may_pass).as_py():
            keys = file.segments(groups, ["keys"])
            segments = segments.append_column(
                "keys", pa.concat_tables(keys.slice(*each) for each in rows).column(0)
            )
            may_pass = asked.may_pass(segments)
        yield segments.select(_LOOKED_AT).append_column("may_pass", may_pass)


def _positions(segments: pa.Table, may_pass: pa.BooleanArray) -> Iterator[tuple[int, int, int]]:
    """Where those segments begin and end that are read without the next ones; see `_Found`."""
    edge = pa.array([False])
    before = pc.and_(may_pass, pc.invert(pa.concat_arrays([edge, may_pass[:-1]])))
    behind = pc.and_(may_pass, pc.invert(pa.concat_arrays([may_pass[1:], edge])))
    for wanted, name, offset, shift in (
        (before, "first_entry_id", "start", 0),
        (behind, "last_entry_id", "stop", 1),
    ):
        mine = segments.filter(wanted).slice(0, _MAX_REMEMBERED)
        columns = (mine.column(each).to_pylist() for each in ("ledger_id", name, offset))
        for ledger_id, entry_id, position in zip(*columns, strict=True):
            yield ledger_id, entry_id + shift, position
