"""The effects of offload and retention settings on a topic: the next action on each ledger.

The inputs are a topic's ledgers in the cluster's metadata (`TopicMetadata`) and an `OffloadPolicy`.
The output is the next action of a broker on each ledger, when, and why. The rules are those of
Pulsar's `ManagedLedgerImpl` in Pulsar 4.0:

* `maybeOffload`: sizes are added up from the newest closed ledger to the oldest, including
offloaded ones. Each ledger at which the sum exceeds the size threshold is offloaded, and so is each
that was closed `threshold_s` ago. Either is enough.
* `isOffloadedNeedsDelete`: once an offload has been complete for longer than the deletion lag,
BookKeeper's copy is deleted (never for a negative lag: PIP-350).
* `internalTrimLedgers`: ledgers that every subscription has read are trimmed from BookKeeper and
the bucket, oldest first. A ledger is trimmed if it was closed longer ago than the retention time,
*or* if the ledgers after it still have the retention size. Trimming ends at the first ledger that
is not trimmed, and at the open ledger. A setting of 0 keeps nothing, and a negative one everything.
So a retention time keeps nothing while the size is 0, which is its default.

The forecast assumes that nothing more is written to the topic. A broker acts when a ledger is
closed, and also trims every `retentionCheckIntervalInSeconds`; the times here are the earliest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import OptionError
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.times import milliseconds_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.upkeep.forecast.policy_settings import OffloadPolicy

_MB_BYTES = 1 << 20
_MS_PER_S = 1000
_MS_PER_MINUTE = 60_000


class Action(StrEnum):
    """What a broker does to a ledger."""

    TRIM = "trim"
    """Delete it from BookKeeper and from the bucket."""
    OFFLOAD = "offload"
    """Copy it to the bucket."""
    DELETE_COPY = "delete BookKeeper copy"
    """Delete BookKeeper's copy, and keep the one in the bucket."""
    KEEP = "keep"
    """Do nothing while the topic does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFate:
    """The next action on one ledger."""

    ledger_id: int
    action: Action
    when_ms: int | None
    """The earliest time of the action, in ms since the epoch; in the past if it is overdue.

    None if the ledger is kept, or the time is after the year 9999.
    """
    is_due: bool
    """Whether that time has come."""
    size_bytes: int | None
    """Total length of its entries. None if the metadata does not have it."""
    reason: str


@dataclass(frozen=True, slots=True)
class _Step:
    """The result of one rule for one ledger. `when_ms` is None only if the ledger is kept."""

    action: Action
    when_ms: int | None
    reason: str


def apply_policy(
    metadata: TopicMetadata,
    policy: OffloadPolicy,
    *,
    at_ms: int,
    consumed_to: tuple[int, int] | None = None,
) -> list[LedgerFate]:
    """Return what a broker with a policy would do to a topic.

    Args:
        metadata: The topic's ledgers. The open ledger counts as empty, because its size is unknown.
        policy: The settings.
        at_ms: The time of the forecast, in ms since the epoch.
        consumed_to: Mark-delete position of the slowest subscription: the ledger and entry id
            (inclusive) up to which it has acknowledged everything. None: the lowest position in the
            metadata. If the metadata has none, everything counts as consumed.

    Returns:
        The next action on each ledger, in the topic's order.

    Raises:
        OptionError: A setting depends on sizes, and the metadata lacks the size of a ledger; or the
            topic has no position `consumed_to`.
    """
    if consumed_to is None:
        consumed_to = min(metadata.cursors.values(), default=None)
    else:
        _check_position(metadata, consumed_to)
    closed = [each for each in metadata.ledgers if not _is_open(metadata, each)]
    if policy.threshold_bytes >= 0 or policy.retention_mb >= 0:
        _check_sizes(closed)
    terminated = metadata.terminated_position is not None
    trimmable = [each for each in closed if not (terminated and each is metadata.ledgers[-1])]
    trims = _trims(metadata, trimmable, policy, at_ms, consumed_to)
    steps: dict[int, list[_Step]] = {each.ledger_id: [] for each in metadata.ledgers}
    for ledgers, rule in ((trimmable, trims), (closed, _offloads(closed, policy, at_ms))):
        for ledger, step in zip(ledgers, rule, strict=True):
            steps[ledger.ledger_id].append(step)
    return [_fate(each, steps[each.ledger_id], at_ms) for each in metadata.ledgers]


def bucket_metadata(topic: TopicLedgers) -> TopicMetadata:
    """Return metadata of a topic for `apply_policy`, derived from the bucket alone.

    The offload time of a ledger is when its index object was written. Unknown are closing times,
    whether BookKeeper still has a ledger, and ledgers that are not offloaded yet.
    """
    ledgers = []
    for copy in (each.copy for each in topic.states):
        if copy is None or copy.ledger is None:
            continue
        modified_ms = None if copy.modified is None else milliseconds_of(copy.modified)
        offload = OffloadContext(uuid=copy.name.uuid, complete=True, timestamp_ms=modified_ms)
        ledgers.append(
            LedgerInfo(
                ledger_id=copy.name.ledger_id,
                entries=copy.ledger.entry_count,
                size_bytes=copy.ledger.length_bytes,
                offload=offload,
            )
        )
    return TopicMetadata(topic=topic.topic, ledgers=tuple(ledgers))


def _is_open(metadata: TopicMetadata, ledger: LedgerInfo) -> bool:
    """Return whether a ledger is open for writes: the last ledger, while it has no size.

    A broker that loads a topic sets the closing time of the new, empty ledger already.
    """
    if ledger is not metadata.ledgers[-1] or ledger.offload is not None:
        return False
    return not ledger.entries or ledger.timestamp_ms is None


def _check_position(metadata: TopicMetadata, position: tuple[int, int]) -> None:
    ledger_id, entry_id = position
    ledger = next((each for each in metadata.ledgers if each.ledger_id == ledger_id), None)
    if ledger is None:
        ids = [each.ledger_id for each in metadata.ledgers]
        some = f"it has {counted(len(ids), 'ledger')}, {ids[0]} … {ids[-1]}" if ids else None
        has = some or "it has no ledgers"
        message = f"{metadata.topic} has no position {ledger_id}:{entry_id}: {has}"
        raise OptionError(message)
    last = None if ledger.entries is None else ledger.entries - 1
    if entry_id < -1 or (last is not None and entry_id > last):
        has = "-1 or more" if last is None else f"-1 … {last}"
        message = (
            f"{metadata.topic} has no position {ledger_id}:{entry_id}: the entry must be {has};"
            " -1 is before the first"
        )
        raise OptionError(message)


def _check_sizes(ledgers: list[LedgerInfo]) -> None:
    for ledger in ledgers:
        if ledger.size_bytes is None:
            message = "the metadata lacks the size of a ledger, and a setting depends on sizes"
            raise OptionError(message, ledger_id=ledger.ledger_id)


def _fate(ledger: LedgerInfo, steps: list[_Step], at_ms: int) -> LedgerFate:
    """Return the earliest step, or the first that is due: trimming precedes the others."""
    timed = [(each.when_ms, each) for each in steps if each.when_ms is not None]
    due = [each for when_ms, each in timed if when_ms <= at_ms]
    if due:
        step = due[0]
    elif timed:
        step = min(timed, key=lambda pair: pair[0])[1]
    else:
        reasons = "; ".join(each.reason for each in steps)
        step = _Step(Action.KEEP, None, reasons or "it is open for writes")
    return LedgerFate(
        ledger_id=ledger.ledger_id,
        action=step.action,
        when_ms=step.when_ms,
        is_due=bool(due),
        size_bytes=ledger.size_bytes,
        reason=step.reason,
    )


def _trims(
    metadata: TopicMetadata,
    ledgers: list[LedgerInfo],
    policy: OffloadPolicy,
    at_ms: int,
    consumed_to: tuple[int, int] | None,
) -> Iterator[_Step]:
    """Yield what retention does to each ledger, oldest first; none before an older one."""
    left_bytes = sum(each.size_bytes or 0 for each in metadata.ledgers)
    earliest_ms = 0
    step: _Step | None = None
    for ledger in ledgers:
        left_bytes -= ledger.size_bytes or 0
        if step is not None and step.when_ms is None:
            step = _keep("retention keeps an older ledger")
        elif _is_consumed(ledger, consumed_to):
            step = _trim(ledger, left_bytes, policy, at_ms)
        else:
            step = _keep("a subscription has not read all of it")
        if step.when_ms is not None:
            earliest_ms = max(earliest_ms, step.when_ms)
            step = replace(step, when_ms=earliest_ms)
        yield step


def _is_consumed(ledger: LedgerInfo, consumed_to: tuple[int, int] | None) -> bool:
    if consumed_to is None or ledger.ledger_id < consumed_to[0]:
        return True
    return ledger.ledger_id == consumed_to[0] and ledger.entries == consumed_to[1] + 1


def _trim(ledger: LedgerInfo, left_bytes: int, policy: OffloadPolicy, at_ms: int) -> _Step:
    """Return what retention would do to a ledger if it were the oldest.

    `left_bytes` is the size of the ledgers after it.
    """
    if policy.retention_mb == 0:
        return _Step(Action.TRIM, at_ms, "a retention size of 0 keeps nothing that is consumed")
    if 0 < policy.retention_mb * _MB_BYTES <= left_bytes:
        fill = agreeing(left_bytes, "fills", "fill")
        reason = f"{counted(left_bytes, 'byte')} after it {fill} the retention size"
        return _Step(Action.TRIM, at_ms, reason)
    if policy.retention_minutes < 0:
        return _keep("retention keeps it")
    if ledger.timestamp_ms is None:
        return _keep("its closing time is unknown, so the retention time does not apply")
    # Longer ago than the retention time, so 1 ms more.
    expired_ms = ledger.timestamp_ms + policy.retention_minutes * _MS_PER_MINUTE + 1
    return _step_at(Action.TRIM, expired_ms, "the retention time after it was closed")


def _offloads(ledgers: list[LedgerInfo], policy: OffloadPolicy, at_ms: int) -> list[_Step]:
    """Return what the offload thresholds or the deletion lag do to each closed ledger."""
    newest_first = ledgers[::-1]
    sums = accumulate(each.size_bytes or 0 for each in newest_first)
    steps = [
        _offload(each, newer_bytes, policy, at_ms)
        for each, newer_bytes in zip(newest_first, sums, strict=True)
    ]
    return steps[::-1]


def _offload(ledger: LedgerInfo, newer_bytes: int, policy: OffloadPolicy, at_ms: int) -> _Step:
    if ledger.offload is not None and ledger.offload.complete is not False:
        return _deletion(ledger.offload, policy)
    if ledger.entries == 0:
        return _keep("it is empty, so it is never offloaded")
    missing_bytes = policy.threshold_bytes - newer_bytes
    if policy.threshold_bytes >= 0 > missing_bytes:
        has = counted(newer_bytes, "byte")
        reason = f"it and newer ledgers have {has}, above the offload threshold"
        return _Step(Action.OFFLOAD, at_ms, reason)
    if policy.threshold_s < 0:
        by_size = (
            f"it is offloaded once more than {counted(missing_bytes, 'byte')}"
            f" {agreeing(missing_bytes, 'follows', 'follow')}"
        )
        return _keep(by_size if policy.threshold_bytes >= 0 else "no offload threshold is set")
    if ledger.timestamp_ms is None:
        return _keep("its closing time is unknown, so the offload threshold does not apply")
    when_ms = ledger.timestamp_ms + policy.threshold_s * _MS_PER_S
    return _step_at(Action.OFFLOAD, when_ms, "the offload threshold after it was closed")


def _deletion(offload: OffloadContext, policy: OffloadPolicy) -> _Step:
    """Return what the deletion lag does to BookKeeper's copy of an offloaded ledger."""
    if offload.complete is None:
        return _keep("it is unknown whether its offload is complete")
    if offload.bookkeeper_deleted:
        return _keep("it is only in the bucket")
    if policy.deletion_lag_ms < 0:
        return _keep("BookKeeper's copy is never deleted")
    if offload.timestamp_ms is None:
        return _keep("its offload time is unknown, so the deletion lag does not apply")
    unsure = "" if offload.bookkeeper_deleted is False else ", if BookKeeper still has it"
    # Longer ago than the lag, so 1 ms more.
    when_ms = offload.timestamp_ms + policy.deletion_lag_ms + 1
    return _step_at(Action.DELETE_COPY, when_ms, f"the deletion lag after its offload{unsure}")


def _step_at(action: Action, when_ms: int, reason: str) -> _Step:
    """Return an action at a time, or none after the year 9999: Long.MAX_VALUE means never."""
    if time_of(when_ms) is None:
        return _keep(f"not before the year 10000: {reason}")
    return _Step(action, when_ms, reason)


def _keep(reason: str) -> _Step:
    return _Step(Action.KEEP, None, reason)
