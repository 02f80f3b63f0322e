"""Commit records: the objects that say what a write publishes.

A write is committed once the bucket has its record, `_writes/<topic's folder>/<write id>.json`. Any
process that finds the record can publish the write. If two writes have one id, the second finds the
record of the first. After publication, a short record replaces it, so that the write is not
repeated. The record of a write without an id is deleted.

```
{"version": 1, "mark": "4f6cf8a2-…", "begun_ms": 1760000000000, "messages": 3400,
 "schemas": "<answer of the admin API>",
 "partitions": {"persistent://public/default/orders": "<ManagedLedgerInfo, Base64>", …},
 "indexes": [{"name": "<uuid>-ledger-7-index", "data": "<Base64>", "user_metadata": {…}}, …],
 "crc32": 2774351021}
```

The short record lacks `schemas`, `partitions` and `indexes`. `crc32` is the checksum of the other
fields.

Functions raise `StorageError` if the store refuses a request, or retries are exhausted.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from arrow_io.core.json_checksum import json_crc32
from arrow_io.core.lazy import cached_property
from arrow_io.errors import CorruptMetadataError, MissingObjectError, PulsarOffloadError
from arrow_io.format.object_names import parse_object_name
from connector.catalog.metadata.managed_ledger import (
    parse_managed_ledger_info,
    serialize_managed_ledger_info,
)
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.writing.ledger_ids import belongs_to_write, has_mark
from connector.writing.offloader import IndexObject
from connector.writing.topic_files import extend_files, folder_name, read_files, remove_if_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.format.object_names import LedgerObjectName
    from arrow_io.storage.location import Location
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.writing.offloader import LedgerOffloader

COMMIT_RECORDS_FOLDER: Final = "_writes"
"""Folder below the bucket's root: brokers and catalogs list only the objects of the root itself."""

_VERSION: Final = 1
_MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """The ledgers that a write publishes.

    Attributes:
        started_ms: When the write began, in ms since the epoch.
        partitions: The ledgers as a cluster records them, per topic or partition. The last ledger
            of each is open and empty. None once all is published.
        indexes: The index objects, in the order in which to write them.
        schemas: The admin API's answer with the topic's schemas.
    """

    mark: UUID
    started_ms: int
    message_count: int
    partitions: tuple[TopicMetadata, ...] | None
    indexes: tuple[IndexObject, ...] = ()
    schemas: bytes = b""

    @property
    def is_published(self) -> bool:
        """Whether the write was published."""
        return self.partitions is None

    @cached_property
    def names(self) -> set[LedgerObjectName]:
        """The ledgers whose index objects the record contains."""
        parsed = (parse_object_name(each.name) for each in self.indexes)
        return {each.ledger_object_name for each in parsed if each is not None}

    def to_json(self) -> bytes:
        """Return the record as JSON for `from_json`."""
        fields: dict[str, object] = {
            "version": _VERSION,
            "mark": str(self.mark),
            "begun_ms": self.started_ms,
            "messages": self.message_count,
        }
        if self.partitions is not None:
            fields["schemas"] = self.schemas.decode()
            fields["partitions"] = {
                str(each.topic): _text(serialize_managed_ledger_info(each))
                for each in self.partitions
            }
            fields["indexes"] = [
                {
                    "name": each.name,
                    "data": _text(each.data),
                    "user_metadata": dict(each.user_metadata),
                }
                for each in self.indexes
            ]
        return json.dumps({**fields, "crc32": json_crc32(fields)}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> CommitRecord:
        """Parse a commit record.

        Raises:
            CorruptMetadataError: The record is damaged.
        """
        try:
            fields = json.loads(data)
            checksum = fields.pop("crc32")
            if type(checksum) is not int or checksum != json_crc32(fields):
                raise _malformed_error()
            started_ms, message_count = fields["begun_ms"], fields["messages"]
            # `type` rather than `isinstance`: a bool is an `int` too.
            if fields["version"] != _VERSION or {type(started_ms), type(message_count)} != {int}:
                raise _malformed_error()
            if time_of(started_ms) is None or message_count < 0:
                raise _malformed_error()
            record = cls(
                mark=UUID(fields["mark"]),
                started_ms=started_ms,
                message_count=message_count,
                partitions=None,
            )
            if "partitions" not in fields:
                return record
            return replace(
                record,
                partitions=tuple(
                    parse_managed_ledger_info(b64decode(info, validate=True), TopicName.parse(name))
                    for name, info in fields["partitions"].items()
                ),
                indexes=tuple(_index(each, record.mark) for each in fields["indexes"]),
                schemas=fields["schemas"].encode(),
            )
        except (
            PulsarOffloadError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ):
            raise _malformed_error() from None


class CommitRecordFile:
    """The object that stores a write's commit record.

    Args:
        bucket: Location of the ledgers.
        write_id: The id of the write. None: the write cannot be repeated, and its mark names the
            object.
    """

    def __init__(
        self, bucket: Location, topic: TopicName, *, write_id: str | None, mark: UUID
    ) -> None:
        self._root = bucket.child(COMMIT_RECORDS_FOLDER)
        self._folder = self._root.child(folder_name(topic))
        self.topic = topic
        self.mark = mark
        self.is_named = write_id is not None
        """Whether the write has an id, and so may be repeated."""
        self.write_id = str(mark) if write_id is None else write_id
        """The id of the write, or its mark if it has no id."""
        self._name = f"{self.write_id}.json"
        self._may_exist = False

    def is_own(self, uuid: UUID) -> bool:
        """Return whether a ledger's uuid belongs to this write, or to another run of it."""
        is_own = has_mark(uuid, self.mark)
        return is_own or (self.is_named and belongs_to_write(uuid, self.topic, self.write_id))

    def read(self) -> CommitRecord | None:
        """Return the commit record; None if the write is not committed.

        Raises:
            CorruptMetadataError: The record is damaged.
        """
        try:
            data = self._folder.read_object(self._name, max_bytes=_MAX_BYTES).data
        except MissingObjectError:
            return None
        try:
            return CommitRecord.from_json(data)
        except CorruptMetadataError as error:
            raise error.located(object_key=f"{self._folder}/{self._name}") from None

    def is_committed(self) -> bool:
        """Return whether this run committed, and not an earlier one with the same id.

        Raises:
            CorruptMetadataError: The record is damaged.
        """
        record = self.read() if self.is_named or self._may_exist else None
        return record is not None and has_mark(record.mark, self.mark)

    def commit(self, record: CommitRecord) -> CommitRecord:
        """Store the commit record, unless one exists.

        Returns:
            The stored record, which may be an earlier one.

        Raises:
            OptionError: The write has an id, and the store cannot write an object only if its name
                is free.
            CorruptMetadataError: The earlier record is damaged.
            StorageError: The store refused a request, or retries were exhausted. The record may
                have been stored.
        """
        data = record.to_json()
        self._may_exist = True
        if not self.is_named:
            self._folder.write_object(self._name, data, user_metadata={})
            return record
        while not self._folder.write_new_object(self._name, data):
            earlier = self.read()
            if earlier is not None:
                return earlier
        return record

    def finish(self, record: CommitRecord) -> None:
        """Mark the write as published: shorten the record, or delete it if the write has no id."""
        if self.is_named:
            short = replace(record, partitions=None)
            self._folder.write_object(self._name, short.to_json(), user_metadata={})
        else:
            self.revoke()

    def revoke(self) -> None:
        """Delete a record that no other process can have published."""
        self._folder.delete_objects([self._name])
        for folder in (self._folder, self._root):
            remove_if_empty(folder)


def carry_out(
    record: CommitRecord,
    bucket: LedgerOffloader,
    root: Location | None,
    old_files: Mapping[str, Mapping[str, bytes]] | None = None,
) -> None:
    """Publish the ledgers of a commit record, and extend the metadata.

    Does nothing if the record says that the write was published. If the call fails, it can be
    repeated.

    Args:
        record: The commit record.
        bucket: Location of the ledgers.
        root: Location of the metadata folders; None if the write has no metadata folder.
        old_files: Content of the metadata files, by folder and file name; None: it is read.

    Raises:
        CorruptMetadataError: The existing metadata is malformed.
    """
    if record.partitions is None:
        return
    for index in record.indexes:
        bucket.publish(index)
    if root is None:
        return
    for metadata in record.partitions:
        name = folder_name(metadata.topic)
        folder = root.child(name)
        files = read_files(folder) if old_files is None else old_files[name]
        extend_files(folder, files, metadata, record.schemas)


def _index(fields: Mapping[str, Any], mark: UUID) -> IndexObject:
    name = parse_object_name(fields["name"])
    if name is None or not name.is_index or name.is_streaming or not has_mark(name.uuid, mark):
        raise _malformed_error()
    metadata = {str(key): str(value) for key, value in fields["user_metadata"].items()}
    return IndexObject(fields["name"], b64decode(fields["data"], validate=True), metadata)


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _malformed_error() -> CorruptMetadataError:
    return CorruptMetadataError("the commit record of a write is damaged")
