"""Apache Pulsar topics as Arrow, read from the bucket that holds their offloaded ledgers."""

from importlib import import_module
from typing import TYPE_CHECKING

from arrow_io.errors import (
    BrokerError,
    ChecksumError,
    ConcurrentCopyError,
    CorruptBlockError,
    CorruptEntryError,
    CorruptIndexError,
    CorruptMetadataError,
    CorruptProgressError,
    CorruptSnapshotError,
    CorruptStatisticsError,
    DecryptionError,
    EncryptedPayloadError,
    EntryNotInLedgerError,
    EntryOrderError,
    EntryTooLargeError,
    FormatError,
    IncompleteReadWarning,
    LakeTableError,
    LateLedgerError,
    MissingEntriesError,
    MissingObjectError,
    ObjectChangedError,
    OpenTransactionError,
    OptionError,
    PayloadDecodeError,
    PulsarOffloadError,
    SchemaError,
    StorageError,
    TopicNotFoundError,
    TrimmedEntriesError,
    TruncatedObjectError,
    UncompiledCoreWarning,
    UndecodedValuesWarning,
    UnknownFormatError,
    UnknownSchemaVersionError,
    UnsearchedFoldersWarning,
    UnsupportedFormatError,
    UnusedStatisticsWarning,
    UnusedTableWarning,
)
from arrow_io.messages.message_metadata import Message
from arrow_io.read_metrics import ReadMetrics

if TYPE_CHECKING:
    from connector.catalog.catalog import Catalog
    from connector.catalog.opening import open_catalog
    from connector.dataset import TopicDataset
    from connector.engines.duckdb_functions import register_duckdb
    from connector.engines.readers import read_daft, read_dask, read_ray
    from connector.lake.copy import copy_topics, plan_copy
    from connector.lake.copy_plan import CopyPlan, CopySizes
    from connector.lake.follow import CopyRound, follow_copies
    from connector.lake.maintenance import (
        MaintenanceSettings,
        MaintenanceSummary,
        maintain_table,
    )
    from connector.lake.reprocessing import ReprocessSummary, reprocess_dead_letters
    from connector.lake.table_copy import TableSummary
    from connector.otel import instrument
    from connector.replay.partition_replay import ReplaySummary
    from connector.replay.replay import ReplayPlan, plan_replay, replay_topic
    from connector.topic import open_topic
    from connector.writing.offloader import LedgerOffloader, LedgerToOffload, OffloadResult
    from connector.writing.topic_writer import WrittenTopic, write_messages
else:
    _MODULES = {
        "Catalog": "catalog.catalog",
        "CopyPlan": "lake.copy_plan",
        "CopyRound": "lake.follow",
        "CopySizes": "lake.copy_plan",
        "LedgerOffloader": "writing.offloader",
        "LedgerToOffload": "writing.offloader",
        "MaintenanceSettings": "lake.maintenance",
        "MaintenanceSummary": "lake.maintenance",
        "OffloadResult": "writing.offloader",
        "ReplayPlan": "replay.replay",
        "ReplaySummary": "replay.partition_replay",
        "ReprocessSummary": "lake.reprocessing",
        "TableSummary": "lake.table_copy",
        "TopicDataset": "dataset",
        "WrittenTopic": "writing.topic_writer",
        "copy_topics": "lake.copy",
        "follow_copies": "lake.follow",
        "instrument": "otel",
        "maintain_table": "lake.maintenance",
        "open_catalog": "catalog.opening",
        "open_topic": "topic",
        "plan_copy": "lake.copy",
        "plan_replay": "replay.replay",
        "read_daft": "engines.readers",
        "read_dask": "engines.readers",
        "read_ray": "engines.readers",
        "register_duckdb": "engines.duckdb_functions",
        "replay_topic": "replay.replay",
        "reprocess_dead_letters": "lake.reprocessing",
        "write_messages": "writing.topic_writer",
    }

    def __getattr__(name: str) -> object:
        """Import a public name on first use: Arrow's datasets import pandas, which is slow."""
        if name not in _MODULES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})


__all__ = [
    "BrokerError",
    "Catalog",
    "ChecksumError",
    "ConcurrentCopyError",
    "CopyPlan",
    "CopyRound",
    "CopySizes",
    "CorruptBlockError",
    "CorruptEntryError",
    "CorruptIndexError",
    "CorruptMetadataError",
    "CorruptProgressError",
    "CorruptSnapshotError",
    "CorruptStatisticsError",
    "DecryptionError",
    "EncryptedPayloadError",
    "EntryNotInLedgerError",
    "EntryOrderError",
    "EntryTooLargeError",
    "FormatError",
    "IncompleteReadWarning",
    "LakeTableError",
    "LateLedgerError",
    "LedgerOffloader",
    "LedgerToOffload",
    "MaintenanceSettings",
    "MaintenanceSummary",
    "Message",
    "MissingEntriesError",
    "MissingObjectError",
    "ObjectChangedError",
    "OffloadResult",
    "OpenTransactionError",
    "OptionError",
    "PayloadDecodeError",
    "PulsarOffloadError",
    "ReadMetrics",
    "ReplayPlan",
    "ReplaySummary",
    "ReprocessSummary",
    "SchemaError",
    "StorageError",
    "TableSummary",
    "TopicDataset",
    "TopicNotFoundError",
    "TrimmedEntriesError",
    "TruncatedObjectError",
    "UncompiledCoreWarning",
    "UndecodedValuesWarning",
    "UnknownFormatError",
    "UnknownSchemaVersionError",
    "UnsearchedFoldersWarning",
    "UnsupportedFormatError",
    "UnusedStatisticsWarning",
    "UnusedTableWarning",
    "WrittenTopic",
    "copy_topics",
    "follow_copies",
    "instrument",
    "maintain_table",
    "open_catalog",
    "open_topic",
    "plan_copy",
    "plan_replay",
    "read_daft",
    "read_dask",
    "read_ray",
    "register_duckdb",
    "replay_topic",
    "reprocess_dead_letters",
    "write_messages",
]
