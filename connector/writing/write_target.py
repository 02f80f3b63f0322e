"""Destination and checked options of a write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.core.lazy import cached_property
from arrow_io.core.option_values import path_or_url
from arrow_io.errors import OptionError
from arrow_io.messages.entry_writer import DEFAULT_BATCH_MESSAGES, EntryOptions
from arrow_io.storage.location import Location
from connector.catalog.registry.registry import RegistryPlace
from connector.inputs.topic_names import TopicName
from connector.topic import read_schema
from connector.writing.commit_record import CommitRecordFile
from connector.writing.ledger_ids import new_mark
from connector.writing.offloader import LedgerOffloader

if TYPE_CHECKING:
    from uuid import UUID

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.options.write_request import WriteRequest

_IN_MEMORY_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """Limits of a ledger."""

    entries: int
    """Maximum number of entries."""
    size_bytes: int
    """Maximum size of the entries, in bytes, unless there is only one."""
    in_memory_bytes: int
    """Size of the entries above which they move to a temporary file, in bytes."""


@dataclass(frozen=True)
class WriteTarget:
    """The topic in a bucket to which a write goes, and the options.

    Can be sent to other processes, which open their own connections.
    """

    url: str
    topic: TopicName
    request: WriteRequest

    @classmethod
    def from_name(cls, url: str, topic: object, request: WriteRequest) -> WriteTarget:
        """Return the target for a topic name.

        Raises:
            OptionError: The topic name is invalid, or is that of a partition although `partitions`
                is set. Or an option does not fit the store.
        """
        if not isinstance(topic, str):
            message = f"the name of a topic must be text, not {type(topic).__name__}"
            raise OptionError(message)
        target = cls(url, TopicName.parse_persistent(topic, "a write"), request)
        if request.partitions is not None and target.topic.partition >= 0:
            message = f"{target.topic} is a partition, so it cannot have partitions"
            raise OptionError(message)
        # Check options that need no request.
        _ = target.offloader, target.entry_options
        if request.write_id is not None:
            target.bucket.check_writes_new_objects()
        return target

    @cached_property
    def names(self) -> tuple[TopicName, ...]:
        """The topic, or all of its partitions."""
        topic, partitions = self.topic, self.request.partitions
        if partitions is None:
            return (topic,)
        return tuple(
            replace(topic, local_name=f"{topic.local_name}-partition-{number}")
            for number in range(partitions)
        )

    @cached_property
    def offloader(self) -> LedgerOffloader:
        """The offloader that writes the ledgers."""
        request = self.request
        return LedgerOffloader(
            self.url,
            storage_options=request.storage_options,
            block_bytes=request.block_bytes,
            cluster=request.cluster,
            trace=request.trace,
        )

    @property
    def bucket(self) -> Location:
        """The location of the ledgers."""
        return self.offloader.location

    @cached_property
    def metadata_root(self) -> Location | None:
        """Parent of the metadata folders; None if the write has no metadata folder.

        Raises:
            OptionError: The location cannot be written to.
        """
        request = self.request
        if request.metadata_folder is None:
            return None
        path = path_or_url("metadata_folder", request.metadata_folder)
        root = Location(path, request.metadata_options)
        root.check_writable()
        return root

    @cached_property
    def entry_options(self) -> EntryOptions:
        """Options for batching messages into entries."""
        request = self.request
        delay_ms, is_default = request.batch_delay_ms, request.batch_messages is None
        return EntryOptions(
            compression=request.compression,
            batch_messages=request.batch_messages or DEFAULT_BATCH_MESSAGES,
            batch_bytes=request.batch_bytes,
            batch_delay_ms=0 if delay_ms is None and is_default else delay_ms,
            max_message_bytes=request.max_message_bytes,
            chunking=request.chunking,
            broker_metadata=request.broker_metadata,
        )

    @property
    def limits(self) -> LedgerLimits:
        """Limits of a ledger."""
        request = self.request
        return LedgerLimits(
            entries=request.ledger_entries,
            size_bytes=request.ledger_bytes,
            in_memory_bytes=_IN_MEMORY_BYTES // len(self.names),
        )

    def read_schema(self) -> TopicSchema | None:
        """Read the schema of the request. In Spark, call it on the driver.

        Raises:
            OptionError: The schema or its version does not exist.
            SchemaError: The schema cannot be read.
            StorageError: The store refused a request, or retries were exhausted.
        """
        request = self.request
        if RegistryPlace.parse(request.schema) is not None:
            message = "messages cannot be written with schemas of a registry: pass their bytes"
            raise OptionError(message)
        return read_schema(request.schema, request.schema_version, request.storage_options)

    def commit_record_file(
        self, write_id: str | None, mark: UUID | None = None
    ) -> CommitRecordFile:
        """Return the file of a write's commit record.

        `write_id` is None if the write has no id, or not yet. Without a mark, a new one is drawn.
        """
        mark = mark or new_mark(self.topic, write_id)
        return CommitRecordFile(self.bucket, self.topic, write_id=write_id, mark=mark)
