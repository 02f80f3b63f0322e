"""A broker of Pulsar's in a process of its own, which offloads to an S3 server of ours.

`make test-broker` puts into `build/broker` what it consists of. `BrokerUnderOrders.java` is the
program: a whole `pulsar standalone` that also does what no client can ask of one.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import subprocess
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.s3_server import S3Server

HERE: Final = Path(__file__).parent
LIBRARIES: Final = HERE.parent.parent / "build" / "broker"
LOOPBACK: Final = "127.0.0.1"

MAX_LEDGER_ENTRIES: Final = 7
"""The broker's own ledgers are full soon, so that few messages make several."""

_START_SECONDS: Final = 120
_ORDER_SECONDS: Final = 90
_STOP_SECONDS: Final = 30
_LOG_BYTES: Final = 8_000

_ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    # Else a standalone Pulsar keeps its metadata in RocksDB, which no other process can read.
    "PULSAR_STANDALONE_USE_ZOOKEEPER": "1",
}

# What Netty, BookKeeper and jclouds reach into; `bin/pulsar` opens the same and more.
_OPENED: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
)


class BrokerError(Exception):
    """The broker did not start, did not answer in time, or failed at an order."""


@dataclass(frozen=True)
class Ports:
    """Ports of loopback that nothing listens on, and that a restarted broker has again."""

    service: int
    web: int
    bookie: int
    zookeeper: int

    @classmethod
    def free(cls) -> Ports:
        """Ask the system for ports; all at once, so that they differ."""
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
            for each in sockets:
                each.bind((LOOPBACK, 0))
            return cls(*(each.getsockname()[1] for each in sockets))


class RunningBroker:
    """ZooKeeper, bookie and broker in one process.

    Args:
        folder: Where it keeps its data and its log.
        s3: Where it offloads to; it must outlive the broker.
        bucket: The bucket there.
        settings: Settings of its `broker.conf` in place of these.

    Raises:
        BrokerError: What it consists of is not there.
    """

    def __init__(
        self,
        folder: Path,
        s3: S3Server,
        bucket: str,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        if not (LIBRARIES / "classpath.txt").is_file():
            message = f"{LIBRARIES} has no broker: `make test-broker` puts it there"
            raise BrokerError(message)
        self._folder = folder
        self._s3 = s3
        self._ports = Ports.free()
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._log = folder / "broker.log"
        self._conf = folder / "broker.conf"
        lines = {**self._settings(bucket), **(settings or {})}
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    @property
    def service_url(self) -> str:
        """Where clients find it."""
        return f"pulsar://{LOOPBACK}:{self._ports.service}"

    @property
    def admin_url(self) -> str:
        """Where its admin API is."""
        return f"http://{LOOPBACK}:{self._ports.web}"

    @property
    def metadata_store_url(self) -> str:
        """Where its metadata store is, as our readers take it."""
        return f"zk://{LOOPBACK}:{self._ports.zookeeper}"

    def start(self) -> None:
        """Start the process, and wait until it is ready.

        Raises:
            BrokerError: It ended before, or took too long.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self._folder,
                env=os.environ | _ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answers = queue.Queue()
        threading.Thread(target=_pass_on, args=(self._process, self._answers), daemon=True).start()
        try:
            self._answer(_START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the process; at once if it does not end by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Start it anew on the data that it has.

        Raises:
            BrokerError: It did not start.
        """
        self.stop()
        self.start()

    def order(self, *words: object) -> Any:  # noqa: ANN401 - each order has its own
        """Have an order carried out; `BrokerUnderOrders.java` has the list.

        Raises:
            BrokerError: It failed, or there was no answer in time.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        process.stdin.flush()
        return self._answer(_ORDER_SECONDS)

    def _answer(self, seconds: float) -> Any:  # noqa: ANN401
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise self._failure(f"no answer in {seconds} s") from None
        if not line:
            raise self._failure("the broker ended")
        answer = json.loads(line)
        if "error" in answer:
            raise BrokerError(answer["error"])
        return answer["answer"]

    def end_of_log(self) -> str:
        """What it wrote into its log last."""
        return self._log.read_bytes()[-_LOG_BYTES:].decode(errors="replace")

    def _failure(self, what: str) -> BrokerError:
        return BrokerError(f"{what}; the end of its log, {self._log}:\n{self.end_of_log()}")

    def _command(self) -> list[str]:
        endpoint = self._s3.endpoint_url
        java_home = os.environ.get("JAVA_HOME")
        java = f"{java_home}/bin/java" if java_home else shutil.which("java")
        return [
            java or "java",
            "-Xmx768m",
            # What lives for minutes is not worth the best code, nor threads that collect.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:MaxDirectMemorySize=512m",
            f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}",
            "-Dio.netty.tryReflectionSetAccessible=true",
            # jclouds asks the region's own address where a bucket lies.
            f"-Djclouds.region.us-standard.endpoint={endpoint}",
            f"-Djclouds.region.{REGION}.endpoint={endpoint}",
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
            "-cp",
            (LIBRARIES / "classpath.txt").read_text().strip(),
            str(HERE / "BrokerUnderOrders.java"),
            "--config",
            str(self._conf),
            "--no-functions-worker",
            "--no-stream-storage",
            "--zookeeper-dir",
            str(self._folder / "zookeeper"),
            "--zookeeper-port",
            str(self._ports.zookeeper),
            "--bookkeeper-dir",
            str(self._folder / "bookkeeper"),
            "--bookkeeper-port",
            str(self._ports.bookie),
            "--advertised-address",
            LOOPBACK,
        ]

    def _settings(self, bucket: str) -> Mapping[str, object]:
        return {
            "clusterName": "standalone",
            "brokerServicePort": self._ports.service,
            "webServicePort": self._ports.web,
            "bindAddress": LOOPBACK,
            "advertisedAddress": LOOPBACK,
            "numIOThreads": 2,
            "numHttpServerThreads": 4,
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
            "enableRunBookieTogether": "true",
            "journalSyncData": "false",
            # As in the `bookkeeper.conf` of Pulsar: a message of the greatest size fits in a frame.
            "nettyMaxFrameSizeBytes": (5 << 20) + (10 << 10),
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "managedLedgerCacheSizeMB": 32,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "managedLedgerMaxEntriesPerLedger": MAX_LEDGER_ENTRIES,
            # Golden sets have the uncompressed form.
            "managedLedgerInfoCompressionType": "LZ4",
            "managedLedgerInfoCompressionThresholdInBytes": 0,
            "managedCursorInfoCompressionType": "ZSTD",
            "managedCursorInfoCompressionThresholdInBytes": 0,
            "offloadersDirectory": LIBRARIES / "offloaders",
            "narExtractionDirectory": LIBRARIES / "unpacked",
            "managedLedgerOffloadDriver": "aws-s3",
            "managedLedgerOffloadBucket": bucket,
            "managedLedgerOffloadRegion": REGION,
            "managedLedgerOffloadServiceEndpoint": self._s3.endpoint_url,
            "managedLedgerOffloadMaxBlockSizeInBytes": 5 << 20,
            "managedLedgerOffloadMaxThreads": 2,
            "systemTopicEnabled": "true",
            "topicLevelPoliciesEnabled": "true",
            "transactionCoordinatorEnabled": "true",
            # Else it deletes what is read, the objects in the bucket too.
            "brokerDeleteInactiveTopicsEnabled": "false",
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
            "backlogQuotaDefaultLimitGB": -1,
        }


def _pass_on(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
    """Pass on each line that a process prints, and an empty one when it ends."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            answers.put(line)
    answers.put("")
