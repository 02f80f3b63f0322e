"""Topics in memory whose index objects are to be lost or damaged, with what their cluster knows."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.format.index_block import IndexBlock, read_index_block
from arrow_io.format.object_names import LedgerObjectName, parse_object_name
from connector import Catalog, open_catalog
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.inputs.topic_names import TopicName
from connector.upkeep.repair.repair import plan_repair, repair
from tests.support.damage import specimen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from connector.upkeep.repair.ledger_repair import Repair
    from tests.support.damage import Specimen

METADATA_FILE: Final = "managed-ledger-info.bin"


def index_of(objects: Mapping[str, bytes], name: str) -> IndexBlock:
    """What an index object says."""
    return read_index_block(objects[name], object_key=name)


def known_topic(
    topic: str, objects: Mapping[str, bytes], *, with_numbers: bool = True
) -> TopicMetadata:
    """What the cluster of a topic says of the ledgers that these objects are.

    Args:
        topic: Full name of the topic.
        objects: Its objects, sound, by name.
        with_numbers: Whether it says how many entries and bytes the ledgers have.
    """
    infos = []
    for name in (each for each in objects if each.endswith("-index")):
        parsed = parse_object_name(name)
        assert parsed is not None
        assert parsed.ledger_id is not None
        metadata = index_of(objects, name).ledger_metadata
        infos.append(
            LedgerInfo(
                ledger_id=parsed.ledger_id,
                entries=metadata.last_entry_id + 1 if with_numbers else None,
                size_bytes=metadata.length_bytes if with_numbers else None,
                timestamp_ms=1_700_000_000_000,
                offload=OffloadContext(uuid=parsed.uuid, complete=True, bookkeeper_deleted=True),
            )
        )
    return TopicMetadata(topic=TopicName.parse(topic), ledgers=tuple(infos))


@dataclass(frozen=True)
class RepairScene:
    """A topic in memory.

    Attributes:
        sound: The topic as it was.
        metadata: File of what its cluster knows.
    """

    sound: Specimen
    metadata: Path

    @property
    def index_name(self) -> str:
        """The index object of its first ledger."""
        return self.sound.index_names[0]

    @property
    def data_name(self) -> str:
        """The data object of that ledger."""
        return self.sound.data_names[0]

    @property
    def name(self) -> LedgerObjectName:
        """Names of both."""
        parsed = parse_object_name(self.data_name)
        assert parsed is not None
        return parsed.ledger_object_name

    def catalog(self) -> Catalog:
        """The bucket as it is now, with the metadata."""
        return open_catalog(self.sound.bucket.url, metadata={self.sound.topic: self.metadata})

    def lose_index(self) -> None:
        """Delete the index object."""
        self.sound.bucket.delete(self.index_name)

    def restore(self) -> None:
        """Put everything back."""
        self.sound.bucket.put(self.sound.objects)

    def repaired(self, *ledger_ids: int, verify: bool = False) -> list[Repair]:
        """Repair the bucket."""
        catalog = self.catalog()
        return list(repair(catalog.location, plan_repair(catalog, ledger_ids, verify=verify)))

    def content(self, name: str) -> bytes:
        """The bytes of an object now."""
        return self.catalog().location.read_object(name, max_bytes=1 << 24).data


@contextmanager
def repair_scene(name: str, folder: Path, *, with_numbers: bool = True) -> Iterator[RepairScene]:
    """A specimen, and a file in a folder with what its cluster knows."""
    path = folder / METADATA_FILE
    with specimen(name) as sound:
        known = known_topic(sound.topic, sound.objects, with_numbers=with_numbers)
        path.write_bytes(serialize_managed_ledger_info(known))
        yield RepairScene(sound, path)
