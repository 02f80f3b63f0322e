"""Metrics of a read of topics adds up, and tells each thing once."""

from __future__ import annotations

from dataclasses import fields

import pytest

from arrow_io.errors import ChecksumError, IncompleteReadWarning
from arrow_io.read_metrics import ReadMetrics, Unit
from connector.display.topic_metrics import TopicMetrics
from connector.scan.execution import execute
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden


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
        ("1 ledger after those offloaded is in BookKeeper only, and was not read: 2 entries"),
        (
            "3 ledgers were read from other copies than those that the metadata names, which cannot"
            " be read"
        ),
        (
            "the metadata does not list 4 of the topics: they were read by the bucket alone,"
            " so ledgers may be missing"
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
