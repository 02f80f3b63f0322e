"""Offloaded Pulsar topics as a Spark data source: `spark.read.format("pulsar_offload")`.

If the package is installed, Spark finds the source by itself (`spark_ds/autoload`). Otherwise:
`from spark_ds.datasource import PulsarOffloadDataSource`, then
`spark.dataSource.register(PulsarOffloadDataSource)`. Executors need the package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_ds.lake import copy_topics

__all__ = ["copy_topics"]


def __getattr__(name: str) -> object:
    """Import what is asked for: Spark looks into this package in each of its processes."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.lake"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
