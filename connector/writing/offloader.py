"""PIP-17's three calls for a ledger, without a broker: offload, read and delete it.

A closed ledger becomes a data object, written one block per part, and an index object. Both have
the names and user metadata that Pulsar's BlobStoreManagedLedgerOffloader gives them. The index
object is written last and deleted first, so a bucket with the index object has the complete ledger.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Self

from arrow_io.core.option_values import check_whole_number
from arrow_io.errors import MissingObjectError, OptionError, PulsarOffloadError, StorageError
from arrow_io.format.index_block import (
    CLUSTER_NAME_KEY,
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    MANAGED_LEDGER_NAME_KEY,
)
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.ledgers.writer import (
    DEFAULT_BLOCK_BYTES,
    MAX_BLOCK_BYTES,
    MIN_BLOCK_BYTES,
    LedgerWriter,
)
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from arrow_io.storage.redaction import redacted_urls
from arrow_io.storage.store_kinds import StoreKind, store_kind
from arrow_io.storage.trace import RequestTrace
from connector.catalog.metadata.topic_metadata import OffloadContext
from connector.options.option import takes_options
from connector.options.topic_request import OPTIONS

if TYPE_CHECKING:
    from uuid import UUID

    from arrow_io.format.entry_frame import BytesLike
    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.storage.uploads import ObjectUpload

MIN_STORE_BLOCK_BYTES = 5 << 20
"""Minimum block size in an object store (inclusive). Pulsar requires it, since S3 requires it of
a part."""
MAX_STORE_BLOCKS = 10_000
"""Maximum number of blocks of a ledger in an object store (inclusive): S3's limit of parts."""

ROLE_KEY = "role"
"""User metadata key of both objects: `data` or `index`."""
SOFTWARE_VERSION_KEY = "s3managedledgeroffloadersoftwareversion"
"""User metadata key of both objects: the software that wrote them. Pulsar also writes a git
hash, which nothing reads and which a package does not have."""
SOFTWARE_GIT_SHA_KEY = "s3managedledgeroffloadersoftwaregitsha"
"""User metadata key of both objects: Pulsar's git hash, if Pulsar wrote them."""

_OWN_KEYS = frozenset({FORMAT_VERSION_KEY, ROLE_KEY, SOFTWARE_VERSION_KEY})
_KEY = re.compile(r"[a-z0-9._-]+")

# The driver's name, and Pulsar's enum constant for it. Pulsar's driver `filesystem` writes another
# kind of objects. `aliyun-oss` requires user metadata, which we do not write to that store.
_DRIVERS = {
    StoreKind.S3: ("aws-s3", "AWS_S3"),
    StoreKind.GCS: ("google-cloud-storage", "GOOGLE_CLOUD_STORAGE"),
    StoreKind.AZURE: ("azureblob", "AZURE_BLOB"),
}


@dataclass(frozen=True, slots=True)
class LedgerToOffload:
    """A closed ledger to offload.

    Attributes:
        ledger_id: BookKeeper ledger id.
        metadata: Ledger metadata, whose length and last entry id match the entries.
        entries: Data of the entries 0, 1, 2, … in order, as the broker stored them in BookKeeper.
    """

    ledger_id: int
    metadata: LedgerMetadata
    entries: Iterable[BytesLike]

    @classmethod
    def from_offloaded(cls, ledger: OffloadedLedger) -> Self:
        """Return an offloaded ledger as one to offload to another location.

        Its entries are read during that offload, which then raises the errors of
        `OffloadedLedger.entry_runs`, and `ChecksumError` for an entry with a wrong CRC32C.
        """
        return cls(ledger.ledger_id, ledger.index.ledger_metadata, _LedgerEntries(ledger))


@dataclass(frozen=True, slots=True)
class OffloadResult:
    """Objects that an offload wrote.

    Attributes:
        name: Names of the objects.
        data_bytes: Length of the data object.
        index_bytes: Length of the index object.
        block_count: Number of data blocks.
        context: Offload context for the cluster's metadata of the ledger.
        warnings: Harmless problems.
    """

    name: LedgerObjectName
    data_bytes: int
    index_bytes: int
    block_count: int
    context: OffloadContext
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexObject:
    """An index object that is not written yet."""

    name: str
    data: bytes
    user_metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StagedOffload:
    """A ledger with a data object but no index object yet, so that readers do not see it.

    Can be sent to other processes; any of them can publish the ledger.

    Attributes:
        index: The index object, which publishes the ledger.
        context: Offload context for the cluster's metadata of the ledger.
        warnings: Harmless problems.
    """

    name: LedgerObjectName
    index: IndexObject
    data_bytes: int
    block_count: int
    context: OffloadContext
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Attempt:
    """Objects that an offload may have written so far: only these are deleted if it fails."""

    name: LedgerObjectName
    data: ObjectUpload | None = None
    has_requested_index: bool = False

    @property
    def object_names(self) -> list[str]:
        has_data = self.data is not None and self.data.may_be_published
        return [self.name.index_name] * self.has_requested_index + [self.name.data_name] * has_data


class LedgerOffloader:
    """Offloads ledgers to a bucket, and deletes them.

    A broker looks for the objects at the root of a bucket, not below a prefix. It refuses objects
    without user metadata, which a local folder cannot store.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket` or any other URL
            that fsspec knows, except chained URLs.
        storage_options: Options of the fsspec file system.
        block_bytes: Length of every data block except the last, in bytes; 5 MiB … 2^31 - 1
            (inclusive) in an object store, 140 … 2^31 - 1 elsewhere. At most three blocks are held
            in memory.
        cluster: Name of the ledgers' cluster, for the objects' user metadata.
        retry: Policy for retries of failed requests.
        trace: Counts the requests.

    Raises:
        OptionError: The block size is too small for the object store, or the URL is not usable.

    Example:
        >>> from uuid import UUID
        >>> from arrow_io.ledgers.writer import new_ledger_metadata
        >>> name = "public/default/persistent/orders"
        >>> metadata = new_ledger_metadata([3, 3], managed_ledger=name, ctime_ms=0)
        >>> offloader = LedgerOffloader("memory://offloader-example")
        >>> ledger = LedgerToOffload(42, metadata, [b"one", b"two"])
        >>> offloader.offload(ledger, UUID(int=1)).data_bytes
        158
        >>> [entry.data for entry in offloader.read_offloaded(42, UUID(int=1)).read_entries(0, 1)]
        [b'one', b'two']
        >>> offloader.delete_offloaded(42, UUID(int=1))
        ()
    """

    @takes_options(OPTIONS)
    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, object] | None = None,
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        cluster: str | None = None,
        retry: RetryPolicy | None = None,
        trace: RequestTrace | None = None,
    ) -> None:
        self.location = Location(
            url, storage_options, retry or RetryPolicy(), trace=trace or RequestTrace()
        )
        self.location.check_writable()
        check_whole_number("block_bytes", block_bytes, MIN_BLOCK_BYTES, MAX_BLOCK_BYTES)
        self.block_bytes = block_bytes
        self.cluster = cluster
        kind = store_kind(self.location.url)
        self._driver = None if kind is None else _DRIVERS.get(kind)
        if self._driver is not None and block_bytes < MIN_STORE_BLOCK_BYTES:
            message = (
                f"block_bytes is {block_bytes}; object stores require blocks of at least "
                f"{MIN_STORE_BLOCK_BYTES} bytes"
            )
            raise OptionError(message)

    def offload(
        self,
        ledger: LedgerToOffload,
        uuid: UUID,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> OffloadResult:
        """Write the objects of a ledger.

        If the offload fails or is interrupted, what it wrote is deleted, the index object first.
        Failures to delete are added to the error as notes. If the process is killed before the
        index object is written, the offload can be repeated with the same uuid. If two offloads
        with one uuid run at the same time, the first to finish wins, and the other fails.

        Args:
            ledger: The ledger.
            uuid: Id of this attempt, unique to it.
            extra_metadata: Additional user metadata of both objects; ASCII. Pulsar sets
                `ManagedLedgerName`, whose default here is the name in the ledger's metadata.

        Raises:
            OptionError: The ledger is empty, not closed, does not match its metadata or needs too
                many blocks; the name of its managed ledger is missing; the user metadata is not
                usable; or it was offloaded with this uuid before or in the meantime.
            EntryTooLargeError: An entry is longer than `block_bytes - 140`.
            MissingEntriesError: The entries end before the last entry id.
            StorageError: The store refused a request, or retries were exhausted.
            Exception: Any error that the entries raise.
        """
        attempt = _Attempt(LedgerObjectName(uuid, ledger.ledger_id))
        with self._undo_on_error(attempt):
            staged = self._stage(attempt, ledger, extra_metadata)
            self._check_new(attempt.name)
            attempt.has_requested_index = True
            self.publish(staged.index)
        return OffloadResult(
            staged.name,
            staged.data_bytes,
            len(staged.index.data),
            staged.block_count,
            staged.context,
            staged.warnings,
        )

    def stage(
        self,
        ledger: LedgerToOffload,
        uuid: UUID,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> StagedOffload:
        """Write the data object of a ledger, which readers ignore until it is published.

        Arguments and errors are those of `offload`. If the ledger is never published, its data
        object counts as an incomplete offload.
        """
        attempt = _Attempt(LedgerObjectName(uuid, ledger.ledger_id))
        with self._undo_on_error(attempt):
            return self._stage(attempt, ledger, extra_metadata)

    def publish(self, index: IndexObject) -> None:
        """Write the index object of a staged ledger. The call can be repeated.

        Raises:
            StorageError: The store refused a request, or retries were exhausted. The object may
                have been written.
        """
        self.location.write_object(index.name, index.data, user_metadata=index.user_metadata)

    def read_offloaded(self, ledger_id: int, uuid: UUID) -> OffloadedLedger:
        """Open an offloaded ledger for reading, by one request.

        Args:
            ledger_id: BookKeeper ledger id.
            uuid: Id of the offload attempt.

        Raises:
            MissingObjectError: The index object is missing.
            FormatError: The index object is malformed.
            StorageError: The store refused a request, or retries were exhausted.
        """
        return OffloadedLedger.open(self.location, LedgerObjectName(uuid, ledger_id))

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> tuple[str, ...]:
        """Delete the objects and unfinished uploads of a ledger.

        Missing objects are not an error. The index object is deleted first: if the process is
        killed halfway, an incomplete offload remains, not a ledger without its entries.

        Args:
            ledger_id: BookKeeper ledger id.
            uuid: Id of the offload attempt.

        Returns:
            Warnings: the objects are deleted, but unfinished uploads could not be listed or
                aborted.

        Raises:
            StorageError: The store refused a request, or retries were exhausted.
        """
        name = LedgerObjectName(uuid, ledger_id)
        self.location.delete_objects((name.index_name, name.data_name))
        return self._abort_uploads(name)

    def _check_block_count(self, metadata: LedgerMetadata) -> None:
        # A lower bound: no block is filled to its last byte.
        block_count = metadata.length_bytes // self.block_bytes
        if self._driver is not None and block_count > MAX_STORE_BLOCKS:
            message = (
                f"{metadata.length_bytes} bytes in blocks of {self.block_bytes} are more than the "
                f"{MAX_STORE_BLOCKS} blocks that object stores allow: use larger blocks"
            )
            raise OptionError(message)

    def _check_new(self, name: LedgerObjectName) -> None:
        if self._is_complete(name):
            raise _offloaded_before_error(name)

    def _is_complete(self, name: LedgerObjectName) -> bool:
        return self.location.exists(name.index_name)

    def _user_metadata(
        self, metadata: LedgerMetadata, extra_metadata: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the user metadata of both objects, except `role`, with lower-case keys."""
        extra = {str(key).lower(): value for key, value in extra_metadata.items()}
        reserved_keys = sorted(_OWN_KEYS.intersection(extra))
        if reserved_keys:
            message = (
                f"extra metadata must not set what the offloader sets: {', '.join(reserved_keys)}"
            )
            raise OptionError(message)
        own_name = metadata.managed_ledger_name
        extra_name = extra.get(MANAGED_LEDGER_NAME_KEY, own_name)
        if extra_name is None:
            message = (
                "the ledger's metadata does not name its managed ledger: give ManagedLedgerName as"
                " extra metadata"
            )
            raise OptionError(message)
        if own_name not in (None, extra_name):
            message = (
                f"extra metadata names the managed ledger {extra_name!r}, but the ledger's own"
                f" metadata names {own_name!r}"
            )
            raise OptionError(message)
        cluster = {} if self.cluster is None else {CLUSTER_NAME_KEY: self.cluster}
        user_metadata = {MANAGED_LEDGER_NAME_KEY: extra_name, **cluster, **extra}
        for key, value in user_metadata.items():
            if not (_KEY.fullmatch(key) and _is_header_value(value)):
                message = f"not usable as user metadata: {key!r}: {value!r}"
                raise OptionError(message)
        return {
            FORMAT_VERSION_KEY: FORMAT_VERSION,
            SOFTWARE_VERSION_KEY: _software_version(),
            **user_metadata,
        }

    @contextmanager
    def _undo_on_error(self, attempt: _Attempt) -> Iterator[None]:
        name = attempt.name
        try:
            try:
                yield
            except BaseException as error:
                if attempt.data is not None:
                    self._undo(attempt, error)
                raise
        except PulsarOffloadError as error:
            error.located(object_key=name.data_name, ledger_id=name.ledger_id)
            raise

    def _stage(
        self,
        attempt: _Attempt,
        ledger: LedgerToOffload,
        extra_metadata: Mapping[str, str] | None,
    ) -> StagedOffload:
        writer = LedgerWriter(ledger.metadata, block_bytes=self.block_bytes)
        self._check_block_count(ledger.metadata)
        user_metadata = self._user_metadata(ledger.metadata, extra_metadata or {})
        name = attempt.name
        self._check_new(name)
        data_bytes = block_count = 0
        attempt.data = self.location.upload(
            name.data_name, user_metadata={**user_metadata, ROLE_KEY: "data"}
        )
        with attempt.data as upload:
            for block in writer.blocks(ledger.entries):
                upload.write_part(block)
                data_bytes += len(block)
                block_count += 1
            upload.wait()
            # Do not overwrite objects of another offload that finished first.
            self._check_new(name)
        return StagedOffload(
            name=name,
            index=IndexObject(
                name.index_name, writer.index(), {**user_metadata, ROLE_KEY: "index"}
            ),
            data_bytes=data_bytes,
            block_count=block_count,
            warnings=self._abort_uploads(name),
            context=self._context(name.uuid),
        )

    def _undo(self, attempt: _Attempt, error: BaseException) -> None:
        """Delete what a failed offload wrote. Failures are added to the error as notes.

        Raises:
            OptionError: The error came from another offload with this uuid, which finished first.
                Its objects are kept.
        """
        name = attempt.name
        try:
            is_another = not attempt.has_requested_index and self._is_complete(name)
            if not is_another:
                self.location.delete_objects(attempt.object_names)
        except PulsarOffloadError as failure:
            error.add_note(f"not all written objects could be deleted: {failure}")
            return
        if not is_another:
            for warning in self._abort_uploads(name):
                error.add_note(warning)
        elif isinstance(error, StorageError | MissingObjectError):
            raise _offloaded_before_error(name) from error

    def _abort_uploads(self, name: LedgerObjectName) -> tuple[str, ...]:
        """Abort unfinished uploads of the objects, left by a killed process or a lost response.

        Returns:
            Warnings, if uploads could not be listed, as without the permission
            `s3:ListBucketMultipartUploads`, or not aborted.
        """
        names = {name.data_name, name.index_name}
        try:
            for upload in self.location.unfinished_uploads(name.data_name):
                if upload.name in names:
                    self.location.abort_upload(upload.name, upload.upload_id)
        except PulsarOffloadError as error:
            return (f"unfinished uploads could not be cleaned up: {error}",)
        return ()

    def _context(self, uuid: UUID) -> OffloadContext:
        """Return what a cluster records; without a driver, a broker uses its configured one."""
        properties: dict[str, str] = {}
        driver = None
        if self._driver is not None:
            driver, constant = self._driver
            options = self.location.storage_options or {}
            client = options.get("client_kwargs")
            client = client if isinstance(client, Mapping) else {}
            container = self.location.url.partition("://")[2].partition("/")[0]
            properties = {
                "bucket": container.partition("@")[0],
                "managedLedgerOffloadDriver": constant,
                "region": _text(client.get("region_name")),
                "serviceEndpoint": _text(options.get("endpoint_url") or client.get("endpoint_url")),
            }
        return OffloadContext(
            uuid=uuid,
            complete=True,
            bookkeeper_deleted=False,
            timestamp_ms=time.time_ns() // 1_000_000,
            driver=driver,
            driver_properties=properties,
        )


def _offloaded_before_error(name: LedgerObjectName) -> OptionError:
    message = (
        "the ledger was offloaded with this uuid before, or while this offload was running: use a"
        " new uuid for each attempt"
    )
    return OptionError(message, object_key=name.index_name)


@dataclass(frozen=True, slots=True)
class _LedgerEntries:
    """The entries of an offloaded ledger, read again for each iteration."""

    ledger: OffloadedLedger

    def __iter__(self) -> Iterator[memoryview]:
        ledger = self.ledger
        runs = ledger.data.entry_runs(0, ledger.last_entry_id, Tally(), verify_checksums=True)
        for run in runs:
            for index in run.flagged(layout.BROKEN):
                if run.number(index, layout.ERROR) == layout.BAD_CHECKSUM:
                    raise run.error(index)
            for index in range(run.count):
                yield run.view(index, layout.FRAME)


def index_user_metadata(
    data_user_metadata: Mapping[str, str], managed_ledger: str
) -> dict[str, str]:
    """Return user metadata for the index object of a data object, from that of the data object."""
    return {
        **{key: each for key, each in data_user_metadata.items() if key != SOFTWARE_GIT_SHA_KEY},
        FORMAT_VERSION_KEY: FORMAT_VERSION,
        SOFTWARE_VERSION_KEY: _software_version(),
        MANAGED_LEDGER_NAME_KEY: managed_ledger,
        ROLE_KEY: "index",
    }


@cache
def _software_version() -> str:
    return f"pulsar-offload {version('pulsar-offload')}"


def _is_header_value(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _text(value: object) -> str:
    return redacted_urls(value) if isinstance(value, str) else ""
