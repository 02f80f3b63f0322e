"""One request at a time to S3 through s3fs: no retries of ours, the library's errors.

s3fs can do more than fsspec's interface says: body, user metadata and version come with one GET,
the bytes of a body that was cut are kept, an answer that is not the range asked for is known by its
`Content-Range`, and a page of a listing says how many keys it has.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import os
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

from fsspec.asyn import sync

from arrow_io.errors import StorageError
from arrow_io.storage.failures import (
    PRECONDITION_FAILED,
    http_status,
    s3_error_code,
    storage_errors,
)
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectHead,
    ObjectInfo,
    ObjectStore,
    RangeContent,
    UnfinishedUpload,
    lower_names,
    range_ignored,
)
from arrow_io.storage.object_version import ETag, etag_in, modified_in
from arrow_io.storage.s3_answers import under_way, watch
from arrow_io.storage.store_uploads import ObjectAttributes, S3Upload, StoreUpload
from arrow_io.storage.time_limit import BodyTime, TimeLimit, bounded
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from fsspec.asyn import AsyncFileSystem

    from arrow_io.storage.attempts import Attempts
    from arrow_io.storage.listing_pages import ListingPages
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.range_memory import RangeMemory

_Result = TypeVar("_Result")
_HTTP_CONFLICT = 409


class S3ObjectStore(ObjectStore):
    """A bucket, or a prefix in it.

    Args:
        file_system: An s3fs file system.
        root: Bucket and prefix, without protocol.
    """

    puts_new: ClassVar[bool] = True

    def __init__(self, file_system: AsyncFileSystem, root: str) -> None:
        super().__init__(file_system, root)
        self._attempts: Attempts | None = None
        self._limit = TimeLimit()
        self._pages_of_listing: ListingPages | None = None

    def connect(self) -> None:
        """Make s3fs build its client, which checks its options; sends nothing to the bucket."""
        watch(self._file_system.s3.meta.events)
        # s3fs builds a client for each further region when it first meets a bucket there.
        watch(self._file_system.session.get_component("event_emitter"))

    def within(self, seconds: float, least_bytes_per_s: float, attempts: Attempts) -> Self:
        """The same bucket, for requests that are given up when their time is over.

        What s3fs and botocore send again by themselves lies within that time.

        Args:
            seconds: Time for a request, in seconds.
            least_bytes_per_s: So many bytes of a body, received or to be sent, add one second.
            attempts: Takes what is known of each request that is sent.
        """
        limited = copy.copy(self)
        limited._attempts = attempts  # noqa: SLF001
        limited._limit = TimeLimit(seconds, least_bytes_per_s)  # noqa: SLF001
        return limited

    def in_pages(self, pages: ListingPages) -> S3ObjectStore:
        """The same bucket, for a listing whose pages `pages` fetches."""
        paged = copy.copy(self)
        paged._pages_of_listing = pages  # noqa: SLF001
        return paged

    def list_objects(self) -> list[ObjectInfo]:
        """List the objects directly in the folder, in the store's order.

        Raises:
            StorageError: A page has fewer keys than it says, or does not lead to the next.
        """
        keys, _ = self._listed()
        return keys

    def list_folders(self) -> list[str]:
        """Names of the folders directly in the folder, in the store's order.

        Raises:
            StorageError: A page has fewer keys than it says, or does not lead to the next.
        """
        _, folders = self._listed()
        return folders

    def _listed(self) -> tuple[list[ObjectInfo], list[str]]:
        address = self._bucket_and_key("")
        bucket, prefix = address["Bucket"], address["Key"]
        objects: list[ObjectInfo] = []
        folders: list[str] = []
        is_there = not prefix
        for page in self._pages(bucket, prefix):
            for entry in page.get("Contents", ()):
                is_there = True
                name = entry["Key"].removeprefix(prefix)
                # A key that ends in a slash stands for an empty folder.
                if entry["Key"].startswith(prefix) and name and not name.endswith("/"):
                    objects.append(_listed_object(name, entry))
            for entry in page.get("CommonPrefixes", ()):
                is_there = True
                folders.append(entry["Prefix"].removeprefix(prefix).rstrip("/"))
        if not is_there:
            self._check_no_object(bucket, prefix.rstrip("/"))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return objects, [name for name in folders if name and "/" not in name]

    def listed_with(self, name: str) -> list[ObjectInfo]:
        """What a listing says of one object, which is the first of all that begin with its name."""
        address = self._bucket_and_key(name)
        page = self._call(
            "list_objects_v2", Bucket=address["Bucket"], Prefix=address["Key"], MaxKeys=1
        )
        entries = (each for each in page.get("Contents", ()) if each["Key"] == address["Key"])
        return [_listed_object(name, entry) for entry in entries]

    def _pages(self, bucket: str, prefix: str) -> Iterator[Mapping[str, Any]]:
        marker: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            page, count = self._page(
                "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", **marker
            )
            if count < page.get("KeyCount", 0):
                announced = counted(page["KeyCount"], "key")
                message = f"a page of a listing has {count} of the {announced} that it counts"
                raise StorageError(message)
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token in seen:
                message = "the server lists objects in pages, and does not name the next one"
                raise StorageError(message)
            seen.add(token)
            marker = {"ContinuationToken": token}

    def _check_no_object(self, bucket: str, key: str) -> None:
        """Tell a location that is an object from one that is not there."""
        try:
            self._call("head_object", Bucket=bucket, Key=key)
        except (FileNotFoundError, PermissionError):
            return
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def head(self, name: str) -> ObjectHead:
        """What the store says of an object: one HEAD; s3fs's `info` might also list."""
        response = self._call("head_object", **self._bucket_and_key(name))
        return ObjectHead(
            response["ContentLength"],
            lower_names(response.get("Metadata", {})),
            etag_in(response),
            modified_in(response),
        )

    def get_object(
        self, name: str, limit_bytes: int, version: ObjectVersion | None = None
    ) -> ObjectContent:
        """The first `limit_bytes` bytes of an object and its user metadata, by one GET."""

        async def get(time: BodyTime) -> ObjectContent:
            response = await self._get(name, version)
            received: list[bytes] = []
            async with response["Body"] as body:
                await self._receive(body, limit_bytes, received, time)
            return _content(response, received)

        return self._wait_for(get)

    def get_range(
        self,
        name: str,
        start: int,
        stop: int,
        version: ObjectVersion | None = None,
        memory: RangeMemory | None = None,
    ) -> RangeContent:
        """The bytes `[start, stop)` of an object, or those that came before the body was cut.

        Raises:
            StorageError: The answer is another part of the object, or longer than asked for.
        """
        # Its parts lie in memory of Python's, which is used again as it is.
        del memory

        async def get(time: BodyTime) -> RangeContent:
            response = await self._get(name, version, Range=f"bytes={start}-{stop - 1}")
            received: list[bytes] = []
            try:
                async with response["Body"] as body:
                    if not _answers_range(response, start):
                        raise range_ignored(name, start, stop)
                    await self._receive(body, stop - start + 1, received, time)
            except storage_errors():
                # What came is right as far as it goes, so the next request goes on behind it.
                if not received:
                    raise
            return _content(response, received)

        content = self._wait_for(get)
        if len(content.data) > stop - start:
            raise range_ignored(name, start, stop)
        return content

    async def _get(
        self, name: str, version: ObjectVersion | None, **options: str
    ) -> Mapping[str, Any]:
        """The headers of an object, and its body, of which nothing is read yet."""
        if isinstance(version, ETag):
            options["IfMatch"] = f'"{version.text}"'
        response: Mapping[str, Any] = await self._file_system._call_s3(  # noqa: SLF001
            "get_object", **self._bucket_and_key(name), **options
        )
        return response

    async def _receive(
        self,
        body: Any,  # noqa: ANN401 - aiohttp is not a dependency of ours
        limit_bytes: int,
        received: list[bytes],
        time: BodyTime,
    ) -> None:
        """Read up to `limit_bytes` bytes of a body; what comes puts off the end of the time."""
        room = limit_bytes
        while room and (part := await body.read(room)):
            received.append(part)
            room -= len(part)
            time.received(len(part))

    def put_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object, in place of one that has its name: one PUT."""
        self._call("put_object", **self._bucket_and_key(name), Body=data, **_sent(attributes))

    def put_new_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object unless there is one of its name: one conditional PUT."""
        self._put_if(name, data, attributes, IfNoneMatch="*")

    def put_object_over(
        self, name: str, data: bytes, attributes: ObjectAttributes, version: ObjectVersion
    ) -> None:
        """Write a whole object in place of a version of it: one conditional PUT."""
        if not isinstance(version, ETag):
            super().put_object_over(name, data, attributes, version)
            return
        self._put_if(name, data, attributes, IfMatch=f'"{version.text}"')

    def _put_if(
        self, name: str, data: bytes, attributes: ObjectAttributes, **condition: str
    ) -> None:
        address = self._bucket_and_key(name)
        try:
            self._call("put_object", **address, Body=data, **_sent(attributes), **condition)
        except storage_errors() as error:
            if http_status(error) == PRECONDITION_FAILED:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            if http_status(error) == _HTTP_CONFLICT:
                # Another request for the name was under way: only a later one learns how it ended.
                raise ConnectionAbortedError from error
            raise

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin a multipart upload."""
        address = self._bucket_and_key(name)
        answer = self._call("create_multipart_upload", **address, **_sent(attributes))
        return S3Upload(self._call, address, answer["UploadId"])

    def delete_object(self, name: str) -> None:
        """Delete an object, if it is there."""
        try:
            self._call("delete_object", **self._bucket_and_key(name))
        except FileNotFoundError as error:
            # Some servers are not as forgiving as S3 itself.
            if s3_error_code(error) == "NoSuchBucket":
                raise

    def list_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """The multipart uploads, neither completed nor aborted, of names that begin so.

        Raises:
            StorageError: The server's pages do not go on from one to the next.
        """
        address = self._bucket_and_key("")
        folder, bucket = address["Key"], address["Bucket"]
        found: list[UnfinishedUpload] = []
        pages = _UploadPages()
        while True:
            page, _ = self._page(
                "list_multipart_uploads", Bucket=bucket, Prefix=folder + prefix, **pages.marker
            )
            for upload in page.get("Uploads", ()):
                name = upload["Key"].removeprefix(folder)
                if "/" not in name and name.startswith(prefix):
                    found.append(
                        UnfinishedUpload(name, upload["UploadId"], upload.get("Initiated"))
                    )
            if not page.get("IsTruncated"):
                return found
            pages.turn(page)

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Abort a multipart upload, if it is there."""
        S3Upload(self._call, self._bucket_and_key(name), upload_id).abort()

    def _page(self, method: str, **parameters: object) -> tuple[Mapping[str, Any], int]:
        """A page of a listing, and how many keys it has."""

        def send(store: ObjectStore) -> Mapping[str, Any]:
            # This one, with the time of the page.
            lister: Any = store.lister
            answer: Mapping[str, Any] = lister._call(method, **parameters)  # noqa: SLF001
            return answer

        pages = self._pages_of_listing
        page = send(self) if pages is None else pages.fetch(send)
        count = sum(len(page.get(keys, ())) for keys in ("Contents", "CommonPrefixes", "Uploads"))
        if pages is not None:
            pages.count(count)
        return page, count

    def _call(self, method: str, **parameters: object) -> Mapping[str, Any]:
        async def call(_time: BodyTime) -> Mapping[str, Any]:
            answer: Mapping[str, Any] = await self._file_system._call_s3(  # noqa: SLF001
                method, **parameters
            )
            return answer

        body = parameters.get("Body")
        return self._wait_for(call, len(body) if isinstance(body, bytes) else 0)

    def _wait_for(
        self,
        send: Callable[[BodyTime], Awaitable[_Result]],
        sent_bytes: int = 0,
    ) -> _Result:
        """Send a request in the file system's event loop, and give it up when its time is over."""

        async def limited() -> _Result:
            # All readers in a process share the client, and a wait for the others is not the
            # store's time.
            async with _connections_of(self._file_system):
                with under_way(self._attempts):
                    return await bounded(self._limit.begin(sent_bytes), send, "s3fs and botocore")

        result: _Result = sync(self._file_system.loop, limited)
        return result

    def _bucket_and_key(self, name: str) -> dict[str, str]:
        # Not the whole path: from a `?versionId=` in a name on, s3fs would cut it off.
        bucket, folder, _ = self._file_system.split_path(self._folder)
        return {"Bucket": bucket, "Key": folder + name}


_connections: WeakKeyDictionary[AsyncFileSystem, asyncio.Semaphore] = WeakKeyDictionary()


def _connections_of(file_system: AsyncFileSystem) -> asyncio.Semaphore:
    """As many as the client's pool has; to be asked for in the file system's event loop."""
    found = _connections.get(file_system)
    if found is None:
        pool = file_system.s3.meta.config.max_pool_connections
        found = _connections[file_system] = asyncio.Semaphore(pool)
    return found


class _UploadPages:
    """Where the next page of a listing of multipart uploads begins: always behind the last one."""

    def __init__(self) -> None:
        self.marker: dict[str, str] = {}
        self._seen_ids: set[str] = set()

    def turn(self, page: Mapping[str, Any]) -> None:
        """Go on to the next page.

        Raises:
            StorageError: It does not begin behind this one: keys ascend in the order of their
                UTF-8 bytes, and no upload of one key comes twice.
        """
        key, upload_id = page.get("NextKeyMarker"), page.get("NextUploadIdMarker") or ""
        before = self.marker.get("KeyMarker", "")
        if not key:
            message = "the server lists multipart uploads in pages, and does not name the next one"
            raise StorageError(message)
        if key != before:
            self._seen_ids.clear()
        if key.encode() < before.encode() or upload_id in self._seen_ids:
            message = "the server lists the same multipart uploads over and over"
            raise StorageError(message)
        self._seen_ids.add(upload_id)
        self.marker = {"KeyMarker": key} | ({"UploadIdMarker": upload_id} if upload_id else {})


def _sent(attributes: ObjectAttributes) -> dict[str, object]:
    return {
        "Metadata": dict(attributes.user_metadata),
        "ContentType": attributes.content_type,
    }


def _listed_object(name: str, entry: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(name, entry["Size"], modified_in(entry), etag_in(entry))


def _content(response: Mapping[str, Any], received: list[bytes]) -> ObjectContent:
    metadata = lower_names(response.get("Metadata", {}))
    return ObjectContent(b"".join(received), metadata, etag_in(response))


def _answers_range(response: Mapping[str, Any], start: int) -> bool:
    content_range = response.get("ContentRange")
    # Without Content-Range the body begins at the object's first byte.
    return start == 0 if content_range is None else content_range.startswith(f"bytes {start}-")
