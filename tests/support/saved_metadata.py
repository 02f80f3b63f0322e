"""What a model's cluster knows, saved in every form in which it can be given to a catalog.

Whole or damaged, of one time or of several; and what it says, for a test to compare with.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from connector import open_catalog
from connector.catalog.metadata.admin_answers import internal_info_json, internal_stats_json
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from tests.support.codecs import compressed_managed_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from tests.support.admin_server import AdminServer, Parts
    from tests.support.cluster_model import ModelWorld, Owner

_numbers = itertools.count()


class Form(StrEnum):
    """A file of a topic's metadata."""

    VALUE = "managed-ledger-info.bin"
    COMPRESSED_VALUE = "managed-ledger-info.bin "
    """The same file, compressed."""
    INFO = "internal-info.json"
    STATS = "internal-stats.json"

    @property
    def file(self) -> str:
        """Its name."""
        return self.value.strip()

    def content(self, metadata: TopicMetadata) -> bytes:
        """What a cluster would give."""
        match self:
            case Form.VALUE:
                return serialize_managed_ledger_info(metadata)
            case Form.COMPRESSED_VALUE:
                return compressed_managed_ledger("ZSTD", serialize_managed_ledger_info(metadata))
            case Form.INFO:
                return internal_info_json(metadata).encode()
            case Form.STATS:
                return internal_stats_json(metadata).encode()


class Layout(StrEnum):
    """What tells which topic a folder is of."""

    MAPPING = "the user"
    LISTED = "topics.json"
    NESTED = "names of nested folders"
    JOINED = "the folder's name"


FORMS: Final[tuple[tuple[Form, ...], ...]] = (
    (Form.VALUE,),
    (Form.COMPRESSED_VALUE,),
    (Form.INFO,),
    (Form.STATS,),
    (Form.INFO, Form.STATS),
    (Form.VALUE, Form.INFO),
    (Form.VALUE, Form.STATS),
    (Form.VALUE, Form.INFO, Form.STATS),
)


@dataclass(frozen=True)
class Damage:
    """What became of one file.

    Attributes:
        fraction: Where, from the file's start (0) to its end (1).
        bit: Which bit of that byte is flipped; None: the file ends there.
    """

    fraction: float
    bit: int | None = None

    def done_to(self, data: bytes) -> bytes:
        """The file after it."""
        place = min(int(self.fraction * len(data)), max(len(data) - 1, 0))
        if self.bit is None or not data:
            return data[:place]
        return data[:place] + bytes([data[place] ^ 1 << self.bit]) + data[place + 1 :]


@dataclass(frozen=True, eq=False)
class SavedMetadata:
    """Metadata that was saved.

    Attributes:
        owner: Who knew it.
        metadata: What `open_catalog` takes.
        step: When the newest of it was saved.
        known: What was known of each topic then.
        forms: The files; none of a snapshot, or of what a live cluster answers.
        layout: What tells the topics.
        is_whole: Whether it is undamaged.
        is_of_one_time: Whether all of it was saved at once.
        files: The content of each file, by topic and name.
    """

    owner: Owner
    metadata: Any
    step: int
    known: Mapping[str, TopicMetadata]
    forms: tuple[Form, ...] = ()
    layout: Layout = Layout.MAPPING
    is_whole: bool = True
    is_of_one_time: bool = True
    is_snapshot: bool = False
    files: Mapping[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def tells_uuids(self) -> bool:
        """Whether it names the copies that count."""
        return self.forms != (Form.STATS,)

    @property
    def tells_completion(self) -> bool:
        """Whether it tells which offloads are complete."""
        return self.forms != (Form.INFO,)


@contextlib.contextmanager
def model_time(world: ModelWorld) -> Iterator[None]:
    """Let production code see the clock of the model's clusters."""

    class ModelDatetime(datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:  # noqa: ANN401 - the base class's signature
            return datetime.fromtimestamp(world.now_ms / 1000, tz)

    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("connector.") and vars(module).get("datetime") is datetime:
                stack.enter_context(patch.object(module, "datetime", ModelDatetime))
        stack.enter_context(patch("time.time_ns", lambda: world.now_ms * 1_000_000))
        yield


class _AnyDatetime(type):
    """Makes every datetime an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def save(
    world: ModelWorld,
    owner: Owner,
    forms: Sequence[Form] = (Form.VALUE,),
    *,
    layout: Layout = Layout.MAPPING,
    older: SavedMetadata | None = None,
    damage: Damage | None = None,
    damaged: int = 0,
    lacking: int | None = None,
) -> SavedMetadata:
    """Save what somebody knows now.

    Args:
        world: The model.
        owner: Who knows it; has a topic.
        forms: The files of each topic.
        layout: What tells the topics.
        older: Whose other files lie beside these.
        damage: What becomes of one file.
        damaged: Which, counted from 0, in a round.
        lacking: Which ledger the new files lack of each topic, counted from 0, in a round.
    """
    known = {name: topic.known for name, topic in sorted(owner.topics.items())}
    files = {
        (name, form.file): form.content(_without(metadata, lacking))
        for name, metadata in known.items()
        for form in forms
    }
    kept = {
        place: data
        for place, data in (older.files if older else {}).items()
        if place[0] in known and place not in files
    }
    all_forms = (*forms, *(older.forms if older and kept else ()))
    files |= kept
    if damage is not None:
        place = sorted(files)[damaged % len(files)]
        files[place] = damage.done_to(files[place])
    metadata, written = _written(world, files, layout)
    return SavedMetadata(
        owner,
        metadata,
        world.step,
        {name: each for name, each in known.items() if name in written},
        tuple(form for form in FORM_ORDER if form in all_forms),
        layout,
        is_whole=damage is None and lacking is None,
        is_of_one_time=not kept,
        files=files,
    )


FORM_ORDER: Final = tuple(Form)


def _without(metadata: TopicMetadata, lacking: int | None) -> TopicMetadata:
    """The list of ledgers as a part of a value may have it: Java's HashMap knows no order."""
    if lacking is None or not metadata.ledgers:
        return metadata
    place = lacking % len(metadata.ledgers)
    ledgers = (*metadata.ledgers[:place], *metadata.ledgers[place + 1 :])
    return replace(metadata, ledgers=ledgers)


def save_snapshot(world: ModelWorld, saved: SavedMetadata) -> SavedMetadata:
    """Save a catalog, with metadata that was just saved or is live."""
    url = f"{world.store.url}/s{next(_numbers)}.json.gz"
    with model_time(world):
        open_catalog(world.bucket.url, metadata=saved.metadata).save(url)
    return replace(saved, metadata=url, is_snapshot=True)


def damage_snapshot(world: ModelWorld, saved: SavedMetadata, damage: Damage) -> SavedMetadata:
    """The same snapshot, damaged."""
    name = saved.metadata.rpartition("/")[2]
    copy = f"s{next(_numbers)}.json.gz"
    world.store.put(copy, damage.done_to(world.store.objects[name].data))
    return replace(saved, metadata=f"{world.store.url}/{copy}", is_whole=False)


def ask_live(world: ModelWorld, owner: Owner, server: AdminServer) -> SavedMetadata:
    """Let a server answer for a cluster as it is now."""
    answer_for(owner, server)
    known = {name: topic.known for name, topic in sorted(owner.topics.items())}
    return SavedMetadata(owner, server.url, world.step, known)


def answer_for(owner: Owner, server: AdminServer, *, tells_uuids: bool = True) -> None:
    """Let a server answer as a cluster would now, with the uuids of offloads or without."""
    server.answers = _answers(owner, tells_uuids=tells_uuids)


def nodes_of(owner: Owner) -> dict[str, bytes]:
    """What the metadata store of a cluster has now, by path."""
    return {
        f"/managed-ledgers/{topic.known.topic.managed_ledger_name}": Form.VALUE.content(topic.known)
        for topic in owner.topics.values()
    }


def _answers(owner: Owner, *, tells_uuids: bool) -> dict[Parts, bytes]:
    answers: dict[Parts, bytes] = {("clusters",): b'["standalone"]'}
    namespaces: dict[str, set[str]] = {}
    topics: dict[tuple[str, str], list[str]] = {}
    for name, topic in sorted(owner.topics.items()):
        parts = topic.known.topic
        place = (parts.tenant, parts.namespace)
        namespaces.setdefault(parts.tenant, set()).add("/".join(place))
        topics.setdefault(place, []).append(name)
        path = ("persistent", *place, parts.local_name)
        info = topic.known if tells_uuids else _without_uuids(topic.known)
        answers[*path, "internal-info"] = Form.INFO.content(info)
        answers[*path, "internalStats"] = Form.STATS.content(topic.known)
    answers["tenants",] = json.dumps(sorted(namespaces)).encode()
    for tenant, names in namespaces.items():
        answers["namespaces", tenant] = json.dumps(sorted(names)).encode()
    for place, names_of_topics in topics.items():
        answers["persistent", *place] = json.dumps(names_of_topics).encode()
    return {("admin", "v2", *path): answer for path, answer in answers.items()}


def _without_uuids(metadata: TopicMetadata) -> TopicMetadata:
    ledgers = tuple(
        replace(each, offload=replace(each.offload, uuid=None)) if each.offload else each
        for each in metadata.ledgers
    )
    return replace(metadata, ledgers=ledgers)


def _written(
    world: ModelWorld, files: Mapping[tuple[str, str], bytes], layout: Layout
) -> tuple[Any, set[str]]:
    """Write files into a new folder; what `open_catalog` takes, and the topics that are in it.

    Of topics whose folders have one name, the last overwrites the others.
    """
    root = f"m{next(_numbers)}"
    folders: dict[str, str] = {}
    for number, name in enumerate(dict.fromkeys(topic for topic, _ in files)):
        path = name.removeprefix("persistent://")
        folder = {Layout.NESTED: path, Layout.JOINED: path.replace("/", "__")}.get(
            layout, f"t{number}"
        )
        folders = {each: other for each, other in folders.items() if other != folder}
        folders[name] = folder
    for (topic, file), data in files.items():
        if topic in folders:
            world.store.put(f"{root}/{folders[topic]}/{file}", data)
    url = f"{world.store.url}/{root}"
    if layout is Layout.LISTED:
        listed = {topic: {"dir": folder} for topic, folder in folders.items()}
        world.store.put(f"{root}/topics.json", json.dumps(listed).encode())
    if layout is Layout.MAPPING:
        return {topic: f"{url}/{folder}" for topic, folder in folders.items()}, set(folders)
    return url, set(folders)


def as_time(milliseconds: int) -> datetime:
    """A time of the model as production code takes it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
