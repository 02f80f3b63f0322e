"""What can be wrong with a bucket, done to one ledger of it, and what an audit must find then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.format.object_names import LedgerObjectName
from arrow_io.storage.store_uploads import temporary_path
from connector.catalog.metadata.topic_metadata import LedgerInfo
from connector.upkeep.audit.findings import FindingKind
from tests.support.golden import golden_topics
from tests.support.owned_bucket import OTHER_UUID, SINCE, SMALL, gone, not_offloaded

if TYPE_CHECKING:
    from connector.upkeep.audit.findings import Finding
    from tests.support.golden import GoldenLedger, GoldenTopic
    from tests.support.owned_bucket import OwnedBucket


@dataclass(frozen=True, slots=True)
class Found:
    """What is compared of a finding."""

    kind: FindingKind
    ledger_id: int | None
    objects: tuple[str, ...]
    is_loss: bool = False
    deletable: bool = False

    @classmethod
    def of(cls, finding: Finding) -> Found:
        """What is compared of this finding."""
        return cls(
            finding.kind, finding.ledger_id, finding.objects, finding.is_loss, finding.deletable
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A ledger of the small golden set that has others behind it in its topic."""

    topic: GoldenTopic
    ledger: GoldenLedger

    def __repr__(self) -> str:
        """The ledger's id, which is enough to tell which it is."""
        return f"ledger {self.ledger.ledger_id}"

    @property
    def names(self) -> tuple[str, str]:
        """Names of its objects, the index object first."""
        return self.ledger.index_object.name, self.ledger.data_object.name

    @property
    def other(self) -> LedgerObjectName:
        """Another offload attempt of it."""
        return LedgerObjectName(OTHER_UUID, self.ledger.ledger_id)

    @property
    def other_names(self) -> tuple[str, str]:
        """Names of the other attempt's objects."""
        return self.other.index_name, self.other.data_name

    def found(
        self, kind: FindingKind, *objects: str, is_loss: bool = False, deletable: bool = False
    ) -> Found:
        """What must be found of it."""
        return Found(kind, self.ledger.ledger_id, objects, is_loss, deletable)


TARGETS: Final = tuple(
    Target(topic, ledger)
    for topic in golden_topics()
    if topic.set_name == SMALL
    for ledger in topic.ledgers[:-1]
)

Fault = Callable[["OwnedBucket", Target], "set[Found]"]
"""Does something to a ledger, and says what must be found."""


def copied(bucket: OwnedBucket, target: Target) -> set[Found]:
    """Another copy, older than the metadata."""
    bucket.copy_ledger(target.ledger)
    return {target.found(FindingKind.DOUBLE, *target.other_names, deletable=True)}


def copied_since(bucket: OwnedBucket, target: Target) -> set[Found]:
    """Another copy, newer than the metadata, which may be the one that counts now."""
    bucket.copy_ledger(target.ledger, modified=SINCE)
    return {target.found(FindingKind.DOUBLE, *target.other_names)}


def index_removed(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The index object is gone."""
    index_name, data_name = target.names
    bucket.delete(index_name)
    return {
        target.found(FindingKind.MISSING, is_loss=True),
        target.found(FindingKind.DATA_WITHOUT_INDEX, data_name),
    }


def data_removed(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The data object is gone."""
    index_name, data_name = target.names
    bucket.delete(data_name)
    return {target.found(FindingKind.MISSING, index_name, is_loss=True)}


def both_removed(bucket: OwnedBucket, target: Target) -> set[Found]:
    """Both objects are gone."""
    bucket.delete(*target.names)
    return {target.found(FindingKind.MISSING, is_loss=True)}


def replaced_by_another_attempt(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The objects are gone, and those of another attempt are all that is left."""
    bucket.copy_ledger(target.ledger)
    bucket.delete(*target.names)
    return {
        target.found(FindingKind.MISSING, is_loss=True),
        target.found(FindingKind.UNLISTED, *target.other_names),
    }


def data_left_of_another_attempt(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The objects are gone, and a data object of another attempt is all that is left."""
    bucket.copy_ledger(target.ledger)
    bucket.delete(*target.names, target.other.index_name)
    return {
        target.found(FindingKind.MISSING, is_loss=True),
        target.found(FindingKind.DATA_WITHOUT_INDEX, target.other.data_name),
    }


def data_cut(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The data object ends too early."""
    bucket.write(target.names[1], target.ledger.data_object.read_bytes()[:-1])
    return {target.found(FindingKind.SIZE_MISMATCH, *target.names, is_loss=True)}


def index_of_another_format(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The index object is one of streaming offload."""
    index = target.ledger.index_object.read_bytes()
    bucket.write(target.names[0], b"\x3d\x1f\xb0\xbc" + index[4:])
    return {target.found(FindingKind.FORMAT_MISMATCH, *target.names, is_loss=True)}


def entries_contradicted(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The metadata has another number of entries."""
    change = {target.ledger.ledger_id: lambda info: replace(info, entries=info.entries + 1)}
    bucket.change(target.topic.name, change)
    return {target.found(FindingKind.SIZE_MISMATCH, *target.names, is_loss=True)}


def size_contradicted(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The metadata has another number of bytes."""
    change = {target.ledger.ledger_id: lambda info: replace(info, size_bytes=1)}
    bucket.change(target.topic.name, change)
    return {target.found(FindingKind.SIZE_MISMATCH, *target.names, is_loss=True)}


def lost_from_the_list(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The metadata lacks the ledger, and has an older one."""
    bucket.change(target.topic.name, {target.ledger.ledger_id: gone, 0: gone})
    known = bucket.known(target.topic.name)
    bucket.tell(replace(known, ledgers=(LedgerInfo(ledger_id=0, entries=0), *known.ledgers)))
    return {target.found(FindingKind.UNLISTED, *target.names)}


def trimmed(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The topic does not have the ledger any more, which was its first."""
    bucket.change(target.topic.name, {target.ledger.ledger_id: gone})
    return {target.found(FindingKind.ORPHAN, *target.names, deletable=True)}


def never_offloaded(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The metadata knows of no offload: the ledger is only in BookKeeper."""
    bucket.change(target.topic.name, {target.ledger.ledger_id: not_offloaded})
    return {
        target.found(FindingKind.GAP, is_loss=True),
        target.found(FindingKind.UNLISTED, *target.names),
    }


def failed_before_its_index(bucket: OwnedBucket, target: Target) -> set[Found]:
    """An earlier attempt left its data object."""
    bucket.write(target.other.data_name, b"cut off")
    kind = FindingKind.DATA_WITHOUT_INDEX
    return {target.found(kind, target.other.data_name, deletable=True)}


def failed_before_its_index_since(bucket: OwnedBucket, target: Target) -> set[Found]:
    """An attempt left its data object after the metadata was saved, or is under way."""
    bucket.write(target.other.data_name, b"cut off", SINCE)
    return {target.found(FindingKind.DATA_WITHOUT_INDEX, target.other.data_name)}


def index_alone(bucket: OwnedBucket, target: Target) -> set[Found]:
    """An earlier attempt has an index object and no data object."""
    bucket.write(target.other.index_name, target.ledger.index_object.read_bytes())
    kind = FindingKind.INDEX_WITHOUT_DATA
    return {target.found(kind, target.other.index_name, deletable=True)}


def upload_left(bucket: OwnedBucket, target: Target) -> set[Found]:
    """An earlier attempt ended before its data object was whole."""
    bucket.write(temporary_path(target.other.data_name, "0123456789abcdef"), b"cut off")
    kind = FindingKind.UNFINISHED_UPLOAD
    return {target.found(kind, target.other.data_name, deletable=True)}


def upload_under_way(bucket: OwnedBucket, target: Target) -> set[Found]:
    """A data object is being written since the metadata was saved."""
    bucket.write(temporary_path(target.other.data_name, "0123456789abcdef"), b"so far", SINCE)
    return {target.found(FindingKind.UNFINISHED_UPLOAD, target.other.data_name)}


def newer_than_the_metadata(bucket: OwnedBucket, target: Target) -> set[Found]:
    """There is a ledger of the topic that is newer than its metadata."""
    newer = LedgerObjectName(OTHER_UUID, 100_000 + target.ledger.ledger_id)
    bucket.write(newer.data_name, target.ledger.data_object.read_bytes())
    bucket.write(newer.index_name, target.ledger.index_object.read_bytes())
    objects = (newer.index_name, newer.data_name)
    return {Found(FindingKind.UNLISTED, newer.ledger_id, objects)}


def foreign_file(bucket: OwnedBucket, target: Target) -> set[Found]:
    """There is a file that no offloader wrote."""
    name = f"{target.names[1]}.bak"
    bucket.write(name, b"foreign")
    return {Found(FindingKind.FOREIGN, None, (name,))}


def extra_bytes(bucket: OwnedBucket, target: Target) -> set[Found]:
    """There is something behind the last data block."""
    data_name = target.names[1]
    bucket.write(data_name, target.ledger.data_object.read_bytes() + b"behind")
    return {target.found(FindingKind.EXTRA_BYTES, data_name)}


def attached_under_another_name(bucket: OwnedBucket, target: Target) -> set[Found]:
    """The metadata names a copy whose index object says that it is another topic's."""
    index = target.ledger.index_object.read_bytes()
    own, other = target.topic.managed_ledger.encode(), b"other/name/persistent/"
    renamed = other + b"x" * (len(own) - len(other))
    bucket.write(target.names[0], index.replace(own, renamed))
    return {
        target.found(FindingKind.OTHER_NAME, *target.names, is_loss=True),
        target.found(FindingKind.ORPHAN, *target.names),
    }


def streaming_object(bucket: OwnedBucket, target: Target) -> set[Found]:
    """There is an object of streaming offload."""
    name = f"00000000-0000-0000-0000-{target.ledger.ledger_id:012}"
    bucket.write(name, b"")
    return {Found(FindingKind.STREAMING, None, (name,))}


FAULTS: Final[tuple[Fault, ...]] = (
    copied,
    copied_since,
    index_removed,
    data_removed,
    both_removed,
    replaced_by_another_attempt,
    data_left_of_another_attempt,
    data_cut,
    index_of_another_format,
    entries_contradicted,
    size_contradicted,
    lost_from_the_list,
    never_offloaded,
    failed_before_its_index,
    failed_before_its_index_since,
    index_alone,
    upload_left,
    upload_under_way,
    newer_than_the_metadata,
    extra_bytes,
    attached_under_another_name,
    foreign_file,
    streaming_object,
)
