"""Names of the objects of an offloaded ledger in the bucket (Pulsar's DataBlockUtils).

================================== =====================================================
Object                             Name, below the root of the bucket or the URL's prefix
================================== =====================================================
data object (PIP-17)               `<uuid>-ledger-<ledgerId>`
index object (PIP-17)              `<uuid>-ledger-<ledgerId>-index`
data object, streaming (PIP-76)    `<uuid>`
index object, streaming (PIP-76)   `<uuid>-index`
MapFile (filesystem driver)        `<managedLedgerName>/<ledgerId>-<uuid>/data`, `…/index`
checksums of a MapFile             `.data.crc`, `.index.crc` in the same folder
================================== =====================================================

`<uuid>` is the 128-bit id of the offload attempt, or of the segment in streaming offload, in
lower-case canonical form. `<ledgerId>` is decimal without padding. Except for MapFiles, names do
not contain the topic: the objects of all topics of a cluster share one folder.
`<managedLedgerName>` is URL-encoded, and its four or five parts are the names of nested folders,
which are never decoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, TypeGuard
from uuid import UUID

from arrow_io.errors import OptionError

MAX_LEDGER_ID = 2**63 - 1
"""Largest BookKeeper ledger id (inclusive)."""

MANAGED_LEDGER_DOMAINS = frozenset({"persistent", "segment"})
"""The part of a managed ledger's name after tenant and namespace."""

_UINT64_MASK = 2**64 - 1
# Bound the digits before they are converted: an object key can have 1,024 digits.
_NAME = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"(?:-ledger-(?P<ledger_id>0|[1-9][0-9]{0,18}))?"
    r"(?P<index>-index)?"
)
_MAP_FILE = re.compile(
    r"(?P<managed_ledger>[^/]+/[^/]+/(?:persistent/[^/]+|segment/[^/]+/[^/]+|[^/]+/persistent/[^/]+))"
    r"/(?P<ledger_id>0|[1-9][0-9]{0,18})-(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"/(?P<file>data|index|\.data\.crc|\.index\.crc)"
)


class PairName(Protocol):
    """The name of an index object and its data object, of any kind."""

    @property
    def uuid(self) -> UUID:
        """Id of the offload."""

    @property
    def ledger_id(self) -> int | None:
        """BookKeeper ledger id; None if only the index object records its ledgers."""

    @property
    def data_name(self) -> str:
        """Name of the data object."""

    @property
    def index_name(self) -> str:
        """Name of the index object."""

    @property
    def checksum_names(self) -> tuple[str, ...]:
        """Names of objects with their checksums, which need not exist; empty for most kinds."""

    @property
    def managed_ledger(self) -> str | None:
        """Name of the managed ledger; None if the names of objects do not contain it."""


class CopyName(PairName, Protocol):
    """The name of a copy of one ledger; a bucket may hold several copies of a ledger."""

    @property
    def ledger_id(self) -> int:
        """BookKeeper ledger id."""


def has_ledger_id(name: PairName) -> TypeGuard[CopyName]:
    """Return whether a name contains the id of the ledger that its objects hold."""
    return name.ledger_id is not None


class _FlatName:
    """A name in the one folder that all topics of a cluster share."""

    __slots__ = ()

    @property
    def checksum_names(self) -> tuple[str, ...]:
        """Empty: the objects have no checksums."""
        return ()

    @property
    def managed_ledger(self) -> None:
        """None: the names of objects do not contain it."""
        return


@dataclass(frozen=True, slots=True)
class LedgerObjectName(_FlatName):
    """One offload attempt of one ledger, which determines the names of its two objects.

    Example:
        >>> from uuid import UUID
        >>> LedgerObjectName(UUID(int=1), 42).index_name
        '00000000-0000-0000-0000-000000000001-ledger-42-index'
    """

    uuid: UUID
    """Id of the offload attempt, `OffloadContext.uidMsb` and `uidLsb`."""
    ledger_id: int
    """BookKeeper ledger id, 0 … 2^63 - 1 (inclusive)."""

    def __post_init__(self) -> None:
        """Raise `OptionError` if the ledger id is out of bounds."""
        if not 0 <= self.ledger_id <= MAX_LEDGER_ID:
            message = f"a ledger id is in 0 … 2^63 - 1, not {self.ledger_id}"
            raise OptionError(message)

    @property
    def data_name(self) -> str:
        """Name of the data object."""
        return f"{self.uuid}-ledger-{self.ledger_id}"

    @property
    def index_name(self) -> str:
        """Name of the index object."""
        return f"{self.data_name}-index"


@dataclass(frozen=True, slots=True)
class _SegmentObjects(_FlatName):
    uuid: UUID
    """Id of the segment, `OffloadSegment.uidMsb` and `uidLsb`."""

    @property
    def data_name(self) -> str:
        """Name of the data object."""
        return str(self.uuid)

    @property
    def index_name(self) -> str:
        """Name of the index object."""
        return f"{self.uuid}-index"


@dataclass(frozen=True, slots=True)
class SegmentName(_SegmentObjects):
    """The name of the two objects of a segment of streaming offload, which may hold any ledgers."""

    @property
    def ledger_id(self) -> None:
        """None: only the index object records its ledgers."""
        return


@dataclass(frozen=True, slots=True)
class ShareName(_SegmentObjects):
    """One ledger's share of a segment; the same objects hold the shares of other ledgers."""

    ledger_id: int
    """BookKeeper ledger id."""


@dataclass(frozen=True, slots=True)
class MapFileName:
    """The folder of a MapFile, which holds one ledger (`FileSystemManagedLedgerOffloader`).

    Example:
        >>> from uuid import UUID
        >>> MapFileName("public/default/persistent/a%3Ab", UUID(int=1), 42).index_name
        'public/default/persistent/a%3Ab/42-00000000-0000-0000-0000-000000000001/index'
    """

    managed_ledger: str
    """Name of the managed ledger."""
    uuid: UUID
    """Id of the offload attempt, `OffloadContext.uidMsb` and `uidLsb`."""
    ledger_id: int
    """BookKeeper ledger id."""

    @property
    def folder(self) -> str:
        """Path of the folder."""
        return f"{self.managed_ledger}/{self.ledger_id}-{self.uuid}"

    @property
    def data_name(self) -> str:
        """Path of the data file."""
        return f"{self.folder}/data"

    @property
    def index_name(self) -> str:
        """Path of the index."""
        return f"{self.folder}/index"

    @property
    def checksum_names(self) -> tuple[str, str]:
        """Paths of the checksums of index and data file, which only local folders have."""
        return f"{self.folder}/.index.crc", f"{self.folder}/.data.crc"


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The parts of an object's name."""

    uuid: UUID
    """Id of the offload attempt, or of the segment in streaming offload."""
    ledger_id: int | None
    """None in streaming offload (PIP-76): its objects hold shares of several ledgers."""
    is_index: bool
    """Whether the object is the index object; otherwise it is the data object."""

    @property
    def is_streaming(self) -> bool:
        """Whether the name is one of streaming offload (PIP-76), which has only a uuid."""
        return self.ledger_id is None

    @property
    def ledger_object_name(self) -> LedgerObjectName:
        """The offload attempt that the object belongs to.

        Raises:
            OptionError: The name is one of streaming offload.
        """
        if self.ledger_id is None:
            message = f"segment {self.uuid} of streaming offload may hold any ledgers"
            raise OptionError(message)
        return LedgerObjectName(self.uuid, self.ledger_id)


def parse_object_name(name: str) -> ParsedName | None:
    """Parse the name of an object, which is its key after the last slash.

    Returns:
        The parts of the name, or None for an object that no offloader of Pulsar wrote.

    Example:
        >>> parsed = parse_object_name("00000000-0000-0000-0000-000000000001-ledger-42-index")
        >>> parsed.ledger_id, parsed.is_index
        (42, True)
        >>> parse_object_name("backup.tar") is None
        True
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    digits = match["ledger_id"]
    ledger_id = None if digits is None else int(digits)
    if ledger_id is not None and ledger_id > MAX_LEDGER_ID:
        return None
    return ParsedName(UUID(match["uuid"]), ledger_id, match["index"] is not None)


def parse_map_file_name(name: str) -> MapFileName | None:
    """Parse the path of one of the four files in the folder of a MapFile, below the base.

    Returns:
        The folder, or None for the path of another file.

    Example:
        >>> path = "a/b/persistent/c/42-00000000-0000-0000-0000-000000000001/.index.crc"
        >>> parse_map_file_name(path).ledger_id
        42
        >>> parse_map_file_name(path + ".bak") is None
        True
    """
    match = _MAP_FILE.fullmatch(name)
    if match is None or int(match["ledger_id"]) > MAX_LEDGER_ID:
        return None
    return MapFileName(match["managed_ledger"], UUID(match["uuid"]), int(match["ledger_id"]))


def offload_uuid(uid_msb: int, uid_lsb: int) -> UUID:
    """Return the uuid of an offload attempt from `OffloadContext.uidMsb` and `uidLsb`.

    Both are signed 64-bit numbers.

    Example:
        >>> offload_uuid(-1, 1)
        UUID('ffffffff-ffff-ffff-0000-000000000001')
    """
    return UUID(int=(uid_msb & _UINT64_MASK) << 64 | (uid_lsb & _UINT64_MASK))
