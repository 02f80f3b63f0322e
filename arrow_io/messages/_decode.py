"""Chooses the build of the hot loop: `_decode_c`, or its source `_decode_py` if asked for.

`PULSAR_OFFLOAD_PURE=1` in the environment picks the source. A build that lacks the compiled module
still works, some fifty times slower, and says so.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

PURE_SWITCH = "PULSAR_OFFLOAD_PURE"


def _choose() -> ModuleType:
    pure = "arrow_io.messages._decode_py"
    if os.environ.get(PURE_SWITCH, "") not in {"", "0"}:
        return importlib.import_module(pure)
    try:
        return importlib.import_module("arrow_io.messages._decode_c")
    except ModuleNotFoundError:
        warnings.warn(
            "pulsar-offload was installed without its compiled core:"
            " reading is about 50 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return importlib.import_module(pure)


core: ModuleType = _choose()
"""The build in use. Callers look it up at each call, so that tests can put the other in place."""

IS_COMPILED: bool = core.IS_COMPILED
"""Whether the build chosen at import is the compiled one."""
