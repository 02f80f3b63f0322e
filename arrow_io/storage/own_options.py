"""Storage options of this project, not of the file system: client, retries, connections."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import shown_to_library

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPTS_OPTION: Final = "request_attempts"
DEADLINE_OPTION: Final = "request_deadline_s"
CONNECTIONS_OPTION: Final = "max_connections"
CLIENT_OPTION: Final = "client"
DEFAULT_MAX_CONNECTIONS: Final = 32
DEFAULT_MAX_INDEX_READS: Final = 64
"""More than for ranges, because an index object is small: only the wait for the answer counts."""
_MAX_ATTEMPTS: Final = 1000
_MAX_DEADLINE_S: Final = 86_400
_MAX_CONNECTIONS: Final = 1024


class Client(StrEnum):
    """The library that sends requests to a bucket."""

    AUTO = "auto"
    """The package of the file system, except for GETs that obstore can send."""
    FSSPEC = "fsspec"
    """The package of the file system."""
    OBSTORE = "obstore"


def retry_options(storage_options: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of a `RetryPolicy` that storage options set; numbers may be text.

    Raises:
        OptionError: An option is not a number, or out of bounds.
    """
    fields: dict[str, Any] = {}
    if ATTEMPTS_OPTION in storage_options:
        fields["attempts"] = _whole_number(storage_options, ATTEMPTS_OPTION, _MAX_ATTEMPTS)
    if DEADLINE_OPTION in storage_options:
        fields["deadline_s"] = _number(storage_options, DEADLINE_OPTION, 0.001, _MAX_DEADLINE_S)
    return fields


def max_connections(
    storage_options: Mapping[str, object], default: int = DEFAULT_MAX_CONNECTIONS
) -> int:
    """Return the maximum number of concurrent requests that options set, perhaps as text.

    Raises:
        OptionError: The option is not a whole number, or out of bounds.
    """
    if CONNECTIONS_OPTION not in storage_options:
        return default
    return _whole_number(storage_options, CONNECTIONS_OPTION, _MAX_CONNECTIONS)


def chosen_client(storage_options: Mapping[str, object]) -> Client:
    """Return the client that options choose.

    Raises:
        OptionError: The option names no client.
    """
    name = shown_to_library(storage_options.get(CLIENT_OPTION, Client.AUTO))
    if not isinstance(name, str) or name not in list(Client):
        message = f"{CLIENT_OPTION} must be 'auto', 'fsspec' or 'obstore', not {name!r}"
        raise OptionError(message)
    return Client(name)


def uses_obstore(storage_options: Mapping[str, object]) -> bool:
    """Return whether all requests go through obstore.

    Raises:
        OptionError: See `chosen_client`.
    """
    return chosen_client(storage_options) is Client.OBSTORE


def library_options(storage_options: Mapping[str, object]) -> dict[str, object]:
    """Return the options for the file system's library."""
    own_names = (ATTEMPTS_OPTION, DEADLINE_OPTION, CONNECTIONS_OPTION, CLIENT_OPTION)
    return {name: value for name, value in storage_options.items() if name not in own_names}


def _whole_number(storage_options: Mapping[str, object], name: str, greatest: int) -> int:
    number = _number(storage_options, name, 1, greatest)
    if not number.is_integer():
        message = f"{name} must be a whole number, not {number}"
        raise OptionError(message)
    return int(number)


def _number(
    storage_options: Mapping[str, object], name: str, least: float, greatest: float
) -> float:
    # This project's own options are no secrets, so the error may show the value.
    value = shown_to_library(storage_options[name])
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        number = math.nan
    if not least <= number <= greatest:
        message = f"{name} must be a number from {least} to {greatest}, not {value!r}"
        raise OptionError(message)
    return number
