"""Deletion of objects that an audit found to be unnecessary."""

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
"""An offload takes hours at most; younger objects may belong to one in progress."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The decision about one finding: why its objects are kept, or None if they are deleted."""

    finding: Finding
    refusal: str | None = None


def plan_cleaning(
    audit: Audit, *, now: datetime, safety_age: timedelta = DEFAULT_SAFETY_AGE
) -> list[Deletion]:
    """Decide which objects can be deleted; send no request.

    An object is deleted if it is not needed, and the newest object of its finding has at least the
    `safety_age`. The time `now` has a time zone.

    Returns:
        One decision for each finding that has objects.

    Raises:
        OptionError: The audit had no metadata, so it is unknown which objects are needed.
    """
    if not audit.has_metadata:
        message = (
            "nothing is deleted without metadata, which names the needed objects: pass metadata"
        )
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
    """Carry out the plan of `plan_cleaning`, and yield each deletion when it is finished.

    Index objects are deleted first: a reader must never find an index object without data. Folders
    of ledgers that become empty are deleted too.

    Raises:
        StorageError: The store refused, or kept failing.
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
            for folder in dict.fromkeys(name.rpartition("/")[0] for name in finding.objects):
                if folder:
                    location.delete_folder(folder)
        yield each
