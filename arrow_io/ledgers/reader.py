"""The reader of one PIP-17 ledger: opens its index object, which describes the data object.

Pulsar's own reader is `BlobStoreBackedReadHandleImpl`; unlike that, this one checks block headers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptIndexError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.format.index_block import (
    MANAGED_LEDGER_NAME_KEY,
    IndexBlock,
    check_format_version,
    read_index_block,
)
from arrow_io.ledgers.data import LedgerData
from arrow_io.ledgers.index_objects import read_index_object
from arrow_io.ledgers.open_ledger import OpenLedger
from arrow_io.storage.object_version import agree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.format.object_names import LedgerObjectName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectContent, ObjectInfo
    from arrow_io.storage.object_version import ObjectVersion


@dataclass(frozen=True, slots=True)
class ObjectVersions:
    """The versions of a ledger's two objects (`ObjectInfo.version`); None if unknown."""

    index: ObjectVersion | None = None
    data: ObjectVersion | None = None

    def agrees_with(self, other: ObjectVersions) -> bool:
        """Return whether the versions are equal, as far as both sides know them."""
        return agree(self.index, other.index) and agree(self.data, other.data)


UNKNOWN_VERSIONS = ObjectVersions()


@dataclass(frozen=True)
class OffloadedLedger(OpenLedger):
    """One offloaded ledger. Can be pickled; holds no connection.

    Attributes:
        location: Location of its objects.
        name: Names of its objects.
        index: Its index block.
        warnings: Harmless irregularities, in words.
        cut_bytes: Length of the data object if it is known to be truncated; None if it is whole.
        user_metadata: User metadata of its index object, names in lower case, if the store returned
            it.
        versions: Versions that its objects must have.
    """

    location: Location
    name: LedgerObjectName
    index: IndexBlock
    warnings: tuple[str, ...] = field(default=(), compare=False)
    cut_bytes: int | None = None
    user_metadata: Mapping[str, str] | None = field(default=None, compare=False)
    versions: ObjectVersions = field(default=UNKNOWN_VERSIONS, compare=False)

    @classmethod
    def open(
        cls,
        location: Location,
        name: LedgerObjectName,
        *,
        data_size_bytes: int | None = None,
        versions: ObjectVersions = UNKNOWN_VERSIONS,
        listed: ObjectInfo | None = None,
    ) -> Self:
        """Read the index object, with one request unless the index cache has it.

        Args:
            location: Location of the objects.
            name: Names of the objects.
            data_size_bytes: Real length of the data object if it is available, for example from a
                listing.
            versions: Available versions of the objects.
            listed: The index object as listed. None: the index cache is not used.

        Raises:
            MissingObjectError: The index object is missing.
            UnknownFormatError: It is not an index object of PIP-17, or has another format version.
            CorruptIndexError: Its fields contradict each other or its user metadata.
            FormatError: It is longer than any index object that is accepted.
            TruncatedObjectError: It, or the data object, is shorter than it says.
            ObjectChangedError: It has another version.
            StorageError: The store denied access, or requests failed until the deadline.
        """
        key = name.index_name

        def parse(content: ObjectContent) -> tuple[IndexBlock, str | None]:
            unversioned = None
            if content.user_metadata is not None:
                unversioned = check_format_version(content.user_metadata, object_key=key)
            index = read_index_block(content.data, object_key=key)
            _check_owner(index, content.user_metadata or {}, object_key=key)
            return index, unversioned

        try:
            content, (index, unversioned) = read_index_object(
                location, key, parse, version=versions.index, listed=listed
            )
        except PulsarOffloadError as error:
            error.located(ledger_id=name.ledger_id)
            raise
        ledger = cls(
            location,
            name,
            index,
            (*([unversioned] if unversioned else []), *index.warnings),
            user_metadata=content.user_metadata,
            versions=replace(versions, index=versions.index or content.version),
        )
        return ledger if data_size_bytes is None else ledger.with_data_size(data_size_bytes)

    def with_data_size(self, data_size_bytes: int) -> Self:
        """Return the same ledger after comparing the real length of its data object.

        Raises:
            TruncatedObjectError: It is shorter than the index object says.
        """
        if data_size_bytes == self.index.data_object_length_bytes:
            return self
        message = (
            f"the data object has {counted(data_size_bytes, 'byte')}, its index object says"
            f" {self.index.data_object_length_bytes}"
        )
        if data_size_bytes < self.index.data_object_length_bytes:
            raise TruncatedObjectError(
                message,
                object_key=self.name.data_name,
                ledger_id=self.ledger_id,
                offset=data_size_bytes,
            )
        return replace(self, warnings=(f"{self.name.data_name}: {message}", *self.warnings))

    def cut_at(self, data_size_bytes: int) -> Self:
        """Return the same ledger, to be read up to the end of its truncated data object."""
        return replace(self, cut_bytes=data_size_bytes)

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""
        return self.name.ledger_id

    @cached_property
    def data(self) -> LedgerData:
        """The ledger interface to its entries."""
        metadata = self.index.ledger_metadata
        owner = metadata.managed_ledger_name
        if owner is None:
            owner = (self.user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        return LedgerData(
            self.location,
            self.name,
            self.index.block_table,
            metadata.length_bytes,
            None if owner is None else sys.intern(owner),
            self.versions.data,
            self.cut_bytes,
        )

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        return self.index.last_entry_id

    @property
    def ledger_metadata(self) -> LedgerMetadata:
        """BookKeeper's metadata of it."""
        return self.index.ledger_metadata


def _check_owner(index: IndexBlock, user_metadata: Mapping[str, str], *, object_key: str) -> None:
    """Compare the managed ledger names in both places: no checksum covers either of them."""
    owner = index.ledger_metadata.managed_ledger_name
    user_owner = user_metadata.get(MANAGED_LEDGER_NAME_KEY)
    if owner is not None and user_owner is not None and owner != user_owner:
        message = (
            f"the index object is of managed ledger {owner!r}, its user metadata says"
            f" {user_owner!r}"
        )
        raise CorruptIndexError(message, object_key=object_key)
