"""A folder of statistics, opened: which zones of which ledgers are known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import path_or_url
from arrow_io.errors import FormatError, MissingObjectError, OptionError, UnusedStatisticsWarning
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector.display.warnings import warn_of_read
from connector.statistics.zone_files import ZoneFile, encode_zone_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

UNUSABLE: Final = FormatError, MissingObjectError
"""Damaged; or deleted meanwhile."""


@dataclass(frozen=True)
class Statistics:
    """The files of statistics in a folder, as they were when it was opened. Can be pickled.

    Attributes:
        location: The folder.
        files: Those that can be used.
        problems: Why others cannot be, in words.
    """

    location: Location
    files: tuple[ZoneFile, ...]
    problems: tuple[str, ...] = ()
    is_missing: bool = False
    """Whether there is no such folder; an object store has folders only for objects in them."""

    @classmethod
    def opened(cls, location: Location) -> Statistics:
        """List a folder, and read the footers of its files; a folder that is not there has none.

        Raises:
            StorageError: It cannot be read.
        """
        return cls(location, ()).refreshed()

    def refreshed(self) -> Statistics:
        """The folder as it is now; files that were read are not read again.

        Raises:
            StorageError: It cannot be read.
        """
        location, is_missing = self.location, False
        try:
            infos = location.list_objects()
        except MissingObjectError:
            infos, is_missing = [], True
        files_by_name = {each.name: each for each in self.files}
        files = [
            files_by_name.get(info.name) or ZoneFile(location, info.name, info.size_bytes)
            for info in infos
            if ZoneFile.is_one(info.name)
        ]
        with ThreadPoolExecutor(location.max_connections) as executor:
            problems = list(executor.map(_problem, files))
        return Statistics(
            location,
            tuple(file for file, problem in zip(files, problems, strict=True) if problem is None),
            tuple(problem for problem in problems if problem is not None),
            is_missing,
        )

    def ledgers(
        self, topic: str, ids: Sequence[int] | None = None
    ) -> Iterator[tuple[ZoneFile, pa.Table]]:
        """The ledgers of a topic or partition that each file knows, of `LEDGER_SCHEMA`; no request.

        A ledger may stand in several files, with the same or other versions of its object.

        Args:
            topic: Its full name.
            ids: Ascending; only ledgers with one of these ids, which takes little time if they are
                near each other. None: all.
        """
        for file in self.files:
            rows = file.ledgers_of(topic, ids)
            if rows.num_rows:
                yield file, rows

    def added(self, zones: pa.Table) -> Statistics:
        """Write a file of zones; gives the folder with it.

        Raises:
            OptionError: The folder cannot be written to.
            StorageError: The store refused, or went on failing.
        """
        self.location.check_writable()
        name, data = encode_zone_file(zones)
        self.location.write_object(name, data, user_metadata={})
        return replace(self, files=(*self.files, ZoneFile(self.location, name, len(data))))


def open_statistics(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    *,
    trace: RequestTrace | None = None,
) -> Statistics:
    """Open a folder of statistics to add to; one that does not exist yet has none.

    Args:
        url: Folder or URL.
        storage_options: Options of the fsspec file system.
        trace: Counts the requests.

    Raises:
        OptionError: The URL or the options cannot be used.
        StorageError: The folder cannot be read.
    """
    location = Location(
        path_or_url("statistics", url), storage_options, trace=trace or RequestTrace()
    )
    return Statistics.opened(location)


def open_existing_statistics(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    *,
    trace: RequestTrace | None = None,
) -> Statistics:
    """Open a folder of statistics that a caller names to read by; it must exist.

    Warns with `UnusedStatisticsWarning` if the folder has no statistics.

    Args:
        url: Folder or URL.
        storage_options: Options of the fsspec file system.
        trace: Counts the requests.

    Raises:
        OptionError: The folder does not exist; or see `open_statistics`.
        StorageError: The folder cannot be read.
    """
    statistics = open_statistics(url, storage_options, trace=trace)
    if statistics.is_missing:
        message = (
            f"{option_name('statistics')}: there is no folder {statistics.location}:"
            " analyze makes one"
        )
        raise OptionError(message)
    _warn_if_empty(statistics)
    return statistics


def open_snapshot_statistics(
    url: str, storage_options: Mapping[str, object] | None = None, *, trace: RequestTrace
) -> Statistics:
    """Open the folder of statistics that a catalog snapshot names.

    The caller did not ask for it, and the rows are the same without it. So a folder that does not
    exist, or has no statistics, is an `UnusedStatisticsWarning`.

    Args:
        url: Folder or URL.
        storage_options: Options of the fsspec file system.
        trace: Counts the requests.

    Raises:
        OptionError: The URL or the options cannot be used.
        StorageError: The folder cannot be read.
    """
    statistics = open_statistics(url, storage_options, trace=trace)
    if statistics.is_missing:
        message = (
            f"there is no folder {statistics.location}, which the snapshot names for statistics"
        )
        warn_of_read(message, UnusedStatisticsWarning)
    else:
        _warn_if_empty(statistics)
    return statistics


def _warn_if_empty(statistics: Statistics) -> None:
    if not (statistics.files or statistics.problems):
        message = f"there are no statistics in {statistics.location}: analyze gathers them"
        warn_of_read(message, UnusedStatisticsWarning)


def _problem(file: ZoneFile) -> str | None:
    """Why a file cannot be used, if it cannot."""
    try:
        file.ledgers  # noqa: B018 - they are read once, and kept
    except UNUSABLE as error:
        return str(error)
    return None
