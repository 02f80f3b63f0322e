"""Our catalog and audit ask a running broker, and have heard of everything that it may answer."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import IncompleteReadWarning
from connector import Message
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import Audit, audit
from connector.upkeep.audit.findings import Finding, FindingKind
from tests.broker.client_messages import Position, read_all
from tests.broker.running_broker import MAX_LEDGER_ENTRIES
from tests.broker.written_topics import FIRST_TIME_MS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from connector import Catalog
    from tests.broker.cluster import Cluster

pytestmark = pytest.mark.broker

NATIVE: Final = "live-native"
TERMINATED: Final = "live-terminated"
UNKNOWN: Final = "live-unknown"
WRITTEN: Final = "live-written"
RENAMED: Final = "live-renamed"

PAYLOADS: Final = [b"message %d" % number for number in range(3 * MAX_LEDGER_ENTRIES)]


@pytest.fixture(scope="module")
def live(cluster: Cluster) -> Cluster:
    """The cluster, with a topic for each thing that an admin API may answer of one."""
    messages = [
        Message(payload=payload, publish_time_ms=FIRST_TIME_MS + number)
        for number, payload in enumerate(PAYLOADS)
    ]
    options = {"batch_messages": 1, "ledger_entries": MAX_LEDGER_ENTRIES}

    cluster.produce(NATIVE, [*PAYLOADS, b"in BookKeeper"])
    cluster.admin.offload(NATIVE)

    # The last ledger of a terminated topic is offloaded by none.
    cluster.produce(TERMINATED, [*PAYLOADS, b"last", b"very last"])
    cluster.admin.of_topic("POST", TERMINATED, "terminate")
    cluster.admin.offload(TERMINATED)

    cluster.write(UNKNOWN, messages, **options)
    cluster.write(WRITTEN, messages, **options)
    cluster.attach(WRITTEN)
    cluster.attach(WRITTEN, name=RENAMED)
    return cluster


@pytest.fixture(scope="module")
def catalog(live: Cluster) -> Catalog:
    """The bucket, by the admin API."""
    return live.open_catalog()


@pytest.fixture(scope="module")
def audited(catalog: Catalog) -> Audit:
    """What an audit of the bucket finds."""
    return audit(catalog)


def findings(audited: Audit, topic: str) -> Sequence[Finding]:
    """What was found of a topic."""
    return [each for each in audited.findings if each.topic == TopicName.parse(topic)]


def read_by_us(cluster: Cluster, topic: str) -> list[tuple[Position, bytes]]:
    """Payloads and positions as our reader gives them, by the admin API."""
    columns = ["__ledger_id__", "__entry_id__", "__value__"]
    rows = cluster.open_topic(topic, value="raw").to_table(columns=columns).to_pylist()
    return [
        (Position(-1, row["__ledger_id__"], row["__entry_id__"], -1), row["__value__"])
        for row in rows
    ]


def test_the_catalog_lists_the_topics_of_both(catalog: Catalog) -> None:
    """Topics that only the bucket has must be there beside those of the broker."""
    listed = set(catalog.topics())
    assert {TopicName.parse(name) for name in (NATIVE, TERMINATED, UNKNOWN, WRITTEN)} <= listed


@pytest.mark.parametrize(
    ("topic", "warning"),
    [
        (NATIVE, nullcontext()),
        (TERMINATED, pytest.warns(IncompleteReadWarning, match="in BookKeeper only.*: 2 entries")),
        (WRITTEN, nullcontext()),
    ],
)
def test_what_is_offloaded_is_read_as_the_client_reads_it(
    live: Cluster, topic: str, warning: AbstractContextManager[object]
) -> None:
    """Every message that the bucket has must be read, and what is closed elsewhere be told."""
    client = [
        (Position(-1, where.ledger_id, where.entry_id, -1), message.payload)
        for where, message in read_all(live.client, topic)
    ]
    offloaded = [ledger["ledgerId"] for ledger in live.admin.ledgers(topic) if ledger["offloaded"]]
    wanted = [(where, payload) for where, payload in client if where.ledger_id in offloaded]
    assert len(wanted) == len(PAYLOADS)

    with warning:
        assert read_by_us(live, topic) == wanted


@pytest.mark.parametrize(("topic", "count"), [(NATIVE, 1), (TERMINATED, 2)])
def test_entries_in_bookkeeper_are_counted(catalog: Catalog, topic: str, count: int) -> None:
    """The last ledger of a topic must count as one that is not offloaded, terminated or not."""
    last = catalog.ledgers(TopicName.parse(topic)).states[-1]

    assert last.state.is_pending
    if topic == TERMINATED:
        assert last.info is not None
        assert last.info.entries == count


def test_a_topic_that_the_broker_does_not_know_stops_nothing(audited: Audit) -> None:
    """Its ledgers must be found to be of no known topic, and nothing be said to be lost."""
    found = findings(audited, UNKNOWN)

    assert {each.kind for each in found} == {FindingKind.ORPHAN}
    assert not any(each.is_loss for each in found)


@pytest.mark.parametrize("topic", [NATIVE, TERMINATED, WRITTEN])
def test_nothing_is_found_where_nothing_is_wrong(audited: Audit, topic: str) -> None:
    """A topic whose objects are all there must be sound, whoever wrote it."""
    assert findings(audited, topic) == []


def test_a_ledger_under_another_name_is_told(live: Cluster, audited: Audit) -> None:
    """A broker reads it all the same; the audit must say whose name its index object has."""
    assert [message.payload for _, message in read_all(live.client, RENAMED)] == PAYLOADS

    found = findings(audited, RENAMED)

    assert found
    assert {each.kind.value for each in found} == {"other name"}
    assert all(WRITTEN in each.text for each in found)
