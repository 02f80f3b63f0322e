"""Rebuilds index objects that are lost or damaged from their data objects, and writes them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from arrow_io.errors import FormatError, MissingObjectError, ObjectChangedError
from connector.read_ahead import read_ahead
from connector.upkeep.attempt import LedgerAttempt, Repair
from connector.upkeep.ledger_repair import planned_ledger
from connector.upkeep.repairable import repairable_attempts

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator

    from arrow_io.storage.location import Location
    from connector.catalog.catalog import Catalog
    from connector.offloader import IndexObject
    from connector.upkeep.attempt import Attempt

_CONCURRENT_LEDGERS: Final = 8


def plan_repair(
    catalog: Catalog, ledger_ids: Collection[int] = (), *, verify: bool = False
) -> Generator[Repair, None, None]:
    """Rebuild the index objects that are missing or unsound, without writing them.

    Data objects are walked from end to end, several at once. Each new index object is read by this
    project's own reader, and the entries on both sides of each block's bounds by what it says.

    Args:
        catalog: The bucket, with the metadata if there is any. What the metadata does not name is
            not rebuilt; without metadata, no ledger is of which another copy is sound.
        ledger_ids: Ledgers whose every attempt is compared with its data object, even if nothing
            seems to be wrong with it; none: all ledgers with which something is.
        verify: Whether to read all entries by the new index object, and compare their checksums.

    Yields:
        One for each attempt, by the names of their objects.

    Raises:
        PulsarOffloadError: The metadata or the bucket cannot be read.
    """
    location = catalog.location
    units = (
        partial(_planned, location, each, verify=verify)
        for each in repairable_attempts(catalog, ledger_ids)
    )
    threads = min(_CONCURRENT_LEDGERS, location.max_connections)
    yield from read_ahead(units, threads=threads)


def repair(location: Location, plan: Iterable[Repair]) -> Iterator[Repair]:
    """Write the index objects of a plan.

    Each is written only if there is none, or in place of the very one that was found unsound.

    Args:
        location: The bucket.
        plan: What `plan_repair` gives; each is written before the next is asked for.

    Yields:
        Each when it is done, those too of which nothing is written.

    Raises:
        ObjectChangedError: An object was written or replaced since the bucket was listed.
        MissingObjectError: One was deleted since.
        StorageError: The store refused, or went on failing.
    """
    for each in plan:
        if each.index is not None:
            _write(location, each.attempt, each.index)
        yield each


def _write(location: Location, attempt: Attempt, index: IndexObject) -> None:
    old, data = attempt.index, attempt.data
    if data is not None and data.version is not None:
        location.check_version(data.name, data.version)
    user_metadata = index.user_metadata
    if old is None or old.version is None:
        is_written = location.write_new_object(index.name, index.data, user_metadata=user_metadata)
    else:
        is_written = location.replace_object(
            index.name, index.data, old.version, user_metadata=user_metadata
        )
    if not is_written:
        message = "an index object is there that is not the one that was listed"
        raise ObjectChangedError(message, object_key=index.name)


def _planned(location: Location, attempt: Attempt, *, verify: bool) -> Repair:
    if not isinstance(attempt, LedgerAttempt) or attempt.refusal or attempt.data is None:
        return Repair(attempt, refusal=attempt.refusal)
    try:
        return planned_ledger(location, attempt, attempt.data, verify=verify)
    except (FormatError, MissingObjectError) as error:
        error.located(object_key=attempt.name.data_name, ledger_id=attempt.name.ledger_id)
        return Repair(attempt, error=error, refusal=str(error))
