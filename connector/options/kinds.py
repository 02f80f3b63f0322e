"""The kinds of option values, and the conversion of texts to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args, runtime_checkable

from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import (
    check_by_name,
    check_count,
    check_flag,
    check_instance,
    check_one_of,
    check_whole_number,
    path_or_url,
)
from arrow_io.errors import OptionError
from arrow_io.messages.column_names import DEFAULT_COLUMNS
from arrow_io.storage.trace import RequestTrace
from connector.inputs.times import duration
from connector.options.nested import json_object

if TYPE_CHECKING:
    from arrow_io.storage.location import Location
    from connector.inputs.bounds import Bound


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of value.

    Attributes:
        form: Form of a text of it; if it repeats, the form of one part.
        check: Raises if a value is not of the kind; called with the option's name and the value.
        read: Converts a text to a value; called with the option's name and the text. None if no
            text can represent a value, so that only Python can pass it.
        allowed: All allowed values; empty if they cannot be listed.
        repeats: Whether it has parts, which the shell takes one by one.
    """

    form: str
    check: Callable[[str, object], None]
    read: Callable[[str, str], object] | None
    allowed: tuple[str, ...] = ()
    repeats: bool = False


@runtime_checkable
class OpenedCatalog(Protocol):
    """A catalog returned by `open_catalog`, as far as options use it."""

    @property
    def location(self) -> Location:
        """The location that it was opened for."""

    def select(self, patterns: Any, /) -> Any:  # noqa: ANN401 - see `Catalog.select`
        """Return topics by their names."""


def one_of(literal: object) -> Kind:
    """Return the kind whose values are the texts of a `Literal`."""
    allowed = get_args(literal)
    return Kind(
        form="|".join(allowed),
        check=partial(check_one_of, allowed),
        read=read_text,
        allowed=allowed,
    )


def read_text(_option: str, text: str) -> str:
    """Return a text unchanged."""
    return text


def _unchecked(_option: str, _value: object) -> None:
    """Accept any value; the code that reads it reports errors."""


def read_flag(option: str, text: str) -> bool:
    """Convert `true` or `false`, in any case.

    Raises:
        OptionError: It is neither.
    """
    word = text.lower()
    check_flag(option, {"true": True, "false": False}.get(word, text))
    return word == "true"


def read_number(option: str, text: str) -> int:
    """Convert a whole number.

    Raises:
        OptionError: It is not one.
    """
    try:
        return int(text)
    except ValueError:
        message = f"{option_name(option)} must be a whole number, not {text!r}"
        raise OptionError(message) from None


def read_count(option: str, text: str) -> int:
    """Convert a whole number of at least 1.

    Raises:
        OptionError: It is not one.
    """
    number = read_number(option, text)
    check_count(option, number)
    return number


def whole_number(least: int, greatest: int) -> Kind:
    """Return the kind of whole numbers within bounds, both inclusive."""
    check = partial(check_whole_number, least=least, greatest=greatest)
    return Kind(form="NUMBER", check=check, read=read_number)


def _check_version(option: str, value: object) -> None:
    check_whole_number(option, value, -sys.maxsize, sys.maxsize)


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Split a text at commas into names.

    Raises:
        OptionError: One of them is empty.
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        message = (
            f"{option_name(option)} must be one name or several, separated by commas, not {text!r}"
        )
        raise OptionError(message)
    return names


def _check_name(option: str, value: object) -> None:
    if not (isinstance(value, str) and value):
        message = f"{option_name(option)} must be the name of a {option}, not {value!r}"
        raise OptionError(message)


def _check_duration(option: str, value: object) -> None:
    check_instance(str, "a time such as 10m", option, value)
    duration(option_name(option), str(value))


def _check_folder(option: str, value: object) -> None:
    path_or_url(option, value)


def _check_brokers(option: str, value: object) -> None:
    # The live client checks the URL itself. No error shows it: it may contain a secret.
    check_instance(str, "the URL of brokers, such as pulsar://localhost:6650", option, value)


def _check_names(option: str, value: object) -> None:
    if isinstance(value, str) and value == DEFAULT_COLUMNS:
        return
    is_list = isinstance(value, Collection) and not isinstance(value, str)
    names = value if isinstance(value, Collection) else ()
    if not is_list or not all(isinstance(each, str) for each in names):
        message = f"{option_name(option)} must be a list of names, not {value!r}"
        raise OptionError(message)


def _check_bound(option: str, value: object) -> None:
    # Importing Arrow takes long, and most requests have no bounds.
    from connector.inputs.bounds import Bounds  # noqa: PLC0415

    bound = cast("Bound", value)
    Bounds.parse(*((bound, None) if option == "start" else (None, bound)))


def _read_object(option: str, text: str) -> dict[str, object]:
    return json_object(option_name(option), text)


def _check_urls(option: str, value: object) -> None:
    check_by_name(option, value)
    urls = value.values() if isinstance(value, Mapping) else ()
    if not all(isinstance(each, str) and each.strip() for each in urls):
        message = (
            f"{option_name(option)} must be URLs by the names of buckets, such as"
            " {'archive': 's3://archive'}"
        )
        raise OptionError(message)


FLAG: Final = Kind(form="true|false", check=check_flag, read=read_flag)
COUNT: Final = Kind(form="NUMBER", check=check_count, read=read_count)
VERSION: Final = Kind(form="NUMBER", check=_check_version, read=read_number)
NAMES: Final = Kind(form="NAME,…", check=_check_names, read=read_names)
DURATION: Final = Kind(form="TIME", check=_check_duration, read=read_text)
BOUND: Final = Kind(form="TIME|ID", check=_check_bound, read=read_text)
NAME: Final = Kind(form="NAME", check=_check_name, read=read_text)
FOLDER: Final = Kind(form="FOLDER", check=_check_folder, read=read_text)
SOURCE: Final = Kind(form="SOURCE", check=_unchecked, read=read_text)
BY_NAME: Final = Kind(form="KEY=VALUE", check=check_by_name, read=_read_object, repeats=True)
URLS_BY_NAME: Final = Kind(form="NAME=URL", check=_check_urls, read=_read_object, repeats=True)
BROKERS: Final = Kind(form="URL", check=_check_brokers, read=read_text)
CATALOG: Final = Kind(
    form="CATALOG",
    check=partial(check_instance, OpenedCatalog, "a catalog from open_catalog"),
    read=None,
)
TRACE: Final = Kind(
    form="TRACE", check=partial(check_instance, RequestTrace, "a RequestTrace"), read=None
)
