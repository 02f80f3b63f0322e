"""Of rows in any order the latest of each key, and which files of a table may have older ones.

A key is one of one topic partition, as in Pulsar's own compaction, and the position of a message
there decides. All keys of an increment are held at once, with the place of their latest row; of the
rows, no more than those of one file.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from connector.lake.dead_letters import POSITION_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.lake.table import TableFile
    from connector.lake.transforms import Partitioning

NULL_VALUE: Final = "__null_value__"
"""The column that says which rows remove that of their key."""
_TEXT: Final = pa.large_string()
"""The texts of an increment may have more than 2 GiB together."""
_END: Final = "\n"
"""Stands between the number of a topic partition and a key, of which the number has none."""


@dataclass(slots=True)
class Identity:
    """What a row is told apart by, as a text: rows have the same if one replaces the other.

    Attributes:
        key: Name of the column that has the keys.
        scope: Of the one that has topics or partitions; None: all rows are of one topic partition.
        numbers: A number for each topic partition that rows were staged of.
    """

    key: str
    scope: str | None
    numbers: dict[object, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Columns of the table that it is made of."""
        return [self.key] if self.scope is None else [self.scope, self.key]

    def learn(self, rows: pa.Table) -> None:
        """Number the topic partitions of staged rows."""
        if self.scope is not None:
            for each in rows.column(self.scope).unique().to_pylist():
                self.numbers.setdefault(each, len(self.numbers))

    def texts(self, rows: pa.Table) -> pa.LargeStringArray:
        """Those of rows; null if there is no key, or nothing was staged of the topic partition."""
        keys = rows.column(self.key).cast(_TEXT).combine_chunks()
        if self.scope is None:
            return keys
        scopes = rows.column(self.scope).combine_chunks().dictionary_encode()
        numbers = (self.numbers.get(each) for each in scopes.dictionary.to_pylist())
        texts = pa.array([None if n is None else str(n) for n in numbers], _TEXT)
        return pc.binary_join_element_wise(texts.take(scopes.indices), keys, pa.scalar(_END, _TEXT))

    def keys(self, texts: pa.LargeStringArray) -> pa.LargeStringArray:
        """The keys of texts."""
        if self.scope is None or not len(texts):
            return texts
        return pc.list_element(pc.split_pattern(texts, _END, max_splits=1), 1)

    def ranges(self, file: TableFile) -> Iterable[tuple[str, str, str | None]]:
        """For each topic partition that a file may have rows of: a prefix, and bounds behind it.

        They are those of the keys; the upper one is None if it is not known.
        """
        keys = file.bounds.get(self.key, (None, None))
        low, high = (each if isinstance(each, str) else None for each in keys)
        if self.scope is None:
            yield "", low or "", high
            return
        least, greatest = file.bounds.get(self.scope, (None, None))
        for value, number in self.numbers.items():
            # Of one type, which the column has.
            is_below = least is not None and value < least  # type: ignore[operator]
            is_above = greatest is not None and value > greatest  # type: ignore[operator]
            if not is_below and not is_above:
                yield f"{number}{_END}", low or "", high


class LatestRows:
    """Of staged rows, the latest of each key.

    Args:
        identity: What tells rows apart.

    Attributes:
        keyless: How many rows have no key: they are none of these.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._tables: list[pa.Table] = []
        self.keyless = 0

    @property
    def staged_columns(self) -> list[str]:
        """What `add_file` has to be given of each row."""
        return [*dict.fromkeys([*self._identity.columns, *POSITION_COLUMNS, NULL_VALUE])]

    def add_file(self, file: int, rows: pa.Table) -> None:
        """Take the rows of a file, in their order there.

        Args:
            file: Number of the file.
            rows: Its `staged_columns`.
        """
        self._identity.learn(rows)
        texts = self._identity.texts(rows)
        self.keyless += texts.null_count
        columns = {"#text": texts}
        columns |= {each: rows.column(each) for each in POSITION_COLUMNS}
        columns["__batch_index__"] = pc.fill_null(columns["__batch_index__"], -1)
        columns[NULL_VALUE] = rows.column(NULL_VALUE)
        columns["#file"] = pa.repeat(pa.scalar(file, pa.int32()), len(rows))
        columns["#row"] = _count_up(len(rows))
        table = pa.table(columns)
        self._tables.append(_keep_latest(table.filter(pc.is_valid(table.column("#text")))))
        # Sorted when it has doubled, each row is sorted a few times at the most.
        first, *rest = self._tables
        if sum(map(len, rest)) >= len(first):
            self._merge()

    def _merge(self) -> pa.Table:
        """All that was looked at, of which there is something, as one table."""
        if len(self._tables) > 1:
            self._tables = [_keep_latest(pa.concat_tables(self._tables))]
        return self._tables[0]

    def select_rows(self, file: int, rows: int) -> pa.BooleanArray:
        """Which rows of a file the table gets.

        Args:
            file: Number of the file.
            rows: How many rows it has.
        """
        latest = self._merge()
        is_selected = pc.and_not(pc.equal(latest.column("#file"), file), latest.column(NULL_VALUE))
        row_indices = latest.filter(is_selected).column("#row").combine_chunks()
        return pc.is_in(_count_up(rows), value_set=row_indices)

    def keys(self, partitioning: Partitioning) -> KeySet:
        """All keys that were staged, be it to be removed.

        Args:
            partitioning: How the table is divided.
        """
        column = self._merge().column("#text") if self._tables else pa.chunked_array([], _TEXT)
        texts = column.combine_chunks()
        return KeySet(self._identity, texts, partitioning)


class KeySet:
    """Keys whose rows in a table are replaced, or removed.

    Args:
        identity: What tells rows apart.
        texts: Those of the keys, ascending, each once.
        partitioning: How the table is divided.
    """

    def __init__(
        self, identity: Identity, texts: pa.LargeStringArray, partitioning: Partitioning
    ) -> None:
        self._identity = identity
        self._by_bucket: dict[object, pa.LargeStringArray] = {}
        self._texts = texts
        self._field = next(
            (
                each
                for each in partitioning.fields
                if each.transform == "bucket" and each.source == identity.key
            ),
            None,
        )
        if self._field is not None and len(texts):
            buckets = self._field.values(identity.keys(texts))
            for each in buckets.unique().to_pylist():
                self._by_bucket[each] = texts.filter(pc.equal(buckets, each))

    def __len__(self) -> int:
        return len(self._texts)

    def may_match(self, file: TableFile) -> bool:
        """Whether a file may have rows of these keys, by what the table says of it."""
        texts = self._texts_for_file(file)
        for prefix, low, high in self._identity.ranges(file):
            index = bisect_left(range(len(texts)), prefix + low, key=lambda n: texts[n].as_py())
            first = texts[index].as_py() if index < len(texts) else None
            if (
                first is not None
                and first.startswith(prefix)
                and (high is None or first <= prefix + high)
            ):
                return True
        return False

    def match_rows(self, file: TableFile, rows: pa.Table) -> pa.BooleanArray:
        """Which rows of a file have one of these keys.

        Args:
            file: The file.
            rows: The columns of the identity.
        """
        return pc.is_in(self._identity.texts(rows), value_set=self._texts_for_file(file))

    def _texts_for_file(self, file: TableFile) -> pa.LargeStringArray:
        if self._field is None or file.partition.get(str(self._field)) is None:
            return self._texts
        return self._by_bucket.get(file.partition[str(self._field)], self._texts[:0])


def _count_up(count: int) -> pa.Int64Array:
    """0, 1, 2 and so on."""
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)


def _keep_latest(rows: pa.Table) -> pa.Table:
    """The last row of each text by its position, in the order of the texts."""
    order = [(each, "ascending") for each in ("#text", *POSITION_COLUMNS)]
    ordered = rows.sort_by(order).combine_chunks()
    texts = ordered.column("#text")
    if len(texts) < 2:  # noqa: PLR2004 - no two to be compared
        return ordered
    is_last = pc.not_equal(texts[:-1], texts[1:]).combine_chunks()
    return ordered.filter(pa.concat_arrays([is_last, pa.array([True])]))
