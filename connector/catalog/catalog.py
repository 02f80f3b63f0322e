"""Which ledgers make a topic, in order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import FormatError, MissingObjectError, TopicNotFoundError
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY
from arrow_io.read_report import ReadReport, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import DEFAULT_RANGE_BYTES
from connector.catalog.bucket import BucketContents, LedgerCopy, read_bucket, streaming_error
from connector.topic_name import TopicName, select_topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.object_names import LedgerObjectName
    from arrow_io.ledger_reader import OffloadedLedger
    from arrow_io.storage.trace import RequestTrace


@dataclass(frozen=True)
class TopicLedgers:
    """One topic, or one partition of a partitioned topic, and its offloaded ledgers.

    Attributes:
        topic: The topic, with its partition.
        ledgers: Sound ledgers, ascending by ledger id; one copy each.
        problems: What is wrong with ledgers of which no copy is sound.
        cut: Those of them with which nothing is wrong but that the data object is cut.
    """

    topic: TopicName
    ledgers: tuple[OffloadedLedger, ...]
    problems: tuple[PulsarOffloadError, ...] = ()
    cut: tuple[OffloadedLedger, ...] = ()

    def salvaged(self) -> TopicLedgers:
        """The same topic, to be read as far as its data objects go."""
        cut = {ledger.ledger_id for ledger in self.cut}
        ledgers = sorted((*self.ledgers, *self.cut), key=lambda ledger: ledger.ledger_id)
        lost = tuple(error for error in self.problems if error.ledger_id not in cut)
        return TopicLedgers(self.topic, tuple(ledgers), lost)


class Catalog:
    """The topics of a bucket, found from the bucket alone.

    Where a ledger lies in the bucket under several uuids, the newest copy whose index object is
    sound is taken (the index object is written last).
    """

    def __init__(
        self,
        contents: BucketContents,
        *,
        location: Location,
        range_bytes: int = DEFAULT_RANGE_BYTES,
        trace: RequestTrace | None = None,
    ) -> None:
        self.location = location
        self.contents = contents
        self._range_bytes = range_bytes
        self._trace = trace
        self._topics = _by_topic(contents)
        self._owners: dict[LedgerObjectName, TopicName | None] = {}

    def refreshed(self) -> Catalog:
        """The catalog as it is now: one listing, and one request for each new index object."""
        contents = read_bucket(
            self.location,
            range_bytes=self._range_bytes,
            trace=self._trace,
            known=self.contents,
        )
        return Catalog(
            contents, location=self.location, range_bytes=self._range_bytes, trace=self._trace
        )

    def topics(self) -> list[TopicName]:
        """All topics, partitions each by itself, by name and partition number."""
        return sorted(self._topics, key=lambda topic: (str(topic.base), topic.partition))

    def ledgers(self, topic: TopicName) -> TopicLedgers:
        """The ledgers of one topic or partition."""
        return self._topics[topic]

    def select(
        self, wanted: str | Sequence[str], report: ReadReport | None = None
    ) -> list[TopicLedgers]:
        """The topics that names or globs select, partitions each by itself.

        Args:
            wanted: Short or full names, or globs.
            report: Counts ledgers that cannot be read, if it is salvaging; by default they are
                errors.

        Raises:
            TopicNotFoundError: A name or glob selects none; names near it are listed, and a ledger
                whose topic cannot be told, which may be of this one.
            PulsarOffloadError: A ledger of these topics, or one whose topic cannot be told, is
                unsound.
        """
        try:
            chosen = [self._topics[topic] for topic in select_topics(wanted, self._topics)]
        except TopicNotFoundError as not_found:
            unsound = self.unattributed()
            if not unsound:
                raise
            message = (
                f"{not_found.message}; {len(unsound)} unsound ledgers do not tell their topic, the"
                f" first: {unsound[0]}"
            )
            raise TopicNotFoundError(message) from unsound[0]
        counted = report or ReadReport()
        if counted.salvage:
            chosen = [each.salvaged() for each in chosen]
        for each in chosen:
            for error in each.problems:
                counted.lose(Unit.LEDGER, error)
        for error in self.unattributed():
            counted.lose(Unit.LEDGER, error)
        self._tell_unfinished(chosen, counted)
        return chosen

    def _tell_unfinished(self, chosen: Sequence[TopicLedgers], report: ReadReport) -> None:
        """Offloads with no index object: the last may be under way, one between is missing."""
        copies = self.contents.copies
        sound = {(copy.topic, copy.name.ledger_id) for copy in copies if copy.ledger is not None}
        # An offload of which nothing tells the topic may be of any that has the ledger.
        sound |= {(None, ledger_id) for _, ledger_id in sound}
        last: dict[TopicName | None, int] = {
            each.topic: max((ledger.ledger_id for ledger in each.ledgers), default=-1)
            for each in chosen
        }
        last[None] = -1
        for name in self.contents.unfinished:
            try:
                owner = self._owner(name)
            except MissingObjectError:
                # Deleted since the bucket was listed.
                continue
            if owner not in last or (owner, name.ledger_id) in sound:
                continue
            if name.ledger_id < last[owner]:
                message = "the data object is there, its index object is not"
                error = MissingObjectError(
                    message, object_key=name.index_name, ledger_id=name.ledger_id
                )
                report.lose(Unit.LEDGER, error)
            else:
                report.unfinished_ledgers += 1

    def _owner(self, name: LedgerObjectName) -> TopicName | None:
        """The topic of an unfinished offload, by the user metadata of its data object."""
        if name not in self._owners:
            metadata = self.location.user_metadata(name.data_name, trace=self._trace) or {}
            self._owners[name] = _topic(metadata.get(MANAGED_LEDGER_NAME_KEY))
        return self._owners[name]

    def unattributed(self) -> list[PulsarOffloadError]:
        """What is wrong with ledgers that may belong to any topic, because nothing tells which."""
        sound = {copy.name.ledger_id for copy in self.contents.copies if copy.ledger is not None}
        errors = [
            copies[0].error
            for (topic, ledger_id), copies in _by_ledger(self.contents).items()
            if topic is None and ledger_id not in sound and copies[0].error is not None
        ]
        if self.contents.streaming:
            errors.append(streaming_error(self.contents.streaming))
        return errors


def open_catalog(
    url: str,
    *,
    storage_options: Mapping[str, object] | None = None,
    range_bytes: int = DEFAULT_RANGE_BYTES,
    trace: RequestTrace | None = None,
) -> Catalog:
    """Find the topics of a bucket: one listing, and one request for each index object.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows.
        storage_options: Options of the fsspec file system.
        range_bytes: Most bytes that one request for data will ask for.
        trace: Counts the requests.

    Raises:
        StorageError: The bucket cannot be read.
    """
    location = Location(url, storage_options)
    contents = read_bucket(location, range_bytes=range_bytes, trace=trace)
    return Catalog(contents, location=location, range_bytes=range_bytes, trace=trace)


def _topic(managed_ledger: str | None) -> TopicName | None:
    """The topic of a managed ledger; None where the name is none of a topic."""
    try:
        return TopicName.from_managed_ledger_name(managed_ledger) if managed_ledger else None
    except FormatError:
        return None


def _by_ledger(contents: BucketContents) -> dict[tuple[TopicName | None, int], list[LedgerCopy]]:
    """Copies, newest first, of each ledger of each topic; two clusters may share a bucket."""
    grouped = defaultdict(list)
    for copy in contents.copies:
        grouped[copy.topic, copy.name.ledger_id].append(copy)
    return grouped


def _by_topic(contents: BucketContents) -> dict[TopicName, TopicLedgers]:
    ledgers: dict[TopicName, list[OffloadedLedger]] = defaultdict(list)
    problems: dict[TopicName, list[PulsarOffloadError]] = defaultdict(list)
    cut: dict[TopicName, list[OffloadedLedger]] = defaultdict(list)
    for (topic, _), copies in _by_ledger(contents).items():
        if topic is None:
            continue
        sound = next((copy.ledger for copy in copies if copy.ledger is not None), None)
        if sound is not None:
            ledgers[topic].append(sound)
        else:
            problems[topic].extend(copy.error for copy in copies[:1] if copy.error is not None)
            cut[topic].extend(copy.cut for copy in copies[:1] if copy.cut is not None)
    return {
        topic: TopicLedgers(topic, tuple(ledgers[topic]), tuple(problems[topic]), tuple(cut[topic]))
        for topic in {**ledgers, **problems}
    }
