"""Conversion between Spark's stream offsets and the progress of topics.

Spark stores offsets as JSON in a checkpoint, shows them in the progress of a query, and compares
their texts. An offset has the fields of `Progress.to_value`, and

- `read`: bytes of data objects, and ledgers, in the batch that ends there;
- `behind`: bytes and ledgers in the bucket after that batch (the lag).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from arrow_io.errors import CorruptProgressError, OptionError
from connector.increments.progress import Position, Progress
from connector.inputs.bounds import Bounds
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.increments.increment import Amount, Increment, Increments
    from connector.inputs.bounds import Bound

_Name = TypeVar("_Name")
_Start = TypeVar("_Start")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_FORMS: Final = (
    "earliest, latest, one message id ((ledger,entry[,batch]) or ledger:entry), or a JSON object"
    " with earliest, latest or an id for each topic or partition"
)


@dataclass(frozen=True)
class StartingOffsets:
    """A start of a stream that batch reads do not have.

    Attributes:
        starts: `latest`, the start of each topic or partition by name, or the offsets of another
            stream.
    """

    starts: str | Mapping[TopicName, str | Position] | Progress

    def progress(self, source: Increments) -> Progress:
        """Return the progress with which a stream starts.

        Topics without a start begin at the earliest message.

        Raises:
            OptionError: A named topic is not read.
            PulsarOffloadError: The topics cannot be found.
        """
        if isinstance(self.starts, Progress):
            return self.starts
        latest = source.latest()
        if isinstance(self.starts, str):
            return latest
        progress_by_topic = {}
        # A partition's own start takes precedence over that of its topic.
        for name, start in sorted(self.starts.items(), key=lambda each: each[0] != each[0].base):
            topics = [each for each in latest.topics if name in (each, each.base, each.scalable)]
            if not topics:
                topic_names = ", ".join(map(str, latest.topics))
                message = (
                    f"startingOffsets has {name}, which is not read; topics are: {topic_names}"
                )
                raise OptionError(message)
            for each in topics:
                if start == LATEST:
                    progress_by_topic[each] = latest.topic_progress(each)
                elif isinstance(start, Position):
                    progress_by_topic[each] = latest.topic_progress(each).at(start)
                else:
                    progress_by_topic.pop(each, None)
        return Progress(progress_by_topic)


Start: TypeAlias = "Bound | StartingOffsets | None"


def read_starting_offsets(option: str, text: str) -> Start:
    """Parse the option `startingOffsets`. None means the earliest message.

    Raises:
        OptionError: The text has no allowed form.
    """
    if text.lower() == EARLIEST:
        return None
    if text.lower() == LATEST:
        return StartingOffsets(LATEST)
    if not text.startswith("{"):
        message_id = read_message_id(text)
        if message_id is None:
            message = f"{option} must be {_FORMS}, not {text!r}"
            raise OptionError(message)
        return message_id
    try:
        value = json.loads(text, object_pairs_hook=_unique_dict)
    except (ValueError, RecursionError) as error:
        message = f"{option} must be {_FORMS}: {error}"
        raise OptionError(message) from None
    if "version" in value:
        try:
            return StartingOffsets(Progress.from_value(value))
        except CorruptProgressError as error:
            message = f"{option}: {error.message}"
            raise OptionError(message) from None
    try:
        starts = _unique_dict(_starts_by_topic(value))
    except ValueError as error:
        message = f"{option}: {error}"
        raise OptionError(message) from None
    return StartingOffsets({name: _read_start(option, each) for name, each in starts.items()})


def _unique_dict(pairs: Iterable[tuple[_Name, _Start]]) -> dict[_Name, _Start]:
    """Return the pairs as a dictionary. Raises `ValueError` if a name is repeated."""
    values: dict[_Name, _Start] = {}
    for name, each in pairs:
        if name in values:
            message = f"{name} is repeated"
            raise ValueError(message)
        values[name] = each
    return values


def _starts_by_topic(value: Mapping[str, object]) -> list[tuple[TopicName, object]]:
    """Return the starts by topic. An object may have those of a topic's partitions, by number."""
    starts: list[tuple[TopicName, object]] = []
    for name, each in value.items():
        if isinstance(each, Mapping):
            starts += [
                (TopicName.parse(f"{name}-partition-{n}"), start) for n, start in each.items()
            ]
        else:
            starts.append((TopicName.parse(name), each))
    return starts


def _read_start(option: str, value: object) -> str | Position:
    if value in {EARLIEST, LATEST} if isinstance(value, str) else False:
        return str(value)
    message_id = read_message_id(tuple(value) if isinstance(value, list) else value)
    if message_id is None or message_id[2]:
        message = (
            f"{option}: the start of a topic must be earliest, latest, or a ledger and an entry,"
            f" (ledger,entry), not {value!r}"
        )
        raise OptionError(message)
    return Position(*message_id[:2])


def read_message_id(value: object) -> tuple[int, int, int] | None:
    """Parse a message id in any form. Return None if the value is no message id."""
    try:
        return Bounds.parse(value, None).start_id  # type: ignore[arg-type]
    except OptionError:
        return None


def to_offset(increment: Increment) -> dict[str, Any]:
    """Return the offset at the end of an increment."""
    return {
        **increment.after.to_value(),
        "read": _amount(increment.amount),
        "behind": _amount(increment.lag),
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"bytes": amount.data_bytes, "ledgers": amount.ledgers}
