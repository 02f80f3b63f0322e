"""Deletes what an audit found to be superfluous, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from arrow_io.storage.location import Location
    from connector.upkeep.audit.audit import Audit
    from connector.upkeep.audit.findings import Finding

DEFAULT_SAFETY_AGE = timedelta(days=7)
"""An offload takes hours at most, and what is younger may belong to one."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is to be done about one finding.

    Attributes:
        finding: What was found.
        refusal: Why its objects stay; None if they are deleted.
    """

    finding: Finding
    refusal: str | None = None


def plan_cleaning(
    audit: Audit, *, now: datetime, safety_age: timedelta = DEFAULT_SAFETY_AGE
) -> list[Deletion]:
    """Say what may be deleted; sends no request.

    Args:
        audit: What was found, with the metadata.
        now: The time, with time zone.
        safety_age: How old the newest of a finding's objects must be at least.

    Returns:
        One for each finding that has objects. Objects that nothing needs, and that are old enough,
        are deleted; for all others it says why they stay.

    Raises:
        OptionError: There was no metadata: nothing says what is needed.
    """
    if not audit.has_metadata:
        message = "nothing is deleted without metadata, which says what is needed: give metadata"
        raise OptionError(message)
    return [
        Deletion(each, _refusal(each, now, safety_age)) for each in audit.findings if each.objects
    ]


def _refusal(finding: Finding, now: datetime, safety_age: timedelta) -> str | None:
    if not finding.deletable:
        return finding.doubt or finding.text
    if finding.modified is None:
        return "the store does not say how old it is"
    if now - finding.modified < safety_age:
        return f"younger than {safety_age}"
    return None


def clean(location: Location, plan: list[Deletion]) -> Iterator[Deletion]:
    """Carry out a plan.

    Index objects go first: an index object without data is what a reader must never find.

    Args:
        location: The bucket.
        plan: What `plan_cleaning` gave.

    Yields:
        Each deletion when it is done.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    for each in plan:
        if each.refusal is not None:
            continue
        finding = each.finding
        if finding.upload_id is not None:
            location.abort_upload(finding.objects[0], finding.upload_id)
        else:
            for name in finding.objects:
                location.delete_objects([name])
        yield each
