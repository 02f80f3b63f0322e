"""S3 through s3fs, without retries of this project, raising the library's errors.

s3fs can do more than fsspec's interface: one GET returns body, user metadata and version; the bytes
of an incomplete body are kept; `Content-Range` reveals a wrong range; and a listing page reports
its number of keys.
"""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from fsspec.asyn import sync

from arrow_io.core.wording import counted
from arrow_io.errors import StorageError
from arrow_io.storage.failures import (
    OtherBytesError,
    http_status,
    s3_error_code,
    storage_errors,
)
from arrow_io.storage.listing_pages import ListingPage
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    ObjectStore,
    RangeContent,
    UnfinishedUpload,
    lower_names,
    names_in_folder,
)
from arrow_io.storage.object_version import ETag, etag_in, modified_in
from arrow_io.storage.request import Operation
from arrow_io.storage.s3_answers import note_answers, watch
from arrow_io.storage.store_uploads import S3Upload, StoreUpload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from fsspec.asyn import AsyncFileSystem

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import ObjectAttributes, Request

_HTTP_CONFLICT = 409


class S3ObjectStore(ObjectStore):
    """A bucket, or a prefix in it.

    Args:
        file_system: An s3fs file system.
        root: Bucket and prefix, without protocol.
    """

    can_put_new: ClassVar[bool] = True

    def connect(self) -> None:
        """Make s3fs build its client, which checks its options; sends nothing to the bucket."""
        watch(self._file_system.s3.meta.events)
        # s3fs builds another client for each region in which it meets a bucket.
        watch(self._file_system.session.get_component("event_emitter"))

    def list_folder(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects and folders directly in a folder, in the store's order: one page.

        Raises:
            StorageError: The page has fewer keys than it reports, or does not name the next page.
        """
        bucket, folder = self._folder_address(request).values()
        page, count, marker = self._page(request, attempt, bucket, folder, Delimiter="/")
        if folder and marker is None and not request.listed_keys + count:
            self._check_no_object(attempt, bucket, folder.rstrip("/"))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        prefixes = (entry["Prefix"] for entry in page.get("CommonPrefixes", ()))
        folders = names_in_folder(folder.removesuffix("/"), prefixes)
        return ListingPage(self._objects(page, folder), folders, count, marker)

    def list_tree(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects below a folder, in the store's order: one page.

        Raises:
            StorageError: The page has fewer keys than it reports, or does not name the next page.
        """
        bucket, folder = self._folder_address(request).values()
        page, count, marker = self._page(request, attempt, bucket, folder)
        return ListingPage(self._objects(page, folder), key_count=count, next_marker=marker)

    def _folder_address(self, request: Request) -> dict[str, str]:
        """Return the bucket and the prefix of all keys in a folder, which ends in a slash."""
        return self._bucket_and_key(f"{request.name}/" if request.name else "")

    def _objects(self, page: Mapping[str, Any], folder: str) -> list[ObjectInfo]:
        """Return the objects in a folder of a page, with names relative to the location."""
        _, root = self._bucket_and_key("").values()
        return [
            _listed_object(entry["Key"].removeprefix(root), entry)
            for entry in page.get("Contents", ())
            # A key that ends in a slash stands for an empty folder.
            if entry["Key"].startswith(folder) and not entry["Key"].endswith("/")
        ]

    def list_object(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List one object: it is the first of all keys that start with its name."""
        bucket, key = self._bucket_and_key(request.name).values()
        page = self._call("list_objects_v2", attempt, Bucket=bucket, Prefix=key, MaxKeys=1)
        entries = (entry for entry in page.get("Contents", ()) if entry["Key"] == key)
        return ListingPage([_listed_object(request.name, entry) for entry in entries])

    def _page(
        self, request: Request, attempt: Attempt, bucket: str, prefix: str, **options: str
    ) -> tuple[Mapping[str, Any], int, tuple[str] | None]:
        """Return a page of objects and folders, its number of keys, and the next page's marker."""
        if request.marker is not None:
            options["ContinuationToken"] = request.marker[0]
        page = self._call("list_objects_v2", attempt, Bucket=bucket, Prefix=prefix, **options)
        count = len(page.get("Contents", ())) + len(page.get("CommonPrefixes", ()))
        if count < page.get("KeyCount", 0):
            announced = counted(page["KeyCount"], "key")
            message = f"a page of a listing has only {count} of the {announced} that it reports"
            raise StorageError(message)
        if page.get("IsTruncated"):
            token = page.get("NextContinuationToken")
            if not token:
                message = "the server lists objects in pages, but does not name the next page"
                raise StorageError(message)
            return page, count, (token,)
        return page, count, None

    def _check_no_object(self, attempt: Attempt, bucket: str, key: str) -> None:
        """Raise if the location is an object, not a missing folder."""
        try:
            self._call("head_object", attempt, Bucket=bucket, Key=key)
        except (FileNotFoundError, PermissionError):
            return
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def head(self, request: Request, attempt: Attempt) -> ObjectHead:
        """Return what the store reports about an object: one HEAD."""
        # s3fs's `info` might also list.
        response = self._call("head_object", attempt, **self._bucket_and_key(request.name))
        return ObjectHead(
            response["ContentLength"],
            lower_names(response.get("Metadata", {})),
            etag_in(response),
            modified_in(response),
        )

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object and its user metadata, by one GET."""
        content: ObjectContent = sync(self._file_system.loop, self._get, request, attempt)
        return content

    def get_range(self, request: Request, attempt: Attempt) -> RangeContent:
        """Return the bytes `[start, stop)` of an object, or those before the connection ended.

        Raises:
            OtherBytesError: The answer is another part of the object.
        """
        # This ignores `request.memory`: aiohttp's parts are in Python's memory already.
        content: RangeContent = sync(self._file_system.loop, self._get, request, attempt)
        return content

    async def _get(self, request: Request, attempt: Attempt) -> ObjectContent:
        parameters = self._bucket_and_key(request.name)
        if isinstance(request.version, ETag):
            parameters["IfMatch"] = f'"{request.version.text}"'
        is_range = request.operation is Operation.GET_RANGE
        if is_range:
            parameters["Range"] = f"bytes={request.start}-{request.stop - 1}"
        parts: list[bytes] = []
        async with self._limit_time(attempt):
            response = await self._file_system._call_s3("get_object", **parameters)  # noqa: SLF001
            try:
                async with response["Body"] as body:
                    if is_range:
                        _check_range(response, request)
                    # Read one byte more of a range, to detect that the answer is too long.
                    limit_bytes = request.stop - request.start + is_range
                    await _receive(body, limit_bytes, parts, attempt)
            except storage_errors():
                # The received bytes of a range are valid: the next request continues after them.
                if not is_range or not parts:
                    raise
        return _content(response, parts)

    def put_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object, replacing one with the same name: one PUT."""
        self._put(request, attempt)

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object unless the name is taken: one conditional PUT."""
        self._put(request, attempt, IfNoneMatch="*")

    def replace_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object in place of a version of it: one conditional PUT."""
        if isinstance(request.version, ETag):
            self._put(request, attempt, IfMatch=f'"{request.version.text}"')
        else:
            super().replace_object(request, attempt)

    def _put(self, request: Request, attempt: Attempt, **condition: str) -> None:
        parameters = self._bucket_and_key(request.name) | condition
        attributes = _put_attributes(request.attributes)
        try:
            self._call("put_object", attempt, **parameters, Body=request.data, **attributes)
        except storage_errors() as error:
            if condition and http_status(error) == _HTTP_CONFLICT:
                # Another request is writing the name; only a repeated request shows how it ended.
                raise ConnectionAbortedError from error
            raise

    def begin_upload(self, request: Request, attempt: Attempt) -> StoreUpload:
        """Start a multipart upload."""
        address = self._bucket_and_key(request.name)
        attributes = _put_attributes(request.attributes)
        answer = self._call("create_multipart_upload", attempt, **address, **attributes)
        return S3Upload(self._call, address, answer["UploadId"])

    def delete_object(self, request: Request, attempt: Attempt) -> None:
        """Delete an object if it exists."""
        try:
            self._call("delete_object", attempt, **self._bucket_and_key(request.name))
        except FileNotFoundError as error:
            # Some servers, unlike S3, raise if the object does not exist.
            if s3_error_code(error) == "NoSuchBucket":
                raise

    def list_uploads(self, request: Request, attempt: Attempt) -> ListingPage[UnfinishedUpload]:
        """List the incomplete multipart uploads by the prefix in the request: one page.

        Raises:
            StorageError: The page does not name the next page.
        """
        bucket, folder = self._bucket_and_key("").values()
        options = {"Bucket": bucket, "Prefix": folder + request.name}
        if request.marker is not None:
            names = ("KeyMarker", "UploadIdMarker")
            options |= {k: v for k, v in zip(names, request.marker, strict=True) if v}
        page = self._call("list_multipart_uploads", attempt, **options)
        entries = page.get("Uploads", ())
        uploads = []
        for entry in entries:
            name = entry["Key"].removeprefix(folder)
            if "/" not in name and name.startswith(request.name):
                uploads.append(UnfinishedUpload(name, entry["UploadId"], entry.get("Initiated")))
        return ListingPage(
            uploads, key_count=len(entries), next_marker=_next_uploads(page, request.marker)
        )

    def abort_upload(self, request: Request, attempt: Attempt) -> None:
        """Abort a multipart upload if it exists."""
        upload = S3Upload(self._call, self._bucket_and_key(request.name), request.upload_id)
        upload.discard(request, attempt)

    def _call(self, method: str, attempt: Attempt, **parameters: object) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = sync(
            self._file_system.loop, self._send, method, attempt, parameters
        )
        return answer

    async def _send(self, method: str, attempt: Attempt, parameters: Mapping[str, object]) -> Any:  # noqa: ANN401 - botocore carries no types
        async with self._limit_time(attempt):
            return await self._file_system._call_s3(method, **parameters)  # noqa: SLF001

    @asynccontextmanager
    async def _limit_time(self, attempt: Attempt) -> AsyncIterator[None]:
        """Record a request's answers, and cancel it when its time is over.

        The time includes the retries of s3fs and botocore.
        """
        # All readers of a process share the client: waiting for the others is not the store's time.
        async with _connection_slots(self._file_system):
            with note_answers(attempt.attempts):
                async with attempt.time_limit("s3fs and botocore"):
                    yield

    def _bucket_and_key(self, name: str) -> dict[str, str]:
        # Split only the folder: s3fs would cut a name at `?versionId=`.
        bucket, folder, _ = self._file_system.split_path(self._folder)
        return {"Bucket": bucket, "Key": folder + name}


_connections: WeakKeyDictionary[AsyncFileSystem, asyncio.Semaphore] = WeakKeyDictionary()


def _connection_slots(file_system: AsyncFileSystem) -> asyncio.Semaphore:
    """Return a semaphore of the size of the client's pool; call it in the event loop."""
    slots = _connections.get(file_system)
    if slots is None:
        pool = file_system.s3.meta.config.max_pool_connections
        slots = _connections[file_system] = asyncio.Semaphore(pool)
    return slots


def _next_uploads(
    page: Mapping[str, Any], marker: tuple[str, ...] | None
) -> tuple[str, str] | None:
    """Return the marker of the page of multipart uploads after `page`; None after the last.

    `marker` is that of `page`; the next one must follow it in the order of UTF-8 bytes.
    """
    if not page.get("IsTruncated"):
        return None
    key, upload_id = page.get("NextKeyMarker"), page.get("NextUploadIdMarker") or ""
    if not key:
        message = "the server lists multipart uploads in pages, but does not name the next page"
        raise StorageError(message)
    if marker is not None and key.encode() < marker[0].encode():
        message = "the server lists the same multipart uploads over and over"
        raise StorageError(message)
    return key, upload_id


def _put_attributes(attributes: ObjectAttributes) -> dict[str, object]:
    return {
        "Metadata": dict(attributes.user_metadata),
        "ContentType": attributes.content_type,
    }


def _listed_object(name: str, entry: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(name, entry["Size"], modified_in(entry), etag_in(entry))


def _content(response: Mapping[str, Any], parts: list[bytes]) -> ObjectContent:
    metadata = lower_names(response.get("Metadata", {}))
    return ObjectContent(b"".join(parts), metadata, etag_in(response))


async def _receive(
    body: Any,  # noqa: ANN401 - aiohttp is not a dependency of ours
    limit_bytes: int,
    parts: list[bytes],
    attempt: Attempt,
) -> None:
    """Read up to `limit_bytes` bytes of a body; received bytes extend the attempt's time."""
    room = limit_bytes
    while room and (part := await body.read(room)):
        parts.append(part)
        room -= len(part)
        attempt.extend(len(part))


def _check_range(response: Mapping[str, Any], request: Request) -> None:
    content_range = response.get("ContentRange")
    # Without Content-Range the body starts at the object's first byte.
    if content_range is None:
        is_right = request.start == 0
    else:
        is_right = content_range.startswith(f"bytes {request.start}-")
    if not is_right:
        raise OtherBytesError
