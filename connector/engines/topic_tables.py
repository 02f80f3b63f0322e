"""Names of topics as names of tables in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import OptionError
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def named_topics(topics: Iterable[TopicName]) -> set[TopicName]:
    """Return the topics that a table may be named after: partitions, and partitioned topics."""
    return {name for topic in topics for name in (topic, topic.base)}


def is_topic(topics: Collection[TopicName], word: str) -> bool:
    """Return whether a word names one of some topics."""
    try:
        topic = TopicName.parse(word)
    except OptionError:
        return False
    is_scalable = "://" not in word and topic.partition < 0 and topic.scalable in topics
    return topic in topics or is_scalable


def table_names(topics: Collection[TopicName]) -> list[str]:
    """Return the shortest name of each of some topics, of partitioned topics as a whole; sorted."""
    return sorted({_table_name(topic.base, topics) for topic in topics})


def _table_name(topic: TopicName, topics: Collection[TopicName]) -> str:
    # A name without a domain is that of a persistent topic, if there is one.
    has_classic = topic.classic in topics
    for name in (topic.local_name, f"{topic.full_namespace}/{topic.local_name}"):
        if is_topic({topic}, name) and not (topic.is_scalable and has_classic):
            return name
    return str(topic)
