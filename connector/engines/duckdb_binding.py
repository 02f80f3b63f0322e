"""Binding of DuckDB's table functions: arguments, catalogs, and the Python variable to scan.

DuckDB evaluates a scalar function while it *binds* a statement, that is, resolves names and types
before it runs. The object that the function opens becomes a Python variable with a unique name,
where DuckDB's replacement scan finds it. As soon as DuckDB holds the object, the variable is
deleted.
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
"""Options that say where topics are stored."""
ROWS = "rows of the topic"
"""Name of a first column of nulls, which `read_pulsar` leaves out.

A statement that uses no column, such as `count(*)`, reads the first one, so DuckDB requests this
column if it needs only the number of rows.
"""
_MAX_CATALOGS = 8
_MAX_SHOWN_CHARACTERS = 200
_OWN_MODULES = f"{__package__}.duckdb_"


class Catalogs:
    """Cached catalogs of buckets, each listed anew for every statement.

    Index objects that were read for an earlier statement are not read again.
    """

    def __init__(self) -> None:
        self._cached: list[tuple[dict[str, Any], Catalog]] = []
        self._lock = threading.Lock()

    def current(self, url: str, request: TopicRequest) -> Catalog:
        """Return the current catalog of the bucket that a statement names.

        Raises:
            PulsarOffloadError: See `open_catalog`.
        """
        arguments = {"url": url, **request.catalog_options()}
        with self._lock:
            cached = next((each for key, each in self._cached if key == arguments), None)
        catalog = _open(arguments) if cached is None else cached.refreshed()
        with self._lock:
            others = [each for each in self._cached if each[0] != arguments]
            self._cached = [*others[1 - _MAX_CATALOGS :], (arguments, catalog)]
        return catalog


def _open(arguments: dict[str, Any]) -> Catalog:
    # Imported when the first statement is bound: the import takes longer than a registration.
    from connector.catalog.opening import open_catalog  # noqa: PLC0415

    return open_catalog(**arguments)


class Variable(threading.local):
    """The Python variable through which DuckDB finds an object; one at a time in each thread."""

    def __init__(self) -> None:
        self._entries: list[tuple[dict[str, object], str]] = []

    def set(self, name: str, value: object) -> None:
        """Set the variable where the replacement scan looks, and delete the previous one.

        Raises:
            OptionError: DuckDB was not called from Python.
        """
        # A variable that still exists was never looked up: replacement scans are disabled.
        self.forget()
        for namespace in _namespaces():
            namespace[name] = value
            self._entries.append((namespace, name))

    def forget(self) -> None:
        """Delete the variable, if it exists."""
        while self._entries:
            namespace, name = self._entries.pop()
            namespace.pop(name, None)


def _namespaces() -> list[dict[str, object]]:
    """Return the global variables of DuckDB's callers, where its replacement scan looks.

    DuckDB skips its own modules, whose frames are between DuckDB and its user if a relation is
    read.
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
    message = "call the table function after FROM, not the internal function that it calls"
    raise OptionError(message)


def topic_label(topic: str | list[str]) -> str:
    """Return a short name of the topics, for messages and for the name of the variable."""
    names = topic if isinstance(topic, str) else ", ".join(topic)
    is_too_long = len(names) > _MAX_SHOWN_CHARACTERS
    return f"topic {names[:_MAX_SHOWN_CHARACTERS]}{'…' if is_too_long else ''}"


def is_string_list(value: object) -> bool:
    """Return whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def convert_argument(name: str, value: object) -> object:
    """Convert an argument that arrived as JSON to the value that `open_topic` takes.

    Text is parsed as on other surfaces, except for options that are lists in SQL.

    Raises:
        OptionError: The option does not allow the value.
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
    """Return a struct as a message id; return other structs unchanged, for the option to refuse."""
    message_id = (parts.get("ledger"), parts.get("entry"), parts.get("batch") or 0)
    is_message_id = parts.keys() <= {"ledger", "entry", "batch"} and None not in message_id
    return message_id if is_message_id else parts
