"""Apache Pulsar topics, straight from the bucket they were offloaded to, as Arrow."""

from arrow_io.errors import (
    ChecksumError,
    CorruptBlockError,
    CorruptEntryError,
    CorruptIndexError,
    CorruptMetadataError,
    CorruptSnapshotError,
    DecryptionError,
    EncryptedPayloadError,
    EntryNotInLedgerError,
    EntryTooLargeError,
    FormatError,
    IncompleteReadWarning,
    MissingEntriesError,
    MissingObjectError,
    OptionError,
    PayloadDecodeError,
    PulsarOffloadError,
    SchemaError,
    StorageError,
    TopicNotFoundError,
    TruncatedObjectError,
    UndecodedValuesWarning,
    UnknownFormatError,
    UnknownSchemaVersionError,
    UnsupportedFormatError,
)
from arrow_io.messages.message_metadata import Message
from arrow_io.read_report import ReadReport
from connector.catalog.catalog import Catalog, open_catalog
from connector.dataset import TopicDataset
from connector.duckdb_functions import register_duckdb
from connector.offloader import LedgerOffloader, LedgerToOffload, OffloadResult
from connector.topic import open_topic
from connector.writing.topic_writer import WrittenTopic, write_messages

__all__ = [
    "Catalog",
    "ChecksumError",
    "CorruptBlockError",
    "CorruptEntryError",
    "CorruptIndexError",
    "CorruptMetadataError",
    "CorruptSnapshotError",
    "DecryptionError",
    "EncryptedPayloadError",
    "EntryNotInLedgerError",
    "EntryTooLargeError",
    "FormatError",
    "IncompleteReadWarning",
    "LedgerOffloader",
    "LedgerToOffload",
    "Message",
    "MissingEntriesError",
    "MissingObjectError",
    "OffloadResult",
    "OptionError",
    "PayloadDecodeError",
    "PulsarOffloadError",
    "ReadReport",
    "SchemaError",
    "StorageError",
    "TopicDataset",
    "TopicNotFoundError",
    "TruncatedObjectError",
    "UndecodedValuesWarning",
    "UnknownFormatError",
    "UnknownSchemaVersionError",
    "UnsupportedFormatError",
    "WrittenTopic",
    "open_catalog",
    "open_topic",
    "register_duckdb",
    "write_messages",
]
