"""What must hold of reading, auditing and cleaning a model's bucket, whatever came before."""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from arrow_io.errors import IncompleteReadWarning, PulsarOffloadError
from arrow_io.format.object_names import LedgerObjectName, parse_object_name
from arrow_io.read_metrics import Unit
from connector import open_catalog, open_topic
from connector.display.topic_metrics import TopicMetrics
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import Audit, audit
from connector.upkeep.audit.cleaning import clean, plan_cleaning
from connector.upkeep.audit.findings import Finding, FindingKind
from tests.support.cluster_model import Attempt, ModelLedger, ModelWorld, Owner, Stage
from tests.support.saved_metadata import Layout, SavedMetadata, as_time, model_time

if TYPE_CHECKING:
    from arrow_io.format.object_names import PairName
    from connector import Catalog
    from connector.catalog.metadata.topic_metadata import LedgerInfo

_BROKER_CLOCKS_MS: Final = 60_000
"""How far the clocks of brokers may be apart."""
_LOSS_KINDS: Final = frozenset(
    {
        FindingKind.MISSING,
        FindingKind.SIZE_MISMATCH,
        FindingKind.FORMAT_MISMATCH,
        FindingKind.DAMAGE,
    }
)


@dataclass(frozen=True)
class Reading:
    """What came of reading a topic.

    Attributes:
        rows: The rows of each ledger; empty if there was an error.
        error: The error.
        metrics: What else was met.
        told: The warnings.
    """

    rows: dict[int, list[str]]
    error: PulsarOffloadError | None
    metrics: TopicMetrics
    told: tuple[str, ...]


def opened(world: ModelWorld, saved: SavedMetadata | None) -> Catalog:
    """The catalog of the bucket as it is now, by metadata that was saved.

    Raises:
        PulsarOffloadError: The metadata cannot be read.
    """
    with model_time(world):
        if saved is None:
            return open_catalog(world.bucket.url)
        catalog = open_catalog(world.bucket.url, metadata=saved.metadata)
        return catalog.relisted() if saved.is_snapshot else catalog


def read(catalog: Catalog, topic: str, *, salvage: bool) -> Reading:
    """Read a topic whole."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            dataset = open_topic(
                catalog.location.url,
                topic,
                catalog=catalog,
                value="raw",
                on_corruption="salvage" if salvage else "raise",
            )
            table = dataset.to_table(columns=["__ledger_id__", "__value__"])
        except PulsarOffloadError as error:
            return Reading({}, error, TopicMetrics(), ())
    rows: dict[int, list[str]] = defaultdict(list)
    for row in table.to_pylist():
        rows[row["__ledger_id__"]].append(row["__value__"].decode())
    told = [str(each.message) for each in caught if each.category is IncompleteReadWarning]
    return Reading(dict(rows), None, dataset.metrics, tuple(told))


def check_reading(world: ModelWorld, saved: SavedMetadata | None) -> None:
    """Every row that was offloaded is given or reported, and no other topic's is given."""
    try:
        catalog = opened(world, saved)
        names = {str(topic) for topic in catalog.topics()}
    except PulsarOffloadError as error:
        _check_refusal(saved, error)
        return
    owners = world.owners if saved is None else [saved.owner]
    names |= {name for owner in owners for name in owner.topics}
    for name in sorted(names):
        for salvage in (False, True):
            reading = read(catalog, name, salvage=salvage)
            _check_rows(world, saved, name, reading, salvage=salvage)
            if reading.error is None:
                for owner in owners:
                    _check_all_told(world, saved, owner, name, reading, catalog)
        _check_soundness(world, saved, name, read(catalog, name, salvage=False))


def _check_refusal(saved: SavedMetadata | None, error: PulsarOffloadError) -> None:
    """Only what is damaged, or does not tell its topics, is refused as a whole."""
    assert saved is not None, f"a bucket without metadata is refused: {error}"
    assert not saved.is_whole or saved.layout is Layout.JOINED, (
        f"whole metadata is refused: {error}"
    )


def _check_rows(
    world: ModelWorld, saved: SavedMetadata | None, name: str, reading: Reading, *, salvage: bool
) -> None:
    """Rows are those of the topic, whole ledgers of them, and in order."""
    for ledger_id, rows in reading.rows.items():
        truth = world.truth[rows[0]]
        assert truth.topic == name, f"{name} has rows of {truth.topic}"
        assert truth.ledger_id == ledger_id, f"{ledger_id} has rows of ledger {truth.ledger_id}"
        assert rows == truth.rows, f"ledger {ledger_id} of {name} is not whole"
        # A copy that nothing names may be another cluster's: what is guessed or salvaged.
        names_copies = saved is not None and saved.is_whole and saved.tells_uuids
        if saved is not None and names_copies and name in saved.known and not salvage:
            assert truth.owner is saved.owner, f"{name} has rows of another cluster"


def _check_all_told(  # noqa: PLR0917 - what is compared
    world: ModelWorld,
    saved: SavedMetadata | None,
    owner: Owner,
    name: str,
    reading: Reading,
    catalog: Catalog,
) -> None:
    """Of each offloaded ledger that is not given, something is told."""
    if name not in owner.topics or not owner.offloads_here:
        return
    missing = [
        ledger.ledger_id
        for ledger in owner.topics[name].ledgers
        if ledger.is_offloaded
        and reading.rows.get(ledger.ledger_id) != ledger.rows
        and (world.is_there(ledger) or _known(saved, name, ledger.ledger_id) is not None)
    ]
    if saved is None or name not in saved.known:
        # A bucket alone does not show what was deleted, and of one id of two clusters the newest.
        missing = [each for each in missing if _is_shown(world, owner, name, each)]
    elif not saved.is_whole:
        # Cut at its beginning, a list of ledgers looks as if retention had trimmed it.
        metadata = catalog.ledgers(TopicName.parse(name)).metadata
        first = min((each.ledger_id for each in metadata.ledgers), default=0) if metadata else 0
        missing = [each for each in missing if each >= first]
    if not missing:
        return
    metrics = reading.metrics
    counted = (
        metrics.pending_ledgers
        + metrics.unlisted_ledgers
        + metrics.unfinished_ledgers
        + metrics.substituted_ledgers
        + sum(count for (unit, _), count in metrics.lost.items() if unit is Unit.LEDGER)
    )
    assert reading.told, f"ledgers {missing} of {name} are left out with no word"
    assert len(missing) <= counted or metrics.doubts, (
        f"ledgers {missing} of {name} are left out, and {counted} are told: {reading.told}"
    )


def _is_shown(world: ModelWorld, owner: Owner, name: str, ledger_id: int) -> bool:
    ledgers = {
        attempt.ledger
        for attempt in world.attempts.values()
        if attempt.ledger.topic == name and attempt.ledger.ledger_id == ledger_id
    }
    return all(each.owner is owner for each in ledgers) and any(map(world.is_there, ledgers))


def _check_soundness(
    world: ModelWorld, saved: SavedMetadata | None, name: str, reading: Reading
) -> None:
    """With metadata of this very moment, a topic with which nothing is wrong is read whole."""
    if saved is None or not _is_current(world, saved) or name not in saved.known:
        return
    if not (saved.tells_uuids and saved.owner.offloads_here):
        return
    ledgers = saved.owner.topics[name].ledgers
    ledgers = [each for each in ledgers if each.is_recorded]
    states = [ledger.is_offloaded for ledger in ledgers if ledger.rows]
    has_gap = states != sorted(states, reverse=True)
    if has_gap or not all(world.is_there(each) for each in ledgers if each.is_offloaded):
        if saved.tells_completion or has_gap:
            assert reading.error is not None, f"what is not there of {name} is passed over"
        return
    assert reading.error is None, f"{name} is whole, and cannot be read: {reading.error}"
    expected = {ledger.ledger_id: ledger.rows for ledger in ledgers if ledger.is_offloaded}
    assert reading.rows == expected, f"{name} is whole, and is not read as it is"
    assert not reading.metrics.lost


def _is_current(world: ModelWorld, saved: SavedMetadata) -> bool:
    return (
        saved.step == world.step
        and saved.is_whole
        and saved.is_of_one_time
        and saved.layout is not Layout.JOINED
    )


def audited(world: ModelWorld, saved: SavedMetadata | None, *, is_one_cluster: bool) -> Audit:
    """What an audit finds.

    Raises:
        PulsarOffloadError: The metadata cannot be read.
    """
    catalog = opened(world, saved)
    uploads = catalog.location.unfinished_uploads()
    with model_time(world):
        return audit(catalog, uploads=uploads, is_one_cluster=is_one_cluster)


def check_audit(world: ModelWorld, saved: SavedMetadata, *, is_one_cluster: bool) -> Audit | None:
    """What is wrong is named, nothing else is, and nothing that is needed is said to be deletable.

    Returns:
        The audit; None if the metadata was refused.
    """
    try:
        found = audited(world, saved, is_one_cluster=is_one_cluster)
    except PulsarOffloadError as error:
        _check_refusal(saved, error)
        return None
    for each in found.findings:
        if each.deletable:
            _check_unneeded(world, saved, each, is_one_cluster=is_one_cluster)
    _check_last_copies(world, saved, found)
    if saved.is_whole and saved.is_of_one_time and saved.layout is not Layout.JOINED:
        for each in found.findings:
            _check_right(world, saved, each)
        _check_complete(world, saved, found)
    return found


def check_cleaning(
    world: ModelWorld,
    saved: SavedMetadata,
    *,
    is_one_cluster: bool,
    age: timedelta = timedelta(0),
    safety_age: timedelta = timedelta(0),
) -> list[str]:
    """Nothing that is needed is deleted.

    Returns:
        Names of the objects that were.
    """
    found = check_audit(world, saved, is_one_cluster=is_one_cluster)
    if found is None:
        return []
    now = as_time(world.now_ms + world.skew_ms) + age
    plan = plan_cleaning(found, now=now, safety_age=safety_age)
    before = dict(world.bucket.objects)
    catalog = opened(world, saved)
    list(clean(catalog.location, plan))
    deleted = sorted(before.keys() - world.bucket.objects.keys())
    for owner in _protected(world, saved, is_one_cluster=is_one_cluster):
        for name in deleted:
            assert not _is_needed(world, saved, owner, name), (
                f"{name} was deleted, and {owner} needs it"
            )
    for name in deleted:
        modified = before[name].modified
        assert modified is not None, f"{name} was deleted, and nothing tells how old it is"
        assert now - modified >= safety_age, f"{name} was deleted, and is too young"
        if any(name in world.needed(owner) for owner in world.owners):
            # The user said that there is one cluster, which is not so: the model goes on as before.
            world.bucket.objects[name] = before[name]
    return deleted


def _protected(world: ModelWorld, saved: SavedMetadata, *, is_one_cluster: bool) -> list[Owner]:
    """Those whose objects must stay: of what the user says is of one cluster, that cluster."""
    return [saved.owner] if is_one_cluster else world.owners


def _check_last_copies(world: ModelWorld, saved: SavedMetadata, found: Audit) -> None:
    """Where the copy that counts is lost, something stays by which the ledger can be mended."""
    deletable = {name for each in found.findings if each.deletable for name in each.objects}
    for topic in saved.owner.topics.values():
        for ledger in topic.ledgers:
            copies = world.copies(ledger) if ledger.is_offloaded else []
            assert not copies or any(deletable.isdisjoint(each) for each in copies), (
                f"all copies of ledger {ledger.ledger_id} of {topic.name} are deletable"
            )


def _is_needed(world: ModelWorld, saved: SavedMetadata, owner: Owner, name: str) -> bool:
    """Whether somebody needs an object, or did since the metadata was saved, and it can be told."""
    if not world.was_needed_since(owner, name, saved.step):
        return False
    attempt = next(each for each in world.attempts.values() if name in each.objects)
    return owner is saved.owner or _is_told_apart(world, saved.owner, attempt)


def _is_told_apart(world: ModelWorld, ours: Owner, attempt: Attempt) -> bool:
    """Whether anything tells that another than an owner wrote something."""
    theirs = attempt.ledger.owner
    if None in (ours.cluster, theirs.cluster) or ours.cluster != theirs.cluster:
        return True
    topic = ours.topics.get(attempt.ledger.topic)
    if topic is not None and topic.known.lacks(attempt.name.ledger_id):
        return True
    if attempt.stage is not Stage.COMPLETE:
        # Only a whole copy tells more than a name.
        return any(
            _is_told_apart(world, ours, each)
            for each in world.attempts.values()
            if each.ledger.owner is theirs
            and each.stage is Stage.COMPLETE
            and _is_there(world, each.name)
        )
    if topic is None or attempt.name.ledger_id > topic.ledgers[-1].ledger_id:
        return True
    witnesses = [
        each
        for each in topic.ledgers
        if each.attempt is not None and each.is_offloaded and _is_there(world, each.attempt.name)
    ]
    if ours.bookie != theirs.bookie or not witnesses:
        return True
    # Ids are given out in the order of time.
    created_ms, ledger_id = attempt.ledger.created_ms, attempt.ledger.ledger_id
    return any(
        each.ledger_id == ledger_id
        or (each.ledger_id < ledger_id and each.created_ms > created_ms + _BROKER_CLOCKS_MS)
        or (each.ledger_id > ledger_id and each.created_ms < created_ms - _BROKER_CLOCKS_MS)
        for each in witnesses
    )


def _check_unneeded(
    world: ModelWorld, saved: SavedMetadata, finding: Finding, *, is_one_cluster: bool
) -> None:
    for owner in _protected(world, saved, is_one_cluster=is_one_cluster):
        for name in _objects_of(world, finding):
            assert not _is_needed(world, saved, owner, name), (
                f"{name} is said to be deletable, and {owner} needs it: {finding.text}"
            )


def _objects_of(world: ModelWorld, finding: Finding) -> list[str]:
    """Names of a finding's objects as the store lists them."""
    if finding.upload_id is None:
        return list(finding.objects)
    return [
        name
        for name in world.bucket.objects
        if name.startswith(f"{finding.objects[0]}.{finding.upload_id}")
    ]


def _known(saved: SavedMetadata | None, topic: object, ledger_id: int | None) -> LedgerInfo | None:
    """What the metadata says of a ledger."""
    metadata = saved.known.get(str(topic)) if saved else None
    ledgers = metadata.ledgers if metadata else ()
    return next((each for each in ledgers if each.ledger_id == ledger_id), None)


def _named(info: LedgerInfo | None) -> LedgerObjectName | None:
    """The complete offload that the metadata names."""
    if info is None or info.offload is None or not info.is_offloaded or info.offload.uuid is None:
        return None
    return LedgerObjectName(info.offload.uuid, info.ledger_id)


def _is_there(world: ModelWorld, name: PairName) -> bool:
    return {name.data_name, name.index_name} <= world.bucket.objects.keys()


def _check_right(world: ModelWorld, saved: SavedMetadata, finding: Finding) -> None:
    """What an audit names is wrong, as far as its metadata can tell."""
    kind, info = finding.kind, _known(saved, finding.topic, finding.ledger_id)
    shown = f"{kind.value} of ledger {finding.ledger_id} of {finding.topic}: {finding.text}"
    assert kind is not FindingKind.METADATA, f"whole metadata is called malformed: {shown}"
    if kind in _LOSS_KINDS and finding.is_loss and saved.owner.offloads_here:
        name = _named(info)
        assert name is not None, f"no loss: {shown}"
        assert not _is_there(world, name) or not saved.tells_uuids, f"no loss: {shown}"
    if kind is FindingKind.GAP:
        assert info is not None, f"no gap: {shown}"
        assert info.entries, f"no gap: {shown}"
        assert not info.is_offloaded or not saved.tells_completion, f"no gap: {shown}"
    if not saved.tells_uuids:
        return
    for name in _attempts_of(finding):
        attempt = world.attempts[name]
        ledger = attempt.ledger
        if ledger.owner is not saved.owner or ledger.attempt is not attempt:
            continue
        if not (ledger.is_offloaded and _is_listed(ledger) and _is_there(world, name)):
            continue
        named = _named(info)
        if not finding.is_loss and kind is not FindingKind.UNLISTED:
            assert named != name, f"the copy that counts is named: {shown}"
        if kind is FindingKind.DOUBLE:
            assert named is not None, f"the only copy is called a double: {shown}"
        if kind is FindingKind.ORPHAN:
            assert ledger.topic not in saved.known, f"the topic has the ledger: {shown}"


def _attempts_of(finding: Finding) -> set[LedgerObjectName]:
    parsed = (parse_object_name(name) for name in finding.objects)
    return {each.ledger_object_name for each in parsed if each is not None}


def _is_listed(ledger: ModelLedger) -> bool:
    topic = ledger.owner.topics.get(ledger.topic)
    return topic is not None and ledger in topic.ledgers


def _check_complete(world: ModelWorld, saved: SavedMetadata, found: Audit) -> None:
    """What is wrong is named by an audit, as far as its metadata can tell."""
    told = {name for each in found.findings for name in _objects_of(world, each)}
    for name, attempt in world.attempts.items():
        ledger = attempt.ledger
        is_left = not (ledger.attempt is attempt and _is_listed(ledger) and ledger.is_offloaded)
        if not is_left or _named(_known(saved, ledger.topic, name.ledger_id)) == name:
            continue
        if not saved.tells_uuids and ledger.owner is saved.owner:
            continue
        for each in attempt.objects:
            if each in world.bucket.objects and ledger.owner is saved.owner:
                assert each in told, f"{each} is left in the bucket, and is not named"
    losses = {(str(each.topic), each.ledger_id) for each in found.findings if each.is_loss}
    if not (saved.tells_uuids and saved.tells_completion and saved.owner.offloads_here):
        return
    for topic, metadata in saved.known.items():
        for info in metadata.ledgers:
            named = _named(info)
            if named is not None and not _is_there(world, named):
                assert (topic, info.ledger_id) in losses, (
                    f"ledger {info.ledger_id} of {topic} is not there, and that is not named"
                )
