"""Topics with all types of columns, and their rows in an order that engines do not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connector import open_topic
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    import pyarrow as pa

    from connector import TopicDataset

FOLDER: Final = GOLDEN / "pulsar-4.0.7"
URL: Final = str(FOLDER / "objects")
TYPED: Final = (
    "avro-evolved",
    "avro-logical",
    "avro-orders",
    "bool",
    "bytes-batched-zstd",
    "chunked",
    "date",
    "double",
    "float",
    "instant",
    "int8",
    "json-orders",
    "kv-avro-separated",
    "local-date-time",
    "local-time",
    "multi-ledger",
    "partitioned",
    "protobuf-native",
    "timestamp",
    "transactions",
)
"""Golden topics that together have each type of a column."""
_POSITION: Final = ("__partition__", "__ledger_id__", "__entry_id__", "__batch_index__")


def opened(name: str, **options: Any) -> TopicDataset:  # noqa: ANN401 - of open_topic
    """Open a golden topic."""
    return open_topic(URL, name, metadata=str(FOLDER), **options)


def sorted_rows(table: pa.Table, schema: pa.Schema) -> str:
    """Return rows in order of their positions, with a dataset's types, as text: NaN equals NaN."""
    order = [(name, "ascending") for name in _POSITION]
    return repr(table.cast(schema).sort_by(order).to_pylist())
