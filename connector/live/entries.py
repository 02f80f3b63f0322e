"""Encodes messages from Pulsar's client as entries, so that readers of entries can read them.

The client does not expose everything in an entry: neither sequence ids, nor the broker's metadata,
nor transactions, delivery times or source clusters (`UNAVAILABLE_COLUMNS`). The remaining fields
are encoded as a producer would encode them, without compression. A batch becomes a batch again, and
encrypted payloads stay encrypted.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import BrokerError
from arrow_io.format.entry_frame import write_entry
from arrow_io.messages.codecs import NONE
from arrow_io.messages.entry_run import encode_run
from arrow_io.messages.entry_writer import encode_entry
from arrow_io.messages.message_metadata import (
    Message,
    batch_metadata,
    encryption_fields,
    message_metadata,
    single_message_fields,
)
from connector.live.broker import EntryId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import _pulsar

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.payloads.value_columns import ValueColumns
    from arrow_io.read_metrics import ReadMetrics
    from connector.live.broker import ClientEntry

UNAVAILABLE_COLUMNS: Final = frozenset(
    {
        "__sequence_id__",
        "__key_bytes__",
        "__broker_time__",
        "__broker_index__",
        "__deliver_at__",
        "__replicated_from__",
        "__txn_id__",
    }
)
"""Columns that the client does not expose."""

_RUN_BYTES: Final = 1 << 20
_MAX_BATCH_MESSAGES: Final = 1 << 24
"""More than fit in the largest entry; bounds the memory that a wrong batch index can cost."""
_NO_SEQUENCE_ID: Final = 0
_NO_MEMBER: Final = b"\0\0\0\x04\x18\0\x20\1"
"""A compacted-out member of a batch: payload_size 0, compacted_out."""


def has_binary_keys(values: ValueColumns | None) -> bool:
    """Return whether a topic's schema has binary keys, which clients expose as Base64.

    Without typed columns, values are bytes, and the answer is False.
    """
    if values is None:
        return False
    schemas = values.schema.reader, *(info for _, info in values.schema.versions)
    return any(each.is_separated for each in schemas)


class LiveEntries:
    """Encodes the messages of a client as entries.

    Args:
        object_key: Name of the topic, for errors.
        metrics: Counts ordering keys that are not UTF-8: the client cannot return them, so they are
            null.
        has_binary_keys: See the function `has_binary_keys`.
    """

    def __init__(self, object_key: str, metrics: ReadMetrics, *, has_binary_keys: bool) -> None:
        self._metrics = metrics
        self._object_key = object_key
        self._has_binary_keys = has_binary_keys

    def runs(self, entries: Iterable[ClientEntry]) -> Iterator[EntryRun]:
        """Encode entries, in a reader's order, in runs of about 1 MiB with consecutive ids.

        Raises:
            BrokerError: The messages are out of order, or a message cannot be encoded.
        """
        frames: list[bytes] = []
        size_bytes = 0
        first = last = EntryId(-1, -1)
        for (_, entry_id), members in entries:
            if entry_id <= last:
                raise self._error(entry_id, f"it follows a message of entry {tuple(last)}")
            is_next = entry_id == (last.ledger_id, last.entry_id + 1)
            if frames and (not is_next or size_bytes >= _RUN_BYTES):
                yield encode_run(*first, self._object_key, frames)
                frames, size_bytes = [], 0
            if not frames:
                first = entry_id
            frames.append(write_entry(entry_id.entry_id, self.entry(entry_id, members)))
            size_bytes += len(frames[-1])
            last = entry_id
        if frames:
            yield encode_run(*first, self._object_key, frames)

    def entry(self, entry_id: EntryId, members: Sequence[tuple[int, _pulsar.Message]]) -> bytes:
        """Encode an entry from its messages (`ClientEntry.members`); `entry_id` is for errors.

        Raises:
            BrokerError: They are out of order, or one cannot be encoded.
        """
        try:
            return self._entry(members)
        except (ValueError, OverflowError) as error:
            raise self._error(entry_id, error) from error

    def _error(self, entry_id: EntryId, reason: object) -> BrokerError:
        return BrokerError(
            f"cannot read a message from the broker: {reason}",
            object_key=self._object_key,
            ledger_id=entry_id.ledger_id,
            entry_id=entry_id.entry_id,
        )

    def _entry(self, members: Sequence[tuple[int, _pulsar.Message]]) -> bytes:
        index, first = members[0]
        if first.encryption_context() is not None:
            return _encrypted_entry(self._message(first), first)
        if index >= 0:
            return self._batch(members)
        message = self._message(first)
        payload = message.payload or b""
        metadata = message_metadata(
            message, _NO_SEQUENCE_ID, compression=NONE, uncompressed_bytes=len(payload)
        )
        return encode_entry(metadata, payload)

    def _batch(self, members: Sequence[tuple[int, _pulsar.Message]]) -> bytes:
        parts: list[bytes] = []
        count = 0
        for index, each in members:
            if index < count:
                text = f"message {index} of a batch follows message {count - 1}"
                raise ValueError(text)
            if index >= _MAX_BATCH_MESSAGES:
                text = f"message {index} of a batch: at most {_MAX_BATCH_MESSAGES} are accepted"
                raise ValueError(text)
            parts.append(_NO_MEMBER * (index - count))
            count = index + 1
            is_null = each.has_null_value()
            payload = b"" if is_null else each.data()
            own = single_message_fields(
                len(payload),
                key=self._key(each),
                ordering_key=self._ordering_key(each),
                properties=each.properties(),
                event_time_ms=each.event_timestamp(),
                is_null=is_null,
            )
            parts += (len(own).to_bytes(4), own, payload)
        stored = b"".join(parts)
        metadata = batch_metadata(
            _shared_fields(members[0][1]),
            (_NO_SEQUENCE_ID, _NO_SEQUENCE_ID),
            message_count=count,
            compression=NONE,
            uncompressed_bytes=len(stored),
        )
        return encode_entry(metadata, stored)

    def _message(self, client_message: _pulsar.Message) -> Message:
        return replace(
            _shared_fields(client_message),
            payload=None if client_message.has_null_value() else client_message.data(),
            key=self._key(client_message),
            ordering_key=self._ordering_key(client_message),
            properties=client_message.properties(),
            event_time_ms=client_message.event_timestamp() or None,
        )

    def _key(self, client_message: _pulsar.Message) -> str | bytes | None:
        """Return the key of a message; the client does not distinguish empty and missing keys."""
        text: str = client_message.partition_key()
        return decode_key(text) if text and self._has_binary_keys else text or None

    def _ordering_key(self, client_message: _pulsar.Message) -> bytes | None:
        try:
            return client_message.ordering_key().encode() or None
        except UnicodeDecodeError:
            # The client decodes it as text, and has no other accessor.
            self._metrics.replaced_texts += 1
            return None


def _encrypted_entry(message: Message, client_message: _pulsar.Message) -> bytes:
    """Encode a message, or a whole batch, that the client could not decrypt."""
    context = client_message.encryption_context()
    payload = client_message.data()
    options = {
        "compression": context.compression_type().value,
        "uncompressed_bytes": context.uncompressed_message_size() or len(payload),
    }
    if context.batch_size() >= 0:
        metadata = batch_metadata(
            message,
            (_NO_SEQUENCE_ID, _NO_SEQUENCE_ID),
            message_count=context.batch_size(),
            **options,
        )
    else:
        metadata = message_metadata(message, _NO_SEQUENCE_ID, **options)
    keys = [(each.key, each.value()) for each in context.keys()]  # noqa: SIM118 - no mapping
    fields = encryption_fields(keys, context.algorithm(), context.param())
    return encode_entry(metadata + fields, payload)


def _shared_fields(client_message: _pulsar.Message) -> Message:
    return Message(
        payload=None,
        publish_time_ms=client_message.publish_timestamp(),
        producer_name=client_message.producer_name(),
        schema_version=_schema_version(client_message),
    )


def _schema_version(client_message: _pulsar.Message) -> int | None:
    # `schema_version()` decodes the version as text, which most versions are not.
    number: int = client_message.int_schema_version()
    return None if number < 0 else number


def decode_key(key: str) -> str | bytes:
    """Decode a key from Base64; return the text itself if it is not Base64."""
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return key
