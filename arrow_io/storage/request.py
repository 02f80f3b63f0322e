"""A request to a store as a value: what it asks for, of which object, and what it sends."""

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
"""Pulsar's offloaders ask for it; nothing reads it."""


class Operation(StrEnum):
    """What a request asks for. Its value names the method of a store or an upload that sends it."""

    LIST_OBJECTS = "list_objects"
    LIST_FOLDERS = "list_folders"
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


LISTINGS: Final = frozenset(
    {
        Operation.LIST_OBJECTS,
        Operation.LIST_FOLDERS,
        Operation.LIST_UPLOADS,
        Operation.LIST_OBJECT,
    }
)
LISTER_OPERATIONS: Final = LISTINGS | {Operation.ABORT_UPLOAD}
"""What the store is asked for that lists (`ObjectStore.lister`)."""
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
}


@dataclass(frozen=True, slots=True)
class ObjectAttributes:
    """What is kept with an object besides its bytes, if the store keeps such things."""

    user_metadata: Mapping[str, str]
    content_type: str = DEFAULT_CONTENT_TYPE


_NO_ATTRIBUTES: Final = ObjectAttributes({})


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a store, however often it is sent."""

    operation: Operation
    name: str = ""
    """Name of the object, relative to the location. For unfinished uploads, a prefix of names."""
    start: int = 0
    """First byte of the range or part."""
    stop: int = 0
    """End of the range or part (exclusive). For a whole object, most bytes that are read."""
    version: ObjectVersion | None = None
    """Version that the object must have; None: any."""
    memory: RangeMemory | None = None
    """Memory for the bytes of a range; None: they have their own."""
    data: bytes = b""
    """Body."""
    attributes: ObjectAttributes = _NO_ATTRIBUTES
    """Attributes of an object that is written."""
    part_number: int = 0
    """Number of the part, from 1."""
    upload_id: str = ""
    """The store's id of the unfinished upload."""
    marker: tuple[str, ...] | None = None
    """Where the page of a listing starts, as the page before it says; None: the first page."""
    listed_keys: int = 0
    """Number of keys in the pages before."""
    can_repeat: bool = True
    """Whether it may be sent again."""

    @property
    def kind(self) -> RequestKind:
        """The kind as which it is counted."""
        return _KINDS[self.operation]

    @property
    def is_listing(self) -> bool:
        """Whether it asks for a listing, or for a page of one."""
        return self.operation in LISTINGS

    @property
    def object_key(self) -> str | None:
        """Name of the object that errors name; None for a listing."""
        return None if self.is_listing else self.name
