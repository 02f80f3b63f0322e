"""The listing of all objects below a folder: page by page, or folder by folder.

Object stores list flat pages, one after the other. File systems list single folders; each is a page
of its own, with its own attempts and time, and several are listed at once where the store allows.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import WorkerPool
from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.listing_pages import ListingPage, ListingPages
from arrow_io.storage.request import Operation, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from arrow_io.storage.attempts import RetryPolicy
    from arrow_io.storage.object_store import ObjectInfo

    Page = ListingPage[ObjectInfo]

MAX_DEPTH: Final = 16
"""Maximum number of nested folders below the listed one. Pulsar's offloader makes five."""


def list_tree(
    send: Callable[[Request], Page], folder: str, retry: RetryPolicy, max_requests: int
) -> list[ObjectInfo]:
    """Return the objects below a folder, in no order; empty if the folder does not exist.

    A folder that is deleted meanwhile has no objects.

    Args:
        send: Sends the request for a page.
        folder: Path of the folder, relative to the location; empty for the location.
        retry: Bounds the time of all pages.
        max_requests: Maximum number of concurrent requests.

    Raises:
        StorageError: The folders or pages do not end; or a request failed.
    """
    pages = ListingPages(retry)
    objects: list[ObjectInfo] = []
    first = Request(Operation.LIST_TREE, folder)
    waiting: list[Request] = [first]
    in_flight: set[Future[Page]] = set()
    pool = WorkerPool(max_requests, idle_s=0)
    try:
        while waiting or in_flight:
            is_alone = not in_flight and (len(waiting) == 1 or max_requests == 1)
            while waiting and len(in_flight) < max_requests:
                pages.check_time()
                call = partial(_send, send, waiting.pop())
                in_flight.add(_run(call) if is_alone else pool.submit(call))
            answered, in_flight = wait(in_flight, return_when=FIRST_COMPLETED)
            for answer in answered:
                page = answer.result()
                pages.count(page)
                objects += page.items
                _check_depth(folder, page.folders)
                markers: list[tuple[str, ...]] = [(path,) for path in page.folders]
                if page.next_marker is not None:
                    markers.append(page.next_marker)
                waiting += (
                    replace(first, marker=marker, listed_keys=pages.key_count) for marker in markers
                )
    finally:
        pool.stop()
    return objects


def _send(send: Callable[[Request], Page], request: Request) -> Page:
    try:
        return send(request)
    except MissingObjectError:
        return ListingPage([])


def _run(call: Callable[[], Page]) -> Future[Page]:
    """Call in this thread, and return the result as that of a pool."""
    result: Future[Page] = Future()
    result.set_result(call())
    return result


def _check_depth(folder: str, paths: Iterable[str]) -> None:
    for path in paths:
        if path.removeprefix(folder).strip("/").count("/") >= MAX_DEPTH:
            message = (
                f"the folder {path!r} is nested deeper than the {MAX_DEPTH} folders that a tree may"
                " have: list one of the folders in it"
            )
            raise StorageError(message)
