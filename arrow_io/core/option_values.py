"""Checks of option values; users may pass any type, and errors name the option."""

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
"""Default maximum number of rows of a record batch."""
BATCH_BYTES: Final = 4 << 20
"""A record batch ends when its entries, or the values decoded from them, have this size."""


def check_whole_number(option: str, value: object, least: int, greatest: int) -> None:
    """Raise `OptionError` unless a value is a whole number from `least` to `greatest` (inclusive).

    Example:
        >>> check_whole_number("partitions", 3, 1, 500)
    """
    number = _whole_number(option, value)
    if not least <= number <= greatest:
        message = f"{option_name(option)} is {number}; allowed are {least} … {greatest}"
        raise OptionError(message)


def _whole_number(option: str, value: object) -> int:
    # In Python a bool is an int.
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(cast("SupportsIndex", value))
    message = f"{option_name(option)} must be a whole number, not {value!r}"
    raise OptionError(message)


def check_count(option: str, value: object) -> None:
    """Raise `OptionError` unless a value is a whole number of at least 1."""
    number = _whole_number(option, value)
    if number < 1:
        message = f"{option_name(option)} must be at least 1, not {number}"
        raise OptionError(message)
    check_whole_number(option, number, 1, sys.maxsize)


def check_flag(option: str, value: object) -> None:
    """Raise `OptionError` unless a value is a bool; the text `"true"` is not one."""
    if not isinstance(value, bool):
        message = f"{option_name(option)} must be true or false, not {value!r}"
        raise OptionError(message)


def check_one_of(allowed: tuple[str, ...], option: str, value: object) -> None:
    """Raise `OptionError` unless a value is one of the allowed texts."""
    if not isinstance(value, str) or value not in allowed:
        message = f"{option_name(option)} must be one of {', '.join(allowed)}, not {value!r}"
        raise OptionError(message)


def check_instance(type_: type, label: str, option: str, value: object) -> None:
    """Raise `OptionError` unless a value has a type; `label` is the type's name, with article."""
    if not isinstance(value, type_):
        message = f"{option_name(option)} must be {label}, not {type_name(value)}"
        raise OptionError(message)


def check_by_name(option: str, value: object) -> None:
    """Raise `OptionError`, without keys or values, unless a value is a mapping with text keys."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        message = (
            f"{option_name(option)} must be a mapping with names as keys, not {type_name(value)}"
        )
        raise OptionError(message)


def path_or_url(option: str, value: object) -> str:
    """Return a path or URL, which may be a `pathlib` path, as text.

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
    """Return the type of a value with its article, and nothing of the value: it may be a secret.

    Example:
        >>> type_name(5), type_name("text"), type_name(None)
        ('an int', 'a str', 'None')
    """
    if value is None:
        return "None"
    # Secrets are instances of a subclass of str, whose name means nothing to a user.
    kind = "str" if isinstance(value, str) else type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
