"""Registration, exit codes and error output of all `pulsar-offload` commands.

A module of commands imports `command`, and registers its functions with it when it is imported.
"""

from __future__ import annotations

import functools
import sys
import warnings
from contextlib import contextmanager, nullcontext
from enum import IntEnum
from typing import TYPE_CHECKING, ParamSpec

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
)
from connector.cli import interrupts, streams
from connector.cli.options import with_options
from connector.cli.output import say
from connector.cli.program import app, spell_options
from connector.display.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Parameters = ParamSpec("_Parameters")
_NOTED = (
    IncompleteReadWarning,
    UndecodedValuesWarning,
    UnsearchedFoldersWarning,
    UnusedStatisticsWarning,
)
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
    example: str, *, url: str = _GOLDEN, writes: bool = False, parent: typer.Typer = app
) -> Callable[[Callable[_Parameters, None]], Callable[_Parameters, None]]:
    """Return a decorator that registers a function as a command.

    Args:
        example: Arguments after the URL of the example in the command's help.
        url: URL of the example.
        writes: Whether to give the command time to delete half-written objects after an interrupt.
        parent: The program, or a group of its commands.
    """

    def register(function: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
        read = with_options(function)

        @functools.wraps(read)
        def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
            with _report_errors(), interrupts.cleaned_up() if writes else nullcontext():
                read(*args, **kwargs)

        # A function whose name is used otherwise (a builtin or an import) ends with "_".
        name = function.__name__.rstrip("_")
        words = name if parent is app else f"{parent.info.name} {name}"
        line = f"pulsar-offload {words} {url} {example}"
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
        say("error", str(error))
        for line in (line for note in getattr(error, "__notes__", ()) for line in note.split("\n")):
            sys.stderr.write(f"{printable(line)}\n")
        # The form of values does not matter if none were printed.
        caught = [each for each in caught if each.category is not UndecodedValuesWarning]
        raise typer.Exit(_exit_code(error)) from None
    finally:
        incomplete = _print_warnings(caught)
    if incomplete:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _print_warnings(caught: list[warnings.WarningMessage]) -> bool:
    """Print each of our warnings once, and pass on others. Return whether rows are missing."""
    notes: dict[str, None] = {}
    for each in caught:
        if issubclass(each.category, _NOTED):
            notes[str(each.message)] = None
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
