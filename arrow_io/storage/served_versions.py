"""Versions of objects in a folder whose store lists other versions than it serves."""

from __future__ import annotations

import os
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from arrow_io.storage.object_store import ObjectHead, ObjectInfo
    from arrow_io.storage.object_version import ObjectVersion


class ServedVersions:
    """A map from listed to served versions, which detects replaced objects.

    Some stores list another ETag than they serve, for instance for encrypted objects. If an object
    seems to have another version, a new listing and a HEAD show whether it was replaced. If several
    threads need that for the same object, only the first one asks the store.
    """

    def __init__(self) -> None:
        self._served: dict[tuple[str, ObjectVersion], ObjectVersion] = {}
        self._relisted: dict[str, ObjectVersion | None] = {}
        # The process is part of the key: a forked child has no thread that sets the result.
        self._pending: dict[tuple[int, str, ObjectVersion], Future[ObjectVersion | None]] = {}

    def forget_listings(self) -> None:
        """Forget earlier listings: they no longer show whether an object was replaced."""
        self._relisted.clear()

    def request_version(self, name: str, version: ObjectVersion | None) -> ObjectVersion | None:
        """Return the version to request: the served version of a listed one, if it is known."""
        return None if version is None else self._served.get((name, version), version)

    def resolve(
        self,
        name: str,
        version: ObjectVersion | None,
        tried_version: ObjectVersion | None,
        relist: Callable[[str], Iterable[ObjectInfo]],
        head: Callable[[str], ObjectHead],
    ) -> ObjectVersion | None:
        """Return the version under which the store serves a listed one, after a failed request.

        Args:
            name: Name of the object.
            version: The version as listed or first read; None for any.
            tried_version: The result of `request_version`, which the store did not serve.
            relist: Lists the object of a name again, perhaps with others.
            head: Returns what the store reports about the object of a name.

        Returns:
            The version; None if it is `tried_version` or if the object was replaced.
        """
        if version is None or self._served.get((name, version)) == tried_version:
            return None
        return self._resolve(name, version, relist, head)

    def _resolve(
        self,
        name: str,
        version: ObjectVersion,
        relist: Callable[[str], Iterable[ObjectInfo]],
        head: Callable[[str], ObjectHead],
    ) -> ObjectVersion | None:
        """Return the version under which the store serves the listed one; None if it is gone.

        The thread that asks does not depend on another thread, and holds no lock meanwhile.
        """
        key = os.getpid(), name, version
        answer: Future[ObjectVersion | None] = Future()
        try:
            first = self._pending.setdefault(key, answer)
            if first is answer:
                # Another thread may have stored it since this thread's lookup.
                served = self._served.get((name, version)) or self._ask(name, version, relist, head)
                if served is not None:
                    self._served[name, version] = served
                answer.set_result(served)
        except Exception as error:  # noqa: BLE001 - raised below, and in all waiting threads
            answer.set_exception(error)
        finally:
            if self._pending.get(key) is answer:
                del self._pending[key]
            # Cancel it in case an interrupt left it without a result.
            answer.cancel()
        try:
            return first.result()
        except CancelledError:
            # The other thread was interrupted, not this one.
            return self._resolve(name, version, relist, head)

    def _ask(
        self,
        name: str,
        version: ObjectVersion,
        relist: Callable[[str], Iterable[ObjectInfo]],
        head: Callable[[str], ObjectHead],
    ) -> ObjectVersion | None:
        """Return the version that a HEAD reports, if the listed one is still listed; else None."""
        # A listing made for another object can show that this one was replaced too. It cannot
        # show the opposite: this one may have been replaced after that listing.
        if self._relisted.get(name, version) != version:
            return None
        infos = {info.name: info for info in relist(name)}
        self._relisted.update((info.name, info.version) for info in infos.values())
        info = infos.get(name)
        if info is None or info.version != version:
            return None
        object_head = head(name)
        return object_head.version if object_head.size_bytes == info.size_bytes else None
