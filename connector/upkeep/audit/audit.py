"""The audit of a bucket: unexpected objects, and expected objects that are missing.

Topics are compared with their cluster's metadata. Without metadata, the audit reports only
contradictions within the bucket, and no object can be shown to be unnecessary. If a ledger has
several copies, the one that *counts* is the one that readers use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptMetadataError, MissingObjectError, TruncatedObjectError
from arrow_io.format.object_names import has_ledger_id
from arrow_io.storage.store_uploads import temporary_path
from connector.catalog.kinds.registry import kind_of, parse_name
from connector.catalog.snapshot.snapshot import begins_snapshot, is_snapshot
from connector.catalog.topic_ledgers import LedgerState
from connector.inputs.times import time_of
from connector.inputs.topic_names import AnyTopic, ForeignTopic, TopicName
from connector.upkeep.audit.deletability import Deletability
from connector.upkeep.audit.findings import (
    NO_TOPIC,
    REPAIRABLE,
    Finding,
    FindingKind,
    finding_from_objects,
    judge,
    mark_doubtful,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime, timedelta

    from arrow_io.storage.object_store import ObjectInfo, UnfinishedUpload
    from connector.catalog.bucket import UnfinishedOffload
    from connector.catalog.catalog import Catalog
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.topic_ledgers import TopicLedger, TopicLedgers


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        findings: Sorted by topic and ledger. Findings without a topic are last.
        has_metadata: Whether the bucket was compared with metadata.
        foreign_ledgers: Number of ledgers that name a topic of which Pulsar offloads nothing, such
            as a non-persistent one; they are not compared with anything.
        streaming_ledgers: Number of ledgers in segments of streaming offload (PIP-76), whose
            objects are always kept.
    """

    findings: tuple[Finding, ...]
    has_metadata: bool
    listed_at: datetime
    foreign_ledgers: int = 0
    streaming_ledgers: int = 0

    @property
    def losses(self) -> tuple[Finding, ...]:
        """Findings because of which messages cannot be read."""
        return tuple(each for each in self.findings if each.is_loss)


def audit(
    catalog: Catalog,
    *,
    deletion_lag: timedelta | None = None,
    uploads: Iterable[UnfinishedUpload] = (),
    is_one_cluster: bool = False,
) -> Audit:
    """Compare a bucket with its metadata.

    Args:
        catalog: The bucket, with metadata if available.
        deletion_lag: How long after an offload BookKeeper's copy is due for deletion
            (`managedLedgerOffloadDeletionLagMs`). None: overdue copies are not reported.
        uploads: Unfinished uploads (`Location.unfinished_uploads`).
        is_one_cluster: Whether the whole bucket belongs to the metadata's cluster, including topics
            that it no longer has. Otherwise objects that do not name their cluster are never
            deletable, because another cluster may have topics with the same names. Objects in a
            folder, copies made by other tools, and objects of older releases do not name it.

    Raises:
        PulsarOffloadError: The metadata or an object cannot be read.
    """
    open_uploads = list(uploads)
    topics = catalog.every_ledger()
    auditor = _Auditor(catalog, topics, deletion_lag, is_one_cluster=is_one_cluster)
    findings = [finding for topic in topics for finding in auditor.report_topic(topic)]
    findings += auditor.report_scalable_topics()
    findings += auditor.report_unowned(open_uploads)
    findings += [auditor.report_unfinished(each) for each in catalog.contents.unfinished]
    findings += [auditor.report_upload(each) for each in open_uploads]
    findings += auditor.report_nameless_pairs()
    findings = _keep_objects_of_lossy_topics(findings)
    findings.sort(key=_sort_key)
    copies = catalog.contents.copies
    foreign = {each.name.ledger_id for each in copies if isinstance(each.topic, ForeignTopic)}
    streaming = {each.name.ledger_id for each in copies if each.is_shared}
    return Audit(
        tuple(findings), catalog.source is not None, catalog.listed_at, len(foreign), len(streaming)
    )


def _sort_key(finding: Finding) -> tuple[str, int, tuple[str, ...]]:
    ledger_id = -1 if finding.ledger_id is None else finding.ledger_id
    return str(finding.topic or "~"), ledger_id, finding.objects


def _keep_objects_of_lossy_topics(findings: list[Finding]) -> list[Finding]:
    """Keep all objects of topics with losses: their metadata may belong to something else.

    The objects may be the only means of repair.
    """
    lossy = {
        each.topic.classic
        for each in findings
        if each.is_loss and isinstance(each.topic, TopicName)
    }
    doubt = "messages of the topic cannot be read, which the audit reports too"
    return [
        mark_doubtful(each, doubt)
        if each.deletable and isinstance(each.topic, TopicName) and each.topic.classic in lossy
        else each
        for each in findings
    ]


class _Auditor:
    def __init__(
        self,
        catalog: Catalog,
        topics: Sequence[TopicLedgers],
        deletion_lag: timedelta | None,
        *,
        is_one_cluster: bool,
    ) -> None:
        self._catalog = catalog
        self._deletion_lag = deletion_lag
        self._topics = {each.topic: each for each in topics}
        self.deletability = Deletability(catalog, topics, is_one_cluster=is_one_cluster)

    def report_topic(self, topic: TopicLedgers) -> Iterator[Finding]:
        if topic.metadata_error is not None:
            yield Finding(
                kind=FindingKind.METADATA,
                text=f"the metadata of the topic cannot be read: {topic.metadata_error}",
                topic=topic.topic,
                is_loss=True,
            )
            return
        # The graph of a scalable topic may name a segment whose ledgers the metadata lacks.
        is_named = topic.metadata is not None or topic.node is not None
        is_unknown = not is_named and self._catalog.source is not None
        for ledger in topic.states:
            copies = ledger.others
            if ledger.error is not None and not is_unknown:
                yield self._report_error(topic, ledger)
            elif ledger.copy is not None and (is_unknown or ledger.state.is_stray):
                copies = (ledger.copy, *ledger.others)
            elif ledger.copy is not None:
                yield from _report_extra_bytes(topic, ledger.copy)
                yield from _report_index_error(topic, ledger.copy)
            # Segments are kept: they are shared with other ledgers, which may need them.
            for copy in (each for each in copies if not each.is_shared):
                if is_unknown or (ledger.info is None and ledger.state.is_stray):
                    yield self._report_stray(topic, copy)
                else:
                    yield self._report_other_copy(topic, ledger, copy)
            lagging = self._report_bookkeeper_copy(topic, ledger)
            if lagging is not None:
                yield lagging

    def _report_error(self, topic: TopicLedgers, ledger: TopicLedger) -> Finding:
        copy = ledger.copy
        if isinstance(ledger.error, MissingObjectError):
            gap = ledger.info is not None and not ledger.info.is_offloaded
            kind = FindingKind.GAP if gap else FindingKind.MISSING
            if topic.metadata is None and copy is not None:
                kind = FindingKind.INDEX_WITHOUT_DATA
        elif copy is not None and copy.error is None and copy.topic != topic.topic:
            kind = FindingKind.OTHER_NAME
        elif topic.metadata is None and copy is not None and copy.is_unfinished:
            kind = FindingKind.UNFINISHED
        elif isinstance(ledger.error, CorruptMetadataError):
            kind = FindingKind.AMBIGUOUS
        elif (
            isinstance(ledger.error, TruncatedObjectError)
            or copy is None
            or copy.ledger
            or copy.cut
        ):
            kind = FindingKind.SIZE_MISMATCH
        else:
            kind = FindingKind.FORMAT_MISMATCH
        text = str(ledger.error)
        is_index_damaged = (
            copy is not None
            and copy.data is not None
            and getattr(ledger.error, "object_key", None) == copy.name.index_name
        )
        if kind is FindingKind.FORMAT_MISMATCH and is_index_damaged:
            text = f"{text}; {REPAIRABLE}"
        finding = _make_finding(kind, text, copy, topic.topic)
        return replace(finding, ledger_id=ledger.ledger_id, is_loss=True)

    def _report_stray(self, topic: TopicLedgers, copy: LedgerCopy) -> Finding:
        """Report a copy of a ledger that the metadata does not list."""
        listed = topic.metadata.ledgers if topic.metadata else ()
        if listed and copy.name.ledger_id > listed[-1].ledger_id:
            text = (
                "the ledger is newer than the topic's last in the metadata, which may be outdated"
            )
            return _make_finding(FindingKind.UNLISTED, text, copy, topic.topic)
        if topic.metadata is not None and topic.metadata.lacks(copy.name.ledger_id):
            text = (
                "the metadata has earlier and later ledgers, but not this one: the metadata is"
                " damaged, or the ledger is another cluster's"
            )
            return _make_finding(FindingKind.UNLISTED, text, copy, topic.topic)
        text = "the topic no longer has the ledger"
        if topic.metadata is None:
            text = "a ledger of a topic that the metadata lacks"
        finding = _make_finding(FindingKind.ORPHAN, text, copy, topic.topic)
        return judge(
            finding, lambda: self.deletability.doubt_of_copy(topic, copy, finding.modified)
        )

    def _report_other_copy(
        self, topic: TopicLedgers, ledger: TopicLedger, copy: LedgerCopy
    ) -> Finding:
        """Report a copy of a ledger that is not, or not yet, the one that counts."""
        kind, text = FindingKind.UNLISTED, "the metadata, which may be outdated, names another copy"
        if copy.data is None:
            kind, text = FindingKind.INDEX_WITHOUT_DATA, "an index object without its data object"
        elif ledger.copy is not None and (ledger.state.is_readable or ledger.info is None):
            kind = FindingKind.DOUBLE
            text = f"an additional copy: the one with uuid {ledger.copy.name.uuid} counts"
        elif ledger.info is not None and not ledger.info.is_offloaded:
            text = "the metadata says it is not offloaded, but may be older than the copy"
        if copy.is_unfinished:
            kind = FindingKind.UNFINISHED
        if copy.error is not None:
            text = f"{text}; {copy.error}"
        finding = _make_finding(kind, text, copy, topic.topic)
        if self._catalog.source is None:
            return finding
        return judge(
            finding, lambda: self.deletability.doubt_of_copy(topic, copy, finding.modified)
        )

    def _report_bookkeeper_copy(self, topic: TopicLedgers, ledger: TopicLedger) -> Finding | None:
        offload = ledger.info.offload if ledger.info else None
        if (
            self._deletion_lag is None
            or ledger.state is not LedgerState.BOTH
            or offload is None
            or offload.timestamp_ms is None
        ):
            return None
        offloaded = time_of(offload.timestamp_ms)
        if offloaded is None or self._catalog.listed_at - offloaded < self._deletion_lag:
            return None
        return Finding(
            kind=FindingKind.BOOKKEEPER_COPY,
            text=(
                f"BookKeeper still has the ledger, which was offloaded at {offloaded:%F %T} UTC:"
                " its deletion lag has passed"
            ),
            topic=topic.topic,
            ledger_id=ledger.ledger_id,
        )

    def report_scalable_topics(self) -> Iterator[Finding]:
        """Report scalable topics whose segments the metadata does not tell."""
        source = self._catalog.source
        for topic in () if source is None else source.scalable_topics():
            error = self._catalog.scalable_topics.error(topic)
            if error is not None:
                yield Finding(
                    kind=FindingKind.METADATA,
                    text=f"the metadata of the scalable topic cannot be read: {error}",
                    topic=topic,
                    is_loss=True,
                )

    def report_unowned(self, uploads: Sequence[UnfinishedUpload]) -> Iterator[Finding]:
        """Report objects that cannot be assigned to a topic."""
        listed = {
            copy.name
            for topic in self._topics.values()
            for ledger in topic.states
            for copy in (ledger.copy, *ledger.others)
            if copy is not None
        }
        for copy in self._catalog.contents.copies:
            if copy.name in listed or copy.error is None or copy.is_shared:
                continue
            kind = FindingKind.FORMAT_MISMATCH
            if copy.data is None:
                kind = FindingKind.INDEX_WITHOUT_DATA
            finding = _make_finding(kind, str(copy.error), copy, copy.topic)
            yield replace(finding, is_loss=self._catalog.source is None)
        # Temporary files of uploads to a folder are reported with the uploads.
        temporary_names = {temporary_path(each.name, each.upload_id) for each in uploads}
        for info in self._catalog.contents.foreign:
            if info.name not in temporary_names and not self._is_snapshot(info):
                text = "Pulsar's offloaders do not use this object name"
                yield finding_from_objects(FindingKind.FOREIGN, text, (info,), None)

    def report_nameless_pairs(self) -> Iterator[Finding]:
        """Report pairs of objects whose ledgers or topic are unknown."""
        has_metadata = self._catalog.source is not None
        for pair in self._catalog.contents.pairs:
            if has_ledger_id(pair.name):
                continue
            kind, text = FindingKind.FORMAT_MISMATCH, str(pair.error)
            if pair.error is None:
                if has_metadata or pair.topic is not None:
                    continue
                object_kind = kind_of(pair.name)
                kind = FindingKind.STREAMING
                what = f"a {object_kind.unit} of {object_kind.title}"
                text = f"{what}, whose topic is unknown"
            finding = finding_from_objects(kind, text, pair.objects, pair.topic)
            yield replace(finding, is_loss=not has_metadata)

    def _is_snapshot(self, info: ObjectInfo) -> bool:
        return is_snapshot(info.name) and begins_snapshot(self._catalog.location, info.name)

    def report_unfinished(self, offload: UnfinishedOffload) -> Finding:
        """Report a data object without an index object."""
        name = offload.name
        if not has_ledger_id(name):
            text = f"an object of {kind_of(name).title} without its index object"
            return finding_from_objects(FindingKind.STREAMING, text, (offload.data,), None)
        text = "the data object exists, but its index object is missing"
        finding = finding_from_objects(FindingKind.DATA_WITHOUT_INDEX, text, offload.objects, None)
        finding = replace(finding, ledger_id=name.ledger_id)
        try:
            topic = self._catalog.unfinished.topic(name)
        except MissingObjectError:
            return replace(
                finding, text="a data object that was deleted since the bucket was listed"
            )
        owners = self.deletability.owners.get(name.ledger_id, [])
        if topic is None and len(owners) == 1:
            topic = owners[0].topic
        finding = replace(finding, topic=topic)
        topic_ledgers = self._topics.get(topic) if isinstance(topic, TopicName) else None
        if isinstance(topic, ForeignTopic):
            return mark_doubtful(finding, f"Pulsar offloads no {topic.domain} topic")
        if topic_ledgers is None:
            return finding if self._catalog.source is None else mark_doubtful(finding, NO_TOPIC)
        repairable = replace(finding, text=f"{finding.text}; {REPAIRABLE}")
        if self._catalog.source is None:
            sound = {ledger.ledger_id for ledger in topic_ledgers.ledgers}
            is_loss = name.ledger_id not in sound and name.ledger_id < max(sound, default=-1)
            return replace(repairable, is_loss=True) if is_loss else finding
        metadata = topic_ledgers.metadata
        named = metadata.named_attempts if metadata else ()
        finding = repairable if (name.ledger_id, name.uuid) in named else finding
        doubt = partial(self.deletability.doubt_of_data, topic_ledgers, name, finding.modified)
        return judge(finding, doubt)

    def report_upload(self, upload: UnfinishedUpload) -> Finding:
        parsed = parse_name(upload.name)
        name = parsed.name if parsed else None
        finding = Finding(
            kind=FindingKind.UNFINISHED_UPLOAD,
            text="an upload that was neither completed nor aborted",
            objects=(upload.name,),
            ledger_id=name.ledger_id if name else None,
            modified=upload.initiated,
            upload_id=upload.upload_id,
        )
        if name is None or not has_ledger_id(name):
            return finding
        owners = self.deletability.owners.get(name.ledger_id, [])
        if len(owners) != 1:
            return finding if self._catalog.source is None else mark_doubtful(finding, NO_TOPIC)
        finding = replace(finding, topic=owners[0].topic)
        return judge(
            finding, partial(self.deletability.doubt_of_upload, owners[0], name, finding.modified)
        )


def _report_extra_bytes(topic: TopicLedgers, copy: LedgerCopy) -> Iterator[Finding]:
    """Report bytes that the index object does not describe, in the data object that counts."""
    if copy.data is not None and copy.extra_bytes:
        extra = counted(copy.extra_bytes, "byte")
        text = f"{extra} after the end that the index object gives, which no reader uses"
        finding = _make_finding(FindingKind.EXTRA_BYTES, text, copy, topic.topic)
        yield replace(finding, objects=(copy.data.name,), stored_bytes=copy.extra_bytes)


def _report_index_error(topic: TopicLedgers, copy: LedgerCopy) -> Iterator[Finding]:
    """Report an index object that brokers need, although the ledger can be read without it."""
    for pair in copy.pairs:
        if pair.index_error is not None:
            text = f"brokers cannot read the ledger: {pair.index_error}; {REPAIRABLE}"
            yield _make_finding(FindingKind.FORMAT_MISMATCH, text, copy, topic.topic)


def _make_finding(
    kind: FindingKind,
    text: str,
    copy: LedgerCopy | None,
    topic: AnyTopic | None = None,
) -> Finding:
    if copy is None:
        return Finding(kind=kind, text=text, topic=topic)
    finding = finding_from_objects(kind, text, copy.objects, topic)
    return replace(finding, ledger_id=copy.name.ledger_id, stored_bytes=copy.stored_bytes)
