"""The latest row of each key in an increment, and the files of a table that may have older ones.

As in Pulsar's compaction, a key belongs to one topic partition, and the row with the greatest
position is the latest. A key of a scalable topic moves to segments with greater ids, so the segment
id precedes the position there.

All keys of an increment are held in memory, with the location of their latest row. Rows are held
for one file at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.tables.dead_letters import POSITION_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connector.tables.table import TableFile
    from connector.tables.transforms import Partitioning

NULL_VALUE: Final = "__null_value__"
"""The column that marks rows which delete their key, unless values are unwrapped."""
SEGMENT_ID: Final = "__segment_id__"
_TEXT: Final = pa.large_string()
"""Type of identities. Those of an increment may exceed 2 GiB, so strings must be large."""
_END: Final = "\n"
"""Separates the number of a topic partition, which cannot contain it, from a key."""


@dataclass(slots=True)
class Identity:
    """Computes the identities of rows: a row replaces an older one with the same identity.

    An identity is a string. It consists of the key, after a number that stands for the row's topic
    partition if rows are of several. A key of several columns has the length of each value before
    it.

    Attributes:
        key_columns: Names of the columns with the key.
        has_text_key: Whether the key is a single column of strings, so that bounds and buckets of
            the column are those of keys.
        scope: Name of the column with a row's topic or partition. None: all rows are of one topic
            partition.
        numbers: The number of each topic partition that has staged rows.
    """

    key_columns: tuple[str, ...]
    has_text_key: bool
    scope: str | None
    numbers: dict[object, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Columns of the table that the identity is computed from."""
        return [*([] if self.scope is None else [self.scope]), *self.key_columns]

    def number_scopes(self, rows: pa.Table) -> None:
        """Assign numbers to the topic partitions of staged rows."""
        if self.scope is not None:
            for each in rows.column(self.scope).unique().to_pylist():
                self.numbers.setdefault(each, len(self.numbers))

    def identify(self, rows: pa.Table) -> pa.LargeStringArray:
        """Return the identity of each row, or null if it has no key or its scope has no number."""
        keys = _keys([rows.column(each) for each in self.key_columns])
        if self.scope is None:
            return keys
        scopes = rows.column(self.scope).combine_chunks().dictionary_encode()
        numbers = (self.numbers.get(each) for each in scopes.dictionary.to_pylist())
        prefixes = pa.array([None if n is None else str(n) for n in numbers], _TEXT)
        return pc.binary_join_element_wise(
            prefixes.take(scopes.indices), keys, pa.scalar(_END, _TEXT)
        )

    def keys(self, identities: pa.LargeStringArray) -> pa.LargeStringArray:
        """Return the keys of identities."""
        if self.scope is None or not len(identities):
            return identities
        return pc.list_element(pc.split_pattern(identities, _END, max_splits=1), 1)

    def ranges(self, file: TableFile) -> Iterable[tuple[str, str, str | None]]:
        """Yield a prefix and the key bounds of each topic partition that a file may have rows of.

        Identities of the topic partition begin with the prefix. A lower bound that is not recorded
        is empty, and an upper one is None.
        """
        bounds = file.bounds if self.has_text_key else {}
        keys = bounds.get(self.key_columns[0], (None, None))
        low, high = (each if isinstance(each, str) else None for each in keys)
        if self.scope is None:
            yield "", low or "", high
            return
        least, greatest = file.bounds.get(self.scope, (None, None))
        for value, number in self.numbers.items():
            # Both values have the type of the column.
            is_below = least is not None and value < least  # type: ignore[operator]
            is_above = greatest is not None and value > greatest  # type: ignore[operator]
            if not is_below and not is_above:
                yield f"{number}{_END}", low or "", high


class LatestRows:
    """The latest row of each key among staged rows.

    Args:
        identity: Computes the identities of rows.
        deletes: Name of the column that marks rows which delete their key.
        has_segments: Whether the rows are those of a scalable topic.

    Attributes:
        keyless: Number of rows without a key, which are left out.
    """

    def __init__(
        self, identity: Identity, *, deletes: str = NULL_VALUE, has_segments: bool = False
    ) -> None:
        self._identity = identity
        self._deletes = deletes
        self._order = (SEGMENT_ID, *POSITION_COLUMNS) if has_segments else POSITION_COLUMNS
        self._tables: list[pa.Table] = []
        self._numbers: dict[str, tuple[int, int]] = {}
        self.keyless = 0

    @property
    def staged_columns(self) -> list[str]:
        """Columns of the rows that `add_file` takes."""
        return [*dict.fromkeys([*self._identity.columns, *self._order, self._deletes])]

    def add_file(self, file: int, rows: pa.Table) -> None:
        """Add the rows of the file with a number: their `staged_columns`, in order."""
        self._identity.number_scopes(rows)
        identities = self._identity.identify(rows)
        self.keyless += identities.null_count
        self._note_numbers(rows)
        columns = {"#identity": identities}
        # Single messages have no batch index, and rows of migrated partitions no segment.
        columns |= {each: pc.fill_null(rows.column(each), -1) for each in self._order}
        columns["#deletes"] = rows.column(self._deletes)
        columns["#file"] = pa.repeat(pa.scalar(file, pa.int32()), len(rows))
        columns["#row"] = _count_up(len(rows))
        table = pa.table(columns)
        self._tables.append(self._keep_latest(table.filter(pc.is_valid(table.column("#identity")))))
        # Merging only when the size has doubled bounds how often a row is sorted.
        first, *rest = self._tables
        if sum(map(len, rest)) >= len(first):
            self._merge()

    def _note_numbers(self, rows: pa.Table) -> None:
        """Extend the bounds of key columns of integers."""
        for name in self._identity.key_columns:
            column = rows.column(name)
            if pa.types.is_integer(column.type) and column.null_count < len(column):
                low, high = pc.min_max(column).as_py().values()
                least, greatest = self._numbers.get(name, (low, high))
                self._numbers[name] = min(low, least), max(high, greatest)

    def _merge(self) -> pa.Table:
        """Merge all tables into one and return it. There must be at least one."""
        if len(self._tables) > 1:
            self._tables = [self._keep_latest(pa.concat_tables(self._tables))]
        return self._tables[0]

    def _keep_latest(self, rows: pa.Table) -> pa.Table:
        """Return the last row in order for each identity, sorted by identity."""
        order = [(each, "ascending") for each in ("#identity", *self._order)]
        ordered = rows.sort_by(order).combine_chunks()
        identities = ordered.column("#identity")
        if len(identities) < 2:  # noqa: PLR2004 - nothing to compare
            return ordered
        is_last = pc.not_equal(identities[:-1], identities[1:]).combine_chunks()
        return ordered.filter(pa.concat_arrays([is_last, pa.array([True])]))

    def select_rows(self, file: int, rows: int) -> pa.BooleanArray:
        """Return a mask of the rows of a file that are the latest of a key that is not deleted."""
        latest = self._merge()
        is_selected = pc.and_not(pc.equal(latest.column("#file"), file), latest.column("#deletes"))
        row_indices = latest.filter(is_selected).column("#row").combine_chunks()
        return pc.is_in(_count_up(rows), value_set=row_indices)

    def positions(self) -> dict[str, tuple[int, ...]]:
        """Return the position of the latest row of each key, including those to delete.

        They are by identity. A missing batch index is −1.
        """
        latest = self._merge()
        columns = (latest.column(each).to_pylist() for each in ("#identity", *self._order))
        return {identity: tuple(rest) for identity, *rest in zip(*columns, strict=True)}

    def keys(self, partitioning: Partitioning) -> KeySet:
        """Return all staged keys, including those to delete."""
        column = self._merge().column("#identity") if self._tables else pa.chunked_array([], _TEXT)
        identities = column.combine_chunks()
        return KeySet(self._identity, identities, partitioning, self._numbers)


class KeySet:
    """Keys whose rows in a table are replaced or removed.

    Args:
        identities: Identities of the keys, ascending and unique.
        partitioning: How the table is partitioned.
        numbers: The minimum and maximum of key columns of integers.
    """

    def __init__(
        self,
        identity: Identity,
        identities: pa.LargeStringArray,
        partitioning: Partitioning,
        numbers: Mapping[str, tuple[int, int]],
    ) -> None:
        self._identity = identity
        self._numbers = numbers
        self._by_bucket: dict[object, pa.LargeStringArray] = {}
        self._identities = identities
        self._field = next(
            (
                each
                for each in partitioning.fields
                if identity.has_text_key
                and each.transform == "bucket"
                and each.source == identity.key_columns[0]
            ),
            None,
        )
        if self._field is not None and len(identities):
            buckets = self._field.values(identity.keys(identities))
            for each in buckets.unique().to_pylist():
                self._by_bucket[each] = identities.filter(pc.equal(buckets, each))

    def __len__(self) -> int:
        return len(self._identities)

    def may_match(self, file: TableFile) -> bool:
        """Return whether a file's bounds and partition allow rows of these keys."""
        for name, (low_number, high_number) in self._numbers.items():
            least, greatest = file.bounds.get(name, (None, None))
            is_above = isinstance(least, int) and least > high_number
            is_below = isinstance(greatest, int) and greatest < low_number
            if is_above or is_below:
                return False
        identities = self._identities_for_file(file)
        for prefix, low, high in self._identity.ranges(file):
            index = bisect_left(
                range(len(identities)), prefix + low, key=lambda n: identities[n].as_py()
            )
            first = identities[index].as_py() if index < len(identities) else None
            if (
                first is not None
                and first.startswith(prefix)
                and (high is None or first <= prefix + high)
            ):
                return True
        return False

    def match_rows(self, file: TableFile, rows: pa.Table) -> pa.BooleanArray:
        """Return a mask of the rows of a file that have one of these keys."""
        return pc.is_in(self._identity.identify(rows), value_set=self._identities_for_file(file))

    def _identities_for_file(self, file: TableFile) -> pa.LargeStringArray:
        if self._field is None or file.partition.get(str(self._field)) is None:
            return self._identities
        return self._by_bucket.get(file.partition[str(self._field)], self._identities[:0])


def _keys(columns: Sequence[pa.ChunkedArray]) -> pa.LargeStringArray:
    """Return the key of each row as text; null if a column is null."""
    texts = [each.cast(_TEXT).combine_chunks() for each in columns]
    if len(texts) == 1:
        return texts[0]
    parts = []
    for each in texts:
        parts += [pc.binary_length(each).cast(_TEXT), each]
    return pc.binary_join_element_wise(*parts, pa.scalar(":", _TEXT))


def _count_up(count: int) -> pa.Int64Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)
