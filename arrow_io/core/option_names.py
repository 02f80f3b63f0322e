"""What options are called where the user stands: `value='raw'`, or `--value raw`.

The outermost surface decides: the command `query` names its own options, not those of SQL.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Spelling: TypeAlias = "Callable[[str, object], str]"
"""Makes the text from an option's name in Python, and from the value to give it unless None."""

_SPELLING: ContextVar[Spelling | None] = ContextVar("_SPELLING", default=None)


def option_name(name: str, value: object = None) -> str:
    """What an option is called, for messages.

    Args:
        name: Its name in Python.
        value: The value that the message advises; None if it advises none.

    Example:
        >>> option_name("value", "raw")
        "value='raw'"
    """
    spelling = _SPELLING.get()
    if spelling is not None:
        return spelling(name, value)
    return name if value is None else f"{name}={value!r}"


@contextmanager
def use_spelling(spelling: Spelling) -> Iterator[None]:
    """Call options so within the block, unless a surface around it calls them otherwise."""
    token = _SPELLING.set(_SPELLING.get() or spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)
