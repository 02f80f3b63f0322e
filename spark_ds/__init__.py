"""Offloaded Pulsar topics as a Spark data source: `spark.read.format("pulsar_offload")`.

If the package is installed, Spark finds the source without registration (`spark_ds/autoload`).
Otherwise, import `PulsarOffloadDataSource` from `spark_ds.datasource`, and call
`spark.dataSource.register(PulsarOffloadDataSource)`. Executors need the package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spark_ds.spark_version import is_spark_since, too_old_error
from spark_ds.tracebacks import hide_traceback

if TYPE_CHECKING:
    from spark_ds.lake import copy_topics, maintain_table
    from spark_ds.statistics import analyze

_MIN_SPARK = (4, 1)
_MODULES = {"analyze": "statistics", "copy_topics": "lake", "maintain_table": "lake"}
__all__ = ["analyze", "copy_topics", "maintain_table"]

if not is_spark_since(_MIN_SPARK):
    with hide_traceback():
        raise too_old_error(_MIN_SPARK, "pulsar-offload")


def __getattr__(name: str) -> object:
    """Import public functions on first use: Spark imports this package in each of its processes."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
