"""The golden sets: ledgers that a real broker offloaded, and what Pulsar's client read back.

In come the folders of `tests/data/golden`, whose README says what each file is; out come topics
with their offloaded ledgers, in order, and the rows of `messages.jsonl.gz`.
"""

from __future__ import annotations

import atexit
import base64
import functools
import gzip
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = Path(__file__).parents[1] / "data" / "golden"
SCALABLE_SET: Final = "pulsar-5.0.1"
"""The set with segments of scalable topics, and with the topic that was migrated to one."""
GOLDEN_SETS: Final = ("pulsar-4.0.7", "pulsar-4.0.7-small", "pulsar-4.0.7-clients")
MAP_FILE_SETS: Final = ("filesystem-4.0.6-broker-pulsar", "filesystem-4.0.8-broker-record")
"""The sets that brokers offloaded with the filesystem driver: blocks, and records."""

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA_OBJECT: Final = re.compile(rf"({_UUID})-ledger-(\d+)")
_MAP_FILE: Final = re.compile(rf"(\d+)-({_UUID})")


class GoldenRow(TypedDict):
    """One line of `messages.jsonl.gz`: a message as Pulsar's Java client returned it.

    A field that may be absent is absent where the message has no such value; none is ever null.
    """

    ledger: int
    entry: int
    batch: int
    first_chunk: NotRequired[list[int]]
    publish_time: int
    event_time: int
    producer: str
    sequence_id: int
    key: NotRequired[str]
    key_b64: NotRequired[bool]
    ordering_key: NotRequired[str]
    properties: dict[str, str]
    schema_version: NotRequired[str]
    deliver_at: NotRequired[int]
    null_value: bool
    no_data: NotRequired[bool]
    size: int
    sha256: NotRequired[str]
    data: NotRequired[str]


@dataclass(frozen=True, slots=True)
class GoldenLedger:
    """One offloaded ledger of a topic.

    Attributes:
        ledger_id: BookKeeper ledger id.
        entry_count: Number of entries.
        length_bytes: Sum of the entries' lengths, in bytes.
        uuid: The offload attempt that wrote the objects, in its 36-character form.
        data_object: The data object.
        index_object: The index object.
    """

    ledger_id: int
    entry_count: int
    length_bytes: int
    uuid: str
    data_object: Path
    index_object: Path


@dataclass(frozen=True, slots=True)
class GoldenTopic:
    """One topic of a golden set.

    Attributes:
        set_name: Folder of the set, one of `GOLDEN_SETS` or `MAP_FILE_SETS`.
        name: Full topic name, `persistent://…`.
        folder: Folder with the client's rows and the topic's metadata.
        managed_ledger: Managed-ledger name, as in the index objects.
        message_count: How many messages the client read.
        ledgers: The offloaded ledgers, in the topic's order; the open last one is not among them.
    """

    set_name: str
    name: str
    folder: Path
    managed_ledger: str
    message_count: int
    ledgers: tuple[GoldenLedger, ...]

    def __str__(self) -> str:
        """The set and the topic, short enough for a test's id."""
        return f"{self.set_name}:{self.name.removeprefix('persistent://')}"

    @property
    def objects_folder(self) -> Path:
        """The bucket of the whole set: objects of all its topics, flat unless they are MapFiles.

        Ledgers of scalable topics lie among them, as after an upgrade of the cluster to Pulsar 5.0.
        """
        if self.set_name in MAP_FILE_SETS:
            return GOLDEN / self.set_name / "objects"
        return _upgraded_bucket(self.set_name)

    def offloaded_objects(self) -> list[tuple[int, Path, Path]]:
        """Give `(ledger_id, data_object, index_object)` of each offloaded ledger, in order."""
        return [
            (ledger.ledger_id, ledger.data_object, ledger.index_object) for ledger in self.ledgers
        ]

    def messages(self) -> tuple[GoldenRow, ...]:
        """The rows of `messages.jsonl.gz`, read once; in the order in which the client got them."""
        return _read_rows(self.folder / "messages.jsonl.gz")


@functools.cache
def golden_topics() -> tuple[GoldenTopic, ...]:
    """All topics of all sets, in the order of the sets and of their `topics.json`."""
    return tuple(topic for set_name in GOLDEN_SETS for topic in _topics_of_set(set_name))


@functools.cache
def map_file_topics() -> tuple[GoldenTopic, ...]:
    """All topics that were offloaded with the filesystem driver."""
    return tuple(topic for set_name in MAP_FILE_SETS for topic in _topics_of_set(set_name))


def golden_topic(name: str) -> GoldenTopic:
    """The one topic with this full name, or with this local name in `public/default`."""
    full_name = name if "://" in name else f"persistent://public/default/{name}"
    (topic,) = (topic for topic in golden_topics() if topic.name == full_name)
    return topic


def row_payload(row: GoldenRow) -> bytes | None:
    """The payload of a row where the file holds it (600 bytes at most), else None."""
    return base64.b64decode(row["data"]) if "data" in row else None


def _topics_of_set(set_name: str) -> Iterator[GoldenTopic]:
    folder = GOLDEN / set_name
    pairs = dict(_pairs_of_objects(folder / "objects"))
    topics = json.loads((folder / "topics.json").read_text(encoding="utf-8"))
    for name, topic in topics.items():
        yield GoldenTopic(
            set_name=set_name,
            name=name,
            folder=folder / topic["dir"],
            managed_ledger=topic["managed_ledger"],
            message_count=topic["messages"],
            ledgers=tuple(
                _ledger(ledger, *pairs[ledger["ledger"]])
                for ledger in topic["ledgers"]
                if ledger["offloaded"]
            ),
        )


def _ledger(ledger: dict[str, int], uuid: str, data_object: Path, index: Path) -> GoldenLedger:
    return GoldenLedger(
        ledger_id=ledger["ledger"],
        entry_count=ledger["entries"],
        length_bytes=ledger["size"],
        uuid=uuid,
        data_object=data_object,
        index_object=index,
    )


def _pairs_of_objects(objects: Path) -> Iterator[tuple[int, tuple[str, Path, Path]]]:
    """Give uuid, data object and index object of each ledger, of which the sets have one copy."""
    for path in objects.iterdir():
        match = _DATA_OBJECT.fullmatch(path.name)
        if match:
            yield int(match[2]), (match[1], path, path.with_name(f"{path.name}-index"))
    for path in objects.glob("*/*/persistent/*/*"):
        match = _MAP_FILE.fullmatch(path.name)
        if match:
            yield int(match[1]), (match[2], path / "data", path / "index")


@functools.cache
def _upgraded_bucket(set_name: str) -> Path:
    """A folder for this process with the objects of a set and those of segments."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    described = json.loads((GOLDEN / SCALABLE_SET / "objects.json").read_text(encoding="utf-8"))
    segments = [
        GOLDEN / SCALABLE_SET / "objects" / name
        for name, each in described.items()
        if "/segment/" in each["user_metadata"]["managedledgername"]
    ]
    for path in (*(GOLDEN / set_name / "objects").iterdir(), *segments):
        _link(path, folder / path.name)
    return folder


def _link(path: Path, name: Path) -> None:
    try:
        name.hardlink_to(path)
    except OSError:
        # The folder may be of another file system.
        shutil.copy2(path, name)


@functools.cache
def _read_rows(path: Path) -> tuple[GoldenRow, ...]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)
