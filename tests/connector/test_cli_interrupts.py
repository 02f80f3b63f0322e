"""Ctrl-C and SIGTERM end every command at once, whatever it waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.buckets import object_name, offload_ledger
from tests.support.entries import Message, encode_entry
from tests.support.s3_server import running_s3_server
from tests.support.stalling_server import never, stalling_server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

pytestmark = pytest.mark.posix

_WAIT_S = 60
_INTERRUPTED, _TERMINATED = 130, 143
_ENDS = [(signal.SIGINT, _INTERRUPTED), (signal.SIGTERM, _TERMINATED)]
"""What ends a command, and with which exit code."""


def _interrupted(
    endpoint_url: str,
    arrived: threading.Event,
    *arguments: str,
    by: signal.Signals = signal.SIGINT,
) -> int:
    """Start a command, send it a signal when a request has arrived, and return its exit code."""
    options = {"key": "k", "secret": "s", "endpoint_url": endpoint_url}
    given = [f"--storage-option={name}={value}" for name, value in options.items()]
    with subprocess.Popen(
        [sys.executable, "-m", "connector.cli", *arguments, *given],
        env=os.environ | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert arrived.wait(_WAIT_S)
            process.send_signal(by)
            process.communicate(timeout=_WAIT_S)
        finally:
            process.kill()
    return process.returncode


_QUERY = "SELECT * FROM read_pulsar('orders') ORDER BY ALL"


_LISTING: Final = {
    "audit": ["audit", "s3://bucket"],
    "query": ["query", "s3://bucket", _QUERY],
    "save": ["save", "s3://bucket", "catalog.json.gz"],
    "topics": ["topics", "s3://bucket"],
}
_BY_DEFAULT: Final = {("query", signal.SIGINT), ("save", signal.SIGTERM)}
"""Each signal once, and each kind of thread that waits: DuckDB's, and those of a command."""


@pytest.mark.parametrize(
    ("command", "by", "exit_code"),
    [
        pytest.param(
            command,
            by,
            exit_code,
            marks=() if (command, by) in _BY_DEFAULT else pytest.mark.exhaustive,
        )
        for command in _LISTING
        for by, exit_code in _ENDS
    ],
)
def test_command_that_waits_for_a_listing_ends(
    tmp_path: Path, command: str, by: signal.Signals, exit_code: int
) -> None:
    """No answer ever comes, and no thread that waits for one holds the process up."""
    arguments = _LISTING[command]
    arguments = [str(tmp_path / each) if each.endswith(".gz") else each for each in arguments]
    with stalling_server(never) as server:
        code = _interrupted(server.endpoint_url, server.arrived, *arguments, by=by)

    assert code == exit_code
    assert list(tmp_path.iterdir()) == []


class _NoData:
    """Stands before a server, and never answers requests for ranges of objects."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.over = threading.Event()

    def wrap(self, server: WSGIApplication) -> WSGIApplication:
        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if "HTTP_RANGE" in environ:
                self.arrived.set()
                self.over.wait()
            return server(environ, start_response)

        return answer


@pytest.mark.s3
@pytest.mark.parametrize(
    "arguments",
    [
        ["head", "orders"],
        ["query", _QUERY],
        pytest.param(["audit", "--verify"], marks=pytest.mark.exhaustive),
    ],
    ids=lambda arguments: arguments[0],
)
def test_command_that_waits_for_data_ends(arguments: list[str]) -> None:
    """In DuckDB's threads, in those that read ahead, and in the main thread alike."""
    entries = [encode_entry([Message(payload=b"value")], batched=False)]
    no_data = _NoData()
    with running_s3_server(no_data.wrap) as server:
        url = server.upload(offload_ledger(object_name(5), entries)).url
        command, *rest = arguments
        try:
            code = _interrupted(server.endpoint_url, no_data.arrived, command, url, *rest)
        finally:
            no_data.over.set()

    assert code == _INTERRUPTED


_NOTE = (
    "note: stopping after half-written objects are deleted; a second Ctrl-C or SIGTERM stops at"
    " once and leaves them\n"
)
_START = "import signal, sys; from connector.cli import interrupts; interrupts.end_at_interrupts()"


@pytest.mark.parametrize(
    "code",
    [
        # The handler runs when nothing is being written any more.
        "with interrupts.cleaned_up(): pass\ninterrupts._interrupt(signal.SIGINT, None)",
        # What is being written catches what the handler raises.
        """with interrupts.cleaned_up():
    try: signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt: print("cleaned up")""",
        # Nobody reads what is printed.
        """import os
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 1)
sys.stdout = open(1, "w")
sys.stdout.write("x")
interrupts.exit_at_once()""",
    ],
)
def test_no_interrupt_is_lost(code: str) -> None:
    """Whoever hears of it first, and whoever catches what it raises."""
    ended = _run(f"{_START}\n{code}\nprint('lost')")

    assert ended.returncode == _INTERRUPTED
    assert ended.stderr == (_NOTE if "raise_signal" in code else "")
    assert "lost" not in ended.stdout


_ELSEWHERE = """
import threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
with interrupts.cleaned_up():
    try:
        threading.Timer(0, os.kill, [os.getpid(), signal.SIGTERM]).start()
        {wait}
    finally: print("cleaned up")
"""


@pytest.mark.parametrize(
    "wait",
    [
        "time.sleep(9999)",
        "threading.Event().wait()",
        "threading.Semaphore(0).acquire(timeout=9999)",
    ],
)
def test_signal_that_does_not_end_a_wait_by_itself(wait: str) -> None:
    """It reaches another thread, as one that comes just before the wait reaches nobody."""
    ended = _run(f"import os\n{_START}\n{_ELSEWHERE.format(wait=wait)}")

    assert (ended.returncode, ended.stdout) == (_TERMINATED, "cleaned up\n")
    assert ended.stderr == _NOTE


_WRITING = """
import signal, sys
from pathlib import Path
import pyarrow as pa
from connector import cli
from connector.cli import writing

bucket, file, name = sys.argv[1:]

def batches(_file):
    for number in range(8):
        yield pa.record_batch({"__value__": [b"%d" % number]})
    assert any(each.is_file() for each in Path(bucket).rglob("*"))
    signal.raise_signal(signal.Signals[name])
    yield pa.record_batch({"__value__": [b"never written"]})

writing._batches = batches
limits = ["--ledger-entries=2", "--batch-messages=1"]
sys.argv[1:] = ["write", bucket, "orders", file, *limits]
cli.main()
"""


@pytest.mark.parametrize(("by", "exit_code"), _ENDS)
def test_write_deletes_what_it_has_written_and_says_so(
    tmp_path: Path, by: signal.Signals, exit_code: int
) -> None:
    """Nothing is left of a write that is stopped, and the wait for that is explained."""
    bucket, file = tmp_path / "bucket", tmp_path / "orders.parquet"
    file.touch()

    ended = _run(_WRITING, str(bucket), str(file), by.name)

    assert (ended.returncode, ended.stdout) == (exit_code, "")
    assert ended.stderr == _NOTE
    assert not bucket.exists()


def test_interrupt_while_modules_are_imported_ends() -> None:
    """Without a traceback."""
    ended = _run(
        "import signal\nfrom connector import cli\n"
        "cli.load_app = lambda: signal.raise_signal(signal.SIGINT)\ncli.main()"
    )

    assert (ended.returncode, ended.stderr) == (_INTERRUPTED, "")


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WAIT_S)
