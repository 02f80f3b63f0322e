"""The options that a catalog is opened with, as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from arrow_io.storage.location import Location

Metadata: TypeAlias = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
"""Where a cluster's metadata is read from: see `open_catalog`."""


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogOptions:
    """Options of `open_catalog`. Its repr shows no values, because some are secret."""

    location: Location
    metadata: Metadata | None = None
    metadata_options: Mapping[str, object] | None = None
    buckets: Mapping[str, str] | None = None
