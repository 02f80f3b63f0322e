"""Options that are numbers: a user's mistake is told by the option's name."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from arrow_io.errors import OptionError


def check_whole_number(option: str, value: SupportsIndex, least: int, greatest: int) -> None:
    """Refuse what is no whole number, or is out of bounds.

    Args:
        option: Name of the option.
        value: What was given.
        least: Least number allowed.
        greatest: Greatest number allowed (inclusive).

    Raises:
        OptionError: It is not allowed.

    Example:
        >>> check_whole_number("partitions", 3, 1, 500)
    """
    try:
        number = operator.index(value)
    except TypeError:
        message = f"{option} must be a whole number, not {value!r}"
        raise OptionError(message) from None
    if not least <= number <= greatest:
        message = f"{option} is {number}; allowed are {least} … {greatest}"
        raise OptionError(message)
