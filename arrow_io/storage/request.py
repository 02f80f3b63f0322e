"""Requests to a store as values: operation, object, range, body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from arrow_io.storage.trace import RequestKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_memory import RangeMemory

DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
"""The content type that Pulsar's offloaders set; nothing reads it."""


class Operation(StrEnum):
    """The operation of a request; its value names the store's or upload's method."""

    LIST_FOLDER = "list_folder"
    LIST_TREE = "list_tree"
    LIST_UPLOADS = "list_uploads"
    LIST_OBJECT = "list_object"
    HEAD = "head"
    GET_OBJECT = "get_object"
    GET_RANGE = "get_range"
    PUT_OBJECT = "put_object"
    PUT_NEW_OBJECT = "put_new_object"
    REPLACE_OBJECT = "replace_object"
    BEGIN_UPLOAD = "begin_upload"
    WRITE_PART = "write_part"
    COMPLETE_UPLOAD = "complete"
    DISCARD_UPLOAD = "discard"
    ABORT_UPLOAD = "abort_upload"
    DELETE_OBJECT = "delete_object"
    DELETE_FOLDER = "delete_folder"


LISTINGS: Final = frozenset(
    {
        Operation.LIST_FOLDER,
        Operation.LIST_TREE,
        Operation.LIST_UPLOADS,
        Operation.LIST_OBJECT,
    }
)
LISTER_OPERATIONS: Final = LISTINGS | {Operation.ABORT_UPLOAD}
"""Operations that go to the store for listings (`ObjectStore.lister`)."""
READER_OPERATIONS: Final = frozenset({Operation.GET_OBJECT, Operation.GET_RANGE})
"""Operations that go to the store for GETs (`ObjectStore.reader`)."""
CONDITIONAL_PUTS: Final = frozenset({Operation.PUT_NEW_OBJECT, Operation.REPLACE_OBJECT})
_KINDS: Final[Mapping[Operation, RequestKind]] = {
    **dict.fromkeys(LISTINGS, RequestKind.LIST),
    Operation.HEAD: RequestKind.HEAD,
    Operation.GET_OBJECT: RequestKind.INDEX_GET,
    Operation.GET_RANGE: RequestKind.RANGE_GET,
    **dict.fromkeys({Operation.PUT_OBJECT, *CONDITIONAL_PUTS}, RequestKind.PUT),
    Operation.BEGIN_UPLOAD: RequestKind.UPLOAD,
    Operation.WRITE_PART: RequestKind.PART,
    Operation.COMPLETE_UPLOAD: RequestKind.UPLOAD,
    Operation.DISCARD_UPLOAD: RequestKind.DELETE,
    Operation.ABORT_UPLOAD: RequestKind.DELETE,
    Operation.DELETE_OBJECT: RequestKind.DELETE,
    Operation.DELETE_FOLDER: RequestKind.DELETE,
}


@dataclass(frozen=True, slots=True)
class ObjectAttributes:
    """User metadata and content type of an object, for stores that support them."""

    user_metadata: Mapping[str, str]
    content_type: str = DEFAULT_CONTENT_TYPE


_NO_ATTRIBUTES: Final = ObjectAttributes({})


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a store, regardless of how often it is sent."""

    operation: Operation
    name: str = ""
    """Name of the object or folder, relative to the location; a listed folder has no name if it is
    the location. For unfinished uploads, a prefix of names."""
    start: int = 0
    """First byte of the range or part."""
    stop: int = 0
    """End of the range or part (exclusive). For a whole object, maximum number of bytes read."""
    version: ObjectVersion | None = None
    """Version that the object must have; None for any."""
    memory: RangeMemory | None = None
    """Memory for the bytes of a range; None to allocate it."""
    data: bytes = b""
    attributes: ObjectAttributes = _NO_ATTRIBUTES
    part_number: int = 0
    """Number of the part, from 1."""
    upload_id: str = ""
    """The store's id of the unfinished upload."""
    marker: tuple[str, ...] | None = None
    """Start of the listing's page, from an earlier page; None for the first page."""
    listed_keys: int = 0
    """Number of keys in the previous pages."""
    can_repeat: bool = True
    """Whether the request may be sent again."""

    @property
    def kind(self) -> RequestKind:
        """The kind under which the request is counted."""
        return _KINDS[self.operation]

    @property
    def is_listing(self) -> bool:
        """Whether the request is a listing or a page of one."""
        return self.operation in LISTINGS

    @property
    def object_key(self) -> str | None:
        """Name of the object for errors; None for a listing."""
        return None if self.is_listing else self.name
