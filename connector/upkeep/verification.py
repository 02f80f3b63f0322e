"""Reads whole ledgers, to check what no index object has: every entry's id and checksum.

A ledger's blocks are read one after the other. Headers, entry ids and lengths are compared with the
index object, checksums with the entries, and the user metadata of the data object with what Pulsar
demands of it. Damage is reported and passed over, so that all of it is found.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from arrow_io.errors import FormatError, MissingObjectError, OptionError, StorageError
from arrow_io.format.index_block import check_format_version
from arrow_io.messages import layout
from arrow_io.messages.broker_order import BrokerOrder, goes_back, out_of_order
from arrow_io.read_report import ReadReport, Unit
from arrow_io.tally import Tally
from arrow_io.wording import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from arrow_io.ledger_reader import OffloadedLedger
    from connector.catalog.topic_ledgers import TopicLedgers

_LINE_START = b'{"url": '


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedLedger:
    """What reading a whole ledger found."""

    url: str
    """Where the objects lie."""
    topic: str
    ledger_id: int
    object: str
    """Name of the data object."""
    stored_bytes: int
    """Length that the index object gives it."""
    entries: int
    """Entries that were read and are sound."""
    unchecked_entries: int
    """Entries among them that have no checksum."""
    problems: tuple[str, ...]
    """What is wrong, up to about a hundred things; empty if all is well."""
    first_index: int | None = None
    """The broker's index of the first entry; None if it has none or begins a count, or that is not
    known."""
    last_index: int | None = None
    """That of the last entry; None if it has none, or that is not known."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What shows whether the same object was verified before."""
        return self.url, self.object, self.stored_bytes


class VerificationJournal:
    """A file that remembers what was verified, a line a ledger, so that a long run can go on.

    Args:
        path: The file; made if it is not there.

    Raises:
        OptionError: The file is there and is not a journal, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[tuple[str, str, int], VerifiedLedger] = {}
        try:
            with path.open("a+b") as file:
                file.seek(0)
                data = file.read()
        except OSError as error:
            message = f"no journal can be kept in {path}: {error.strerror}"
            raise OptionError(message) from None
        # A line that has no end was being written when the run was killed.
        whole_bytes = data.rfind(b"\n") + 1
        cut = data[whole_bytes:]
        self._cut_at = whole_bytes if cut else None
        if not cut.startswith(_LINE_START[: len(cut)]):
            self._refuse("its end is not a line of one")
        for number, line in enumerate(data[:whole_bytes].splitlines(), 1):
            try:
                done = _parsed(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self._refuse(f"line {number}: {error}")
            self._done[done.key] = done

    def _refuse(self, reason: str) -> NoReturn:
        message = f"{self._path} is not a journal of a verification: {reason}"
        raise OptionError(message)

    def find(self, ledger: OffloadedLedger) -> VerifiedLedger | None:
        """What was found of a ledger before; None if its objects were not verified."""
        size_bytes = ledger.index.data_object_length_bytes
        return self._done.get((str(ledger.location), ledger.name.data_name, size_bytes))

    def add(self, verified: VerifiedLedger) -> None:
        """Remember a ledger.

        Raises:
            StorageError: The file cannot be written any more.
        """
        self._done[verified.key] = verified
        try:
            with self._path.open("ab") as file:
                if self._cut_at is not None:
                    file.truncate(self._cut_at)
                    self._cut_at = None
                file.write(json.dumps(asdict(verified)).encode() + b"\n")
        except OSError as error:
            message = f"the journal {self._path} cannot be written: {error.strerror}"
            raise StorageError(message) from None


def _parsed(fields: dict[str, Any]) -> VerifiedLedger:
    done = VerifiedLedger(**(fields | {"problems": tuple(fields["problems"])}))
    indexes = [each for each in (done.first_index, done.last_index) if each is not None]
    numbers = done.ledger_id, done.stored_bytes, done.entries, done.unchecked_entries, *indexes
    texts = done.url, done.topic, done.object, *done.problems
    if not all(type(each) is int for each in numbers) or not all(map(_is_text, texts)):
        message = "a field has another type"
        raise TypeError(message)
    return done


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def verify(
    topics: Iterable[TopicLedgers],
    *,
    journal: VerificationJournal | None = None,
    progress: Callable[[VerifiedLedger], None] = lambda _: None,
) -> Iterator[VerifiedLedger]:
    """Read every sound ledger of some topics whole.

    Args:
        topics: The topics.
        journal: Knows the ledgers verified before, and notes the others. A ledger with problems is
            read again.
        progress: Called after each ledger that was read.

    Yields:
        What was found of each ledger, those of the journal too.

    Raises:
        StorageError: A request went on failing, or the journal cannot be written; what was verified
            until then is in it.
    """
    for topic in topics:
        last_index = None
        for ledger in topic.ledgers:
            known = journal.find(ledger) if journal else None
            if known is None or known.problems:
                known = verify_ledger(ledger, str(topic.topic))
                if journal is not None:
                    journal.add(known)
                progress(known)
            yield _compared(known, last_index)
            last_index = known.last_index


def _compared(verified: VerifiedLedger, before: int | None) -> VerifiedLedger:
    """What was found of a ledger, and whether it stands behind the one that ends with an index."""
    if not goes_back(before, verified.first_index):
        return verified
    error = out_of_order(before, verified.first_index).located(
        object_key=verified.object, ledger_id=verified.ledger_id
    )
    return replace(verified, problems=(*verified.problems, str(error)))


def verify_ledger(ledger: OffloadedLedger, topic: str) -> VerifiedLedger:
    """Read one ledger whole.

    Args:
        ledger: The ledger.
        topic: Its topic, for the result.

    Raises:
        StorageError: A request went on failing.
    """
    report = ReadReport()
    tally = Tally(report, salvage=True)
    entries = unchecked = 0
    order = BrokerOrder()
    problems = [*_wrong_metadata(ledger)]
    try:
        for run in ledger.data.entry_runs(0, ledger.last_entry_id, tally, verify_checksums=True):
            broken = list(run.flagged(layout.BROKEN))
            for index in broken:
                tally.lose(Unit.ENTRY, run.error(index))
            entries += run.count - len(broken)
            for error in order.errors(run, range(run.count)):
                tally.lose(Unit.ENTRY, error)
            stop = run.count * layout.ENTRY_WIDTH
            checksums = run.table[layout.CHECKSUM : stop : layout.ENTRY_WIDTH].tolist()
            unchecked += checksums.count(layout.ABSENT)
    except (FormatError, MissingObjectError) as error:
        problems.append(str(error))
    problems += report.losses
    more = report.lost.total() - len(report.losses)
    if more > 0:
        problems.append(f"{more} more {agreeing(more, 'is', 'are')} lost")
    missing = ledger.index.entry_count - entries
    if missing and not problems:
        found = agreeing(missing, "was", "were")
        problems.append(
            f"{counted(missing, 'entry')} of {ledger.index.entry_count} {found} not found"
        )
    return VerifiedLedger(
        url=str(ledger.location),
        topic=topic,
        ledger_id=ledger.ledger_id,
        object=ledger.name.data_name,
        stored_bytes=ledger.index.data_object_length_bytes,
        entries=entries,
        unchecked_entries=unchecked,
        problems=tuple(problems),
        first_index=order.first,
        last_index=order.last,
    )


def _wrong_metadata(ledger: OffloadedLedger) -> Iterator[str]:
    """What a broker would refuse in the user metadata of the data object."""
    name = ledger.name.data_name
    try:
        metadata = ledger.location.user_metadata(name)
        if metadata is not None:
            missing = check_format_version(metadata, object_key=name)
            if missing is not None:
                yield missing
    except FormatError as error:
        yield str(error)
    except MissingObjectError:
        # Reading the entries reports it.
        return
