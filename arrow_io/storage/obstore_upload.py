"""An object on its way to a store through obstore, which cuts it into parts of its own."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import obstore

from arrow_io.storage.obstore_errors import OBSTORE_ERRORS, translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

PART_BYTES: Final = 16 << 20
"""Length of the blocks: 50,000 of them, the most of a blob, are 781 GiB."""
_PARTS_AT_A_TIME: Final = 2


class _AbortedError(Exception):
    """The upload is to be aborted."""


class ObstoreUpload:
    """Blocks of a blob of Azure, which a thread sends as they come.

    Args:
        client: obstore's client of the bucket; sends parts again by itself.
        path: Key of the object.
        attributes: What is kept with it, by obstore's names.
    """

    is_repeatable: ClassVar[bool] = False

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - one of several classes
        path: str,
        attributes: Mapping[str, str],
    ) -> None:
        self._client = client
        self._path = path
        self._attributes = dict(attributes)
        self._parts: queue.SimpleQueue[bytes | _AbortedError | None] = queue.SimpleQueue()
        self._room = threading.Semaphore()
        self._executor = ThreadPoolExecutor(1)
        self._sent = self._executor.submit(self._send)
        # Who waits for room hears that there will be none.
        self._sent.add_done_callback(lambda _sent: self._room.release())

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Hand over the next part, as soon as the one before is taken."""
        self._room.acquire()
        if self._sent.done():
            self._room.release()
            self._sent.result()
        self._parts.put(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Say that this was all, and wait until the object is there."""
        self._parts.put(None)
        self._executor.shutdown()
        self._sent.result()

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Have obstore abort the upload, as it does by itself if it fails."""
        if self._sent.done():
            self._executor.shutdown()
            return
        self._parts.put(_AbortedError())
        self._executor.shutdown()
        with suppress(_AbortedError):
            self._sent.result()

    def _send(self) -> None:
        try:
            obstore.put(
                self._client,
                self._path,
                self._received(),
                attributes=self._attributes,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_A_TIME,
            )
        except OBSTORE_ERRORS as error:
            raise translated(error) from None

    def _received(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _AbortedError):
                raise part
            self._room.release()
            yield part
