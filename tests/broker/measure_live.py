"""How fast the live tail is beside the client that only takes the messages.

`python -m tests.broker.measure_live` starts a broker, produces a topic of which nothing is
offloaded, and reads it by turns: as Pulsar's client for Python does with `read_next`, and as a
topic with its live tail, once its positions and once all columns. It prints messages a second, and
their medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connector import open_topic
from tests.broker.admin_api import AdminApi
from tests.broker.running_broker import RunningBroker
from tests.support.s3_server import running_s3_server

if TYPE_CHECKING:
    from collections.abc import Callable

    import pulsar

_NAMESPACE: Final = "public/measured"
_TOPIC: Final = f"persistent://{_NAMESPACE}/live"
_POSITIONS: Final = ["__ledger_id__", "__entry_id__", "__batch_index__"]
_RECEIVE_MS: Final = 30_000


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a payload")
    parser.add_argument("--batch", type=int, default=1000, help="messages of a batch at most")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_s3_server() as s3:
        (Path(folder) / "broker").mkdir()
        bucket = s3.new_bucket()
        broker = RunningBroker(Path(folder) / "broker", s3, bucket)
        broker.start()
        try:
            _measure(broker, f"s3://{bucket}", s3.storage_options, given)
        finally:
            broker.stop()


def _measure(
    broker: RunningBroker,
    bucket: str,
    storage_options: dict[str, object],
    given: argparse.Namespace,
) -> None:
    import pulsar

    AdminApi(broker.admin_url).ask("PUT", f"namespaces/{_NAMESPACE}", {})
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, "/dev/null")
    client = pulsar.Client(broker.service_url, logger=log)
    _produce(client, given)
    topic = open_topic(
        bucket,
        _TOPIC,
        schema="bytes",
        storage_options=storage_options,
        metadata=broker.admin_url,
        live=broker.service_url,
    )
    reads: dict[str, Callable[[], int]] = {
        "client": lambda: _taken(client, given.messages),
        "positions": lambda: topic.to_table(_POSITIONS).num_rows,
        "all columns": lambda: topic.to_table().num_rows,
    }
    rates: dict[str, list[float]] = {name: [] for name in reads}
    for turn in range(given.turns + 1):
        for name, read in reads.items():
            start = time.perf_counter()
            assert read() == given.messages
            # The first turn warms the broker up.
            if turn:
                rates[name].append(given.messages / (time.perf_counter() - start))
    client.close()
    for name, found in rates.items():
        each = ", ".join(f"{rate:,.0f}" for rate in found)
        print(f"{name}: median {statistics.median(found):,.0f}/s of {each}")  # noqa: T201


def _produce(client: pulsar.Client, given: argparse.Namespace) -> None:
    producer = client.create_producer(
        _TOPIC,
        block_if_queue_full=True,
        batching_enabled=given.batch > 1,
        batching_max_messages=given.batch,
    )
    for number in range(given.messages):
        producer.send_async(
            f"{number:>{given.bytes}}".encode(),
            None,
            {"source": "measured"},
            partition_key=f"key-{number % 1000}",
        )
    producer.flush()
    producer.close()


def _taken(client: pulsar.Client, count: int) -> int:
    import pulsar

    reader = client.create_reader(_TOPIC, pulsar.MessageId.earliest)
    for _ in range(count):
        reader.read_next(_RECEIVE_MS)
    reader.close()
    return count


if __name__ == "__main__":
    main()
