"""An object written in parts while its writer makes the next ones.

Requests of one upload follow each other in a thread of its own. So an interrupt of the writer cuts
none of them off half way: the store has done what it was asked for before the upload is aborted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from arrow_io.errors import MissingObjectError, PulsarOffloadError, StorageError
from arrow_io.storage.request import ObjectAttributes, Operation, Request
from arrow_io.storage.request_errors import UploadGoneError
from arrow_io.storage.store_uploads import NO_SUCH_UPLOAD, StoreUpload

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import TracebackType

_Result = TypeVar("_Result")


class SendRequest(Protocol):
    """Sends a request, and again if it fails in a way that may pass (`RequestSender.send`)."""

    def __call__(self, request: Request, upload: StoreUpload | None = None) -> Any:  # noqa: ANN401 - of the operation
        """Return the answer; raise typed errors."""


class ObjectUpload:
    """An object being written: a context manager, made by `Location.upload`.

    The object appears, whole, when the `with` block ends without an error. Whatever error leaves
    the block, an interrupt too, removes what was written; that it could not be removed is noted on
    that error.

    Two parts are held at most: the one that is under way, and the one just handed over.

    Args:
        name: Name of the object.
        attributes: What is kept with it.
        send: Sends the requests.
    """

    def __init__(self, name: str, attributes: ObjectAttributes, send: SendRequest) -> None:
        self._name = name
        self._attributes = attributes
        self._send = send
        self._executor = ThreadPoolExecutor(1)
        self._upload: StoreUpload | None = None
        self._current_part: Future[None] | None = None
        self._part_count = 0
        self._size_bytes = 0
        self.may_be_published = False
        """Whether the store was asked to publish the object, and did not say that it cannot."""

    def __enter__(self) -> Self:
        """Begin the upload.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        _start(self._executor)
        try:
            self._executor.submit(self._begin).result()
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    def write_part(self, data: bytes) -> None:
        """Write the next part, as soon as the one before is written.

        On S3 each part but the last must have 5 MiB at least, and there must be one.

        Args:
            data: Bytes of the part.

        Raises:
            StorageError: The store refused the part before this one, or went on failing.
        """
        self.wait()
        self._part_count += 1
        start, self._size_bytes = self._size_bytes, self._size_bytes + len(data)
        self._current_part = self._executor.submit(self._write, self._part_count, start, data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Publish the object, or remove what was written of it.

        Raises:
            StorageError: The store refused the last part or the object, or went on failing.
        """
        if error is not None:
            self._give_up(error)
            return
        try:
            self.wait()
            self._executor.submit(self._complete).result()
        except BaseException as failure:
            self._give_up(failure)
            raise
        self._executor.shutdown()

    def wait(self) -> None:
        """Wait until the store has what was given to `write_part`; raises what that raises."""
        current_part, self._current_part = self._current_part, None
        if current_part is not None:
            current_part.result()

    def _give_up(self, error: BaseException) -> None:
        """Abort the upload, behind whatever is still under way."""
        with self._executor:
            try:
                self._executor.submit(self._abort).result()
            except PulsarOffloadError as failure:
                error.add_note(f"what was written of {self._name} could not be removed: {failure}")

    def _begin(self) -> None:
        request = Request(Operation.BEGIN_UPLOAD, self._name, attributes=self._attributes)
        self._upload = self._send(request)

    def _write(self, number: int, start: int, data: bytes) -> None:
        upload = self._open_upload
        request = Request(
            Operation.WRITE_PART,
            self._name,
            start,
            start + len(data),
            data=data,
            part_number=number,
            can_repeat=upload.is_repeatable,
        )
        self._send(request, upload)

    def _complete(self) -> None:
        upload = self._open_upload
        request = Request(Operation.COMPLETE_UPLOAD, self._name, can_repeat=upload.is_repeatable)
        self.may_be_published = True
        try:
            self._send(request, upload)
        except MissingObjectError:
            self.may_be_published = False
            raise
        except UploadGoneError as error:
            self.may_be_published = False
            if error.code != NO_SUCH_UPLOAD:
                raise
            self._check_completed()
            self.may_be_published = True

    def _check_completed(self) -> None:
        """An upload that is gone was completed if the object is there: only the answer was lost."""
        try:
            size_bytes = self._send(Request(Operation.HEAD, self._name)).size_bytes
        except MissingObjectError:
            size_bytes = None
        if size_bytes != self._size_bytes:
            message = "the upload was aborted by someone else, or has expired"
            raise StorageError(message, object_key=self._name)

    def _abort(self) -> None:
        if self._upload is not None:
            self._send(Request(Operation.DISCARD_UPLOAD, self._name), self._upload)

    @property
    def _open_upload(self) -> StoreUpload:
        assert self._upload is not None, "begun by __enter__"  # noqa: S101
        return self._upload


def run_uninterrupted(action: Callable[[], _Result]) -> _Result:
    """Run something that an interrupt of the caller must not leave half done, and wait for it."""
    with ThreadPoolExecutor(1) as executor:
        _start(executor)
        return executor.submit(action).result()


def _start(executor: ThreadPoolExecutor) -> None:
    """Start its thread by a task that does nothing: no other is lost if an interrupt comes here."""
    executor.submit(int).result()
