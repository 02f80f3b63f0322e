"""Doors of the project, each opened on a bucket whose answers fail, and what must come out then.

A door that ends well has the rows that a sound bucket gives. One that fails does so by an error of
the project's, and opened again on a sound bucket it ends well, and nothing is left of its failure.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.own_options import Client
from connector import copy_topics, open_catalog, open_topic
from connector.increments.increment import Limits
from connector.increments.progress import Progress
from connector.lake.copy import MESSAGE_COLUMNS
from connector.statistics.analysis import analyze, unknown_ledgers
from connector.statistics.store import open_statistics
from connector.tables.parquet import ParquetTable
from connector.upkeep.audit.audit import audit
from tests.support.buckets import TOPIC
from tests.support.increments import in_order, increments_of, read_increment
from tests.support.lake_copies import SCHEMA, batch_rows, write_topic
from tests.support.lake_tables import table_of
from tests.support.statistics import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

CLIENTS: Final = tuple(Client)
NUMBERS: Final = range(30)
"""What the messages of the topic are told by."""
_RANGE_BYTES: Final = 400
"""So short that a ledger is several requests."""
_COLUMNS: Final = [*MESSAGE_COLUMNS, "__value__"]


@dataclass
class Given:
    """What a stream gave until it broke."""

    progress: Progress = field(default_factory=Progress)
    batches: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(frozen=True)
class Scene:
    """A topic in a bucket, and room for what a door writes.

    Attributes:
        url: The bucket of the topic.
        client: What sends the requests.
        options: Storage options that lead to the store through the proxy, but for the client.
        sound_options: Those that lead there directly, by fsspec.
        room_url: A folder in the store that nobody else has, empty.
        folder: A local one.
        given: What a stream gave until it broke.
    """

    url: str
    client: str
    options: dict[str, object]
    sound_options: dict[str, object]
    room_url: str
    folder: Path
    given: Given = field(default_factory=Given)

    @property
    def reading(self) -> dict[str, object]:
        """Storage options to read with."""
        return self.options | {"client": self.client}

    @property
    def target(self) -> tuple[str, dict[str, object] | None]:
        """Where to write, and with which options: obstore does not write to S3."""
        if self.client == "obstore":
            return str(self.folder), None
        return self.room_url, self.options

    @property
    def sound_target(self) -> tuple[str, dict[str, object] | None]:
        """The same place, without the proxy."""
        url, options = self.target
        return url, None if options is None else self.sound_options

    @property
    def sound(self) -> Scene:
        """The same scene, where nothing fails."""
        return replace(self, options=self.sound_options)

    def left_over(self) -> dict[str, Callable[[], None]]:
        """Objects in the room that a door that failed has left, and uploads that nobody completed.

        Each comes with what deletes it.
        """
        url, options = self.sound_target
        room, table = Location(url, options), ParquetTable(Location(f"{url}/table", options))
        found: dict[str, Callable[[], None]] = {}
        for place in (room, table.location):
            for each in place.unfinished_uploads():
                found[each.name] = partial(place.abort_upload, each.name, each.upload_id)
        unnamed = [(table.location, name) for name in table.find_unnamed_files()]
        with suppress(MissingObjectError):
            names = {each.name for each in room.list_objects()}
            pairs = {name.removesuffix("-index") for name in names}
            whole = all({name, f"{name}-index"} <= names for name in pairs if "-ledger-" in name)
            unnamed += [] if whole else [(room, name) for name in names if "-ledger-" in name]
        for place, name in unnamed:
            found[name] = partial(place.delete_objects, [name])
        return found


def write_source(url: str, options: dict[str, object]) -> None:
    """Write the topic of the scenes: five ledgers of two entries of three messages."""
    write_topic(url, NUMBERS, storage_options=options)


def _table(scene: Scene, **options: Any) -> pa.Table:  # noqa: ANN401 - those of `open_topic`
    dataset = open_topic(
        scene.url,
        TOPIC,
        value="raw",
        storage_options=scene.reading,
        range_bytes=_RANGE_BYTES,
        **options,
    )
    return dataset.to_table(_COLUMNS)


def open_it(scene: Scene) -> object:
    """List topics, and the ledgers of one."""
    catalog = open_catalog(scene.url, storage_options=scene.reading)
    topics = [str(topic) for topic in catalog.topics()]
    (ledgers,) = open_topic(scene.url, TOPIC, catalog=catalog, value="raw").scan.topics
    return topics, [each.ledger_id for each in ledgers.ledgers]


def read(scene: Scene) -> object:
    """Read all rows."""
    return _table(scene).to_pylist()


def salvage(scene: Scene) -> object:
    """Read all rows, but for those that are damaged."""
    return _table(scene, on_corruption="salvage").to_pylist()


def audit_it(scene: Scene) -> object:
    """Audit the bucket, as the command line does."""
    catalog = open_catalog(scene.url, storage_options=scene.reading)
    try:
        uploads = catalog.location.unfinished_uploads()
    except StorageError:
        uploads = []
    return audit(catalog, uploads=uploads).findings


def stream(scene: Scene) -> object:
    """Read the topic in increments, from where the stream that broke before had come to."""
    source = increments_of(
        scene.url,
        catalog_options={"storage_options": scene.reading, "range_bytes": _RANGE_BYTES},
        columns=_COLUMNS,
    )
    given, limits = scene.given, Limits(max_ledgers=2)
    while (new := source.next_increment(given.progress, limits)).after != given.progress:
        given.batches += read_increment(new)
        given.progress = new.after
        source.refresh()
    return in_order(given.batches, given.batches[0].schema)


def analyze_it(scene: Scene) -> object:
    """Analyze what is not known of the topic, into the target."""
    dataset = open_topic(scene.url, TOPIC, value="raw", storage_options=scene.reading)
    url, options = scene.target
    known = open_statistics(url, options)
    ledgers = [each for topic in dataset.scan.topics for each in topic.data]
    unknown = unknown_ledgers(known, TOPIC, ledgers)
    analyze(known, [(TOPIC, each) for each in unknown])
    return analyzed_rows(scene)


def analyzed_rows(scene: Scene) -> object:
    """What is known in the target, asked for without the proxy."""
    statistics = open_statistics(*scene.sound_target)
    return sorted(rows_of(statistics, TOPIC), key=lambda row: row["ledger_id"])


def copy(scene: Scene) -> object:
    """Copy the topic to a table in the target."""
    url, options = scene.target
    copy_topics(
        scene.url,
        TOPIC,
        f"{url}/table",
        format="parquet",
        storage_options=scene.reading,
        target_options=options or {},
        schema=SCHEMA,
    )
    url, options = scene.sound_target
    rows = table_of(ParquetTable(Location(f"{url}/table", options))).to_pylist()
    return sorted(rows, key=lambda row: row["number"])


def write(scene: Scene) -> object:
    """Write the topic's messages into the target."""
    url, options = scene.target
    write_topic(url, NUMBERS, storage_options=options)
    url, options = scene.sound_target
    rows = batch_rows(url, storage_options=options)
    # What an earlier write has left may have taken its ledger ids.
    return [{name: row[name] for name in ("__key__", "number")} for row in rows]


DOORS: Final[dict[str, Callable[[Scene], object]]] = {
    "open": open_it,
    "read": read,
    "salvage": salvage,
    "audit": audit_it,
    "stream": stream,
    "analyze": analyze_it,
    "copy": copy,
    "write": write,
}
