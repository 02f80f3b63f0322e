"""`replay_topic`: send an offloaded topic to a live topic, each message exactly once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, get_args

from arrow_io.core.option_values import check_flag, check_one_of
from arrow_io.errors import OptionError
from connector.catalog.opening import open_catalog
from connector.catalog.registry.registry import RegistryPlace
from connector.increments.increment import Increments
from connector.inputs.topic_names import TopicName, owning_topics
from connector.live.broker import Brokers
from connector.options.option import selected_options, takes_options
from connector.options.topic_request import (
    FIXED_BY_REPLAY,
    OPTIONS,
    TopicRequest,
    check_options,
    check_with_catalog,
)
from connector.options.write_request import Compression
from connector.replay.in_flight import InFlight
from connector.replay.outgoing import check_carried, sent_columns
from connector.replay.pace import Pace
from connector.replay.partition_replay import PartitionReplay, ReplaySummary
from connector.replay.producer_schemas import ProducerSchemas
from connector.replay.routes import Routes
from connector.replay.sender import SenderContext
from connector.scan.execution import warn_incomplete
from connector.topic import open_request, read_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.catalog.catalog import Catalog
    from connector.catalog.topic_ledgers import TopicLedgers

_DEFAULT_ID: Final = "pulsar-offload"
_ID_TEXT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a first replay of one topic partition would read now.

    Attributes:
        topic: The topic or partition.
        ledgers: Number of ledgers to read.
        data_bytes: Bytes of data objects to read, in whole blocks.
        lag_bytes: Bytes in the bucket that cannot be replayed yet.
        notices: One sentence for each fact that the user must know.
    """

    topic: str
    ledgers: int
    data_bytes: int
    lag_bytes: int
    notices: tuple[str, ...]


@takes_options(OPTIONS, secrets=("to_options",))
def replay_topic(
    url: str,
    topic: str,
    *,
    to: str,
    to_topic: str | None = None,
    to_options: Mapping[str, object] | None = None,
    by_key: bool = False,
    keep_batches: bool = False,
    carry: Sequence[str] = (),
    compression: Compression = "lz4",
    rate: float | None = None,
    replay_id: str | None = None,
    on_progress: Callable[[int], object] | None = None,
    on_partition: Callable[[ReplaySummary], object] | None = None,
    **topic_options: Any,  # noqa: ANN401 - those of `open_topic`
) -> list[ReplaySummary]:
    """Send the offloaded messages of a topic to a live topic.

    The replay preserves values, keys, ordering keys, properties, event times, null values, schemas,
    and the order within a partition. Publish times and message ids are new. The target's brokers
    must have deduplication enabled. Then each message is sent exactly once, however often a run is
    stopped or repeated. Partitions are replayed one after another. A segment of a scalable topic
    waits until the segments before it that share keys with it are offloaded and sent.

    Args:
        url: See `open_topic`.
        topic: Name of the topic, or of one partition.
        to: URL of the brokers, `pulsar://host:6650` or `pulsar+ssl://host:6651`.
        to_topic: Name of the target topic. None uses the name of the source topic.
        to_options: How to connect to the brokers (`connector.live.broker.LiveOptions`).
        by_key: Whether a message's key chooses its partition, as in Pulsar's producers. Otherwise
            each partition is sent to the target partition of the same number, which must exist.
        keep_batches: Whether each entry is sent as one batch. Otherwise batches are filled up.
        carry: Columns to send as properties, among `connector.replay.outgoing.CARRYABLE_COLUMNS`:
            `__publish_time__` as `pulsar-offload.publish-time`, and so on.
        compression: Codec of the batches: `none`, `lz4`, `zlib`, `zstd` or `snappy`.
        rate: Maximum number of messages per second. None: unlimited.
        replay_id: Identifies this replay in the target. Messages that were replayed under an id are
            not sent again under it. None: the source topic's name is the only identification.
        on_progress: Called with the number of messages of the current partition that were sent.
        on_partition: Called with the summary of each partition as soon as it is finished.
        topic_options: Options of `open_topic`, except those that control how rows look. `start` and
            `end` bound what is replayed.

    Returns:
        The summary of each partition.

    Raises:
        OptionError: An option is not allowed, a library is not installed, or the target lacks a
            partition of the source.
        TopicNotFoundError: There is no such topic.
        BrokerError: The brokers cannot be reached, refuse a request, or do not deduplicate.
        PulsarOffloadError: Data cannot be read. Messages that were sent remain, and the next run
            resumes after them.
    """
    request = ReplayRequest(**selected_options(ReplayRequest.__dataclass_fields__, locals()))
    return request.replay(on_progress or _ignore, on_partition or _ignore)


@takes_options(OPTIONS)
def plan_replay(url: str, topic: str, **topic_options: Any) -> list[ReplayPlan]:  # noqa: ANN401
    """Return what a first replay of a topic would read now, for each partition; contact no broker.

    Arguments are those of `replay_topic`.

    Raises:
        PulsarOffloadError: See `replay_topic`, for errors that occur before data is read.
    """
    source = _Source.open(url, topic, topic_options)
    plans = []
    for each in source.partitions:
        increment = PartitionReplay(
            topic=each, increments=source.increments(each, ()), targets=(), name=""
        ).increment()
        plans.append(
            ReplayPlan(
                str(each.topic),
                increment.ledgers,
                increment.data_bytes,
                increment.lag.data_bytes,
                increment.notices,
            )
        )
    return plans


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The arguments of `replay_topic`."""

    url: str
    topic: str
    to: str
    to_topic: str | None = None
    to_options: Mapping[str, object] | None = field(default=None, repr=False)
    by_key: bool = False
    keep_batches: bool = False
    carry: Sequence[str] = ()
    compression: Compression = "lz4"
    rate: float | None = None
    replay_id: str | None = None
    topic_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def replay(
        self, on_progress: Callable[[int], object], on_partition: Callable[[ReplaySummary], object]
    ) -> list[ReplaySummary]:
        """Run the replay; see `replay_topic`."""
        check_flag("by_key", self.by_key)
        check_flag("keep_batches", self.keep_batches)
        check_one_of(get_args(Compression), "compression", self.compression)
        carried, pace, replay_id = check_carried(self.carry), Pace(self.rate), self._checked_id()
        target = (
            None if self.to_topic is None else TopicName.parse_persistent(self.to_topic, "a replay")
        )
        brokers = Brokers.from_options(self.to, self.to_options or {})
        source = _Source.open(self.url, self.topic, self.topic_options)
        schemas = ProducerSchemas(source.schema())
        summaries = []
        with brokers.connect() as client:
            context = SenderContext(
                client,
                InFlight(brokers.options.timeout_s),
                pace,
                schemas,
                self.compression,
                self.keep_batches,
            )
            routes = Routes(
                client.partitions(source.base if target is None else target), self.by_key
            )
            # Check all partitions before anything is sent.
            targets = [routes.targets_for(each.topic) for each in source.partitions]
            unfinished: list[TopicLedgers] = []
            for each, chosen in zip(source.partitions, targets, strict=True):
                first = next((one for one in unfinished if one.topic.precedes(each.topic)), None)
                if first is not None:
                    summary = _skipped(each, chosen, first)
                    summaries.append(summary)
                    on_partition(summary)
                    unfinished.append(each)
                    continue
                one = PartitionReplay(
                    topic=each,
                    increments=source.increments(each, sent_columns(carried)),
                    targets=chosen,
                    name=f"{replay_id}:{each.topic}{':by-key' if self.by_key else ''}",
                    carried=carried,
                )
                summary = one.replay(context, on_progress)
                summary.notices += schemas.notices()
                if each.may_grow or summary.lag_bytes:
                    unfinished.append(each)
                summaries.append(summary)
                on_partition(summary)
                warn_incomplete(summary.metrics, summary.topic)
        return summaries

    def _checked_id(self) -> str:
        if self.replay_id is None:
            return _DEFAULT_ID
        if not _ID_TEXT.fullmatch(str(self.replay_id)):
            message = (
                "replay_id must be at most 200 letters, digits, dots, hyphens and underscores, and"
                f" start with a letter or digit, not {self.replay_id!r}"
            )
            raise OptionError(message)
        return self.replay_id


@dataclass(frozen=True)
class _Source:
    """The source topic, opened."""

    catalog: Catalog
    url: str
    request: TopicRequest
    partitions: Sequence[TopicLedgers]

    @classmethod
    def open(cls, url: str, topic: object, options: Mapping[str, Any]) -> _Source:
        """Open the topic. Raises if an option is not allowed, or the name selects several."""
        check_options(options)
        refused = [name for name in FIXED_BY_REPLAY if name in options]
        if refused:
            message = f"a replay has no option {refused[0]}: messages are sent unchanged"
            raise OptionError(message)
        if not isinstance(topic, str):
            message = f"one topic is replayed at a time: pass its name, not {topic!r}"
            raise OptionError(message)
        request = TopicRequest(**options)
        check_with_catalog(url, request)
        catalog = request.catalog or open_catalog(url, **request.catalog_options())
        matches = catalog.select(
            topic, salvage=request.on_corruption == "salvage", segments=request.segments
        )
        bases = dict.fromkeys(owning_topics(each.topic for each in matches).values())
        if len(bases) > 1:
            names = ", ".join(map(str, bases))
            message = f"one topic is replayed at a time, and {topic!r} selects {names}"
            raise OptionError(message)
        return cls(catalog, url, request, matches)

    @property
    def base(self) -> TopicName:
        return self.partitions[0].topic.classic

    def schema(self) -> TopicSchema | None:
        """Return the topic's schemas, or None if none is available."""
        options = self.catalog.location.storage_options
        if RegistryPlace.parse(self.request.schema) is not None:
            message = "messages cannot be replayed with schemas of a registry: leave out schema"
            raise OptionError(message)
        schema = read_schema(self.request.schema, self.request.schema_version, options)
        if schema is None:
            schema = self.catalog.schema([self.base], self.request.schema_version)
        return schema

    def increments(self, partition: TopicLedgers, columns: Sequence[str]) -> Increments:
        """Return the settled entries of a partition, as increments."""
        request = replace(self.request, catalog=self.catalog, value="raw", columns=tuple(columns))
        name = str(partition.topic)
        scan = open_request(self.url, name, request).scan
        return Increments(self.catalog, [name], scan.options, scan.statistics, may_end=True)


def _skipped(
    topic: TopicLedgers, targets: Sequence[TopicName], first: TopicLedgers
) -> ReplaySummary:
    """Return the summary of a segment that has to wait for one before it."""
    notice = f"nothing is sent before all messages of {first.topic} are offloaded and sent"
    return ReplaySummary(str(topic.topic), tuple(map(str, targets)), notices=[notice])


def _ignore(_: object) -> None:
    """Do nothing: the default callback."""
