"""Checks of the values of options, which users may give of any type; errors name the option."""

from __future__ import annotations

import contextlib
import operator
import os
import sys
from collections.abc import Mapping
from typing import Final, SupportsIndex, cast

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError

BATCH_ROWS: Final = 65_536
"""Most rows of a record batch, unless an option says otherwise."""
BATCH_BYTES: Final = 4 << 20
"""Bytes of entries, and of what is made of them, after which a record batch ends."""


def check_whole_number(option: str, value: object, least: int, greatest: int) -> None:
    """Refuse what is not a whole number, or is out of bounds.

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
    number = _whole_number(option, value)
    if not least <= number <= greatest:
        message = f"{option_name(option)} is {number}; allowed are {least} … {greatest}"
        raise OptionError(message)


def _whole_number(option: str, value: object) -> int:
    # Python counts a flag as a number.
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(cast("SupportsIndex", value))
    message = f"{option_name(option)} must be a whole number, not {value!r}"
    raise OptionError(message)


def check_count(option: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        OptionError: It is not allowed.
    """
    number = _whole_number(option, value)
    if number < 1:
        message = f"{option_name(option)} must be at least 1, not {number}"
        raise OptionError(message)
    check_whole_number(option, number, 1, sys.maxsize)


def check_flag(option: str, value: object) -> None:
    """Refuse what is neither true nor false, such as the text `"true"`.

    Raises:
        OptionError: It is not allowed.
    """
    if not isinstance(value, bool):
        message = f"{option_name(option)} must be true or false, not {value!r}"
        raise OptionError(message)


def check_one_of(allowed: tuple[str, ...], option: str, value: object) -> None:
    """Refuse a text that is not one of those allowed.

    Raises:
        OptionError: It is not allowed.
    """
    if not isinstance(value, str) or value not in allowed:
        message = f"{option_name(option)} must be one of {', '.join(allowed)}, not {value!r}"
        raise OptionError(message)


def check_instance(type_: type, label: str, option: str, value: object) -> None:
    """Refuse what is not of a type.

    Args:
        type_: The type.
        label: What the error calls a value of this type, with its article.
        option: Name of the option.
        value: What was given.

    Raises:
        OptionError: It is not allowed.
    """
    if not isinstance(value, type_):
        message = f"{option_name(option)} must be {label}, not {type_name(value)}"
        raise OptionError(message)


def check_by_name(option: str, value: object) -> None:
    """Refuse what is not a mapping from names; the error shows nothing of it, as of a secret.

    Raises:
        OptionError: It is not allowed.
    """
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        message = f"{option_name(option)} must be a mapping by names, not {type_name(value)}"
        raise OptionError(message)


def path_or_url(option: str, value: object) -> str:
    """The text of a path or URL.

    Args:
        option: Name of the option.
        value: A text, or a path of `pathlib`.

    Raises:
        OptionError: It is neither, or it is empty: file systems take an empty text for the working
            directory.
    """
    text: object = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text.strip():
        shown = "an empty text" if isinstance(text, str) else type_name(value)
        message = (
            f"{option_name(option)} must be a path or URL, such as s3://bucket/prefix, not {shown}"
        )
        raise OptionError(message)
    return text


def type_name(value: object) -> str:
    """The kind of a value, with its article; nothing of the value itself, which may be a secret.

    Example:
        >>> type_name(5), type_name("text"), type_name(None)
        ('an int', 'a str', 'None')
    """
    if value is None:
        return "None"
    # A text may be of a class that hides what it holds, whose name says nothing to a user.
    kind = "str" if isinstance(value, str) else type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
