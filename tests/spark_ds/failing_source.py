"""A source whose writing fails, or is killed, at a step of it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from connector.writing.commit_record import CommitRecordFile
from connector.writing.offloader import LedgerOffloader
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.writer import TopicStreamWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPTIONS: Final = {"failat", "killed"}


class FailingSource(PulsarOffloadDataSource):
    """Writes as its base does, and fails at the step that the option `failAt` names.

    `staged` is behind a task, `deciding` before the decision, `decided` behind it, `half published`
    behind the first index object, and `published` behind all that there is to do. The option
    `killed` ends by SIGKILL a process group, which it names, or the `process` that takes the step.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({name: each for name, each in options.items() if name not in _OPTIONS})
        self._step, self._killed = options["failat"], options.get("killed", "")

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "failing"

    def streamWriter(self, *args: Any, **options: Any) -> TopicStreamWriter:  # noqa: ANN401, N802
        """A writer that fails."""
        writer = super().streamWriter(*args, **options)
        assert isinstance(writer, TopicStreamWriter)
        writer.__class__ = _FailingWriter
        writer.step, writer.killed = self._step, self._killed  # type: ignore[attr-defined]
        return writer


class _FailingWriter(TopicStreamWriter):
    step: str
    killed: str

    def write(self, iterator: Any) -> Any:  # noqa: ANN401
        staged = super().write(iterator)
        self._reach("staged")
        return staged

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: ANN401, N803
        decide = self._around(CommitRecordFile.commit, "deciding", "decided")
        publish = self._around(LedgerOffloader.publish, "", "half published")
        with (
            patch.object(CommitRecordFile, "commit", decide),
            patch.object(LedgerOffloader, "publish", publish),
        ):
            super().commit(messages, batchId)
        self._reach("published")

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: ANN401, N803
        if not self.killed:
            super().abort(messages, batchId)

    def _around(self, method: Callable[..., Any], before: str, behind: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:  # noqa: ANN401
            self._reach(before)
            result = method(*args)
            self._reach(behind)
            return result

        return run

    def _reach(self, step: str) -> None:
        if step != self.step:
            return
        if self.killed.isdecimal():
            os.killpg(int(self.killed), signal.SIGKILL)
        if self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        message = "it fails here"
        raise RuntimeError(message)
