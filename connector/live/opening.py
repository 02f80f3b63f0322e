"""Which part of topics only their brokers have, when they are opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

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
    """What of topics lies behind their last ledgers, up to the last message that there is now.

    There may be no message, but what became of a transaction.

    Args:
        brokers: Who has it.
        topics: The topics, partitions each by itself, as they were listed before.
        values: Their typed columns; None if values are given as bytes.

    Raises:
        BrokerError: The brokers cannot be asked, or refuse.
    """
    is_binary = has_binary_keys(values)
    with brokers.connect() as client, ThreadPoolExecutor(_CONCURRENT_TOPICS) as executor:

        def tail(topic: TopicLedgers) -> LiveTail | None:
            end = topic.data[-1] if topic.data else None
            at_end = BEGINNING if end is None else EntryId(end.ledger_id, end.last_entry_id)
            first = BEGINNING if end is None else EntryId(end.ledger_id, end.last_entry_id + 1)
            last = client.last(topic.topic, at_end)
            if last is None:
                return None
            live_tail = LiveTail(brokers, topic.topic, first, last, None, is_binary)
            return replace(live_tail, first_message=live_tail.find_first_message(client))

        tails = executor.map(tail, topics)
        return {each.topic: each for each in tails if each is not None}


def partitions_of_brokers(
    brokers: Brokers, patterns: str | Sequence[str], available: Collection[TopicName]
) -> list[TopicName]:
    """Partitions of topics, whether anything of them is offloaded or not.

    Whether a topic without partitions is there is not asked, for a client cannot tell.

    Args:
        brokers: Who knows them.
        patterns: Short or full names, or globs.
        available: The topics that are known already, partitions each by itself.

    Raises:
        OptionError: Something wanted is not a topic name.
        BrokerError: The brokers cannot be asked, or refuse.
    """
    bases: set[TopicName] = set()
    for name in topic_names(patterns):
        try:
            bases |= {each.base for each in select_topics(name, available)}
        except TopicNotFoundError:
            # Nothing of it is offloaded. Some brokers make the topic when they are asked, so they
            # are not asked for a glob.
            if namespaces_of(name) is not None:
                bases.add(TopicName.parse(name).base)
    with brokers.connect() as client, ThreadPoolExecutor(_CONCURRENT_TOPICS) as executor:
        partitions = [name for names in executor.map(client.partitions, bases) for name in names]
    return [each for each in partitions if each.partition >= 0]
