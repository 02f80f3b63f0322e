"""Versions of objects in one folder, if what the store lists differs from what it serves."""

from __future__ import annotations

import os
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from arrow_io.storage.object_store import ObjectHead, ObjectInfo
    from arrow_io.storage.object_version import ObjectVersion


class ServedVersions:
    """Distinguishes an object that was replaced from one that is only listed under another version.

    Some stores list another ETag than they serve, for instance that of encrypted objects. If an
    object seems to be of another version, a new listing and a HEAD show whether it was replaced.
    Of several threads that need to know it of one object, the first asks.
    """

    def __init__(self) -> None:
        self._served: dict[tuple[str, ObjectVersion], ObjectVersion] = {}
        self._relisted: dict[str, ObjectVersion | None] = {}
        # By process too: a forked child has none of the threads that will answer.
        self._pending: dict[tuple[int, str, ObjectVersion], Future[ObjectVersion | None]] = {}

    def forget_listings(self) -> None:
        """Forget what was listed until now: it no longer shows that an object was replaced."""
        self._relisted.clear()

    def request_version(self, name: str, version: ObjectVersion | None) -> ObjectVersion | None:
        """The version to ask the store for: the one as which it serves a version, if that is known.

        Args:
            name: Name of the object.
            version: The version as listed, or first read; None: any.
        """
        return None if version is None else self._served.get((name, version), version)

    def resolve(
        self,
        name: str,
        version: ObjectVersion | None,
        tried: ObjectVersion | None,
        relist: Callable[[str], Iterable[ObjectInfo]],
        head: Callable[[str], ObjectHead],
    ) -> ObjectVersion | None:
        """Ask as which other version the store serves one that it did not serve as `tried`.

        Args:
            name: Name of the object.
            version: The version as listed, or first read; None: any.
            tried: What `request_version` returned for it.
            relist: Lists the object of a name anew, perhaps with others.
            head: Asks what the store says of the object of a name.

        Returns:
            The version; None if the object was replaced.
        """
        if version is None or self._served.get((name, version)) == tried:
            return None
        return self._resolve(name, version, relist, head)

    def _resolve(
        self,
        name: str,
        version: ObjectVersion,
        relist: Callable[[str], Iterable[ObjectInfo]],
        head: Callable[[str], ObjectHead],
    ) -> ObjectVersion | None:
        """As which version the store serves the one that is listed; None if that is gone.

        The thread that asks needs no other for it, and holds no lock meanwhile.
        """
        key = os.getpid(), name, version
        answer: Future[ObjectVersion | None] = Future()
        try:
            first = self._pending.setdefault(key, answer)
            if first is answer:
                # Somebody else may have learned it after this thread had read.
                served = self._served.get((name, version)) or self._ask(name, version, relist, head)
                if served is not None:
                    self._served[name, version] = served
                answer.set_result(served)
        except Exception as error:  # noqa: BLE001 - raised below, and by all who wait
            answer.set_exception(error)
        finally:
            if self._pending.get(key) is answer:
                del self._pending[key]
            # If an interrupt left it without a result.
            answer.cancel()
        try:
            return first.result()
        except CancelledError:
            # The interrupt was for the other thread.
            return self._resolve(name, version, relist, head)

    def _ask(
        self,
        name: str,
        version: ObjectVersion,
        relist: Callable[[str], Iterable[ObjectInfo]],
        head: Callable[[str], ObjectHead],
    ) -> ObjectVersion | None:
        """What a HEAD says of the version that is still listed; None if that is gone."""
        # A listing that was made for another object may show that this one was replaced too. It
        # cannot show the contrary: this one may have been replaced after that listing.
        if self._relisted.get(name, version) != version:
            return None
        infos = {info.name: info for info in relist(name)}
        self._relisted.update((info.name, info.version) for info in infos.values())
        info = infos.get(name)
        if info is None or info.version != version:
            return None
        object_head = head(name)
        return object_head.version if object_head.size_bytes == info.size_bytes else None
