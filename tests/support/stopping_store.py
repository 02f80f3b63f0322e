"""A store that fails at one of the requests that change something, or from one of them on."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from arrow_io.storage.trace import RequestKind, RequestTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANGING: Final = frozenset(
    {RequestKind.PUT, RequestKind.UPLOAD, RequestKind.PART, RequestKind.DELETE}
)


class Killed(BaseException):
    """The process is no more; whatever it asks of a store from now on, it does not ask."""


@contextmanager
def stopping(
    step: int,
    error: Callable[[], BaseException],
    *,
    once: bool,
    kinds: frozenset[RequestKind] = CHANGING,
) -> Iterator[list[str]]:
    """Let a request raise an error before it is sent; it is sent as ever behind the block.

    Args:
        step: Number of the request, from 1, among those of these kinds.
        error: Makes the error.
        once: Whether the requests behind it are sent again.
        kinds: By default those that change something.

    Yields:
        What failed, in words; empty if nothing has until now.
    """
    number, sent = itertools.count(1), RequestTrace.note_request
    stopped: list[str] = []

    def stopping_at(
        trace: RequestTrace,
        kind: RequestKind,
        name: str,
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> None:
        if kind in kinds and (next(number) == step or (stopped and not once)):
            stopped.append(f"{kind} of {name}")
            raise error()
        sent(trace, kind, name, *args, **options)

    with patch.object(RequestTrace, "note_request", stopping_at):
        yield stopped
