"""Which folders of a bucket hold managed ledgers, as the filesystem driver writes them?

Their paths are `tenant/namespace/domain/…`, so folders are listed two levels deep. A bucket may
have any number of other folders: the search is bounded, and says how many folders it left out. It
does not find topics of Pulsar's first version, `tenant/cluster/namespace/domain/…`. MapFiles that
it leaves out are found if metadata names them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import MANAGED_LEDGER_DOMAINS
from arrow_io.storage.location import FolderListing
from arrow_io.storage.request_errors import AccessDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo

MAX_UNRELATED_FOLDERS: Final = 1000
"""Approximate maximum number of folders that are listed although no managed ledger is in them."""
_BATCH_FOLDERS: Final = 64
_MAX_PAGES: Final = 10
"""Maximum number of pages of one folder, each with up to 1,000 keys. Tenants hold folders only, but
another folder may hold millions of objects."""
_NAME: Final = re.compile(r"(?!\.\.?$)[-=:.\w]+", re.ASCII)
"""A tenant or namespace (`NamedEntity`)."""


@dataclass(frozen=True)
class ManagedLedgerObjects:
    """The objects below the folders of managed ledgers.

    Attributes:
        objects: Their names are paths from the location of the bucket.
        listing_count: Number of folders and trees that were listed.
        unsearched_count: Number of folders that were not listed, or not completely, because there
            are too many or a permission is missing.
    """

    objects: Sequence[ObjectInfo] = ()
    listing_count: int = 0
    unsearched_count: int = 0


def list_managed_ledgers(location: Location, folders: Sequence[str]) -> ManagedLedgerObjects:
    """List all objects of managed ledgers; send no request if there are no folders.

    Args:
        location: The bucket.
        folders: Names of the folders directly in it.

    Raises:
        StorageError: A folder cannot be listed.
    """
    if not folders:
        return ManagedLedgerObjects()
    threads = location.max_connections if location.is_async else 1
    with ContextThreadPool(threads) as executor:
        return _Search(location, executor).run(folders)


class _Search:
    """One search of a bucket for the folders of managed ledgers."""

    def __init__(self, location: Location, executor: ContextThreadPool) -> None:
        self._location = location
        self._executor = executor
        self._listing_count = 0
        self._unrelated_count = 0
        self._unsearched_count = 0

    def run(self, folders: Sequence[str]) -> ManagedLedgerObjects:
        roots: list[str] = []
        for tenants in self._batches([name for name in folders if _NAME.fullmatch(name)]):
            namespaces = [
                [path for path in paths if _NAME.fullmatch(_name(path))]
                for paths in self._list(tenants)
            ]
            self._unrelated_count += namespaces.count([])
            # In turn: one folder with many others in it must not use up the search.
            in_turn = [path for row in zip_longest(*namespaces) for path in row if path is not None]
            for batch in self._batches(in_turn):
                domains = [
                    [path for path in paths if _name(path) in MANAGED_LEDGER_DOMAINS]
                    for paths in self._list(batch)
                ]
                self._unrelated_count += domains.count([])
                roots += chain.from_iterable(domains)
        trees = self._executor.map(self._location.list_tree, roots)
        return ManagedLedgerObjects(
            list(chain.from_iterable(trees)),
            self._listing_count + len(roots),
            self._unsearched_count,
        )

    def _batches(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield the paths in batches, until too many folders were listed in vain."""
        for start in range(0, len(paths), _BATCH_FOLDERS):
            if self._unrelated_count >= MAX_UNRELATED_FOLDERS:
                self._unsearched_count += len(paths) - start
                return
            yield paths[start : start + _BATCH_FOLDERS]

    def _list(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the paths of the folders in each of some folders."""
        self._listing_count += len(paths)
        listings = list(self._executor.map(self._list_folder, paths))
        self._unsearched_count += sum(not each.is_whole for each in listings)
        return [
            [f"{path}/{name}" for name in listing.folders]
            for path, listing in zip(paths, listings, strict=True)
        ]

    def _list_folder(self, path: str) -> FolderListing:
        try:
            return self._location.child(path).list_folder(max_pages=_MAX_PAGES)
        except MissingObjectError:
            # It was deleted after the folder above it was listed.
            return FolderListing([], [])
        except AccessDeniedError:
            # A reader of flat objects needs no permission for the folders beside them.
            return FolderListing([], [], is_whole=False)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
