"""A process that offloads a ledger, and stops for ever at a step of it, to be killed there.

The steps are what the process asks of the store: requests on their way, requests done, and what it
does to files of the folder. It says on a pipe that it has come there, so nobody waits for a time.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import LedgerOffloader, LedgerToOffload
from tests.support.offloads import LEDGER_ID, metadata_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection
    from uuid import UUID

_FINISHED = "finished"
_FILE_EVENTS = frozenset({"open", "os.mkdir", "os.remove", "os.rename", "shutil.move"})

# Its server process imports everything once, and is forked for each offload.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, "s3fs"])


@dataclass(frozen=True)
class OffloadToKill:
    """An offload for another process to do.

    Attributes:
        url: Where to.
        storage_options: Options of the file system.
        block_bytes: Block size.
        entries: Entries of the ledger.
        uuid: Id of the attempt.
    """

    url: str
    storage_options: Mapping[str, object]
    block_bytes: int
    entries: Sequence[bytes]
    uuid: UUID

    def run_until(self, step: int) -> str | None:
        """Do it in another process, which is killed when it has come to a step.

        Args:
            step: Number of the step, from 1.

        Returns:
            What the process was about to do, or had done; None if it came to its end before.
        """
        here, there = _context.Pipe()
        process = _context.Process(target=_offload, args=(self, step, there))
        process.start()
        there.close()
        try:
            assert here.poll(60), "neither a step nor the end was reached"
            reached: str = here.recv()
        finally:
            process.kill()
            process.join()
            process.close()
            here.close()
        return None if reached == _FINISHED else reached


class _Steps:
    """Counts steps, and stops at one of them."""

    def __init__(self, last: int, connection: Connection) -> None:
        self._left = last
        self._connection = connection
        self._lock = threading.RLock()

    def reach(self, what: str) -> None:
        """Count a step; the last one never ends."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._connection.send(what)
                threading.Event().wait()


class _SteppingTrace(RequestTrace):
    """A trace whose every event is a step."""

    def __init__(self, steps: _Steps) -> None:
        super().__init__()
        self._steps = steps

    def note_request(
        self, kind: RequestKind, name: str, start: int | None = None, stop: int | None = None
    ) -> None:
        """Before a request is sent."""
        super().note_request(kind, name, start, stop)
        self._steps.reach(f"before {kind} of {name}")

    def note_written_bytes(self, kind: RequestKind, size_bytes: int) -> None:
        """After something was written."""
        super().note_written_bytes(kind, size_bytes)
        self._steps.reach(f"after {kind}")


def _offload(offload: OffloadToKill, step: int, connection: Connection) -> None:
    steps = _Steps(step, connection)
    folder = os.path.abspath(offload.url)  # noqa: PTH100 - compared with the paths of events

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILE_EVENTS and str(arguments[0]).startswith(folder):
            steps.reach(f"before {event} of {arguments[0]}")

    if "://" not in offload.url:
        sys.addaudithook(on_event)
    with patch("connector.writing.offloader.MIN_STORE_BLOCK_BYTES", offload.block_bytes):
        offloader = LedgerOffloader(
            offload.url,
            storage_options=offload.storage_options,
            block_bytes=offload.block_bytes,
            trace=_SteppingTrace(steps),
        )
    ledger = LedgerToOffload(LEDGER_ID, metadata_of(offload.entries), offload.entries)
    offloader.offload(ledger, offload.uuid)
    steps.reach("the end of the offload")
    connection.send(_FINISHED)
