"""Tasks in threads: what becomes of the others if one fails."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pytest

from connector.lake.executors import run_in_threads

if TYPE_CHECKING:
    from connector.lake.task_writer import TaskWriter


def test_tasks_that_wait_behind_one_that_fails_are_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What came of those under way is given, and the error raised then: nothing is waited for."""
    cancel, is_cancelled = Future.cancel, threading.Event()

    def noted(future: Future[Any]) -> bool:
        found = cancel(future)
        is_cancelled.set()
        return found

    def write(task: int) -> int:
        if task == 0:
            raise ValueError("failed")
        is_cancelled.wait()
        return task

    monkeypatch.setattr(Future, "cancel", noted)
    monkeypatch.setattr("connector.lake.executors.processor_count", lambda: 2)
    given: list[Any] = []
    with pytest.raises(ValueError, match="failed"):
        given.extend(run_in_threads(cast("TaskWriter", write), cast("Any", list(range(12)))))

    assert len(given) < 11
