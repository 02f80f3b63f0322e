"""A file system that holds objects in memory and hands out their bytes uncopied.

fsspec's own `memory://` copies each range, into memory fresh from the kernel: for uncompressed
ledgers that costs more than decoding them does.
"""

from __future__ import annotations

from typing import ClassVar

import fsspec
from fsspec.spec import AbstractFileSystem

RESIDENT_URL = "resident://benchmarks"


# fsspec carries no types, so its class is Any.
class ResidentFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Objects by path, shared by all instances."""

    protocol = "resident"
    objects: ClassVar[dict[str, memoryview]] = {}

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT002 - fsspec's
        """Folders need no making."""

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **_options: object
    ) -> None:
        """Keep an object."""
        del mode
        self.objects[self._strip_protocol(path)] = memoryview(value)

    def info(self, path: str, **_options: object) -> dict[str, object]:
        """Name, size and kind of an object, or of a folder that has any."""
        path = self._strip_protocol(path)
        if path in self.objects:
            return {"name": path, "size": len(self.objects[path]), "type": "file"}
        if any(each.startswith(f"{path}/") for each in self.objects):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **_options: object) -> list[object]:  # noqa: FBT002
        """The objects below a folder."""
        folder = self._strip_protocol(path)
        found = [self.info(each) for each in self.objects if each.startswith(f"{folder}/")]
        return list(found) if detail else [each["name"] for each in found]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_options: object
    ) -> memoryview:
        """Some bytes of an object, uncopied."""
        path = self._strip_protocol(path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][start:end]


fsspec.register_implementation("resident", ResidentFileSystem, clobber=True)
