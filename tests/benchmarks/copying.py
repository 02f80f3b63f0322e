"""A copy of a topic to plain Parquet, and the same by hand: `to_reader()` and `pyarrow.parquet`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from connector import copy_topics
from connector.tables.file_writer import FileSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.lake.table_copy import TableSummary
    from tests.benchmarks.decoding import StoredLedger

_COMPRESSION = FileSettings.__dataclass_fields__["compression"].default
_numbers = itertools.count()


def copied_columns(stored: StoredLedger) -> list[str]:
    """The columns that both write: those of a copy that names none."""
    return ["__publish_time__", "__ledger_id__", "__entry_id__", "__batch_index__", "__key__"] + [
        name for name in stored.open(typed=True).schema.names if not name.startswith("__")
    ]


def copy(
    stored: StoredLedger, folder: str, with_: Callable[..., list[TableSummary]] = copy_topics
) -> int:
    """Copy a topic to a new table by one of our `copy_topics`; gives the number of rows."""
    assert stored.schema is not None
    type_, definition = stored.schema
    [summary] = with_(
        stored.url,
        stored.topic,
        f"{folder}/copy-{next(_numbers)}",
        format="parquet",
        schema={"type": type_, "data": definition},
    )
    return summary.rows


def by_hand(stored: StoredLedger, folder: str) -> int:
    """Write the same rows to one file; gives their number."""
    path = Path(folder) / f"by-hand-{next(_numbers)}.parquet"
    reader = stored.open(typed=True).scanner(copied_columns(stored)).to_reader()
    rows = 0
    with pq.ParquetWriter(path, reader.schema, compression=_COMPRESSION) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
