"""A catalog as Arrow tables: one row per topic, ledger, data block, zone or object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.wording import counted
from arrow_io.errors import UnusedStatisticsWarning
from arrow_io.format.index_block import CLUSTER_NAME_KEY
from connector.display.warnings import warn_of_read
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.statistics.data_objects import DataObjects
from connector.statistics.store import UNUSABLE, open_existing_statistics
from connector.statistics.zones import ZONE_SCHEMA

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from arrow_io.format.object_names import PairName
    from arrow_io.ledgers.open_ledger import OpenLedger
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.catalog import Catalog
    from connector.catalog.kinds.ledger_copy import StoredPair
    from connector.catalog.topic_ledgers import TopicLedger, TopicLedgers
    from connector.inputs.topic_names import AnyTopic
    from connector.statistics.zone_files import ZoneFile

Row: TypeAlias = dict[str, Any]
"""A row of a table, by column name."""

_INTEGER = pa.int64()
_MAX_INTEGER = 2**63 - 1
_TIME = pa.timestamp("us", "UTC")
TEXTS = pa.list_(pa.string())

TOPIC_SCHEMA = pa.schema(
    {"topic": pa.string()}
    | dict.fromkeys(
        (
            "partitions",
            "segments",
            "ledgers",
            "entries",
            "bytes",
            "pending_ledgers",
            "pending_entries",
            "unlisted_ledgers",
            "unsound",
        ),
        _INTEGER,
    )
    | {"problems": TEXTS}
)
"""One row per topic, all partitions or segments together. `ledgers`, `entries` and `bytes` (of data
objects) count the readable ledgers. Pending ledgers follow those and are in BookKeeper only.
Unlisted ledgers are in the bucket, but the metadata, which may be older, does not have them as
offloaded. Both are null without metadata. `unsound` counts what cannot be read, and `problems` say
why."""

LEDGER_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": _INTEGER,
        "segment_id": _INTEGER,
        "ledger_id": _INTEGER,
        "state": pa.string(),
        "entries": _INTEGER,
        "first_entry_id": _INTEGER,
        "last_entry_id": _INTEGER,
        "blocks": _INTEGER,
        "bytes": _INTEGER,
        "entry_bytes": _INTEGER,
        "created": _TIME,
        "closed": _TIME,
        "offloaded": _TIME,
        "uuid": pa.string(),
        "copies": _INTEGER,
        "driver": pa.string(),
        "bucket": pa.string(),
        "cluster": pa.string(),
        "warnings": TEXTS,
        "problems": TEXTS,
    }
)
"""One row per ledger, ascending by ledger id: its state
(`connector.catalog.topic_ledgers.LedgerState`), its entries (both ends inclusive), the bytes of the
data object and of the entries alone, when it was created, closed and offloaded, and to which
bucket. The metadata has the entries and their bytes even of a ledger that is not in the bucket.
Unknown values are null."""

BLOCK_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": _INTEGER,
        "segment_id": _INTEGER,
        "ledger_id": _INTEGER,
        "block": _INTEGER,
        "first_entry_id": _INTEGER,
        "last_entry_id": _INTEGER,
        "offset": _INTEGER,
        "bytes": _INTEGER,
        "object": pa.string(),
    }
)
"""One row per data block: its number in the ledger, from 0, its entries (both ends inclusive), and
its byte range in the data object, including header and padding."""

OBJECT_SCHEMA = pa.schema(
    {
        "object": pa.string(),
        "kind": pa.string(),
        "topic": pa.string(),
        "partition": _INTEGER,
        "segment_id": _INTEGER,
        "ledger_id": _INTEGER,
        "uuid": pa.string(),
        "bytes": _INTEGER,
        "modified": _TIME,
    }
)
"""One row per object of the bucket. The kind is `data` or `index` for objects of a ledger, or of a
segment of streaming offload (PIP-76), which has no ledger id. `streaming` is the data of a segment
without an index object. `checksums` are the `.crc` files of a MapFile. `foreign` objects have names
that no offloader of Pulsar writes."""


RECORDED_ZONE_SCHEMA = pa.schema(
    [each for each in ZONE_SCHEMA if each.name != "keys"] + [pa.field("is_current", pa.bool_())]
)
"""One row per zone, by topic, ledger id and entry: the recorded statistics
(`connector.statistics.zones`) without the Bloom filter of its keys. `is_current` is whether they
were recorded from the object that is in the bucket now; reads ignore other zones."""


def counted_topics(topics: Iterable[TopicName]) -> str:
    """Return the number of topics, partitions and segments in words.

    A partitioned or scalable topic counts once, and so does one that was migrated.

    Example:
        >>> counted_topics(map(TopicName.parse, ["a", "b-partition-0", "b-partition-1"]))
        '2 topics with 2 partitions'
    """
    each = set(topics)
    partitions = sum(topic.partition >= 0 for topic in each)
    segments = sum(topic.segment is not None for topic in each)
    text = counted(len({topic.classic for topic in each}), "topic")
    parts = [counted(partitions, "partition")] if partitions else []
    parts += [counted(segments, "segment")] if segments else []
    return f"{text} with {' and '.join(parts)}" if parts else text


def topics_table(catalog: Catalog, topic: str | Sequence[str] | None = None) -> pa.Table:
    """Return the topics that names or globs select, in `TOPIC_SCHEMA`; None selects all.

    Raises:
        OptionError: A value of `topic` is not a name or glob.
        TopicNotFoundError: A name or glob selects no topic.
        PulsarOffloadError: The metadata or an index object cannot be read.
    """
    partitions: dict[str, list[TopicLedgers]] = {}
    for each in _select(catalog, topic):
        partitions.setdefault(str(each.topic.base), []).append(each)
    rows = [_topic_row(name, parts) for name, parts in partitions.items()]
    return table_of(rows, TOPIC_SCHEMA)


def ledgers_table(catalog: Catalog, topic: str | Sequence[str] | None = None) -> pa.Table:
    """Return the ledgers of topics, in `LEDGER_SCHEMA`; see `topics_table`."""
    rows = [_ledger_row(each, ledger) for each in _select(catalog, topic) for ledger in each.states]
    return table_of(rows, LEDGER_SCHEMA)


def blocks_table(catalog: Catalog, topic: str | Sequence[str] | None = None) -> pa.Table:
    """Return the data blocks of topics, in `BLOCK_SCHEMA`; see `topics_table`."""
    rows = [
        row
        for each in _select(catalog, topic)
        for ledger in each.ledgers
        for row in _block_rows(each, ledger)
    ]
    return table_of(rows, BLOCK_SCHEMA)


def objects_table(catalog: Catalog, topic: str | Sequence[str] | None = None) -> pa.Table:
    """Return the objects of the bucket, in `OBJECT_SCHEMA`; see `topics_table`.

    With `topic`, only objects of ledgers of these topics.
    """
    selected = None if topic is None else set(catalog.select_names(topic, segments="all"))
    contents = catalog.contents
    rows = [row for pair in contents.pairs for row in _object_rows(pair)]
    for each in contents.unfinished:
        if each.name.ledger_id is None:
            rows.append(_object_row(each.data, "streaming"))
            continue
        # Without a request, only a path names the topic.
        topic_name = catalog.unfinished.topic(each.name) if each.name.managed_ledger else None
        owner = _owner(each.name, topic_name)
        rows.append(_object_row(each.data, "data") | owner)
        rows += [_object_row(info, "checksums") | owner for info in each.checksums]
    rows += [_object_row(info, "foreign") for info in contents.foreign]
    if selected is not None:
        selected_names = {(str(each), each.partition) for each in selected}
        rows = [row for row in rows if (row["topic"], row["partition"]) in selected_names]
    rows.sort(key=lambda row: row["object"])
    return table_of(rows, OBJECT_SCHEMA)


def zones_table(
    catalog: Catalog,
    statistics: str | os.PathLike[str],
    topic: str | Sequence[str] | None = None,
) -> pa.Table:
    """Return the zones in statistics of topics, in `RECORDED_ZONE_SCHEMA`.

    If `topic` is None, return all in the statistics, even of topics that are not in the catalog.
    Warns with `UnusedStatisticsWarning` if a file of the statistics, which are opened with the
    storage options of the catalog, cannot be used.

    Raises:
        OptionError: A value of `topic` is not a name or glob, or `statistics` is not a folder or
            URL.
        TopicNotFoundError: A name or glob selects no topic.
        PulsarOffloadError: The metadata, an index object or the statistics cannot be read.
    """
    topics = _select(catalog, topic)
    location = catalog.location
    store = open_existing_statistics(statistics, location.storage_options, trace=location.trace)
    objects = DataObjects((str(each.topic), ledger) for each in topics for ledger in each.data)
    problems = list(store.problems)
    tables = [RECORDED_ZONE_SCHEMA.empty_table()]
    names = pa.array((str(each.topic) for each in topics), pa.string())
    for file in store.files:
        ledgers = file.ledgers
        if topic is not None:
            ledgers = ledgers.filter(pc.is_in(ledgers.column("topic"), value_set=names))
        try:
            tables += _zones_of(file, ledgers, objects)
        except UNUSABLE as error:
            problems.append(str(error))
    for problem in problems:
        warn_of_read(problem, UnusedStatisticsWarning)
    order = ("topic", "ledger_id", "first_entry_id")
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in order])


TABLES: Mapping[str, Callable[[Catalog, str | Sequence[str] | None], pa.Table]] = {
    "topics": topics_table,
    "ledgers": ledgers_table,
    "blocks": blocks_table,
    "objects": objects_table,
}
"""Every table that needs the catalog alone, by name."""


def table_of(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table. Characters that UTF-8 cannot encode become question marks."""
    return pa.Table.from_pylist([_encodable(row) for row in rows], schema)


def _encodable(value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {name: _encodable(each) for name, each in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list) else value


def _select(catalog: Catalog, topic: str | Sequence[str] | None) -> list[TopicLedgers]:
    if topic is None:
        return catalog.every_ledger()
    return catalog.ledgers_of(catalog.select_names(topic, segments="all"))


def _topic_row(name: str, parts: Sequence[TopicLedgers]) -> Row:
    ledgers = [ledger for part in parts for ledger in part.ledgers]
    pending = [ledger for part in parts for ledger in part.pending]
    problems = [problem for part in parts for problem in problems_of(part)]
    has_metadata = any(part.metadata is not None for part in parts)
    return {
        "topic": name,
        "partitions": sum(part.topic.partition >= 0 for part in parts),
        "segments": sum(part.topic.segment is not None for part in parts),
        "ledgers": len(ledgers),
        "entries": _storable(sum(ledger.entry_count for ledger in ledgers)),
        "bytes": _storable(sum(ledger.data.stored_bytes for ledger in ledgers)),
        "pending_ledgers": len(pending) if has_metadata else None,
        "pending_entries": (
            _storable(sum(ledger.entries or 0 for ledger in pending)) if has_metadata else None
        ),
        "unlisted_ledgers": sum(len(part.unknown) for part in parts) if has_metadata else None,
        "unsound": len(problems),
        "problems": problems,
    }


def _zones_of(file: ZoneFile, ledgers: pa.Table, objects: DataObjects) -> list[pa.Table]:
    columns = RECORDED_ZONE_SCHEMA.names[:-1]
    parts = []
    for groups, rows in file.row_groups_of(ledgers):
        zones = file.zones(groups, columns).select(columns)
        parts += [zones.slice(*each) for each in rows]
    are_current = objects.are_same(ledgers)
    return [
        part.append_column("is_current", pa.repeat(is_current, part.num_rows))
        for part, is_current in zip(parts, are_current.to_pylist(), strict=True)
    ]


def _storable(number: int) -> int:
    """Clamp a number to the maximum of a column: sums over hostile ledgers are unbounded."""
    return min(number, _MAX_INTEGER)


def problems_of(topic: TopicLedgers) -> list[str]:
    """Return the reasons why parts of a topic cannot be read, in words."""
    lost_entries = [problem for ledger in topic.ledgers for problem in _lost_entries(ledger)]
    return [*map(str, topic.problems), *lost_entries]


def _ledger_row(topic: TopicLedgers, ledger: TopicLedger) -> Row:
    row: Row = {
        "topic": str(topic.topic),
        "partition": topic.topic.partition,
        "segment_id": topic.topic.segment_id,
        "ledger_id": ledger.ledger_id,
        "state": ledger.state.value,
        "entries": None if ledger.entries is None else _storable(ledger.entries),
        "copies": len(ledger.others) + (ledger.copy is not None),
        "warnings": [],
        "problems": [str(ledger.error)] if ledger.error else [],
    }
    if ledger.info is not None:
        row["entry_bytes"] = ledger.info.size_bytes
        row["closed"] = _optional_time(ledger.info.timestamp_ms)
        offload = ledger.info.offload
        if offload is not None:
            row |= {"driver": offload.driver, "bucket": offload.bucket or offload.base_path}
            row |= {"uuid": str(offload.uuid) if offload.uuid else None}
            row["offloaded"] = _optional_time(offload.timestamp_ms)
    if ledger.copy is not None:
        row["uuid"] = str(ledger.copy.name.uuid)
        row["bytes"] = ledger.copy.data_bytes
        row["offloaded"] = row.get("offloaded") or ledger.copy.modified
        if ledger.copy.ledger is not None:
            row |= _index_row(ledger.copy.ledger)
            row["problems"] += _lost_entries(ledger.copy.ledger)
    return row


def _index_row(ledger: OpenLedger) -> Row:
    """Return the columns that come from the index object of a ledger."""
    metadata = ledger.ledger_metadata
    return {
        "first_entry_id": 0,
        "last_entry_id": ledger.last_entry_id,
        "blocks": sum(part.block_count for part in ledger.parts),
        "entry_bytes": ledger.length_bytes,
        "created": None if metadata is None else _optional_time(metadata.ctime_ms),
        "cluster": (ledger.user_metadata or {}).get(CLUSTER_NAME_KEY),
        "warnings": list(ledger.warnings),
    }


def _lost_entries(ledger: OpenLedger) -> list[str]:
    first = ledger.parts[-1].missing_from_entry_id
    if first is None:
        return []
    lost = f"entries {first} … {ledger.last_entry_id} were lost when the ledger was offloaded"
    return [f"{lost} (ledger {ledger.ledger_id})"]


def _block_rows(topic: TopicLedgers, ledger: OpenLedger) -> Iterable[Row]:
    blocks = (
        (part, block)
        for part in ledger.parts
        for block in part.blocks(part.first_entry_id, part.last_entry_id)
    )
    for number, (part, block) in enumerate(blocks):
        yield {
            "topic": str(topic.topic),
            "partition": topic.topic.partition,
            "segment_id": topic.topic.segment_id,
            "ledger_id": ledger.ledger_id,
            "block": number,
            "first_entry_id": block.first_entry_id,
            "last_entry_id": block.last_entry_id,
            "offset": block.start,
            "bytes": block.stop - block.start,
            "object": part.data_name,
        }


def _object_rows(pair: StoredPair) -> Iterator[Row]:
    owner = _owner(pair.name, pair.topic)
    kinds = {pair.index.name: "index", pair.name.data_name: "data"}
    for info in pair.objects:
        yield _object_row(info, kinds.get(info.name, "checksums")) | owner


def _owner(name: PairName, topic: AnyTopic | None) -> Row:
    owner: Row = {"uuid": str(name.uuid), "ledger_id": name.ledger_id}
    if topic is not None:
        owner["topic"] = str(topic)
    if isinstance(topic, TopicName):
        owner |= {"partition": topic.partition, "segment_id": topic.segment_id}
    return owner


def _object_row(info: ObjectInfo, kind: str) -> Row:
    return {
        "object": info.name,
        "kind": kind,
        "topic": None,
        "partition": None,
        "ledger_id": None,
        "uuid": None,
        "bytes": info.size_bytes,
        "modified": info.modified,
    }


def _optional_time(milliseconds: int | None) -> datetime | None:
    """Return a time that Pulsar recorded; it records 0 for an unknown time."""
    return time_of(milliseconds) if milliseconds else None
