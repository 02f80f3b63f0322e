"""What each option of `open_topic` may be, whatever the others are: errors name it.

Options whose form is a matter of its own are read, and refused, where that is done: schemas by
`connector.catalog.schemas.loading`, keys by `connector.decryption_keys`, sources of metadata by
`connector.catalog.metadata.source`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from arrow_io.columns import DEFAULT_COLUMNS, NAMINGS
from arrow_io.errors import OptionError
from arrow_io.option_values import (
    check_count,
    check_flag,
    check_instance,
    check_one_of,
    check_whole_number,
)
from connector.bounds import Bounds
from connector.catalog.catalog import Catalog
from connector.catalog.catalog_option_checks import PLACE_CHECKS
from connector.topic_name import topic_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.bounds import Bound

VALUES: Final = ("flat", "struct", "raw")
TIME_UNITS: Final = ("ns", "us")
TRANSACTIONS: Final = ("committed", "all")
ON_CORRUPTION: Final = ("raise", "salvage")


def check_options(options: Mapping[str, object]) -> None:
    """Refuse options of `open_topic` that no other option could make right.

    Args:
        options: Values by name; names that have no check here are passed over.

    Raises:
        OptionError: A value is not allowed.

    Example:
        >>> check_options({"value": "struct", "batch_rows": 500, "catalog": None})
    """
    for option, value in options.items():
        if option in _CHECKS and (value is not None or option not in _OPTIONAL):
            _CHECKS[option](option, value)


def _version(option: str, value: object) -> None:
    check_whole_number(option, value, -sys.maxsize, sys.maxsize)


def _column_names(option: str, value: object) -> None:
    if value == DEFAULT_COLUMNS:
        return
    is_list = isinstance(value, Collection) and not isinstance(value, str)
    names = value if isinstance(value, Collection) else ()
    if not is_list or not all(isinstance(each, str) for each in names):
        message = f"{option} must be a list of names, not {value!r}"
        raise OptionError(message)


def _bound(option: str, value: object) -> None:
    bound = cast("Bound", value)
    Bounds.parse(*((bound, None) if option == "start" else (None, bound)))


def _topic(_option: str, value: object) -> None:
    topic_names(value)


_CHECKS: Final[Mapping[str, Callable[[str, object], None]]] = {
    **PLACE_CHECKS,
    "topic": _topic,
    "catalog": partial(check_instance, Catalog, "what open_catalog gave"),
    "start": _bound,
    "end": _bound,
    "columns": _column_names,
    "schema_version": _version,
    "value": partial(check_one_of, VALUES),
    "time_unit": partial(check_one_of, TIME_UNITS),
    "naming": partial(check_one_of, NAMINGS),
    "transactions": partial(check_one_of, TRANSACTIONS),
    "on_corruption": partial(check_one_of, ON_CORRUPTION),
    "verify_checksums": check_flag,
    "batch_rows": check_count,
    "batch_bytes": check_count,
}
_OPTIONAL: Final = frozenset(
    {
        "storage_options",
        "catalog",
        "metadata_options",
        "buckets",
        "start",
        "end",
        "columns",
        "schema_version",
        "trace",
    }
)
"""Options that may be None."""
