"""Where messages are written to, and how: the options of a write, made sense of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.core.lazy import cached_property
from arrow_io.core.option_values import path_or_url
from arrow_io.errors import OptionError
from arrow_io.messages.entry_writer import DEFAULT_BATCH_MESSAGES, EntryOptions
from arrow_io.storage.location import Location
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
    """When a ledger is full."""

    entries: int
    """Most entries."""
    size_bytes: int
    """Most bytes of entries, unless it has but one."""
    in_memory_bytes: int
    """Bytes of entries that are kept in memory before they go to a temporary file."""


@dataclass(frozen=True)
class WriteTarget:
    """A topic in a bucket that messages are written to.

    Goes to other processes, which connect anew.

    Attributes:
        url: The bucket.
        topic: The topic.
        request: The options.
    """

    url: str
    topic: TopicName
    request: WriteRequest

    @classmethod
    def from_name(cls, url: str, topic: object, request: WriteRequest) -> WriteTarget:
        """The topic of a name.

        Raises:
            OptionError: It is not the name of a topic, or of one that can have partitions if some
                are asked for; or an option does not fit the store.
        """
        if not isinstance(topic, str):
            message = f"the name of a topic is text, not {type(topic).__name__}"
            raise OptionError(message)
        target = cls(url, TopicName.parse(topic), request)
        if request.partitions is not None and target.topic.partition >= 0:
            message = f"{target.topic} is a partition, so it cannot have partitions"
            raise OptionError(message)
        # What can be checked without a request.
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
        """What writes the ledgers."""
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
        """Where the ledgers go."""
        return self.offloader.location

    @cached_property
    def metadata_root(self) -> Location | None:
        """Where the folders of the metadata are; None: no metadata is written.

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
        """How messages become entries."""
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
        """When a ledger is full."""
        request = self.request
        return LedgerLimits(
            entries=request.ledger_entries,
            size_bytes=request.ledger_bytes,
            in_memory_bytes=_IN_MEMORY_BYTES // len(self.names),
        )

    def read_schema(self) -> TopicSchema | None:
        """The schemas that are given, read where they are: on the driver, of Spark.

        Raises:
            OptionError: There is no such schema.
            SchemaError: It cannot be read.
            StorageError: The store refused, or went on failing.
        """
        request = self.request
        return read_schema(request.schema, request.schema_version, request.storage_options)

    def commit_record_file(
        self, write_id: str | None, mark: UUID | None = None
    ) -> CommitRecordFile:
        """Where a write to the topic is decided.

        Args:
            write_id: The id of the write; None: it has none, or not yet.
            mark: The mark of the run; None: it begins.
        """
        mark = mark or new_mark(self.topic, write_id)
        return CommitRecordFile(self.bucket, self.topic, write_id=write_id, mark=mark)
