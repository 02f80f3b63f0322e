"""Which version of an object a store speaks of, and whether two of them are the same.

Stores name a version in one of two ways: by an ETag, or by length and time of writing. Only two
that are named in the same way can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ETAG_FIELDS = ("ETag", "etag", "e_tag")
"""In s3fs, adlfs and gcsfs, obstore."""


@dataclass(frozen=True, slots=True)
class ETag:
    """A version by the tag that the store gave it."""

    text: str
    """Without quotation marks, and without the `W/` of a weak one."""

    def agrees_with(self, other: ObjectVersion | None) -> bool:
        """Whether nothing tells the two apart."""
        return not isinstance(other, ETag) or self == other


@dataclass(frozen=True, slots=True)
class WriteTime:
    """A version by length and time of writing."""

    size_bytes: int
    modified: datetime
    """With time zone."""

    def agrees_with(self, other: ObjectVersion | None) -> bool:
        """Whether nothing tells the two apart; a time of whole seconds may be a rounded one."""
        if not isinstance(other, WriteTime):
            return True
        one, two = self.modified, other.modified
        if not (one.microsecond and two.microsecond):
            one, two = one.replace(microsecond=0), two.replace(microsecond=0)
        return self.size_bytes == other.size_bytes and one == two


ObjectVersion = ETag | WriteTime
"""What no other version of an object has, as far as the store says."""


def agree(one: ObjectVersion | None, other: ObjectVersion | None) -> bool:
    """Whether nothing tells two versions apart; of None, and of another kind, nothing can be said.

    Example:
        >>> agree(ETag("a"), ETag("b")), agree(ETag("a"), None)
        (False, True)
    """
    return one is None or one.agrees_with(other)


def version_in(entry: Mapping[str, Any], size_bytes: int | None) -> ObjectVersion | None:
    """The version of an object; None if the file system says nothing of the kind.

    Args:
        entry: What a file system says of the object, in its own words.
        size_bytes: Length of the object; None if it is not known.
    """
    tag, modified = etag_in(entry), modified_in(entry)
    if tag is not None or size_bytes is None or modified is None:
        return tag
    return WriteTime(size_bytes, modified)


def etag_in(entry: Mapping[str, Any]) -> ETag | None:
    """The ETag of an object; None if the file system gives none.

    Args:
        entry: What a file system says of the object, in its own words.
    """
    tag = next((entry[name] for name in _ETAG_FIELDS if entry.get(name)), None)
    return None if tag is None else ETag(str(tag).removeprefix("W/").strip('"'))


def modified_in(entry: Mapping[str, Any]) -> datetime | None:
    """When an object was written, with time zone; None if that is not known, or is no time.

    Args:
        entry: What a file system says of the object, in its own words.
    """
    # The field's name in s3fs, adlfs, local and sftp, gcsfs, memory.
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = entry.get(name)
        try:
            if isinstance(value, int | float):
                return datetime.fromtimestamp(value, tz=UTC)
            if isinstance(value, str):
                value = datetime.fromisoformat(value)
        except (ValueError, OverflowError, OSError):
            continue
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=UTC)
    return None
