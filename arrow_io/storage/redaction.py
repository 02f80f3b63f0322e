"""Removal of secrets from URLs and from the messages of libraries' errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

MASK = "***"
"""Replaces a secret."""

_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "adl", "az", "wasb", "wasbs"})
"""Azure's schemes: the container precedes the `@` in their URLs."""

_PLAIN_OPTIONS = frozenset({"client", "endpoint_url", "region_name"})
"""Options that are not secret and that an error message needs."""

_MIN_SECRET_LENGTH = 4
"""Shorter option values are not masked: replacing them would only garble the text."""

_WORD: Final = re.compile(r"[^\s\"']+")
"""The longest text that can be one URL."""

_REVERSED_SCHEME: Final = re.compile(r"[\w+.-]*")


def redacted_urls(text: str) -> str:
    """Return a text with the user parts and queries of all URLs in it masked.

    Takes time linear in the length of the text, which a user may have typed.

    Example:
        >>> redacted_urls("https://me:pass@host/folder?sig=abc")
        'https://***@host/folder?***'
    """
    return _WORD.sub(_mask_word, text) if "://" in text else text


def _mask_word(match: re.Match[str]) -> str:
    word = match[0]
    return _mask_query(_mask_users(word)) if "://" in word else word


def _mask_users(word: str) -> str:
    """Mask the user parts of the URLs in a text without spaces.

    A secret key may contain a slash, so a user part with a colon extends to the last `@`.
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


def _mask_query(word: str) -> str:
    _, start = next(_authorities(word), ("", len(word)))
    query = word.find("?", start) + 1
    return f"{word[:query]}{MASK}" if 0 < query < len(word) else word


def _authorities(word: str) -> Iterator[tuple[str, int]]:
    """Yield the lower-case scheme of each URL in a text, and the start of its authority."""
    end = 0
    while (colon := word.find("://", end)) >= 0:
        # Match backwards: a search from the front would try each letter as the scheme's start.
        reversed_scheme = _REVERSED_SCHEME.match(word[end:colon][::-1])
        scheme = reversed_scheme[0][::-1].lstrip("+.-") if reversed_scheme else ""
        end = colon + len("://")
        if scheme:
            yield scheme.lower(), end


def redacted(text: str, options: Mapping[str, object]) -> str:
    """Return a text with option values, nested ones too, and the secrets in URLs masked."""
    # Longest first: one value may be a part of another.
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
