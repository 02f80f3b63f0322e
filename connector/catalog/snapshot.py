"""A catalog in one file, so that opening it again takes one read.

The file is JSON, compressed by gzip, which adds its length and a checksum: every index block, what
the listing said of every object, and what the cluster's metadata said of every topic. Nothing of it
is secret: storage options are not in it, nor is the URL's user information.
"""

from __future__ import annotations

import json
import zlib
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.errors import (
    CorruptSnapshotError,
    FormatError,
    MissingObjectError,
    OptionError,
    StorageError,
)
from arrow_io.storage.location import Location, folder_and_name
from connector.catalog.snapshot_json import FORMAT, VERSION, Snapshot, SnapshotReader, as_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from uuid import UUID

    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.topic_name import TopicName

SUFFIX = ".json.gz"
"""How the name of a snapshot ends."""
MAX_SNAPSHOT_BYTES = 256 << 20
"""Longest snapshot that is read, uncompressed (inclusive): some hundred thousand ledgers."""
MAX_SNAPSHOT_VALUES = 16 << 20
"""Most values in it, about (inclusive): three bytes of text may take sixty of memory."""

_SHOWN_CHARACTERS = 200
_BEGINNING_BYTES = 1024
_GZIP = 31
"""`wbits` of zlib for gzip's header and trailer."""


class SnapshotSource:
    """The metadata in a snapshot (a `MetadataSource`)."""

    is_live = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.warnings = list(snapshot.warnings)
        self.taken = snapshot.taken
        self._topics = snapshot.topics or {}
        self._schemas = snapshot.schemas

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """Every topic, partitions each by itself; of some namespaces, if they are given."""
        return [
            topic
            for topic in self._topics
            if namespaces is None or topic.full_namespace in namespaces
        ]

    def topic_metadata(self, topic: TopicName) -> TopicMetadata | None:
        """What was known of a topic; None if nothing was."""
        return self._topics.get(topic)

    def named_attempts(
        self,
        namespaces: Collection[str] | None,  # noqa: ARG002
        *,
        most_topics: int,  # noqa: ARG002
    ) -> Collection[tuple[int, UUID]]:
        """Ledger id and uuid of each offload of all topics."""
        return {each for topic in self._topics.values() for each in topic.named_attempts}

    def schema_source(self, topic: TopicName) -> bytes | None:
        """The admin API's answer for the topic's schemas."""
        return self._schemas.get(topic.base)


def is_snapshot(path: object) -> bool:
    """Whether a path or URL is that of a snapshot, by how it ends."""
    return str(path).endswith(SUFFIX)


def begins_snapshot(location: Location, name: str) -> bool:
    """Whether an object begins as a snapshot does; only its first bytes are read.

    What cannot be read, as for want of a permission, does not.

    Args:
        location: Where it is.
        name: Name of the object.
    """
    try:
        data = location.read_range(name, 0, _BEGINNING_BYTES).data
        text = zlib.decompressobj(wbits=_GZIP).decompress(data, _BEGINNING_BYTES)
    except (FormatError, MissingObjectError, StorageError, zlib.error):
        return False
    return text.startswith(json.dumps({"format": FORMAT}, separators=(",", ":"))[:-1].encode())


def save_snapshot(
    snapshot: Snapshot, path: str, storage_options: Mapping[str, object] | None = None
) -> None:
    """Write a snapshot.

    Args:
        snapshot: What to write.
        path: Path or URL of the file; ends with `.json.gz`.
        storage_options: Options of the fsspec file system of the path.

    Raises:
        OptionError: The path ends otherwise, or the catalog is too large for a snapshot.
        StorageError: The store refused, or went on failing.
    """
    location, name = _place(path, storage_options)
    text = json.dumps(as_json(snapshot), separators=(",", ":")).encode()
    for what, number, most in (
        ("bytes", len(text), MAX_SNAPSHOT_BYTES),
        ("values", _value_count(text), MAX_SNAPSHOT_VALUES),
    ):
        if number > most:
            message = f"the catalog takes {number} {what}, and a snapshot has {most} at most"
            raise OptionError(message)
    compressor = zlib.compressobj(wbits=_GZIP)
    data = compressor.compress(text) + compressor.flush()
    location.write_object(name, data, user_metadata={})


def load_snapshot(
    path: str,
    location: Location,
    *,
    buckets: Mapping[str, str] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Snapshot:
    """Read a snapshot: one request.

    Args:
        path: Path or URL of the file.
        location: Where the bucket's objects are; its trace counts this request too.
        buckets: Where other buckets are, if not where they were.
        storage_options: Options of the fsspec file system of the path.

    Raises:
        OptionError: The path ends otherwise than a snapshot's, or cannot be used.
        CorruptSnapshotError: It is not a snapshot, or one of a version that is not known.
        MissingObjectError: There is no such file.
        StorageError: The store refused, or went on failing.
    """
    folder, name = _place(path, storage_options)
    with _corruption_told(name):
        folder = replace(folder, trace=location.trace)
        content = folder.read_object(name, max_bytes=MAX_SNAPSHOT_BYTES)
        value = json.loads(_uncompressed(content.data))
        if value["format"] != FORMAT:
            message = f"it is not a {FORMAT}: its format is {_shown(value['format'])!r}"
            raise CorruptSnapshotError(message, object_key=name)
        if value["version"] != VERSION:
            message = (
                f"the snapshot has version {_shown(value['version'])}, and this release reads"
                f" version {VERSION}: save it anew with this release"
            )
            raise CorruptSnapshotError(message, object_key=name)
        return SnapshotReader(location, buckets or {}).snapshot(value)


def _place(path: str, storage_options: Mapping[str, object] | None) -> tuple[Location, str]:
    folder, name = folder_and_name(path)
    if not is_snapshot(name):
        message = f"the name of a snapshot ends with {SUFFIX}, unlike {name!r}"
        raise OptionError(message)
    return Location(folder or ".", storage_options), name


def _uncompressed(data: bytes) -> bytes:
    decompressor = zlib.decompressobj(wbits=_GZIP)
    text = decompressor.decompress(data, MAX_SNAPSHOT_BYTES)
    if not decompressor.eof or decompressor.unused_data:
        message = f"it is cut, or longer than {MAX_SNAPSHOT_BYTES} bytes, or something follows it"
        raise CorruptSnapshotError(message)
    if _value_count(text) > MAX_SNAPSHOT_VALUES:
        message = f"it has more than {MAX_SNAPSHOT_VALUES} values"
        raise CorruptSnapshotError(message)
    return text


def _value_count(text: bytes) -> int:
    """About how many values JSON has, and no fewer, without reading it."""
    return 1 + sum(text.count(mark) for mark in (b",", b"[", b"{", b":"))


@contextmanager
def _corruption_told(name: str) -> Iterator[None]:
    try:
        yield
    except CorruptSnapshotError as error:
        raise error.located(object_key=name) from None
    except (FormatError, OptionError, zlib.error, RecursionError) as error:
        message = f"it is not a snapshot of a catalog: {_shown(error)}"
        raise CorruptSnapshotError(message, object_key=name) from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        message = f"it is not a snapshot of a catalog: {type(error).__name__}: {_shown(error)}"
        raise CorruptSnapshotError(message, object_key=name) from None


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
