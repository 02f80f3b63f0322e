"""One request at a time to Google Cloud Storage through gcsfs, or to Azure through adlfs.

Neither library checks what a listing is answered with. gcsfs takes any JSON object for a page, and
one without keys for the last; what else a proxy or a busy server sends, either stumbles over. So
gcsfs sends the requests for pages, and this module reads the answers; adlfs reads them itself, and
its errors are sorted here.
"""

from __future__ import annotations

import copy
import errno
import json
import os
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from fsspec.asyn import sync

from arrow_io.errors import StorageError
from arrow_io.storage.failures import (
    RANGE_NOT_SATISFIABLE,
    BrokenAnswerError,
    http_status,
    storage_errors,
)
from arrow_io.storage.object_store import ObjectContent, ObjectStore, WithoutLeftovers, protocols
from arrow_io.storage.store_uploads import ClosingUpload, ObjectAttributes, StoreUpload
from arrow_io.storage.time_limit import TimeLimit, bounded
from arrow_io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arrow_io.storage.attempts import Attempts
    from arrow_io.storage.listing_pages import ListingPages
    from arrow_io.storage.object_version import ObjectVersion
    from arrow_io.storage.time_limit import BodyTime

_PAGE_KEYS: Final = 1000
_LISTING_KIND: Final = "storage#objects"
"""What a page of a listing of Google's says that it is."""


class CloudObjectStore(WithoutLeftovers):
    """A bucket or container of a store that expires what is unfinished."""

    puts_new: ClassVar[bool] = True

    def get_object(
        self, name: str, limit_bytes: int, version: ObjectVersion | None = None
    ) -> ObjectContent:
        """The first `limit_bytes` bytes of an object, or all of it if it is shorter."""
        try:
            return super().get_object(name, limit_bytes, version)
        except storage_errors() as error:
            # Of an object without a byte no range can be asked for.
            if http_status(error) != RANGE_NOT_SATISFIABLE:
                raise
        return ObjectContent(b"", None)

    def put_new_object(self, name: str, data: bytes, attributes: ObjectAttributes) -> None:
        """Write a whole object unless there is one of its name: its last request is conditional."""
        upload = self._begin_file(name, attributes, "xb")
        try:
            upload.write_part(1, data)
            upload.complete()
        finally:
            upload.abort()

    def begin_upload(self, name: str, attributes: ObjectAttributes) -> StoreUpload:
        """Begin an object that is written in parts."""
        return self._begin_file(name, attributes, "wb")

    def _begin_file(self, name: str, attributes: ObjectAttributes, mode: str) -> ClosingUpload:
        options: dict[str, object] = {"metadata": dict(attributes.user_metadata)}
        if "gs" in protocols(self._file_system):
            options["content_type"] = attributes.content_type
        return ClosingUpload(self._file_system.open(self._path(name), mode, **options))


class AzureObjectStore(CloudObjectStore):
    """A container of Azure Blob Storage, or a prefix in it."""

    PROTOCOLS: ClassVar = frozenset({"abfs", "abfss", "az"})

    def _entries(self) -> list[Mapping[str, Any]]:
        from azure.core.exceptions import DecodeError  # noqa: PLC0415 - adlfs has imported it

        try:
            return super()._entries()
        except (AttributeError, TypeError, ValueError, DecodeError) as error:
            # The library reads an answer that is no listing as None, or as JSON, and goes on.
            message = f"the answer is not an XML listing: {type(error).__name__}: {error}"
            raise BrokenAnswerError(message) from None


class GcsObjectStore(CloudObjectStore):
    """A bucket of Google Cloud Storage, or a prefix in it.

    Args:
        file_system: A gcsfs file system.
        root: Bucket and prefix, without protocol.
    """

    PROTOCOLS: ClassVar = frozenset({"gcs", "gs"})

    def __init__(self, file_system: Any, root: str) -> None:  # noqa: ANN401 - gcsfs has no types
        super().__init__(file_system, root)
        self._limit = TimeLimit()
        self._pages_of_listing: ListingPages | None = None

    def within(self, seconds: float, least_bytes_per_s: float, attempts: Attempts) -> Self:
        """The same bucket, whose listings are given up when their time is over.

        Args:
            seconds: Time for a page, in seconds.
            least_bytes_per_s: So many bytes of a body add one second.
            attempts: Not looked at: gcsfs does not show what it sends.
        """
        del attempts
        limited = copy.copy(self)
        limited._limit = TimeLimit(seconds, least_bytes_per_s)  # noqa: SLF001
        return limited

    def in_pages(self, pages: ListingPages) -> ObjectStore:
        """The same bucket, for a listing whose pages `pages` fetches."""
        paged = copy.copy(self)
        paged._pages_of_listing = pages  # noqa: SLF001
        return paged

    def has_objects_from(self, key: str) -> bool:
        """Return whether the folder has an object whose key follows another in their order.

        Args:
            key: The other key, with the folder; whether that exists does not matter.
        """
        # A page of two has another key beside that one, unless the server makes shorter ones.
        pages = self._listing_pages(startOffset=key, maxResults=2)
        return any(item["name"] != key for page in pages for item in page["items"])

    def _entries(self) -> list[Mapping[str, Any]]:
        bucket, folder = self._bucket_and_folder()
        entries: list[Mapping[str, Any]] = []
        for page in self._listing_pages(delimiter="/", maxResults=_PAGE_KEYS):
            entries += [
                {"name": f"{bucket}/{prefix}", "type": "directory"} for prefix in page["prefixes"]
            ]
            entries += [
                {**item, "name": f"{bucket}/{item['name']}", "size": int(item["size"])}
                | {"type": "file"}
                for item in page["items"]
            ]
        if folder and not entries:
            key = folder.rstrip("/")
            page = self._fetch_page(bucket, prefix=key, maxResults=1)
            if any(item["name"] == key for item in page["items"]):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return entries

    def _bucket_and_folder(self) -> tuple[str, str]:
        bucket, _, folder = self._folder.partition("/")
        return bucket, folder

    def _listing_pages(self, **options: object) -> Iterator[Mapping[str, Any]]:
        bucket, folder = self._bucket_and_folder()
        token: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            page = self._page(bucket, {"prefix": folder, **options, **token})
            yield page
            following = page.get("nextPageToken")
            if following is None:
                return
            if following in seen:
                message = "the server lists the same page of objects over and over"
                raise StorageError(message)
            seen.add(following)
            token = {"pageToken": following}

    def _page(self, bucket: str, options: Mapping[str, object]) -> Mapping[str, Any]:
        def send(store: ObjectStore) -> Mapping[str, Any]:
            # This one, with the time of the page.
            lister: Any = store.lister
            answer: Mapping[str, Any] = lister._fetch_page(bucket, **options)  # noqa: SLF001
            return answer

        pages = self._pages_of_listing
        if pages is None:
            return send(self)
        page = pages.fetch(send)
        pages.count(len(page["items"]) + len(page["prefixes"]))
        return page

    def _fetch_page(self, bucket: str, **options: object) -> Mapping[str, Any]:
        """Return one page of a listing.

        Raises:
            BrokenAnswerError: The answer is cut, or something else.
        """

        async def send(_time: BodyTime) -> bytes:
            sent = {name: value for name, value in options.items() if value != ""}
            try:
                _, body = await self._file_system._call(  # noqa: SLF001
                    "GET", "b/{}/o", bucket, **sent
                )
            except ValueError as error:
                # Of gcsfs, for a request that the server calls invalid.
                raise OSError(errno.EINVAL, str(error)) from None
            return bytes(body)

        body = sync(self._file_system.loop, lambda: bounded(self._limit.begin(), send, "gcsfs"))
        return _checked_page(body)


def _checked_page(body: bytes) -> Mapping[str, Any]:
    """Return a page of a listing in Google's JSON, with `items` and `prefixes`, perhaps empty.

    Raises:
        BrokenAnswerError: The answer is cut, or something else.
    """
    try:
        page = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _broken(body, str(error)) from None
    if not isinstance(page, dict) or page.get("kind") != _LISTING_KIND:
        raise _broken(body, f"it does not say kind={_LISTING_KIND!r}")
    page = {"items": [], "prefixes": [], **page}
    if not (
        _is_list_of(page["items"], dict)
        and all(_is_item(item) for item in page["items"])
        and _is_list_of(page["prefixes"], str)
        and isinstance(page.get("nextPageToken", ""), str)
    ):
        raise _broken(body, "an object in it has no name or no size")
    return page


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _is_item(item: Mapping[str, object]) -> bool:
    size = str(item.get("size"))
    return isinstance(item.get("name"), str) and size.isascii() and size.isdecimal()


def _broken(body: bytes, reason: str) -> BrokenAnswerError:
    message = f"the answer of {counted(len(body), 'byte')} is not a JSON listing: {reason}"
    return BrokenAnswerError(message)
