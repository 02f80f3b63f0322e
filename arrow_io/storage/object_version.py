"""Versions of objects, and whether two of them are the same.

Stores identify a version either by an ETag, or by length and time of writing. Only two versions of
the same kind can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ETAG_FIELDS = ("ETag", "etag", "e_tag")
"""Names of the ETag in s3fs, in adlfs and gcsfs, and in obstore."""


@dataclass(frozen=True, slots=True)
class ETag:
    """A version identified by the store's ETag."""

    text: str
    """Without quotation marks and without the `W/` of a weak ETag."""

    def agrees_with(self, other: ObjectVersion | None) -> bool:
        """Return whether the two may be the same version."""
        return not isinstance(other, ETag) or self == other


@dataclass(frozen=True, slots=True)
class WriteTime:
    """A version identified by length and time of writing."""

    size_bytes: int
    modified: datetime
    """With time zone."""

    def agrees_with(self, other: ObjectVersion | None) -> bool:
        """Return whether the two may be the same version; whole seconds may be rounded."""
        if not isinstance(other, WriteTime):
            return True
        one, two = self.modified, other.modified
        if not (one.microsecond and two.microsecond):
            one, two = one.replace(microsecond=0), two.replace(microsecond=0)
        return self.size_bytes == other.size_bytes and one == two


ObjectVersion = ETag | WriteTime
"""What identifies a version of an object, as far as the store reports it."""


def agree(one: ObjectVersion | None, other: ObjectVersion | None) -> bool:
    """Return whether two versions may be the same: None, or one of another kind, proves nothing.

    Example:
        >>> agree(ETag("a"), ETag("b")), agree(ETag("a"), None)
        (False, True)
    """
    return one is None or one.agrees_with(other)


def version_in(entry: Mapping[str, Any], size_bytes: int | None) -> ObjectVersion | None:
    """Return the version of an object; None if its record in a file system has none.

    Args:
        entry: The file system's record of the object.
        size_bytes: Length of the object; None if unknown.
    """
    tag, modified = etag_in(entry), modified_in(entry)
    if tag is not None or size_bytes is None or modified is None:
        return tag
    return WriteTime(size_bytes, modified)


def etag_in(entry: Mapping[str, Any]) -> ETag | None:
    """Return the ETag in a file system's record of an object; None if it has none."""
    tag = next((entry[name] for name in _ETAG_FIELDS if entry.get(name)), None)
    return None if tag is None else ETag(str(tag).removeprefix("W/").strip('"'))


def modified_in(entry: Mapping[str, Any]) -> datetime | None:
    """Return the time of writing in a file system's record of an object; None if it has none."""
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
