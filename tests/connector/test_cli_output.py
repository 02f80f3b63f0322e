"""How the commands print: tables on terminals and elsewhere, and progress."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from threading import Timer
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa
import pytest
from rich.cells import cell_len

from arrow_io.storage.trace import RequestKind, RequestTrace
from connector.cli.output import print_json, print_rows, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VALUE: Final = (
    '{"orderId":1,"customer":{"id":35,"name":"数据 ledger am","email":"c35@example.org"}}'
)
NARROW: Final = 60


class Terminal(io.StringIO):
    """A stream that passes for a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Terminal]:
    """Makes stdout and stderr a terminal of so many columns."""

    def make(columns: int) -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm-256color")
        return stream

    return make


def printed(table: pa.Table) -> int:
    """Print a table, and give what `print_table` gives."""
    return print_table(table.schema, table.to_batches(max_chunksize=2))


def orders(rows: int = 3) -> pa.Table:
    """Rows with a number, a short text and a long one."""
    return pa.table(
        {
            "n": pa.array(range(rows)),
            "key": pa.array(["a", None, "b\tc"] * rows)[:rows],
            "value": pa.array([VALUE.encode()] * rows),
        }
    )


def test_tables_on_a_terminal_are_cut_to_its_width(terminal: Callable[[int], Terminal]) -> None:
    """Each line is exactly as wide as the terminal; what was cut ends with an ellipsis."""
    stream = terminal(NARROW)

    assert printed(orders()) == 3

    lines = stream.getvalue().splitlines()
    assert {cell_len(line) for line in lines} == {NARROW}
    assert [line[-3] for line in lines[3:-1]] == ["…"] * 3
    assert [line[2] for line in lines[3:-1]] == ["0", "1", "2"]
    assert "NULL" in lines[4]
    assert "b\\tc" in lines[5]


def test_tables_take_no_more_width_than_they_need(terminal: Callable[[int], Terminal]) -> None:
    """On a wide terminal nothing is cut, and no line is padded to the terminal's width."""
    stream = terminal(500)

    printed(orders())

    assert VALUE in stream.getvalue()
    assert max(map(cell_len, stream.getvalue().splitlines())) < 150


def test_rows_become_lists_where_a_table_does_not_fit(terminal: Callable[[int], Terminal]) -> None:
    """With too many columns for the terminal, each row is printed as one line a column."""
    stream = terminal(NARROW)

    printed(pa.table({f"column_{n}": pa.array([VALUE, "short"]) for n in range(5)}))

    lines = stream.getvalue().splitlines()
    assert lines[0] == f"── row 1 {'─' * (NARROW - 9)}"
    assert lines[6] == f"── row 2 {'─' * (NARROW - 9)}"
    assert lines[7:] == [f"column_{n}  short" for n in range(5)]
    assert all(line.endswith("…") for line in lines[1:6])
    assert {cell_len(line) for line in lines[1:6]} == {NARROW}


def test_nothing_is_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A cell longer than a column is ever padded to stands whole, and widens no other row."""
    long = "x" * 5000

    printed(pa.table({"a": ["short", long], "b": ["c", "d"]}))

    lines = capsys.readouterr().out.splitlines()
    assert lines[4] == f"│ {long} │ d │"
    assert [len(line) for line in lines if long not in line] == [len(lines[0])] * 5
    assert len(lines[0]) < 250


def test_frames_are_plain_where_the_encoding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that cannot encode lines gets a frame of ASCII."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)

    printed(pa.table({"a": ["b"]}))

    stream.seek(0)
    assert stream.read().splitlines() == ["+---+", "| a |", "|---|", "| b |", "+---+"]


class TimerThatFires(Timer):
    """A timer whose time has come as soon as it is started."""

    def start(self) -> None:
        """Call the function in this thread."""
        assert self.interval == 1
        self.function()

    def join(self, timeout: float | None = None) -> None:
        """There is no thread to wait for."""


class TimerThatDoesNot(TimerThatFires):
    """A timer that is cancelled before its time."""

    def start(self) -> None:
        """Call nothing."""


def shown_by(timer: type[Timer], stream: io.StringIO) -> str:
    """What progress writes about a read of one request and 2,048 bytes."""
    trace = RequestTrace()
    trace.note_request(RequestKind.LIST, "")
    trace.note_received_bytes(RequestKind.RANGE_GET, 2048)
    with progress(trace, timer):
        pass
    return stream.getvalue()


def test_progress_is_shown_of_what_takes_long(terminal: Callable[[int], Terminal]) -> None:
    """On a terminal, a read that takes over a second is told about, and the line is erased."""
    shown = shown_by(TimerThatFires, terminal(NARROW))

    assert "reading … 1 request, 2.05 kB" in shown
    assert shown.endswith("\x1b[2K")


class _Writing:
    """How far a write is."""

    def text(self) -> str:
        """For a terminal."""
        return "writing … 3 messages"

    def fields(self) -> dict[str, object]:
        """For an event."""
        return {"messages": 3}


def test_progress_of_what_is_no_read(terminal: Callable[[int], Terminal]) -> None:
    """What takes long may say itself how far it has come."""
    stream = terminal(NARROW)

    with progress(RequestTrace(), TimerThatFires, _Writing()):
        pass

    assert "writing … 3 messages" in stream.getvalue()


def test_no_progress_is_shown_of_what_is_soon_done(terminal: Callable[[int], Terminal]) -> None:
    """A read that is done within a second writes nothing."""
    assert shown_by(TimerThatDoesNot, terminal(NARROW)) == ""


def test_no_progress_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a pipe gets no progress, whatever the environment says of colours."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert shown_by(TimerThatFires, stream) == ""


def test_names_are_cut_at_their_beginning(terminal: Callable[[int], Terminal]) -> None:
    """Topics of a namespace differ at the end of their names only."""
    names = [f"persistent://public/default/{'x x' * 13}/orders", "persistent://public/default/b"]
    stream = terminal(50)

    printed(pa.table({"topic": names, "text": ["some words and more of them"] * 2}))

    *_, longest, shorter, _ = stream.getvalue().splitlines()
    assert longest == "│ …xx xx xx xx x/orders │ some words and more o… │"
    assert shorter == "│ …t://public/default/b │ some words and more o… │"


@pytest.mark.parametrize(("unit", "text"), [("s", "PT1H1S"), ("ns", "PT0.000003601S")])
def test_durations_are_iso_8601(unit: str, text: str) -> None:
    """Whatever their unit is; Python's timedelta has no nanoseconds."""
    column = pa.array([3601, None], pa.duration(unit))
    shown = io.StringIO()
    with redirect_stdout(shown):
        print_json([pa.record_batch({"d": column})])

    assert [json.loads(line)["d"] for line in shown.getvalue().splitlines()] == [text, None]


FORMS: Final = pa.table(
    {
        "n": pa.array([1, None, 3]),
        "text": ['a,"b"', "", "two\nlines | \\"],
        "data": [b"text", b"\xff", None],
        "list": [[1, None], [], None],
        "flag": [True, False, None],
    }
)


def test_csv_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Null and an empty text differ, and texts keep their commas, quotes and lines."""
    rows = print_rows(FORMS.schema, FORMS.to_batches(max_chunksize=2), "csv")

    printed_csv = capsys.readouterr().out
    assert rows == 3
    assert printed_csv == (
        "n,text,data,list,flag\n"
        '1,"a,""b""",text,"[1, null]",true\n'
        ',"",0xff,[],false\n'
        '3,"two\nlines | \\",,,\n'
    )
    file = tmp_path / "rows.csv"
    file.write_text(printed_csv)
    sql = "SELECT n, text, list FROM read_csv(?, header := true, allow_quoted_nulls := false)"
    assert duckdb.execute(sql, [str(file)]).fetchall() == [
        (1, 'a,"b"', "[1, null]"),
        (None, "", "[]"),
        (3, "two\nlines | \\", None),
    ]


def test_csv_does_not_steer_a_terminal(terminal: Callable[[int], Terminal]) -> None:
    """Control characters are escaped on a terminal."""
    stream = terminal(80)

    print_rows(pa.schema({"a": pa.string()}), [pa.record_batch({"a": ["\x1b[2J"]})], "csv")

    assert stream.getvalue() == "a\n\\x1b[2J\n"


def test_markdown_has_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Bars, backslashes and line ends are escaped; numbers are aligned to the right."""
    print_rows(FORMS.schema, FORMS.to_batches(), "markdown")

    assert capsys.readouterr().out == (
        "| n | text | data | list | flag |\n"
        "| ---: | --- | --- | --- | --- |\n"
        '| 1 | a,"b" | text | [1, null] | true |\n'
        "| NULL |  | 0xff | [] | false |\n"
        "| 3 | two\\\\nlines \\| \\\\ | NULL | NULL | NULL |\n"
    )


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_json_is_an_array_of_what_jsonl_has(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    """However many rows there are."""
    batches = FORMS.slice(0, rows).to_batches(max_chunksize=2)

    print_rows(FORMS.schema, batches, "json")
    array = json.loads(capsys.readouterr().out)
    print_rows(FORMS.schema, batches, "jsonl")

    assert array == [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(array) == rows
