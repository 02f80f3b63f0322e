"""Topics in Ray Data: a data source whose read tasks are parts of a planned scan."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockAccessor, BlockMetadata

from arrow_io.errors import OptionError
from connector.scan.parts import PartReader, default_part_bytes, plan_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ray.data import Dataset
    from ray.data.block import Block
    from ray.data.expressions import Expr

    from connector.scan.parts import Part
    from connector.scan.topic_scan import Scan


def read(scan: Scan, task_bytes: int | None, **options: Any) -> Dataset:  # noqa: ANN401 - of Ray
    """Return the rows of a scan as a Ray dataset; see `connector.read_ray`."""
    return ray.data.read_datasource(TopicDatasource(scan, task_bytes), **options)


class TopicDatasource(Datasource):  # type: ignore[misc]
    """The rows of a scan of topics."""

    def __init__(self, scan: Scan, task_bytes: int | None = None) -> None:
        super().__init__()
        self._scan = scan
        self._task_bytes = task_bytes
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        """Return the name in Ray's plans."""
        return "PulsarOffload"

    def supports_projection_pushdown(self) -> bool:
        """Return that columns can be selected."""
        return True

    def supports_predicate_pushdown(self) -> bool:
        """Return that filters can be applied."""
        return True

    def apply_projection(self, projection_map: Mapping[str, str] | None) -> TopicDatasource:
        """Return a source of some columns only; Ray renames them itself."""
        source: TopicDatasource = super().apply_projection(projection_map)
        return source

    def apply_predicate(self, predicate_expr: Expr) -> TopicDatasource:
        """Return a source of the rows that match; this source if Ray has to apply the predicate."""
        try:
            scan = self._scan.where(predicate_expr.to_pyarrow())
        except OptionError:
            return self
        source = copy(self)
        source._scan = scan  # noqa: SLF001 - a copy of this object
        return source

    def estimate_inmemory_data_size(self) -> int:
        """Return the size of the data objects, in bytes; decoded rows may take several times it."""
        return sum(read.data_bytes for read in self._scan.reads())

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: object = None,
    ) -> list[ReadTask]:
        """Return read tasks, in order: about `parallelism`, but none of less than 16 MiB.

        Raises:
            PulsarOffloadError: Statistics, or the messages of a view, cannot be read.
        """
        del data_context
        columns = self._get_data_columns()
        scan = self._scan if columns is None else self._scan.select(columns)
        reader = PartReader.from_scan(scan)
        schema = scan.options.projection.schema
        part_bytes = self._task_bytes
        sizes = [read.data_bytes for read in reader.reads]
        if part_bytes is None:
            part_bytes = max(default_part_bytes(sum(sizes)), sum(sizes) // max(parallelism, 1))
        parts = list(plan_parts(reader.reads, part_bytes)) or [()]
        # Stored once for all tasks: it contains the read's ledgers, which may be many.
        reference = ray.put(reader)
        size_bytes = sum(sizes) // len(parts)
        return [
            ReadTask(
                partial(_read_part, reference, part, schema),
                BlockMetadata(
                    num_rows=None, size_bytes=size_bytes, input_files=None, exec_stats=None
                ),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for part in parts
        ]


def _read_part(
    reference: ray.ObjectRef[PartReader], part: Part, schema: pa.Schema
) -> Iterator[Block]:
    """Yield the rows of a part as blocks. Called on workers."""
    reader = ray.get(reference)
    for batch in reader.batches(part):
        table = pa.Table.from_batches([batch])
        # A table without columns loses its number of rows when it is joined with others.
        yield table if table.num_columns else BlockAccessor.for_block(table).select([])
    if not part:
        yield schema.empty_table()
