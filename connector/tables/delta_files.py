"""Data files of a Delta table's log: listing, reading and removing them."""

from __future__ import annotations

from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake.transaction import RemoveAction

from arrow_io.errors import LakeTableError
from connector.tables.evolution import fit_rows
from connector.tables.file_reader import read_rows
from connector.tables.table import TableFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deltalake import DeltaTable as Snapshot

    from arrow_io.storage.location import Location
    from connector.tables.table import Commit
    from connector.tables.transforms import Partitioning

_PLAIN: Final = "/!$&'()+,:;=@~"
"""Characters that `deltalake` does not escape in paths, in addition to unreserved ones."""
_SUPPORTED_FEATURES: Final = {"timestampNtz"}
"""Protocol features that do not change how a file's rows are read."""
_LAST_UNESCAPED: Final = "\uffff"
"""`deltalake` may read a greater one as a lesser one, if the log escapes it as surrogates."""


@dataclass(frozen=True, slots=True)
class _LoggedFile:
    """A file in the log, with its path relative to the table's folder."""

    path: str
    size_bytes: int
    values: Mapping[str, pa.Scalar]
    """Values of the partition columns, by name. The file does not contain these columns."""


def data_files(
    snapshot: Snapshot, partitioning: Partitioning, columns: Sequence[str]
) -> Iterator[TableFile]:
    """Iterate over the files of a version of a table, with the bounds of `columns`.

    Raises:
        LakeTableError: The files cannot be rewritten.
    """
    _check_features(snapshot)
    actions = pa.table(snapshot.get_add_actions(flatten=True))
    for action in actions.to_batches():
        for row in range(action.num_rows):
            yield _file(action.slice(row, 1), partitioning, columns)


def read_file(
    location: Location, schema: pa.Schema, file: TableFile, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file, including its partition columns, as columns of the table.

    Other writers declare other types: Spark stores timestamps as INT96, without a time zone.

    Args:
        location: The table's folder.
        schema: Columns of the table. Columns that were added after the file was written become
            null.
        file: One of the table's `data_files`.
        columns: Columns of the table. None reads all.
    """
    logged = file.token
    assert isinstance(logged, _LoggedFile)  # noqa: S101 - what `data_files` returned
    if columns is not None:
        schema = pa.schema([schema.field(each) for each in columns])
        columns = [each for each in columns if each not in logged.values]
    for batch in read_rows(location, logged.path, logged.size_bytes, columns):
        rows = batch
        for name, value in logged.values.items():
            if name in schema.names:
                rows = rows.append_column(name, pa.repeat(value, batch.num_rows))
        yield fit_rows(rows, schema, "delta")


def removals(commit: Commit) -> list[RemoveAction]:
    """Return the log actions that remove a commit's files from a table."""
    logged = [each.token for each in commit.removed]
    is_change = not commit.has_same_rows
    now_ms = time_ns() // 1_000_000
    return [
        RemoveAction(
            each.path, data_change=is_change, deletion_timestamp=now_ms, size=each.size_bytes
        )
        for each in logged
        if isinstance(each, _LoggedFile)
    ]


def _file(action: pa.RecordBatch, partitioning: Partitioning, columns: Sequence[str]) -> TableFile:
    def value(name: str) -> Any:  # noqa: ANN401 - of any type
        return action.column(name)[0] if name in action.schema.names else pa.scalar(None)

    logged_path = value("path").as_py()
    path = unquote(logged_path)
    if path.startswith("/") or "://" in path or quote(path, safe=_PLAIN) != logged_path:
        message = f"the Delta table has a file that a copy cannot rewrite: {logged_path}"
        raise LakeTableError(message)
    values = {
        each.source: value(f"partition.{each.name}")
        for each in partitioning.fields
        if each.transform == "identity"
    }
    bounds = {}
    for name in columns:
        low, high = value(f"min.{name}").as_py(), value(f"max.{name}").as_py()
        if isinstance(high, str) and max(high, default="") > _LAST_UNESCAPED:
            high = None
        if name in values:
            low = high = values[name].as_py()
        bounds[name] = low, high
    partition = {str(each): value(f"partition.{each.name}").as_py() for each in partitioning.fields}
    size_bytes = value("size_bytes").as_py()
    rows = value("num_records").as_py()
    not_null = frozenset(each for each in columns if value(f"null_count.{each}").as_py() == 0)
    logged = _LoggedFile(path, size_bytes, values)
    return TableFile(logged, bounds, partition, size_bytes, rows, not_null, path, values)


def _check_features(snapshot: Snapshot) -> None:
    """Raise `LakeTableError` if a protocol feature changes how the files' rows are read."""
    protocol = snapshot.protocol()
    unsupported = {*(protocol.reader_features or ())} - _SUPPORTED_FEATURES
    mapping = snapshot.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        unsupported.add("columnMapping")
    if unsupported:
        message = (
            "the files of a Delta table cannot be rewritten if it has"
            f" {', '.join(sorted(unsupported))}"
        )
        raise LakeTableError(message)
