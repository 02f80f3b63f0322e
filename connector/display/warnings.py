"""Warnings of a read: each read shows its own, and they point to the user's line."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_INTERNAL_PACKAGES: Final = frozenset(
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
"""The packages whose frames are between a read and the user's line."""


def warn_of_read(message: str, category: type[Warning]) -> None:
    """Warn about one read, even if another read showed the same warning.

    Python shows the same text once per line, and most reads start in the same few lines of this
    project or of an engine. So no registry of shown warnings is passed. The user's filters still
    apply.
    """
    caller = _caller_frame()
    warnings.warn_explicit(
        message,
        category,
        caller.f_code.co_filename,
        caller.f_lineno,
        module=caller.f_globals.get("__name__"),
    )


def _caller_frame() -> FrameType:
    """Return the frame of the user's line, or the outermost frame of an engine's thread."""
    frame = sys._getframe(2)  # noqa: SLF001 - what `warnings.warn` itself looks at
    while _is_internal(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_internal(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _INTERNAL_PACKAGES
