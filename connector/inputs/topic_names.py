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
============================ ================================================================

Pulsar 5.0 also has managed ledgers of the segments of scalable topics (`SegmentTopicName`):
`sales/eu/segment/orders/0000-7fff-1`. They are recognized here, but not read (`ForeignTopic`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote_plus, unquote_plus

from arrow_io.errors import FormatError, OptionError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_DOMAIN = "persistent"
_SCALABLE_DOMAIN = "topic"
_SEGMENT_DOMAIN = "segment"
_FOREIGN_DOMAINS = frozenset({_SCALABLE_DOMAIN, _SEGMENT_DOMAIN, "non-persistent"})
_DEFAULT_NAMESPACE = "public/default"

# As in Pulsar, no sign and no leading zero: "orders-partition-01" is an ordinary name.
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<number>0|[1-9][0-9]{0,9})", re.DOTALL)
_MAX_PARTITION = 2**31 - 1

# First and last hash, both inclusive, and the number of the segment.
_SEGMENT = re.compile(r"[0-9a-f]{4}-[0-9a-f]{4}-(?:0|[1-9][0-9]*)", re.ASCII)

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


@dataclass(frozen=True, slots=True)
class TopicName:
    """The name of a persistent topic, or of one partition of a partitioned topic.

    Example:
        >>> str(TopicName.parse("orders-partition-2"))
        'persistent://public/default/orders-partition-2'
        >>> TopicName.parse("sales/eu/new orders").managed_ledger_name
        'sales/eu/persistent/new+orders'
    """

    tenant: str
    namespace: str
    """Namespace, without the tenant."""
    local_name: str
    """Everything after the namespace, including `-partition-N`."""
    cluster: str | None = None
    """Cluster; only names of Pulsar's first version have one."""

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Parse a name as users and Pulsar write it: short, `tenant/namespace/name`, or full.

        Raises:
            OptionError: The domain is not `persistent`, or the name does not have the right parts.
        """
        domain, is_full, rest = name.partition("://")
        if not is_full:
            domain, rest = _DOMAIN, name if "/" in name else f"{_DEFAULT_NAMESPACE}/{name}"
        if is_scalable(name):
            message = (
                f"topic {_quote(name)}: scalable topics of Pulsar 5.0 and their segments cannot be"
                f" read yet; {_DOMAIN}:// topics can"
            )
            raise OptionError(message)
        if domain != _DOMAIN:
            message = f"topic {_quote(name)}: only {_DOMAIN}:// topics are offloaded"
            raise OptionError(message)
        # After a cluster, the remainder is the local name, even if it contains slashes.
        parts = rest.split("/", 3) if is_full else rest.split("/")
        match parts:
            case [tenant, namespace, local_name] if all(parts):
                return cls(tenant, namespace, local_name)
            case [tenant, cluster, namespace, local_name] if is_full and all(parts):
                return cls(tenant, namespace, local_name, cluster)
        message = (
            f"topic {_quote(name)} is not 'name', 'tenant/namespace/name' or "
            f"'{_DOMAIN}://tenant/namespace/name'"
        )
        raise OptionError(message)

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> TopicName:
        """Parse the managed ledger name in an index object or in user metadata.

        A name that could also be a segment's is a segment's, because Pulsar 5.0 refuses names with
        a cluster.

        Args:
            name: `tenant/namespace/persistent/<encoded local name>`, or the same with a cluster.

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
            case [tenant, cluster, namespace, _, _]:
                topic = cls(tenant, namespace, local_name, cluster)
        # Encoding writes the domain `persistent`, so a name with another domain differs.
        is_exact = topic is not None and all(parts) and topic.managed_ledger_name == name
        if topic is None or not is_exact or _names_segment(parts):
            message = f"{_quote(name)} is not the managed ledger of a persistent topic"
            raise FormatError(message)
        return topic

    def __str__(self) -> str:
        return f"{_DOMAIN}://{self.full_namespace}/{self.local_name}"

    @property
    def full_namespace(self) -> str:
        """Tenant and namespace, with the cluster between them in names of the first version."""
        cluster = "" if self.cluster is None else f"{self.cluster}/"
        return f"{self.tenant}/{cluster}{self.namespace}"

    @property
    def managed_ledger_name(self) -> str:
        """The persistence name: the name of the topic's managed ledger."""
        return f"{self.full_namespace}/{_DOMAIN}/{_encode(self.local_name)}"

    @property
    def partition(self) -> int:
        """Number of the partition, 0 or more; -1 if the topic is not a partition."""
        return self._split_partition()[1]

    @property
    def base(self) -> TopicName:
        """The partitioned topic that a partition belongs to; otherwise the topic itself."""
        return replace(self, local_name=self._split_partition()[0])

    def _split_partition(self) -> tuple[str, int]:
        match = _PARTITION.fullmatch(self.local_name)
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

        A pattern without a cluster matches no name that has one.
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
    """A topic with another domain than `persistent`, whose ledgers may be in the same bucket.

    Example:
        >>> str(managed_ledger_owner("sales/eu/segment/a%3Ab/0000-7fff-1"))
        'segment://sales/eu/a:b/0000-7fff-1'
    """

    domain: str
    tenant: str
    namespace: str
    """Namespace, without the tenant."""
    local_name: str
    """The name of the segment's scalable topic; for other domains, everything after the namespace.
    """
    segment: str | None = None
    """First and last hash (both inclusive) and number of a segment; None for other domains."""

    def __str__(self) -> str:
        segment = "" if self.segment is None else f"/{self.segment}"
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local_name}{segment}"

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> ForeignTopic | None:
        """Parse a managed ledger name; return None if it is not one of a foreign topic.

        Its form is `tenant/namespace/<domain>/<encoded local name>`, or the same with a segment.
        """
        parts = name.split("/")
        if not all(parts):
            return None
        match parts:
            case [tenant, namespace, domain, local_name] if domain in _FOREIGN_DOMAINS:
                topic = cls(domain, tenant, namespace, unquote_plus(local_name))
            case [tenant, namespace, domain, local_name, segment] if _names_segment(parts):
                topic = cls(domain, tenant, namespace, unquote_plus(local_name), segment)
            case _:
                return None
        return topic if topic.managed_ledger_name == name else None

    @property
    def managed_ledger_name(self) -> str:
        """The persistence name: the name of the topic's managed ledger."""
        parts = (self.tenant, self.namespace, self.domain, _encode(self.local_name))
        return "/".join(parts if self.segment is None else (*parts, self.segment))

    @property
    def migrated_topic(self) -> TopicName | None:
        """The persistent topic that a segment continues if it was migrated; otherwise None."""
        is_segment = self.segment is not None
        return TopicName(self.tenant, self.namespace, self.local_name) if is_segment else None


AnyTopic: TypeAlias = TopicName | ForeignTopic
"""A topic that ledgers in a bucket may belong to, whether it can be read or not."""


def managed_ledger_owner(name: str) -> AnyTopic:
    """Return the topic with a managed ledger name, as found in index objects and user metadata.

    Raises:
        FormatError: Pulsar never writes such a name.
    """
    return ForeignTopic.from_managed_ledger_name(name) or TopicName.from_managed_ledger_name(name)


def is_scalable(name: str) -> bool:
    """Return whether a full name is that of a scalable topic or of a segment (Pulsar 5.0)."""
    return name.startswith((f"{_SCALABLE_DOMAIN}://", f"{_SEGMENT_DOMAIN}://"))


def _names_segment(parts: Sequence[str]) -> bool:
    match parts:
        case [_, _, domain, _, segment]:
            return domain == _SEGMENT_DOMAIN and _SEGMENT.fullmatch(segment) is not None
    return False


def _encode(local_name: str) -> str:
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


def select_topics(patterns: str | Sequence[str], available: Iterable[TopicName]) -> list[TopicName]:
    """Select topics by name or by glob.

    A name selects that topic and, if it is partitioned, all its partitions; a partition's name
    selects that partition. If no topic has the name and it contains `*`, `?` or `[`, it is a glob:
    each of its parts must match the same part of a topic's name without `-partition-N`. A glob
    selects no system topics; a name can.

    Args:
        patterns: One or several names or globs, in any form that `TopicName.parse` reads.
        available: The existing topics, with one item per partition.

    Returns:
        The topics without repetition, ordered by name and partition number.

    Raises:
        OptionError: `patterns` is empty, or contains something that is not a topic name.
        TopicNotFoundError: A name or glob selects nothing; the message suggests similar names.
    """
    names = topic_names(patterns)
    topics = set(available)
    selected = {topic for name in names for topic in _select(name, topics)}
    return sorted(selected, key=_sort_key)


def matching_topics(pattern: re.Pattern[str], available: Iterable[TopicName]) -> list[TopicName]:
    """Select topics whose full name, without partition, a regular expression matches entirely.

    System topics are never selected; the order is that of `select_topics`.

    Raises:
        TopicNotFoundError: No topic matches; the message lists some of the names.
    """
    topics = {topic for topic in available if not topic.is_system}
    matches = [topic for topic in topics if pattern.fullmatch(str(topic.base))]
    if not matches:
        names = sorted({str(topic.base) for topic in topics})
        some = ", ".join(map(repr, names[:_SHOWN_NAMES]))
        message = f"no offloaded topic matches {pattern.pattern!r}; there are {len(names)}: {some}"
        raise TopicNotFoundError(message)
    return sorted(matches, key=_sort_key)


def _select(name: str, topics: Collection[TopicName]) -> list[TopicName]:
    topic = TopicName.parse(name)
    # Try the exact name first: a topic's own name may look like a glob.
    matches = [candidate for candidate in topics if topic in (candidate, candidate.base)]
    if not matches and _GLOB_CHARACTERS.search(name):
        matches = [
            candidate
            for candidate in topics
            if candidate.matches(topic) and not candidate.is_system
        ]
    if not matches:
        raise TopicNotFoundError(_missing_topic_text(topic, topics))
    return matches


def _missing_topic_text(topic: TopicName, topics: Collection[TopicName]) -> str:
    message = f"no offloaded topic {_quote(str(topic))}"
    bases = sorted({candidate.base for candidate in topics}, key=_sort_key)
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


def _sort_key(topic: TopicName) -> tuple[str, int]:
    return str(topic.base), topic.partition


def _quote(name: object) -> str:
    if not isinstance(name, str):
        return repr(name)[:_SHOWN_CHARACTERS]
    return repr(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…")
