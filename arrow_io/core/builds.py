"""The choice of the core's build: the compiled modules, or their Python sources.

The source of each core module is named `_*_py`; the compiled module is named `_*_c`.
`PULSAR_OFFLOAD_PURE=1` in the environment selects the sources. If the compiled modules are missing,
the sources run instead, about 50 times slower, with a warning.
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
        records: Copies records of MapFiles into frames of entries.
        entries: Reads the frames of entries.
        delivery: Filters entries to those that a consumer would receive.
        metadata: Parses the metadata of entries and messages.
        codecs: Decompresses payloads.
        columns: Builds columns from message metadata.
        gathering: Copies values of messages into columns.
        keys: Bloom filters of keys.
        is_compiled: Whether this is the compiled build.

    Args:
        suffix: End of the module names: `c` or `py`.

    Raises:
        ModuleNotFoundError: The modules of `arrow_io.messages` are missing in this build.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self.records = self._module("arrow_io.messages._records")
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
        """Return a module of `arrow_io.payloads`, imported on first use.

        Args:
            name: `arena`, or an encoding: `primitive`, `avro`, `json` or `protobuf`.

        Raises:
            ModuleNotFoundError: The module is missing in this build.
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
"""The build in use. Look it up at each call, so that tests can replace it."""
