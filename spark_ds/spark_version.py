"""Checks of the Spark release."""

from __future__ import annotations

import pyspark

from arrow_io.errors import OptionError


def is_spark_since(minimum: tuple[int, int]) -> bool:
    """Return whether this is a release of Spark, such as `(4, 2)`, or a newer one."""
    major, minor, *_ = pyspark.__version__.split(".")
    return (int(major), int(minor)) >= minimum


def too_old_error(minimum: tuple[int, int], subject: str) -> OptionError:
    """Return the error for a Spark that is too old for the subject of the message."""
    release = ".".join(map(str, minimum))
    message = f"{subject} needs Spark {release} or newer, but this is Spark {pyspark.__version__}"
    return OptionError(message)
