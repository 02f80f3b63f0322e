"""`Catalog.save(..., statistics=...)`: a snapshot remembers where statistics of its topics are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import fsspec
import pyarrow.compute as pc
import pytest

from arrow_io.errors import OptionError, UnusedStatisticsWarning
from connector import open_catalog, open_topic
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import LONG_AGO, SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from connector import Catalog

BATCHED: Final = golden_topic("small-bytes-batched-lz4")


def _skipped(catalog: Catalog, **options: Any) -> int:  # noqa: ANN401 - those of open_topic
    """How many zones a read leaves out that asks for times before all messages."""
    given = {"catalog": catalog, "value": "raw", **options}
    dataset = open_topic(str(catalog.location), BATCHED.name, **given)
    before = pc.field("__publish_time__") < LONG_AGO.replace(year=2000)
    return dataset.filter(before).scan.pruning().zones


def test_snapshot_remembers_where_statistics_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads by it go by them, wherever they are started, unless others are given."""
    url, snapshot = str(GOLDEN / SMALL / "objects"), tmp_path / "catalog.json.gz"
    monkeypatch.chdir(tmp_path)
    catalog = open_catalog(url)
    zones = sum(each.zones for each in catalog.analyze("statistics", BATCHED.name))

    catalog.save(snapshot, statistics="statistics")
    monkeypatch.chdir("/")

    opened = open_catalog(url, metadata=snapshot)
    assert (catalog.statistics, opened.statistics) == (None, str(tmp_path / "statistics"))
    assert (_skipped(catalog), _skipped(opened)) == (0, zones)
    (tmp_path / "others").mkdir()
    with pytest.warns(UnusedStatisticsWarning, match="there are no statistics in"):
        assert _skipped(opened, statistics=tmp_path / "others") == 0
    opened.save(snapshot)
    assert open_catalog(url, metadata=snapshot).statistics == opened.statistics
    elsewhere = "memory://me:secret@host/x"
    file_system, root = fsspec.url_to_fs(elsewhere)
    file_system.pipe_file(f"{root}/notes.txt", b"no statistics")
    with pytest.warns(UnusedStatisticsWarning, match="there are no statistics in"):
        opened.save(snapshot, statistics=elsewhere)
    file_system.rm(root, recursive=True)
    assert "secret" not in str(open_catalog(url, metadata=snapshot).statistics)
    with pytest.raises(OptionError, match="statistics must be a path or URL"):
        catalog.save(snapshot, statistics="")
