"""Publish times of messages, as statistics record them, and how complete they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.statistics.data_objects import DataObjects
from connector.statistics.lookup import Answer, answers, keys_of
from connector.statistics.store import open_existing_statistics

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from connector.catalog.catalog import Catalog
    from connector.statistics.zone_files import ZoneFile

_TIMES: Final = ("min_publish_time", "max_publish_time")
_COLUMNS: Final = (*_TIMES, "messages", "start", "stop")
_US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class WriteSpan:
    """Entries or messages that were written in a time range, evenly as far as is known.

    Attributes:
        start_ms: First moment, ms since the epoch.
        stop_ms: Last moment, not before the first.
        count: Number of entries or messages.
    """

    start_ms: float
    stop_ms: float
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTimes:
    """What statistics record about publish times.

    Attributes:
        zones: The zones with publish times, each from the minimum to the maximum.
        timeless_zones: Number of zones with messages but without publish times.
        timeless_messages: Number of messages in these zones.
        ledgers: Number of ledgers that can be read from the bucket.
        recorded_ledgers: Number of these ledgers that statistics record.
        data_bytes: Length of the data objects of `ledgers`.
        recorded_bytes: Length of the data objects of `recorded_ledgers`.
        stale: Ledgers that statistics record only for another object, or another version of it, as
            topic and id.
        gone_ledgers: Number of recorded ledgers that can no longer be read.
        problems: Why some of the statistics cannot be used, as sentences.
    """

    zones: tuple[WriteSpan, ...]
    timeless_zones: int
    timeless_messages: int
    ledgers: int
    recorded_ledgers: int
    data_bytes: int
    recorded_bytes: int
    stale: tuple[tuple[str, int], ...]
    gone_ledgers: int
    problems: tuple[str, ...]


def read_publish_times(
    catalog: Catalog, statistics: str | os.PathLike[str], topic: str | Sequence[str] | None = None
) -> PublishTimes:
    """Return when the messages of topics were published.

    Args:
        catalog: The bucket.
        statistics: Folder or URL of the statistics, opened with the storage options of the catalog.
        topic: Names or globs; None: the whole bucket.

    Raises:
        OptionError: The folder `statistics` does not exist.
        TopicNotFoundError: A name or glob selects no topic.
        PulsarOffloadError: The metadata, an index object or the statistics cannot be read.
    """
    if topic is None:
        topics = catalog.every_ledger()
    else:
        topics = catalog.ledgers_of(catalog.select_names(topic, segments="all"))
    location = catalog.location
    folder = open_existing_statistics(statistics, location.storage_options, trace=location.trace)
    data = {(str(each.topic), ledger.ledger_id): ledger for each in topics for ledger in each.data}
    names = pa.array(sorted({str(each.topic) for each in topics}), pa.string())
    objects = DataObjects((str(each.topic), ledger) for each in topics for ledger in each.data)
    problems = list(folder.problems)
    recorded_keys: set[tuple[str, int]] = set()
    changed_keys: set[tuple[str, int]] = set()
    current = []
    for file in folder.files:
        ledgers = file.ledgers
        if topic is not None:
            ledgers = ledgers.filter(pc.is_in(ledgers.column("topic"), value_set=names))
        is_same = objects.are_same(ledgers)
        changed_keys.update(keys_of(ledgers.filter(pc.invert(is_same))))
        current.append((file, ledgers.filter(is_same)))
    zones = [pa.table({name: pa.array([], pa.int64()) for name in _COLUMNS})]
    for answer in answers(current, _zones):
        recorded_keys.update(answer.ledgers)
        zones += answer.value or []
        problems += [] if answer.problem is None else [answer.problem]
    zones_table = pa.concat_tables(zones)
    is_timed = pc.and_(*(pc.is_valid(zones_table.column(name)) for name in _TIMES))
    timeless = zones_table.filter(
        pc.and_(pc.invert(is_timed), pc.greater(zones_table.column("messages"), 0))
    )
    return PublishTimes(
        zones=tuple(_read_spans(zones_table.filter(is_timed))),
        timeless_zones=timeless.num_rows,
        timeless_messages=pc.sum(timeless.column("messages")).as_py() or 0,
        ledgers=len(data),
        recorded_ledgers=len(recorded_keys),
        data_bytes=sum(each.stored_bytes for each in data.values()),
        recorded_bytes=sum(data[each].stored_bytes for each in recorded_keys),
        stale=tuple(sorted((changed_keys - recorded_keys) & data.keys())),
        gone_ledgers=len(changed_keys - data.keys()),
        problems=tuple(dict.fromkeys(problems)),
    )


def _zones(file: ZoneFile, ledgers: pa.Table) -> Answer[list[pa.Table]]:
    """Return the zones of some ledgers of a file; times as µs since the epoch."""
    tables: list[pa.Table] = []
    for groups, rows in file.row_groups_of(ledgers):
        read = file.zones(groups, _COLUMNS)
        zones = pa.table([read.column(name).cast(pa.int64()) for name in _COLUMNS], list(_COLUMNS))
        tables += (zones.slice(*each) for each in rows)
    return Answer(keys_of(ledgers), tables)


def _read_spans(zones: pa.Table) -> Iterator[WriteSpan]:
    columns = (zones.column(name).to_pylist() for name in _COLUMNS)
    for least, greatest, messages, start, stop in zip(*columns, strict=True):
        yield WriteSpan(least / _US_PER_MS, greatest / _US_PER_MS, messages, stop - start)
