"""A write begins: what stands is looked at, ids are chosen, and what is about to come is noted."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.option_names import option_name
from arrow_io.storage.store_kinds import prefix_in_store, store_kind
from connector.catalog.bucket import read_bucket
from connector.writing.ledger_ids import IdRange, ledgers_of, list_names, unpublished
from connector.writing.metadata_files import MetadataFiles
from connector.writing.standing_topic import check_appendable, check_behind, check_new

if TYPE_CHECKING:
    from uuid import UUID

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.location import Location
    from connector.catalog.bucket import BucketContents
    from connector.writing.decision import DecisionFile
    from connector.writing.write_target import WriteTarget

_UNTOLD: Final = (
    "Metadata that was saved before lacks the new ledgers, so whoever reads by it misses these"
    " messages. Give {option} to extend metadata that write made."
)
_FREE_PLACES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What the processes that stage a write need to know; goes to them.

    Attributes:
        mark: The mark of the write.
        begun_ms: When it began, ms since the epoch; the publish time of messages without one.
        ids: What ids its ledgers may have.
        schema: What values are encoded by, with all versions that the topic has.
        warnings: What may do harm later, in words.
    """

    mark: UUID
    begun_ms: int
    ids: IdRange
    schema: TopicSchema | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BegunWrite:
    """A write that has begun, in the process that began it.

    Attributes:
        plan: What others need to know.
        files: The metadata that is to be extended; None: none is written.
        contents: What the bucket held; None if it had no ledger.
    """

    plan: WritePlan
    files: MetadataFiles | None
    contents: BucketContents | None


def metadata_files(target: WriteTarget) -> MetadataFiles | None:
    """The metadata of a topic that is written to; None: none is written."""
    root = target.metadata_root
    if root is None:
        return None
    return MetadataFiles(root, target.topic, target.names, target.offloader)


def begin(
    target: WriteTarget,
    file: DecisionFile,
    *,
    ids_apart: int | None = None,
    known: BucketContents | None = None,
) -> BegunWrite:
    """Begin a write, of which ledgers that runs before it have staged take no ids.

    Args:
        target: What is written to.
        file: Where the write will be decided, unless it gets an id later; it is not decided.
        ids_apart: Unless ids are chosen by the user: how many ids lie between the places of which
            one is drawn for the first, so that writers that begin at once hardly ever meet; None:
            it is the one behind the greatest in the bucket.
        known: What the bucket held before, of which nothing is read again that has not changed.

    Raises:
        OptionError: The topic cannot be written to: see `MetadataFiles.open`, `check_new` and
            `check_appendable`; or the first ledger id is not behind those that it has.
        CorruptMetadataError: Metadata that is to be extended is malformed.
        SchemaError: The schema cannot be read.
        StorageError: The store refused, or went on failing.
    """
    request = target.request
    schema = target.read_schema()
    files = metadata_files(target)
    if files is not None:
        files.open(append=request.append)
        schema = files.joined_schema(schema)
    names = list_names(target.bucket)
    listed = ledgers_of(names)
    contents = read_bucket(target.bucket, known=known) if names else None
    standing = _standing(target, contents, files)
    if file.is_named:
        # What earlier runs have left stays until one is decided, lest one that still runs miss it.
        listed -= unpublished(names, file.is_ours)
    taken = {name.ledger_id for name in listed}.union(files.ledger_ids if files else ())
    # The names of segments do not tell their ledgers.
    segments = contents.segments if contents else ()
    taken |= {copy.name.ledger_id for segment in segments for copy in segment.copies}
    first = request.first_ledger_id
    if first is not None:
        check_behind(first, standing.union(files.ledger_ids if files else ()))
    else:
        first = max(taken, default=-1) + 1
        if ids_apart is not None:
            first += ids_apart * secrets.randbelow(_FREE_PLACES)
    warnings = [*(files.warnings if files else ())]
    if files is not None:
        warnings += _for_readers_alone(target.bucket, request.first_ledger_id)
    elif standing:
        warnings.append(_UNTOLD.format(option=option_name("metadata_folder")))
    plan = WritePlan(
        mark=file.mark,
        begun_ms=time.time_ns() // 1_000_000,
        ids=IdRange(first=first, taken=frozenset(each for each in taken if each >= first)),
        schema=schema,
        warnings=tuple(warnings),
    )
    if files is not None:
        files.begin(file)
    return BegunWrite(plan, files, contents)


def _standing(
    target: WriteTarget, contents: BucketContents | None, files: MetadataFiles | None
) -> set[int]:
    """Check what the bucket has of the topic; ids of its ledgers."""
    if contents is None:
        return set()
    if not target.request.append:
        check_new(target.topic, contents.copies)
        return set()
    metadata = None if files is None else files.standing
    return check_appendable(target.topic, target.names, contents.copies, metadata)


def _for_readers_alone(location: Location, first_ledger_id: int | None) -> list[str]:
    """Warnings of metadata in an object store that no cluster should be given."""
    if store_kind(location.url) is None:
        return []
    if prefix_in_store(location.url):
        warning = (
            f"the ledgers lie below a prefix, {location}: a broker looks for them at the root of"
            " the bucket, so a cluster with this metadata would not find them"
        )
        return [warning]
    if first_ledger_id is None:
        warning = (
            "the ids of the ledgers were not chosen for a cluster, which would lose them at once:"
            f" this metadata is for readers alone, unless {option_name('first_ledger_id')} is given"
        )
        return [warning]
    return []
