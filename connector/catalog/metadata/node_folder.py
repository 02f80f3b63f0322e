"""Nodes of a metadata store that were saved as files.

A node is the file with its path below the folder; its value is the content. A node with children is
a folder, whose file `value.bin` has its value. Such a folder has, for example:

```
metadata-store/topics/public/default/payments/value.bin
metadata-store/txn/segment-state/watermark/segment%3A%2F%2Fpublic%2Fdefault%2Fpayments%2F0000-7fff-0
metadata-store/txn/id/0_10
```
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arrow_io.errors import CorruptMetadataError, FormatError, MissingObjectError
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES

if TYPE_CHECKING:
    from arrow_io.storage.location import Location

NODE_FOLDER: Final = "metadata-store"
"""Folder with the nodes, in a folder of metadata."""
_VALUE_FILE: Final = "value.bin"


class NodeFolder:
    """A folder with nodes of a metadata store (`MetadataStore`)."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def url(self) -> str:
        """The URL of the folder, without credentials."""
        return str(self._location)

    def get(self, path: str) -> bytes | None:
        """Return the value of a node; None if it was not saved.

        Raises:
            CorruptMetadataError: The value is longer than `MAX_METADATA_BYTES`.
            StorageError: The file cannot be read.
        """
        folder, _, name = path.strip("/").rpartition("/")
        for location, file in (
            (self._child(folder), name),
            (self._child(path.strip("/")), _VALUE_FILE),
        ):
            # A folder of the file's name is no file, and may lack the other file.
            with suppress(MissingObjectError):
                if location.exists(file):
                    return _read(location, file)
        return None

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, encoded and sorted; empty if there is no node.

        Raises:
            CorruptMetadataError: The names together are longer than `MAX_METADATA_BYTES`.
            StorageError: The folder cannot be listed.
        """
        location = self._child(path.strip("/"))
        names: set[str] = set()
        with suppress(MissingObjectError):
            listing = location.list_folder()
            names = {each.name for each in listing.objects} - {_VALUE_FILE}
            names.update(listing.folders)
        if sum(map(len, names)) > MAX_METADATA_BYTES:
            message = f"the names of nodes in {location} are longer than {MAX_METADATA_BYTES} bytes"
            raise CorruptMetadataError(message)
        return sorted(names)

    def _child(self, path: str) -> Location:
        return self._location.child(path) if path else self._location


def _read(location: Location, name: str) -> bytes:
    try:
        return location.read_object(name, max_bytes=MAX_METADATA_BYTES).data
    except FormatError as error:
        raise CorruptMetadataError(error.message, object_key=f"{location}/{name}") from None
