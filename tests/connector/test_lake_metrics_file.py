"""The file of a copy's metrics, as Prometheus' own parser reads it."""

from __future__ import annotations

import re
import shutil
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest
from prometheus_client.parser import text_fd_to_metric_families

from arrow_io.errors import MissingObjectError, OptionError, PulsarOffloadError, TopicNotFoundError
from connector import copy_topics
from connector.lake import metrics_file
from connector.lake.metrics_file import METRICS, MetricsFile
from connector.lake.table_copy import TableSummary
from tests.support.command_line import URL, run
from tests.support.golden import GOLDEN, golden_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

_METADATA: Final = str(GOLDEN / "pulsar-4.0.7")
_PREFIX: Final = "pulsar_offload_copy_"
_ORDERS: Final = "persistent://public/default/json-orders"


def _parsed(path: Path) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """Labels and value of each series, by name without prefix."""
    with path.open(encoding="utf-8", newline="\n") as file:
        families = list(text_fd_to_metric_families(file))
    assert all(each.documentation for each in families)
    samples = [sample for each in families for sample in each.samples]
    kinds = {f"{each.name.removesuffix('_total')}": each.type for each in families}
    for each in samples:
        kind, _ = METRICS[each.name.removeprefix(_PREFIX)]
        assert kinds[each.name.removesuffix("_total")] == kind
    by_name: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for each in samples:
        name = each.name.removeprefix(_PREFIX)
        by_name.setdefault(name, []).append((each.labels, each.value))
    return by_name


def _value(path: Path, name: str, **labels: str) -> float:
    [value] = [n for own, n in _parsed(path).get(name, []) if labels.items() <= own.items()]
    return value


def test_counters_add_up_over_runs(tmp_path: Path) -> None:
    """The second run copies nothing, and keeps what the first one counted."""
    target, file = str(tmp_path / "orders"), tmp_path / "copy.prom"
    copy = ("copy", URL, "json-orders", target, "--metadata", _METADATA)
    before = time.time()
    run(*copy, "--metrics-file", str(file))
    first = _parsed(file)
    run(*copy, "--metrics-file", str(file))

    labels = {"table": target, "topic": _ORDERS}
    assert _value(file, "rows_total") == 400
    assert first["rows_total"] == [(labels, 400)]
    assert first["lag_bytes"] == first["lag_ledgers"] == [(labels, 0)]
    assert first["dead_letters_total"] == [(labels, 0)]
    assert "failures_total" not in first
    newest: Any = pl.read_delta(target)["__publish_time__"].max()
    assert isinstance(newest, datetime)
    assert _value(file, "newest_publish_timestamp_seconds") == pytest.approx(newest.timestamp())
    success = _value(file, "last_success_timestamp_seconds")
    assert before <= first["last_success_timestamp_seconds"][0][1] <= success <= time.time()
    assert _value(file, "last_run_timestamp_seconds") == success
    assert list(tmp_path.glob(".copy.prom*")) == []


def test_a_failure_keeps_the_last_success(tmp_path: Path) -> None:
    """So that an alert on its age fires, while tables that are copied go on."""
    topics, bucket = ("int8", "int16"), tmp_path / "bucket"
    bucket.mkdir()
    for topic in map(golden_topic, topics):
        for each in topic.ledgers:
            shutil.copy(each.data_object, bucket)
            shutil.copy(each.index_object, bucket)
    file = tmp_path / "copy.prom"

    def copy() -> None:
        copy_topics(
            str(bucket),
            "int*",
            str(tmp_path / "{topic}"),
            format="parquet",
            value="raw",
            metrics_file=file,
        )

    copy()
    success = _parsed(file)["last_success_timestamp_seconds"]
    assert len(success) == 2
    broken = tmp_path / "int8" / "_pulsar_offload"
    [manifest] = broken.glob("manifest-*.json")
    manifest.write_text("{")
    for _ in range(2):
        with pytest.raises(PulsarOffloadError) as raised:
            copy()

    labels = {"table": str(tmp_path / "int8"), "topic": "persistent://public/default/int8"}
    error = type(raised.value).__name__
    assert _parsed(file)["failures_total"] == [({**labels, "error": error}, 2)]
    last = _value(file, "last_success_timestamp_seconds", table=labels["table"])
    assert last == {own["table"]: n for own, n in success}[labels["table"]]
    assert _value(file, "last_run_timestamp_seconds", table=labels["table"]) > last
    other = str(tmp_path / "int16")
    assert _value(file, "last_success_timestamp_seconds", table=other) > last


def test_a_failure_before_tables_are_known(tmp_path: Path) -> None:
    """It is counted under the target and the names, and everything else stays."""
    file = tmp_path / "copy.prom"
    target = str(tmp_path / "t")
    copy_topics(URL, "int8", target, format="parquet", metadata=_METADATA, metrics_file=file)
    before = _parsed(file)
    with pytest.raises(MissingObjectError):
        copy_topics(str(tmp_path / "no"), "int8", target, format="parquet", metrics_file=file)

    after = _parsed(file)
    labels = {"table": target, "topic": "int8", "error": "MissingObjectError"}
    assert after.pop("failures_total") == [(labels, 1)]
    after["last_run_timestamp_seconds"] = [
        each for each in after["last_run_timestamp_seconds"] if each[0]["topic"] != "int8"
    ]
    assert after == before


def test_lag_and_what_was_left_out(tmp_path: Path) -> None:
    """As the summary has them."""
    file = tmp_path / "copy.prom"
    [summary] = copy_topics(
        URL, "transactions-open", str(tmp_path / "t"), format="parquet", metrics_file=file
    )

    assert summary.lag_bytes > 0
    assert _value(file, "lag_bytes") == summary.lag_bytes
    assert _value(file, "lag_ledgers") == summary.lag_ledgers == 1


def test_series_of_tables_that_are_copied_no_more_are_dropped(tmp_path: Path) -> None:
    """Else the age of their last success would grow for ever."""
    file = tmp_path / "copy.prom"
    for name in ("int8", "int16"):
        target = str(tmp_path / name)
        copy_topics(URL, name, target, format="parquet", metadata=_METADATA, metrics_file=file)

    assert {own["table"] for own, _ in _parsed(file)["rows_total"]} == {str(tmp_path / "int16")}


def test_an_interrupt_drops_nothing(tmp_path: Path) -> None:
    """The tables that the run had not reached yet keep their series; no failure is counted."""
    file = tmp_path / "m.prom"
    with MetricsFile(file, "all", "all") as metrics:
        for name in ("a", "b"):
            metrics.note_success(name, name, _summary(name))

    def run_and_interrupt() -> None:
        with MetricsFile(file, "all", "all") as metrics:
            metrics.note_success("a", "a", _summary("a"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_and_interrupt()

    parsed = _parsed(file)
    assert [(own["table"], n) for own, n in parsed["rows_total"]] == [("a", 2), ("b", 1)]
    assert "failures_total" not in parsed


def _summary(target: str) -> TableSummary:
    return TableSummary(target, rows=1, lag_bytes=2)


@pytest.mark.parametrize(
    "name",
    ['a"b', "a\\n", "a\nb", "a,b=c", "{x} 1", "ü", "", "a\rb", "a\vb", "a\x85b", "a\u2028b"],
)
def test_any_name_is_a_label(tmp_path: Path, name: str) -> None:
    """It is escaped for the parser, and read again by the next run."""
    file = tmp_path / "m.prom"
    for _ in range(2):
        with MetricsFile(file, "all", "all") as metrics:
            metrics.note_success(name, name, _summary(name))

    assert _parsed(file)["rows_total"] == [({"table": name, "topic": name}, 2)]


@pytest.mark.parametrize(
    "text",
    ["not metrics\n", "other_total 1\n", 'pulsar_offload_copy_other{table="a"} 1\n', "\x00"],
)
def test_another_file_is_not_overwritten(tmp_path: Path, text: str) -> None:
    """A file with other content is refused before anything is copied."""
    file, target = tmp_path / "other", tmp_path / "t"
    file.write_text(text)
    with pytest.raises(OptionError, match="other content than the metrics of a copy"):
        copy_topics(URL, "int8", str(target), format="parquet", metrics_file=file)

    assert file.read_text() == text
    assert not target.exists()
    with pytest.raises(OptionError, match="does not exist"):
        copy_topics(URL, "int8", str(target), metrics_file=tmp_path / "no" / "copy.prom")


def test_readers_see_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file is there until the new one is whole, and others may read it."""
    file = tmp_path / "m.prom"
    with MetricsFile(file, "all", "all") as metrics:
        metrics.note_success("t", "t", _summary("t"))
    old = file.read_text()
    seen: list[str] = []
    replace = Path.replace

    def spy(self: Path, target: Path) -> Path:
        seen.append(file.read_text())
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", spy)
    with MetricsFile(file, "all", "all") as metrics:
        metrics.note_success("t", "t", _summary("t"))

    assert seen == [old]
    assert file.read_text() != old
    assert file.stat().st_mode & 0o004


def test_two_runs_that_end_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also threads, or containers in which each process has the same id: the last one counts."""
    file = tmp_path / "m.prom"
    replace = Path.replace
    others = [MetricsFile(file, "all", "all")]

    def end_the_other(self: Path, target: Path) -> Path:
        while others:
            with others.pop() as other:
                other.note_success("other", "other", _summary("other"))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", end_the_other)
    with MetricsFile(file, "all", "all") as metrics:
        metrics.note_success("t", "t", _summary("t"))

    assert _parsed(file)["rows_total"] == [({"table": "t", "topic": "t"}, 1)]
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a copy that succeeded; after one that failed, it is a note."""

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(metrics_file, "_replace", refuse)
    file, target = tmp_path / "m.prom", str(tmp_path / "t")
    with pytest.raises(OptionError, match="No space left on device; the copy succeeded"):
        copy_topics(URL, "int8", target, format="parquet", metadata=_METADATA, metrics_file=file)
    with pytest.raises(TopicNotFoundError) as raised:
        copy_topics(URL, "no-such-topic", target, format="parquet", metrics_file=file)

    assert any("cannot write the metrics" in note for note in raised.value.__notes__)


def test_the_table_has_no_secret(tmp_path: Path) -> None:
    """Of a URL with a password, the password is masked."""
    file = tmp_path / "m.prom"
    with pytest.raises(PulsarOffloadError):
        copy_topics(URL, "int8", "sftp://me:s3cr3t@127.0.0.1:1/t", metrics_file=file)

    text = file.read_text()
    assert "s3cr3t" not in text
    assert re.search(r'table="sftp://\*\*\*@127\.0\.0\.1:1/t"', text)
