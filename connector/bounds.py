"""Where a scan starts and ends: by message id, or by publish time.

`start` is inclusive, `end` exclusive. A message's id is its position: of its last chunk if it has
several.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.messages import tables
from connector.pulsar_time import EPOCH

if TYPE_CHECKING:
    from arrow_io.messages.message_columns import MessageColumns

MessageId: TypeAlias = tuple[int, int] | tuple[int, int, int]
Bound: TypeAlias = datetime | MessageId | str

_MS = timedelta(milliseconds=1)
_ID_TEXT = re.compile(r"\(\s*(-?\d{1,19})\s*,\s*(-?\d{1,19})\s*(?:,\s*(-?\d{1,19})\s*)?\)")
_PULSAR_ID_TEXT = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::-?\d{1,19}(?::(-?\d{1,19}))?)?")
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """A half-open range of message ids, and one of publish times; a row has to lie in both.

    Attributes:
        start_id: First `(ledger, entry, batch index)`, inclusive; None: from the beginning.
        end_id: Behind the last, exclusive; None: to the end.
        start_ms: First publish time, in ms since 1970, inclusive.
        end_ms: Behind the last, exclusive.
    """

    start_id: tuple[int, int, int] | None = None
    end_id: tuple[int, int, int] | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    @classmethod
    def parse(cls, start: Bound | None, end: Bound | None) -> Bounds:
        """Read the two options as users give them.

        Args:
            start: A datetime (UTC if it has no time zone), its ISO text, a message id
                `(ledger, entry[, batch])`, its text in that form, or in Pulsar's own
                (`ledger:entry[:partition[:batch]]`); None: from the beginning.
            end: Likewise; None: to the end.

        Raises:
            OptionError: It is none of these.
        """
        start_id, start_ms = _parse("start", start)
        end_id, end_ms = _parse("end", end)
        return cls(start_id, end_id, start_ms, end_ms)

    @property
    def first_ledger_id(self) -> int:
        """The first ledger that may have rows within."""
        return 0 if self.start_id is None else self.start_id[0]

    @property
    def last_ledger_id(self) -> int:
        """The last ledger that may have rows within (inclusive)."""
        if self.end_id is None:
            return MAX_LEDGER_ID
        ledger_id, entry_id, batch_index = self.end_id
        return ledger_id if (entry_id, batch_index) > (0, 0) else ledger_id - 1

    @property
    def by_time(self) -> bool:
        """Whether publish times matter."""
        return self.start_ms is not None or self.end_ms is not None

    def kept(self, rows: MessageColumns) -> pa.Int64Array | None:
        """Numbers of the rows that lie within, ascending; None if all do."""
        conditions = []
        if self.start_id is not None:
            conditions.append(_not_before(rows, self.start_id))
        if self.end_id is not None:
            conditions.append(pc.invert(_not_before(rows, self.end_id)))
        if self.by_time:
            times = rows.entry_numbers(tables.PUBLISH_TIME)
            if self.start_ms is not None:
                conditions.append(pc.greater_equal(times, self.start_ms))
            if self.end_ms is not None:
                conditions.append(pc.less(times, self.end_ms))
        if not conditions:
            return None
        within = conditions[0]
        for each in conditions[1:]:
            within = pc.and_(within, each)
        if pc.all(within).as_py():
            return None
        return pc.indices_nonzero(within).cast(pa.int64())


def _not_before(rows: MessageColumns, bound: tuple[int, int, int]) -> pa.BooleanArray:
    """Whether each row is at or behind `bound`; one that is not batched counts as member 0."""
    ledger, entry, batch = bound
    ledgers, entries = rows.ledger_ids(), rows.entry_numbers(tables.ENTRY_ID)
    members = pc.max_element_wise(rows.row_numbers(tables.ROW_BATCH_INDEX), 0)
    in_entry = pc.and_(pc.equal(entries, entry), pc.greater_equal(members, batch))
    in_ledger = pc.and_(pc.equal(ledgers, ledger), pc.or_(pc.greater(entries, entry), in_entry))
    return pc.or_(pc.greater(ledgers, ledger), in_ledger)


# What a user gives is not taken to be of the annotated type: hence `object`.
def _parse(option: str, bound: object) -> tuple[tuple[int, int, int] | None, int | None]:
    if bound is None:
        return None, None
    if isinstance(bound, str):
        bound = _parse_text(option, bound)
    if isinstance(bound, datetime) and bound == bound:  # noqa: PLR0124 - NaT is unlike itself
        aware = bound if bound.tzinfo else bound.replace(tzinfo=UTC)
        # Publish times are whole ms, so the first one at or behind a bound is its ceiling.
        return None, -((EPOCH - aware) // _MS)
    if (
        isinstance(bound, tuple | list)
        and 2 <= len(bound) <= 3  # noqa: PLR2004
        and all(isinstance(each, int) and not isinstance(each, bool) for each in bound)
        # Pulsar's earliest message id has -1 where its latest has the greatest long.
        and all(-1 <= each <= _MAX_INT64 for each in bound)
    ):
        ledger, entry, *batch = bound
        return (ledger, entry, max(0, *batch, 0)), None
    raise _bad(option, bound)


def _parse_text(option: str, text: str) -> datetime | MessageId:
    match = _ID_TEXT.fullmatch(text.strip()) or _PULSAR_ID_TEXT.fullmatch(text.strip())
    if match:
        return int(match[1]), int(match[2]), int(match[3] or 0)
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise _bad(option, text) from None


def _bad(option: str, bound: object) -> OptionError:
    message = (
        f"{option} must be a datetime, its ISO text, or a message id (ledger, entry[, batch]),"
        f" not {bound!r}"
    )
    return OptionError(message)
