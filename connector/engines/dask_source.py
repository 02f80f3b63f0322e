"""Topics in Dask: a data frame whose partitions are parts of a planned scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from connector.scan.parts import PartReader, plan_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.dataset import TopicDataset
    from connector.scan.parts import Part


def data_frame(dataset: TopicDataset, task_bytes: int | None) -> dd.DataFrame:
    """Return the rows of a dataset as a data frame; see `connector.read_dask`."""
    reader = PartReader.from_scan(dataset.scan)
    parts = list(plan_parts(reader.reads, task_bytes)) or [()]
    # Arrow's strings would become another type.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(
            _PartFrames(reader, dataset.schema, uuid4().hex),
            parts,
            meta=_frame(dataset.schema.empty_table()),
            label="read-pulsar",
        )


@dataclass(frozen=True, repr=False)
class _PartFrames:
    """Reads parts as pandas frames. Picklable.

    Attributes:
        schema: The columns of the frames.
        token: Distinguishes this read from others, in Dask's names of tasks.
    """

    reader: PartReader
    schema: pa.Schema
    token: str

    def __call__(self, part: Part, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the rows of a part; `columns` selects some of the columns."""
        reader = self.reader if columns is None else self.reader.select(columns)
        schema = self.schema if columns is None else pa.schema(map(self.schema.field, columns))
        return _frame(pa.Table.from_batches(reader.batches(part), schema))

    def __dask_tokenize__(self) -> str:
        return self.token


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)
