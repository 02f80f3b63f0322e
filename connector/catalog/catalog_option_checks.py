"""Options that say where topics are, and how to get there: what each may be by itself.

Sources of metadata are read, and refused, by `metadata_source`; URLs by `Location`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError
from arrow_io.option_values import check_by_name, check_count, check_instance
from arrow_io.storage.trace import RequestTrace

if TYPE_CHECKING:
    from collections.abc import Callable


def _urls_by_name(option: str, value: object) -> None:
    check_by_name(option, value)
    urls = value.values() if isinstance(value, Mapping) else ()
    if not all(isinstance(each, str) and each.strip() for each in urls):
        message = f"{option} must be URLs by the names of buckets"
        raise OptionError(message)


PLACE_CHECKS: Final[Mapping[str, Callable[[str, object], None]]] = {
    "storage_options": check_by_name,
    "metadata_options": check_by_name,
    "buckets": _urls_by_name,
    "range_bytes": check_count,
    "trace": partial(check_instance, RequestTrace, "a RequestTrace"),
}
"""What refuses the value of an option, by its name; each is called with both."""


def check_place(options: Mapping[str, object]) -> None:
    """Refuse options of a catalog that no other option could make right.

    Args:
        options: Values by name; None where an option is not given.

    Raises:
        OptionError: A value is not allowed.
    """
    for option, value in options.items():
        if value is not None or option == "range_bytes":
            PLACE_CHECKS[option](option, value)
