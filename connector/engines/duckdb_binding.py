"""How a statement finds what its table functions name: arguments, catalogs, Python variables.

DuckDB evaluates a scalar function while it binds a statement. What that function opens is put,
under a name that is used once, among the Python variables in which DuckDB's replacement scan looks;
as soon as DuckDB has found it, the variable is gone.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from arrow_io.errors import OptionError
from connector.options.kinds import BOUND, NAMES
from connector.options.topic_request import OPTIONS, TopicRequest

if TYPE_CHECKING:
    from connector.catalog.catalog import Catalog

PLACE_OPTIONS = ("url", *(name for name, each in OPTIONS.items() if each.scope == "place"))
"""Options that say where topics are."""
_MAX_CATALOGS = 8
_MAX_SHOWN_CHARACTERS = 200
_OWN_MODULES = f"{__package__}.duckdb_"


class Catalogs:
    """The catalogs of the buckets that statements have named: each is listed anew for a statement.

    Index objects that were read for a statement before are not read again.
    """

    def __init__(self) -> None:
        self._cached: list[tuple[dict[str, Any], Catalog]] = []
        self._lock = threading.Lock()

    def current(self, url: str, request: TopicRequest) -> Catalog:
        """Return the catalog of the bucket that a statement names, as it is now.

        Raises:
            PulsarOffloadError: See `open_catalog`.
        """
        arguments = {"url": url, **request.catalog_options()}
        with self._lock:
            cached = next((each for named, each in self._cached if named == arguments), None)
        catalog = _open(arguments) if cached is None else cached.refreshed()
        with self._lock:
            remaining = [each for each in self._cached if each[0] != arguments]
            self._cached = [*remaining[1 - _MAX_CATALOGS :], (arguments, catalog)]
        return catalog


def _open(arguments: dict[str, Any]) -> Catalog:
    # Imported when the first statement is bound: it takes longer than a registration.
    from connector.catalog.opening import open_catalog  # noqa: PLC0415

    return open_catalog(**arguments)


class Variable(threading.local):
    """The Python variable by which DuckDB finds what it binds: in each thread one at a time."""

    def __init__(self) -> None:
        self._places: list[tuple[dict[str, object], str]] = []

    def set(self, name: str, value: object) -> None:
        """Put an object where the replacement scan looks for the name, in place of the one before.

        Raises:
            OptionError: Nothing in Python called DuckDB.
        """
        # One that is still there was never looked for: replacement scans are switched off.
        self.forget()
        for namespace in _namespaces():
            namespace[name] = value
            self._places.append((namespace, name))

    def forget(self) -> None:
        """Take the variable away; does nothing if that is done."""
        while self._places:
            namespace, name = self._places.pop()
            namespace.pop(name, None)


def _namespaces() -> list[dict[str, object]]:
    """The global variables of those who called DuckDB, where its replacement scan looks.

    DuckDB passes over its own modules, which stand between it and its user if a relation is read.

    Raises:
        OptionError: Nothing in Python called DuckDB.
    """
    namespaces: list[dict[str, object]] = []
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith(_OWN_MODULES):
            namespaces.append(frame.f_globals)
            if module.partition(".")[0] != "duckdb":
                return namespaces
        frame = frame.f_back
    message = "call the table function behind FROM, not the function that it calls itself"
    raise OptionError(message)


def shown(topic: str | list[str]) -> str:
    """What a statement names, for messages and for the name of a variable."""
    names = topic if isinstance(topic, str) else ", ".join(topic)
    cut = len(names) > _MAX_SHOWN_CHARACTERS
    return f"topic {names[:_MAX_SHOWN_CHARACTERS]}{'…' if cut else ''}"


def is_texts(value: object) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def argument(name: str, value: object) -> object:
    """What `open_topic` takes for an argument as it comes out of JSON.

    A text is read as in other surfaces, unless SQL has a list for it.

    Args:
        name: Its name.
        value: What came.

    Raises:
        OptionError: It is not a value of that option.
    """
    if name not in OPTIONS:
        return value
    option = OPTIONS[name]
    if option.kind is BOUND and isinstance(value, dict):
        value = _message_id(value)
    if isinstance(value, str) and option.kind is not NAMES:
        return option.read(value)
    option.check(value)
    return value


def _message_id(parts: dict[str, object]) -> object:
    """A struct as a message id; another as it is, to be refused like all that is not a bound."""
    message_id = (parts.get("ledger"), parts.get("entry"), parts.get("batch") or 0)
    is_message_id = parts.keys() <= {"ledger", "entry", "batch"} and None not in message_id
    return message_id if is_message_id else parts
