"""Chooses the build of the shredders, as that of the hot loop was chosen."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from arrow_io.messages import _decode

if TYPE_CHECKING:
    from types import ModuleType


def _module(encoding: str) -> ModuleType:
    build = "c" if _decode.core.IS_COMPILED else "py"
    return importlib.import_module(f"arrow_io.payloads._{encoding}_{build}")


def shredder(encoding: str) -> Any:  # noqa: ANN401 - a class of a module that has no types
    """The class that reads payloads of an encoding: `primitive`, `avro`, `json` or `protobuf`.

    It is that of the build in which `_decode.core` stands now, so that tests can put the other in
    place.
    """
    return _module(encoding).Shredder


def has_equal_texts(bounds: memoryview, count: int, offsets: memoryview, data: memoryview) -> bool:
    """Whether any of `count` lists of texts has a text twice, or is too long to be looked at.

    Args:
        bounds: int32 offsets of the lists.
        count: How many lists.
        offsets: int32 offsets of the texts.
        data: Bytes of the texts.
    """
    return bool(_module("arena").has_equal_texts(bounds, count, offsets, data))
