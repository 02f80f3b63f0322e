"""`connector.upkeep.audit.cleaning`: what is deleted is what the audit named, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import OptionError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.store_uploads import temporary_path
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector.upkeep.audit.audit import Audit
from connector.upkeep.audit.cleaning import DEFAULT_SAFETY_AGE, Deletion, clean, plan_cleaning
from connector.upkeep.audit.findings import Finding, FindingKind
from tests.support.bucket_faults import (
    TARGETS,
    copied,
    data_removed,
    failed_before_its_index,
    foreign_file,
    index_alone,
    trimmed,
    upload_left,
)
from tests.support.owned_bucket import LONG_AGO, OTHER_UUID, OwnedBucket

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NOW: Final = LONG_AGO + timedelta(days=30)
_SECOND, _FIRST, _THIRD, _FOURTH, _FIFTH = TARGETS[:5]
_ELSEWHERE: Final = next(target for target in TARGETS if target.topic != _FIRST.topic)
"""A ledger of another topic."""


@pytest.fixture
def bucket(tmp_path: Path) -> OwnedBucket:
    """A bucket with something of everything that may be deleted, and of what may not."""
    bucket = OwnedBucket.copied(tmp_path)
    copied(bucket, _FIRST)
    trimmed(bucket, _SECOND)
    failed_before_its_index(bucket, _THIRD)
    upload_left(bucket, _FOURTH)
    index_alone(bucket, _FIFTH)
    data_removed(bucket, _ELSEWHERE)
    foreign_file(bucket, TARGETS[6])
    return bucket


def _names(bucket: OwnedBucket) -> set[str]:
    return {path.name for path in bucket.objects.iterdir()}


def _objects(plan: Iterable[Deletion]) -> set[str]:
    return {name for each in plan for name in each.finding.objects}


def _deleted(plan: Iterable[Deletion]) -> list[Deletion]:
    return [each for each in plan if each.refusal is None]


def _run(bucket: OwnedBucket, plan: list[Deletion]) -> list[Deletion]:
    return list(clean(Location(str(bucket.objects)), plan))


def _superfluous() -> set[str]:
    return {
        *_FIRST.other_names,
        *_SECOND.names,
        _THIRD.other.data_name,
        temporary_path(_FOURTH.other.data_name, "0123456789abcdef"),
        _FIFTH.other.index_name,
    }


def test_what_nothing_needs_is_deleted(bucket: OwnedBucket) -> None:
    """Orphans, doubles, leavings of failed offloads: and no row is lost by it."""
    before, rows = _names(bucket), bucket.rows()

    done = _run(bucket, plan_cleaning(bucket.audited(), now=NOW))

    assert before - _names(bucket) == _superfluous()
    assert len(done) == 5
    assert bucket.rows() == rows
    kinds = {each.kind for each in bucket.audited().findings}
    assert kinds == {FindingKind.MISSING, FindingKind.FOREIGN}


def test_plan_deletes_nothing(bucket: OwnedBucket) -> None:
    """To say what would be deleted is not to delete it, nor to send any request."""
    before, found = _names(bucket), bucket.audited()

    plan = plan_cleaning(found, now=NOW)

    assert _names(bucket) == before
    deletable = {each for each in found.findings if each.deletable}
    assert {each.finding for each in _deleted(plan)} == deletable
    assert len(deletable) == 5
    assert {each.finding for each in plan} == {each for each in found.findings if each.objects}


def test_index_objects_go_first(bucket: OwnedBucket) -> None:
    """A reader must never find an index object without data."""
    trace = RequestTrace(keep_records=True)
    plan = plan_cleaning(bucket.audited(), now=NOW)

    list(clean(Location(str(bucket.objects), trace=trace), plan))

    assert {record.kind for record in trace.records} == {RequestKind.DELETE}
    names = [record.name for record in trace.records]
    for target_names in (_FIRST.other_names, _SECOND.names):
        index_name, data_name = target_names
        assert names.index(index_name) < names.index(data_name)


def test_cleaning_can_be_repeated(bucket: OwnedBucket) -> None:
    """What is gone already is no error, so a run that was stopped is simply run again."""
    plan = plan_cleaning(bucket.audited(), now=NOW)
    next(clean(Location(str(bucket.objects)), plan))

    assert len(_run(bucket, plan)) == 5
    left = _names(bucket)
    assert len(_run(bucket, plan)) == 5
    assert _names(bucket) == left
    assert _deleted(plan_cleaning(bucket.audited(), now=NOW)) == []


def test_what_was_deleted_before_a_failure_is_told(
    bucket: OwnedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses ends the run; a copy without its index object is no ledger any more."""
    plan = plan_cleaning(bucket.audited(), now=NOW)
    delete = Location.delete_objects

    def refusing(location: Location, names: list[str]) -> None:
        if names == [_FIRST.other.data_name]:
            message = "refused"
            raise StorageError(message)
        delete(location, names)

    monkeypatch.setattr(Location, "delete_objects", refusing)
    with pytest.raises(StorageError, match="refused"):
        _run(bucket, plan)
    monkeypatch.undo()

    assert not _names(bucket) & {_FIRST.other.index_name}
    rest = plan_cleaning(bucket.audited(), now=NOW)
    _run(bucket, rest)
    assert not _names(bucket) & _superfluous()


def test_nothing_is_deleted_without_metadata(bucket: OwnedBucket) -> None:
    """Nothing else tells what is needed."""
    with pytest.raises(OptionError, match="nothing is deleted without metadata"):
        plan_cleaning(bucket.audited(metadata=None), now=NOW)


def test_young_objects_stay(bucket: OwnedBucket) -> None:
    """What is younger than the safety age is named with the reason, and not deleted."""
    found, before = bucket.audited(), _names(bucket)

    young = plan_cleaning(found, now=LONG_AGO + DEFAULT_SAFETY_AGE - timedelta(seconds=1))
    old = plan_cleaning(found, now=LONG_AGO + DEFAULT_SAFETY_AGE)

    told = {each.refusal for each in young if each.finding.deletable}
    assert told == {"younger than 7 days, 0:00:00"}
    assert {each.refusal for each in old if each.finding.deletable} == {None}
    assert _run(bucket, young) == []
    assert _names(bucket) == before
    assert _objects(young) == _objects(old)


def test_any_safety_age_can_be_asked_for(bucket: OwnedBucket) -> None:
    """One that is longer than there have been calendars keeps everything."""
    found = bucket.audited()

    assert all(each.refusal for each in plan_cleaning(found, now=NOW, safety_age=timedelta.max))
    assert len(_deleted(plan_cleaning(found, now=NOW, safety_age=timedelta(0)))) == 5


def test_objects_of_unknown_age_stay() -> None:
    """A store that tells no times tells nothing of what is under way."""
    name = f"{OTHER_UUID}-ledger-5"
    finding = Finding(
        kind=FindingKind.DOUBLE, text="", objects=(name,), modified=NOW, deletable=True
    )
    for changed, refusal in (
        (finding, "younger than 7 days, 0:00:00"),
        (replace(finding, modified=None), "the store does not say how old it is"),
    ):
        audit = Audit((changed,), has_metadata=True, listed_at=datetime.now(UTC))
        assert plan_cleaning(audit, now=NOW) == [Deletion(changed, refusal)]


def test_each_thing_that_is_kept_is_told_with_the_reason() -> None:
    """What was asked of the metadata has its doubt, all else what it is; no objects, no line."""
    lag = Finding(kind=FindingKind.BOOKKEEPER_COPY, text="", deletable=True, modified=LONG_AGO)
    foreign = Finding(kind=FindingKind.FOREIGN, text="foreign", objects=("a",), modified=LONG_AGO)
    doubtful = replace(foreign, kind=FindingKind.ORPHAN, doubt="doubt", text="orphan; doubt")
    audit = Audit((lag, foreign, doubtful), has_metadata=True, listed_at=datetime.now(UTC))

    assert plan_cleaning(audit, now=NOW) == [
        Deletion(foreign, "foreign"),
        Deletion(doubtful, "doubt"),
    ]
