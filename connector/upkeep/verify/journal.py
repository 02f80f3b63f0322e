"""The result of verifying a ledger, and the journal that lets a long verification resume."""

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
    """The result of reading a whole ledger."""

    url: str
    """Location of the objects."""
    topic: str
    ledger_id: int
    object: str
    """Name of the data object. If there are several, their names, separated by commas."""
    stored_bytes: int
    """Length of the ledger's data objects, according to their index objects."""
    entries: int
    """Number of undamaged entries."""
    unchecked_entries: int
    """Number of these entries that have no checksum."""
    problems: tuple[str, ...]
    """Problems, up to about a hundred. Empty if there are none."""
    first_index: int | None = None
    """The broker's index of the first entry. None if it has none, starts a count, or is unknown."""
    last_index: int | None = None
    """The broker's index of the last entry. None if it has none, or is unknown."""
    broker_problems: tuple[str, ...] = ()
    """Those of `problems` that only brokers have: the entries can be read without them."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Identifies the verified objects."""
        return self.url, self.object, self.ledger_id, self.stored_bytes


class VerificationJournal:
    """A file with one line for each verified ledger, so that a long verification can resume.

    Args:
        path: The file. It is created if it does not exist.

    Raises:
        OptionError: The file is not a journal, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verified: dict[tuple[str, str, int, int], VerifiedLedger] = {}
        try:
            with path.open("a+b") as file:
                file.seek(0)
                data = file.read()
        except OSError as error:
            message = f"the journal {path} cannot be opened: {error.strerror}"
            raise OptionError(message) from None
        # A run that was killed may leave a last line without an end.
        whole_bytes = data.rfind(b"\n") + 1
        partial_line = data[whole_bytes:]
        self._truncate_at = whole_bytes if partial_line else None
        if not partial_line.startswith(_LINE_START[: len(partial_line)]):
            self._refuse("its last line is malformed")
        for number, line in enumerate(data[:whole_bytes].splitlines(), 1):
            try:
                verified = _parse(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self._refuse(f"line {number}: {error}")
            self._verified[verified.key] = verified

    def _refuse(self, reason: str) -> NoReturn:
        message = f"{self._path} is not a verification journal: {reason}"
        raise OptionError(message)

    def find(self, ledger: OpenLedger) -> VerifiedLedger | None:
        """Return the earlier result of a ledger, or None if its objects were not verified."""
        size_bytes, ledger_id = ledger.data.stored_bytes, ledger.ledger_id
        return self._verified.get((str(ledger.location), ledger.data_names, ledger_id, size_bytes))

    def add(self, verified: VerifiedLedger) -> None:
        """Record a result.

        Raises:
            StorageError: The file cannot be written any more.
        """
        self._verified[verified.key] = verified
        try:
            with self._path.open("ab") as file:
                if self._truncate_at is not None:
                    file.truncate(self._truncate_at)
                    self._truncate_at = None
                file.write(json.dumps(asdict(verified)).encode() + b"\n")
        except OSError as error:
            message = f"the journal {self._path} cannot be written: {error.strerror}"
            raise StorageError(message) from None


def _parse(fields: dict[str, Any]) -> VerifiedLedger:
    problems = {
        "problems": tuple(fields["problems"]),
        "broker_problems": tuple(fields.get("broker_problems", ())),
    }
    verified = VerifiedLedger(**(fields | problems))
    indexes = [each for each in (verified.first_index, verified.last_index) if each is not None]
    numbers = (
        verified.ledger_id,
        verified.stored_bytes,
        verified.entries,
        verified.unchecked_entries,
        *indexes,
    )
    problem_texts = (*verified.problems, *verified.broker_problems)
    texts = verified.url, verified.topic, verified.object, *problem_texts
    if not all(type(each) is int for each in numbers) or not all(map(_is_text, texts)):
        message = "a field has the wrong type"
        raise TypeError(message)
    return verified


def _is_text(value: object) -> bool:
    return isinstance(value, str)
