"""Output of the commands: tables, CSV, JSON and Markdown on stdout; progress and notes on stderr.

Control characters in text are escaped, so that messages cannot control the terminal.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from itertools import islice, pairwise
from threading import Timer
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from rich.box import ROUNDED
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from arrow_io.core.telemetry import LOG, NULL_HANDLER
from arrow_io.core.wording import counted
from connector.cli import event_lines
from connector.cli.forms import csv_line, markdown_head, markdown_line
from connector.display.text import printable, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from arrow_io.storage.trace import RequestCounts, RequestTrace
    from connector.cli.forms import Form

_NARROWEST_COLUMN = 20
"""Minimum width to which columns are cut if a table is wider than the terminal, in characters."""
_WIDEST_COLUMN = 200
"""Maximum width of a column without a terminal, in characters. Longer cells exceed it."""
_RECORD_WIDTH = 60
"""Width of the line between records without a terminal, in characters."""
_PATIENCE_S = 1.0
_NAME = re.compile(r"(\w+://|…).+")
"""A name with a scheme, which may already be cut."""
_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_WHITE_SPACE = str.maketrans("", "", "\t\n\r")


class Status(Protocol):
    """How far a command is."""

    def text(self) -> str:
        """Return it for a terminal."""

    def fields(self) -> Mapping[str, object]:
        """Return it as fields of an event."""


def say(kind: str, text: str, **fields: object) -> None:
    """Print one line on stderr, such as `error: …`; or an event of this kind, with fields."""
    if event_lines.is_json():
        event_lines.write_event(kind, text=text, **fields)
    else:
        sys.stderr.write(f"{kind}: {printable(text)}\n")


def shows_each_ledger(*, verbose: bool) -> bool:
    """Return whether a long command prints a line or an event on stderr for each ledger."""
    return verbose or event_lines.is_json() or sys.stderr.isatty()


def cost_text(counts: RequestCounts, rows: int, seconds: float) -> str:
    """Return a line with the cost of a read: its rows, requests, bytes and duration."""
    kinds = (
        (counts.list_requests, "listing"),
        (counts.index_requests, "index object"),
        (counts.head_requests, "head"),
        (counts.range_requests, "range"),
    )
    sent = ", ".join(counted(number, noun) for number, noun in kinds if number)
    return (
        f"{counted(rows, 'row')}, {counted(counts.requests, 'request')} ({sent}),"
        f" {size_text(counts.received_bytes)} read, {seconds:.2f} s"
    )


@contextmanager
def progress(
    trace: RequestTrace,
    timer: Callable[[float, Callable[[], None]], Timer] = Timer,
    status: Status | None = None,
) -> Iterator[None]:
    """Show progress on stderr if it is a terminal and the body takes over a second; or as events.

    Args:
        trace: Counts the requests of a read.
        timer: Creates a timer that calls a function after a number of seconds.
        status: The progress. By default, the requests and bytes of the trace.
    """

    def fields() -> dict[str, object]:
        counts = trace.counts
        own = {} if status is None else status.fields()
        return {"requests": counts.requests, "received_bytes": counts.received_bytes, **own}

    if event_lines.is_json():
        with event_lines.progress_events(fields, timer, is_whole=status is not None):
            yield
        return
    # Lines of a log would mix with the progress.
    if not sys.stderr.isatty() or set(LOG.handlers) - {NULL_HANDLER}:
        yield
        return

    def line() -> Text:
        if status is not None:
            return Text(status.text())
        counts = trace.counts
        return Text(
            f"reading … {counted(counts.requests, 'request')}, {size_text(counts.received_bytes)}"
        )

    live = Live(
        get_renderable=line,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    patience = timer(_PATIENCE_S, live.start)
    patience.start()
    try:
        yield
    finally:
        patience.cancel()
        patience.join()
        live.stop()


def show_progress(
    batches: Iterable[pa.RecordBatch], trace: RequestTrace
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and show progress while waiting for each."""
    iterator = iter(batches)
    while True:
        with progress(trace):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def print_json(batches: Iterable[pa.RecordBatch]) -> int:
    """Print each row as a JSON object on its own line, and return the number of rows.

    Values are converted by `json_value`. Columns with the same name become `a`, `a_1`, ….
    """
    rows = 0
    for batch in batches:
        lines = _json_lines(batch)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        rows += len(lines)
    return rows


def _json_lines(batch: pa.RecordBatch) -> list[str]:
    names = _distinct(batch.schema.names)
    return [
        json.dumps({name: json_value(value) for name, value in zip(names, row, strict=True)})
        for row in _rows(batch)
    ]


def _print_json_array(batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    for line in (line for batch in batches for line in _json_lines(batch)):
        sys.stdout.write(f"{',' if rows else '['}\n{line}")
        rows += 1
    sys.stdout.write("\n]\n" if rows else "[]\n")
    return rows


def _print_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    # Only a terminal needs escaped control characters; programs get the text unchanged.
    escape = printable if sys.stdout.isatty() else str
    sys.stdout.write(csv_line(map(escape, _distinct(schema.names))))
    rows = 0
    for row in (row for batch in batches for row in _rows(batch)):
        texts = map(_csv_text, row)
        sys.stdout.write(csv_line(each if each is None else escape(each) for each in texts))
        rows += 1
    return rows


def _csv_text(value: object) -> str | None:
    """Convert a value as for JSON, but bytes that are not text to hexadecimal."""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return f"0x{value.hex()}"
    plain = json_value(value)
    if plain is None or isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False)


def _print_markdown(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    numeric = [_is_number(each) for each in schema.types]
    sys.stdout.write(markdown_head(list(map(printable, schema.names)), numeric))
    rows = 0
    for row in (row for batch in batches for row in _rows(batch)):
        sys.stdout.write(markdown_line(map(cell_text, row)))
        rows += 1
    return rows


def json_value(value: object) -> object:
    """Convert a value to one that JSON supports.

    Bytes are text if they are UTF-8, otherwise `{"base64": "…"}`. Times and intervals are ISO 8601.
    Decimals with a fraction, infinities, NaN, and other types without a JSON equivalent are text.
    """
    match value:
        case None | bool() | int() | str():
            plain: object = value
        case float():
            plain = value if math.isfinite(value) else str(value)
        case Decimal():
            plain = int(value) if value.as_tuple().exponent == 0 else str(value)
        case bytes():
            plain = _json_bytes(value)
        case datetime():
            plain = _iso(value, "T")
        case pa.MonthDayNano():
            plain = _iso_interval(*value)
        case dict():
            plain = {_json_key(key): json_value(item) for key, item in value.items()}
        case list():
            plain = [json_value(item) for item in value]
        case _:
            plain = str(value)
    return plain


def _json_bytes(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _json_key(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(json_value(key))


def cell_text(value: object) -> str:
    """Return the text of a table cell: as in JSON, but hexadecimal if bytes are not text."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return _bytes_text(value)
        case datetime():
            return _iso(value, " ")
        case _Time():
            return value.replace("T", " ")
        case bool() | dict() | list():
            return printable(json.dumps(json_value(value), ensure_ascii=False))
    return printable(str(json_value(value)))


def print_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Print all rows as a table, and return the number of rows.

    On a terminal, cells are cut to its width. If too little of them would remain, each row is
    printed with one line per column. Without a terminal, nothing is cut.
    """
    console = Console()
    width = console.width if sys.stdout.isatty() else None
    rows = [
        [_truncate(cell_text(value), width) for value in row]
        for batch in batches
        for row in _rows(batch)
    ]
    names = [printable(name) for name in schema.names]
    box = ROUNDED.substitute(console.options)
    table = _Table(names, rows, width)
    if width is None or table.width <= width:
        numeric = [_is_number(each) for each in schema.types]
        lines = [box.get_top(table.framed_widths), table.line(names, box.mid_left, numeric)]
        lines.append(box.get_row(table.framed_widths, "head"))
        lines += [table.line(row, box.mid_left, numeric) for row in rows]
        lines.append(box.get_bottom(table.framed_widths))
    else:
        lines = list(_records(names, rows, width))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return len(rows)


class _Table:
    """Layout of a table, with the width of each column in terminal cells."""

    def __init__(
        self, names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
    ) -> None:
        self._cuts = width is not None
        limit = width or _WIDEST_COLUMN
        columns = zip(names, *rows, strict=True)
        self.widths = [min(max(map(cell_len, column)), limit) for column in columns]
        while width is not None and self.width > width and max(self.widths) > _NARROWEST_COLUMN:
            self.widths[self.widths.index(max(self.widths))] -= 1

    @property
    def framed_widths(self) -> list[int]:
        return [width + 2 for width in self.widths]

    @property
    def width(self) -> int:
        return sum(self.framed_widths) + len(self.widths) + 1

    def line(self, cells: Sequence[str], edge: str, right: Sequence[bool]) -> str:
        """Return one line of cells, aligned to the right where `right` is True."""
        padded = map(self._pad, cells, self.widths, right)
        return f"{edge} {f' {edge} '.join(padded)} {edge}"

    def _pad(self, cell: str, width: int, right: bool) -> str:  # noqa: FBT001
        cell = _truncate(cell, width if self._cuts else None)
        space = " " * (width - cell_len(cell))
        return space + cell if right else cell + space


def print_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], form: Form) -> int:
    """Print all rows in an output format, and return the number of rows."""
    match form:
        case "table":
            return print_table(schema, batches)
        case "csv":
            return _print_csv(schema, batches)
        case "json":
            return _print_json_array(batches)
        case "jsonl":
            return print_json(batches)
        case "markdown":
            return _print_markdown(schema, batches)


def print_texts(column: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Print a column of texts with their line breaks, and return the number of rows."""
    texts = [text for batch in batches for text in batch.column(column).to_pylist()]
    for line in (line for text in texts for line in text.splitlines()):
        sys.stdout.write(f"{printable(line)}\n")
    return len(texts)


def print_records(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Print each row with one line per column, uncut, and return the number of rows."""
    rows = [[cell_text(value) for value in row] for batch in batches for row in _rows(batch)]
    names = [printable(name) for name in schema.names]
    sys.stdout.write("".join(f"{line}\n" for line in _records(names, rows, None)))
    return len(rows)


def _records(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> Iterator[str]:
    """Yield the lines of rows with one line per column, cut to `width` unless it is None."""
    name_width = max(map(cell_len, names))
    for number, row in enumerate(rows, 1):
        yield f"── row {number} ".ljust(width or _RECORD_WIDTH, "─")
        for name, cell in zip(names, row, strict=True):
            yield _truncate(f"{set_cell_size(name, name_width)}  {cell}", width)


def _truncate(cell: str, width: int | None) -> str:
    """Cut a cell to a width unless it is None. Names with a scheme keep their ends."""
    if width is None or cell_len(cell) <= width:
        return cell
    # Names with a scheme begin alike, and differ at their ends.
    if _NAME.fullmatch(cell):
        return "…" + set_cell_size(cell[::-1], width - 1)[::-1]
    return set_cell_size(cell, width - 1) + "…"


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*map(_values, batch.columns), strict=True)


class _Time(str):
    """A time as ISO 8601 text that Python's own types cannot represent."""

    __slots__ = ()


def _values(column: pa.Array) -> list[object]:
    """Return Python values, and text for times that Python would truncate or cannot represent."""
    type_ = column.type
    if pa.types.is_struct(type_):
        names = _distinct([field.name for field in type_])
        rows = zip(*map(_values, column.flatten()), strict=True)
        structs = [dict(zip(names, row, strict=True)) for row in rows]
        return _null_where_invalid(structs, column)
    if pa.types.is_list(type_):
        items = iter(_values(column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [None if length is None else list(islice(items, length)) for length in lengths]
    if pa.types.is_map(type_) and not pa.types.is_nested(type_.key_type):
        pairs = list(zip(_values(column.keys), _values(column.items), strict=True))
        maps = [dict(pairs[start:stop]) for start, stop in pairwise(column.offsets.to_pylist())]
        return _null_where_invalid(maps, column)
    if pa.types.is_duration(type_):
        unit_ns = _UNITS_NS[type_.unit]
        counts = column.cast(pa.int64()).to_pylist()
        return [
            each if each is None else pa.MonthDayNano([0, 0, each * unit_ns]) for each in counts
        ]
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return _times(column)
    values: list[object] = column.to_pylist()
    return values


def _null_where_invalid(values: list[dict[Any, object]], column: pa.Array) -> list[object]:
    valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _times(column: pa.Array) -> list[object]:
    """Return times, as Arrow's text if Python cannot represent them: ns, or after 9999."""
    type_ = column.type
    if getattr(type_, "unit", None) != "ns":
        with suppress(OverflowError, ValueError):
            values: list[object] = column.to_pylist()
            return values
    zone = getattr(type_, "tz", None)
    # With a time zone, Arrow prints years after 32767 wrong.
    texts = (column.cast(pa.timestamp(type_.unit)) if zone else column).cast(pa.string())
    return [text and _spell_time(text, zone) for text in texts.to_pylist()]


def _spell_time(text: str, zone: str | None) -> str:
    if text.startswith("<"):  # a year that Arrow has no text for
        return text
    return _Time(text.replace(" ", "T") + ("Z" if zone else ""))


def _distinct(names: Sequence[str]) -> list[str]:
    distinct: list[str] = []
    for name in names:
        candidate, number = name, 0
        while candidate in distinct:
            number += 1
            candidate = f"{name}_{number}"
        distinct.append(candidate)
    return distinct


def _bytes_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return printable(text) if text.translate(_WHITE_SPACE).isprintable() else f"0x{value.hex()}"


def _iso(value: datetime, separator: str) -> str:
    timespec = "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.isoformat(separator, timespec).replace("+00:00", "Z")


def _iso_interval(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval in ISO 8601; each part has its own sign."""
    years, months = _parts(months, 12)
    seconds, fraction = _parts(nanoseconds, 10**9)
    minutes, seconds = _parts(seconds, 60)
    hours, minutes = _parts(minutes, 60)
    sign = "-" if seconds < 0 or fraction < 0 else ""
    digits = f"{sign}{abs(seconds)}.{abs(fraction):09}".rstrip("0").rstrip(".")
    date = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n)
    time = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if seconds or fraction or not (date or time):
        time += f"{digits}S"
    return f"P{date}T{time}" if time else f"P{date}"


def _parts(number: int, unit: int) -> tuple[int, int]:
    """Return quotient and remainder, both with the sign of the number."""
    quotient, remainder = divmod(abs(number), unit)
    return (quotient, remainder) if number >= 0 else (-quotient, -remainder)


def _is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_))
