"""Nested options: names with dots, and values that may be JSON."""

from __future__ import annotations

import json
import re
from typing import Final

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden

_TEXT_NAMES: Final = re.compile(r"key|secret|token|pass|user|account|name|profile|project|_id$")
"""Options whose values are text, even if they look like numbers."""
_JSON_SCALAR: Final = re.compile(r"true|false|null|-?\d+(\.\d+)?")
_JSON_TEXT: Final = re.compile(r'"([^"\\]|\\.)*"')


def json_object(option: str, text: str) -> dict[str, object]:
    """Return the options in the text of a JSON object; no error shows it: it may be secret.

    Raises:
        OptionError: It is not the text of a JSON object.
    """
    try:
        value = hidden(json.loads(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        message = f"{option} must be a JSON object"
        raise OptionError(message)
    return value


def put_text(options: dict[str, object], kind: str, name: str, text: str) -> None:
    """Set an option by its text; dots in its name lead into nested options.

    A text that begins like a JSON object or array is parsed as JSON, and so is a text in double
    quotes. Numbers, `true`, `false` and `null` are parsed too, unless the name implies text, as
    `key` does.

    Args:
        options: The options set so far; receives the option.
        kind: Name of such options, for errors.
        name: Its name.
        text: Its text; no error shows it, because it may be a secret.

    Raises:
        OptionError: The name has an empty part, or is already set; or the text begins like JSON and
            is not JSON.

    Example:
        >>> options = {}
        >>> put_text(options, "storage option", "client_kwargs.verify", "false")
        >>> options
        {'client_kwargs': {'verify': False}}
    """
    put_value(options, kind, name, _value(kind, name, text))


def put_value(options: dict[str, object], kind: str, name: str, value: object) -> None:
    """Set an option; dots in its name lead into nested options. Arguments as in `put_text`.

    Raises:
        OptionError: The name has an empty part, or is already set.
    """
    *path, last = name.split(".")
    if not all((*path, last)):
        message = f"{kind} {name!r} lacks a part of its name"
        raise OptionError(message)
    inner: object = options
    for step in path:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or last in inner:
        message = f"{kind} {name} is given twice"
        raise OptionError(message)
    inner[last] = value


def _value(kind: str, name: str, text: str) -> object:
    is_text = _TEXT_NAMES.search(name.lower().rpartition(".")[2])
    is_scalar = not is_text and _JSON_SCALAR.fullmatch(text)
    if text.startswith(("{", "[")) or _JSON_TEXT.fullmatch(text) or is_scalar:
        return _json(f"{kind} {name}", text)
    return hidden(text)


def _json(option: str, text: str) -> object:
    try:
        return hidden(json.loads(text))
    except json.JSONDecodeError as error:
        # Neither the text nor the error as the cause: both may contain a secret.
        message = f"{option} looks like JSON and is not: {error.msg} at character {error.pos}"
        raise OptionError(message) from None
    except RecursionError:
        message = f"{option} is nested too deeply"
        raise OptionError(message) from None
