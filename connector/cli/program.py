"""The program `pulsar-offload`. Modules of commands are imported when a command runs.

Listing the commands imports neither Arrow nor another large library.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from arrow_io.core.option_names import use_spelling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.core.option_names import Spelling

COMMANDS: Final = {
    "demo": ("demo", "Ask a question in SQL about a topic of this package."),
    "topics": ("contents", "List topics and their offloaded ledgers."),
    "ledgers": ("contents", "List the ledgers of a topic, and where they are."),
    "blocks": ("contents", "List the data blocks of a topic's offloaded ledgers."),
    "objects": ("contents", "List the objects of the bucket or of a topic."),
    "save": ("contents", "Save a catalog snapshot of the bucket to a file, for --metadata."),
    "head": ("messages", "Print the first messages of a topic."),
    "tail": ("messages", "Print the last messages of a topic."),
    "get": ("messages", "Print the messages of an id, a key or a property."),
    "plan": ("reading", "Print the requests and bytes that reading a topic will take."),
    "query": ("reading", "Run SQL over topics, and print its requests and bytes."),
    "schema": ("schemas", "Show the schemas of a topic, or write them as files."),
    "cost": ("forecast", "Estimate the cost in money of reading a topic or running a query."),
    "policy": ("forecast", "Predict what offload and retention settings would do to a topic."),
    "analyze": ("statistics", "Gather statistics of topics, which let later reads skip data."),
    "audit": ("audit", "Find missing, damaged and unneeded objects in a bucket."),
    "clean": ("audit", "Delete objects that nothing needs, according to the audit."),
    "report": ("audit", "Write an HTML report on a topic or the whole bucket."),
    "repair": ("repair", "Rebuild missing and damaged index objects from their data objects."),
    "write": ("writing", "Write messages from files, as the offloaded ledgers of a topic."),
    "attach": ("attaching", "Check whether a written topic can be attached to a cluster."),
    "copy": ("copying", "Copy new messages of topics to Delta, Iceberg or Parquet tables."),
    "lake": ("lake", "Maintain the tables that copies write, and their dead letters."),
    "replay": ("replaying", "Send a topic of a bucket to a live topic, each message once."),
}
"""Module and summary of each command, in the order of the help."""


class _PandasHidden:
    """Context in which pandas cannot be imported."""

    def __enter__(self) -> None:
        """Become the first finder of modules."""
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        """Let pandas be imported again."""
        sys.meta_path.remove(self)

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas; leave other modules to the next finder."""
        if name == "pandas":
            message = "pandas is not needed by the command line"
            raise ModuleNotFoundError(message, name=name)


class _Unloaded(TyperCommand):
    """Placeholder for a command whose module is not imported yet."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as typer has it
        return load_command(self).make_context(*args, **kwargs)


class _Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as typer has them
        super().__init__(**attributes)
        imported = self.commands
        self.commands = {
            name: imported.get(name) or _Unloaded(name, short_help=summary)
            for name, (_, summary) in COMMANDS.items()
        }


app = typer.Typer(
    name="pulsar-offload",
    cls=_Commands,
    help="Inspect and query Apache Pulsar topics that were offloaded to a bucket.",
    epilog="""
\b
Exit codes:
  0  success
  1  the query failed in DuckDB, the output cannot be written, or something
     unexpected happened
  2  the command line, an option or the SQL is wrong, or a lake table does not fit
  3  there is no such topic in the bucket
  4  there is no such bucket, folder or object; or a request, to a store or a
     broker, failed or was refused
  5  data cannot be read: damaged, encrypted, or of an unknown format or schema
  6  something was left out, as notes say; everything else was printed
  7  the audit or a check found something, but all messages can be read
  8  another run wrote in the meantime, a transaction is still open, or the
     cluster deleted messages: run it again
130  Ctrl-C interrupted it
141  the reader of the output, such as head, closed it
143  SIGTERM ended it
\b
Results go to stdout, everything else to stderr. Tables on a terminal are cut to
its width; elsewhere, and with --json, nothing is cut.
\b
In JSON, bytes are text if they are UTF-8, else {"base64": "…"}; times and
intervals are ISO 8601; decimals with a fraction, infinities and NaN are text.
""",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def load_command(command: Any) -> Any:  # noqa: ANN401 - typer's own class is not public
    """Import the real command if this is a placeholder, and return it."""
    if not isinstance(command, _Unloaded):
        return command
    module, _ = COMMANDS[str(command.name)]
    # Arrow imports pandas if it is installed, only to recognise its objects: a fifth of the time
    # that a small command takes.
    with _PandasHidden():
        import_module("pyarrow.dataset")
    import_module(f"{__package__}.{module}")
    group: Any = get_command(app)
    return group.commands[str(command.name)]


def _print_version(is_requested: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_requested:
        typer.echo(f"pulsar-offload {version('pulsar-offload')}")
        raise typer.Exit


@app.callback()
def _program(
    context: typer.Context,
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Handle the options before the command."""
    spell_options(context)


def spell_options(context: typer.Context) -> None:
    """Let error messages spell option names as the chosen command does."""
    if isinstance(context.command, TyperGroup) and context.invoked_subcommand is not None:
        chosen_command = load_command(context.command.commands[context.invoked_subcommand])
        names = {
            str(each.name): max(each.opts, key=len)
            for each in chosen_command.params
            if each.param_type_name == "option"
        }
        context.with_resource(use_spelling(_make_speller(names)))


def _make_speller(names: Mapping[str, str]) -> Spelling:
    """Return a function that spells options by a command's parameters, such as `--value raw`."""

    def spell(name: str, value: object) -> str:
        # Options that may be repeated are singular on the command line.
        spelling = names.get(name) or names.get(name.removesuffix("s")) or name
        return spelling if value is None else f"{spelling} {value}"

    return spell
