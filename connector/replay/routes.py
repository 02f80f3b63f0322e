"""The target partition of each message, which is the same in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from connector.replay.places import entry_from_place
from connector.writing.message_router import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.inputs.topic_names import TopicName
    from connector.replay.outgoing import OutgoingMessage


@dataclass(frozen=True, slots=True)
class Routes:
    """The target partitions that messages are sent to.

    Attributes:
        targets: The partitions of the target, by number, or the topic itself if it is not
            partitioned.
        by_key: Whether the key chooses the partition. Otherwise the number of the source partition
            does.
    """

    targets: Sequence[TopicName]
    by_key: bool

    def targets_for(self, source: TopicName) -> Sequence[TopicName]:
        """Return the target partitions that messages of a source partition may be sent to.

        Raises:
            OptionError: The target has no such partition.
        """
        if self.by_key:
            return self.targets
        for each in self.targets:
            if each.partition == source.partition:
                return [each]
        base = self.targets[0].base
        count = len(self.targets)
        has = "no partitions" if self.targets[0].partition < 0 else counted(count, "partition")
        is_one = "has none" if source.partition < 0 else f"is partition {source.partition}"
        message = (
            f"{source} {is_one}, but {base} has {has}: create matching partitions first, or choose"
            " them by key (by_key)"
        )
        raise OptionError(message)


def choose_partition(message: OutgoingMessage, partitions: int) -> int:
    """Return the number of the partition that a key chooses, as Java producers do by default.

    Messages without a key are distributed by entry id.
    """
    place, _, _, _, key, *_ = message
    return (entry_from_place(place)[1] if key is None else java_string_hash(key)) % partitions
