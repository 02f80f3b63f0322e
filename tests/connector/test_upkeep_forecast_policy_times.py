"""What settings would do at times that no calendar has: Long.MAX_VALUE, or what is hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.upkeep.forecast.policy import Action, apply_policy
from tests.support.command_line import cells, lines_of, run
from tests.support.golden import golden_topic
from tests.support.owned_bucket import OwnedBucket
from tests.support.policies import only

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connector.upkeep.forecast.policy_settings import OffloadPolicy

T: Final = 1_700_000_000_000
LAST_MS: Final = 253_402_300_799_999  # the last moment of the year 9999
MAX_LONG: Final = 2**63 - 1


def closed(ledger_id: int, closed_ms: int | None = T) -> LedgerInfo:
    """A ledger that is in BookKeeper only."""
    return LedgerInfo(ledger_id=ledger_id, entries=10, size_bytes=1000, timestamp_ms=closed_ms)


def offloaded(ledger_id: int, offloaded_ms: int | None = T) -> LedgerInfo:
    """A ledger that is in the bucket, and in BookKeeper still."""
    offload = OffloadContext(
        uuid=None, complete=True, timestamp_ms=offloaded_ms, bookkeeper_deleted=False
    )
    return replace(closed(ledger_id), offload=offload)


def topic(*ledgers: LedgerInfo) -> TopicMetadata:
    """A topic of these ledgers, and of one that is written to."""
    return TopicMetadata(
        topic=TopicName.parse("orders"), ledgers=(*ledgers, LedgerInfo(ledger_id=99))
    )


@pytest.mark.parametrize(
    ("policy", "ledger"),
    [
        (only(deletion_lag_ms=MAX_LONG), offloaded(1)),
        (only(deletion_lag_ms=0), offloaded(1, MAX_LONG)),
        (only(threshold_s=MAX_LONG), closed(1)),
        (only(threshold_s=0), closed(1, MAX_LONG)),
        (only(retention_minutes=MAX_LONG), closed(1)),
        (only(retention_minutes=0), closed(1, MAX_LONG)),
    ],
)
def test_long_max_is_never(policy: OffloadPolicy, ledger: LedgerInfo) -> None:
    """What would be later than any calendar's time is kept, and the reason says so."""
    fate, _ = apply_policy(topic(ledger), policy, at_ms=T)

    assert (fate.action, fate.when_ms, fate.is_due) == (Action.KEEP, None, False)
    assert "not before the year 10000" in fate.reason


def test_the_last_time_of_a_calendar_is_one() -> None:
    """A millisecond later there is none."""
    last, _ = apply_policy(topic(offloaded(1)), only(deletion_lag_ms=LAST_MS - T - 1), at_ms=T)
    never, _ = apply_policy(topic(offloaded(1)), only(deletion_lag_ms=LAST_MS - T), at_ms=T)

    assert (last.action, last.when_ms) == (Action.DELETE_COPY, LAST_MS)
    assert (never.action, never.when_ms) == (Action.KEEP, None)


def test_what_is_never_trimmed_holds_back_what_is_behind_it() -> None:
    """A ledger with a hostile time of closing is kept, and so is each younger one."""
    policy = only(retention_minutes=0)

    fates = apply_policy(topic(closed(1), closed(2, MAX_LONG), closed(3)), policy, at_ms=T + 1)

    assert [each.action for each in fates] == [Action.TRIM, *[Action.KEEP] * 3]
    assert fates[2].reason.startswith("retention keeps an older ledger")


_ANY_TIME: Final = st.none() | st.integers(0, MAX_LONG) | st.integers(LAST_MS - 9, LAST_MS + 9)
_ANY_LIMIT: Final = st.integers(-1, MAX_LONG) | st.integers(-1, 9)


@settings(max_examples=200, deadline=None)
@given(
    times=st.lists(st.tuples(st.sampled_from((closed, offloaded)), _ANY_TIME), max_size=4),
    policy=st.builds(
        only,
        threshold_s=_ANY_LIMIT,
        deletion_lag_ms=_ANY_LIMIT,
        retention_minutes=_ANY_LIMIT,
    ),
)
def test_every_time_told_is_one_of_a_calendar(
    times: list[tuple[Callable[[int, int | None], LedgerInfo], int | None]], policy: OffloadPolicy
) -> None:
    """Whatever times the metadata and the settings have, what happens does so at a real time."""
    ledgers = [make(number, time_ms) for number, (make, time_ms) in enumerate(times)]

    for fate in apply_policy(topic(*ledgers), policy, at_ms=T):
        assert (fate.when_ms is None) == (fate.action is Action.KEEP)
        assert fate.when_ms is None or time_of(fate.when_ms) is not None


def test_command_tells_never(tmp_path: Path) -> None:
    """As a table and as JSON, a lag of Long.MAX_VALUE and a hostile time of closing are no time."""
    bucket = OwnedBucket.copied(tmp_path)
    first = golden_topic("small-chunked").ledgers[0].ledger_id
    bucket.change("small-chunked", {first: lambda info: replace(info, timestamp_ms=MAX_LONG)})
    arguments = ("policy", str(bucket.objects), "small-chunked", "--metadata", str(bucket.metadata))
    size = ("--set", "retentionSizeInMB=-1")
    no_lag = ("--set", "managedLedgerOffloadDeletionLagMs=-1")
    never = (
        "--set", f"managedLedgerOffloadDeletionLagMs={MAX_LONG}", *size,
        "--set", "retentionTimeInMinutes=-1",
    )  # fmt: skip

    by_lag = lines_of(*arguments, *never)
    by_closing = lines_of(*arguments, "--set", "retentionTimeInMinutes=5", *size, *no_lag)
    table = run(*arguments, *never).stdout

    for rows in (by_lag, by_closing):
        assert {(row["action"], row["when"]) for row in rows} == {("keep", None)}
        assert "not before the year 10000" in rows[0]["reason"]
    assert {row[4] for row in cells(table)[1:]} == {"NULL"}
