"""Each read warns of what it leaves out, whatever others told, at the line that asked for it."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import fields
from typing import TYPE_CHECKING, Final, Literal

import duckdb
import pyarrow.compute as pc
import pytest

from arrow_io.errors import (
    ChecksumError,
    IncompleteReadWarning,
    UndecodedValuesWarning,
    UnusedStatisticsWarning,
)
from arrow_io.read_metrics import ReadMetrics, Unit
from connector import copy_topics, open_catalog, open_topic, register_duckdb
from connector.catalog.tables import zones_table
from connector.display.topic_metrics import TopicMetrics
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connector import TopicDataset

_OPEN: Final = golden_topic("transactions-open")
_URL: Final = str(_OPEN.objects_folder)
_KEYS: Final = ["__key__"]
_Action = Literal["default", "error", "ignore", "once"]


def _opened() -> TopicDataset:
    return open_topic(_URL, _OPEN.name, value="raw")


def _told(
    action: _Action, read: Callable[[], object], times: int = 1
) -> list[warnings.WarningMessage]:
    """The warnings of a read that is repeated under one of Python's actions."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter(action)
        for _ in range(times):
            read()
    return [each for each in told if each.category.__module__ == "arrow_io.errors"]


def _is_line_of(told: warnings.WarningMessage, read: Callable[[], object]) -> bool:
    lines, first = inspect.getsourcelines(read)
    return told.filename == __file__ and first <= told.lineno < first + len(lines)


def _query(con: duckdb.DuckDBPyConnection) -> object:
    return con.execute("select count(__key__) from read_pulsar($1)", [_OPEN.name]).fetchall()


_READS: Final[dict[str, Callable[[], object]]] = {
    "table": lambda: _opened().to_table(_KEYS),
    "batches": lambda: list(_opened().to_batches(columns=_KEYS)),
    "reader": lambda: list(_opened().scanner(_KEYS).to_reader()),
    "count": lambda: _opened().count_rows(),
    "filtered count": lambda: _opened().count_rows(filter=pc.field("__entry_id__") >= 0),
    "head": lambda: _opened().head(1000),
    "tail": lambda: _opened().tail(1000),
    "pandas": lambda: _opened().to_pandas(_KEYS),
    "polars": lambda: _opened().to_polars(_KEYS),
    "tasks": lambda: [list(execute(task)) for task in _opened().scan.plan()],
}


@pytest.mark.parametrize("read", _READS.values(), ids=_READS)
def test_each_read_tells_its_caller_what_it_left_out(read: Callable[[], object]) -> None:
    """Python's filter for a line's first warning does not hide those of later reads."""
    told = _told("default", read, times=3)

    assert [each.category for each in told] == [IncompleteReadWarning] * 3
    assert all(_is_line_of(each, read) for each in told)


def test_each_query_of_an_engine_tells_what_it_left_out() -> None:
    """One that is run again is as incomplete as it was; engines may read in threads of theirs."""
    lazy = _opened().scan_polars().select("__key__")
    with duckdb.connect() as con:
        register_duckdb(con, _URL, value="raw")
        for read in (lazy.collect, lambda: _query(con)):
            told = _told("default", read, times=3)

            assert [each.category for each in told] == [IncompleteReadWarning] * 3


def test_each_copy_tells_what_it_left_out(tmp_path: Path) -> None:
    """One that is begun by the same line as another tells too."""
    targets = iter(["a", "b"])
    damaged = encode_entry([Message(payload=b"two")], batched=False).replace(b"two", b"TWO")
    with memory_bucket(offload([(1, [damaged])])) as bucket:

        def copy() -> None:
            target = str(tmp_path / next(targets))
            copy_topics(
                bucket.url, TOPIC, target, format="parquet", value="raw", on_corruption="salvage"
            )

        told = _told("default", copy, times=2)

    assert [each.category for each in told] == [IncompleteReadWarning] * 2
    assert all(_is_line_of(each, copy) for each in told)


def test_each_opening_tells_that_values_are_bytes() -> None:
    """Whoever opens a topic twice may have given the schema the first time."""

    def opened() -> object:
        return open_topic(_URL, _OPEN.name)

    told = _told("default", opened, times=2)

    assert [each.category for each in told] == [UndecodedValuesWarning] * 2
    assert all(_is_line_of(each, opened) for each in told)


def test_each_read_tells_which_statistics_are_of_no_use(tmp_path: Path) -> None:
    """A damaged file is told by each read that would have used it, and each listing."""
    topic = golden_topic("multi-ledger")
    catalog = open_catalog(str(topic.objects_folder))
    catalog.analyze(tmp_path, topic.name)
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])

    def filtered() -> object:
        url = str(topic.objects_folder)
        dataset = open_topic(url, topic.name, catalog=catalog, value="raw", statistics=tmp_path)
        return dataset.to_table(filter=pc.field("__key__") == "a")

    def listed() -> object:
        return zones_table(catalog, tmp_path, topic.name)

    for read in (filtered, listed):
        told = _told("default", read, times=2)

        assert [each.category for each in told] == [UnusedStatisticsWarning] * 2
        assert all(_is_line_of(each, read) for each in told)


def test_filters_of_the_user_hold() -> None:
    """A warning is silenced, is raised, or comes once, if the user says so."""

    def read() -> object:
        return _opened().to_table(_KEYS)

    assert not _told("ignore", read)
    assert len(_told("once", read, times=3)) == 1
    with pytest.raises(IncompleteReadWarning, match="transaction without an outcome"):
        _told("error", read)
    with warnings.catch_warnings(record=True, action="always") as told:
        warnings.filterwarnings("ignore", module=__name__)
        read()
    assert not told


def _numbered(first: int) -> TopicMetrics:
    """Metrics of which each count is another number."""
    metrics = TopicMetrics()
    counts = [each.name for each in fields(metrics) if isinstance(getattr(metrics, each.name), int)]
    for number, name in enumerate(counts, start=first):
        setattr(metrics, name, number)
    return metrics


def test_reports_of_tasks_add_up_with_that_of_their_topics() -> None:
    """What tasks count is added to what was counted when the topics were opened."""
    opened = TopicMetrics(pending_ledgers=2, pending_entries=7, doubts=["one"])
    task = ReadMetrics(rows=5, doubts=["two"])
    task.lose(Unit.ENTRY, ChecksumError("broken"))

    total = TopicMetrics().add(opened).add(task)

    assert (total.rows, total.pending_ledgers, total.pending_entries) == (5, 2, 7)
    assert total.doubts == ["one", "two"]
    assert total.lost == {(Unit.ENTRY, "ChecksumError"): 1}


def test_no_count_is_left_out_of_a_sum() -> None:
    """Each count of the sum is the sum of the counts."""
    total = _numbered(1).add(_numbered(100))

    expected = _numbered(1)
    for each in fields(expected):
        value = getattr(expected, each.name)
        if isinstance(value, int):
            setattr(expected, each.name, 2 * value + 99)
    assert total == expected


def test_notices_say_which_ledgers_were_left_out() -> None:
    """One sentence for each reason, with its number, before what is said of entries."""
    metrics = TopicMetrics(
        unfinished_ledgers=5,
        pending_ledgers=1,
        pending_entries=2,
        substituted_ledgers=3,
        unknown_topics=4,
        unlisted_ledgers=6,
        replaced_texts=1,
    )

    assert metrics.notices() == [
        "5 data objects have no index object: ledgers whose offload is under way or has failed",
        "1 ledger after those offloaded is in BookKeeper only, and was not read: 2 entries",
        (
            "3 ledgers were read from other copies than those that the metadata names, which cannot"
            " be read"
        ),
        (
            "the metadata does not list 4 of the topics: they were read by the bucket alone, so"
            " ledgers may be missing"
        ),
        (
            "the metadata does not list 6 ledgers in the bucket as offloaded, so they were not"
            " read; the metadata may be older"
        ),
        "1 text had invalid bytes; U+FFFD replaces them",
    ]


def test_what_a_task_left_out_is_a_warning_of_the_callers_line() -> None:
    """Whoever executes a task without metrics is shown where."""
    (task,) = open_golden(golden_topic("transactions-open")).scan.plan()

    with pytest.warns(IncompleteReadWarning) as told:
        list(execute(task))

    assert [each.filename for each in told] == [__file__]
