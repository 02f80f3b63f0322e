"""Waiting for what a thread or a process does in its own time: no test may assume an instant."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S: Final = 60.0
"""How long a test waits for what takes no time on an idle machine."""
_LOOK_AGAIN_S: Final = 0.01


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Look until a condition holds.

    Raises:
        TimeoutError: It does not hold in that time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            message = f"not within {seconds} s"
            raise TimeoutError(message)
        time.sleep(_LOOK_AGAIN_S)
