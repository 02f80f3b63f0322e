"""Topics that are written more than once: what goes in, what comes out, which files are left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from connector import open_catalog, open_topic
from tests.support.buckets import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def keyed_rows(values: Sequence[int]) -> pa.Table:
    """Numbers as text, with one of seven keys each."""
    return pa.table(
        {
            "__key__": [f"key {each % 7}" for each in values],
            "__value__": [str(each).encode() for each in values],
        }
    )


def payloads_of(url: str, folder: Path | None, topic: str = TOPIC) -> list[bytes]:
    """The payloads of a topic, by the metadata in a folder if there is one."""
    catalog = None if folder is None else open_catalog(url, metadata=str(folder))
    table = open_topic(url, topic, columns=["__value__"], value="raw", catalog=catalog).to_table()
    values: list[bytes] = table["__value__"].to_pylist()
    return values


def files_below(folder: Path) -> dict[str, bytes]:
    """Each file below a folder, by its path there."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file()
    }
