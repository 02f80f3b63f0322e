"""A blocking file system of local files that fails when a second thread enters it.

Each call stays inside until another thread has tried to enter, or for a moment if none does, so
that threads which do not take turns meet.
"""

from __future__ import annotations

import contextlib
import io
import threading
from typing import TYPE_CHECKING, Any, Final

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOCOL: Final = "exclusive"
_MOMENT_S: Final = 0.005


class Entrance:
    """Lets one thread in at a time, and notes that another came."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._intrusion = threading.Event()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside; fails if another thread is."""
        if not self._lock.acquire(blocking=False):
            INTRUSIONS.append(threading.current_thread().name)
            self._intrusion.set()
            message = "two threads are in one file system"
            raise AssertionError(message)
        self._depth += 1
        try:
            yield
            if self._depth == 1:
                self._intrusion.wait(_MOMENT_S)
        finally:
            self._depth -= 1
            self._lock.release()


INTRUSIONS: Final[list[str]] = []
"""Names of the threads that came while another was inside."""


class _ExclusiveFile(io.FileIO):
    """A local file whose bytes are read and written inside."""

    def __init__(self, path: str, mode: str, entrance: Entrance) -> None:
        super().__init__(path, mode)
        self._entrance = entrance

    def read(self, size: int | None = -1, /) -> Any:  # noqa: ANN401 - as the base class has it
        with self._entrance.entered():
            return super().read(-1 if size is None else size)

    def write(self, data: Any, /) -> Any:  # noqa: ANN401 - as the base class has it
        with self._entrance.entered():
            return super().write(data)


# fsspec carries no types, so its class is Any.
class ExclusiveFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Local files, for one thread at a time."""

    protocol = PROTOCOL
    root_marker = "/"

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._files = LocalFileSystem()
        self._entrance = Entrance()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(LocalFileSystem._strip_protocol(path.removeprefix(f"{PROTOCOL}://")))

    def ls(self, path: str, detail: bool = True, **_options: object) -> Any:  # noqa: ANN401, FBT002
        """List a folder."""
        with self._entrance.entered():
            return self._files.ls(path, detail=detail)

    def info(self, path: str, **_options: object) -> Any:  # noqa: ANN401
        """Describe a file."""
        with self._entrance.entered():
            return self._files.info(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT002
        """Make a folder."""
        with self._entrance.entered():
            self._files.makedirs(path, exist_ok=exist_ok)

    def mv(self, path1: str, path2: str, **_options: object) -> None:
        """Move a file."""
        with self._entrance.entered():
            self._files.mv(path1, path2)

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        with self._entrance.entered():
            self._files.rm_file(path)

    def open(self, path: str, mode: str = "rb", **_options: object) -> Any:  # noqa: ANN401
        """Open a file."""
        with self._entrance.entered():
            return _ExclusiveFile(self._strip_protocol(path), mode, self._entrance)


fsspec.register_implementation(PROTOCOL, ExclusiveFileSystem, clobber=True)
