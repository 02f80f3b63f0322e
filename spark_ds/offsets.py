"""Where a stream begins and how far it is, in Spark's words ⇄ progress of topics.

Spark keeps offsets as JSON in a checkpoint, shows them in the progress of a query, and takes two
for the same if their texts are equal. An offset is what `Progress.to_value` gives, and beside it

- `read`: bytes of data objects and ledgers of the batch that ends there;
- `behind`: how many more were in the bucket then.
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
_Place = TypeVar("_Place")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_FORMS: Final = (
    "earliest, latest, one message id ((ledger,entry[,batch]) or ledger:entry), or a JSON object"
    " with earliest, latest or an id for each topic or partition"
)


@dataclass(frozen=True)
class StartingOffsets:
    """Where a stream begins that is no bound of a batch read.

    Attributes:
        starts: `latest`; or the place of each topic or partition, by name; or the offsets that
            another stream came to.
    """

    starts: str | Mapping[TopicName, str | Position] | Progress

    def progress(self, source: Increments) -> Progress:
        """The progress that a stream begins with. Topics that are not named begin at the earliest.

        Raises:
            OptionError: A topic is named that is not read.
            PulsarOffloadError: The topics cannot be found.
        """
        if isinstance(self.starts, Progress):
            return self.starts
        latest = source.latest()
        if isinstance(self.starts, str):
            return latest
        progress_by_topic = {}
        # A partition's own place counts for more than that of its topic.
        for name, place in sorted(self.starts.items(), key=lambda each: each[0] != each[0].base):
            topics = [each for each in latest.topics if name in (each, each.base)]
            if not topics:
                some = ", ".join(map(str, latest.topics))
                message = f"startingOffsets names {name}, which is not read; there are: {some}"
                raise OptionError(message)
            for each in topics:
                if place == LATEST:
                    progress_by_topic[each] = latest.topic_progress(each)
                elif isinstance(place, Position):
                    progress_by_topic[each] = latest.topic_progress(each).at(place)
                else:
                    progress_by_topic.pop(each, None)
        return Progress(progress_by_topic)


Start: TypeAlias = "Bound | StartingOffsets | None"


def read_starting_offsets(option: str, text: str) -> Start:
    """Read the option `startingOffsets`; None: from the earliest.

    Raises:
        OptionError: It has none of the forms that are allowed.
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
        value = json.loads(text, object_pairs_hook=_each_once)
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
        places = _each_once(_by_topic(value))
    except ValueError as error:
        message = f"{option}: {error}"
        raise OptionError(message) from None
    return StartingOffsets({name: _place(option, each) for name, each in places.items()})


def _each_once(pairs: Iterable[tuple[_Name, _Place]]) -> dict[_Name, _Place]:
    """Names with what they stand for.

    Raises:
        ValueError: A name stands twice.
    """
    values: dict[_Name, _Place] = {}
    for name, each in pairs:
        if name in values:
            message = f"{name} stands twice"
            raise ValueError(message)
        values[name] = each
    return values


def _by_topic(value: Mapping[str, object]) -> list[tuple[TopicName, object]]:
    """The places by topic; those of partitions may stand in an object by their numbers."""
    places: list[tuple[TopicName, object]] = []
    for name, each in value.items():
        if isinstance(each, Mapping):
            places += [
                (TopicName.parse(f"{name}-partition-{n}"), place) for n, place in each.items()
            ]
        else:
            places.append((TopicName.parse(name), each))
    return places


def _place(option: str, value: object) -> str | Position:
    if value in {EARLIEST, LATEST} if isinstance(value, str) else False:
        return str(value)
    message_id = read_message_id(tuple(value) if isinstance(value, list) else value)
    if message_id is None or message_id[2]:
        message = (
            f"{option}: where a topic begins must be earliest, latest, or a ledger and an entry,"
            f" (ledger,entry), not {value!r}"
        )
        raise OptionError(message)
    return Position(*message_id[:2])


def read_message_id(value: object) -> tuple[int, int, int] | None:
    """Read a message id in any form; None if it is none."""
    try:
        return Bounds.parse(value, None).start_id  # type: ignore[arg-type]
    except OptionError:
        return None


def offset_of(increment: Increment) -> dict[str, Any]:
    """The offset where an increment ends."""
    return {
        **increment.after.to_value(),
        "read": _amount(increment.amount),
        "behind": _amount(increment.lag),
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"bytes": amount.data_bytes, "ledgers": amount.ledgers}
