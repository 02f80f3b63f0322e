"""`view="latest"`: the last message of each key, like `readCompacted` in Pulsar's clients.

As in Pulsar's compaction (`TwoPhaseCompactor`), messages without a key are left out, and so are
keys whose last value is null or empty. "Last" is decided by position in the partition, not by time.

A key of a scalable topic moves from a segment to those that it is split or merged into. So all
segments are grouped together, and a greater segment id is later than any ledger id. Partitions of a
topic that was migrated precede all segments.

Topics are read twice. The first pass reads keys and positions of all messages within the bounds.
DuckDB groups them, and spills to files if they exceed the memory limit. The second pass reads only
the entries with latest messages. Filters apply to the latest messages, so only the second pass uses
them.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import every_column, projection
from arrow_io.core.extras import install_command
from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError, StorageError, UnsupportedFormatError
from arrow_io.read_metrics import ReadMetrics
from connector.display.topic_metrics import TopicMetrics
from connector.filters.row_filters import BothFilters
from connector.inputs.topic_names import owning_topics
from connector.scan.scan_units import prefetch_rows
from connector.scan.topic_read import EntryRange
from connector.scan.topic_scan import DEFAULT_TASK_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from connector.inputs.topic_names import TopicName
    from connector.scan.read_options import ReadOptions
    from connector.scan.topic_read import TopicRead
    from connector.scan.topic_scan import Scan

_POSITION: Final = ("__ledger_id__", "__entry_id__", "__batch_index__")
_KEY: Final = "__key__"
_VALUE: Final = "__value__"
_BATCH_BITS: Final = 28
_MAX_ENTRIES: Final = 1 << 34
"""A code has 34 bits for the entry id and 28 for the batch index, so `low` below has 63."""
_GAP_BYTES: Final = 2 << 20
"""Entries that are not needed are read anyway if they take fewer bytes: a second request costs
more."""
_KEYED_SCHEMA: Final = pa.schema({"ledger": pa.int64(), "low": pa.int64(), "key": pa.string()})
"""`ledger` is the ledger id, or the number of the ledger in a scalable topic (`_LedgerNumbers`).
`low` is twice the code of the position in the ledger (`_codes`), plus 1 if there is a value."""
_LEAST_BYTES: Final = 16 << 20
"""Memory that DuckDB needs to group a million keys when it spills rows to files."""
_LATEST: Final = """
    SELECT (code // (1::HUGEINT << 64))::BIGINT AS ledger,
           (code % (1::HUGEINT << 64))::BIGINT // 2 AS code
    FROM (SELECT max((ledger::HUGEINT << 64) + low) AS code FROM messages GROUP BY key)
    WHERE code % 2 = 1
    ORDER BY ALL
"""


class LatestView:
    """The messages that are the last of their keys; found by a first pass on first use.

    Pickled as the scan alone: another process repeats the first pass.

    Args:
        scan: The topics, and how they are read; its columns and filter are ignored.
        memory_bytes: Memory limit for keys and positions; more spills to files.
    """

    def __init__(self, scan: Scan, memory_bytes: int) -> None:
        self._scan = replace(scan, options=_first_pass_options(scan.options))
        self._memory_bytes = memory_bytes
        self._metrics = TopicMetrics()
        self._topics: list[_LatestMessages] | None = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._scan, self._memory_bytes)

    @property
    def metrics(self) -> TopicMetrics:
        """Metrics of the first pass, which runs now unless it has run already.

        Raises:
            PulsarOffloadError: See `narrow`.
        """
        self._latest_messages()
        return self._metrics

    def count(self) -> int:
        """Return the number of latest messages in all topics.

        Raises:
            PulsarOffloadError: See `narrow`.
        """
        return sum(each.count for each in self._latest_messages())

    def narrow(self, number: int, read: TopicRead) -> TopicRead:
        """Return the read of topic `number` of the scan, narrowed to the latest messages.

        Raises:
            OptionError: DuckDB is not installed.
            PulsarOffloadError: The keys cannot be read.
        """
        messages = self._latest_messages()[number]
        ranges = [part for each in read.ranges for part in messages.ranges(read, each)]
        names = {own: name for name, own in read.options.filterable.columns}
        latest = PositionFilter(tuple(names[name] for name in _POSITION), messages.codes)
        requested_filter = read.options.row_filter
        row_filter = latest if requested_filter is None else BothFilters(latest, requested_filter)
        options = replace(read.options, row_filter=row_filter)
        return replace(read, ranges=tuple(ranges), options=options)

    def _latest_messages(self) -> list[_LatestMessages]:
        with self._lock:
            if self._topics is None:
                metrics = TopicMetrics()
                reads = self._scan.reads_by_topic()
                found: dict[int, _LatestMessages] = {}
                for numbers in self._groups():
                    each = self._read_keys([reads[number] for number in numbers], metrics)
                    found |= zip(numbers, each, strict=True)
                self._topics = [found[number] for number in range(len(reads))]
                self._metrics = metrics
            return self._topics

    def _groups(self) -> list[list[int]]:
        """Return the numbers of the scan's topics, those of one scalable topic together."""
        names = [each.topic for each in self._scan.topics]
        owners = owning_topics(names)
        groups: dict[TopicName, list[int]] = {}
        for number, name in enumerate(names):
            owner = owners[name] if owners[name].is_scalable else name
            groups.setdefault(owner, []).append(number)
        return list(groups.values())

    def _read_keys(
        self, reads_by_topic: Sequence[Sequence[TopicRead]], metrics: TopicMetrics
    ) -> list[_LatestMessages]:
        """Return the latest messages of partitions or segments that share their keys."""
        numbers = _LedgerNumbers(reads_by_topic) if len(reads_by_topic) > 1 else None
        reading = ReadMetrics()

        def keyed_batches() -> Generator[pa.RecordBatch]:
            for topic, reads in enumerate(reads_by_topic):
                tasks = [task for read in reads for task in read.tasks(DEFAULT_TASK_BYTES)]
                with closing(prefetch_rows(tasks, reading)) as batches:
                    for each in batches:
                        keyed = _select_keyed(each, metrics)
                        yield keyed if numbers is None else numbers.assign(topic, keyed)

        if not any(reads_by_topic):
            return [_LatestMessages({})] * len(reads_by_topic)
        with closing(keyed_batches()) as batches:
            codes = _codes_by_ledger(_latest(batches, self._memory_bytes))
        metrics.add(replace(reading, rows=0))
        if numbers is None:
            return [_LatestMessages(codes, reaches_tail=reading.ended_beyond > 0)]
        return [_LatestMessages(each) for each in numbers.split(codes)]


class _LedgerNumbers:
    """Numbers of the ledgers of a scalable topic, in the order of its rows.

    Partitions of a migrated topic are in the order of their ledger ids: nothing else orders them.

    Args:
        reads_by_topic: The reads of each partition and segment.
    """

    def __init__(self, reads_by_topic: Sequence[Sequence[TopicRead]]) -> None:
        places = [
            (-1 if read.origin.segment_id is None else read.origin.segment_id, ledger_id, topic)
            for topic, reads in enumerate(reads_by_topic)
            for read in reads
            for ledger_id in sorted({each.ledger_id for each in read.ledgers})
        ]
        self._topics = len(reads_by_topic)
        self._places = sorted(places)
        ids: list[list[int]] = [[] for _ in reads_by_topic]
        numbers: list[list[int]] = [[] for _ in reads_by_topic]
        for number, (_, ledger_id, topic) in enumerate(self._places):
            ids[topic].append(ledger_id)
            numbers[topic].append(number)
        self._ids = [pa.array(each, pa.int64()) for each in ids]
        self._numbers = [pa.array(each, pa.int64()) for each in numbers]

    def assign(self, topic: int, keyed: pa.RecordBatch) -> pa.RecordBatch:
        """Return messages of a topic, in `_KEYED_SCHEMA`, with numbers instead of ledger ids."""
        indices = pc.index_in(keyed.column("ledger"), value_set=self._ids[topic])
        return keyed.set_column(0, "ledger", self._numbers[topic].take(indices))

    def split(self, codes: Mapping[int, pa.Int64Array]) -> list[dict[int, pa.Int64Array]]:
        """Return the codes by ledger number as codes by ledger id, for each topic."""
        parts: list[dict[int, pa.Int64Array]] = [{} for _ in range(self._topics)]
        for number, each in codes.items():
            _, ledger_id, topic = self._places[number]
            parts[topic][ledger_id] = each
        return parts


@dataclass(frozen=True, slots=True)
class PositionFilter:
    """A filter that matches the messages at some positions.

    Attributes:
        columns: Names of the columns of the ledger id, the entry id and the batch index.
        codes: The positions in each ledger, as ascending codes of entry and batch index (`_codes`).
    """

    columns: tuple[str, ...]
    codes: Mapping[int, pa.Int64Array]

    literals: ClassVar[tuple[pa.Scalar, ...]] = ()

    def matching_rows(self, batch: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices of the rows that match, ascending."""
        ledger_ids, entry_ids, batch_indexes = (batch.column(name) for name in self.columns)
        own = _codes(entry_ids, batch_indexes)
        rows = [
            _matching_row_numbers(pc.equal(ledger_ids, ledger_id), own, self.codes[ledger_id])
            for ledger_id in pc.unique(ledger_ids).to_pylist()
            if ledger_id in self.codes
        ]
        return pa.concat_arrays(rows) if rows else pa.array([], pa.int64())

    def can_match(self, guarantees: Sequence[pc.Expression], schema: pa.Schema) -> list[bool]:
        """Return True for each guarantee: positions were already used to narrow the ranges."""
        del schema
        return [True] * len(guarantees)


@dataclass(frozen=True, slots=True)
class _LatestMessages:
    """The latest messages of a topic.

    Attributes:
        codes: Their codes (`_codes`) by ledger id, ascending.
        reaches_tail: Whether a message begins in the bucket and ends in the live tail.
    """

    codes: dict[int, pa.Int64Array]
    reaches_tail: bool = False

    @property
    def count(self) -> int:
        return sum(map(len, self.codes.values()))

    def ranges(self, read: TopicRead, entry_range: EntryRange) -> Iterator[EntryRange]:
        """Yield the parts of a range that contain latest messages.

        Gaps that are cheaper to read than to skip are included. If a message ends in the live tail,
        the whole range is needed.
        """
        if self.reaches_tail:
            yield entry_range
            return
        codes = self.codes.get(entry_range.ledger_id)
        if codes is None:
            return
        entries = pc.unique(pc.shift_right(codes, _BATCH_BITS))
        inside = pc.and_(
            pc.greater_equal(entries, entry_range.first_entry_id),
            pc.less_equal(entries, entry_range.last_entry_id),
        )
        entries = entries.filter(inside)
        if not len(entries):
            return
        ledger = read.ledger(entry_range.ledger_id)
        extents = ledger.extents(entry_range.first_entry_id, entry_range.last_entry_id)
        size_bytes = sum(stop - start for start, stop in extents)
        count = entry_range.last_entry_id - entry_range.first_entry_id + 1
        gap = _GAP_BYTES * count // max(size_bytes, 1)
        is_far = pc.greater(pc.subtract(entries[1:], entries[:-1]), gap)
        firsts = pa.concat_arrays([entries[:1], entries[1:].filter(is_far)])
        lasts = pa.concat_arrays([entries[:-1].filter(is_far), entries[-1:]])
        for first, last in zip(firsts.to_pylist(), lasts.to_pylist(), strict=True):
            yield EntryRange(entry_range.ledger_id, first, last)


def _first_pass_options(options: ReadOptions) -> ReadOptions:
    return replace(
        options,
        projection=projection([*_POSITION, _KEY, _VALUE]),
        filterable=every_column(),
        row_filter=None,
    )


def _codes_by_ledger(latest: pa.Table) -> dict[int, pa.Int64Array]:
    """Return the codes of each ledger, from a table of ledgers and codes sorted by both."""
    ledgers, codes = (latest.column(name).combine_chunks() for name in ("ledger", "code"))
    runs = pc.run_end_encode(ledgers)
    stretches = pairwise([0, *runs.run_ends.to_pylist()])
    return {
        ledger_id: codes[start:stop]
        for ledger_id, (start, stop) in zip(runs.values.to_pylist(), stretches, strict=True)
    }


def _select_keyed(batch: pa.RecordBatch, metrics: TopicMetrics) -> pa.RecordBatch:
    """Return the messages that have a key, in `_KEYED_SCHEMA`.

    Raises:
        UnsupportedFormatError: A ledger has too many entries, or an entry too many messages, for a
            code of 64 bits.
    """
    metrics.keyless += batch.column(_KEY).null_count
    batch = batch.filter(pc.is_valid(batch.column(_KEY)))
    ledgers, entries, batches = (batch.column(name) for name in _POSITION)
    if batch.num_rows and (
        pc.max(entries).as_py() >= _MAX_ENTRIES
        or (pc.max(batches).as_py() or 0) >= (1 << _BATCH_BITS) - 1
    ):
        message = (
            "the ledger has too many entries, or an entry has too many messages, for"
            f" {option_name('view', 'latest')}: read it with {option_name('view', 'all')}"
        )
        raise UnsupportedFormatError(message, ledger_id=pc.max(ledgers).as_py())
    has_value = pc.fill_null(
        pc.greater(pc.binary_length(batch.column(_VALUE)), 0), fill_value=False
    )
    low = pc.add(pc.shift_left(_codes(entries, batches), 1), has_value.cast(pa.int64()))
    return pa.record_batch([ledgers, low, batch.column(_KEY)], schema=_KEYED_SCHEMA)


def _codes(entry_ids: pa.Int64Array, batch_indexes: pa.Int32Array) -> pa.Int64Array:
    """Return one number per position in a ledger, in order; null batch indexes sort first."""
    members = pc.add(pc.fill_null(batch_indexes.cast(pa.int64()), -1), 1)
    return pc.add(pc.shift_left(entry_ids, _BATCH_BITS), members)


def _matching_row_numbers(
    is_in_ledger: pa.BooleanArray, codes: pa.Int64Array, latest_codes: pa.Int64Array
) -> pa.Int64Array:
    """Return the rows of a ledger whose codes are among the latest, as ascending indices."""
    numbers = pc.indices_nonzero(is_in_ledger).cast(pa.int64())
    ledger_codes = codes.take(numbers)
    # A hash table of all latest codes would be large; only codes in the batch's range can match.
    ends = pc.min_max(ledger_codes)
    first = bisect_left(latest_codes, ends["min"].as_py(), key=_as_int)
    last = bisect_right(latest_codes, ends["max"].as_py(), key=_as_int)
    return numbers.filter(pc.is_in(ledger_codes, value_set=latest_codes[first:last]))


def _as_int(scalar: pa.Scalar) -> int:
    number: int = scalar.as_py()
    return number


def _latest(batches: Iterator[pa.RecordBatch], memory_bytes: int) -> pa.Table:
    """Return `ledger` and `code` of the last message of each key, sorted by both.

    Keys whose last value is null or empty are left out.

    Raises:
        OptionError: DuckDB is not installed, or the memory limit is too low.
        StorageError: Spill files cannot be written.
        PulsarOffloadError: The messages cannot be read.
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        message = f"{option_name('view', 'latest')} needs DuckDB: {install_command('duckdb')}"
        raise OptionError(message) from None
    failures: list[BaseException] = []

    def keyed_batches() -> Iterator[pa.RecordBatch]:
        # DuckDB would replace any error with one of its own.
        try:
            yield from batches
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    reader = pa.RecordBatchReader.from_batches(_KEYED_SCHEMA, keyed_batches())
    try:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
            connection.execute("SET memory_limit = ?", [f"{memory_bytes}B"])
            connection.execute("SET temp_directory = ?", [folder])
            connection.execute("SET preserve_insertion_order = false")
            # Each thread needs memory of its own, even for few keys.
            [(threads,)] = connection.execute("SELECT current_setting('threads')").fetchall()
            threads = max(1, min(threads, memory_bytes // _LEAST_BYTES))
            connection.execute("SET threads = ?", [threads])
            connection.register("messages", reader)
            latest = connection.sql(_LATEST).to_arrow_table()
    except duckdb.OutOfMemoryException:
        enough = max(_LEAST_BYTES, 2 * memory_bytes)
        message = (
            f"{option_name('view_bytes', memory_bytes)} is too little for the keys: try {enough}"
        )
        raise OptionError(message) from None
    except duckdb.Error as error:
        message = f"DuckDB cannot group the keys for {option_name('view', 'latest')}: {error}"
        raise StorageError(message) from None
    if failures:
        raise failures[0]
    return latest
