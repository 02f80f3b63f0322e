"""Threads that read one dataset together, from its first read on, get the rows of one thread.

On an interpreter without a global lock, they run everything at once; elsewhere, loops of the core.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from connector import open_catalog, open_topic
from connector.scan.execution import execute
from tests.support.encryption import KEY_FOLDER
from tests.support.golden import GOLDEN, golden_topics
from tests.support.golden_values import comparable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connector import TopicDataset
    from tests.support.golden import GoldenTopic

SET: Final = "pulsar-4.0.7"
THREADS: Final = 4
ROUNDS: Final = 2


@pytest.fixture(autouse=True)
def _often_switched() -> Iterator[None]:
    """Let threads take turns a thousand times as often, if one lock is theirs."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 1_000)
    yield
    sys.setswitchinterval(interval)


def _at_once(call: Callable[[], str]) -> set[str]:
    """The results of a call that several threads begin together."""
    barrier = threading.Barrier(THREADS)

    def begin() -> str:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(THREADS) as pool:
        return {each.result() for each in [pool.submit(begin) for _ in range(THREADS)]}


def _open(topic: GoldenTopic) -> TopicDataset:
    """Open a topic with a catalog of its own, of which nothing was computed yet."""
    catalog = open_catalog(str(topic.objects_folder), metadata=str(GOLDEN / SET))
    keys = KEY_FOLDER if "encrypted" in topic.name else None
    return open_topic(str(topic.objects_folder), topic.name, catalog=catalog, decryption_keys=keys)


def _read_tasks(dataset: TopicDataset) -> str:
    """Read as an executor of Spark does: each task in the calling thread."""
    batches = [batch for task in dataset.scanner().scan.plan() for batch in execute(task)]
    return _text(pa.Table.from_batches(batches, dataset.schema))


def _read_table(dataset: TopicDataset) -> str:
    """Read with the worker threads that all reads share."""
    return _text(dataset.to_table())


def _text(table: pa.Table) -> str:
    """The values in a form in which NaN is equal to itself, and nanoseconds are not lost."""
    return repr([comparable(column) for column in table.columns])


def _cases() -> list[GoldenTopic]:
    """The topics of one set that have messages: each codec, schema type and kind of message."""
    return [each for each in golden_topics() if each.set_name == SET and each.message_count]


# One topic has a transaction that nobody ended.
@pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")
@pytest.mark.parametrize("topic", _cases(), ids=str)
@pytest.mark.parametrize("read", [_read_tasks, _read_table])
def test_threads_read_one_dataset(topic: GoldenTopic, read: Callable[[TopicDataset], str]) -> None:
    """Each thread must get the rows that one thread alone gets."""
    alone = read(_open(topic))
    shared = _open(topic)

    for _ in range(ROUNDS):
        assert _at_once(lambda: read(shared)) == {alone}
