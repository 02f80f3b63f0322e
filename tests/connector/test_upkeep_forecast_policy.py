"""What settings would do to a topic, against a broker's own loops in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.opening import open_catalog
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.upkeep.forecast.policy import Action, LedgerFate, apply_policy, bucket_metadata
from connector.upkeep.forecast.policy_settings import OffloadPolicy
from tests.support.golden import golden_topic
from tests.support.policies import only

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC: Final = TopicName.parse("orders")
MB: Final = 1 << 20
MINUTE_MS: Final = 60_000
T: Final = 1_700_000_000_000
OPEN: Final = LedgerInfo(ledger_id=99)


def done(
    timestamp_ms: int | None, *, complete: bool | None = True, deleted: bool | None = False
) -> OffloadContext:
    """An offload."""
    return OffloadContext(
        uuid=None, complete=complete, timestamp_ms=timestamp_ms, bookkeeper_deleted=deleted
    )


def ledger(
    ledger_id: int,
    *,
    closed_ms: int | None = T,
    size_bytes: int | None = MB,
    offload: OffloadContext | None = None,
) -> LedgerInfo:
    """A closed ledger of 10 entries, or of none."""
    return LedgerInfo(
        ledger_id=ledger_id,
        entries=0 if size_bytes == 0 else 10,
        size_bytes=size_bytes,
        timestamp_ms=closed_ms,
        offload=offload,
    )


def metadata(*ledgers: LedgerInfo, terminated: tuple[int, int] | None = None) -> TopicMetadata:
    """A topic of these ledgers."""
    return TopicMetadata(topic=TOPIC, ledgers=ledgers, terminated_position=terminated)


def actions(fates: Sequence[LedgerFate]) -> list[tuple[int, Action]]:
    """What is due."""
    return [(each.ledger_id, each.action) for each in fates if each.is_due]


# Offload


def test_size_threshold_tells_how_much_has_to_follow() -> None:
    """A ledger below the threshold says how far it is from it."""
    topic = metadata(ledger(1), ledger(2), OPEN)

    first, second, _ = apply_policy(topic, only(threshold_bytes=5 * MB), at_ms=T)

    assert f"more than {3 * MB} bytes follow" in first.reason
    assert f"more than {4 * MB} bytes follow" in second.reason


def test_time_threshold_is_reached_to_the_millisecond() -> None:
    """A ledger is offloaded from the moment on at which it was closed as long ago."""
    topic = metadata(ledger(1), ledger(2, closed_ms=None, offload=done(T, complete=False)), OPEN)
    policy = only(threshold_s=60)

    before, unknown, _ = apply_policy(topic, policy, at_ms=T + 59_999)
    after, _, _ = apply_policy(topic, policy, at_ms=T + 60_000)

    assert (before.action, before.when_ms, before.is_due) == (Action.OFFLOAD, T + 60_000, False)
    assert (after.action, after.when_ms, after.is_due) == (Action.OFFLOAD, T + 60_000, True)
    assert (unknown.action, unknown.when_ms) == (Action.KEEP, None)
    assert "its closing time is unknown" in unknown.reason


def test_an_offload_that_failed_is_tried_again() -> None:
    """Only a complete offload counts; an empty ledger is never offloaded."""
    topic = metadata(
        ledger(1, offload=done(T, complete=False)), ledger(2, size_bytes=0), ledger(3), OPEN
    )

    fates = apply_policy(topic, only(threshold_bytes=0), at_ms=T)

    assert actions(fates) == [(1, Action.OFFLOAD), (3, Action.OFFLOAD)]
    assert "empty" in fates[1].reason


def test_an_offload_that_may_be_complete_is_left_alone() -> None:
    """Where nothing tells whether it is, neither another offload nor a deletion is foretold."""
    topic = metadata(ledger(1, offload=done(T, complete=None)), OPEN)

    fate, _ = apply_policy(topic, only(threshold_bytes=0, deletion_lag_ms=0), at_ms=T + 1)

    assert (fate.action, fate.when_ms) == (Action.KEEP, None)
    assert "unknown whether its offload is complete" in fate.reason


# BookKeeper's copy


@pytest.mark.parametrize(
    ("deleted", "action", "said"),
    [
        (False, Action.DELETE_COPY, "offload"),
        (None, Action.DELETE_COPY, "if BookKeeper still has it"),
        (True, Action.KEEP, "only in the bucket"),
    ],
)
def test_copy_goes_when_the_lag_has_passed(deleted: bool | None, action: Action, said: str) -> None:
    """BookKeeper's copy is deleted a millisecond after the lag, if it is not gone already."""
    topic = metadata(ledger(1, offload=done(T, deleted=deleted)), OPEN)
    policy = only(deletion_lag_ms=1000)

    before, _ = apply_policy(topic, policy, at_ms=T + 1000)
    after, _ = apply_policy(topic, policy, at_ms=T + 1001)

    assert (before.action, before.is_due) == (action, False)
    assert (after.action, after.is_due) == (action, action is Action.DELETE_COPY)
    assert said in after.reason


def test_copy_stays_without_a_lag_or_a_time() -> None:
    """A negative lag keeps it for ever (PIP-350), and an unknown time leaves it unknown."""
    topic = metadata(ledger(1, offload=done(None)), OPEN)

    never, _ = apply_policy(topic, only(), at_ms=T)
    unknown, _ = apply_policy(topic, only(deletion_lag_ms=0), at_ms=T)

    assert (never.action, unknown.action) == (Action.KEEP, Action.KEEP)
    assert "never deleted" in never.reason
    assert "its offload time is unknown" in unknown.reason


# Retention


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ((0, 5), "it has 4 ledgers, 1 … 99"),
        ((5, -1), "it has 4 ledgers, 1 … 99"),
        ((2, 10), "the entry must be -1 … 9"),
        ((2, -2), "the entry must be -1 … 9"),
        ((99, -2), "the entry must be -1 or more"),
    ],
)
def test_a_position_that_the_topic_does_not_have_is_refused(
    position: tuple[int, int], said: str
) -> None:
    """A slip in a ledger id would else say that all, or nothing, is to be trimmed."""
    topic = metadata(ledger(1), ledger(2), ledger(3), OPEN)

    with pytest.raises(OptionError, match=said):
        apply_policy(topic, only(retention_minutes=0), at_ms=T, consumed_to=position)
    with pytest.raises(OptionError, match="it has no ledgers"):
        apply_policy(metadata(), only(), at_ms=T, consumed_to=position)


def test_what_is_given_goes_before_the_cursors() -> None:
    """Who asks what happens once all is read gets the answer."""
    topic = replace(metadata(ledger(1), ledger(2), OPEN), cursors={"a": (1, 9), "b": (1, 3)})
    policy = only(retention_minutes=0)

    by_cursors = apply_policy(topic, policy, at_ms=T + 1)
    by_hand = apply_policy(topic, policy, at_ms=T + 1, consumed_to=(2, 9))

    assert actions(by_cursors) == []
    assert "a subscription has not read all of it" in by_cursors[0].reason
    assert actions(by_hand) == [(1, Action.TRIM), (2, Action.TRIM)]


def test_what_is_left_out_is_as_brokers_have_it() -> None:
    """A retention time alone keeps nothing, since the size is 0; BookKeeper's copy goes in 4 h."""
    topic = metadata(ledger(1, offload=done(T)), OPEN)

    by_default, _ = apply_policy(topic, OffloadPolicy(), at_ms=T)
    by_time, _ = apply_policy(topic, OffloadPolicy(retention_minutes=9**6), at_ms=T)
    by_both, _ = apply_policy(
        topic, OffloadPolicy(retention_minutes=9**6, retention_mb=-1), at_ms=T
    )

    for fate in (by_default, by_time):
        assert (fate.action, fate.is_due) == (Action.TRIM, True)
        assert "a retention size of 0 keeps nothing" in fate.reason
    assert (by_both.action, by_both.when_ms) == (Action.DELETE_COPY, T + 4 * 60 * MINUTE_MS + 1)


def test_the_next_thing_is_what_comes_first() -> None:
    """Of what lies ahead, the earliest is told; what is due goes before what is to come."""
    topic = metadata(ledger(1, offload=done(T + 10)), ledger(2), OPEN)
    policy = only(threshold_bytes=0, deletion_lag_ms=1000, retention_minutes=1)

    first, second, last = apply_policy(topic, policy, at_ms=T + 10)

    assert (first.action, first.when_ms) == (Action.DELETE_COPY, T + 1011)
    assert (second.action, second.is_due) == (Action.OFFLOAD, True)
    assert (last.action, last.reason) == (Action.KEEP, "it is open for writes")


def test_the_last_ledger_of_a_terminated_topic_stays() -> None:
    """It is the one that was written to, so it is never trimmed; a loaded topic's closed one is."""
    policy = only(retention_minutes=0)
    ledgers = (ledger(1), ledger(2))

    ended = apply_policy(metadata(*ledgers, terminated=(2, 9)), policy, at_ms=T + 1)
    unloaded = apply_policy(metadata(*ledgers), policy, at_ms=T + 1)

    assert actions(ended) == [(1, Action.TRIM)]
    assert actions(unloaded) == [(1, Action.TRIM), (2, Action.TRIM)]


def test_sizes_are_needed_only_where_bytes_count() -> None:
    """A ledger of unknown size is an error where a setting counts bytes, and no other time."""
    topic = metadata(ledger(1, size_bytes=None), OPEN)

    assert actions(apply_policy(topic, only(threshold_s=0), at_ms=T)) == [(1, Action.OFFLOAD)]
    for policy in (only(threshold_bytes=0), only(retention_mb=0)):
        with pytest.raises(OptionError, match="ledger 1"):
            apply_policy(topic, policy, at_ms=T)


def test_a_topic_without_ledgers_has_no_rows() -> None:
    """A topic that was never written to is left alone."""
    assert apply_policy(metadata(), only(retention_mb=0), at_ms=T) == []


def test_bucket_alone_tells_of_offloaded_ledgers() -> None:
    """Their ids, entries and sizes are those of the index objects; times of closing are unknown."""
    golden = golden_topic("multi-ledger")
    catalog = open_catalog(str(golden.objects_folder))
    topic = bucket_metadata(catalog.ledgers(TopicName.parse("multi-ledger")))

    assert [(e.ledger_id, e.entries, e.size_bytes) for e in topic.ledgers] == [
        (e.ledger_id, e.entry_count, e.length_bytes) for e in golden.ledgers
    ]
    assert all(each.is_offloaded and each.timestamp_ms is None for each in topic.ledgers)
    later = max(each.offload.timestamp_ms or 0 for each in topic.ledgers if each.offload)
    fates = apply_policy(topic, only(deletion_lag_ms=0), at_ms=later + 1)
    assert {each.action for each in fates if each.is_due} == {Action.DELETE_COPY}


# A broker's loops


@dataclass
class Broker:
    """The loops of `maybeOffload` and `internalTrimLedgers`, which act at one moment."""

    topic: TopicMetadata
    policy: OffloadPolicy
    now: int
    consumed_to: tuple[int, int] | None

    @property
    def current_id(self) -> int:
        """Of the ledger that is written to: the last one, which is open."""
        return self.topic.ledgers[-1].ledger_id

    def offloaded(self) -> set[int]:
        """Ledgers that would be offloaded now."""
        chosen, summed = set(), 0
        for each in reversed(self.topic.ledgers):
            if each.ledger_id == self.current_id:
                continue
            size, closed = each.size_bytes or 0, each.timestamp_ms or 0
            summed += size
            if each.offload is not None and each.offload.complete:
                continue
            by_size = 0 <= self.policy.threshold_bytes < summed
            by_time = 0 <= self.policy.threshold_s * 1000 <= self.now - closed
            if (by_size or by_time) and size > 0:
                chosen.add(each.ledger_id)
        return chosen

    def trimmed(self) -> set[int]:
        """Ledgers that would be trimmed now."""
        slowest = self.current_id + 1
        if self.consumed_to is not None:
            slowest, entry = self.consumed_to
            at_end = [
                e for e in self.topic.ledgers if (e.ledger_id, e.entries) == (slowest, entry + 1)
            ]
            slowest += bool(at_end and slowest != self.current_id)
        total = sum(each.size_bytes or 0 for each in self.topic.ledgers)
        chosen, to_delete = set(), 0
        for each in self.topic.ledgers:
            if each.ledger_id >= slowest or each.ledger_id == self.current_id:
                break
            to_delete += each.size_bytes or 0
            quota = self.policy.retention_mb
            over = quota >= 0 and total - to_delete >= quota * MB
            limit = self.policy.retention_minutes * MINUTE_MS
            if not over and not 0 <= limit < self.now - (each.timestamp_ms or 0):
                break
            chosen.add(each.ledger_id)
        return chosen

    def deleted(self) -> set[int]:
        """Ledgers whose copy in BookKeeper would be deleted now."""
        return {
            each.ledger_id
            for each in self.topic.ledgers
            if each.offload is not None
            and each.offload.complete
            and not each.offload.bookkeeper_deleted
            and 0 <= self.policy.deletion_lag_ms < self.now - (each.offload.timestamp_ms or 0)
        }


_SMALL: Final = st.integers(-1, 4)
_POLICIES: Final = st.builds(
    OffloadPolicy,
    threshold_bytes=_SMALL.map(lambda n: max(-1, n * MB)),
    threshold_s=_SMALL.map(lambda n: max(-1, n * 60)),
    deletion_lag_ms=_SMALL.map(lambda n: max(-1, n * MINUTE_MS)),
    retention_minutes=_SMALL,
    retention_mb=_SMALL,
)


@st.composite
def _topics(draw: st.DrawFn) -> TopicMetadata:
    ledgers = []
    for number in range(draw(st.integers(0, 5))):
        closed_ms = T + MINUTE_MS * draw(st.integers(0, 4))
        info = ledger(number, closed_ms=closed_ms, size_bytes=MB * draw(st.integers(0, 3)))
        if info.entries and draw(st.booleans()):
            offloaded_ms = closed_ms + MINUTE_MS * draw(st.integers(0, 2))
            complete, deleted = draw(st.booleans()), draw(st.booleans())
            offload = done(offloaded_ms, complete=complete, deleted=deleted and complete)
            info = replace(info, offload=offload)
        ledgers.append(info)
    return metadata(*ledgers, OPEN)


@settings(max_examples=300, deadline=None)
@given(
    topic=_topics(),
    policy=_POLICIES,
    minutes=st.integers(0, 8),
    ms=st.integers(-1, 1),
    positions=st.lists(st.tuples(st.integers(0, 5), st.sampled_from((-1, 5, 9))), max_size=2),
)
def test_what_is_due_is_what_a_broker_does(
    topic: TopicMetadata,
    policy: OffloadPolicy,
    minutes: int,
    ms: int,
    positions: list[tuple[int, int]],
) -> None:
    """At any moment, the due rows are the ledgers that a broker's loops would pick."""
    now = T + minutes * MINUTE_MS + ms
    topic = replace(topic, cursors={str(each): each for each in positions})
    broker = Broker(topic, policy, now, min(positions, default=None))

    fates = apply_policy(topic, policy, at_ms=now)

    due = {
        action: {e.ledger_id for e in fates if e.is_due and e.action is action} for action in Action
    }
    assert due[Action.TRIM] == broker.trimmed()
    assert due[Action.OFFLOAD] == broker.offloaded() - broker.trimmed()
    assert due[Action.DELETE_COPY] == broker.deleted() - broker.trimmed()
    assert due[Action.KEEP] == set()


@settings(max_examples=200, deadline=None)
@given(topic=_topics(), policy=_POLICIES, minutes=st.integers(0, 6))
def test_what_is_to_come_is_due_then_and_not_before(
    topic: TopicMetadata, policy: OffloadPolicy, minutes: int
) -> None:
    """A row that is not due is due at its time, and a millisecond earlier it is not."""
    now = T + minutes * MINUTE_MS

    for number, fate in enumerate(apply_policy(topic, policy, at_ms=now)):
        assert (fate.when_ms is None) == (fate.action is Action.KEEP)
        if fate.when_ms is not None and not fate.is_due:
            then = apply_policy(topic, policy, at_ms=fate.when_ms)[number]
            before = apply_policy(topic, policy, at_ms=fate.when_ms - 1)[number]
            assert (then.action, then.is_due) == (fate.action, True)
            assert not before.is_due


# Times that no calendar has: Long.MAX_VALUE, or what is hostile

LAST_MS: Final = 253_402_300_799_999  # the last moment of the year 9999
MAX_LONG: Final = 2**63 - 1


def closed(ledger_id: int, closed_ms: int | None = T) -> LedgerInfo:
    """A ledger that is in BookKeeper only."""
    return ledger(ledger_id, closed_ms=closed_ms)


def offloaded(ledger_id: int, offloaded_ms: int | None = T) -> LedgerInfo:
    """A ledger that is in the bucket, and in BookKeeper still."""
    return ledger(ledger_id, offload=done(offloaded_ms))


@pytest.mark.parametrize(
    ("policy", "info"),
    [
        (only(deletion_lag_ms=MAX_LONG), offloaded(1)),
        (only(deletion_lag_ms=0), offloaded(1, MAX_LONG)),
        (only(threshold_s=MAX_LONG), closed(1)),
        (only(threshold_s=0), closed(1, MAX_LONG)),
        (only(retention_minutes=MAX_LONG), closed(1)),
        (only(retention_minutes=0), closed(1, MAX_LONG)),
    ],
)
def test_long_max_is_never(policy: OffloadPolicy, info: LedgerInfo) -> None:
    """What would be later than any calendar's time is kept, and the reason says so."""
    fate, _ = apply_policy(metadata(info, OPEN), policy, at_ms=T)

    assert (fate.action, fate.when_ms, fate.is_due) == (Action.KEEP, None, False)
    assert "not before the year 10000" in fate.reason


def test_the_last_time_of_a_calendar_is_one() -> None:
    """A millisecond later there is none."""
    last, _ = apply_policy(
        metadata(offloaded(1), OPEN), only(deletion_lag_ms=LAST_MS - T - 1), at_ms=T
    )
    never, _ = apply_policy(
        metadata(offloaded(1), OPEN), only(deletion_lag_ms=LAST_MS - T), at_ms=T
    )

    assert (last.action, last.when_ms) == (Action.DELETE_COPY, LAST_MS)
    assert (never.action, never.when_ms) == (Action.KEEP, None)


def test_what_is_never_trimmed_holds_back_what_is_behind_it() -> None:
    """A ledger with a hostile time of closing is kept, and so is each younger one."""
    policy = only(retention_minutes=0)

    fates = apply_policy(
        metadata(closed(1), closed(2, MAX_LONG), closed(3), OPEN), policy, at_ms=T + 1
    )

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

    for fate in apply_policy(metadata(*ledgers, OPEN), policy, at_ms=T):
        assert (fate.when_ms is None) == (fate.action is Action.KEEP)
        assert fate.when_ms is None or time_of(fate.when_ms) is not None
