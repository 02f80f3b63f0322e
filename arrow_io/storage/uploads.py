"""Objects that are written in parts while their writer produces the next ones.

The requests of one upload run in order in a separate thread. So an interrupt of the writer cuts off
none of them: each request ends before the upload is aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from arrow_io.core.threads import ContextThreadPool
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
    """Sends a request, with retries (`RequestSender.send`)."""

    def __call__(self, request: Request, upload: StoreUpload | None = None) -> Any:  # noqa: ANN401 - of the operation
        """Return the answer, or raise a typed error."""


class ObjectUpload:
    """An object being written: a context manager, created by `Location.upload`.

    The object becomes visible, whole, when the `with` block ends without an error. Any error in the
    block, or an interrupt, removes the written data; if that fails, a note on the error says so.

    At most two parts are in memory: the one being sent and the next one.
    """

    def __init__(self, name: str, attributes: ObjectAttributes, send: SendRequest) -> None:
        self._name = name
        self._attributes = attributes
        self._send = send
        self._executor = ContextThreadPool(1)
        self._upload: StoreUpload | None = None
        self._current_part: Future[None] | None = None
        self._part_count = 0
        self._size_bytes = 0
        self.may_be_published = False
        """Whether the store was asked to publish the object and did not answer that it cannot."""

    def __enter__(self) -> Self:
        """Start the upload.

        Raises:
            StorageError: The store refused the request or kept failing.
        """
        _start(self._executor)
        try:
            self._executor.submit(self._begin).result()
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    def write_part(self, data: bytes) -> None:
        """Write the next part, as soon as the previous one is written.

        On S3 each part but the last must have at least 5 MiB, and there must be at least one part.

        Raises:
            StorageError: The store refused the previous part or kept failing.
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
        """Publish the object, or remove the written data after an error.

        Raises:
            StorageError: The store refused the last part or the object, or kept failing.
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
        """Wait until the store has the parts passed to `write_part`, and raise their error."""
        current_part, self._current_part = self._current_part, None
        if current_part is not None:
            current_part.result()

    def _give_up(self, error: BaseException) -> None:
        """Abort the upload after the request in flight has ended."""
        with self._executor:
            try:
                self._executor.submit(self._abort).result()
            except PulsarOffloadError as failure:
                error.add_note(f"the written parts of {self._name} were not removed: {failure}")

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
        """Check that a missing upload was completed: then only the answer was lost."""
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
    """Run an action in a thread so that an interrupt of the caller waits for its end."""
    with ContextThreadPool(1) as executor:
        _start(executor)
        return executor.submit(action).result()


def _start(executor: ContextThreadPool) -> None:
    """Start the thread with an empty task, so that an interrupt here loses no other task."""
    executor.submit(int).result()
