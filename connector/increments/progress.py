"""Progress: how far topics were read, as JSON that is stored in a checkpoint or a table.

```
{"version": 1, "crc32": 3344016318, "topics": {"persistent://public/default/orders":
    {"next": [120, 0], "first": 17, "ledgers": [17, 3, 40]}}}
```

- `crc32`: checksum of `topics`. Progress that was modified is refused, because rows would be read
  twice or never.
- `next`: position of the first entry that was not read. After a ledger that was read to its end, it
  is entry 0 of the next id, whether that ledger exists or not.
- `ledgers`: ids of the ledgers that were in the bucket, as the first id and then the differences. A
  ledger that is not listed and appears below the position is late.
- `first`: ledgers with lower ids are ignored.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from arrow_io.core.json_checksum import json_crc32
from arrow_io.errors import CorruptProgressError, OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 1
_MAX_ENTRY_ID: Final = 2**63 - 1
_SHOWN_CHARACTERS: Final = 100


class Position(NamedTuple):
    """Ledger id and entry id of an entry."""

    ledger_id: int
    entry_id: int


_BEGINNING: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far one topic, or one partition of a partitioned topic, was read.

    Attributes:
        next: Position of the first entry that was not read.
        ledger_ids: Ids of the ledgers that were in the bucket, read or not; ascending.
        first_ledger_id: Ledgers with lower ids are ignored, and not listed.
    """

    next: Position = _BEGINNING
    ledger_ids: tuple[int, ...] = ()
    first_ledger_id: int = 0

    @classmethod
    def at(cls, next_: Position) -> Self:
        """Return the progress of a reader that starts at a position and ignores earlier ledgers.

        Pulsar's `MessageId.earliest`, -1:-1, stands for the first entry.
        """
        first = max(next_, _BEGINNING)
        return cls(Position(first.ledger_id, max(first.entry_id, 0)), (), first.ledger_id)

    def knows(self, ledger_id: int) -> bool:
        """Return whether a ledger is listed, or is ignored because its id is too low."""
        index = bisect_left(self.ledger_ids, ledger_id)
        is_among = self.ledger_ids[index : index + 1] == (ledger_id,)
        return is_among or ledger_id < self.first_ledger_id

    def late_ledgers(self, ledger_ids: Iterable[int]) -> list[int]:
        """Return those of some ledgers that are below the position and are not listed."""
        return [each for each in ledger_ids if each < self.next.ledger_id and not self.knows(each)]

    @property
    def unread_ledger_ids(self) -> tuple[int, ...]:
        """Ids of the listed ledgers at the position or above."""
        return self.ledger_ids[bisect_left(self.ledger_ids, self.next.ledger_id) :]

    def to_value(self) -> dict[str, object]:
        """Return the progress as a value for JSON."""
        distances = [*self.ledger_ids[:1], *(two - one for one, two in pairwise(self.ledger_ids))]
        return {"next": list(self.next), "first": self.first_ledger_id, "ledgers": distances}

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Return the progress of a value that `to_value` returned.

        Raises:
            CorruptProgressError: The value is malformed.
        """
        match value:
            case {"next": [ledger_id, entry_id], "first": first, "ledgers": [*distances]}:
                position = Position(
                    _number(ledger_id, 0, MAX_LEDGER_ID + 1), _number(entry_id, 0, _MAX_ENTRY_ID)
                )
                first = _number(first, 0, MAX_LEDGER_ID + 1)
                least = (first if number == 0 else 1 for number in range(len(distances)))
                ids = tuple(
                    accumulate(
                        _number(*each, MAX_LEDGER_ID) for each in zip(distances, least, strict=True)
                    )
                )
                _number(max(ids, default=0), 0, MAX_LEDGER_ID)
                return cls(position, ids, first)
        message = f"this is not the progress of a topic: {_shown(value)}"
        raise CorruptProgressError(message)


@dataclass(frozen=True)
class Progress:
    """How far each topic was read; a topic that is missing was not read yet."""

    topics: Mapping[TopicName, TopicProgress] = field(
        default_factory=lambda: MappingProxyType[TopicName, TopicProgress]({})
    )

    def topic_progress(self, topic: TopicName) -> TopicProgress:
        """Return the progress of one topic partition; the beginning if it was not read yet."""
        return self.topics.get(topic, TopicProgress())

    def to_value(self) -> dict[str, Any]:
        """Return the progress as a value for JSON."""
        pairs = sorted((str(topic), each) for topic, each in self.topics.items())
        topics = {name: each.to_value() for name, each in pairs}
        return {"version": VERSION, "crc32": json_crc32(topics), "topics": topics}

    def to_json(self) -> str:
        """Return the progress as JSON; equal progress has equal text."""
        return json.dumps(self.to_value(), separators=(",", ":"))

    @classmethod
    def from_value(cls, value: object) -> Self:
        """Return the progress of a value that `to_value` returned; unknown names are ignored.

        Raises:
            CorruptProgressError: The value is malformed, was modified, or has an unknown version.
        """
        match value:
            case {"version": int(version)} if version != VERSION:
                message = (
                    f"the progress has version {version}, and this release reads version {VERSION}"
                )
                raise CorruptProgressError(message)
            case {"version": int(), "topics": dict(topics), **rest}:
                _check_crc32(rest.get("crc32"), topics)
                return cls(
                    {
                        _topic(name): _read_topic_progress(name, each)
                        for name, each in topics.items()
                    }
                )
        message = f"this is not the progress of topics: {_shown(value)}"
        raise CorruptProgressError(message)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the progress of a text that `to_json` returned.

        Raises:
            CorruptProgressError: The text is malformed, was modified, or has an unknown version.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            message = f"the progress of topics is not valid JSON: {error}"
            raise CorruptProgressError(message) from None
        return cls.from_value(value)


def _check_crc32(recorded: object, topics: dict[str, object]) -> None:
    if recorded is None:
        message = "the progress has no checksum (crc32): this release did not write it"
        raise CorruptProgressError(message)
    try:
        expected = json_crc32(topics)
    except RecursionError as error:
        message = f"the progress of topics cannot be read: {error}"
        raise CorruptProgressError(message) from None
    if type(recorded) is not int or recorded != expected:
        message = "the progress was changed: its checksum (crc32) is not that of its topics"
        raise CorruptProgressError(message)


def _topic(name: str) -> TopicName:
    try:
        topic = TopicName.parse(name)
    except OptionError as error:
        raise CorruptProgressError(error.message) from None
    if str(topic) != name:
        message = f"progress needs full names of topics, not {_shown(name)}"
        raise CorruptProgressError(message)
    return topic


def _read_topic_progress(name: str, value: object) -> TopicProgress:
    try:
        return TopicProgress.from_value(value)
    except CorruptProgressError as error:
        message = f"{name}: {error.message}"
        raise CorruptProgressError(message) from None


def _number(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        message = f"expected a whole number from {least} to {most}, found {_shown(value)}"
        raise CorruptProgressError(message)
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
