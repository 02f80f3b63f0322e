"""How a statement finds what its table functions name: arguments, catalogs, Python variables.

DuckDB evaluates a scalar function while it binds a statement. What that function opens is put,
under a name that is used once, among the Python variables in which DuckDB's replacement scan looks;
as soon as DuckDB has found it, the variable is gone.
"""

from __future__ import annotations

import inspect
import json
import threading
from typing import Any

from arrow_io.columns import DEFAULT_COLUMNS
from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden
from connector.catalog.catalog import Catalog, open_catalog

PLACE_OPTIONS = ("url", "storage_options", "metadata", "metadata_options", "buckets")
"""Options that say where topics are."""
CATALOG_OPTIONS = (*PLACE_OPTIONS, "range_bytes", "trace")
"""Options of `open_catalog`."""
_OBJECT_OPTIONS = ("storage_options", "metadata_options", "buckets")
_MAX_CATALOGS = 8
_MAX_SHOWN_CHARACTERS = 200
_SQL_TYPES = {str: "VARCHAR", int: "INTEGER", bool: "BOOLEAN"}
_OWN_MODULES = f"{__package__}.duckdb_"


class Catalogs:
    """The catalogs of the buckets that statements have named: each is listed anew for a statement.

    Index objects that were read for a statement before are not read again.
    """

    def __init__(self) -> None:
        self._known: list[tuple[dict[str, Any], Catalog]] = []
        self._lock = threading.Lock()

    def of(self, options: dict[str, Any]) -> Catalog:
        """The catalog of the bucket that the options name, as it is now."""
        wanted = {name: options[name] for name in CATALOG_OPTIONS if name in options}
        with self._lock:
            known = next((each for named, each in self._known if named == wanted), None)
        catalog = open_catalog(**wanted) if known is None else known.refreshed()
        with self._lock:
            others = [each for each in self._known if each[0] != wanted]
            self._known = [*others[1 - _MAX_CATALOGS :], (wanted, catalog)]
        return catalog


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

    DuckDB passes over its own modules, which stand between it and its user where a relation is
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


def argument(name: str, value: object, scalar: type | None) -> object:
    """What `open_topic` takes for an argument as it comes out of JSON.

    Args:
        name: Its name.
        value: What came.
        scalar: The type it must have; None: it may have several.

    Raises:
        OptionError: It is of another type. What it was is said of plain options only.
    """
    if name in _OBJECT_OPTIONS:
        return _object(name, value)
    if name == "columns" and value != DEFAULT_COLUMNS and not is_texts(value):
        message = f"columns must be a list of names, not {value!r}"
        raise OptionError(message)
    if name in {"start", "end"} and isinstance(value, dict):
        return _message_id(value)
    is_flag = isinstance(value, bool) and scalar is not bool
    if scalar is not None and (is_flag or not isinstance(value, scalar)):
        message = f"{name} must be of type {_SQL_TYPES[scalar]}, not {value!r}"
        raise OptionError(message)
    return value


def _object(name: str, value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = hidden(json.loads(value))
        except ValueError:
            value = None
    if not isinstance(value, dict):
        message = f"{name} must be a STRUCT, a MAP, or the text of a JSON object"
        raise OptionError(message)
    return value


def _message_id(parts: dict[str, object]) -> object:
    """A struct as a message id; another one as it is, to be refused like all that is no bound."""
    message_id = (parts.get("ledger"), parts.get("entry"), parts.get("batch") or 0)
    is_message_id = parts.keys() <= {"ledger", "entry", "batch"} and None not in message_id
    return message_id if is_message_id else parts
