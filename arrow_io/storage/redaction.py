"""Text without secrets: what may be shown of a URL, and of the message of a library's error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"
"""What stands where a secret was."""

_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "adl", "az", "wasb", "wasbs"})
"""Azure's schemes, in whose URLs the container stands before the `@`."""

_PLAIN_OPTIONS = frozenset({"client", "endpoint_url", "region_name"})
"""Options that an error message is of little use without, and that are not secrets."""

_MIN_SECRET_LENGTH = 4
"""Shorter option values are not looked for: replacing them would only garble the text."""

# A secret key may hold a slash, so with a colon in it the user part reaches to the last @.
_USER_PART = re.compile(r"(?P<scheme>\w[\w+.-]*)://(?P<user>[^\s\"'@:]*:[^\s\"']*@|[^\s\"'/@]*@)")
_QUERY = re.compile(r"(?P<url>\w[\w+.-]*://[^\s\"'?]*)\?[^\s\"']+")


def redacted_urls(text: str) -> str:
    """A text or a URL, with the user parts and the queries of all URLs in it masked.

    Example:
        >>> redacted_urls("https://me:pass@host/folder?sig=abc")
        'https://***@host/folder?***'
    """
    return _QUERY.sub(rf"\g<url>?{MASK}", _USER_PART.sub(_without_user, text))


def _without_user(match: re.Match[str]) -> str:
    scheme, user = match["scheme"], match["user"]
    if scheme.lower() in _CONTAINER_SCHEMES and ":" not in user:
        return match[0]
    return f"{scheme}://{MASK}@"


def redacted(text: str, options: Mapping[str, object]) -> str:
    """A text with the values of storage options and the secret parts of URLs masked.

    Args:
        text: Any text, such as the message of a library's error.
        options: Storage options; their values are looked for at any depth.
    """
    # The longest first: one value may be a part of another.
    for secret in sorted(_secrets(options), key=len, reverse=True):
        for spelling in (secret, quote(secret, safe="")):
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
