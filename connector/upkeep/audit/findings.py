"""The findings of an audit, and the reasons for keeping their objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.errors import MissingObjectError
from connector.catalog.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from arrow_io.storage.object_store import ObjectInfo
    from connector.inputs.topic_names import AnyTopic


class FindingKind(StrEnum):
    """The kind of a finding."""

    MISSING = "missing"
    """Objects of a ledger are missing that the metadata lists as offloaded."""
    SIZE_MISMATCH = "size mismatch"
    """Sizes or entry counts disagree: an object is truncated, or the metadata is another ledger's.
    """
    FORMAT_MISMATCH = "format mismatch"
    """An index object cannot be read, or has another format."""
    DAMAGE = "damage"
    """Verification of a ledger found damaged bytes."""
    GAP = "gap"
    """A ledger is only in BookKeeper, and later ledgers are offloaded."""
    METADATA = "metadata"
    """The metadata of a topic is malformed, so its expected ledgers are unknown."""
    UNLISTED = "unlisted"
    """A ledger that the metadata does not list as offloaded, or of which it names another, missing
    copy."""
    AMBIGUOUS = "ambiguous"
    """Several different ledgers have one id, and it is unknown which one is the topic's."""
    OTHER_NAME = "other name"
    """The metadata of one topic names a ledger whose index object names another topic."""
    EXTRA_BYTES = "extra bytes"
    """A data object is longer than its index object says. No reader uses the rest."""
    ORPHAN = "orphan"
    """Objects of a ledger that its topic no longer has, or of a topic that the metadata lacks."""
    DOUBLE = "double"
    """An additional copy of a ledger, besides the one that counts."""
    DATA_WITHOUT_INDEX = "data without index"
    """An offload that never completed."""
    UNFINISHED = "unfinished"
    """A MapFile whose data file ends before the ledger does: its offload is under way, or failed.
    """
    INDEX_WITHOUT_DATA = "index without data"
    """An index object without its data object."""
    UNFINISHED_UPLOAD = "unfinished upload"
    """A multipart upload that was neither completed nor aborted."""
    BOOKKEEPER_COPY = "bookkeeper copy"
    """BookKeeper still has a ledger whose deletion lag has passed."""
    STREAMING = "streaming"
    """Objects of streaming offload (PIP-76) whose topic is unknown, or a lone data object."""
    FOREIGN = "foreign"
    """An object whose name is not one that Pulsar's offloaders use."""


NO_TOPIC: Final = "nothing names its topic"
REPAIRABLE: Final = "repair can rebuild the index object if the data object is complete"
"""Advice for a ledger without a sound index object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of an audit."""

    kind: FindingKind
    text: str
    """Description of the finding."""
    objects: tuple[str, ...] = ()
    """Names of the objects concerned, index object first."""
    topic: AnyTopic | None = None
    ledger_id: int | None = None
    stored_bytes: int = 0
    """Total size of these objects."""
    modified: datetime | None = None
    """When the newest of these objects was written, if the store reports it."""
    upload_id: str | None = None
    """The store's id of an unfinished upload; None for other findings."""
    is_loss: bool = False
    """Whether messages cannot be read because of it. Other findings cost money or need a look."""
    deletable: bool = False
    """Whether the metadata, which is newer than the objects, shows that they are not needed."""
    doubt: str | None = None
    """Why the objects may be needed. None if they are deletable, or this was not determined."""


FINDING_SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "topic": pa.string(),
        "ledger_id": pa.int64(),
        "objects": pa.list_(pa.string()),
        "bytes": pa.int64(),
        "modified": pa.timestamp("us", "UTC"),
        "is_loss": pa.bool_(),
        "deletable": pa.bool_(),
        "text": pa.string(),
    }
)


def findings_table(findings: Iterable[Finding]) -> pa.Table:
    """Return findings as rows of `FINDING_SCHEMA`."""
    rows = [
        {
            "kind": each.kind.value,
            "topic": str(each.topic) if each.topic else None,
            "ledger_id": each.ledger_id,
            "objects": list(each.objects),
            "bytes": each.stored_bytes,
            "modified": each.modified,
            "is_loss": each.is_loss,
            "deletable": each.deletable,
            "text": each.text,
        }
        for each in findings
    ]
    return table_of(rows, FINDING_SCHEMA)


def judge(finding: Finding, find_doubt: Callable[[], str | None]) -> Finding:
    """Return a finding with the decision whether its objects can be deleted."""
    try:
        doubt = find_doubt()
    except MissingObjectError:
        doubt = "an object was deleted since the bucket was listed"
    return replace(finding, deletable=True) if doubt is None else mark_doubtful(finding, doubt)


def mark_doubtful(finding: Finding, doubt: str) -> Finding:
    """Return a finding whose objects are kept, with the reason."""
    text = f"{finding.text}; kept, because {doubt}"
    return replace(finding, deletable=False, doubt=doubt, text=text)


def finding_from_objects(
    kind: FindingKind,
    text: str,
    infos: Sequence[ObjectInfo],
    topic: AnyTopic | None,
) -> Finding:
    """Return a finding about some objects, index object first."""
    times = [info.modified for info in infos if info.modified is not None]
    return Finding(
        kind=kind,
        text=text,
        objects=tuple(info.name for info in infos),
        topic=topic,
        stored_bytes=sum(info.size_bytes for info in infos),
        modified=max(times, default=None),
    )
