"""Names of options in messages, as the user spells them: `value='raw'` or `--value raw`.

The outermost interface decides: the command `query` uses its own options' names, not those of SQL.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Spelling: TypeAlias = "Callable[[str, object], str]"
"""Makes the text from an option's Python name and the value to recommend, or None."""

_SPELLING: ContextVar[Spelling | None] = ContextVar("_SPELLING", default=None)


def option_name(name: str, value: object = None) -> str:
    """Return how a message should write an option.

    Args:
        name: Its name in Python.
        value: The value that the message recommends; None if it recommends none.

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
    """Use a spelling within the block, unless an enclosing block already set one."""
    token = _SPELLING.set(_SPELLING.get() or spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)
