"""Secrets that tools do not show when they print the variables of a frame.

Such tools print the `repr` of each variable: pytest's `--showlocals`, rich, Sentry, and Python's
`traceback` with `capture_locals`. Texts and bytes of the classes here behave as usual, and only
their `repr` is a mask. Each entry point hides its arguments in its first statement. Libraries that
cache by the `repr` of options, as fsspec does, receive plain values: otherwise all hidden values
would be equal to them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from arrow_io.storage.redaction import MASK, redacted_urls

_T = TypeVar("_T")


class HiddenText(str):
    """A text whose `repr` is a mask.

    What its methods return is hidden too; `str` of it is the plain text.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    def __radd__(self, other: str) -> HiddenText:
        return HiddenText(f"{other}{self}")


class HiddenBytes(bytes):
    """Bytes whose `repr` is a mask; what their methods return is hidden too."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    def __radd__(self, other: bytes) -> HiddenBytes:
        return HiddenBytes(b"".join((other, self)))


def hidden(value: _T) -> _T:
    """Return the value with all texts and bytes in it hidden, in mappings and lists at any depth.

    Example:
        >>> options = hidden({"key": "me", "nested": {"secret": "shhh"}, "anon": False})
        >>> options
        {'key': '***', 'nested': {'secret': '***'}, 'anon': False}
        >>> options == {"key": "me", "nested": {"secret": "shhh"}, "anon": False}
        True
    """
    result: _T = _convert(value, HiddenText, HiddenBytes)
    return result


def shown_to_library(value: _T) -> _T:
    """Return the value with nothing hidden, for a library that may use the `repr` of its options.

    Example:
        >>> shown_to_library(hidden({"secret": "shhh"}))
        {'secret': 'shhh'}
    """
    result: _T = _convert(value, str, bytes)
    return result


def hidden_url(url: _T) -> _T:
    """Return a URL, or a mapping or list of URLs, with each URL hidden that may have a secret.

    Any other value is returned unchanged.

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


def _convert(value: Any, text: type[str], data: type[bytes]) -> Any:  # noqa: ANN401 - as it came
    """Return the value with texts and bytes in these classes, or itself if they already are."""
    if type(value) in {text, data}:
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return data(value)
    if isinstance(value, Mapping):
        pairs = {name: _convert(each, text, data) for name, each in value.items()}
        return pairs if any(pairs[name] is not value[name] for name in pairs) else value
    if type(value) in {list, tuple}:
        items = [_convert(each, text, data) for each in value]
        is_same = all(map(operator.is_, items, value))
        return value if is_same else type(value)(items)
    return value


_SHARED_METHODS: Final = (
    "__add__", "__getitem__", "__mod__", "__mul__", "__rmul__", "capitalize", "center",
    "expandtabs", "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
    "replace", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines", "strip",
    "swapcase", "title", "translate", "upper", "zfill",
)  # fmt: skip
"""Methods of both texts and bytes that return derived texts or bytes, alone or in a list."""


def _hide_results(hidden_type: type, plain_type: type, names: Iterable[str]) -> None:
    for name in names:
        setattr(hidden_type, name, _hiding_method(getattr(plain_type, name)))


def _hiding_method(method: Callable[..., _T]) -> Callable[..., _T]:
    @functools.wraps(method)
    def hide_result(*arguments: Any, **options: Any) -> _T:  # noqa: ANN401 - those of the method
        return hidden(method(*arguments, **options))

    return hide_result


_hide_results(HiddenText, str, (*_SHARED_METHODS, "casefold", "encode", "format", "format_map"))
_hide_results(HiddenBytes, bytes, (*_SHARED_METHODS, "decode", "hex"))
