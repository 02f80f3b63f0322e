"""An HDFS on loopback in a process of its own, empty at its start.

`make broker` puts into `build/broker/hdfs` what it consists of. `hdfs/HdfsUnderTest.java` is the
program.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.broker.running_broker import HERE, LIBRARIES, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CLASS_PATH: Final = LIBRARIES / "hdfs" / "classpath.txt"
_START_SECONDS: Final = 90


@dataclass(frozen=True)
class Hdfs:
    """A running HDFS.

    Attributes:
        web_port: Port of WebHDFS.
        rpc_port: Port of Hadoop's own protocol.
    """

    web_port: int
    rpc_port: int

    def url(self, scheme: str) -> str:
        """Return the URL of the root by `webhdfs` or `hdfs`."""
        port = {"webhdfs": self.web_port, "hdfs": self.rpc_port}[scheme]
        return f"{scheme}://{LOOPBACK}:{port}"


@contextmanager
def running_hdfs(folder: Path) -> Iterator[Hdfs]:
    """Run an HDFS whose files are in a folder."""
    # A NameNode looks for its pages on the class path.
    for name in ("hdfs", "datanode"):
        (folder / "webapps" / name).mkdir(parents=True)
    java_home = os.environ.get("JAVA_HOME")
    command = [
        f"{java_home}/bin/java" if java_home else shutil.which("java") or "java",
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-cp",
        f"{folder}:{_CLASS_PATH.read_text().strip()}",
        str(HERE / "hdfs" / "HdfsUnderTest.java"),
        str(folder),
    ]
    with (folder / "hdfs.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    # Without the program's answer, its end is the end of the wait.
    timer = threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
        timer.cancel()
        assert line, f"no HDFS was started; its log: {(folder / 'hdfs.log').read_text()[-4000:]}"
        yield Hdfs(*map(int, line.split()))
    finally:
        timer.cancel()
        process.stdin.close()
        process.stdout.close()
        process.wait(_START_SECONDS)
