"""The command `lake maintain`: what it prints, with and without `--yes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from arrow_io.errors import OptionError
from connector import MaintenanceSettings, copy_topics
from connector.cli import interrupts
from connector.cli import lake as cli_lake
from connector.lake.copy_plan import CopySizes
from tests.support.buckets import TOPIC
from tests.support.command_line import URL, USAGE, lines_of, run
from tests.support.golden import GOLDEN
from tests.support.lake_copies import write_topic

if TYPE_CHECKING:
    from pathlib import Path

    from connector.lake.table_copy import TableSummary

_METADATA = ("--metadata", str(GOLDEN / "pulsar-4.0.7"))


@pytest.fixture(name="target")
def _target(tmp_path: Path) -> str:
    """A table with a file for each ledger."""
    target = str(tmp_path / "multi")
    lines_of("copy", URL, "multi-ledger", target, *_METADATA, "--commit-bytes", "1")
    return target


def test_nothing_changes_without_yes(target: str) -> None:
    """What would be merged is printed, then merged, and there is nothing left to do."""
    arguments = ("lake", "maintain", target, "--min-files", "2")
    files = len(list(pl.scan_delta(target).collect_schema()))
    assert files
    [planned] = lines_of(*arguments)
    [again] = lines_of(*arguments)
    assert planned == again
    assert planned["merged_files"] > 2
    [done] = lines_of(*arguments, "--yes")
    assert (done["merged_files"], done["new_files"]) == (planned["merged_files"], 1)
    [after] = lines_of(*arguments)
    assert after["merged_files"] == 0
    assert pl.read_delta(target).height == 255


def test_old_rows(target: str) -> None:
    """All rows are old."""
    [done] = lines_of("lake", "maintain", target, "--keep", "1d", "--yes")
    assert done["deleted_rows"] == 255
    assert pl.read_delta(target).height == 0
    [copied] = lines_of("copy", URL, "multi-ledger", target, *_METADATA)
    assert copied["rows"] == 0


def test_refusals(target: str, tmp_path: Path) -> None:
    """A malformed time, and a folder without a table."""
    run("lake", "maintain", target, "--keep", "long", ends=USAGE)
    result = run("lake", "maintain", str(tmp_path / "nothing"), ends=USAGE)
    assert "not a table that topics are copied to" in result.output


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is interrupted has time to delete files that no commit names."""

    def interrupt(*_: object, **__: object) -> None:
        # It would end this process if it did not raise.
        assert interrupts._writing.is_set()
        raise OptionError("interrupted")

    monkeypatch.setattr(cli_lake, "maintain_table", interrupt)
    assert "interrupted" in run("lake", "maintain", "t", "--yes", ends=USAGE).output


def test_a_copy_that_maintains(tmp_path: Path) -> None:
    """Small files of many commits become one in the same run, if there are enough."""
    target = str(tmp_path / "multi")
    arguments = ("copy", URL, "multi-ledger", target, *_METADATA, "--commit-bytes", "1")
    [copied] = lines_of(*arguments, "--maintain")
    assert copied["files"] > 5
    [planned] = lines_of("lake", "maintain", target, "--min-files", "2")
    assert planned["merged_files"] == 0
    assert pl.read_delta(target).height == 255
    [again] = lines_of(*arguments, "--maintain")
    assert again["rows"] == 0


def test_a_copy_that_cannot_be_maintained(tmp_path: Path) -> None:
    """Its rows are reported: they are in the table."""
    target, file = str(tmp_path / "multi"), tmp_path / "copy.prom"
    summaries: list[TableSummary] = []
    with pytest.raises(OptionError, match="no column nothing to sort by") as raised:
        copy_topics(
            URL,
            "multi-ledger",
            target,
            metadata=_METADATA[1],
            sizes=CopySizes(commit_bytes=1),
            maintenance=MaintenanceSettings(sort_by=("nothing",)),
            metrics_file=file,
            on_table=summaries.append,
        )

    assert raised.value.__notes__ == [f"not maintained: {target}"]
    assert [each.rows for each in summaries] == [255]
    assert "rows_total{" in file.read_text()
    assert "failures_total{" in file.read_text()


def test_a_dry_run_warns_of_small_partitions(tmp_path: Path) -> None:
    """A topic that writes little a day makes a small file for each day."""
    bucket = str(tmp_path / "bucket")
    # A message in each three hours.
    write_topic(bucket, range(60))
    for transform, is_small in (("day(__publish_time__)", True), ("bucket(2, __key__)", False)):
        arguments = ("copy", bucket, TOPIC, str(tmp_path / "t"), "--partition-by", transform)
        notes = run(*arguments, "--dry-run").stderr
        assert (f"a partition of {transform} gets about" in notes) is is_small


def test_a_dry_run_of_topics_with_one_ledger_each(tmp_path: Path) -> None:
    """The time between ledgers of different topics is no rate."""
    arguments = ("copy", URL, "int*", str(tmp_path / "t"), *_METADATA, "--value", "raw")
    notes = run(*arguments, "--partition-by", "day(__publish_time__)", "--dry-run").stderr
    assert "a partition of" not in notes
