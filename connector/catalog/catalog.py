"""The catalog: the topics of a bucket and the ledgers of each, in order."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from arrow_io.core.lazy import cached_property
from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import check_instance, path_or_url
from arrow_io.core.wording import agreeing
from arrow_io.errors import (
    OptionError,
    PulsarOffloadError,
    TopicNotFoundError,
    UnsearchedFoldersWarning,
)
from arrow_io.format.object_names import MAX_LEDGER_ID, has_ledger_id
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.bucket import Bucket, Opening
from connector.catalog.bucket_listing import list_bucket
from connector.catalog.bucket_summary import describe_contents
from connector.catalog.catalog_display import catalog_html, catalog_repr
from connector.catalog.kinds.registry import unattributed_error
from connector.catalog.live_cluster import LiveCluster, explain_missing, explain_missing_in_topic
from connector.catalog.metadata.source import open_metadata_source
from connector.catalog.other_buckets import OtherBuckets
from connector.catalog.read_gaps import count_read_gaps
from connector.catalog.scalable_topics import MemberFinder, ScalableTopics
from connector.catalog.schemas.loading import load_schema
from connector.catalog.snapshot.json import Snapshot
from connector.catalog.snapshot.snapshot import save_snapshot
from connector.catalog.topic_copies import TopicCopies
from connector.catalog.topic_ledgers import topic_with_ledger
from connector.catalog.topic_lookup import TopicLookup
from connector.catalog.unfinished_offloads import UnfinishedOffloads
from connector.display.topic_metrics import TopicMetrics
from connector.display.warnings import warn_of_read
from connector.inputs.topic_names import (
    TopicName,
    matching_topics,
    namespaces_of,
    select_topics,
)
from connector.statistics.analysis import Analyzed, analyze, unknown_ledgers
from connector.statistics.store import (
    OpenedStatistics,
    open_existing_statistics,
    open_statistics,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.catalog.bucket import BucketContents
    from connector.catalog.catalog_options import CatalogOptions
    from connector.catalog.metadata.source import MetadataSource
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import SegmentSelection
    from connector.statistics.analysis import Analyzer

    MorePartitions: TypeAlias = Callable[
        [str | Sequence[str], Collection[TopicName]], Iterable[TopicName]
    ]


def _statistics_location(statistics: str | os.PathLike[str]) -> str:
    """Return an absolute path, or a URL without credentials, for use from another folder."""
    location = path_or_url("statistics", statistics)
    return redacted_urls(location) if "://" in location else str(Path(location).absolute())


class Catalog:
    """The topics of a bucket, with the metadata of their cluster if there is any.

    Topics that the metadata does not know are read from the bucket alone.

    Args:
        options: The options of `open_catalog`.
        bucket: The listed bucket.
        source: The metadata, or None.
        listed_at: When the bucket was listed.
        other_buckets: Other buckets that are open already, by their names in the metadata.
        earlier: An earlier catalog of the same bucket, to reuse what it read of objects, which
            never change.
    """

    def __init__(
        self,
        options: CatalogOptions,
        bucket: Bucket,
        source: MetadataSource | None,
        *,
        listed_at: datetime,
        other_buckets: Mapping[str, Bucket] | None = None,
        earlier: Catalog | None = None,
    ) -> None:
        self.location = options.location
        self.bucket = bucket
        self.listed_at = listed_at
        self.source = source
        self.unfinished: UnfinishedOffloads = (
            earlier.unfinished if earlier else UnfinishedOffloads(self.location)
        )
        self.opened_statistics: OpenedStatistics = (
            earlier.opened_statistics if earlier else OpenedStatistics()
        )
        self._options = options
        self._other_buckets: OtherBuckets = OtherBuckets(
            self.location,
            options.buckets or {},
            known_buckets=other_buckets or {},
            earlier=earlier._other_buckets if earlier else None,  # noqa: SLF001 - of its own class
        )
        self._ledgers: dict[TopicName, TopicLedgers] = {}

    @cached_property
    def scalable_topics(self) -> ScalableTopics:
        """The scalable topics of the metadata."""
        return ScalableTopics(self.source)

    @cached_property
    def _copies(self) -> TopicCopies:
        return TopicCopies(self.bucket, self.source, self.scalable_topics)

    @cached_property
    def _lookup(self) -> TopicLookup:
        return TopicLookup(
            self.bucket, self.source, self._copies, self.scalable_topics, self._other_buckets
        )

    def __repr__(self) -> str:
        """Return the URL and the number of topics and ledgers; sends no request."""
        return catalog_repr(self.bucket, has_metadata=self.source is not None)

    def _repr_html_(self) -> str:
        return catalog_html(repr(self), self.bucket)

    @property
    def contents(self) -> BucketContents:
        """All contents of the bucket; reads every index object that was not read so far.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        return self.bucket.open_all()

    @classmethod
    def from_options(cls, options: CatalogOptions, earlier: Catalog | None = None) -> Catalog:
        """List a bucket and open its metadata, which is no catalog snapshot.

        Raises:
            OptionError: An option has a value that is not allowed.
            MissingObjectError: There is no such bucket or folder.
            StorageError: The store refused or failed to list the bucket, or to return an index
                object.
        """
        metadata = options.metadata
        source = (
            None
            if metadata is None
            else open_metadata_source(metadata, options=options.metadata_options)
        )
        listed_at = datetime.now(UTC)
        listing = list_bucket(options.location)
        if listing.unsearched_count:
            warn_of_read(listing.search_gap, UnsearchedFoldersWarning)
        previous = earlier.bucket if earlier else None
        bucket = (
            Bucket(listing, previous.opened_copies, previous.checked_listing)
            if previous
            else Bucket(listing)
        )
        if source is None:
            # Without metadata, only index objects name topics.
            bucket.open_all()
        return Catalog(options, bucket, source, listed_at=listed_at, earlier=earlier)

    @property
    def statistics(self) -> str | None:
        """The location of the topics' statistics, if a snapshot was saved with one."""
        return None

    def refreshed(self) -> Catalog:
        """Return the current catalog: list the bucket again and read the metadata anew.

        Index objects that were read before are reused. A catalog from a snapshot returns itself.

        Raises:
            MissingObjectError: The bucket or folder does not exist any more.
            StorageError: The store refused or failed to list the bucket, or to return an index
                object.
        """
        return Catalog.from_options(self._options, earlier=self)

    def relisted(self) -> Catalog:
        """Return a catalog of the current bucket; a snapshot's metadata stays unchanged.

        Lists the bucket once; index objects that were read before are reused.

        Raises:
            MissingObjectError: The bucket or folder does not exist any more.
            StorageError: The store refused or failed to list the bucket, or to return an index
                object.
        """
        return self.refreshed()

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        statistics: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        """Save the catalog as a catalog snapshot, which opens again with one read.

        If there is metadata, it is read for every topic.

        Args:
            path: Path or URL of the file; ends with `.json.gz`. An existing file is replaced.
            statistics: Folder or URL of statistics of these topics, opened with the storage options
                of the catalog. Reads from the snapshot use them unless they name others. None: the
                location that this catalog was saved with.
            storage_options: Options of the fsspec file system of the path.

        Raises:
            OptionError: The path is not one or has another suffix; the catalog is too large for a
                snapshot or has segments of streaming offload (PIP-76); or the folder `statistics`
                does not exist.
            PulsarOffloadError: The metadata or the statistics cannot be read, or the file cannot be
                written.
        """
        path = path_or_url("path", path)
        statistics_location = self.statistics
        if statistics is not None:
            statistics_location = _statistics_location(statistics)
            location = self.location
            open_existing_statistics(statistics, location.storage_options, trace=location.trace)
        # `every_ledger` opens other buckets too, so that they are saved as well.
        source, found = self.source, self.every_ledger()
        schemas: dict[TopicName, bytes] = {}
        if source is not None:
            for error in (each.metadata_error for each in found if each.metadata_error is not None):
                raise error
            bases = {each.topic.classic for each in found if each.metadata or each.node}
            answers = {base: source.schema_source(base) for base in bases}
            schemas = {base: answer for base, answer in answers.items() if answer is not None}
        snapshot = Snapshot(
            self.contents,
            self._other_buckets.contents,
            found,
            source is not None,
            schemas,
            self.scalable_topics.every(),
            tuple(source.warnings) if source is not None else (),
            self.listed_at,
            statistics_location,
        )
        save_snapshot(snapshot, path, storage_options)

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Return the topics, each partition and segment separately, sorted (`TopicName.order`).

        Args:
            namespaces: Namespaces whose topics are needed (`TopicName.full_namespace`); the result
                may also have topics of others. None: all.

        Raises:
            PulsarOffloadError: The metadata or an index object cannot be read.
        """
        return sorted(self._topics(namespaces), key=attrgetter("order"))

    def _topics(self, namespaces: Collection[str] | None) -> set[TopicName]:
        known = self.source.topics(namespaces) if self.source else ()
        segments = self.scalable_topics.topics(namespaces)
        return {*known, *segments, *self._copies.stray_topics(namespaces)}

    def select_names(
        self,
        patterns: str | Sequence[str] | re.Pattern[str],
        additional: Collection[TopicName] = (),
        *,
        segments: SegmentSelection = "current",
        salvage: bool = False,
    ) -> list[TopicName]:
        """Return the topics that names, globs or a regular expression select, in order.

        See `select_topics` and `matching_topics`.

        Args:
            patterns: Names or globs, or a regular expression that full names have to match.
            additional: Topics that exist too, even if the metadata of a scalable topic does not
                name them any more.
            segments: `all` adds segments in the bucket that the metadata does not name.
            salvage: Whether the bucket decides for scalable topics whose metadata is malformed.

        Raises:
            OptionError: A name is not a topic name.
            TopicNotFoundError: A name or glob selects no topic.
            PulsarOffloadError: The metadata or an index object cannot be read.
        """
        namespaces = None if isinstance(patterns, re.Pattern) else namespaces_of(patterns)
        known = self._topics(namespaces) | {*additional}

        members = MemberFinder(
            self.scalable_topics, known, additional=additional, segments=segments, salvage=salvage
        )
        if isinstance(patterns, re.Pattern):
            return matching_topics(patterns, known, members)
        return select_topics(patterns, known, members)

    def every_ledger(self) -> list[TopicLedgers]:
        """Return the ledgers of all topics; reads every index object.

        If a topic's metadata names a copy whose index object names another topic, both have it.

        Raises:
            PulsarOffloadError: The metadata or an index object cannot be read.
        """
        if self._copies.treat_all_as_strays():
            self._ledgers.clear()
        return self.ledgers_of(self.topics())

    def ledgers(self, topic: TopicName) -> TopicLedgers:
        """Return the ledgers of one topic or partition.

        If the metadata of the topic is malformed, the ledgers come from the bucket, and the error
        is one of the problems.

        Raises:
            OptionError: `topic` is not a `TopicName`.
            StorageError: The metadata or an index object cannot be read.
        """
        check_instance(TopicName, "a TopicName, such as one of topics()", "topic", topic)
        (found,) = self.ledgers_of([topic])
        return found

    def ledgers_of(self, topics: Sequence[TopicName]) -> list[TopicLedgers]:
        """Return the ledgers of each topic; several topics are read concurrently.

        Raises:
            StorageError: The metadata or an index object cannot be read.
        """
        new = [topic for topic in topics if topic not in self._ledgers]
        if new:
            self._ledgers |= dict(zip(new, self._lookup.find(new), strict=True))
        return [self._ledgers[topic] for topic in topics]

    def opening(self, topics: Iterable[TopicName]) -> Opening:
        """Return the requests that opening the bucket again and selecting these topics takes.

        Raises:
            StorageError: The metadata or an index object cannot be read.
        """
        known = [each.metadata for each in self.ledgers_of(list(topics))]
        return Opening(
            self.bucket.listing.object_count,
            self.bucket.listing.folder_count,
            tuple(self._copies.prefetch(known)),
            sum(has_ledger_id(each.name) for each in self.bucket.unfinished)
            if None in known
            else 0,
        )

    def cluster(self, topics: Iterable[TopicLedgers] | None = None) -> LiveCluster | None:
        """Return the live cluster to ask about missing ledgers; None if the metadata is not live.

        If `topics` is None, it is asked about all topics that were looked up so far.
        """
        if self.source is None or not self.source.is_live or self._options.metadata is None:
            return None
        known = list(self._ledgers.values()) if topics is None else topics
        return LiveCluster(
            metadata=self._options.metadata,
            metadata_options=self._options.metadata_options,
            topics=frozenset(str(each.topic) for each in known if each.metadata is not None),
        )

    def explain_missing(self) -> AbstractContextManager[None]:
        """Return a context that explains missing objects while topics of this catalog are read.

        See `connector.catalog.live_cluster.explain_missing`.
        """
        return explain_missing(
            self.cluster(), partial(topic_with_ledger, list(self._ledgers.values()))
        )

    def metadata(self, topic: TopicName, *, again: bool = False) -> TopicMetadata | None:
        """Return the metadata of one topic or partition, or None.

        With `again`, a live cluster is asked anew.

        Raises:
            FormatError: The metadata is malformed.
            StorageError: The metadata cannot be read.
        """
        return self.source.topic_metadata(topic, again=again) if self.source else None

    def schema(
        self, topics: Iterable[TopicName], schema_version: int | None = None
    ) -> TopicSchema | None:
        """Return the schema of some topics; None if the metadata has none.

        Args:
            topics: Topics or partitions.
            schema_version: Version whose schema is the reader schema; None for the newest.

        Raises:
            OptionError: The schema is malformed, or there is none of that version; or two topics
                have different schemas, or one of them has none.
            StorageError: The metadata cannot be read.
        """
        if self.source is None:
            return None
        schemas: dict[bytes | None, TopicSchema | None] = {None: None}
        topics_by_schema: dict[TopicSchema | None, TopicName] = {}
        # Pulsar has one schema for a scalable topic and the topic that was migrated to it.
        for base in sorted({topic.classic for topic in topics}, key=str):
            answer = self.source.schema_source(base)
            if answer not in schemas:
                # Answers with equal schemas may differ in the time of registration.
                schemas[answer] = load_schema(answer or b"", schema_version=schema_version)
            topics_by_schema.setdefault(schemas[answer], base)
        if len(topics_by_schema) > 1:
            first, second = (
                f"{topic} ({schema.reader.type if schema else 'none'})"
                for schema, topic in list(topics_by_schema.items())[:2]
            )
            message = (
                f"the topics have different schemas, such as {first} and {second}: read each topic"
                f" separately, or give a schema for all of them, or {option_name('value', 'raw')}"
                " for bytes"
            )
            raise OptionError(message)
        return next(iter(topics_by_schema), None)

    def select(
        self,
        wanted: str | Sequence[str],
        metrics: TopicMetrics | None = None,
        *,
        salvage: bool = False,
        first_ledger_id: int = 0,
        last_ledger_id: int = MAX_LEDGER_ID,
        segments: SegmentSelection = "current",
        more_partitions: MorePartitions | None = None,
    ) -> list[TopicLedgers]:
        """Return the topics that names or globs select, each partition and segment separately.

        Args:
            wanted: Short or full names, or globs.
            metrics: Counts what these topics lack.
            salvage: Whether ledgers that cannot be read are counted instead of raised.
            first_ledger_id: Id of the first requested ledger; faults of other ledgers are ignored.
            last_ledger_id: Id of the last requested ledger (inclusive).
            segments: See `select_names`.
            more_partitions: Returns additional partitions, given `wanted` and the known topics. It
                is set if brokers serve later ledgers (`TopicLedgers.without_broker_ledgers`).

        Raises:
            OptionError: A value of `wanted` is not a topic name.
            TopicNotFoundError: A name or glob selects no topic. The message lists similar names,
                and unsound ledgers whose topic is unknown, because the topic may be this one.
            PulsarOffloadError: The metadata cannot be read; or a ledger of these topics, or one
                whose topic is unknown, is unsound.
        """
        try:
            known = self._topics(namespaces_of(wanted))
            if more_partitions is not None:
                known |= set(more_partitions(wanted, known))
            members = MemberFinder(self.scalable_topics, known, segments=segments, salvage=salvage)
            topics = select_topics(wanted, known, members)
            ledgers = self.ledgers_of(topics)
        except TopicNotFoundError as not_found:
            not_found.message += f"; {describe_contents(self.bucket)}"
            unsound = self.unattributed_errors()
            if not unsound:
                raise
            do = agreeing(len(unsound), "ledger does not name its", "ledgers do not name their")
            not_found.message += f"; {len(unsound)} unsound {do} topic, the first: {unsound[0]}"
            raise TopicNotFoundError(not_found.message) from unsound[0]
        counted = TopicMetrics() if metrics is None else metrics
        requested_ids = range(first_ledger_id, last_ledger_id + 1)
        if more_partitions is not None:
            ledgers = [each.without_broker_ledgers() for each in ledgers]
        if salvage:
            counted.substituted_ledgers += sum(len(each.substitutes) for each in ledgers)
            ledgers = [each.salvaged() for each in ledgers]
        count_read_gaps(
            self.bucket,
            self.source,
            self.unfinished,
            ledgers,
            counted,
            requested_ids=requested_ids,
            unattributed_errors=self.unattributed_errors,
            salvage=salvage,
        )
        members.count_gaps(topics, counted)
        return ledgers

    def analyze(
        self,
        statistics: str | os.PathLike[str],
        topics: str | Sequence[str] = "*",
        *,
        storage_options: Mapping[str, object] | None = None,
        progress: Callable[[Analyzed], None] = lambda _: None,
        executor: Analyzer = analyze,
    ) -> list[Analyzed]:
        """Read the ledgers of topics that statistics lack, and add them to the statistics.

        Ledgers are read whole, in as many threads as there are cores. Only whole ledgers are
        written, so a run that is killed can be repeated and continues after them. Several runs may
        write at once.

        Args:
            statistics: Folder or URL of the statistics; it need not exist.
            topics: Short or full names, or globs.
            storage_options: Options of the folder's file system; None: those of the catalog.
            progress: Called after each ledger that was read.
            executor: Reads the ledgers and writes the statistics.

        Returns:
            One result per ledger, in the order in which they were read. Entries that could not be
            read are among the `losses` of their ledger; reads of the topic report them as before.

        Raises:
            OptionError: The folder cannot be written to, or a value is not a topic name.
            TopicNotFoundError: A name or glob selects no topic.
            PulsarOffloadError: The catalog or its metadata cannot be read.
            TrimmedEntriesError: The cluster trimmed a ledger before it was read. Ledgers that were
                read before are written.
            StorageError: All attempts of a request failed. Ledgers that were read before are
                written.
        """
        options = self.location.storage_options if storage_options is None else storage_options
        known = open_statistics(statistics, options)
        found = self.select(topics, salvage=True)
        pending = [
            (str(each.topic), ledger)
            for each in found
            for ledger in unknown_ledgers(known, str(each.topic), each.data)
        ]
        results: list[Analyzed] = []

        def report(each: Analyzed) -> None:
            results.append(each)
            progress(each)

        executor(known, pending, report, partial(explain_missing_in_topic, self.cluster(found)))
        return results

    def unattributed_errors(self) -> list[PulsarOffloadError]:
        """Return the errors of ledgers whose topic is unknown: each may belong to any topic.

        Raises:
            StorageError: The store refused or failed to return an index object.
        """
        strays = self._copies.strays_without_topic()
        shares = [copy for copy in strays if copy.is_shared]
        newest = {copy.name.ledger_id: copy for copy in reversed(strays) if copy not in shares}
        copies = self.bucket.copies_of(newest)
        sound = {copy.name.ledger_id for copy in copies if copy.ledger is not None}
        errors = [
            copy.error
            for ledger_id, copy in newest.items()
            if ledger_id not in sound and copy.error is not None
        ]
        broken = (each.error for each in self.bucket.shared_pairs if each.error and not each.copies)
        share_by_ledger = {each.name.ledger_id: each for each in shares}
        return [*errors, *map(unattributed_error, share_by_ledger.values()), *broken]
