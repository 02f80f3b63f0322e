"""The read metrics of topics, including the ledgers that were left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from arrow_io.core.option_names import option_name
from arrow_io.core.wording import agreeing, counted
from arrow_io.read_metrics import ReadMetrics


@dataclass(slots=True)
class TopicMetrics(ReadMetrics):
    """Read metrics of one read of topics.

    Attributes:
        unfinished_ledgers: Data objects without an index object, of this or an unknown topic: the
            offload is in progress or failed, and left no complete copy.
        pending_ledgers: Ledgers after the last offloaded one, which are in BookKeeper only; counted
            if there is metadata.
        pending_entries: Number of entries in the pending ledgers, as far as it is known.
        substituted_ledgers: Ledgers that salvaging reads from another copy, because the copy that
            the metadata names cannot be read.
        unknown_topics: Topics that are missing from the metadata; read by the bucket alone.
        unlisted_ledgers: Ledgers in the bucket that were not read, because the metadata does not
            list them as offloaded. Retention does not explain them: the metadata may be older.
        segment_ledgers: Ledgers in the bucket of the scalable topics (Pulsar 5.0) that continue
            these topics; they were not read.
        segments_by_bucket: Segments of scalable topics whose ledgers the metadata does not have;
            they were read by the bucket alone.
        unnamed_segments: Segments of these scalable topics in the bucket that were not read,
            because the metadata does not name them.
        absent_segments: Ids of segments of these scalable topics that are below the id of a segment
            in the bucket, while nothing says what became of these segments.
        skipped_zones: Pruned zones: by statistics, they hold no matching row.
        skipped_bytes: Size of the pruned zones in the data objects.
        unknown_ledgers: Ledgers without statistics for the version that was read; counted only if
            the read uses statistics.
        unused_statistics: Why some statistics cannot be used, in words.
        keyless: Messages without a key, which the view `latest` leaves out.
    """

    unfinished_ledgers: int = 0
    pending_ledgers: int = 0
    pending_entries: int = 0
    substituted_ledgers: int = 0
    unknown_topics: int = 0
    unlisted_ledgers: int = 0
    segment_ledgers: int = 0
    segments_by_bucket: int = 0
    unnamed_segments: int = 0
    absent_segments: int = 0
    skipped_zones: int = 0
    skipped_bytes: int = 0
    unknown_ledgers: int = 0
    unused_statistics: list[str] = field(default_factory=list)
    keyless: int = 0

    def notices(self) -> list[str]:
        """Return one sentence for each fact that a reader of the rows must know; empty if none."""
        return [*self._ledger_notices(), *ReadMetrics.notices(self)]

    def _ledger_notices(self) -> list[str]:
        notices = []
        if self.unfinished_ledgers:
            notices.append(
                f"{counted(self.unfinished_ledgers, 'data object')}"
                f" {agreeing(self.unfinished_ledgers, 'has', 'have')} no index object:"
                f" {agreeing(self.unfinished_ledgers, 'a ledger', 'ledgers')} whose"
                " offload is under way or has failed"
            )
        if self.pending_ledgers:
            notices.append(
                f"{counted(self.pending_ledgers, 'ledger')} after those offloaded"
                f" {agreeing(self.pending_ledgers, 'is', 'are')} in BookKeeper only, and"
                f" {agreeing(self.pending_ledgers, 'was', 'were')} not read:"
                f" {counted(self.pending_entries, 'entry')}"
            )
        if self.substituted_ledgers:
            notices.append(
                f"{counted(self.substituted_ledgers, 'ledger')}"
                f" {agreeing(self.substituted_ledgers, 'was', 'were')} read from other copies than"
                " those that the metadata names, which cannot be read"
            )
        if self.unknown_topics:
            notices.append(
                f"the metadata does not list {self.unknown_topics} of the topics: they were read by"
                " the bucket alone, so ledgers may be missing"
            )
        if self.unlisted_ledgers:
            notices.append(
                f"the metadata does not list {counted(self.unlisted_ledgers, 'ledger')} in the"
                f" bucket as offloaded, so {agreeing(self.unlisted_ledgers, 'it was', 'they were')}"
                " not read; the metadata may be older"
            )
        if self.segment_ledgers:
            notices.append(
                "the topic was migrated to a scalable topic of Pulsar 5.0, where its history"
                f" continues: {counted(self.segment_ledgers, 'ledger')} of its segments"
                f" {agreeing(self.segment_ledgers, 'is', 'are')} in the bucket; read the topic by"
                " its topic:// name to have both"
            )
        if self.segments_by_bucket:
            notices.append(
                f"the metadata has no ledgers of {counted(self.segments_by_bucket, 'segment')}:"
                f" {agreeing(self.segments_by_bucket, 'it was', 'they were')} read by the bucket"
                " alone, so ledgers may be missing"
            )
        if self.unnamed_segments:
            notices.append(
                f"the metadata does not name {counted(self.unnamed_segments, 'segment')} in the"
                f" bucket, so {agreeing(self.unnamed_segments, 'it was', 'they were')} not read:"
                f" {agreeing(self.unnamed_segments, 'it was', 'they were')} pruned, or"
                f" {agreeing(self.unnamed_segments, 'is', 'are')} newer than the metadata;"
                f" {option_name('segments', 'all')} reads"
                f" {agreeing(self.unnamed_segments, 'it', 'them')} too"
            )
        if self.absent_segments:
            notices.append(
                f"{counted(self.absent_segments, 'segment')} before others"
                f" {agreeing(self.absent_segments, 'is', 'are')} not in the bucket:"
                f" {agreeing(self.absent_segments, 'it was', 'they were')} pruned, or nothing of"
                f" {agreeing(self.absent_segments, 'it', 'them')} is offloaded; only metadata can"
                " say which"
            )
        return notices
