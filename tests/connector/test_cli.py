"""The command `pulsar-offload` as a program: exit codes, help, and what it needs."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest
from typer.testing import CliRunner

from arrow_io import errors
from arrow_io.core.extras import install_command
from arrow_io.errors import EntryNotInLedgerError, PulsarOffloadError
from connector import cli
from connector.catalog.tables import LEDGER_SCHEMA
from connector.cli import app as cli_app
from connector.cli import contents, messages
from tests.support.buckets import golden_objects, memory_bucket
from tests.support.command_line import (
    APP,
    FOUND,
    INCOMPLETE,
    NOT_FOUND,
    OK,
    ORDERS,
    STORAGE,
    TRY_AGAIN,
    UNREADABLE,
    URL,
    USAGE,
    broken,
    broken_orders,
    lines_of,
    run,
)
from tests.support.golden import golden_topic

if TYPE_CHECKING:
    import pyarrow as pa

ROOT: Final = Path(__file__).parents[2]
COMMANDS: Final = (
    "topics",
    "ledgers",
    "blocks",
    "objects",
    "save",
    "head",
    "plan",
    "query",
    "cost",
    "policy",
    "audit",
    "clean",
    "replay",
    "repair",
    "report",
    "schema show",
    "schema export",
)
TELLING: Final = ("save", "audit", "clean", "repair", "report", "schema export")
"""Those that print no rows, or only if something is wrong."""
EXPECTED_ERRORS: Final = {
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, PulsarOffloadError)
} - {PulsarOffloadError, EntryNotInLedgerError}
"""All but the base, which stands for a query that failed, and what only `LedgerOffloader` meets."""

# Exit codes


@pytest.mark.parametrize(
    ("arguments", "ends", "said"),
    [
        (["head", URL, "json-order"], NOT_FOUND, "did you mean"),
        (["ledgers", URL, "json-order"], NOT_FOUND, "did you mean"),
        (["topics", URL, "none-*"], NOT_FOUND, "no offloaded topic"),
        (["query", URL, "FROM read_pulsar('json-order')"], NOT_FOUND, "json-orders"),
        (["query", URL, "FROM sql"], NOT_FOUND, "no offloaded topic"),
        (["query", URL, "FROM nothing"], NOT_FOUND, "no offloaded topic"),
        (["topics", "no/such/folder"], STORAGE, "no such folder"),
        (["query", "no/such/folder", "SELECT 1"], STORAGE, "no such folder"),
        (["query", URL, "FROM read_pulsar('string', url := '/no/such')"], STORAGE, "/no/such"),
        (["topics", "s3://"], USAGE, "names no bucket"),
        (["topics", "nothing://x"], USAGE, "nothing://x"),
        (["topics", URL, "--storage-option", "anon"], USAGE, "must be KEY=VALUE"),
        (["topics", URL, "--storage-option", "a=1", "--storage-option", "a.b=1"], USAGE, "a.b"),
        (["head", URL, "json-orders", "--columns", "nothing"], USAGE, "__key__"),
        (["head", URL, "json-orders", "--start", "soon"], USAGE, "'soon'"),
        (["query", URL, ""], USAGE, "no statement"),
        (["query", URL, "SELECT x FROM string"], USAGE, 'column "x" not found'),
        (["query", URL, "FROM read_pulsar('string', start := 'soon')"], USAGE, "'soon'"),
        (["head", URL, "encrypted"], UNREADABLE, "client-rsa"),
        (["query", URL, "SELECT __value__ FROM encrypted"], UNREADABLE, "client-rsa"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(arguments: list[str], ends: int, said: str) -> None:
    """Each kind of error has its exit code, and one line on stderr without a traceback."""
    result = run(*arguments, ends=ends)

    assert re.fullmatch(r"error: [^\n]*\n", result.stderr)
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("sql", "caret_at", "hint"),
    [
        ("CHOOSE 1", "CHOOSE", ""),
        ("SELECT 'a'::INT", "::INT", ""),
        (
            "FROM json-orders",
            "-orders",
            'in SQL, a name with a hyphen needs quotes: "json-orders"\n',
        ),
        (
            "SELECT 1\nFROM a-b, multi-ledger",
            "-b",
            'in SQL, a name with a hyphen needs quotes: "multi-ledger"\n',
        ),
    ],
)
def test_wrong_sql_is_shown_with_its_place(sql: str, caret_at: str, hint: str) -> None:
    """The line and a caret, as DuckDB has them, and which names need quotes."""
    told = run("query", URL, sql, ends=USAGE).stderr

    error, line, caret, *others = told.splitlines(keepends=True)
    assert re.match("error: (Parser|Conversion) Error: ", error)
    assert line[caret.index("^") :].startswith(caret_at)
    assert "".join(others) == hint


@pytest.mark.parametrize(
    ("folder", "found_by"),
    [
        ("base/pulsar/public/default/persistent/orders", "its folder base/pulsar"),
        ("public/default/persistent/orders", None),
        ("default/persistent/orders", "the folder 1 level above it"),
        ("", "the folder 4 levels above it"),
    ],
)
@pytest.mark.parametrize("command", ["topics", "head"])
def test_a_url_that_finds_map_files_is_named(
    command: str, folder: str, found_by: str | None, tmp_path: Path
) -> None:
    """The URL of the filesystem driver is the folder that contains the tenants."""
    map_file = tmp_path / folder / "508-df664a3c-d9a3-4ad4-bef2-0cbe54c03ef3"
    map_file.mkdir(parents=True)
    (tmp_path / "logs" / "old").mkdir(parents=True)
    (map_file / "data").write_bytes(b"SEQ")
    more = {"head": ["nothing"]}.get(command, [])

    result = run(command, str(tmp_path), *more, ends=NOT_FOUND if command == "head" else OK)

    expected = "1 data object without an index object and 2 folders (logs, public)"
    if found_by is not None:
        expected = f"MapFiles of the filesystem driver, found by the URL of {found_by}"
    assert f"{tmp_path} has no offloaded ledger, but {expected}" in result.stderr


@pytest.mark.parametrize("command", ["topics", "audit"])
def test_a_wrong_place_is_told_apart_from_an_empty_one(command: str, tmp_path: Path) -> None:
    """Who named the folder above the bucket's hears what lies there instead."""
    empty, above = tmp_path / "empty", tmp_path / "above"
    empty.mkdir()
    (above / "bucket").mkdir(parents=True)
    (above / "page.html").write_text("<html></html>")

    assert f"note: there is nothing at {empty}\n" in run(command, str(empty)).stderr
    ends = OK if command == "topics" else FOUND
    told = run(command, str(above), ends=ends).stderr
    assert (
        f"note: {above} has no offloaded ledger, but 1 other object (page.html) and 1 folder"
        " (bucket)\n" in told
    )


@pytest.mark.parametrize(
    "arguments",
    [[], ["nothing"], ["head", URL], ["head", URL, "x", "-n", "-1"], ["topics", URL, "--nothing"]],
)
def test_wrong_usage_ends_with_two(arguments: list[str]) -> None:
    """What the command line itself gets wrong is told by the command line."""
    run(*arguments, ends=USAGE)


def test_damage_behind_the_first_rows_ends_a_query_too(tmp_path: Path) -> None:
    """Rows that were printed already do not hide that the next could not be read."""
    topic = golden_topic("multi-block")
    for name, data in broken(
        golden_objects(topic), topic.ledgers[0].data_object.name, 12_000_000
    ).items():
        (tmp_path / name).write_bytes(data)

    result = run(
        "query", str(tmp_path), 'SELECT __entry_id__, __value__ FROM "multi-block"', ends=UNREADABLE
    )

    assert result.stderr.startswith("error: the CRC32C of the entry")


def test_salvaged_rows_are_printed_and_the_loss_told() -> None:
    """With --on-corruption salvage, all other rows come, with a note and an exit code."""
    with memory_bucket(broken_orders()) as bucket:
        options = ("--on-corruption", "salvage", "--value", "raw")
        head = ("head", bucket.url, "json-orders", "-n", "400", "--columns", "__value__", *options)
        query = ("query", bucket.url, 'SELECT __value__ FROM "json-orders"', *options)
        listed = [lines_of(*arguments, ends=INCOMPLETE) for arguments in (head, query)]
        told = [run(*arguments, ends=INCOMPLETE).stderr for arguments in (head, query)]

    note = f"note: {ORDERS.name}: 1 × entry lost: ChecksumError\n"
    assert listed[0] == listed[1]
    assert 300 < len(listed[0]) < 400
    assert told[0] == note
    assert told[1].endswith(note)


def test_what_is_left_out_is_told_once() -> None:
    """Open transactions are a note and exit code 6, also where two readers of a query tell them."""
    sql = 'FROM "transactions-open" UNION ALL FROM "transactions-open"'

    result = run("query", URL, sql, "--value", "raw", ends=INCOMPLETE)

    assert result.stderr.count("note: ") == 1
    assert "7 messages of 1 transaction" in result.stderr


def test_warnings_of_others_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's warning is neither lost nor taken for a note."""

    def warn(*_arguments: object, **_options: object) -> pa.Table:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return LEDGER_SCHEMA.empty_table()

    monkeypatch.setattr(contents, "ledgers_table", warn)
    with pytest.warns(DeprecationWarning, match="old"):
        result = run("ledgers", URL, "json-orders")

    assert result.stderr == ""


# Help, and the command as a program


@pytest.mark.parametrize("error", sorted(EXPECTED_ERRORS, key=str))
def test_every_error_ends_with_a_code_that_says_what_it_is(
    error: type[PulsarOffloadError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 1 is for what is unexpected: no error that a command can meet ends with it."""
    message = "this"

    def fail(*_arguments: object, **_options: object) -> NoReturn:
        raise error(message)

    monkeypatch.setattr(messages, "open_request", fail)
    result = CliRunner().invoke(APP, ["head", URL, "orders"])

    assert result.stderr == "error: this\n"
    assert result.exit_code in {USAGE, NOT_FOUND, STORAGE, UNREADABLE, TRY_AGAIN}


def test_help_names_commands_and_exit_codes() -> None:
    """The help lists each command with a whole sentence, and says what each exit code means."""
    shown = run("--help").stdout

    listed = set(re.findall(r"^  (\w+)  ", shown, re.MULTILINE))
    assert {each.split()[0] for each in COMMANDS} <= listed
    assert re.findall(r"^  \w+  .*\.\.\.$", shown, re.MULTILINE) == []
    codes = re.findall(r"^ {2,4}(\d+)  ", shown, re.MULTILINE)
    assert [int(code) for code in codes] == [0, *cli_app.ExitCode]


def test_the_help_and_the_page_say_the_same_of_exit_codes() -> None:
    """Word for word, because a script's author reads either."""
    _, _, shown = run("--help").stdout.partition("Exit codes:")
    page = (ROOT / "docs" / "errors.md").read_text("utf-8").replace("`", "")

    told = dict(re.findall(r"^ {2,4}(\d+)  ((?:.+\n(?: {6,}.+\n)*))", shown, re.MULTILINE))
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE))
    assert {code: " ".join(text.split()) for code, text in told.items()} == rows


@pytest.mark.posix
@pytest.mark.parametrize("command", TELLING)
def test_examples_that_tell_run(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The examples of commands that print no rows run as they stand, too, and say one line."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    *_, example = run(*command.split(), "--help").stdout.rstrip().splitlines()
    program, *arguments = shlex.split(example)

    assert f"{program} {' '.join(arguments)}".startswith(f"pulsar-offload {command} ")
    assert len(run(*arguments).stdout.splitlines()) == 1


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in TELLING])
def test_examples_of_the_help_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help of each command ends with an example that runs as it stands and prints rows."""
    monkeypatch.chdir(ROOT)
    *_, example = run(*command.split(), "--help").stdout.rstrip().splitlines()
    program, *arguments = shlex.split(example)

    assert f"{program} {' '.join(arguments)}".startswith(f"pulsar-offload {command} ")
    assert len(run(*arguments).stdout.splitlines()) > 3
    assert lines_of(*arguments)


def test_output_is_stable_when_it_is_piped() -> None:
    """As a program, the same bytes come whatever the terminal is, and notes without a path."""
    arguments = ["head", URL, "int16", "-n", "3"]
    ended = subprocess.run(
        [sys.executable, "-m", "connector.cli", *arguments],
        env={
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
            "TERM": "xterm-256color",
            "COLUMNS": "300",
            "FORCE_COLOR": "1",
            "CLICOLOR_FORCE": "1",
        },
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
    )

    expected = run(*arguments)
    assert (ended.stdout, ended.stderr) == (expected.stdout, expected.stderr)
    assert "\x1b" not in ended.stdout


def test_program_ends_with_the_exit_code() -> None:
    """As a program, an error is one line, and its exit code the process's, in any encoding."""
    name = "orders-été"
    command = [sys.executable, "-m", "connector.cli", "topics", URL, name]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    result = subprocess.run(
        command, env=environment, capture_output=True, check=False, cwd=ROOT, text=True
    )

    assert result.returncode == NOT_FOUND
    assert re.fullmatch(r"error: [^\n]*orders-\\xe9t\\xe9[^\n]*\n", result.stderr)
    assert result.stdout == ""


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_command_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages of the extra, the command names the extra instead of a traceback."""
    monkeypatch.setattr(sys, "argv", ["pulsar-offload", "plan", URL, "json-orders"])
    for name in ("connector.cli.program", "connector.cli.reading", "connector.cli.output"):
        monkeypatch.delitem(sys.modules, name)
    for name in [each for each in sys.modules if each.partition(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(SystemExit, match=re.escape(install_command("cli"))):
        cli.main()


def test_command_hides_no_other_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of the base install that is missing is not taken for one of the extra."""
    monkeypatch.setattr(sys, "argv", ["pulsar-offload", "plan", URL, "json-orders"])
    monkeypatch.delitem(sys.modules, "connector.cli.program")
    monkeypatch.delitem(sys.modules, "connector.cli.reading")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ModuleNotFoundError, match="pyarrow"):
        cli.main()


def test_query_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DuckDB, query names the extra."""
    monkeypatch.setitem(sys.modules, "duckdb", None)

    result = run("query", URL, "SELECT 1", ends=USAGE)

    assert install_command("cli", "duckdb") in result.stderr


def test_saving_is_told_in_json(tmp_path: Path) -> None:
    """What was saved, and where, for scripts."""
    file = str(tmp_path / "catalog.json.gz")

    assert lines_of("save", URL, file) == [{"file": file, "topics": 45, "ledgers": 52}]


def test_reporting_is_told_in_json(tmp_path: Path) -> None:
    """Where the page is, and its size, for scripts."""
    file = tmp_path / "report.html"

    told = lines_of("report", URL, "json-orders", "--output", str(file))

    assert told == [{"file": str(file), "bytes": file.stat().st_size}]


def test_version_is_told() -> None:
    """As every program does, and without a command."""
    assert run("--version").stdout == f"pulsar-offload {version('pulsar-offload')}\n"


def test_shells_can_complete_commands() -> None:
    """What `--show-completion` prints asks the program for its commands."""
    command = [sys.executable, "-m", "connector.cli"]
    asked = {
        "_PULSAR_OFFLOAD_COMPLETE": "complete_bash",
        "COMP_WORDS": "pulsar-offload he",
        "COMP_CWORD": "1",
    }

    told = subprocess.run(
        command, env={**os.environ, **asked}, capture_output=True, check=True, cwd=ROOT, text=True
    )

    assert told.stdout.split() == ["head"]


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in {*TELLING, "copy"}])
@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "markdown"])
def test_rows_are_printed_in_every_form(
    command: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever prints rows takes --format, and prints nothing else on stdout."""
    monkeypatch.chdir(ROOT)
    *_, example = run(*command.split(), "--help").stdout.rstrip().splitlines()
    _, *arguments = shlex.split(example)
    shown = run(*arguments, "--format", form).stdout

    if form == "json":
        assert json.loads(shown)
    elif form == "jsonl":
        assert shown == run(*arguments, "--json").stdout
    elif form == "csv":
        rows = list(csv.reader(shown.splitlines()))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 1
    else:
        assert all(line.startswith("| ") and line.endswith(" |") for line in shown.splitlines())


def test_two_forms_are_refused() -> None:
    """--json is one of them."""
    error = run("topics", URL, "--json", "--format", "csv", ends=USAGE).stderr

    assert error == "error: --json means --format jsonl: leave out --json or --format csv\n"
    assert run("topics", URL, "--json", "--format", "jsonl").stdout


@pytest.mark.parametrize("form", ["csv", "json", "markdown"])
def test_rows_that_are_followed_are_printed_as_they_come(form: str) -> None:
    """A form with a head or an end is for rows that have an end."""
    error = run("tail", URL, "json-orders", "--follow", "--format", form, ends=USAGE).stderr

    assert f"not as {form}" in error
