"""Offloaded Pulsar topics as a Spark data source: `spark.read.format("pulsar_offload")`.

If the package is installed, Spark finds the source by itself (`spark_ds/autoload`). Otherwise:
`from spark_ds.datasource import PulsarOffloadDataSource`, then
`spark.dataSource.register(PulsarOffloadDataSource)`. Executors need the package too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spark_ds.sentence_first import sentence_first
from spark_ds.spark_version import is_spark_since, too_old

if TYPE_CHECKING:
    from spark_ds.lake import copy_topics
    from spark_ds.statistics import analyze

_LEAST_SPARK = (4, 1)
_HOMES = {"analyze": "statistics", "copy_topics": "lake"}
__all__ = ["analyze", "copy_topics"]

if not is_spark_since(_LEAST_SPARK):
    with sentence_first():
        raise too_old(_LEAST_SPARK, "pulsar-offload")


def __getattr__(name: str) -> object:
    """Import what is asked for: Spark looks into this package in each of its processes."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
