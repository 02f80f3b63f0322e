"""Secrets that do not show in tools which print the variables of a frame, as tracebacks may.

Such tools print `repr` of what they find: pytest's `--showlocals`, rich, Sentry, and Python's own
`traceback` with `capture_locals`. Texts and bytes of the classes here can be used as before, and
only their `repr` is a mask. Each entry point hides what it is given in its first statement. A
library that keeps things by the `repr` of their options, as fsspec does, gets them plain: to it,
all hidden values would be the same.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeVar

from arrow_io.storage.redaction import MASK, redacted_urls

_T = TypeVar("_T")


class HiddenText(str):
    """A text whose `repr` shows neither it nor a part of it."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The mask."""
        return repr(MASK)

    def __getitem__(self, key: SupportsIndex | slice) -> HiddenText:
        """A part, hidden too: rich shows the beginning of a long text."""
        return HiddenText(super().__getitem__(key))

    def strip(self, chars: str | None = None, /) -> HiddenText:
        """The text without what is around it, hidden too."""
        return HiddenText(super().strip(chars))


class HiddenBytes(bytes):
    """Bytes whose `repr` shows neither them nor a part of them."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The mask."""
        return repr(MASK)

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - a number for one, bytes for several
        """A part, hidden too."""
        part = super().__getitem__(key)
        return HiddenBytes(part) if isinstance(part, bytes) else part


def hidden(value: _T) -> _T:
    """The same value; texts and bytes in it, at any depth of mappings and lists, are hidden.

    Example:
        >>> options = hidden({"key": "me", "nested": {"secret": "shhh"}, "anon": False})
        >>> options
        {'key': '***', 'nested': {'secret': '***'}, 'anon': False}
        >>> options == {"key": "me", "nested": {"secret": "shhh"}, "anon": False}
        True
    """
    result: _T = _mapped(value, HiddenText, HiddenBytes)
    return result


def shown_to_library(value: _T) -> _T:
    """The same value with nothing hidden: for a library that may go by the `repr` of what it gets.

    Example:
        >>> shown_to_library(hidden({"secret": "shhh"}))
        {'secret': 'shhh'}
    """
    result: _T = _mapped(value, str, bytes)
    return result


def hidden_url(url: _T) -> _T:
    """A URL, hidden if there may be a secret in it; anything else as it is.

    Example:
        >>> hidden_url("s3://bucket"), hidden_url("sftp://me:pass@host")
        ('s3://bucket', '***')
    """
    return hidden(url) if isinstance(url, str) and redacted_urls(url) != url else url


def _mapped(value: Any, text: type[str], data: type[bytes]) -> Any:  # noqa: ANN401 - as it came
    """The value with its texts and bytes of these classes; itself if all are of them already."""
    if type(value) in {text, data}:
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return data(value)
    if isinstance(value, Mapping):
        pairs = {name: _mapped(each, text, data) for name, each in value.items()}
        return pairs if any(pairs[name] is not value[name] for name in pairs) else value
    if type(value) in {list, tuple}:
        items = [_mapped(each, text, data) for each in value]
        is_same = all(map(operator.is_, items, value))
        return value if is_same else type(value)(items)
    return value
