"""Which releases of Spark have what the source needs."""

from __future__ import annotations

import pyspark

from arrow_io.errors import OptionError


def is_spark_since(least: tuple[int, int]) -> bool:
    """Return whether this is a release of Spark, such as `(4, 2)`, or a newer one."""
    major, minor, *_ = pyspark.__version__.split(".")
    return (int(major), int(minor)) >= least


def too_old(least: tuple[int, int], subject: str) -> OptionError:
    """Return the error for a Spark that is too old.

    Args:
        least: The first release that will do.
        subject: What takes it, as the subject of a sentence.
    """
    release = ".".join(map(str, least))
    message = f"{subject} takes Spark {release} or newer, and this is Spark {pyspark.__version__}"
    return OptionError(message)
