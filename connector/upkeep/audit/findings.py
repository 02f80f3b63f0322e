"""What an audit finds, and why objects of it are kept."""

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
    """What is wrong."""

    MISSING = "missing"
    """The metadata says that a ledger is offloaded, and objects of it are not there."""
    SIZE_MISMATCH = "size mismatch"
    """Sizes or numbers of entries contradict each other: an object is cut, or the metadata is of
    another ledger."""
    FORMAT_MISMATCH = "format mismatch"
    """An index object that cannot be read, or that is of another format."""
    DAMAGE = "damage"
    """Reading a ledger whole found bytes that cannot be right."""
    GAP = "gap"
    """A ledger is only in BookKeeper, and ledgers behind it are offloaded."""
    METADATA = "metadata"
    """The metadata of a topic is malformed, so nothing says what should be there."""
    UNLISTED = "unlisted"
    """A ledger in the bucket that the metadata of its topic does not call offloaded, or of which it
    names another copy that is not there: the metadata may be older than this one."""
    AMBIGUOUS = "ambiguous"
    """Different ledgers under one id, and nothing says which one is the topic's."""
    OTHER_NAME = "other name"
    """A ledger that the metadata of one topic names, and whose index object names another topic."""
    EXTRA_BYTES = "extra bytes"
    """A data object that is longer than its index object says: nothing reads the rest."""
    ORPHAN = "orphan"
    """Objects of a ledger that its topic does not have any more, or of a topic that the metadata
    does not know."""
    DOUBLE = "double"
    """A further copy of a ledger, beside the one that counts."""
    DATA_WITHOUT_INDEX = "data without index"
    """An offload that never completed."""
    INDEX_WITHOUT_DATA = "index without data"
    """An index object alone."""
    UNFINISHED_UPLOAD = "unfinished upload"
    """A multipart upload that was begun, and neither completed nor aborted."""
    BOOKKEEPER_COPY = "bookkeeper copy"
    """BookKeeper still has a ledger whose deletion lag has passed."""
    STREAMING = "streaming"
    """Objects of streaming offload (PIP-76) of which nothing names the topic, or data alone."""
    FOREIGN = "foreign"
    """An object with a name that no offloader of Pulsar gives."""


NO_TOPIC: Final = "nothing names its topic"
REPAIRABLE: Final = "repair rebuilds the index object, if the data object is whole"
"""What helps if a ledger lacks a sound index object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found."""

    kind: FindingKind
    text: str
    """What it is, in words."""
    objects: tuple[str, ...] = ()
    """Names of the objects that it is about, the index object first."""
    topic: AnyTopic | None = None
    ledger_id: int | None = None
    stored_bytes: int = 0
    """Bytes of these objects."""
    modified: datetime | None = None
    """When the newest of these objects was written, as far as the store says."""
    upload_id: str | None = None
    """The store's id of an unfinished upload; None for other findings."""
    is_loss: bool = False
    """Whether it keeps messages from being read; others only cost money, or ask for a look."""
    deletable: bool = False
    """Whether nothing needs the objects: the metadata, which is newer than they are, says so."""
    doubt: str | None = None
    """Why they may be needed, if it was asked; None if they are deletable."""


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
    """Findings as rows of `FINDING_SCHEMA`."""
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
    """A finding with what the metadata says: whether anything may need its objects."""
    try:
        doubt = find_doubt()
    except MissingObjectError:
        doubt = "something was deleted since the bucket was listed"
    return replace(finding, deletable=True) if doubt is None else mark_doubtful(finding, doubt)


def mark_doubtful(finding: Finding, doubt: str) -> Finding:
    """A finding whose objects are kept, and why."""
    text = f"{finding.text}; kept, because {doubt}"
    return replace(finding, deletable=False, doubt=doubt, text=text)


def finding_from_objects(
    kind: FindingKind,
    text: str,
    infos: Sequence[ObjectInfo],
    topic: AnyTopic | None,
) -> Finding:
    """A finding about some objects, index object first."""
    times = [info.modified for info in infos if info.modified is not None]
    return Finding(
        kind=kind,
        text=text,
        objects=tuple(info.name for info in infos),
        topic=topic,
        stored_bytes=sum(info.size_bytes for info in infos),
        modified=max(times, default=None),
    )
