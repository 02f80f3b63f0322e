"""Reports count what was lost, add up, and say in words what a reader must know."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest

from arrow_io.errors import ChecksumError, CorruptBlockError
from arrow_io.read_metrics import MAX_LOSSES, ReadMetrics, Tally, Unit


def test_losses_are_counted() -> None:
    """By unit and by kind of damage, with the first ones in words."""
    metrics = ReadMetrics()

    metrics.lose(Unit.ENTRY, ChecksumError("broken", entry_id=3))
    metrics.lose(Unit.ENTRY, ChecksumError("broken", entry_id=4))
    metrics.lose(Unit.ENTRY, CorruptBlockError("cut"), count=7)
    metrics.lose(Unit.MESSAGE, ChecksumError("broken"), count=2)

    assert metrics.lost == {
        (Unit.ENTRY, "ChecksumError"): 2,
        (Unit.ENTRY, "CorruptBlockError"): 7,
        (Unit.MESSAGE, "ChecksumError"): 2,
    }
    assert metrics.losses == ["broken (entry 3)", "broken (entry 4)", "cut", "broken"]


def test_words_are_kept_of_the_first_losses_only() -> None:
    """Counts go on; what is held in memory does not."""
    metrics, other = ReadMetrics(), ReadMetrics()
    for entry_id in range(MAX_LOSSES + 5):
        metrics.lose(Unit.ENTRY, ChecksumError("broken", entry_id=entry_id))
        other.lose(Unit.ENTRY, ChecksumError("other", entry_id=entry_id))

    assert len(metrics.losses) == MAX_LOSSES
    assert metrics.losses[-1] == f"broken (entry {MAX_LOSSES - 1})"
    metrics.add(other)
    assert metrics.lost[Unit.ENTRY, "ChecksumError"] == 2 * (MAX_LOSSES + 5)
    assert len(metrics.losses) == MAX_LOSSES
    assert ReadMetrics().add(other).losses == other.losses


def _numbered(start: int) -> ReadMetrics:
    """Metrics whose counts are all different."""
    metrics = ReadMetrics()
    for number, each in enumerate(fields(metrics), start):
        if each.type == "int":
            setattr(metrics, each.name, number)
    return metrics


def test_reports_add_up_field_by_field() -> None:
    """Every count, and the losses in order; the other metrics stay as they were."""
    one, two = _numbered(1), _numbered(100)
    one.lose(Unit.ENTRY, ChecksumError("first"))
    two.lose(Unit.ENTRY, ChecksumError("second"))
    two.lose(Unit.BLOCK, CorruptBlockError("third"))
    before = pickle.loads(pickle.dumps(two))
    expected = {
        each.name: getattr(one, each.name) + getattr(two, each.name)
        for each in fields(ReadMetrics)
        if each.type == "int"
    }
    assert len(expected) >= 9

    total = one.add(two)

    assert total is one
    assert {name: getattr(one, name) for name in expected} == expected
    assert one.lost == {(Unit.ENTRY, "ChecksumError"): 2, (Unit.BLOCK, "CorruptBlockError"): 1}
    assert one.losses == ["first", "second", "third"]
    assert two == before


def test_sound_read_has_no_notices() -> None:
    """What a client never sees either is not worth a word."""
    metrics = ReadMetrics(rows=5, entries=9, markers=2, aborted_messages=3, duplicate_chunks=1)

    assert metrics.notices() == []


def test_notices_say_what_was_left_out() -> None:
    """One sentence for each reason, with its number; so of what was replaced."""
    metrics = ReadMetrics(
        open_messages=7,
        open_transactions=2,
        unknown_messages=1,
        unknown_transactions=1,
        incomplete_messages=3,
        replaced_texts=6,
    )
    metrics.lose(Unit.ENTRY, ChecksumError("broken"), count=4)
    metrics.lose(Unit.LEDGER, CorruptBlockError("broken"))

    assert metrics.notices() == [
        "7 messages of 2 transactions without an outcome in the offloaded ledgers were left out",
        (
            "1 message of 1 transaction was left out: the outcome is only in the cluster's metadata"
            " store, and the metadata of this read lacks it"
        ),
        (
            "3 chunked messages were left out, because not all their chunks are in the offloaded"
            " ledgers"
        ),
        "6 texts had invalid bytes; U+FFFD replaces them",
        "4 × entry lost: ChecksumError",
        "1 × ledger lost: CorruptBlockError",
    ]


# The tally


def test_loss_is_raised_by_default() -> None:
    """The error itself, and nothing is counted."""
    tally = Tally()
    error = ChecksumError("broken", entry_id=3)

    with pytest.raises(ChecksumError) as caught:
        tally.lose(Unit.ENTRY, error)

    assert caught.value is error
    assert tally.metrics == ReadMetrics()


def test_loss_is_counted_when_salvaging() -> None:
    """In the metrics that were given, as often as it is said."""
    metrics = ReadMetrics()

    Tally(metrics, salvage=True).lose(Unit.ENTRY, ChecksumError("broken", entry_id=3), count=7)

    assert metrics.lost == {(Unit.ENTRY, "ChecksumError"): 7}
    assert metrics.losses == ["broken (entry 3)"]


@pytest.mark.parametrize("salvage", [False, True])
def test_what_is_not_counted_is_ruled_by_the_same(salvage: bool) -> None:
    """Entries that someone else counts are raised, or passed over, by the same rule."""
    tally = Tally(ReadMetrics(rows=3), salvage=salvage)

    uncounted = tally.uncounted()

    assert uncounted.salvage is salvage
    assert uncounted.metrics == ReadMetrics()
    assert uncounted.metrics is not tally.metrics


def test_drained_metrics_begin_anew() -> None:
    """Counts are returned once, and neither part changes with the other."""
    metrics = _numbered(1)
    metrics.lose(Unit.ENTRY, ChecksumError("first"))
    before = pickle.loads(pickle.dumps(metrics))

    counts = metrics.drain()

    assert (counts, metrics) == (before, ReadMetrics())
    metrics.lose(Unit.ENTRY, ChecksumError("second"))
    metrics.doubts.append("a doubt")
    assert counts == before
