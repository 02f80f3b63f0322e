"""Messages for the writer: a Hypothesis strategy, and what must be read of them.

The expected values come from the messages themselves, by the rules of Pulsar's client; the writer
is not asked.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from arrow_io.messages.message_metadata import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from arrow_io.messages.entry_writer import EntryWriter
    from tests.support.reference import ReferenceMessage

FIRST_TIME_MS: Final = 1_700_000_000_000

_TEXT: Final = st.sampled_from(("", "a", "поток", "数据 ledger", "nul\0", "x" * 130))
_BYTES: Final = st.sampled_from((b"", b"\0", b"\xff\x00\x01", b"\xfe" * 200))
_TIMES_MS: Final = st.integers(min_value=1, max_value=4_000_000_000_000)
_INT64: Final = st.sampled_from((0, 1, 127, 128, 2**32, 2**63 - 1, -1, -(2**63)))


def messages() -> st.SearchStrategy[list[Message]]:
    """Messages of a topic, published within a few ms, alike often enough to share batches."""
    return st.lists(
        st.builds(
            Message,
            payload=st.none() | st.binary(max_size=20) | st.integers(2, 99).map(_repetitive),
            publish_time_ms=st.integers(FIRST_TIME_MS, FIRST_TIME_MS + 2),
            key=st.none() | _TEXT | _BYTES,
            ordering_key=st.none() | _BYTES,
            properties=st.dictionaries(_TEXT, _TEXT, max_size=3)
            | st.lists(st.tuples(_TEXT, _TEXT), max_size=2, unique_by=_name).map(tuple),
            event_time_ms=st.none() | st.just(0) | _TIMES_MS,
            sequence_id=st.none() | _INT64,
            producer_name=st.sampled_from(("p", "p", "p", "другой")),
            schema_version=st.sampled_from((None, None, None, 0, 1, b"opaque")),
            replicated_from=st.sampled_from((None, None, None, "west")),
            deliver_at_ms=st.sampled_from((None, None, None, 1, 4_000_000_000_000)),
            is_null_key=st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )


def told(message: Message, number: int) -> dict[str, object]:
    """What a client reads of a message, by the names of `ReferenceMessage`.

    Args:
        message: The message.
        number: How many were written before it.
    """
    key, version = message.key, message.schema_version
    return {
        "publish_time_ms": message.publish_time_ms,
        "event_time_ms": message.event_time_ms or 0,
        "producer_name": message.producer_name,
        "sequence_id": number if message.sequence_id is None else message.sequence_id,
        "key": base64.b64encode(key).decode() if isinstance(key, bytes) else key,
        "key_b64": isinstance(key, bytes),
        "ordering_key": message.ordering_key,
        "properties": dict(message.properties),
        "schema_version": version.to_bytes(8) if isinstance(version, int) else version,
        "deliver_at_ms": message.deliver_at_ms,
        "replicated_from": message.replicated_from,
        "null_value": message.payload is None,
        "null_partition_key": message.is_null_key,
        "payload": message.payload,
    }


def told_by_reference(messages: Sequence[ReferenceMessage]) -> list[dict[str, object]]:
    """The same of messages that the reference decoded."""
    names = told(Message(payload=None, publish_time_ms=0), 0)
    return [{name: getattr(message, name) for name in names} for message in messages]


def message_of(message: ReferenceMessage) -> Message:
    """A message that was read, to be written again."""
    key = message.key
    return Message(
        payload=message.payload,
        publish_time_ms=message.publish_time_ms,
        key=base64.b64decode(key) if key is not None and message.key_b64 else key,
        ordering_key=message.ordering_key,
        properties=message.properties,
        event_time_ms=message.event_time_ms,
        sequence_id=message.sequence_id,
        producer_name=message.producer_name,
        schema_version=message.schema_version,
        replicated_from=message.replicated_from,
        deliver_at_ms=message.deliver_at_ms,
        is_null_key=message.null_partition_key,
    )


def _repetitive(count: int) -> bytes:
    return b"ledger " * count


def _name(pair: tuple[str, str]) -> str:
    return pair[0]


def written_entries(writer: EntryWriter, given: Iterable[Message]) -> list[bytes]:
    """All entries of some messages, the last batch included."""
    written = [entry for message in given for entry in writer.add(message)]
    return [entry.data for entry in (*written, *writer.flush())]
