"""Google Cloud Storage through gcsfs and Azure through adlfs, one attempt per call.

Neither library checks the answer to a listing. gcsfs takes any JSON object for a page, and a page
without keys for the last one, so it only sends the requests here, and this module parses the
answers. adlfs parses its answers, and this module classifies its errors.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from fsspec.asyn import sync

from arrow_io.core.wording import counted
from arrow_io.storage.failures import (
    RANGE_NOT_SATISFIABLE,
    BrokenAnswerError,
    http_status,
    storage_errors,
)
from arrow_io.storage.listing_pages import ListingPage, ListingPages
from arrow_io.storage.object_store import (
    ObjectContent,
    ObjectInfo,
    StoreWithoutUploads,
    names_in_folder,
    protocols,
)
from arrow_io.storage.store_uploads import ClosingUpload, StoreUpload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arrow_io.storage.attempts import Attempt
    from arrow_io.storage.request import Request

_PAGE_KEYS: Final = 1000
_LISTING_KIND: Final = "storage#objects"
"""The `kind` of a listing page of Google Cloud Storage."""


class CloudObjectStore(StoreWithoutUploads):
    """A bucket or container of a store that expires unfinished uploads automatically."""

    can_put_new: ClassVar[bool] = True

    def get_object(self, request: Request, attempt: Attempt) -> ObjectContent:
        """Return the first `stop` bytes of an object, or all of it if it is shorter."""
        try:
            return super().get_object(request, attempt)
        except storage_errors() as error:
            # An empty object satisfies no range request.
            if http_status(error) != RANGE_NOT_SATISFIABLE:
                raise
        return ObjectContent(b"", None)

    def put_new_object(self, request: Request, attempt: Attempt) -> None:
        """Write a whole object unless the name is taken; the last request is conditional."""
        upload = self._begin_file(request, "xb")
        try:
            upload.write_part(request, attempt)
            upload.complete(request, attempt)
        finally:
            upload.discard(request, attempt)

    def begin_upload(self, request: Request, attempt: Attempt) -> StoreUpload:
        """Start an object that is written in parts."""
        del attempt
        return self._begin_file(request, "wb")

    def _begin_file(self, request: Request, mode: str) -> ClosingUpload:
        attributes = request.attributes
        options: dict[str, object] = {"metadata": dict(attributes.user_metadata)}
        if "gs" in protocols(self._file_system):
            options["content_type"] = attributes.content_type
        return ClosingUpload(self._file_system.open(self._path(request.name), mode, **options))


class AzureObjectStore(CloudObjectStore):
    """A container of Azure Blob Storage, or a prefix in it."""

    PROTOCOLS: ClassVar = frozenset({"abfs", "abfss", "az"})

    def list_tree(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects below a folder, in the store's order: one page."""
        container, _, folder = self._folder_path(request.name).partition("/")
        marker = None if request.marker is None else request.marker[0]

        async def fetch() -> tuple[list[Mapping[str, Any]], str | None]:
            file_system = self._file_system
            client = file_system.service_client.get_container_client(container)
            async with client, attempt.time_limit("adlfs"):
                blobs = client.list_blobs(include=["metadata"], name_starts_with=folder)
                pages = blobs.by_page(continuation_token=marker)
                page = [blob async for blob in await anext(pages)]
                return await file_system._details(page), pages.continuation_token  # noqa: SLF001

        with _broken_xml():
            entries, following = sync(self._file_system.loop, fetch)
        objects = [self._object_info(each, attempt) for each in entries if self._is_object(each)]
        next_marker = (following,) if following else None
        return ListingPage(objects, key_count=len(entries), next_marker=next_marker)

    def _entries(self, folder: str) -> list[Mapping[str, Any]]:
        with _broken_xml():
            return super()._entries(folder)


@contextmanager
def _broken_xml() -> Iterator[None]:
    """Raise `BrokenAnswerError` if adlfs fails on an answer that is not a listing."""
    from azure.core.exceptions import DecodeError  # noqa: PLC0415 - adlfs has imported it

    try:
        yield
    except (AttributeError, TypeError, ValueError, DecodeError) as error:
        # The library parses an answer that is not a listing as None or JSON, and then fails.
        message = f"the answer is not an XML listing: {type(error).__name__}: {error}"
        raise BrokenAnswerError(message) from None


class GcsObjectStore(CloudObjectStore):
    """A bucket of Google Cloud Storage, or a prefix in it."""

    PROTOCOLS: ClassVar = frozenset({"gcs", "gs"})

    def list_folder(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects and folders directly in a folder, in the store's order: one page."""
        _, folder = self._bucket_and_folder(request.name)
        page = self._fetch_page(
            attempt, request.marker, prefix=folder, delimiter="/", maxResults=_PAGE_KEYS
        )
        count, marker = len(page["items"]) + len(page["prefixes"]), _next_marker(page)
        if folder and marker is None and not request.listed_keys + count:
            self._check_no_object(attempt, folder.rstrip("/"))
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        folders = names_in_folder(folder.removesuffix("/"), page["prefixes"])
        return ListingPage(self._objects(page, attempt), folders, count, marker)

    def list_tree(self, request: Request, attempt: Attempt) -> ListingPage[ObjectInfo]:
        """List the objects below a folder, in the store's order: one page."""
        _, folder = self._bucket_and_folder(request.name)
        page = self._fetch_page(attempt, request.marker, prefix=folder, maxResults=_PAGE_KEYS)
        objects, marker = self._objects(page, attempt), _next_marker(page)
        return ListingPage(objects, key_count=len(page["items"]), next_marker=marker)

    def has_objects_from(self, folder: str, key: str, attempt: Attempt) -> bool:
        """Return whether a folder has an object whose whole key sorts after `key`.

        No object needs to have that key. The attempt's policy bounds the pages.
        """
        _, folder = self._bucket_and_folder(folder)
        pages = ListingPages(attempt.attempts.retry)
        marker: tuple[str] | None = None
        while True:
            # A page of two has another key besides `key`, unless the server makes shorter pages.
            page = self._fetch_page(attempt, marker, prefix=folder, startOffset=key, maxResults=2)
            if any(item["name"] != key for item in page["items"]):
                return True
            marker = _next_marker(page)
            pages.count(ListingPage([], key_count=len(page["items"]), next_marker=marker))
            if marker is None:
                return False

    def _bucket_and_folder(self, name: str) -> tuple[str, str]:
        """Return the bucket and the prefix of all keys in a folder, which ends in a slash."""
        bucket, _, folder = self._folder_path(name).partition("/")
        return bucket, folder

    def _objects(self, page: Mapping[str, Any], attempt: Attempt) -> list[ObjectInfo]:
        bucket, _ = self._bucket_and_folder("")
        entries = (
            {**item, "name": f"{bucket}/{item['name']}", "size": int(item["size"]), "type": "file"}
            for item in page["items"]
        )
        return [self._object_info(entry, attempt) for entry in entries if self._is_object(entry)]

    def _check_no_object(self, attempt: Attempt, key: str) -> None:
        """Raise if the folder is an object, not a missing folder."""
        page = self._fetch_page(attempt, None, prefix=key, maxResults=1)
        if any(item["name"] == key for item in page["items"]):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _fetch_page(
        self, attempt: Attempt, marker: tuple[str, ...] | None, **options: object
    ) -> Mapping[str, Any]:
        bucket, _ = self._bucket_and_folder("")
        sent = {name: value for name, value in options.items() if value != ""}
        if marker is not None:
            sent["pageToken"] = marker[0]

        async def fetch() -> bytes:
            async with attempt.time_limit("gcsfs"):
                try:
                    _, body = await self._file_system._call(  # noqa: SLF001
                        "GET", "b/{}/o", bucket, **sent
                    )
                except ValueError as error:
                    # gcsfs raises it for a request that the server calls invalid.
                    raise OSError(errno.EINVAL, str(error)) from None
            return bytes(body)

        return _checked_page(sync(self._file_system.loop, fetch))


def _next_marker(page: Mapping[str, Any]) -> tuple[str] | None:
    token = page.get("nextPageToken")
    return None if token is None else (token,)


def _checked_page(body: bytes) -> Mapping[str, Any]:
    """Parse a page of a listing in Google's JSON; add `items` and `prefixes` if absent."""
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
