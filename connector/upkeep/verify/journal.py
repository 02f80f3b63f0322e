"""What verifying a ledger found, and a file that remembers it, so that a long run can go on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from arrow_io.errors import OptionError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from arrow_io.ledgers.open_ledger import OpenLedger

_LINE_START = b'{"url": '


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedLedger:
    """What reading a whole ledger found."""

    url: str
    """Where the objects lie."""
    topic: str
    ledger_id: int
    object: str
    """Name of the data object; of several, all of them, with commas between."""
    stored_bytes: int
    """How long the data objects of the ledger are by their index objects."""
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
    def key(self) -> tuple[str, str, int, int]:
        """What shows whether the same was verified before."""
        return self.url, self.object, self.ledger_id, self.stored_bytes


class VerificationJournal:
    """A file that remembers what was verified, a line a ledger, so that a long run can go on.

    Args:
        path: The file; made if it is not there.

    Raises:
        OptionError: The file is there and is not a journal, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verified: dict[tuple[str, str, int, int], VerifiedLedger] = {}
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
                verified = _parse(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self._refuse(f"line {number}: {error}")
            self._verified[verified.key] = verified

    def _refuse(self, reason: str) -> NoReturn:
        message = f"{self._path} is not a journal of a verification: {reason}"
        raise OptionError(message)

    def find(self, ledger: OpenLedger) -> VerifiedLedger | None:
        """What was found of a ledger before; None if its objects were not verified."""
        size_bytes, ledger_id = ledger.data.stored_bytes, ledger.ledger_id
        return self._verified.get((str(ledger.location), ledger.data_names, ledger_id, size_bytes))

    def add(self, verified: VerifiedLedger) -> None:
        """Remember a ledger.

        Raises:
            StorageError: The file cannot be written any more.
        """
        self._verified[verified.key] = verified
        try:
            with self._path.open("ab") as file:
                if self._cut_at is not None:
                    file.truncate(self._cut_at)
                    self._cut_at = None
                file.write(json.dumps(asdict(verified)).encode() + b"\n")
        except OSError as error:
            message = f"the journal {self._path} cannot be written: {error.strerror}"
            raise StorageError(message) from None


def _parse(fields: dict[str, Any]) -> VerifiedLedger:
    verified = VerifiedLedger(**(fields | {"problems": tuple(fields["problems"])}))
    indexes = [each for each in (verified.first_index, verified.last_index) if each is not None]
    numbers = (
        verified.ledger_id,
        verified.stored_bytes,
        verified.entries,
        verified.unchecked_entries,
        *indexes,
    )
    texts = verified.url, verified.topic, verified.object, *verified.problems
    if not all(type(each) is int for each in numbers) or not all(map(_is_text, texts)):
        message = "a field has another type"
        raise TypeError(message)
    return verified


def _is_text(value: object) -> bool:
    return isinstance(value, str)
