"""The names of all columns, without the code that builds them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

COLUMN_NAMES: Final = (
    "__entry_id__",
    "__ledger_id__",
    "__batch_index__",
    "__partition__",
    "__publish_time__",
    "__event_time__",
    "__sequence_id__",
    "__producer_name__",
    "__key__",
    "__properties__",
    "__value__",
    "__message_id__",
    "__topic__",
    "__key_bytes__",
    "__ordering_key__",
    "__schema_version__",
    "__null_value__",
    "__broker_time__",
    "__broker_index__",
    "__deliver_at__",
    "__replicated_from__",
    "__txn_id__",
    "__segment_id__",
)
"""Names of `arrow_io.columns.ALL_COLUMNS`, in the same order."""

DEFAULT_COLUMNS: Final = "*"
"""Among column names, stands for the default columns."""

Naming: TypeAlias = Literal["pulsar-sql", "pulsar-spark"]
NAMINGS: Final = get_args(Naming)
