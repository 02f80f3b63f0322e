"""Stores for folders on file servers, on web servers and in archives."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from arrow_io.storage.object_store import ObjectStore
from arrow_io.storage.request_threads import send_in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from fsspec.spec import AbstractFileSystem

    from arrow_io.storage.request_threads import SendInThread
    from arrow_io.storage.store_uploads import StoreUpload
    from arrow_io.storage.turns import Turns


class BlockingObjectStore(ObjectStore):
    """A folder of a file system that several threads must not use at once.

    See `ObjectStore` for the arguments; `turns` are those of the file system.
    """

    def __init__(self, file_system: AbstractFileSystem, root: str, turns: Turns) -> None:
        super().__init__(file_system, root)
        self._turns = turns

    @property
    def is_async(self) -> bool:
        """False: the file system has no event loop of its own."""
        return False

    def turn(
        self, patience_s: float, upload: StoreUpload | None
    ) -> AbstractContextManager[SendInThread]:
        """Wait until no other request to the file system is in flight."""
        return self._turns.turn(patience_s)


class ConcurrentObjectStore(ObjectStore):
    """A folder of a file server whose library several threads may use at once.

    A listing is a single page, or extends its own time.
    """

    @property
    def is_async(self) -> bool:
        """True: several threads can send requests at once."""
        return True

    def turn(
        self, patience_s: float, upload: StoreUpload | None
    ) -> AbstractContextManager[SendInThread]:
        """Send requests in a thread."""
        return nullcontext(partial(send_in_thread, listing_deadlines=1))


class HttpObjectStore(ObjectStore):
    """A folder of a web server; its page of links serves as the listing."""

    PROTOCOLS: ClassVar = frozenset({"http", "https"})

    def _entries(self, folder: str) -> list[Mapping[str, Any]]:
        # Leave out links that sort the page and links to the page itself.
        links = [
            link
            for link in super()._entries(folder)
            if not {"?", "#"}.intersection(link["name"])
            and self._relative(link["name"]).strip("/") != folder
        ]
        if not links:
            # A page that is not the listing of a folder has no links into the folder.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return links
