"""The log of Spark's driver and executors.

Unless a process configures logging, Python prints warnings to standard error, which is the log of
an executor, and Spark's `spark.tvf.python_worker_logs()` reads them too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arrow_io.core.telemetry import LOG, NULL_HANDLER

if TYPE_CHECKING:
    from collections.abc import Iterable

# It would hide the warnings.
LOG.removeHandler(NULL_HANDLER)


def log_sentences(sentences: Iterable[str], *, level: int = logging.WARNING) -> None:
    """Log sentences for the user of a query, each with the name of this project."""
    for sentence in sentences:
        LOG.log(level, "pulsar_offload: %s", sentence)
