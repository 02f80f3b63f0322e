"""Warnings of one read: each read gives its own, and they name the line that asked for it."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_BETWEEN: Final = frozenset(
    {
        "arrow_io",
        "concurrent",
        "connector",
        "contextlib",
        "duckdb",
        "pandas",
        "polars",
        "pyarrow",
        "spark_ds",
        "threading",
    }
)
"""The packages whose frames stand between a read and the line that asks for it."""


def warn_of_read(message: str, category: type[Warning]) -> None:
    """Warn of one read, whatever was told of others before.

    Python shows the same text once for each line, and most reads are begun by the same few lines of
    ours or of an engine. So no registry is given in which it would look that up; the filters of the
    user hold all the same.

    Args:
        message: The text.
        category: The class of the warning.
    """
    asking = _asking_frame()
    warnings.warn_explicit(
        message,
        category,
        asking.f_code.co_filename,
        asking.f_lineno,
        module=asking.f_globals.get("__name__"),
    )


def _asking_frame() -> FrameType:
    """That of the caller outside; the outermost if an engine asks in a thread of its own."""
    frame = sys._getframe(2)  # noqa: SLF001 - what `warnings.warn` itself looks at
    while _is_between(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_between(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN
