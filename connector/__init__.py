"""Apache Pulsar topics, straight from the bucket they were offloaded to, as Arrow."""

from connector.catalog.catalog import Catalog, open_catalog
from connector.dataset import TopicDataset
from connector.duckdb_functions import register_duckdb
from connector.topic import open_topic

__all__ = ["Catalog", "TopicDataset", "open_catalog", "open_topic", "register_duckdb"]
