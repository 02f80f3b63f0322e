"""Partition that a message goes to, chosen as Pulsar's Java client does.

Messages with a key go to the partition that `JavaStringHash`, the Java client's default, chooses
for the key's text. Messages without a key go to the partitions in turn, as many to each as a batch
may have. (`RoundRobinPartitionMessageRouterImpl` switches by time instead.)
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from arrow_io.messages.message_metadata import Message

_INT_MASK: Final = (1 << 32) - 1
_MAX_INT: Final = (1 << 31) - 1
_UTF16_UNIT: Final = "H"
_REMEMBERED_KEYS: Final = 1 << 16


class MessageRouter:
    """Router of messages to partitions.

    Args:
        partitions: Number of partitions, 1 or more.
        batch_messages: Maximum number of messages in a batch, 1 or more.

    Example:
        >>> from arrow_io.messages.message_metadata import Message
        >>> router = MessageRouter(3, batch_messages=2)
        >>> keys = ("k1", "k0", None, None, None)
        >>> [router.route(Message(payload=b"", publish_time_ms=0, key=key)) for key in keys]
        [0, 2, 0, 0, 1]
    """

    def __init__(self, partitions: int, *, batch_messages: int) -> None:
        self._partitions = partitions
        self._batch_messages = batch_messages
        self._without_key = 0

    def route(self, message: Message) -> int:
        """Return the partition of the next message, from 0."""
        if self._partitions == 1:
            return 0
        key = message.key_text
        if key is not None:
            return java_string_hash(key) % self._partitions
        batch_number = self._without_key // self._batch_messages
        self._without_key += 1
        return batch_number % self._partitions


@lru_cache(maxsize=_REMEMBERED_KEYS)
def java_string_hash(text: str) -> int:
    """Return Pulsar's `JavaStringHash` of a text: Java's `String.hashCode()` without its sign.

    Example:
        >>> java_string_hash("pulsar")
        1170364285
    """
    units = array(_UTF16_UNIT, text.encode("utf-16", "surrogatepass")[2:])
    result = 0
    for unit in units:
        result = result * 31 + unit & _INT_MASK
    return result & _MAX_INT
