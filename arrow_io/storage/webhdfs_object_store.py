"""HDFS through WebHDFS, the HTTP interface of NameNodes, DataNodes, HttpFS and Knox.

fsspec's WebHDFS makes the session, with its user, token or Kerberos ticket. This module sends the
requests: fsspec sends them without a time limit, reads megabytes after the end of a range, and does
not notice that a rename failed. NameNodes redirect requests for bytes to a DataNode, which gets
credentials only if it has the NameNode's address.

https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import quote, urlsplit

from arrow_io.core.wording import counted
from arrow_io.storage.failures import (
    RANGE_NOT_SATISFIABLE,
    BrokenAnswerError,
    OtherBytesError,
    storage_errors,
)
from arrow_io.storage.listing_pages import ListingPage
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    RangeContent,
)
from arrow_io.storage.object_version import WriteTime
from arrow_io.storage.range_memory import RangeMemory
from arrow_io.storage.received_range import ReceivedRange
from arrow_io.storage.server_object_stores import ConcurrentObjectStore
from arrow_io.storage.store_uploads import temporary_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fsspec.spec import AbstractFileSystem
    from requests import PreparedRequest, Response

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

_MAX_JSON_BYTES: Final = 64 << 20
"""Maximum length of an answer in JSON; NameNodes list up to 1,000 names in one, by default."""
_MAX_ERROR_BYTES: Final = 64 << 10
"""Maximum length that is read of an answer that reports an error."""
_CHUNK_BYTES: Final = 256 << 10
_LEAST_TIMEOUT_S: Final = 0.001
_BYTES_TYPE: Final = "application/octet-stream"
_LENGTH_HEADERS: Final = frozenset({"content-length", "transfer-encoding"})
_HTTP_REDIRECTION: Final = 300
_OUT_OF_RANGE: Final = "out of the range"
"""Part of a NameNode's message for a range that starts at or after the end of the file."""
_ERRORS: Final[Mapping[str, tuple[type[OSError], int]]] = {
    "AccessControlException": (PermissionError, errno.EACCES),
    "SecurityException": (PermissionError, errno.EACCES),
    "FileNotFoundException": (FileNotFoundError, errno.ENOENT),
    "FileAlreadyExistsException": (FileExistsError, errno.EEXIST),
    "ParentNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "PathIsNotEmptyDirectoryException": (OSError, errno.ENOTEMPTY),
    # While another NameNode takes over.
    "StandbyException": (ConnectionError, errno.EAGAIN),
    "RetriableException": (ConnectionError, errno.EAGAIN),
}
"""Errors by the name of the server's exception."""


class WebHdfsError(OSError):
    """An answer that reports another error.

    Attributes:
        status: Its HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class WebHdfsObjectStore(ConcurrentObjectStore):
    """A folder of HDFS.

    Args:
        file_system: fsspec's WebHDFS.
        root: Path of the folder.
    """

    PROTOCOLS: ClassVar = frozenset({"webhdfs"})
    can_put_new: ClassVar[bool] = True

    def __init__(self, file_system: AbstractFileSystem, root: str) -> None:
        super().__init__(file_system, root or "/")
        self._session: Any = self._file_system.session

    def keep_connections(self, count: int) -> None:
        """Keep up to `count` connections to each server open; others are closed after use."""
        from requests.adapters import HTTPAdapter  # noqa: PLC0415 - fsspec has imported it

        if self._session.get_adapter("https://")._pool_maxsize < count:  # noqa: SLF001 - its only name
            for scheme in ("http://", "https://"):
                self._session.mount(scheme, HTTPAdapter(pool_maxsize=count))

    def list_folder(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects and folders directly in a folder, in the server's order: one page."""
        path = self._folder_path(request.name)
        start = {} if request.marker is None else {"startAfter": request.marker[0]}
        answer = self._json("LISTSTATUS_BATCH", path, attempt, **start)
        with _broken_json("listing"):
            listing = answer["DirectoryListing"]
            entries = listing["partialListing"]["FileStatuses"]["FileStatus"]
            statuses = [_FileStatus.from_json(entry) for entry in entries]
            has_more = int(listing["remainingEntries"]) > 0
            marker = (statuses[-1].name,) if has_more else None
        if any(not status.name for status in statuses):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        prefix = f"{request.name}/" if request.name else ""
        infos = [status.info(f"{prefix}{status.name}") for status in statuses if status.is_file]
        folders = [status.name for status in statuses if status.is_folder]
        return ListingPage(infos, folders, len(statuses), marker)

    def list_object(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """Return a listing that contains an object if it exists."""
        with suppress(FileNotFoundError):
            status = self._status(request.name, attempt)
            return ListingPage([status.info(request.name)] if status.is_file else [])
        return ListingPage([])

    def head(self, request: Request, attempt: Attempt) -> ObjectHead:
        """Return length and version of an object.

        Raises:
            FileNotFoundError: There is no such object, or it is a folder.
        """
        status = self._status(request.name, attempt)
        if not status.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        info = status.info(request.name)
        return ObjectHead(info.size_bytes, None, info.version, info.modified)

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object, or all of it if it is shorter."""
        parts: list[bytes] = []
        with self._open(request, attempt) as answer:
            _receive(answer, request.stop, parts.append, attempt)
        return ObjectContent(b"".join(parts)[: request.stop], None)

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or those before the connection ended."""
        size_bytes = request.stop - request.start
        received = ReceivedRange(size_bytes, request.memory or RangeMemory())
        with self._open(request, attempt) as answer:
            try:
                _receive(answer, size_bytes + 1, received.add, attempt)
            except storage_errors():
                # The received bytes are valid; the next request continues after them.
                if not received.received_bytes:
                    raise
        if received.is_too_long:
            raise OtherBytesError
        return RangeContent(received.data(), None)

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a temporary file and rename it, which fails if the name is taken."""
        upload = self.begin_upload(request, attempt)
        try:
            upload.write_part(request, attempt)
            upload.rename(attempt, "NONE")
        finally:
            upload.discard(request, attempt)

    def begin_upload(self, request: Request, attempt: Attempt) -> WebHdfsUpload:
        """Start an object that is written in parts; its first part creates the file."""
        return WebHdfsUpload(self, self._path(request.name))

    def delete_object(self, request: Request, attempt: Attempt) -> None:
        """Delete an object if it exists."""
        self.delete(self._path(request.name), attempt)

    def delete_folder(self, request: Request, attempt: Attempt) -> None:
        """Delete a folder if it exists and is empty."""
        try:
            if self._status(request.name, attempt).is_folder:
                self.delete(self._path(request.name), attempt)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY}:
                raise

    def abort_upload(self, request: Request, attempt: Attempt) -> None:
        """Delete the temporary file of an incomplete upload if it exists."""
        self.delete(temporary_path(self._path(request.name), request.upload_id), attempt)

    def write(self, method: str, operation: str, path: str, data: bytes, attempt: Attempt) -> None:
        """Create a file, or append to one."""
        with self._send(method, operation, path, attempt, data=data):
            pass

    def rename(self, path: str, new_path: str, option: str, attempt: Attempt) -> None:
        """Rename a file; the option is `OVERWRITE` or `NONE`.

        Raises:
            FileExistsError: There is a file with the new path, and the option is `NONE`, or the
                server does not support the option.
        """
        with self._send(
            "PUT", "RENAME", path, attempt, destination=new_path, renameoptions=option
        ) as answer:
            body = _body(answer, _MAX_ERROR_BYTES, attempt)
        # NameNodes have no body for a rename with options; HttpFS ignores the options.
        if body and not _flag(body):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def delete(self, path: str, attempt: Attempt) -> None:
        """Delete a file or an empty folder if it exists."""
        with self._send("DELETE", "DELETE", path, attempt, recursive="false") as answer:
            _flag(_body(answer, _MAX_ERROR_BYTES, attempt))

    def _status(self, name: str, attempt: Attempt) -> _FileStatus:
        answer = self._json("GETFILESTATUS", self._path(name), attempt)
        with _broken_json("file status"):
            return _FileStatus.from_json(answer["FileStatus"])

    @contextmanager
    def _open(self, request: Request, attempt: Attempt) -> Iterator[Response]:
        """Request the bytes `[start, stop)` of an object."""
        path, length = self._path(request.name), request.stop - request.start
        with self._send(
            "GET", "OPEN", path, attempt, offset=request.start, length=length
        ) as answer:
            if answer.headers.get("Content-Type", "").partition(";")[0] != _BYTES_TYPE:
                message = f"the answer is not of type {_BYTES_TYPE}, so it is not WebHDFS's"
                raise BrokenAnswerError(message)
            if not _LENGTH_HEADERS.intersection(map(str.lower, answer.headers)):
                # Nothing would show that the body is incomplete.
                message = "the answer does not say how long it is"
                raise BrokenAnswerError(message)
            yield answer

    def _json(self, operation: str, path: str, attempt: Attempt, **parameters: Any) -> Any:  # noqa: ANN401 - the callers check it
        with self._send("GET", operation, path, attempt, **parameters) as answer:
            body = _body(answer, _MAX_JSON_BYTES, attempt)
        with _broken_json(f"answer to {operation}"):
            return json.loads(body)

    @contextmanager
    def _send(
        self,
        method: str,
        operation: str,
        path: str,
        attempt: Attempt,
        *,
        data: bytes | None = None,
        **parameters: str | int,
    ) -> Iterator[Response]:
        """Send a request, to a DataNode if the server redirects it.

        Args:
            method: HTTP method.
            operation: Parameter `op`.
            path: Path of the file or folder.
            attempt: Limits the time.
            data: Bytes to write, which only a DataNode accepts; None to write nothing.
            parameters: Further parameters of the query.

        Yields:
            The answer, whose body is not received yet.

        Raises:
            OSError: The server reported an error, or did not answer.
        """
        file_system = self._file_system
        url = file_system._apply_proxy(  # noqa: SLF001 - fsspec's own methods call it
            file_system.url + quote(path, safe="/", errors="surrogatepass")
        )
        query = {**parameters, **file_system.pars, "op": operation}
        with _translate_errors():
            answer = self._request(method, url, attempt, params=query)
            if answer.is_redirect:
                answer.close()
                target = file_system._apply_proxy(answer.headers["Location"])  # noqa: SLF001
                auth = None if _origin(target) == _origin(url) else _without_credentials
                answer = self._request(method, target, attempt, data=data, auth=auth)
            elif data is not None and answer.status_code < _HTTP_REDIRECTION:
                answer.close()
                message = "the server did not name a DataNode to write to, so it is not WebHDFS"
                raise BrokenAnswerError(message)
            with answer:
                if answer.status_code >= _HTTP_REDIRECTION:
                    raise _error(answer, attempt)
                yield answer

    def _request(self, method: str, url: str, attempt: Attempt, **options: object) -> Response:
        answer: Response = self._session.request(
            method,
            url,
            headers={"Accept-Encoding": "identity", "Content-Type": _BYTES_TYPE},
            allow_redirects=False,
            stream=True,
            timeout=max(_LEAST_TIMEOUT_S, attempt.remaining_s()),
            **options,
        )
        attempt.attempts.last_status = answer.status_code
        return answer


class WebHdfsUpload:
    """A temporary file that is renamed when it is complete.

    Args:
        store: Sends the requests.
        path: Path of the complete object.
    """

    is_repeatable: ClassVar[bool] = False

    def __init__(self, store: WebHdfsObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._temporary_path = temporary_path(path, secrets.token_hex(8))
        self._is_created = False

    def write_part(self, request: Request, attempt: Attempt) -> None:
        """Create the file with the first part, or append another one."""
        method, operation = ("POST", "APPEND") if self._is_created else ("PUT", "CREATE")
        self._is_created = True
        self._store.write(method, operation, self._temporary_path, request.data, attempt)

    def complete(self, request: Request, attempt: Attempt) -> None:
        """Rename the file, replacing one with the object's name."""
        if not self._is_created:
            self.write_part(request, attempt)
        self.rename(attempt, "OVERWRITE")

    def rename(self, attempt: Attempt, option: str) -> None:
        """Rename the file with an option of `WebHdfsObjectStore.rename`."""
        self._store.rename(self._temporary_path, self._path, option, attempt)
        self._is_created = False

    def discard(self, request: Request, attempt: Attempt) -> None:
        """Delete the file, unless it was renamed."""
        if self._is_created:
            self._store.delete(self._temporary_path, attempt)
            self._is_created = False


class _FileStatus(NamedTuple):
    """What a server reports about a file or folder."""

    name: str
    """Name in the listed folder; empty for the file or folder itself."""
    kind: str
    size_bytes: int
    modified: datetime

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> _FileStatus:
        """Check and convert a `FileStatus`.

        Raises:
            ValueError: A field has a wrong value; or see `_broken_json`.
        """
        name, kind, size_bytes = entry["pathSuffix"], entry["type"], entry["length"]
        if not (isinstance(name, str) and isinstance(kind, str) and type(size_bytes) is int):
            message = "a file status with a field of another type"
            raise ValueError(message)
        if size_bytes < 0 or "/" in name:
            message = "a file status with an impossible name or length"
            raise ValueError(message)
        modified = datetime.fromtimestamp(entry["modificationTime"] / 1000, tz=UTC)
        return cls(name, kind, size_bytes, modified)

    @property
    def is_file(self) -> bool:
        return self.kind == "FILE"

    @property
    def is_folder(self) -> bool:
        return self.kind == "DIRECTORY"

    def info(self, name: str) -> ObjectInfo:
        """Return what a listing says about a file with this name in the location."""
        version = WriteTime(self.size_bytes, self.modified)
        return ObjectInfo(name, self.size_bytes, self.modified, version)


@contextmanager
def _broken_json(what: str) -> Iterator[None]:
    """Raise `BrokenAnswerError` if the code of the context meets JSON that it does not expect."""
    try:
        yield
    except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        message = f"the answer is no {what} in JSON: {type(error).__name__}: {error}"
        raise BrokenAnswerError(message) from None


def _flag(body: bytes) -> bool:
    """Return the flag that is the answer to a rename or deletion."""
    with _broken_json("flag"):
        return bool(json.loads(body)["boolean"])


def _body(answer: Response, max_bytes: int, attempt: Attempt) -> bytes:
    parts: list[bytes] = []
    _receive(answer, max_bytes + 1, parts.append, attempt)
    body = b"".join(parts)
    if len(body) > max_bytes:
        message = f"the answer is longer than {counted(max_bytes, 'byte')}"
        raise BrokenAnswerError(message)
    return body


def _receive(
    answer: Response, limit_bytes: int, add: Callable[[bytes], None], attempt: Attempt
) -> None:
    """Read about `limit_bytes` bytes of a body; received bytes extend the attempt's time."""
    room = limit_bytes
    for part in answer.iter_content(min(_CHUNK_BYTES, limit_bytes)):
        add(part)
        attempt.extend(len(part))
        room -= len(part)
        if room <= 0 or attempt.is_over:
            return


def _error(answer: Response, attempt: Attempt) -> OSError:
    """Return the error that an answer reports."""
    status = answer.status_code
    try:
        report = json.loads(_body(answer, _MAX_ERROR_BYTES, attempt))["RemoteException"]
        name, message = str(report["exception"]), str(report["message"])
    except (LookupError, RecursionError, TypeError, ValueError, BrokenAnswerError):
        return WebHdfsError(f"the answer has the status {status} {answer.reason}", status)
    text = f"{name}: {message.partition(chr(10))[0]}"
    if name in _ERRORS:
        kind, number = _ERRORS[name]
        return kind(number, text)
    if _OUT_OF_RANGE in message or name == "EOFException":
        return WebHdfsError(text, RANGE_NOT_SATISFIABLE)
    return WebHdfsError(text, status)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate the errors of requests, whose texts contain URLs with tokens."""
    from requests import exceptions  # noqa: PLC0415 - fsspec's WebHDFS has imported it

    try:
        yield
    except exceptions.Timeout as error:
        raise TimeoutError(_reason(error)) from None
    except exceptions.SSLError as error:
        raise OSError(errno.EPROTO, _reason(error)) from None
    except (
        exceptions.ConnectionError,
        exceptions.ChunkedEncodingError,
        exceptions.ContentDecodingError,
    ) as error:
        raise ConnectionError(_reason(error)) from None
    except exceptions.RequestException as error:
        raise OSError(errno.EINVAL, type(error).__name__) from None


def _reason(error: Exception) -> str:
    """Return the text of an error of requests without the URL."""
    cause = error.args[0] if error.args else error
    # The text of urllib3's MaxRetryError has the URL, that of its reason does not.
    return str(getattr(cause, "reason", None) or cause)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        message = "the server redirected the request to an impossible URL"
        raise BrokenAnswerError(message) from None
    return split.scheme, split.hostname, port


def _without_credentials(request: PreparedRequest) -> PreparedRequest:
    """Send a request without the credentials of the session."""
    return request
