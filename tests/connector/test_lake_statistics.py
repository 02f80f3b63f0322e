"""Copies with statistics have the rows of those without, and read no more than they have to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from arrow_io.storage.location import Location
from connector import copy_topics, open_catalog, open_topic
from connector.lake.copy import plan_copy
from connector.lake.copy_plan import CopySizes
from connector.tables.parquet import ParquetTable
from tests.support.golden import golden_topic
from tests.support.lake_tables import table_of

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from connector.lake.table_copy import TableSummary
    from tests.support.golden import GoldenTopic

NAMES: Final = (
    "transactions", "transactions-open", "chunked", "multi-ledger", "multi-block",
    "small-transactions", "small-chunked",
)  # fmt: skip
TOPICS: Final = [golden_topic(f"persistent://public/default/{name}") for name in NAMES]
MULTI_BLOCK: Final = TOPICS[NAMES.index("multi-block")]
OPTIONS: Final[dict[str, Any]] = {"format": "parquet", "value": "raw"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Statistics of the topics, in zones of a few entries."""
    folder = str(tmp_path_factory.mktemp("statistics"))
    with patch("connector.statistics.whole_ledgers.ZONE_BYTES", 1000):
        for topic in TOPICS:
            open_catalog(str(topic.objects_folder)).analyze(folder, topic.name)
    return folder


def _copied(
    topic: GoldenTopic,
    target: Path,
    **options: Any,  # noqa: ANN401 - copy_topics'
) -> tuple[TableSummary, pa.Table]:
    """What a copy did, and the table that it made."""
    given = OPTIONS | options
    [done] = copy_topics(str(topic.objects_folder), topic.name, str(target), **given)
    rows = table_of(ParquetTable(Location(str(target))))
    names = ("__ledger_id__", "__entry_id__", "__batch_index__")
    return done, rows.sort_by([(name, "ascending") for name in names]).combine_chunks()


def _quarter(topic: GoldenTopic) -> Any:  # noqa: ANN401 - a time
    dataset = open_topic(str(topic.objects_folder), topic.name, value="raw", transactions="all")
    times = dataset.to_table(["__publish_time__"])["__publish_time__"].to_pylist()
    return sorted(times)[len(times) // 4]


@pytest.mark.parametrize("topic", TOPICS, ids=str)
@pytest.mark.parametrize("commit_bytes", [1, 1 << 30])
def test_a_table_equals_that_without_statistics(
    topic: GoldenTopic, folder: str, tmp_path: Path, commit_bytes: int
) -> None:
    """From the time of a quarter of the rows on, in small commits and in one."""
    start = _quarter(topic)
    sizes = CopySizes(commit_bytes=commit_bytes)
    without, expected = _copied(topic, tmp_path / "without", start=start, sizes=sizes)
    given, rows = _copied(topic, tmp_path / "with", start=start, sizes=sizes, statistics=folder)

    assert rows.equals(expected)
    assert rows.num_rows
    assert given.progress == without.progress
    assert given.commits <= without.commits
    assert given.data_bytes <= without.data_bytes


def test_a_plan_counts_what_is_left(folder: str, tmp_path: Path) -> None:
    """As a copy then reads it, and less than the topic has."""
    url, start = str(MULTI_BLOCK.objects_folder), _quarter(MULTI_BLOCK)
    options = OPTIONS | {"start": start, "statistics": folder}

    [plan] = plan_copy(url, MULTI_BLOCK.name, str(tmp_path), **options)
    [whole] = plan_copy(url, MULTI_BLOCK.name, str(tmp_path), **OPTIONS)
    done, _ = _copied(MULTI_BLOCK, tmp_path, **options)

    assert plan.data_bytes == done.data_bytes < whole.data_bytes


def test_statistics_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    """In the notices of the table; the copy has the rows all the same."""
    folder = tmp_path / "statistics"
    name = TOPICS[0].name
    open_catalog(str(TOPICS[0].objects_folder)).analyze(folder, name)
    [file] = folder.iterdir()
    assert pq.read_metadata(file).num_rows
    file.write_bytes(file.read_bytes()[:-1] + b"?")

    done, rows = _copied(TOPICS[0], tmp_path / "t", statistics=str(folder))

    assert ["is not as it was written" in each for each in done.notices] == [True]
    assert done.rows == rows.num_rows > 0
