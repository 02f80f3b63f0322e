"""How fast a replay is beside the client that sends the same messages from memory.

`python -m tests.broker.measure_replay` starts a broker, writes a topic into a folder, and sends its
messages by turns: as a replay, and as Pulsar's client for Python does it with `send_async` and a
callback, with batches of the same size and codec. The target deduplicates in both. It prints
messages a second, and the median of the ratios of the pairs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connector import Message, replay_topic, write_messages
from connector.replay.batch_producer import BATCH_BYTES
from connector.replay.sender import BATCH_MESSAGES
from tests.broker.admin_api import AdminApi
from tests.broker.running_broker import RunningBroker
from tests.support.s3_server import running_s3_server

if TYPE_CHECKING:
    import pulsar

_NAMESPACE: Final = "public/measured"
_TOPIC: Final = "measured"
_PENDING: Final = 50_000


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a payload")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--without-callbacks", action="store_true", help="of the client")
    given = parser.parse_args()
    messages = [
        Message(
            payload=f"{number:>{given.bytes}}".encode(),
            publish_time_ms=1_750_000_000_000 + number // 1000,
            key=f"key-{number % 1000}",
            properties=(("source", "measured"),),
        )
        for number in range(given.messages)
    ]
    with tempfile.TemporaryDirectory() as folder, running_s3_server() as s3:
        bucket = Path(folder) / "bucket"
        bucket.mkdir()
        write_messages(str(bucket), _TOPIC, messages)
        (Path(folder) / "broker").mkdir()
        broker = RunningBroker(Path(folder) / "broker", s3, s3.new_bucket())
        broker.start()
        try:
            _measure(broker, str(bucket), messages, given)
        finally:
            broker.stop()


def _measure(
    broker: RunningBroker, bucket: str, messages: list[Message], given: argparse.Namespace
) -> None:
    import pulsar

    admin = AdminApi(broker.admin_url)
    admin.ask("PUT", f"namespaces/{_NAMESPACE}", {})
    admin.ask("POST", f"namespaces/{_NAMESPACE}/deduplication", True)  # noqa: FBT003
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, "/dev/null")
    client = pulsar.Client(broker.service_url, logger=log)
    ratios = []
    for number in range(given.pairs + 1):
        topic = f"persistent://{_NAMESPACE}/pair-{number}"
        by_replay = _replayed(broker, bucket, f"{topic}-replay", len(messages))
        by_client = _sent(client, f"{topic}-client", messages, silent=given.without_callbacks)
        # The first pair warms the broker up.
        if number:
            ratios.append(by_replay / by_client)
            print(  # noqa: T201 - a program
                f"replay {by_replay:,.0f}/s, client {by_client:,.0f}/s, ratio {ratios[-1]:.2f}"
            )
    client.close()
    print(f"median ratio {statistics.median(ratios):.2f}")  # noqa: T201


def _replayed(broker: RunningBroker, bucket: str, topic: str, count: int) -> float:
    start = time.perf_counter()
    [done] = replay_topic(bucket, _TOPIC, to=broker.service_url, to_topic=topic)
    assert done.messages == count
    return count / (time.perf_counter() - start)


def _sent(client: pulsar.Client, topic: str, messages: list[Message], *, silent: bool) -> float:
    import pulsar

    prepared = [(each.payload, dict(each.properties), each.key_text) for each in messages]
    failed = []

    def acknowledged(result: object, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    start = time.perf_counter()
    producer = client.create_producer(
        topic,
        producer_name="measured",
        block_if_queue_full=True,
        max_pending_messages=_PENDING,
        batching_enabled=True,
        batching_max_messages=BATCH_MESSAGES,
        batching_max_allowed_size_in_bytes=BATCH_BYTES,
        compression_type=pulsar.CompressionType.LZ4,
    )
    for number, (payload, properties, key) in enumerate(prepared):
        producer.send_async(
            payload,
            None if silent else acknowledged,
            properties,
            partition_key=key,
            sequence_id=number + 1,
        )
    producer.flush()
    seconds = time.perf_counter() - start
    producer.close()
    assert not failed
    return len(messages) / seconds


if __name__ == "__main__":
    main()
