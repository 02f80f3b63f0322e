"""Copies and other writers of lake tables, killed at any of their requests."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Final

import deltalake
from deltalake import transaction

from arrow_io.storage.trace import RequestKind, RequestTrace
from connector.tables import delta

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_CHANGING: Final = {RequestKind.PUT, RequestKind.UPLOAD, RequestKind.PART, RequestKind.DELETE}


class Killed(BaseException):
    """The process is no more; whatever it asks of a store from now on, it does not ask."""


class Killer:
    """Kills what runs before one of the requests that change something, a Delta commit among them.

    Args:
        monkeypatch: Undone by `revive`.
        step: Number of the request, from 1.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self._monkeypatch = monkeypatch
        self._left = itertools.count(step - 1, -1)
        self._lock = threading.Lock()
        sent = RequestTrace.note_request

        def killing(
            trace: RequestTrace,
            kind: RequestKind,
            name: str,
            *args: Any,  # noqa: ANN401
            **options: Any,  # noqa: ANN401
        ) -> None:
            if kind in _CHANGING:
                self.step()
            sent(trace, kind, name, *args, **options)

        monkeypatch.setattr(RequestTrace, "note_request", killing)
        create = self._stepping(transaction.create_table_with_add_actions)
        monkeypatch.setattr(delta, "create_table_with_add_actions", create)
        append = self._stepping(deltalake.DeltaTable.create_write_transaction)
        monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", append)

    def step(self) -> None:
        """Count a request, or be dead."""
        with self._lock:
            if next(self._left) <= 0:
                raise Killed

    def revive(self) -> None:
        """Let requests be sent again, as by the next process."""
        self._monkeypatch.undo()

    def _stepping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self.step()
            return function(*args, **options)

        return stepping
