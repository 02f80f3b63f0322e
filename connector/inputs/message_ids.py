"""Message ids: parses every form in which Pulsar writes them.

| value | form | printed by |
|---|---|---|
| `(12, 3)`, `(12, 3, 5)`, and their text | `(ledger, entry[, batch])` | `__message_id__` |
| `(12,3,-1,5)` | `(ledger,entry,partition,batch)`, text only | clients in C++, Python, Node.js |
| `12:3` | `ledger:entry` | positions in `internalStats` |
| `12:3:-1` | `ledger:entry:partition` | Java's `MessageIdImpl`, Go |
| `12:3:-1:5` | `ledger:entry:partition:batch` | `BatchMessageIdImpl` |
| `12:3:-1;12:7:-1` | first and last chunk; the last has the message's id | `ChunkMessageIdImpl` |
| `Message ID: 12:3`, `Batch Message ID: 12:3:5` | the last number is the batch's | `pulsar-admin` |
| bytes | MessageIdData of `PulsarApi.proto` | `toByteArray()`, `serialize()` |

A batch index of −1 means that the message is not in a batch. A partition of −1 means that the topic
is not partitioned.
"""

from __future__ import annotations

import operator
import re
from functools import cache
from typing import Any, Final, NamedTuple, Self

from google.protobuf.message import DecodeError

from arrow_io.format.protobuf_messages import message_classes

_NUMBER: Final = r"\s*(-?\d{1,19})\s*"
_TUPLE: Final = re.compile(rf"\({_NUMBER},{_NUMBER}(?:,{_NUMBER})?\)")
_WITH_PARTITION: Final = re.compile(rf"\({_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}\)")
_COLONS: Final = re.compile(
    r"(?:-?\d{1,19}:-?\d{1,19}:-?\d{1,10};)?"
    r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,10})(?::(-?\d{1,10}))?)?"
)
_ADMIN: Final = re.compile(r"(?:Batch )?Message ID:\s*(\d{1,19}):(\d{1,19})(?::(-?\d{1,10}))?")
_MAX_LONG: Final = 2**63 - 1
_TUPLE_LENGTHS: Final = (2, 3)
_MAX_SERIALIZED_BYTES: Final = 1 << 12


class MessageId(NamedTuple):
    """A message id; Pulsar's earliest id contains −1, and its latest the greatest long."""

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1

    @classmethod
    def parse(cls, value: object) -> Self | None:
        """Parse one of the forms above; return None if the value has none of them."""
        if isinstance(value, str):
            return cls._from_text(value.strip())
        if isinstance(value, bytes | bytearray | memoryview):
            return cls._from_bytes(bytes(value[:_MAX_SERIALIZED_BYTES]))
        if isinstance(value, tuple | list) and len(value) in _TUPLE_LENGTHS:
            numbers = [_to_int(each) for each in value]
            return None if None in numbers else cls._from_numbers(*numbers)
        return None

    @classmethod
    def _from_text(cls, text: str) -> Self | None:
        if match := _TUPLE.fullmatch(text) or _ADMIN.fullmatch(text):
            ledger, entry, batch = match.groups(default="-1")
            return cls._from_numbers(int(ledger), int(entry), int(batch))
        if match := _WITH_PARTITION.fullmatch(text) or _COLONS.fullmatch(text):
            ledger, entry, partition, batch = match.groups(default="-1")
            return cls._from_numbers(int(ledger), int(entry), int(batch), int(partition))
        return None

    @classmethod
    def _from_bytes(cls, data: bytes) -> Self | None:
        parsed = message_id_data()()
        try:
            parsed.ParseFromString(data)
        except DecodeError:
            return None
        if not parsed.IsInitialized() or parsed.ByteSize() != len(data):
            return None
        # The uint64 fields hold Java longs: −1 means the earliest id.
        ledger, entry = (
            n - 2**64 if n > _MAX_LONG else n for n in (parsed.ledgerId, parsed.entryId)
        )
        return cls._from_numbers(ledger, entry, parsed.batch_index, parsed.partition)

    @classmethod
    def _from_numbers(cls, *numbers: Any) -> Self | None:  # noqa: ANN401 - checked by the caller
        return cls(*numbers) if all(-1 <= each <= _MAX_LONG for each in numbers) else None


class ClientMessageId(NamedTuple):
    """The fields of a client's message id that describe its batch and its chunks."""

    batch_size: int
    """Number of messages in its batch; 0 if it is not in a batch."""
    first_chunk: tuple[int, int] | None
    """Ledger and entry id of its first chunk; None if the message is not chunked."""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse a serialized MessageIdData.

        Raises:
            DecodeError: The bytes are not a MessageIdData.
        """
        parsed = message_id_data()()
        parsed.ParseFromString(data)
        chunk = parsed.first_chunk_message_id
        has_chunks = parsed.HasField("first_chunk_message_id")
        return cls(parsed.batch_size, (chunk.ledgerId, chunk.entryId) if has_chunks else None)


def _to_int(value: object) -> int | None:
    """Return an integer of any library as an int; None if the value is not an integer."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


@cache
def message_id_data() -> Any:  # noqa: ANN401 - a message class has no static type
    """Return the message class of MessageIdData, without the fields that this package ignores."""
    return message_classes(
        {
            "MessageIdData": """
                1 ledgerId required uint64
                2 entryId required uint64
                3 partition optional int32 -1
                4 batch_index optional int32 -1
                6 batch_size optional int32
                7 first_chunk_message_id optional MessageIdData
            """
        }
    )["MessageIdData"]
