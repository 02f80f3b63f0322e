"""Topic names: their forms in Pulsar and in managed ledgers, and selection by name or glob.

Pulsar's `TopicName` and `Codec` define these forms:

============================ ================================================================
Form                         Example
============================ ================================================================
short                        `orders`, which is in `public/default`
with tenant and namespace    `sales/eu/orders`
full                         `persistent://sales/eu/orders`
full, with a cluster         `persistent://sales/cluster/eu/orders` (Pulsar's first version)
one partition                any of these, followed by `-partition-2`
managed ledger               `sales/eu/persistent/orders`, the local name URL-encoded;
                             with a cluster `sales/cluster/eu/persistent/orders`
scalable topic               `topic://sales/eu/orders` (Pulsar 5.0)
one segment of it            `segment://sales/eu/orders/0000-7fff-1` (`SegmentTopicName`)
managed ledger of a segment  `sales/eu/segment/orders/0000-7fff-1`
============================ ================================================================

A scalable topic has no managed ledger of its own. If a topic was migrated, the `topic://` and the
`persistent://` topic of the same name are one topic, whose history begins in the latter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import quote_plus, unquote_plus

from arrow_io.errors import FormatError, OptionError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    Members: TypeAlias = "Callable[[TopicName], Collection[TopicName]]"
    """Returns the topics that have the history of a scalable topic: segments, and the partitions
    of the topic that was migrated to it."""

SegmentSelection: TypeAlias = Literal["current", "all"]
"""Which segments of a scalable topic: those that its metadata names, or also others."""

_DOMAIN: Final = "persistent"
_SCALABLE_DOMAIN: Final = "topic"
_SEGMENT_DOMAIN: Final = "segment"
_FOREIGN_DOMAINS = frozenset({_SCALABLE_DOMAIN, _SEGMENT_DOMAIN, "non-persistent"})
_DEFAULT_NAMESPACE = "public/default"

# As in Pulsar, no sign and no leading zero: "orders-partition-01" is an ordinary name.
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<number>0|[1-9][0-9]{0,9})", re.DOTALL)
_MAX_PARTITION = 2**31 - 1

_SEGMENT = re.compile(r"([0-9a-f]{4})-([0-9a-f]{4})-(0|[1-9][0-9]{0,18})", re.ASCII)
MAX_SEGMENT_ID: Final = 2**63 - 1

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_SYSTEM_TOPICS = (
    "__change_events",
    "__transaction_buffer_snapshot*",
    "__transaction_log_*",
    "*__transaction_pending_ack",
)
"""Local names of Pulsar's internal topics, which are in the namespaces of users' topics."""

_SHOWN_NAMES = 5
_SHOWN_CHARACTERS = 200
_MAX_OPEN_BRACKETS = 100
"""A glob with more unclosed brackets matches no name."""


class Segment(NamedTuple):
    """One segment of a scalable topic: its id, and the hashes of the keys that it has.

    A split or merge gives segments new ids, which only grow.
    """

    id: int
    first_hash: int
    last_hash: int
    """Inclusive."""

    @classmethod
    def parse(cls, text: str) -> Segment | None:
        """Parse `<first hash>-<last hash>-<id>`; return None if it is malformed."""
        match = _SEGMENT.fullmatch(text)
        if match is None:
            return None
        segment = cls(int(match[3]), int(match[1], 16), int(match[2], 16))
        is_possible = segment.first_hash <= segment.last_hash and segment.id <= MAX_SEGMENT_ID
        return segment if is_possible else None

    def __str__(self) -> str:
        return f"{self.first_hash:04x}-{self.last_hash:04x}-{self.id}"

    def overlaps(self, other: Segment) -> bool:
        """Return whether both can have messages of the same key."""
        return self.first_hash <= other.last_hash and other.first_hash <= self.last_hash


@dataclass(frozen=True, slots=True)
class TopicName:
    """The name of a topic, of a partition of it, or of a segment of a scalable topic.

    Example:
        >>> str(TopicName.parse("orders-partition-2"))
        'persistent://public/default/orders-partition-2'
        >>> TopicName.parse("sales/eu/new orders").managed_ledger_name
        'sales/eu/persistent/new+orders'
        >>> str(TopicName.parse("segment://sales/eu/orders/0000-7fff-1").base)
        'topic://sales/eu/orders'
    """

    tenant: str
    namespace: str
    """Namespace, without the tenant."""
    local_name: str
    """Everything after the namespace, including `-partition-N`."""
    cluster: str | None = None
    """Cluster; only names of Pulsar's first version have one."""
    domain: str = _DOMAIN
    """`persistent`; `topic` for a scalable topic; `segment` for a segment of one."""
    segment: Segment | None = None
    """The segment; then the other fields are those of its scalable topic."""

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Parse a name as users and Pulsar write it: short, `tenant/namespace/name`, or full.

        A name without a domain is that of a persistent topic.

        Raises:
            OptionError: The domain is not one of offloaded topics, or the name does not have the
                right parts.
        """
        domain, is_full, rest = name.partition("://")
        if not is_full:
            domain, rest = _DOMAIN, name if "/" in name else f"{_DEFAULT_NAMESPACE}/{name}"
        if domain not in {_DOMAIN, _SCALABLE_DOMAIN, _SEGMENT_DOMAIN}:
            message = f"topic {_quote(name)}: only {_DOMAIN}:// and topic:// topics are offloaded"
            raise OptionError(message)
        # After a cluster, the remainder is the local name, even if it contains slashes.
        parts = rest.split("/", 3) if is_full else rest.split("/")
        if domain == _SEGMENT_DOMAIN and len(parts) == 4 and all(parts):  # noqa: PLR2004
            segment = Segment.parse(parts[3])
            if segment is not None:
                tenant, namespace, local_name = parts[:3]
                return cls(tenant, namespace, local_name, domain=domain, segment=segment)
            message = (
                f"topic {_quote(name)} does not end with a segment, such as 0000-7fff-1: first and"
                " last hash of its keys, and its id"
            )
            raise OptionError(message)
        match parts:
            case [tenant, namespace, local_name] if all(parts) and domain != _SEGMENT_DOMAIN:
                return cls(tenant, namespace, local_name, domain=domain)
            case [tenant, cluster, namespace, local_name] if all(parts) and domain == _DOMAIN:
                if is_full:
                    return cls(tenant, namespace, local_name, cluster)
        message = (
            f"topic {_quote(name)} is not 'name', 'tenant/namespace/name' or "
            f"'{domain}://tenant/namespace/name{'/segment' if domain == _SEGMENT_DOMAIN else ''}'"
        )
        raise OptionError(message)

    @classmethod
    def parse_persistent(cls, name: str, purpose: str) -> TopicName:
        """Parse the name of a topic that must be persistent for some purpose, such as a write.

        Raises:
            OptionError: See `parse`; or the topic is scalable.
        """
        topic = cls.parse(name)
        if topic.domain != _DOMAIN:
            message = f"topic {_quote(name)}: {purpose} needs a {_DOMAIN}:// topic"
            raise OptionError(message)
        return topic

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> TopicName:
        """Parse the managed ledger name in an index object or in user metadata.

        A name that could also be a segment's is a segment's, because Pulsar 5.0 refuses names with
        a cluster.

        Args:
            name: `tenant/namespace/persistent/<encoded local name>`, or the same with a cluster; or
                `tenant/namespace/segment/<encoded local name>/<segment>`.

        Raises:
            FormatError: The name is of something else, or encoding the topic does not give the same
                name. So two ledgers cannot pass for one topic.
        """
        parts = name.split("/")
        local_name = unquote_plus(parts[-1])
        topic: TopicName | None = None
        match parts:
            case [tenant, namespace, _, _] if "/" not in local_name:
                topic = cls(tenant, namespace, local_name)
            case [tenant, namespace, domain, encoded, last] if domain == _SEGMENT_DOMAIN and (
                segment := Segment.parse(last)
            ):
                local_name = unquote_plus(encoded)
                if "/" not in local_name:
                    topic = cls(tenant, namespace, local_name, domain=domain, segment=segment)
            case [tenant, cluster, namespace, _, _]:
                topic = cls(tenant, namespace, local_name, cluster)
        # Encoding writes the topic's own domain, so a name with another domain differs.
        is_exact = topic is not None and all(parts) and topic.managed_ledger_name == name
        if topic is None or not is_exact:
            message = f"{_quote(name)} is not the managed ledger of a topic"
            raise FormatError(message)
        return topic

    def __str__(self) -> str:
        segment = "" if self.segment is None else f"/{self.segment}"
        return f"{self.domain}://{self.full_namespace}/{self.local_name}{segment}"

    @property
    def full_namespace(self) -> str:
        """Tenant and namespace, with the cluster between them in names of the first version."""
        cluster = "" if self.cluster is None else f"{self.cluster}/"
        return f"{self.tenant}/{cluster}{self.namespace}"

    @property
    def managed_ledger_name(self) -> str:
        """The persistence name: the name of the topic's managed ledger.

        Only a scalable topic has none; its segments do.
        """
        segment = "" if self.segment is None else f"/{self.segment}"
        return f"{self.full_namespace}/{self.domain}/{encode_local_name(self.local_name)}{segment}"

    @property
    def is_scalable(self) -> bool:
        """Whether it is a scalable topic or a segment of one."""
        return self.domain != _DOMAIN

    @property
    def partition(self) -> int:
        """Number of the partition, 0 or more; -1 if the topic is not a partition."""
        return self._split_partition()[1]

    @property
    def segment_id(self) -> int | None:
        """Id of the segment; None if the topic is not a segment."""
        return None if self.segment is None else self.segment.id

    @property
    def base(self) -> TopicName:
        """The topic that a partition or segment belongs to; otherwise the topic itself."""
        if self.segment is not None:
            return replace(self, domain=_SCALABLE_DOMAIN, segment=None)
        return replace(self, local_name=self._split_partition()[0])

    @property
    def scalable(self) -> TopicName:
        """The scalable topic that continues a migrated topic; of a segment, its own topic."""
        return replace(self.base, domain=_SCALABLE_DOMAIN)

    @property
    def classic(self) -> TopicName:
        """The persistent topic that a scalable topic may have been migrated from."""
        return replace(self.base, domain=_DOMAIN)

    @property
    def order(self) -> tuple[str, bool, int, int]:
        """Sort key: by name; then partitions by number, and after them segments by id.

        Ids of segments only grow, so a segment comes after those that it was split or merged from.
        """
        if self.segment is not None:
            return str(self.classic), True, self.segment.id, self.segment.first_hash
        return str(self.classic), self.is_scalable, self.partition, 0

    def precedes(self, segment: TopicName) -> bool:
        """Return whether a key's messages in this topic come before those in a segment.

        They do in a partition that the topic was migrated from, and in each segment with a lower id
        that may have the same keys: at any time, one segment has a key.
        """
        if segment.segment is None or (self.is_scalable and self.segment is None):
            return False
        # Names are compared last, because a topic may have a thousand segments.
        return (
            self.segment is None
            or (self.segment.id < segment.segment.id and self.segment.overlaps(segment.segment))
        ) and self.scalable == segment.base

    def _split_partition(self) -> tuple[str, int]:
        match = None if self.is_scalable else _PARTITION.fullmatch(self.local_name)
        if match is None or int(match["number"]) > _MAX_PARTITION:
            return self.local_name, -1
        return match["base"], int(match["number"])

    @property
    def is_system(self) -> bool:
        """Whether the topic is internal to Pulsar (namespace events, transactions)."""
        local_name = self.base.local_name
        return any(fnmatchcase(local_name, pattern) for pattern in _SYSTEM_TOPICS)

    def matches(self, pattern: TopicName) -> bool:
        """Return whether the base name matches a pattern (`*`, `?`, `[…]`), part by part.

        A pattern without a cluster matches no name that has one. Domains are not compared.
        """
        if (self.cluster is None) != (pattern.cluster is None):
            return False
        return (
            _matches(self.tenant, pattern.tenant)
            and _matches(self.cluster or "", pattern.cluster or "")
            and _matches(self.namespace, pattern.namespace)
            and _matches(self.base.local_name, pattern.local_name)
        )


def _matches(name: str, glob: str) -> bool:
    # For each `[`, fnmatch searches the rest of the glob for its closing bracket: with many
    # unclosed ones that takes quadratic time.
    open_brackets = glob.count("[", glob.rfind("]") + 1)
    return open_brackets <= _MAX_OPEN_BRACKETS and fnmatchcase(name, glob)


@dataclass(frozen=True, slots=True)
class ForeignTopic:
    """A topic that has no offloaded ledgers in Pulsar, although an object names it.

    Example:
        >>> str(managed_ledger_owner("sales/eu/non-persistent/a%3Ab"))
        'non-persistent://sales/eu/a:b'
    """

    domain: str
    tenant: str
    namespace: str
    """Namespace, without the tenant."""
    local_name: str
    """Everything after the namespace."""

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local_name}"

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> ForeignTopic | None:
        """Parse a managed ledger name; return None if it is not one of a foreign topic.

        Its form is `tenant/namespace/<domain>/<encoded local name>`.
        """
        parts = name.split("/")
        match parts:
            case [tenant, namespace, domain, local_name] if domain in _FOREIGN_DOMAINS:
                topic = cls(domain, tenant, namespace, unquote_plus(local_name))
                return topic if all(parts) and topic.managed_ledger_name == name else None
        return None

    @property
    def managed_ledger_name(self) -> str:
        """The persistence name: the name of the topic's managed ledger."""
        local_name = encode_local_name(self.local_name)
        return f"{self.tenant}/{self.namespace}/{self.domain}/{local_name}"


AnyTopic: TypeAlias = TopicName | ForeignTopic
"""A topic that ledgers in a bucket may belong to, whether it can be read or not."""


def managed_ledger_owner(name: str) -> AnyTopic:
    """Return the topic with a managed ledger name, as found in index objects and user metadata.

    Raises:
        FormatError: Pulsar never writes such a name.
    """
    return ForeignTopic.from_managed_ledger_name(name) or TopicName.from_managed_ledger_name(name)


def encode_local_name(local_name: str) -> str:
    """Encode a local name like Pulsar's `Codec`, for paths of its metadata store."""
    # Java's URLEncoder encodes a tilde and no asterisk; Python's quote does it the other way.
    # An unpaired surrogate, which UTF-8 cannot hold, becomes a question mark in Java too.
    return quote_plus(local_name, safe="*", errors="replace").replace("~", "%7E")


def topic_names(patterns: object) -> list[str]:
    """Return one or several names or globs as a list with at least one item.

    Raises:
        OptionError: The value is neither a string nor a list of strings, or the list is empty.

    Example:
        >>> topic_names("orders"), topic_names(("orders", "sales-*"))
        (['orders'], ['orders', 'sales-*'])
    """
    names: list[object] = [patterns]
    if isinstance(patterns, Iterable) and not isinstance(patterns, str):
        names = list(patterns)
    if not names:
        message = "no topic is named: give a name, a glob, or a list of these"
        raise OptionError(message)
    texts = [name for name in names if isinstance(name, str)]
    if len(texts) < len(names):
        message = f"a topic must be a name, a glob, or a list of these, not {_quote(patterns)}"
        raise OptionError(message)
    return texts


def common_base(topics: Iterable[TopicName]) -> str | None:
    """Return the name of the topic that all partitions or segments belong to; None if several."""
    names = {each.base for each in topics}
    return str(names.pop()) if len(names) == 1 else None


def may_be_migrated(relatives: Collection[TopicName]) -> bool:
    """Return whether segments may continue partitions of the same name, by their ids.

    A migration gives ids from 0 on to the partitions, and those that follow to segments. So
    segments with lower ids than that belong to a topic that only has the same name.

    Args:
        relatives: Partitions and segments of one name.
    """
    ids = [each.segment.id for each in relatives if each.segment is not None]
    partitions = [max(each.partition, 0) for each in relatives if each.segment is None]
    return not ids or not partitions or min(ids) > max(partitions)


def owning_topics(names: Iterable[TopicName]) -> dict[TopicName, TopicName]:
    """Return the topic that each of some partitions and segments belongs to.

    A partition of a topic that was migrated belongs to the scalable topic if a segment of that is
    among the names (`may_be_migrated`).

    Example:
        >>> names = map(TopicName.parse, ["a-partition-0", "segment://public/default/a/0000-ffff-1"])
        >>> list(map(str, owning_topics(names).values()))
        ['topic://public/default/a', 'topic://public/default/a']
    """
    topics = list(names)
    relatives: dict[TopicName, list[TopicName]] = {}
    for topic in topics:
        relatives.setdefault(topic.scalable, []).append(topic)
    migrated = {
        scalable
        for scalable, each in relatives.items()
        if any(topic.is_scalable for topic in each) and may_be_migrated(each)
    }
    return {topic: topic.scalable if topic.scalable in migrated else topic.base for topic in topics}


def namespaces_of(patterns: str | Sequence[str]) -> frozenset[str] | None:
    """Return the namespaces of some topic names; None if one of the names may be a glob.

    Raises:
        OptionError: A value is not a topic name.

    Example:
        >>> sorted(namespaces_of(["orders", "sales/eu/orders"]))
        ['public/default', 'sales/eu']
    """
    names = topic_names(patterns)
    if any(_GLOB_CHARACTERS.search(name) for name in names):
        return None
    return frozenset(TopicName.parse(name).full_namespace for name in names)


def select_topics(
    patterns: str | Sequence[str],
    available: Iterable[TopicName],
    members: Members | None = None,
) -> list[TopicName]:
    """Select topics by name or by glob.

    A name selects that topic with its partitions or segments; the name of a partition or segment
    selects that one. If no topic has the name and it contains `*`, `?` or `[`, it is a glob: each
    of its parts must match the same part of a topic's name without `-partition-N`. A glob selects
    no system topics; a name can.

    A name without a domain is that of a persistent topic, and of a scalable one if there is no
    persistent topic. A glob without a domain matches both.

    Args:
        patterns: One or several names or globs, in any form that `TopicName.parse` reads.
        available: The existing topics, with one item per partition or segment.
        members: Returns what a scalable topic consists of; None: of its available segments.

    Returns:
        The topics without repetition, ordered by name and partition or segment (`TopicName.order`).

    Raises:
        OptionError: `patterns` is empty, or contains something that is not a topic name.
        TopicNotFoundError: A name or glob selects nothing; the message suggests similar names.
        PulsarOffloadError: `members` raised it.
    """
    names = topic_names(patterns)
    topics = set(available)
    selected = {topic for name in names for topic in _select(name, topics, members)}
    return sorted(selected, key=attrgetter("order"))


def matching_topics(
    pattern: re.Pattern[str], available: Iterable[TopicName], members: Members | None = None
) -> list[TopicName]:
    """Select topics whose full name, without partition, a regular expression matches entirely.

    System topics are never selected; the order is that of `select_topics`.

    Raises:
        TopicNotFoundError: No topic matches; the message lists some of the names.
        PulsarOffloadError: `members` raised it.
    """
    topics = {topic for topic in available if not topic.is_system}
    matches = [topic for topic in topics if pattern.fullmatch(str(topic.base))]
    if not matches:
        names = sorted({str(topic.base) for topic in topics})
        some = ", ".join(map(repr, names[:_SHOWN_NAMES]))
        message = f"no offloaded topic matches {pattern.pattern!r}; there are {len(names)}: {some}"
        raise TopicNotFoundError(message)
    return sorted(_with_members(matches, members), key=attrgetter("order"))


def _select(
    name: str, topics: Collection[TopicName], members: Members | None
) -> Collection[TopicName]:
    topic = TopicName.parse(name)
    # Try the exact name first: a topic's own name may look like a glob.
    matches = [candidate for candidate in topics if topic in (candidate, candidate.base)]
    has_domain = "://" in name
    if not matches and not has_domain:
        scalable = replace(topic, domain=_SCALABLE_DOMAIN)
        matches = [candidate for candidate in topics if candidate.base == scalable]
    if not matches and _GLOB_CHARACTERS.search(name):
        matches = [
            candidate
            for candidate in topics
            if candidate.matches(topic) and not candidate.is_system
            if not has_domain or candidate.base.domain == topic.domain
        ]
    # The name of a segment selects that segment, whatever its topic consists of.
    found = matches if topic.segment is not None else _with_members(matches, members)
    if not found:
        raise TopicNotFoundError(_missing_topic_text(topic, topics))
    return found


def _with_members(matches: Iterable[TopicName], members: Members | None) -> set[TopicName]:
    """Return topics with segments replaced by all members of their scalable topics."""
    if members is None:
        return set(matches)
    found = {topic for topic in matches if not topic.is_scalable}
    for base in {topic.base for topic in matches if topic.is_scalable}:
        found.update(members(base))
    return found


def _missing_topic_text(topic: TopicName, topics: Collection[TopicName]) -> str:
    message = f"no offloaded topic {_quote(str(topic))}"
    bases = sorted({candidate.base for candidate in topics}, key=attrgetter("order"))
    if not bases:
        return f"{message}, nor any other"
    # Compare local names only: the names of a namespace share everything before them.
    local_names = dict.fromkeys(
        base.local_name for base in bases if len(base.local_name) <= _SHOWN_CHARACTERS
    )
    near = difflib.get_close_matches(
        topic.local_name[:_SHOWN_CHARACTERS], local_names, n=_SHOWN_NAMES
    )
    likely = [base for name in near for base in bases if base.local_name == name]
    heading = "did you mean" if likely else f"there are {len(bases)}, such as"
    shown = ", ".join(_quote(str(base)) for base in (likely or bases)[:_SHOWN_NAMES])
    return f"{message}; {heading} {shown}"


def _quote(name: object) -> str:
    if not isinstance(name, str):
        return repr(name)[:_SHOWN_CHARACTERS]
    return repr(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…")
