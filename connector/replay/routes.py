"""Which partition of the target a message goes to, the same in every run."""

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
    from connector.replay.outgoing import Outgoing


@dataclass(frozen=True, slots=True)
class Routes:
    """Where the messages of a topic go.

    Attributes:
        targets: The partitions of the target, by number; a topic without partitions by itself.
        by_key: Whether the key chooses the partition; else it is that of the source.
    """

    targets: Sequence[TopicName]
    by_key: bool

    def targets_for(self, source: TopicName) -> Sequence[TopicName]:
        """The partitions that messages of a source partition may go to.

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
            f"partitions are kept, and {base} has {has}, while {source} {is_one}: make it fit"
            " before, or choose partitions by key (by_key)"
        )
        raise OptionError(message)


def choose_partition(message: Outgoing, partitions: int) -> int:
    """The partition, of so many, that a key chooses: as Pulsar's producers do by default, in Java.

    Messages without a key are spread entry by entry.
    """
    place, _, _, _, key, *_ = message
    return (entry_from_place(place)[1] if key is None else java_string_hash(key)) % partitions
