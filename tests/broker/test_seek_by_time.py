"""A broker finds by time what we wrote: the dates of our ledgers lead it to the right one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from connector import Message
from tests.broker.client_messages import read_all, receive_from
from tests.broker.written_topics import FIRST_TIME_MS

if TYPE_CHECKING:
    from tests.broker.cluster import Cluster

pytestmark = pytest.mark.broker

COUNT: Final = 40
SUBSCRIPTION: Final = "seeking"

TOPICS: Final = {
    "seek-ledgers-within-seconds": (1_000, 1, {"batch_messages": 1, "ledger_entries": 7}),
    # Farther apart than the minute by which a broker lets clocks differ.
    "seek-ledgers-minutes-apart": (120_000, 1, {"batch_messages": 1, "ledger_entries": 3}),
    "seek-equal-times": (30_000, 3, {"batch_messages": 1, "ledger_entries": 7}),
    "seek-batches": (60_000, 4, {"batch_messages": 4, "batch_delay_ms": 0, "ledger_entries": 3}),
    "seek-broker-times": (
        60_000,
        1,
        {"batch_messages": 1, "ledger_entries": 7, "broker_metadata": True},
    ),
}
"""By name: milliseconds between publish times, messages of each, options of `write_messages`."""


@pytest.fixture(scope="module")
def attached(cluster: Cluster) -> Cluster:
    """The cluster, with all topics attached."""
    for topic, (step_ms, alike, options) in TOPICS.items():
        messages = [
            Message(
                payload=b"%d" % number, publish_time_ms=FIRST_TIME_MS + number // alike * step_ms
            )
            for number in range(COUNT)
        ]
        cluster.write(topic, messages, **options)
        cluster.attach(topic)
    return cluster


@pytest.mark.parametrize("topic", TOPICS)
def test_a_subscription_is_reset_to_a_time(attached: Cluster, topic: str) -> None:
    """Before, at and after each publish time, the first entry that is not older must be next."""
    admin = attached.admin
    read = read_all(attached.client, topic)
    first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    admin.of_topic("PUT", topic, f"subscription/{SUBSCRIPTION}", first)
    published = sorted({message.publish_time_ms for _, message in read})

    found, wanted = {}, {}
    for time_ms in sorted({each + more for each in published for more in (-1, 0, 1)})[:-1]:
        admin.of_topic("POST", topic, f"subscription/{SUBSCRIPTION}/resetcursor/{time_ms}")
        cursor = admin.of_topic("GET", topic, "internalStats")["cursors"][SUBSCRIPTION]
        found[time_ms] = cursor["readPosition"]
        position = next(where for where, each in read if each.publish_time_ms >= time_ms)
        wanted[time_ms] = f"{position.ledger_id}:{position.entry_id}"

    assert found == wanted


@pytest.mark.parametrize("number", [0, COUNT // 2, COUNT - 1])
def test_a_client_seeks_a_time(attached: Cluster, number: int) -> None:
    """After a seek, a client must be given the first message of that time."""
    topic = "seek-ledgers-minutes-apart"
    where, message = read_all(attached.client, topic)[number]

    assert receive_from(attached.client, topic, message.publish_time_ms) == (where, message)
