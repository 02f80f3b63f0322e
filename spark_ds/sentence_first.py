"""Errors of ours as a user of Spark reads them: the sentence, with no page of frames before."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from arrow_io.errors import PulsarOffloadError
from arrow_io.option_names import spelled

if TYPE_CHECKING:
    from collections.abc import Iterator

_HIDE_FRAMES: Final = "SPARK_HIDE_TRACEBACK"
"""Where a worker looks, as it reports an error, whether to leave the frames out."""


@contextmanager
def sentence_first() -> Iterator[None]:
    """Let Spark's worker report an error of ours by its sentence alone.

    By default it sends the whole text that Python makes of an error, frames first. Its option to
    leave them out (`spark.sql.execution.pyspark.udf.hideTraceback.enabled`) is for all errors of a
    session; here it is set in a process that ends with the error that it is set for.
    """
    try:
        with spelled(_in_spark):
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
