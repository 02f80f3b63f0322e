"""Waiting for what another process does, no longer than it may take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_AGAIN_SECONDS: Final = 0.05


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Look until something holds.

    Raises:
        TimeoutError: It does not hold in that time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            message = f"not within {seconds} s"
            raise TimeoutError(message)
        time.sleep(_LOOK_AGAIN_SECONDS)
