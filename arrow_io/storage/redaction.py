"""Text without secrets: what may be shown of a URL, and of the message of a library's error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

MASK = "***"
"""What stands where a secret was."""

_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "adl", "az", "wasb", "wasbs"})
"""Azure's schemes, in whose URLs the container stands before the `@`."""

_PLAIN_OPTIONS = frozenset({"client", "endpoint_url", "region_name"})
"""Options that an error message is of little use without, and that are not secrets."""

_MIN_SECRET_LENGTH = 4
"""Shorter option values are not looked for: replacing them would only garble the text."""

_WORD: Final = re.compile(r"[^\s\"']+")
"""What a URL reaches over at most."""

_REVERSED_SCHEME: Final = re.compile(r"[\w+.-]*")


def redacted_urls(text: str) -> str:
    """A text or a URL, with the user parts and the queries of all URLs in it masked.

    Takes time in proportion to the length of the text, which may be anything that a user typed.

    Example:
        >>> redacted_urls("https://me:pass@host/folder?sig=abc")
        'https://***@host/folder?***'
    """
    return _WORD.sub(_without_secrets, text) if "://" in text else text


def _without_secrets(match: re.Match[str]) -> str:
    word = match[0]
    return _without_query(_without_users(word)) if "://" in word else word


def _without_users(word: str) -> str:
    """Mask the user parts of the URLs in a text without spaces.

    A secret key may hold a slash, so a user part with a colon in it reaches to the last `@`.
    """
    parts: list[str] = []
    end = 0
    last_at = word.rfind("@")
    for scheme, start in _authorities(word):
        if start <= end:
            continue
        colon, at = word.find(":", start), word.find("@", start)
        if at < 0:
            break
        if 0 <= colon < at:
            parts += word[end:start], MASK
            end = last_at
        elif word.find("/", start, at) < 0:
            parts += word[end:start], word[start:at] if scheme in _CONTAINER_SCHEMES else MASK
            end = at
    return "".join([*parts, word[end:]])


def _without_query(word: str) -> str:
    _, start = next(_authorities(word), ("", len(word)))
    query = word.find("?", start) + 1
    return f"{word[:query]}{MASK}" if 0 < query < len(word) else word


def _authorities(word: str) -> Iterator[tuple[str, int]]:
    """Yield the scheme of each URL in a text, in lower case, and where its authority starts."""
    end = 0
    while (colon := word.find("://", end)) >= 0:
        # From its end, because a search from the front would try each letter as its start.
        reversed_scheme = _REVERSED_SCHEME.match(word[end:colon][::-1])
        scheme = reversed_scheme[0][::-1].lstrip("+.-") if reversed_scheme else ""
        end = colon + len("://")
        if scheme:
            yield scheme.lower(), end


def redacted(text: str, options: Mapping[str, object]) -> str:
    """A text with the values of storage options and the secret parts of URLs masked.

    Args:
        text: Any text, such as the message of a library's error.
        options: Storage options; their values are looked for at any depth.
    """
    # The longest first: one value may be a part of another.
    for secret in sorted(_secrets(options), key=len, reverse=True):
        for spelling in (secret, quote(secret, safe="", errors="replace")):
            text = text.replace(spelling, MASK)
    return redacted_urls(text)


def _secrets(value: object) -> Iterable[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name not in _PLAIN_OPTIONS:
                yield from _secrets(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item)
    elif isinstance(value, str) and len(value) >= _MIN_SECRET_LENGTH:
        yield value
