"""Pulsar's admin API answers about the ledgers of a topic, read and written as JSON.

================ ==================================== =============================================
Answer           Pulsar's class                       Fields of a ledger that only it has
================ ==================================== =============================================
`internal-info`  ManagedLedgerInfo                    time of closing, uuid of the offload
`internalStats`  PersistentTopicInternalStats         whether the offload is complete
================ ==================================== =============================================

`isOffloaded` of internal-info is true from the start of an offload, `offloaded` of internalStats
from its completion. Either answer may be JSON text within a JSON string, as Java's admin client
prints it. The answer of a partitioned topic is `{"partitions": {name: answer, …}}`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.errors import CorruptMetadataError, OptionError
from arrow_io.format.ledger_metadata import MANAGED_LEDGER_KEY
from connector.catalog.metadata.topic_metadata import (
    MAX_METADATA_BYTES,
    LedgerInfo,
    OffloadContext,
    TopicMetadata,
    checked_ledgers,
    checked_position,
)
from connector.catalog.schemas.forms import ALL_VERSIONS, parse_json
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANAGED_LEDGER: Final = re.compile(
    rf"[{{ ,]{re.escape(MANAGED_LEDGER_KEY)}=base64:([A-Za-z0-9+/]+={{0,2}})[,}}]"
)
_POSITION: Final = re.compile(r"(\d{1,19}):(-1|\d{1,19})", re.ASCII)
_SHOWN_CHARACTERS: Final = 64
_CURSOR_POSITION: Final = re.compile(r"(-1|\d{1,19}):(-1|\d{1,19})", re.ASCII)
"""Position of a subscription; before the first message of a topic a broker writes -1:-1."""


def read_answer(data: bytes) -> Mapping[str, object]:
    """Parse the JSON of an answer.

    Raises:
        CorruptMetadataError: It is not a JSON object, or longer than `MAX_METADATA_BYTES`.
    """
    if len(data) > MAX_METADATA_BYTES:
        message = f"an answer of {len(data)} bytes; {MAX_METADATA_BYTES} are allowed"
        raise CorruptMetadataError(message)
    try:
        answer = parse_json(data)
        if isinstance(answer, str):
            answer = parse_json(answer)
    except OptionError as error:
        raise CorruptMetadataError(error.message) from error
    return _mapping(answer, "the answer")


def read_names(data: bytes) -> list[str]:
    """Parse the JSON of an answer that lists names of tenants, namespaces or topics.

    Raises:
        CorruptMetadataError: It is not a list of text.
    """
    try:
        names = parse_json(data)
    except OptionError as error:
        raise CorruptMetadataError(error.message) from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = "the answer is not a list of names"
        raise CorruptMetadataError(message)
    return names


def parse_internal_info(
    answer: Mapping[str, object], topic: TopicName
) -> dict[TopicName, TopicMetadata]:
    """Parse an answer to `GET …/internal-info` (`pulsar-admin topics info-internal`).

    Returns the topic that was requested, or the partitions of a partitioned topic. This answer does
    not record whether an offload is complete.

    Raises:
        CorruptMetadataError: A field is missing, of the wrong type or out of range.
    """
    return {
        each: replace(_internal_info(value, each), cursors=dict(_info_cursors(value)))
        for each, value in _by_topic(answer, topic)
    }


def parse_internal_stats(
    answer: Mapping[str, object], topic: TopicName
) -> dict[TopicName, TopicMetadata]:
    """Parse an answer to `GET …/internalStats` (`pulsar-admin topics stats-internal`).

    Returns the topic that was requested, or the partitions of a partitioned topic. Complete
    offloads have no uuid; incomplete offloads are absent.

    Raises:
        CorruptMetadataError: A field is missing, of the wrong type or out of range.
    """
    return {
        each: replace(_internal_stats(value, each), cursors=dict(_stats_cursors(value)))
        for each, value in _by_topic(answer, topic)
    }


def managed_ledger_name_of(stats: Mapping[str, object]) -> str | None:
    """Return the name of the managed ledger of one topic's answer to `GET …/internalStats`.

    It is `tenant/namespace/persistent/topic`, from BookKeeper's metadata of a ledger; None if no
    ledger has it, because only ledgers in BookKeeper do.

    Raises:
        CorruptMetadataError: The name cannot be decoded.
    """
    ledgers = stats.get("ledgers")
    for ledger in reversed(ledgers) if isinstance(ledgers, list) else ():
        text = ledger.get("metadata") if isinstance(ledger, Mapping) else None
        match = _MANAGED_LEDGER.search(text) if isinstance(text, str) else None
        if match is not None:
            try:
                return base64.b64decode(match[1], validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                message = "the managed ledger's name in the metadata of a ledger cannot be decoded"
                raise CorruptMetadataError(message) from error
    return None


def has_schemas(answer: Mapping[str, object]) -> bool:
    """Return whether an answer to `GET /admin/v2/schemas/…/schemas` has any schema."""
    return answer.get(ALL_VERSIONS) != []


def internal_info_json(metadata: TopicMetadata) -> str:
    """Return a broker's answer to `GET …/internal-info`.

    It lacks the two dates of the metadata store's node: a topic that was created offline has none.
    """
    answer: dict[str, object] = {"version": 0, "ledgers": list(map(_info_ledger, metadata.ledgers))}
    if metadata.terminated_position is not None:
        ledger_id, entry_id = metadata.terminated_position
        answer["terminatedPosition"] = {"ledgerId": ledger_id, "entryId": entry_id}
    answer["cursors"] = {
        name: {"cursorsLedgerId": -1, "markDelete": {"ledgerId": ledger_id, "entryId": entry_id}}
        for name, (ledger_id, entry_id) in metadata.cursors.items()
    }
    if metadata.properties:
        answer["properties"] = dict(metadata.properties)
    return json.dumps(answer)


def internal_stats_json(metadata: TopicMetadata) -> str:
    """Return a broker's answer to `GET …/internalStats` after it has loaded the topic.

    The last ledger's metadata contains only the managed ledger's name, which identifies the topic.
    """
    ledgers = [_stats_ledger(ledger) for ledger in metadata.ledgers]
    if ledgers:
        name = base64.b64encode(metadata.topic.managed_ledger_name.encode()).decode()
        ledgers[-1]["metadata"] = (
            f"LedgerMetadata{{customMetadata={{{MANAGED_LEDGER_KEY}=base64:{name}}}}}"
        )
    last = next((each for each in reversed(metadata.ledgers) if each.entries), None)
    is_terminated = metadata.terminated_position is not None
    answer = {
        "entriesAddedCounter": 0,
        "numberOfEntries": sum(each.entries or 0 for each in metadata.ledgers),
        "totalSize": sum(each.size_bytes or 0 for each in metadata.ledgers),
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "lastLedgerCreatedTimestamp": None,
        "lastLedgerCreationFailureTimestamp": None,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": f"{last.ledger_id}:{(last.entries or 0) - 1}" if last else "-1:-1",
        "state": "Terminated" if is_terminated else "LedgerOpened",
        "ledgers": ledgers,
        "cursors": {
            name: {"markDeletePosition": f"{ledger_id}:{entry_id}"}
            for name, (ledger_id, entry_id) in metadata.cursors.items()
        },
        "schemaLedgers": [],
        "compactedLedger": _stats_ledger(LedgerInfo(ledger_id=-1, entries=-1, size_bytes=-1)),
    }
    return json.dumps(answer)


def _by_topic(
    answer: Mapping[str, object], topic: TopicName
) -> Iterator[tuple[TopicName, Mapping[str, object]]]:
    partitions = answer.get("partitions")
    if partitions is None:
        yield topic, answer
        return
    seen: set[TopicName] = set()
    for name, each in _mapping(partitions, "the field partitions").items():
        partition = _topic_name(name)
        if partition is None or partition.base != topic or partition.partition < 0:
            message = (
                f"an answer about {topic} has {_shorten(name)}, which is not a partition of it"
            )
            raise CorruptMetadataError(message)
        if partition in seen:
            message = f"an answer about {topic} has the partition {partition.partition} twice"
            raise CorruptMetadataError(message)
        seen.add(partition)
        yield partition, _mapping(each, "the answer of a partition")


def _topic_name(name: str) -> TopicName | None:
    try:
        return TopicName.parse(name)
    except OptionError:
        return None


def _internal_info(answer: Mapping[str, object], topic: TopicName) -> TopicMetadata:
    terminated: tuple[int, int] | None = None
    if answer.get("terminatedPosition") is not None:
        position = _mapping(answer["terminatedPosition"], "the field terminatedPosition")
        terminated = checked_position(
            _required_int(position, "ledgerId"), _required_int(position, "entryId")
        )
    ledgers = []
    for ledger in _ledgers(answer):
        uuid = _uuid(ledger)
        offload: OffloadContext | None = None
        if uuid is not None or _flag(ledger, "isOffloaded"):
            offload = OffloadContext(uuid=uuid, complete=None)
        ledgers.append(
            LedgerInfo(
                ledger_id=_required_int(ledger, "ledgerId"),
                entries=_int(ledger, "entries"),
                size_bytes=_int(ledger, "size"),
                timestamp_ms=_int(ledger, "timestamp") or None,
                offload=offload,
                properties=_properties(ledger),
            )
        )
    return TopicMetadata(
        topic=topic,
        ledgers=_with_open_ledger(ledgers, is_terminated=terminated is not None),
        terminated_position=terminated,
        properties=_properties(answer),
    )


def _internal_stats(answer: Mapping[str, object], topic: TopicName) -> TopicMetadata:
    ledgers = [
        LedgerInfo(
            ledger_id=_required_int(ledger, "ledgerId"),
            entries=_int(ledger, "entries"),
            size_bytes=_int(ledger, "size"),
            offload=(
                OffloadContext(uuid=None, complete=True) if _flag(ledger, "offloaded") else None
            ),
            properties=_properties(ledger),
        )
        for ledger in _ledgers(answer)
    ]
    is_terminated = answer.get("state") == "Terminated"
    return TopicMetadata(
        topic=topic,
        ledgers=_with_open_ledger(ledgers, is_terminated=is_terminated),
        terminated_position=_last_confirmed(answer) if is_terminated else None,
    )


def _last_confirmed(answer: Mapping[str, object]) -> tuple[int, int] | None:
    """Return the position of the last entry; None if the answer lacks it."""
    match = _POSITION.fullmatch(str(answer.get("lastConfirmedEntry")))
    return None if match is None else checked_position(int(match[1]), int(match[2]))


def _with_open_ledger(ledgers: list[LedgerInfo], *, is_terminated: bool) -> tuple[LedgerInfo, ...]:
    """Return ledgers in order; if the last one has no entries, it is open.

    Its numbers are then 0 or absent, and its time is that of the answer. (Brokers delete ledgers
    that are closed without entries, unless the topic was terminated.)
    """
    ordered = checked_ledgers(ledgers)
    if is_terminated or not ordered or ordered[-1].entries:
        return ordered
    last = ordered[-1]
    open_ledger = LedgerInfo(
        ledger_id=last.ledger_id, offload=last.offload, properties=last.properties
    )
    return (*ordered[:-1], open_ledger)


def _info_ledger(ledger: LedgerInfo) -> dict[str, object]:
    offload = ledger.offload
    fields = {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "timestamp": ledger.timestamp_ms,
        "isOffloaded": offload is not None,
        "offloadedContextUuid": str(offload.uuid) if offload and offload.uuid else None,
        "properties": dict(ledger.properties) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _stats_ledger(ledger: LedgerInfo) -> dict[str, object]:
    fields: dict[str, object] = {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries or 0,
        "size": ledger.size_bytes or 0,
        "offloaded": ledger.is_offloaded,
        "metadata": None,
        "underReplicated": False,
    }
    if ledger.properties:
        fields["properties"] = dict(ledger.properties)
    return fields


def _info_cursors(answer: Mapping[str, object]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield mark-delete positions; the metadata store lacks those of cursors with a ledger."""
    for name, cursor in _mapping(answer.get("cursors") or {}, "the field cursors").items():
        position = _mapping(cursor, "a cursor of the answer").get("markDelete")
        if position is not None:
            fields = _mapping(position, "the field markDelete")
            ids = _required_int(fields, "ledgerId"), _required_int(fields, "entryId")
            yield name, (-1, -1) if ids[0] < 0 else checked_position(*ids)


def _stats_cursors(answer: Mapping[str, object]) -> Iterator[tuple[str, tuple[int, int]]]:
    for name, cursor in _mapping(answer.get("cursors") or {}, "the field cursors").items():
        text = _mapping(cursor, "a cursor of the answer").get("markDeletePosition")
        if text is None:
            continue
        match = _CURSOR_POSITION.fullmatch(str(text))
        if match is None:
            message = f"{_shorten(text)} is not a position"
            raise CorruptMetadataError(message)
        ids = int(match[1]), int(match[2])
        yield name, (-1, -1) if ids[0] < 0 else checked_position(*ids)


def _ledgers(answer: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    ledgers = answer.get("ledgers")
    if not isinstance(ledgers, list):
        message = "the answer has no list of ledgers"
        raise CorruptMetadataError(message)
    for ledger in ledgers:
        yield _mapping(ledger, "a ledger of the answer")


def _mapping(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        message = f"{what} is not a JSON object"
        raise CorruptMetadataError(message)
    return value


def _int(fields: Mapping[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        message = f"the field {name} is not a whole number"
        raise CorruptMetadataError(message)
    return value


def _required_int(fields: Mapping[str, object], name: str) -> int:
    value = _int(fields, name)
    if value is None:
        message = f"the field {name} is missing"
        raise CorruptMetadataError(message)
    return value


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        message = f"the field {name} is neither true nor false"
        raise CorruptMetadataError(message)
    return value


def _properties(fields: Mapping[str, object]) -> dict[str, str]:
    properties = fields.get("properties")
    if properties is None:
        return {}
    checked: dict[str, str] = {}
    for name, value in _mapping(properties, "the field properties").items():
        if not isinstance(value, str):
            message = "the field properties has values that are not text"
            raise CorruptMetadataError(message)
        checked[name] = value
    return checked


def _uuid(ledger: Mapping[str, object]) -> UUID | None:
    text = ledger.get("offloadedContextUuid")
    if text is None:
        return None
    try:
        uuid = UUID(str(text))
    except ValueError as error:
        message = f"{_shorten(text)} is not a uuid"
        raise CorruptMetadataError(message) from error
    # An offload in segments (PIP-76) has no uuid of its own: the broker writes zeros.
    return uuid if uuid.int else None


def _shorten(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS]
