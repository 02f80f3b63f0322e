"""Checks and steps for attaching a topic that was written without a broker to a cluster.

The cluster is queried over its admin API, and nothing is changed. docs/attach.md describes what can
go wrong, as observed with Pulsar 4.0.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from arrow_io.storage.store_kinds import prefix_in_store
from connector.catalog.ledger_origin import recorded_cluster
from connector.catalog.schemas.answers import registered_versions, schemas_json
from connector.catalog.schemas.loading import load_schema
from connector.upkeep.forecast.policy import Action, apply_policy
from connector.upkeep.forecast.policy_settings import OffloadPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.catalog.catalog import Catalog
    from connector.catalog.metadata.admin_client import AdminApi
    from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import TopicName

_CONFIGURATION: Final = ("brokers", "configuration", "runtime")
_STORES: Final = ("brokers", "internal-configuration")


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    PROBLEM = "problem"
    """The topic or some of its messages would be lost or unreadable."""
    UNKNOWN = "unknown"
    """The available answers do not decide it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One precondition of attaching a topic: its name, the result of the check, and the reason."""

    subject: str
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """The checks before attaching a topic, and the instructions and commands that attach it."""

    checks: tuple[Check, ...]
    steps: tuple[str, ...]

    @property
    def has_problems(self) -> bool:
        """Whether the topic or some of its messages would be lost or unreadable."""
        return any(each.verdict is Verdict.PROBLEM for each in self.checks)


def check_attachment(catalog: Catalog, name: str, cluster: AdminApi, *, now_ms: int) -> Attachment:
    """Check a topic and the cluster that it is to be attached to.

    The catalog has the metadata that was written with the topic. `now_ms` is the current time, in
    ms since the epoch.

    Raises:
        OptionError: The name selects several topics, or the metadata lacks the topic.
        TopicNotFoundError: The name selects no topic.
        PulsarOffloadError: The bucket or the metadata cannot be read.
        StorageError: The cluster cannot be reached, or refuses to list its topics.
    """
    # `salvage` only makes `select` tolerant: the ledgers are read without it.
    topics = catalog.ledgers_of([each.topic for each in catalog.select(name, salvage=True)])
    bases = {each.topic.base for each in topics}
    is_refused = any(each.metadata is None or each.topic.is_scalable for each in topics)
    if len(bases) > 1 or is_refused:
        message = (
            f"{name} must select one persistent topic, with the metadata that was written with it"
        )
        raise OptionError(message)
    (base,) = bases
    schema = catalog.schema([base])
    settings = _Settings.from_cluster(cluster, base)
    checks = (
        *_check_topic(catalog, topics),
        _check_absence(cluster, base),
        *_check_ledger_ids(cluster, topics),
        _check_cluster_name(settings, topics),
        *settings.checks(topics, now_ms),
        _check_schema(cluster, base, schema),
    )
    return Attachment(checks, tuple(_steps(cluster, base, topics, schema)))


def _infos(topics: Sequence[TopicLedgers]) -> list[LedgerInfo]:
    return [info for each in topics if each.metadata for info in each.metadata.ledgers]


def _check_topic(catalog: Catalog, topics: Sequence[TopicLedgers]) -> Iterator[Check]:
    problems = [str(error) for each in topics for error in each.problems]
    problems += [
        f"ledger {ledger.ledger_id} of {each.topic} is only in BookKeeper"
        for each in topics
        for ledger in each.pending
    ]
    problems += [
        f"ledger {ledger.ledger_id} of {each.topic} is in the bucket, but the metadata does not"
        " list it as offloaded"
        for each in topics
        for ledger in each.unread
        if ledger.state.is_stray
    ]
    count = sum(len(each.ledgers) for each in topics)
    text = f"{counted(count, 'ledger')} of the metadata can be read"
    yield _make_check("ledgers", problems[:1], text)
    numbers = sorted(each.topic.partition for each in topics)
    is_whole = numbers in ([-1], [*range(len(numbers))])
    text = "not partitioned" if numbers == [-1] else counted(len(numbers), "partition")
    lacking = f"only the partitions {', '.join(map(str, numbers))} exist"
    yield _make_check("partitions", [] if is_whole else [lacking], text)
    offloads = [info.offload for info in _infos(topics) if info.offload]
    url = catalog.location.url
    bucket, prefix = url.partition("://")[2].partition("/")[0], prefix_in_store(url)
    problems = []
    if any(each.driver is None for each in offloads):
        problems.append("no broker can read the location of the ledgers: write them to a bucket")
    elif prefix:
        problems.append(f"brokers read the root of a bucket, but the ledgers are below {prefix}")
    # In Azure's URLs, the account follows the container.
    problems += [
        f"brokers will read the bucket {each}, which the metadata names, and not {bucket}"
        for each in sorted({str(each.bucket) for each in offloads})
        if each != bucket.partition("@")[0]
    ]
    yield _make_check(
        "bucket", problems, "the ledgers are at the root of the bucket that they name"
    )


def _check_absence(cluster: AdminApi, base: TopicName) -> Check:
    existing = [each for each in cluster.topics([base.full_namespace]) if each.base == base]
    problems = [f"the cluster has {existing[0]}"] if existing else []
    answer = cluster.answer(
        "persistent", *base.full_namespace.split("/"), base.local_name, "partitions"
    )
    if not problems and answer is not None and answer.get("partitions"):
        problems = [f"the cluster has {counted(_number(answer['partitions']), 'partition')} of it"]
    return _make_check("topic", problems, "the cluster does not have it")


def _check_ledger_ids(cluster: AdminApi, topics: Sequence[TopicLedgers]) -> Iterator[Check]:
    own = [info.ledger_id for info in _infos(topics)]
    try:
        owners = cluster.ledger_owners()
    except (StorageError, CorruptMetadataError) as error:
        yield Check(
            "ledger ids", Verdict.UNKNOWN, f"not all topics of the cluster can be checked: {error}"
        )
        return
    problems = [f"{owners[each]} has ledger {each}" for each in own if each in owners]
    if len(own) != len(set(own)):
        problems.append("two partitions have a ledger of the same id")
    yield _make_check(
        "ledger ids", problems[:1], "no topic of the cluster has a ledger of these ids"
    )
    last, greatest = max(own, default=-1), max(owners, default=-1)
    is_below = last < greatest
    text = f"ledger {greatest} of {owners.get(greatest)} has a higher id than all of these"
    if not is_below:
        text = (
            f"it is unknown whether BookKeeper has assigned the id {last} yet: if not, the ledgers"
            " are lost at once"
        )
    yield Check("next ledger id", Verdict.OK if is_below else Verdict.UNKNOWN, text)


def _check_cluster_name(settings: _Settings, topics: Sequence[TopicLedgers]) -> Check:
    copies = (state.copy for each in topics for state in each.states)
    ledgers = (copy.ledger for copy in copies if copy is not None)
    named = {recorded_cluster(ledger.user_metadata) for ledger in ledgers if ledger is not None}
    own = settings.configuration.get("clusterName")
    if own is None:
        return settings.unknown_check("cluster", "the cluster does not report its name")
    if None in named:
        text = "the objects name no cluster: an audit cannot tell which cluster owns them"
        return Check("cluster", Verdict.UNKNOWN, text)
    problems = [
        f"the objects name the cluster {other!r}, not {own!r}"
        for other in sorted(each for each in named - {own} if each is not None)
    ]
    return _make_check("cluster", problems, f"the objects name the cluster {own!r}")


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of the brokers and policies of the namespace."""

    namespace: str
    policies: Mapping[str, object] | None
    configuration: Mapping[str, object]
    refusals: tuple[str, ...]
    """Errors of the requests that the cluster refused."""

    @classmethod
    def from_cluster(cls, cluster: AdminApi, base: TopicName) -> _Settings:
        """Request the settings. Those that the cluster refuses to return are unknown."""
        refusals: list[str] = []
        policies = _request_json(cluster, ("namespaces", *base.full_namespace.split("/")), refusals)
        configuration = None
        if not refusals:
            # Policies override the brokers' configuration, which means nothing without them.
            configuration = _request_json(cluster, _CONFIGURATION, refusals)
        return cls(base.full_namespace, policies, configuration or {}, tuple(refusals))

    def checks(self, topics: Sequence[TopicLedgers], now_ms: int) -> Iterator[Check]:
        if self.policies is None and not self.refusals:
            text = f"the cluster has no namespace {self.namespace}"
            yield Check("namespace", Verdict.PROBLEM, text)
            return
        yield self._check_driver(topics)
        yield self._check_retention(topics, now_ms)

    def unknown_check(self, subject: str, text: str) -> Check:
        """Return a check with an unknown result, and the cluster's error if there was one."""
        return Check(subject, Verdict.UNKNOWN, next(iter(self.refusals), text))

    def _check_driver(self, topics: Sequence[TopicLedgers]) -> Check:
        drivers = {info.offload.driver for info in _infos(topics) if info.offload}
        own = {each for each in drivers if each is not None}
        policy_driver = _mapping(self.policies, "offload_policies").get(
            "managedLedgerOffloadDriver"
        )
        driver = policy_driver or self.configuration.get("managedLedgerOffloadDriver")
        if not self.configuration and driver is None:
            return self.unknown_check("offload driver", "the brokers do not report theirs")
        problems = [
            f"the brokers use {driver or 'none'}, the ledgers need {each}"
            for each in sorted(own - {driver})
        ]
        return _make_check("offload driver", problems, f"{driver}")

    def _check_retention(self, topics: Sequence[TopicLedgers], now_ms: int) -> Check:
        retention = _mapping(self.policies, "retention_policies")
        names = ("retentionTimeInMinutes", "retentionSizeInMB")
        settings = {name: retention.get(name) for name in names}
        if not retention:
            defaults = ("defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB")
            settings = {name: self.configuration.get(name) for name in defaults}
        if None in settings.values():
            return self.unknown_check("retention", "the brokers do not report their default")
        try:
            policy = OffloadPolicy.parse(settings)
        except OptionError as error:
            return self.unknown_check("retention", str(error))
        metadata_list = [each.metadata for each in topics if each.metadata is not None]
        trims = [
            trim for metadata in metadata_list for trim in _find_trims(metadata, policy, now_ms)
        ]
        settings_text = ", ".join(f"{name} {value}" for name, value in settings.items())
        problems = [
            f"{counted(len(trims), 'ledger')} would be deleted once consumed ({settings_text})"
        ]
        return _make_check("retention", problems if trims else [], settings_text)


def _find_trims(metadata: TopicMetadata, policy: OffloadPolicy, now_ms: int) -> list[int]:
    """Return the ledgers that a broker deletes once every subscription has read them."""
    fates = apply_policy(metadata, policy, at_ms=now_ms)
    return [each.ledger_id for each in fates if each.action is Action.TRIM and each.is_due]


def _check_schema(cluster: AdminApi, base: TopicName, schema: TopicSchema | None) -> Check:
    versions = registered_versions(schema)
    answer = cluster.schema_source(base)
    cluster_versions = None if answer is None else registered_versions(load_schema(answer))
    problems = []
    if [number for number, _ in versions] != [*range(len(versions))]:
        problems.append("the versions do not start at 0, or one is missing: they cannot be posted")
    elif cluster_versions and cluster_versions != versions:
        problems.append(
            f"the cluster has {counted(len(cluster_versions), 'version')} of another schema"
        )
    text = (
        "the cluster has the same"
        if cluster_versions
        else f"{counted(len(versions), 'version')} to post"
    )
    return _make_check("schema", problems, text if versions else "none")


def _steps(
    cluster: AdminApi,
    base: TopicName,
    topics: Sequence[TopicLedgers],
    schema: TopicSchema | None,
) -> Iterator[str]:
    """Yield the steps that docs/attach.md describes."""
    stores = _request_json(cluster, _STORES, []) or {}
    store = stores.get("metadataStoreUrl") or "the metadata store"
    yield (
        "set retention, before anything is consumed: pulsar-admin namespaces set-retention"
        f" {shlex.quote(base.full_namespace)} --time -1 --size -1"
    )
    if topics[0].topic.partition >= 0:
        store_path = f"/admin/partitioned-topics/{base.managed_ledger_name}"
        yield f"in {store}, create {store_path} with {json.dumps({'partitions': len(topics)})}"
    for each in topics:
        store_path = f"/managed-ledgers/{each.topic.managed_ledger_name}"
        yield f"in {store}, create {store_path} with the managed-ledger-info.bin of {each.topic}"
    names = (*base.full_namespace.split("/"), base.local_name)
    path = "/".join(quote(each, safe="") for each in names)
    answer = json.loads(schemas_json(schema, timestamp_ms=0)) if schema else {}
    for version in answer.get("getSchemaResponses", ()):
        body = {name: version[key] for name, key in _SCHEMA_BODY.items()}
        yield (
            f"post schema version {version['version']}: curl -X POST"
            " -H 'Content-Type: application/json'"
            f" -d {shlex.quote(json.dumps(body))} {cluster.url}/admin/v2/schemas/{path}/schema"
        )
    yield f"check it: pulsar-admin topics stats-internal {shlex.quote(str(topics[0].topic))}"


_SCHEMA_BODY: Final = {"type": "type", "schema": "data", "properties": "properties"}


def _request_json(
    cluster: AdminApi, path: tuple[str, ...], refusals: list[str]
) -> Mapping[str, object] | None:
    try:
        return cluster.answer(*path)
    except (StorageError, CorruptMetadataError) as error:
        refusals.append(str(error))
        return None


def _make_check(subject: str, problems: Sequence[str], text: str) -> Check:
    if problems:
        return Check(subject, Verdict.PROBLEM, problems[0])
    return Check(subject, Verdict.OK, text)


def _mapping(mapping: Mapping[str, object] | None, name: str) -> Mapping[str, object]:
    value = (mapping or {}).get(name)
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
