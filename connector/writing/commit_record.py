"""What a write is to publish, decided once: an object that whoever finds it carries out.

A write is decided when its decision lies in the bucket, in a folder for each topic:
`_writes/<folder of the topic>/<id of the write>.json`. Of two that decide a write of one id, the
second finds what the first has decided. A decision that was carried out is replaced by a short one,
which says that the write was published; that of a write that nobody will repeat is deleted.

```
{"version": 1, "mark": "4f6cf8a2-…", "begun_ms": 1760000000000, "messages": 3400,
 "schemas": "<answer of the admin API>",
 "partitions": {"persistent://public/default/orders": "<ManagedLedgerInfo, Base64>", …},
 "indexes": [{"name": "<uuid>-ledger-7-index", "data": "<Base64>", "user_metadata": {…}}, …],
 "crc32": 2774351021}
```

The short one has neither `schemas`, `partitions` nor `indexes`. `crc32` is the checksum of the
others.
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
"""Below the bucket, whose own objects brokers and catalogs look at."""

_VERSION: Final = 1
_MAX_BYTES: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """What a write is to publish.

    Attributes:
        mark: The mark of the write.
        started_ms: When it began, ms since the epoch.
        message_count: How many messages it has.
        partitions: Its ledgers, as a cluster records them, for the topic or for each partition; the
            last of each is open and empty. None once all is published.
        indexes: The index objects, in the order in which they are to be written.
        schemas: The answer of the admin API with the schemas of the topic.
    """

    mark: UUID
    started_ms: int
    message_count: int
    partitions: tuple[TopicMetadata, ...] | None
    indexes: tuple[IndexObject, ...] = ()
    schemas: bytes = b""

    @property
    def is_published(self) -> bool:
        """Whether it was carried out."""
        return self.partitions is None

    @cached_property
    def names(self) -> set[LedgerObjectName]:
        """The ledgers that it has index objects of."""
        parsed = (parse_object_name(each.name) for each in self.indexes)
        return {each.ledger_object_name for each in parsed if each is not None}

    def to_json(self) -> bytes:
        """The text that `from_json` reads."""
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
        """Read a decision.

        Raises:
            CorruptMetadataError: It is not as it was written.
        """
        try:
            fields = json.loads(data)
            checksum = fields.pop("crc32")
            if type(checksum) is not int or checksum != json_crc32(fields):
                raise _malformed_error()
            started_ms, message_count = fields["begun_ms"], fields["messages"]
            # Nor is a bool a number here, though it is an `int`.
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
    """Where the decision of a write is kept.

    Args:
        bucket: Where the ledgers go.
        topic: The topic.
        write_id: The id of the write; None: nobody will repeat it, and its mark names it.
        mark: The mark of the write.
    """

    def __init__(
        self, bucket: Location, topic: TopicName, *, write_id: str | None, mark: UUID
    ) -> None:
        self._all = bucket.child(COMMIT_RECORDS_FOLDER)
        self._folder = self._all.child(folder_name(topic))
        self.topic = topic
        self.mark = mark
        self.is_named = write_id is not None
        """Whether the write may be repeated."""
        self.write_id = str(mark) if write_id is None else write_id
        """What the write is known by."""
        self._name = f"{self.write_id}.json"
        self._may_exist = False

    def is_own(self, uuid: UUID) -> bool:
        """Whether a ledger of this uuid is of this write, or of another run of it."""
        is_own = has_mark(uuid, self.mark)
        return is_own or (self.is_named and belongs_to_write(uuid, self.topic, self.write_id))

    def read(self) -> CommitRecord | None:
        """The decision; None: the write is not decided.

        Raises:
            CorruptMetadataError: It is not as it was written.
            StorageError: The store refused, or went on failing.
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
        """Whether the decision is that of this write, not of an earlier one of the same id.

        Raises:
            CorruptMetadataError: It is not as it was written.
            StorageError: The store refused, or went on failing.
        """
        record = self.read() if self.is_named or self._may_exist else None
        return record is not None and has_mark(record.mark, self.mark)

    def commit(self, record: CommitRecord) -> CommitRecord:
        """Decide a write, unless it is decided.

        Returns:
            The decision that stands from now on, which may be an earlier one.

        Raises:
            OptionError: The write may be repeated, and the store has no way to write an object only
                if its name is free.
            CorruptMetadataError: The earlier one is not as it was written.
            StorageError: The store refused, or went on failing; it may be decided then.
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
        """Note that a decision was carried out.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        if self.is_named:
            short = replace(record, partitions=None)
            self._folder.write_object(self._name, short.to_json(), user_metadata={})
        else:
            self.revoke()

    def revoke(self) -> None:
        """Forget a decision that nobody else can have carried out.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        self._folder.delete_objects([self._name])
        for folder in (self._folder, self._all):
            remove_if_empty(folder)


def carry_out(
    record: CommitRecord,
    bucket: LedgerOffloader,
    root: Location | None,
    before: Mapping[str, Mapping[str, bytes]] | None = None,
) -> None:
    """Publish the ledgers of a decision, unless that is known to be done.

    Args:
        record: The decision.
        bucket: Where the ledgers are.
        root: Where the folders of the metadata are; None: no metadata is written.
        before: What stands there, by the name of the folder and of the file; None: it is read.

    Raises:
        CorruptMetadataError: The metadata that stands is malformed.
        StorageError: The store refused, or went on failing; whoever calls again goes on.
    """
    if record.partitions is None:
        return
    for index in record.indexes:
        bucket.publish(index)
    if root is None:
        return
    for added in record.partitions:
        name = folder_name(added.topic)
        folder = root.child(name)
        files = read_files(folder) if before is None else before[name]
        extend_files(folder, files, added, record.schemas)


def _index(fields: Mapping[str, Any], mark: UUID) -> IndexObject:
    name = parse_object_name(fields["name"])
    if name is None or not name.is_index or name.is_streaming or not has_mark(name.uuid, mark):
        raise _malformed_error()
    metadata = {str(key): str(value) for key, value in fields["user_metadata"].items()}
    return IndexObject(fields["name"], b64decode(fields["data"], validate=True), metadata)


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _malformed_error() -> CorruptMetadataError:
    return CorruptMetadataError("the decision of a write is not as it was written")
