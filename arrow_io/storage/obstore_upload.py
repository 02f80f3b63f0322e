"""An upload through obstore, which splits the object into parts itself."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

import obstore

from arrow_io.core.threads import ContextThreadPool
from arrow_io.storage.obstore_errors import OBSTORE_ERRORS, translate_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

PART_BYTES: Final = 16 << 20
"""Size of a block; a blob has at most 50,000 blocks, or 781 GiB."""
_PARTS_AT_A_TIME: Final = 2


class _AbortedError(Exception):
    """The caller aborted the upload."""


class ObstoreUpload:
    """Blocks of an Azure blob, which a thread sends as they are written.

    Args:
        client: obstore's client of the bucket; repeats parts itself.
        path: Key of the object.
        attributes: User metadata and content type, by obstore's names.
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
        self._executor = ContextThreadPool(1)
        self._upload_result = self._executor.submit(self._send)
        # Wake a writer that waits for room after the upload has failed.
        self._upload_result.add_done_callback(lambda _future: self._room.release())

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Hand over the next part as soon as the previous one is taken."""
        self._room.acquire()
        if self._upload_result.done():
            self._room.release()
            self._upload_result.result()
        self._parts.put(request.data)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Finish the upload and wait until the object exists."""
        self._parts.put(None)
        self._executor.shutdown()
        self._upload_result.result()

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Make obstore abort the upload; after a failure it does so itself."""
        if self._upload_result.done():
            self._executor.shutdown()
            return
        self._parts.put(_AbortedError())
        self._executor.shutdown()
        with suppress(_AbortedError):
            self._upload_result.result()

    def _send(self) -> None:
        try:
            obstore.put(
                self._client,
                self._path,
                self._pull_parts(),
                attributes=self._attributes,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_A_TIME,
            )
        except OBSTORE_ERRORS as error:
            raise translate_error(error) from None

    def _pull_parts(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _AbortedError):
                raise part
            self._room.release()
            yield part
