"""Short error reports: Spark's users see our error messages without tracebacks."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from arrow_io.core.option_names import use_spelling
from arrow_io.errors import PulsarOffloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HIDE_FRAMES: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable that lets a worker report an error without its traceback."""


@contextmanager
def hide_traceback() -> Iterator[None]:
    """Let Spark's worker report our errors by their messages alone.

    By default, a worker sends Python's whole text of an error, traceback first. Spark's option to
    omit it (`spark.sql.execution.pyspark.udf.hideTraceback.enabled`) applies to all errors of a
    session. This sets it only in a process that ends with this error.
    """
    try:
        with use_spelling(_in_spark):
            yield
    except PulsarOffloadError:
        if _is_worker():
            os.environ[_HIDE_FRAMES] = "1"
        raise


def _in_spark(name: str, value: object) -> str:
    return name if value is None else f'option("{name}", "{value}")'


def _is_worker() -> bool:
    """Return whether Spark started this process to run Python."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
