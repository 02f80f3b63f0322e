"""Reading of index objects, which may come from the index cache."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from arrow_io.errors import FormatError
from arrow_io.format.index_block import MAX_INDEX_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectContent, ObjectInfo
    from arrow_io.storage.object_version import ObjectVersion

_Index = TypeVar("_Index")


def read_index_object(
    location: Location,
    name: str,
    parse: Callable[[ObjectContent], _Index],
    *,
    version: ObjectVersion | None,
    listed: ObjectInfo | None,
) -> tuple[ObjectContent, _Index]:
    """Read and parse an index object, with one request unless the index cache has it.

    Only what `parse` accepts is stored in the cache.

    Args:
        location: Location of the object.
        name: Name of the object.
        parse: Returns the index; raises FormatError if it is unsound.
        version: The required version; None for any.
        listed: The object as listed. None if it was not: then the cache is not used.

    Raises:
        FormatError: The index object is unsound, or longer than any that is accepted.
        MissingObjectError: There is no such object.
        ObjectChangedError: The object has another version.
        StorageError: The store refused the request or kept failing.
    """
    cache = None if listed is None else location.index_cache
    cached = None if cache is None or listed is None else cache.get(listed)
    if cached is not None:
        with suppress(FormatError):
            return cached, parse(cached)
    content = location.read_object(name, max_bytes=MAX_INDEX_OBJECT_BYTES, version=version)
    index = parse(content)
    if cache is not None and listed is not None:
        cache.put(listed, content)
    return content, index
