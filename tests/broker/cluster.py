"""A cluster of one broker with its bucket, and topics of ours that become the cluster's own."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.lazy import cached_property
from connector import open_catalog, open_topic, write_messages
from connector.inputs.topic_names import TopicName
from tests.broker.admin_api import NAMESPACE, AdminApi
from tests.broker.client_messages import read_all
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pulsar

    from connector import Catalog, Message, TopicDataset, WrittenTopic
    from tests.broker.running_broker import RunningBroker
    from tests.support.s3_server import S3Server

_FREE_LEDGER_IDS: Final = 600
_AWAKE_SECONDS: Final = 90


class Cluster:
    """A running broker, its bucket, and a client; topics are named without their namespace.

    Args:
        broker: The broker, which has just been started.
        s3: Where it offloads to.
        bucket: The bucket there.
        folder: For the metadata of what is written, and the client's log.
    """

    def __init__(self, broker: RunningBroker, s3: S3Server, bucket: str, folder: Path) -> None:
        self.broker = broker
        self.s3 = s3
        self.url = f"s3://{bucket}"
        self.admin = AdminApi(broker.admin_url)
        self._folder = folder
        self._next_ledger_id: int
        self._next_ledger_id, self._last_ledger_id = broker.order(
            "free-ledger-ids", _FREE_LEDGER_IDS
        )

    @cached_property
    def client(self) -> pulsar.Client:
        """Pulsar's client for Python."""
        import pulsar

        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._folder / "client.log"))
        return pulsar.Client(self.broker.service_url, logger=log)

    def disconnect(self) -> None:
        """Close the client, if there is one; it is made anew when it is needed."""
        client = self.__dict__.pop("client", None)
        if client is not None:
            client.close()

    def restart(self) -> None:
        """Restart the broker, and wait until it can tell how transactions ended.

        Of what it keeps of them it may wait half a minute in vain, and then closes the topic that
        was asked for first.
        """
        self.disconnect()
        self.broker.restart()
        wait_until(self._reads_transactions, _AWAKE_SECONDS)

    def _reads_transactions(self) -> bool:
        import pulsar

        try:
            self.produce("awake", [b""])
            return bool(read_all(self.client, "awake"))
        except pulsar.PulsarException:
            return False

    def take_ledger_ids(self, count: int) -> int:
        """The first of so many ids that BookKeeper gave away once, and will not give again."""
        first = self._next_ledger_id
        self._next_ledger_id += count
        assert self._next_ledger_id <= self._last_ledger_id, "make more of them free"
        return first

    def metadata_folder(self, topic: str) -> Path:
        """Where the metadata of a topic is written, which `attach` takes from there."""
        return self._folder / topic

    def write(
        self,
        topic: str,
        messages: Sequence[Message],
        **options: Any,  # noqa: ANN401 - those of `write_messages`
    ) -> WrittenTopic:
        """Write a topic into the bucket, without a word to the broker."""
        written = write_messages(
            self.url,
            topic,
            messages,
            storage_options=self.s3.storage_options,
            first_ledger_id=self._next_ledger_id,
            cluster="standalone",
            metadata_folder=self.metadata_folder(topic),
            **options,
        )
        ids = [ledger.ledger_id for part in written.partitions for ledger in part.ledgers]
        self.take_ledger_ids(max(ids) + 1 - self._next_ledger_id)
        return written

    def attach(
        self, topic: str, *, name: str | None = None, schema: Mapping[str, Any] | None = None
    ) -> None:
        """Make a topic that was written one of the broker's, as `docs/attach.md` tells it.

        Args:
            topic: What was written.
            name: What it is called from now on; None: as it was.
            schema: Its `type` and `schema`; None: it has none.
        """
        name = topic if name is None else name
        values = sorted(self.metadata_folder(topic).glob("*/managed-ledger-info.bin"))
        names = [name]
        if len(values) > 1:
            names = [f"{name}-partition-{number}" for number in range(len(values))]
            count = json.dumps({"partitions": len(values)}).encode()
            self._put(f"/admin/partitioned-topics/{NAMESPACE}/persistent/{name}", count)
        for each, value in zip(names, values, strict=True):
            managed_ledger = TopicName.parse(each).managed_ledger_name
            self._put(f"/managed-ledgers/{managed_ledger}", value.read_bytes())
        if schema is not None:
            self.admin.post_schema(name, schema["type"], schema["schema"])

    def produce(self, topic: str, payloads: Iterable[bytes]) -> None:
        """Send messages, an entry for each."""
        producer = self.client.create_producer(topic, batching_enabled=False)
        try:
            for payload in payloads:
                producer.send(payload)
        finally:
            producer.close()

    def open_topic(self, topic: str, **options: Any) -> TopicDataset:  # noqa: ANN401
        """A topic as we read it, by what the admin API tells."""
        options = {"metadata": self.broker.admin_url} | options
        return open_topic(self.url, topic, storage_options=self.s3.storage_options, **options)

    def open_catalog(self) -> Catalog:
        """The bucket, by what the admin API tells."""
        return open_catalog(
            self.url, storage_options=self.s3.storage_options, metadata=self.broker.admin_url
        )

    def _put(self, path: str, value: bytes) -> None:
        self.broker.order("put-metadata", path, base64.b64encode(value).decode())
