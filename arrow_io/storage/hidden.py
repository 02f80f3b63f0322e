"""Secrets that do not show in tools which print the variables of a frame, as tracebacks may.

Such tools print `repr` of what they find: pytest's `--showlocals`, rich, Sentry, and Python's own
`traceback` with `capture_locals`. Texts and bytes of the classes here can be used as before, and
only their `repr` is a mask. Each entry point hides what it is given in its first statement. A
library that keeps things by the `repr` of their options, as fsspec does, gets them plain: to it,
all hidden values would be the same.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from arrow_io.storage.redaction import MASK, redacted_urls

_T = TypeVar("_T")


class HiddenText(str):
    """A text whose `repr` shows neither it nor a part of it.

    Whatever its methods make of it is hidden too; `str` of it is the plain text.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """The mask."""
        return repr(MASK)

    def __radd__(self, other: str) -> HiddenText:
        """Another text with this one behind it, hidden too."""
        return HiddenText(f"{other}{self}")


class HiddenBytes(bytes):
    """Bytes whose `repr` shows neither them nor a part of them.

    Whatever their methods make of them is hidden too.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """The mask."""
        return repr(MASK)

    def __radd__(self, other: bytes) -> HiddenBytes:
        """Other bytes with these behind them, hidden too."""
        return HiddenBytes(b"".join((other, self)))


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
    """A URL, hidden if there may be a secret in it; also each in a mapping or a list of URLs.

    Anything else is returned unchanged.

    Example:
        >>> hidden_url("s3://bucket"), hidden_url(["sftp://me:pass@host"])
        ('s3://bucket', ['***'])
    """
    masked: Any = url
    if _has_secret(url):
        masked = hidden(url)
    elif isinstance(url, Mapping) and any(map(_has_secret, url.values())):
        masked = {name: hidden(each) if _has_secret(each) else each for name, each in url.items()}
    elif isinstance(url, list | tuple) and any(map(_has_secret, url)):
        masked = [hidden(each) if _has_secret(each) else each for each in url]
    result: _T = masked
    return result


def _has_secret(url: object) -> bool:
    return isinstance(url, str) and redacted_urls(url) != url


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


_BOTH: Final = (
    "__add__", "__getitem__", "__mod__", "__mul__", "__rmul__", "capitalize", "center",
    "expandtabs", "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
    "replace", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "strip",
    "swapcase", "title", "translate", "upper", "zfill",
)  # fmt: skip
"""Methods of texts and of bytes that return a part or a form of them, alone or in a list."""


def _hide_results(hiding: type, plain: type, names: Iterable[str]) -> None:
    for name in names:
        setattr(hiding, name, _hiding_method(getattr(plain, name)))


def _hiding_method(method: Callable[..., _T]) -> Callable[..., _T]:
    @functools.wraps(method)
    def hide_result(*arguments: Any, **options: Any) -> _T:  # noqa: ANN401 - those of the method
        return hidden(method(*arguments, **options))

    return hide_result


_hide_results(HiddenText, str, (*_BOTH, "casefold", "encode", "format", "format_map"))
_hide_results(HiddenBytes, bytes, (*_BOTH, "decode", "hex"))
