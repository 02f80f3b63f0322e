"""The choice of the core's build: the compiled modules, or their Python sources.

The source of each core module is named `_*_py`; the compiled module is named `_*_c`.
`PULSAR_OFFLOAD_PURE` in the environment chooses: 1 selects the sources, 0 the compiled modules. If
it is unset or empty and the compiled modules are missing, the sources run instead, about 50 times
slower, with a warning. `setup.py` reads the same variable.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import TYPE_CHECKING, Final

from arrow_io.errors import UncompiledCoreWarning

if TYPE_CHECKING:
    from types import ModuleType

PURE_SWITCH = "PULSAR_OFFLOAD_PURE"
_UNCOMPILED: Final = (
    "pulsar-offload was installed without its compiled core, so reads are about 50 times slower."
    " Install a wheel, or a C compiler and then pulsar-offload again (pip needs --no-cache-dir)."
    f" {PURE_SWITCH}=1 hides this warning."
)


class Build:
    """One build of all modules of the core.

    Attributes:
        records: Copies records of MapFiles into frames of entries.
        entries: Reads the frames of entries.
        delivery: Filters entries to those that a consumer would receive.
        metadata: Parses the metadata of entries and messages.
        codecs: Decompresses payloads.
        inflate: Decompresses ZLIB streams.
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
        self.inflate = self._module("arrow_io.messages._inflate")
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
    switch = os.environ.get(PURE_SWITCH, "")
    if switch not in {"", "0"}:
        return Build("py")
    try:
        return Build("c")
    except ModuleNotFoundError as error:
        if switch == "0":
            message = f"{PURE_SWITCH}=0 requires the compiled core, which is missing: {error.msg}"
            raise ModuleNotFoundError(message, name=error.name) from None
        warnings.warn(_UNCOMPILED, UncompiledCoreWarning, stacklevel=3)
        return Build("py")


in_use: Build = _choose()
"""The build in use. Look it up at each call, so that tests can replace it."""
