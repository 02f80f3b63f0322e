"""A copy of a golden bucket in a folder, with what its cluster knows of it, for a test to change.

Every object is a day older than the metadata, unless a test writes it.
"""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from arrow_io.errors import IncompleteReadWarning
from arrow_io.format.object_names import LedgerObjectName
from connector import open_catalog, open_topic
from connector.catalog.metadata.managed_ledger import (
    parse_managed_ledger_info,
    serialize_managed_ledger_info,
)
from connector.catalog.metadata.manifest import MANIFEST_FILE, manifest_json
from connector.catalog.metadata.topic_metadata import OffloadContext
from connector.inputs.topic_names import TopicName
from connector.upkeep.audit.audit import audit
from tests.support.golden import GOLDEN, golden_topics, map_file_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from connector import Catalog
    from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
    from connector.upkeep.audit.audit import Audit
    from tests.support.golden import GoldenLedger, GoldenTopic

    Change = Callable[[LedgerInfo], LedgerInfo | None]

SMALL: Final = "pulsar-4.0.7-small"
VALUE_FILE: Final = "managed-ledger-info.bin"
ANSWER_FILES: Final = ("internal-info.json", "internal-stats.json")
SCHEMAS_FILE: Final = "schemas-rest.json"

LONG_AGO: Final = datetime(2026, 11, 20, tzinfo=UTC)
"""Older than all metadata of the golden sets."""
SINCE: Final = datetime(2026, 11, 21, 18, tzinfo=UTC)
"""Newer than all of it."""

OTHER_UUID: Final = UUID(int=7)


def copy_metadata(set_name: str, folder: Path, files: Sequence[str]) -> Path:
    """Copy some of the metadata of each topic of a golden set, and the list of the topics."""
    folder.mkdir()
    shutil.copy(GOLDEN / set_name / "topics.json", folder)
    for topic in (*golden_topics(), *map_file_topics()):
        if topic.set_name == set_name:
            (folder / topic.folder.name).mkdir()
            for file in files:
                if (topic.folder / file).exists():
                    shutil.copy(topic.folder / file, folder / topic.folder.name)
    return folder


@dataclass(frozen=True)
class OwnedBucket:
    """A bucket and the metadata of its topics.

    Attributes:
        objects: Folder of the objects.
        metadata: Folder of the metadata store's values, and of the schemas, with manifests.
    """

    objects: Path
    metadata: Path

    @classmethod
    def copied(cls, folder: Path, set_name: str = SMALL) -> OwnedBucket:
        """Copy a golden set into an empty folder."""
        objects = folder / "objects"
        shutil.copytree(GOLDEN / set_name / "objects", objects)
        metadata = copy_metadata(set_name, folder / "metadata", (VALUE_FILE, SCHEMAS_FILE))
        bucket = cls(objects, metadata)
        for topic in (*golden_topics(), *map_file_topics()):
            if topic.set_name == set_name:
                bucket.prove(topic.name)
        for path in filter(Path.is_file, objects.rglob("*")):
            bucket.age(str(path.relative_to(objects)), LONG_AGO)
        return bucket

    def age(self, name: str, modified: datetime) -> None:
        """Say when an object was written."""
        os.utime(self.objects / name, (modified.timestamp(), modified.timestamp()))

    def write(self, name: str, data: bytes, modified: datetime = LONG_AGO) -> None:
        """Write an object."""
        (self.objects / name).write_bytes(data)
        self.age(name, modified)

    def delete(self, *names: str) -> None:
        """Delete objects."""
        for name in names:
            (self.objects / name).unlink()

    def copy_ledger(
        self, ledger: GoldenLedger, uuid: UUID = OTHER_UUID, modified: datetime = LONG_AGO
    ) -> LedgerObjectName:
        """Copy the objects of a ledger under another uuid."""
        name = LedgerObjectName(uuid, ledger.ledger_id)
        self.write(name.data_name, ledger.data_object.read_bytes(), modified)
        self.write(name.index_name, ledger.index_object.read_bytes(), modified)
        return name

    def known(self, topic: str) -> TopicMetadata:
        """What the metadata says of a topic."""
        name = TopicName.parse(topic)
        return parse_managed_ledger_info(self._value(topic).read_bytes(), name)

    def tell(self, metadata: TopicMetadata) -> None:
        """Let the metadata say this of a topic."""
        self._value(str(metadata.topic)).write_bytes(serialize_managed_ledger_info(metadata))
        self.prove(str(metadata.topic))

    def prove(self, topic: str) -> None:
        """Let a manifest say that the metadata of a topic is as it was written."""
        folder = self._value(topic).parent
        files = {each.name: each.read_bytes() for each in folder.iterdir()}
        files.pop(MANIFEST_FILE, None)
        name = TopicName.parse(self._golden(topic).name)
        (folder / MANIFEST_FILE).write_bytes(manifest_json(name, files))

    def unprove(self, topic: str) -> None:
        """Let nothing say that the metadata of a topic is whole."""
        (self._value(topic).parent / MANIFEST_FILE).unlink()

    def change(self, topic: str, changes: Mapping[int, Change]) -> None:
        """Let the metadata say something else of some ledgers of a topic, by ledger id."""
        known = self.known(topic)
        changed = [changes.get(ledger.ledger_id, unchanged)(ledger) for ledger in known.ledgers]
        self.tell(replace(known, ledgers=tuple(each for each in changed if each is not None)))

    def catalog(self, **options: Any) -> Catalog:  # noqa: ANN401 - those of open_catalog
        """The catalog, with the metadata."""
        return open_catalog(str(self.objects), **{"metadata": self.metadata, **options})

    def audited(self, *, is_one_cluster: bool = True, **options: Any) -> Audit:  # noqa: ANN401
        """What an audit of the bucket and its uploads finds; a folder tells of no cluster."""
        catalog = self.catalog(**options)
        uploads = catalog.location.unfinished_uploads()
        return audit(catalog, uploads=uploads, is_one_cluster=is_one_cluster)

    def rows(self) -> dict[str, pa.Table]:
        """The rows of every topic, as far as they can be read."""
        catalog = self.catalog()
        with warnings.catch_warnings(action="ignore", category=IncompleteReadWarning):
            return {
                str(topic): open_topic(
                    str(self.objects),
                    str(topic),
                    catalog=catalog,
                    value="raw",
                    decryption_keys=str(GOLDEN / "keys"),
                    on_corruption="salvage",
                ).to_table()
                for topic in catalog.topics()
            }

    def _value(self, topic: str) -> Path:
        return self.metadata / self._golden(topic).folder.name / VALUE_FILE

    def _golden(self, topic: str) -> GoldenTopic:
        full_name = str(TopicName.parse(topic))
        topics = (*golden_topics(), *map_file_topics())
        return next(
            each
            for each in topics
            if each.name == full_name and (self.metadata / each.folder.name).is_dir()
        )


def unchanged(info: LedgerInfo) -> LedgerInfo:
    """The ledger as it is known."""
    return info


def gone(_info: LedgerInfo) -> None:
    """The ledger is not one of the topic's any more."""


def not_offloaded(info: LedgerInfo) -> LedgerInfo:
    """No offload of the ledger was ever begun."""
    return replace(info, offload=None)


def under_way(info: LedgerInfo) -> LedgerInfo:
    """The offload of the ledger has not completed."""
    assert info.offload is not None
    return replace(info, offload=replace(info.offload, complete=False, timestamp_ms=None))


def under_way_elsewhere(info: LedgerInfo) -> LedgerInfo:
    """An offload of the ledger under another uuid has not completed."""
    return replace(info, offload=OffloadContext(uuid=OTHER_UUID, complete=False))


def without_uuid(info: LedgerInfo) -> LedgerInfo:
    """Nothing tells the uuid of the offload."""
    assert info.offload is not None
    return replace(info, offload=replace(info.offload, uuid=None))
