"""Change events that Debezium's own connectors wrote, and topics that hold change events."""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from tests.support.buckets import offload
from tests.support.entries import Message, encode_entry
from tests.support.payload_rows import version_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Form: TypeAlias = Literal["json", "avro"]

_FOLDER: Final = Path(__file__).parents[1] / "data" / "debezium"
_AVRO_PREFIX: Final = (("__AVRO_READ_OFFSET__", "5"),)


@dataclass(frozen=True)
class Event:
    """A message of a topic of change events.

    Attributes:
        key: Its key; None: it has none.
        value: Its value; None: a null value.
        version: The version of its schema.
    """

    key: bytes | None
    value: bytes | None
    version: int = 0


@dataclass(frozen=True)
class Recording:
    """What a connector wrote to one topic, in one form.

    Attributes:
        rows: What each message says of the row, as JSON; None: a null value.
    """

    events: tuple[Event, ...]
    schema: TopicSchema
    rows: tuple[dict[str, Any] | None, ...]


@cache
def recording(connector: str, topic: str, form: Form, *, separated: bool = True) -> Recording:
    """The messages of a topic of `tests/data/debezium`.

    Args:
        connector: `postgresql` or `mariadb`.
        topic: Name of the topic.
        form: How keys and values are written.
        separated: Whether keys are the messages' keys.
    """
    data = json.loads((_FOLDER / f"{connector}.json").read_text("utf-8"))
    messages = [each for each in data["messages"] if each["topic"] == topic]
    pairs: dict[tuple[int, int], int] = {}
    events, rows = [], []
    for each in messages:
        pair = each["key_schema"], each["value_schema"]
        # Neither a tombstone nor a truncated table has both.
        if None not in pair:
            pairs.setdefault(pair, len(pairs))
        key, value = (_bytes(each, form, part) for part in ("key", "value"))
        events.append(Event(key, value, pairs.get(pair, len(pairs) - 1)))
        rows.append(None if each["json_value"] is None else json.loads(each["json_value"]))
    versions = tuple(
        (number, key_value(form, *(data["schemas"][n] for n in pair), separated=separated))
        for pair, number in pairs.items()
    )
    return Recording(tuple(events), TopicSchema(versions[-1][1], versions), tuple(rows))


def connect_recording(
    connector: str, topic: str
) -> tuple[Recording, tuple[Event, ...], dict[str, Any]]:
    """The same messages as `json-with-envelope` has them: with a schema in each key and value.

    Returns:
        The recording without schemas; the messages; and the last key and value that have one.
    """
    data = json.loads((_FOLDER / f"{connector}.json").read_text("utf-8"))
    messages = [each for each in data["messages"] if each["topic"] == topic]
    definition: dict[str, Any] = {}
    events = []
    for each in messages:
        parts: list[bytes | None] = []
        for part in ("key", "value"):
            if each[f"connect_{part}"] is None:
                parts.append(None)
                continue
            schema = json.loads(data["schemas"][each[f"connect_{part}"]])
            payload = json.loads(each[f"json_{part}"])
            definition[part] = {"schema": schema, "payload": payload}
            parts.append(json.dumps(definition[part]).encode())
        key, value = parts
        events.append(Event(key, value))
    return recording(connector, topic, "json"), tuple(events), definition


def _bytes(message: dict[str, Any], form: Form, part: str) -> bytes | None:
    text = message[f"{form}_{part}"]
    if text is None or form == "json":
        return None if text is None else str(text).encode()
    return base64.b64decode(text)


def key_value(form: Form, key: str, value: str, *, separated: bool = True) -> SchemaInfo:
    """The schema that Pulsar's sources register for Kafka Connect's: see `KafkaConnectSource`."""
    properties = _AVRO_PREFIX if form == "avro" else ()
    return SchemaInfo(
        "KEY_VALUE",
        key=SchemaInfo(form.upper(), key, properties),
        value=SchemaInfo(form.upper(), value, properties),
        is_separated=separated,
    )


def event_objects(
    events: Sequence[Event],
    *,
    separated: bool = True,
    first_ledger_id: int = 1,
    ledger_events: int = 4,
    managed_ledger: str = "public/default/persistent/orders",
) -> dict[str, bytes]:
    """The objects of a topic with these messages, an entry for each.

    Args:
        events: The messages.
        separated: Whether keys are the messages' keys.
        first_ledger_id: Id of the first ledger.
        ledger_events: Number of messages in a ledger.
        managed_ledger: Name of the topic's managed ledger.
    """
    entries = [_entry(each, number, separated=separated) for number, each in enumerate(events)]
    starts = range(0, len(entries), ledger_events)
    ledgers = [
        (first_ledger_id + number, entries[start : start + ledger_events])
        for number, start in enumerate(starts)
    ]
    return offload(ledgers, managed_ledger=managed_ledger)


def _entry(event: Event, number: int, *, separated: bool) -> bytes:
    key = None if event.key is None else base64.b64encode(event.key).decode()
    payload = event.value or b""
    if not separated:
        payload = b"".join(map(_part, (event.key, event.value)))
    message = Message(
        payload=payload,
        null_value=True if separated and event.value is None else None,
        partition_key=key,
        partition_key_b64_encoded=separated and key is not None,
        null_partition_key=True if key is None else None,
    )
    return encode_entry(
        [message],
        batched=True,
        schema_version=version_bytes(event.version),
        publish_time=1_700_000_000_000 + number,
    )


def _part(data: bytes | None) -> bytes:
    return b"\xff" * 4 if data is None else len(data).to_bytes(4) + data


ROW_SCHEMA: Final = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ],
}
KEY_SCHEMA: Final = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


def envelope_schema(row: object = ROW_SCHEMA) -> dict[str, Any]:
    """The schema of an envelope, as short as it may be."""
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "ts_ms", "type": "long"}, {"name": "table", "type": "string"}],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


def envelope(op: str, before: object, after: object, ts_ms: int = 0) -> dict[str, Any]:
    """An envelope as JSON."""
    source = {"ts_ms": ts_ms, "table": "t"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts_ms + 1}


def json_events(values: Iterable[tuple[object, object]]) -> list[Event]:
    """Messages with keys and values as JSON text; None for a null."""
    return [Event(_json(key), _json(value)) for key, value in values]


def _json(value: object) -> bytes | None:
    return None if value is None else json.dumps(value).encode()


CHANGES: Final = ("__op", "__deleted", "__source_ts")
"""The columns of a change."""
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def expected_row(event: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What an envelope says of its row, without conversions; of a null value, that it deletes."""
    if event is None:
        return {"__op": None, "__deleted": True, "__source_ts": None}
    row = event.get("after") or (event.get("before") if event.get("op") == "d" else None) or {}
    source = event.get("source")
    time = None if source is None else EPOCH + dt.timedelta(milliseconds=source["ts_ms"])
    changes = {"__op": event.get("op"), "__deleted": event.get("op") == "d", "__source_ts": time}
    return row | changes
