"""Values of options, which may be of any type: errors name the option."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Mapping
from typing import SupportsIndex, cast

from arrow_io.errors import OptionError
from arrow_io.option_names import option_name


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
    # Python counts a flag as a number.
    number = None if isinstance(value, bool) else _index(value)
    if number is None:
        message = f"{option_name(option)} must be a whole number, not {value!r}"
        raise OptionError(message)
    if not least <= number <= greatest:
        message = f"{option_name(option)} is {number}; allowed are {least} … {greatest}"
        raise OptionError(message)


def _index(value: object) -> int | None:
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError:
        return None


def check_count(option: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        OptionError: It is not allowed.
    """
    check_whole_number(option, value, -sys.maxsize, sys.maxsize)
    if isinstance(value, int) and value < 1:
        message = f"{option_name(option)} must be at least 1, not {value}"
        raise OptionError(message)


def check_flag(option: str, value: object) -> None:
    """Refuse what is neither true nor false, such as their names.

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


def check_instance(type_: type, what: str, option: str, value: object) -> None:
    """Refuse what is not of a type.

    Args:
        type_: The type.
        what: How the error calls what has this type.
        option: Name of the option.
        value: What was given.

    Raises:
        OptionError: It is not allowed.
    """
    if not isinstance(value, type_):
        message = f"{option_name(option)} must be {what}, not {kind_of(value)}"
        raise OptionError(message)


def check_by_name(option: str, value: object) -> None:
    """Refuse what is not a mapping by text; nothing of it is shown, for it may hold secrets.

    Raises:
        OptionError: It is not allowed.
    """
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
        message = f"{option_name(option)} must be a mapping by names, not {kind_of(value)}"
        raise OptionError(message)


def path_or_url(option: str, value: object) -> str:
    """The text of a path or URL.

    Args:
        option: Name of the option.
        value: A text, or a path of `pathlib`.

    Raises:
        OptionError: It is neither; or it is empty, which file systems take for the working
            directory.
    """
    text: object = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text.strip():
        given = "an empty text" if isinstance(text, str) else kind_of(value)
        message = (
            f"{option_name(option)} must be a path or URL, such as s3://bucket/prefix, not {given}"
        )
        raise OptionError(message)
    return text


def kind_of(value: object) -> str:
    """What a value is, with its article, and nothing of what may be a secret.

    Example:
        >>> kind_of(5), kind_of("text"), kind_of(None)
        ('an int', 'a str', 'None')
    """
    if value is None:
        return "None"
    # Not always the name of the class, which may be one that hides what it holds.
    kind = "str" if isinstance(value, str) else type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
