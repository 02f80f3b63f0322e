"""A folder of statistics files, and the ledgers whose zones they record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import path_or_url
from arrow_io.core.threads import ContextThreadPool
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
"""Errors of a single file that reads ignore: it is damaged, or was deleted meanwhile."""


@dataclass(frozen=True)
class Statistics:
    """The usable statistics files in a folder at the time it was opened. Picklable.

    Attributes:
        problems: Why other files cannot be used, as sentences.
    """

    location: Location
    files: tuple[ZoneFile, ...]
    problems: tuple[str, ...] = ()
    is_missing: bool = False
    """Whether the folder does not exist; in an object store, an empty folder does not exist."""

    @classmethod
    def open(cls, location: Location) -> Statistics:
        """List a folder and read the footers of its files; a missing folder has no files.

        Raises:
            StorageError: The folder cannot be read.
        """
        return cls(location, ()).refreshed()

    def refreshed(self) -> Statistics:
        """Return the folder's current state; footers that were read are not read again.

        Raises:
            StorageError: The folder cannot be read.
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
            if ZoneFile.is_file_name(info.name)
        ]
        with ContextThreadPool(location.max_connections) as executor:
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
        """Yield each file with the ledgers of a topic that it records; sends no request.

        Rows are of `LEDGER_SCHEMA`. Several files may record a ledger, with the same version of its
        object or another. With `ids`, which ascend, only these ledgers are looked up: fast if they
        are close together.
        """
        for file in self.files:
            rows = file.ledgers_of(topic, ids)
            if rows.num_rows:
                yield file, rows

    def with_zones(self, zones: pa.Table) -> Statistics:
        """Write a file of zones and return the folder including it.

        Raises:
            OptionError: The folder cannot be written to.
            StorageError: The request was refused, or failed after all retries.
        """
        self.location.check_writable()
        name, data = encode_zone_file(zones)
        self.location.write_object(name, data, user_metadata={})
        return replace(self, files=(*self.files, ZoneFile(self.location, name, len(data))))


class OpenedStatistics:
    """The folders of statistics that were opened, so that their footers are not read again."""

    def __init__(self) -> None:
        self._by_location: dict[Location, Statistics] = {}

    def open(self, location: Location) -> Statistics:
        """Return the current statistics of a folder.

        Raises:
            StorageError: The folder cannot be read.
        """
        opened = self._by_location.get(location) or Statistics(location, ())
        self._by_location[location] = statistics = opened.refreshed()
        return statistics


def open_statistics(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    *,
    trace: RequestTrace | None = None,
    opened: OpenedStatistics | None = None,
) -> Statistics:
    """Open a folder of statistics to add to; a folder that does not exist yet is empty.

    If the folder is among `opened`, only new footers are read; otherwise it is added to them.

    Raises:
        OptionError: The URL or the options cannot be used.
        StorageError: The folder cannot be read.
    """
    location = Location(
        path_or_url("statistics", url), storage_options, trace=trace or RequestTrace()
    )
    return Statistics.open(location) if opened is None else opened.open(location)


def open_existing_statistics(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    *,
    trace: RequestTrace | None = None,
    opened: OpenedStatistics | None = None,
) -> Statistics:
    """Open a folder of statistics to read from; it must exist.

    Warns with `UnusedStatisticsWarning` if the folder has no statistics.

    Raises:
        OptionError: The folder does not exist; or see `open_statistics`.
        StorageError: The folder cannot be read.
    """
    statistics = open_statistics(url, storage_options, trace=trace, opened=opened)
    if statistics.is_missing:
        message = (
            f"{option_name('statistics')}: there is no folder {statistics.location}:"
            " create it with analyze"
        )
        raise OptionError(message)
    _warn_if_empty(statistics)
    return statistics


def open_snapshot_statistics(
    url: str,
    storage_options: Mapping[str, object] | None = None,
    *,
    trace: RequestTrace,
    opened: OpenedStatistics | None = None,
) -> Statistics:
    """Open the folder of statistics that a catalog snapshot names.

    Warns with `UnusedStatisticsWarning` if it does not exist or has no statistics: the caller did
    not ask for them, and the rows are the same without them.

    Raises:
        OptionError: The URL or the options cannot be used.
        StorageError: The folder cannot be read.
    """
    statistics = open_statistics(url, storage_options, trace=trace, opened=opened)
    if statistics.is_missing:
        message = (
            f"there is no folder {statistics.location}, which the catalog snapshot names for"
            " statistics"
        )
        warn_of_read(message, UnusedStatisticsWarning)
    else:
        _warn_if_empty(statistics)
    return statistics


def _warn_if_empty(statistics: Statistics) -> None:
    if not (statistics.files or statistics.problems):
        message = f"there are no statistics in {statistics.location}: gather them with analyze"
        warn_of_read(message, UnusedStatisticsWarning)


def _problem(file: ZoneFile) -> str | None:
    try:
        file.ledgers  # noqa: B018 - they are read once, and cached
    except UNUSABLE as error:
        return str(error)
    return None
