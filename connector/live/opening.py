"""The part of topics that only their brokers have, determined when the topics are opened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import TopicNotFoundError
from connector.inputs.topic_names import TopicName, namespaces_of, select_topics, topic_names
from connector.live.broker import BEGINNING, EntryId
from connector.live.entries import has_binary_keys
from connector.live.tail import LiveTail

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from arrow_io.payloads.value_columns import ValueColumns
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.live.broker import Brokers

_CONCURRENT_TOPICS: Final = 16


def live_tails(
    brokers: Brokers, topics: Sequence[TopicLedgers], values: ValueColumns | None
) -> dict[TopicName, LiveTail]:
    """Return the entries after the last ledgers of topics, up to the last message that exists now.

    The topics are one per partition, as they were listed before. A tail may contain no message,
    only the outcome of a transaction.

    Raises:
        BrokerError: The brokers cannot be reached, or refuse.
    """
    is_binary = has_binary_keys(values)
    with brokers.connect() as client, ContextThreadPool(_CONCURRENT_TOPICS) as executor:

        def tail(topic: TopicLedgers) -> LiveTail | None:
            end = topic.data[-1] if topic.data else None
            at_end = BEGINNING if end is None else EntryId(end.ledger_id, end.last_entry_id)
            first = BEGINNING if end is None else EntryId(end.ledger_id, end.last_entry_id + 1)
            last = client.find_last_message(topic.topic, at_end)
            if last is None:
                return None
            live_tail = LiveTail(brokers, topic.topic, first, last, None, is_binary)
            return replace(live_tail, first_message=live_tail.find_first_message(client))

        tails = executor.map(tail, topics)
        return {each.topic: each for each in tails if each is not None}


def partitions_of_brokers(
    brokers: Brokers, patterns: str | Sequence[str], available: Collection[TopicName]
) -> list[TopicName]:
    """Return the partitions of topics, whether they have offloaded ledgers or not.

    Topics without partitions are left out: a client cannot tell whether they exist. `available` are
    the topics found in the bucket, one per partition.

    Raises:
        OptionError: A pattern is not a topic name.
        BrokerError: The brokers cannot be reached, or refuse.
    """
    bases: set[TopicName] = set()
    for name in topic_names(patterns):
        try:
            selected = select_topics(name, available)
            bases |= {each.base for each in selected if not each.is_scalable}
        except TopicNotFoundError:
            # It has no offloaded ledger. Some brokers create a topic when they are asked about it,
            # so they are not asked about a glob.
            topic = TopicName.parse(name)
            if namespaces_of(name) is not None and not topic.is_scalable:
                bases.add(topic.base)
    with brokers.connect() as client, ContextThreadPool(_CONCURRENT_TOPICS) as executor:
        partitions = [name for names in executor.map(client.partitions, bases) for name in names]
    return [each for each in partitions if each.partition >= 0]
