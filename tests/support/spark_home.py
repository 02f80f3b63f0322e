"""A home of Spark for a local cluster, which writes its logs to where it starts from."""

from __future__ import annotations

from pathlib import Path

import pyspark


def link_spark_home(home: Path) -> Path:
    """Make a folder with links to PySpark's own files, and return it."""
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    return home
