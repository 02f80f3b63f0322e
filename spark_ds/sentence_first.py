"""Errors of ours as a user of Spark reads them: the sentence alone, without a page of frames."""

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
"""The variable of the environment that tells a worker to report an error without its frames."""


@contextmanager
def sentence_first() -> Iterator[None]:
    """Let Spark's worker report an error of ours by its sentence alone.

    By default a worker sends the whole text that Python makes of an error, frames first. Spark's
    option to leave them out (`spark.sql.execution.pyspark.udf.hideTraceback.enabled`) holds for all
    errors of a session. Here it is set only in a process that ends with this error.
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
    """Whether the process is one that Spark started to run Python for it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
