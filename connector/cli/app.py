"""Registration, exit codes and error output of all `pulsar-offload` commands.

A module of commands imports `command`, and registers its functions with it when it is imported.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from contextlib import contextmanager, nullcontext
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from arrow_io.errors import (
    BrokerError,
    ConcurrentCopyError,
    EncryptedPayloadError,
    EntryTooLargeError,
    FormatError,
    IncompleteReadWarning,
    LakeTableError,
    LateLedgerError,
    MissingObjectError,
    OpenTransactionError,
    OptionError,
    PulsarOffloadError,
    SchemaError,
    StorageError,
    TopicNotFoundError,
    TrimmedEntriesError,
    UndecodedValuesWarning,
    UnknownSchemaVersionError,
    UnsearchedFoldersWarning,
    UnusedStatisticsWarning,
    UnusedTableWarning,
)
from connector.cli import event_lines, interrupts, streams
from connector.cli.log_lines import LogLevel, logging_to_stderr
from connector.cli.options import with_options
from connector.cli.output import say
from connector.cli.program import app, spell_options
from connector.display.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOTED = (
    IncompleteReadWarning,
    UndecodedValuesWarning,
    UnsearchedFoldersWarning,
    UnusedStatisticsWarning,
    UnusedTableWarning,
)
_Progress: TypeAlias = Literal["text", "json"]
_SHARED: Final = (
    inspect.Parameter(
        "log_level",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            LogLevel | None, typer.Option(help="Log to stderr: requests, plans, commits, retries.")
        ],
    ),
    inspect.Parameter(
        "progress",
        inspect.Parameter.KEYWORD_ONLY,
        default="text",
        annotation=Annotated[
            _Progress,
            typer.Option(
                help="Form of stderr. json: one JSON object a line, for events and errors."
            ),
        ],
    ),
)
"""Options of each command."""
_GOLDEN = "tests/data/golden/pulsar-4.0.7/objects"


class ExitCode(IntEnum):
    """Exit codes of the process. Scripts rely on the numbers, and `--help` documents them."""

    FAILED = streams.FAILED
    USAGE = 2
    TOPIC_NOT_FOUND = 3
    STORAGE = 4
    UNREADABLE = 5
    INCOMPLETE = 6
    FOUND = 7
    TRY_AGAIN = 8
    INTERRUPTED = interrupts.INTERRUPTED
    CLOSED_PIPE = streams.CLOSED_PIPE
    TERMINATED = interrupts.TERMINATED


def group(name: str, about: str) -> typer.Typer:
    """Return a new group of commands that share the first word of their names."""
    subcommands = typer.Typer(name=name, no_args_is_help=True, rich_markup_mode=None)
    subcommands.callback(help=about)(spell_options)
    app.add_typer(subcommands)
    return subcommands


def command(
    example: str, *, url: str | None = _GOLDEN, writes: bool = False, parent: typer.Typer = app
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that registers a function as a command.

    Args:
        example: Arguments after the URL of the example in the command's help.
        url: URL of the example; None if the command takes no URL.
        writes: Whether to give the command time to delete half-written objects after an interrupt.
        parent: The program, or a group of its commands.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        read = with_options(function)

        @functools.wraps(read)
        def run(*, log_level: LogLevel | None, progress: _Progress, **texts: Any) -> None:  # noqa: ANN401 - as typer reads them
            with (
                event_lines.as_json(is_requested=progress == "json"),
                logging_to_stderr(log_level),
                _report_errors(),
                interrupts.cleaned_up() if writes else nullcontext(),
            ):
                read(**texts)

        parameters = inspect.signature(read).parameters.values()
        run.__signature__ = inspect.Signature([*parameters, *_SHARED])  # type: ignore[attr-defined]

        # A function whose name is used otherwise (a builtin or an import) ends with "_".
        name = function.__name__.rstrip("_")
        words = name if parent is app else f"{parent.info.name} {name}"
        line = " ".join(["pulsar-offload", words, *filter(None, [url]), example])
        parent.command(name, epilog=f"\b\nExample:\n  {line}")(run)
        return run

    return register


@contextmanager
def _report_errors() -> Iterator[None]:
    """Print our errors and warnings on stderr, and exit with the matching code."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            for category in _NOTED:
                warnings.simplefilter("always", category)
            yield
            sys.stdout.flush()
    except KeyboardInterrupt:
        # Python would wait for requests of other threads.
        interrupts.exit_at_once()
    except PulsarOffloadError as error:
        _print_error(error)
        # The form of values does not matter if none were printed.
        caught = [each for each in caught if each.category is not UndecodedValuesWarning]
        raise typer.Exit(_exit_code(error)) from None
    finally:
        incomplete = _print_warnings(caught)
    if incomplete:
        raise typer.Exit(ExitCode.INCOMPLETE)


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print our warnings when the body ends: it is one of many parts of a command."""
    with warnings.catch_warnings(record=True) as caught:
        for category in _NOTED:
            warnings.simplefilter("always", category)
        try:
            yield
        finally:
            _print_warnings(caught)


def _print_error(error: PulsarOffloadError) -> None:
    notes = [line for note in getattr(error, "__notes__", ()) for line in note.split("\n")]
    fields = {
        "error_type": type(error).__name__,
        "exit_code": int(_exit_code(error)),
        "object": error.object_key,
        "ledger_id": error.ledger_id,
        "entry_id": error.entry_id,
        "offset": error.offset,
        "notes": notes or None,
    }
    say("error", str(error), **fields)
    if not event_lines.is_json():
        for line in notes:
            sys.stderr.write(f"{printable(line)}\n")


def _print_warnings(caught: list[warnings.WarningMessage]) -> bool:
    """Print each of our warnings once, and pass on others. Return whether rows are missing."""
    notes: dict[str, None] = {}
    for each in caught:
        if issubclass(each.category, _NOTED):
            notes[str(each.message)] = None
        elif event_lines.is_json():
            say("warning", str(each.message), category=each.category.__name__)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for note in notes:
        say("note", note)
    return any(issubclass(each.category, IncompleteReadWarning) for each in caught)


def _exit_code(error: PulsarOffloadError) -> ExitCode:
    match error:
        case OptionError() | EntryTooLargeError() | LakeTableError():
            return ExitCode.USAGE
        case TopicNotFoundError():
            return ExitCode.TOPIC_NOT_FOUND
        case StorageError() | MissingObjectError() | BrokerError():
            return ExitCode.STORAGE
        case (
            FormatError()
            | EncryptedPayloadError()
            | LateLedgerError()
            | SchemaError()
            | UnknownSchemaVersionError()
        ):
            return ExitCode.UNREADABLE
        case ConcurrentCopyError() | OpenTransactionError() | TrimmedEntriesError():
            return ExitCode.TRY_AGAIN
    return ExitCode.FAILED
