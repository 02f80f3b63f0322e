"""Storage options that are ours and not the file system's: how long a request may take."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import shown_to_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.failures import RetryPolicy

ATTEMPTS_OPTION: Final = "request_attempts"
DEADLINE_OPTION: Final = "request_deadline_s"
_MAX_ATTEMPTS: Final = 1000
_MAX_DEADLINE_S: Final = 86_400


def with_options(policy: RetryPolicy, storage_options: Mapping[str, object]) -> RetryPolicy:
    """The policy that storage options ask for.

    Args:
        policy: What holds unless they say otherwise.
        storage_options: Options of the file system, and perhaps ours; numbers may be text.

    Raises:
        OptionError: An option is not a number, or out of bounds.
    """
    if ATTEMPTS_OPTION in storage_options:
        attempts = _number(storage_options, ATTEMPTS_OPTION, 1, _MAX_ATTEMPTS)
        if not attempts.is_integer():
            message = f"{ATTEMPTS_OPTION} must be a whole number, not {attempts}"
            raise OptionError(message)
        policy = replace(policy, attempts=int(attempts))
    if DEADLINE_OPTION in storage_options:
        deadline_s = _number(storage_options, DEADLINE_OPTION, 0.001, _MAX_DEADLINE_S)
        policy = replace(policy, deadline_s=deadline_s)
    return policy


def without_ours(storage_options: Mapping[str, object]) -> dict[str, object]:
    """The options that the file system takes."""
    ours = (ATTEMPTS_OPTION, DEADLINE_OPTION)
    return {name: value for name, value in storage_options.items() if name not in ours}


def _number(
    storage_options: Mapping[str, object], name: str, least: float, greatest: float
) -> float:
    # It is not a secret, as the file system's options may be.
    value = shown_to_library(storage_options[name])
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        number = math.nan
    if not least <= number <= greatest:
        message = f"{name} must be a number from {least} to {greatest}, not {value!r}"
        raise OptionError(message)
    return number
