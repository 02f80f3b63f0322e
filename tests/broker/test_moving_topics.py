"""Topics are read, audited and copied while a running broker offloads and trims them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow.dataset as pads
import pytest

from arrow_io.errors import TrimmedEntriesError
from connector import copy_topics, open_topic
from connector.upkeep.audit.audit import audit
from tests.broker.running_broker import MAX_LEDGER_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from connector import TopicDataset
    from tests.broker.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.filterwarnings("ignore::UserWarning")]

TOPICS: Final = 10
_PAUSE_S: Final = 0.5
ROUNDS: Final = 20
"""Of each topic, so that none has many ledgers, which take time to be read."""


class _Producer:
    """Fills ledgers of a topic, and has them offloaded, until it is told to stop.

    Args:
        cluster: The cluster.
        topic: The topic.
        trims: Whether ledgers are trimmed as soon as they are offloaded.
    """

    def __init__(self, cluster: Cluster, topic: str, *, trims: bool) -> None:
        self._cluster = cluster
        self._topic = topic
        self._trims = trims
        self._count = 0
        self.offloaded = 0
        """How many messages are surely offloaded."""

    def work(self) -> None:
        """Fill two ledgers, and have them offloaded."""
        payloads = [b"%d" % number for number in range(self._count, self._count + self.step)]
        self._cluster.produce(self._topic, payloads)
        self._cluster.admin.offload(self._topic)
        # The last ledger is open, and holds seven messages at the most.
        self.offloaded = max(0, self._count + self.step - MAX_LEDGER_ENTRIES)
        self._count += self.step
        if self._trims:
            self._cluster.admin.of_topic("POST", self._topic, "trim")

    step: Final = 2 * MAX_LEDGER_ENTRIES


@contextmanager
def _working(producer: _Producer) -> Iterator[None]:
    """Let a producer work in a thread of its own; raise what it raised."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.wait(_PAUSE_S):
                producer.work()
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def _values(table: Any) -> Sequence[int]:  # noqa: ANN401 - pyarrow has no types
    return [int(value) for value in table["__value__"].to_pylist()]


@pytest.mark.parametrize("number", range(TOPICS))
def test_topic_that_is_being_offloaded(cluster: Cluster, tmp_path: Path, number: int) -> None:
    """Whatever the broker offloads meanwhile, all that was offloaded before is read or copied."""
    topic = f"moving-offloaded-{number}"
    producer = _Producer(cluster, topic, trims=False)
    producer.work()
    target = str(tmp_path / "lake")

    def read(**options: Any) -> Sequence[int]:  # noqa: ANN401
        return rows(cluster.open_topic(topic, value="raw", **options))

    def read_by_a_catalog() -> Sequence[int]:
        catalog = cluster.open_catalog()
        return rows(open_topic(cluster.url, topic, value="raw", catalog=catalog))

    def rows(dataset: TopicDataset) -> Sequence[int]:
        values = _values(dataset.to_table(columns=["__value__"]))
        assert not dataset.metrics.lost
        return values

    def copy() -> Sequence[int]:
        options: dict[str, Any] = {
            "value": "raw",
            "storage_options": cluster.s3.storage_options,
            "target_options": {},
            "metadata": cluster.broker.admin_url,
        }
        copy_topics(cluster.url, topic, target, format="parquet", **options)
        return sorted(_values(pads.dataset(target, format="parquet").to_table()))

    def look() -> Sequence[int]:
        found = [each for each in audit(cluster.open_catalog()).losses if topic in str(each.topic)]
        assert not found, [each.text for each in found]
        return read()

    doors: Sequence[Callable[[], Sequence[int]]] = (
        read,
        lambda: read(on_corruption="salvage"),
        read_by_a_catalog,
        copy,
    )
    with _working(producer):
        for turn in range(ROUNDS):
            offloaded = producer.offloaded
            # An audit looks at all topics of the bucket.
            values = look() if turn == ROUNDS - 1 else doors[turn % len(doors)]()
            assert values == list(range(len(values)))
            assert len(values) >= offloaded


def test_topic_that_is_being_trimmed(cluster: Cluster) -> None:
    """Whoever reads a topic that is trimmed has the rest of it, or is told to open it again."""
    topic = "moving-trimmed"
    producer = _Producer(cluster, topic, trims=True)
    producer.work()
    retention = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    cluster.admin.of_topic("POST", topic, "retention", retention)
    with _working(producer):
        for _ in range(2 * ROUNDS):
            try:
                dataset = cluster.open_topic(topic, value="raw")
                values = _values(dataset.to_table(columns=["__value__"]))
            except TrimmedEntriesError:
                continue
            assert values == list(range(values[0], values[0] + len(values))) if values else True
            assert not dataset.metrics.lost
