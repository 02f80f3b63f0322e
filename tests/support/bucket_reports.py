"""Report pages of golden buckets, and what stands on them."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Final
from uuid import UUID
from xml.etree import ElementTree as ET

from connector.catalog.opening import open_catalog
from connector.report.render import render_report
from connector.upkeep.audit.audit import audit
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

SMALL: Final = GOLDEN / "pulsar-4.0.7-small"
FULL: Final = GOLDEN / "pulsar-4.0.7"
HOSTILE_NAME: Final = "<script>alert(1)<\u202e.txt"


def report_of(url: str | Path, *, metadata: str | None = None, topic: str | None = None) -> str:
    """The page of a bucket, with its audit."""
    catalog = open_catalog(str(url), metadata=metadata)
    uploads = catalog.location.unfinished_uploads()
    return render_report(catalog, audit(catalog, uploads=uploads), topic=topic, metadata=metadata)


def parsed(page: str) -> ET.Element:
    """A page as a tree; it is XML as well as HTML."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(page)  # noqa: S314 - our own page, and no entity is expanded


def texts(root: ET.Element, path: str) -> list[str]:
    """The text of each element at a path, with that of all in it."""
    return ["".join(each.itertext()) for each in root.iterfind(path)]


def drawn_ledgers(root: ET.Element, css_class: str) -> list[tuple[int, int, int]]:
    """Number of ledgers, first and last id of each bar in the boxes of a class, in their order."""
    titles = texts(root, f".//div[@class='{css_class}']/svg/rect/title")
    bars = []
    for title in titles:
        match = re.match(r"ledger (\d+): |([\d,]+) ledgers, (\d+) … (\d+): ", title)
        if match is not None and match[1]:
            bars.append((1, int(match[1]), int(match[1])))
        elif match is not None:
            bars.append((int(match[2].replace(",", "")), int(match[3]), int(match[4])))
    return bars


def damaged_small_set(folder: Path) -> tuple[Path, Path]:
    """The small golden set with something wrong of every kind, and its metadata.

    Args:
        folder: An empty folder.

    Returns:
        The folder of the objects, and that of the metadata.
    """
    bucket, metadata = folder / "bucket", folder / "metadata"
    shutil.copytree(SMALL / "objects", bucket)
    shutil.copytree(SMALL, metadata, ignore=shutil.ignore_patterns("objects", "*.gz"))
    names = {path.name.partition("-ledger-")[2]: path for path in bucket.iterdir()}
    names["15-index"].unlink()
    names["17"].unlink()
    names["19"].write_bytes(names["19"].read_bytes()[:-300])
    names["24-index"].write_bytes(b"x" * 40)
    (bucket / HOSTILE_NAME).write_bytes(b"")
    for end in ("27", "27-index"):
        shutil.copy(names[end], bucket / f"{UUID(int=5)}-ledger-{end}")
    _shorten(metadata / "public__default__small-transactions")
    return bucket, metadata


def _shorten(folder: Path) -> None:
    """Take the first two ledgers from a topic's metadata, and the offloads of the last two."""
    path = folder / "internal-info.json"
    info = json.loads(json.loads(path.read_text()))
    info["ledgers"] = info["ledgers"][2:]
    for ledger in info["ledgers"][-3:-1]:
        ledger["isOffloaded"] = False
        del ledger["offloadedContextUuid"]
    path.write_text(json.dumps(info))
    (folder / "internal-stats.json").unlink()
    (folder / "managed-ledger-info.bin").unlink()
