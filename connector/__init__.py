"""Apache Pulsar topics, straight from the bucket they were offloaded to, as Arrow."""

from arrow_io.messages.message_metadata import Message
from connector.catalog.catalog import Catalog, open_catalog
from connector.dataset import TopicDataset
from connector.duckdb_functions import register_duckdb
from connector.offloader import LedgerOffloader, LedgerToOffload, OffloadResult
from connector.topic import open_topic
from connector.writing.topic_writer import WrittenTopic, write_messages

__all__ = [
    "Catalog",
    "LedgerOffloader",
    "LedgerToOffload",
    "Message",
    "OffloadResult",
    "TopicDataset",
    "WrittenTopic",
    "open_catalog",
    "open_topic",
    "register_duckdb",
    "write_messages",
]
