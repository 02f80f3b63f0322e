"""Where a scan starts and ends, by message id or by publish time.

`start` is inclusive, `end` exclusive. A message's id is its position; for a chunked message, the
position of its last chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.messages import layout
from connector.inputs.message_ids import MessageId
from connector.inputs.times import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from arrow_io.messages.message_columns import MessageColumns

Bound: TypeAlias = "date | np.datetime64 | tuple[int, int] | tuple[int, int, int] | str | bytes"

_Value = TypeVar("_Value", tuple[int, int, int], int)

_MS = timedelta(milliseconds=1)
_COARSE_UNITS = ("Y", "M", "W", "D", "h", "m", "s")
"""NumPy's units in which a time can overflow a 64-bit number of ms."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A half-open range of message ids and one of publish times; rows must be in both.

    Attributes:
        start_id: First `(ledger, entry, batch index)`, inclusive; None: no lower bound.
        end_id: End of the ids, exclusive; None: no upper bound.
        start_ms: First publish time, in ms since 1970, inclusive.
        end_ms: End of the publish times, exclusive.
    """

    start_id: tuple[int, int, int] | None = None
    end_id: tuple[int, int, int] | None = None
    start_ms: int | None = None
    end_ms: int | None = None

    @classmethod
    def parse(cls, start: Bound | None, end: Bound | None) -> Bounds:
        """Parse the options `start` and `end`.

        Args:
            start: A datetime (UTC if it has no time zone) or a date (its first moment, UTC),
                including those of pandas and NumPy; its ISO text; or a message id `(ledger, entry[,
                batch])`, or one in another form of Pulsar's (`connector.inputs.message_ids`). None:
                no lower bound.
            end: Likewise; None: no upper bound.

        Raises:
            OptionError: A bound has none of these forms, or the start is after the end.
        """
        start_id, start_ms = _parse("start", start)
        end_id, end_ms = _parse("end", end)
        for first, stop in ((start_id, end_id), (start_ms, end_ms)):
            if first is not None and stop is not None and first > stop:  # type: ignore[operator]
                message = (
                    f"{option_name('start')} is after {option_name('end')}: {start!r} is later"
                    f" than {end!r}"
                )
                raise OptionError(message)
        return cls(start_id, end_id, start_ms, end_ms)

    def intersect(self, other: Bounds) -> Bounds:
        """Return the bounds of the rows that are in both; the end may be before the start."""
        return Bounds(
            _first_of(max, self.start_id, other.start_id),
            _first_of(min, self.end_id, other.end_id),
            _first_of(max, self.start_ms, other.start_ms),
            _first_of(min, self.end_ms, other.end_ms),
        )

    @property
    def first_ledger_id(self) -> int:
        """The first ledger that may have rows in the range."""
        return 0 if self.start_id is None else self.start_id[0]

    @property
    def last_ledger_id(self) -> int:
        """The last ledger that may have rows in the range (inclusive)."""
        if self.end_id is None:
            return MAX_LEDGER_ID
        ledger_id, entry_id, batch_index = self.end_id
        return ledger_id if (entry_id, batch_index) > (0, 0) else ledger_id - 1

    @property
    def has_start(self) -> bool:
        """Whether there is a lower bound."""
        return self.start_id is not None or self.start_ms is not None

    @property
    def by_time(self) -> bool:
        """Whether publish times are bounded."""
        return self.start_ms is not None or self.end_ms is not None

    def matching_rows(self, rows: MessageColumns) -> pa.Int64Array | None:
        """Return the indices of the rows in the range, ascending; None if all rows are."""
        conditions = []
        if self.start_id is not None:
            conditions.append(_not_before(rows, self.start_id))
        if self.end_id is not None:
            conditions.append(pc.invert(_not_before(rows, self.end_id)))
        if self.by_time:
            times = rows.entry_numbers(layout.PUBLISH_TIME)
            if self.start_ms is not None:
                conditions.append(pc.greater_equal(times, self.start_ms))
            if self.end_ms is not None:
                conditions.append(pc.less(times, self.end_ms))
        if not conditions:
            return None
        matches = conditions[0]
        for each in conditions[1:]:
            matches = pc.and_(matches, each)
        if pc.all(matches).as_py():
            return None
        return pc.indices_nonzero(matches).cast(pa.int64())


def _first_of(
    choose: Callable[[_Value, _Value], _Value], one: _Value | None, other: _Value | None
) -> _Value | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def _not_before(rows: MessageColumns, bound: tuple[int, int, int]) -> pa.BooleanArray:
    """Return whether each row is at or after `bound`; an unbatched message has batch index 0."""
    ledger, entry, batch = bound
    ledgers, entries = rows.ledger_ids(), rows.entry_numbers(layout.ENTRY_ID)
    members = pc.max_element_wise(rows.row_numbers(layout.ROW_BATCH_INDEX), 0)
    in_entry = pc.and_(pc.equal(entries, entry), pc.greater_equal(members, batch))
    in_ledger = pc.and_(pc.equal(ledgers, ledger), pc.or_(pc.greater(entries, entry), in_entry))
    return pc.or_(pc.greater(ledgers, ledger), in_ledger)


# `object`, because callers may pass anything, whatever the option's annotation says.
def _parse(option: str, bound: object) -> tuple[tuple[int, int, int] | None, int | None]:
    if bound is None:
        return None, None
    message_id = MessageId.parse(bound)
    if message_id is not None:
        ledger, entry, batch, _ = message_id
        return (ledger, entry, max(0, batch)), None
    milliseconds = _milliseconds(bound)
    if milliseconds is None:
        message = (
            f"{option_name(option)} must be a datetime, its ISO text, or a message id (ledger,"
            f" entry[, batch]), not {bound!r}"
        )
        raise OptionError(message)
    return None, milliseconds


def _milliseconds(bound: object) -> int | None:
    """Round a time up to whole ms, the unit of publish times; return None if it is not a time."""
    if type(bound).__module__ == "numpy" and type(bound).__name__ == "datetime64":
        return _numpy_milliseconds(bound)
    if isinstance(bound, str):
        try:
            bound = datetime.fromisoformat(bound.strip())
        except ValueError:
            return None
    if not isinstance(bound, date) or bound != bound:  # noqa: PLR0124 - NaT is unlike itself
        return None
    if not isinstance(bound, datetime):
        bound = datetime.combine(bound, time())
    aware = bound if bound.tzinfo else bound.replace(tzinfo=UTC)
    return -((EPOCH - aware) // _MS)


def _numpy_milliseconds(bound: Any) -> int | None:  # noqa: ANN401 - a datetime64, in any unit
    if bound != bound:  # noqa: PLR0124 - NaT is unlike itself
        return None
    floor = bound.astype("datetime64[ms]")
    unit = bound.dtype.str.partition("[")[2].strip("0123456789]")
    if unit in _COARSE_UNITS and floor.astype(bound.dtype) != bound:
        # The conversion to ms wrapped around.
        return None
    return int(floor.astype("int64")) + bool(floor < bound)
