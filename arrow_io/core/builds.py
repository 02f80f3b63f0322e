"""Chooses the build of the core: the compiled modules, or their sources if asked for.

The source of each module of the core is named `_*_py`; compiled, it is named `_*_c`.
`PULSAR_OFFLOAD_PURE=1` in the environment picks the sources. They also run if compiled modules are
missing, some fifty times slower, and a warning says so.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

PURE_SWITCH = "PULSAR_OFFLOAD_PURE"


class Build:
    """One build of all modules of the core.

    Attributes:
        entries: The walk of entries.
        delivery: Which entries hold messages for a client.
        metadata: The metadata of entries and messages.
        codecs: The decompression of payloads.
        columns: What stands in the metadata of rows.
        gathering: The gathering of columns.
        keys: The filters of keys.
        is_compiled: Whether this is the compiled build.

    Args:
        suffix: What the names of its modules end in: `c` or `py`.

    Raises:
        ModuleNotFoundError: The modules of `arrow_io.messages` are not there in this build.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self.entries = self._module("arrow_io.messages._entries")
        self.delivery = self._module("arrow_io.messages._delivery")
        self.metadata = self._module("arrow_io.messages._metadata")
        self.codecs = self._module("arrow_io.messages._codecs")
        self.columns = self._module("arrow_io.messages._columns")
        self.gathering = self._module("arrow_io.messages._gathering")
        self.keys = self._module("arrow_io.messages._keys")
        self.is_compiled: bool = self.entries.IS_COMPILED
        self._payloads: dict[str, ModuleType] = {}

    def payloads(self, name: str) -> ModuleType:
        """A module of `arrow_io.payloads`, which is loaded when it is first asked for.

        Args:
            name: `arena`, or an encoding: `primitive`, `avro`, `json` or `protobuf`.

        Raises:
            ModuleNotFoundError: That module is not there in this build.
        """
        if name not in self._payloads:
            self._payloads[name] = self._module(f"arrow_io.payloads._{name}")
        return self._payloads[name]

    def _module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{name}_{self._suffix}")


def _choose() -> Build:
    if os.environ.get(PURE_SWITCH, "") not in {"", "0"}:
        return Build("py")
    try:
        return Build("c")
    except ModuleNotFoundError:
        warnings.warn(
            "pulsar-offload was installed without its compiled core:"
            " reading is about 50 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return Build("py")


in_use: Build = _choose()
"""Callers look it up at each call, so that tests can put the other in place."""
