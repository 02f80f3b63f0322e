"""Command-line options, generated from the option tables of reads and writes."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from arrow_io.errors import OptionError
from arrow_io.storage.redaction import redacted_urls
from connector.cli.forms import Form
from connector.options.kinds import BY_NAME, FLAG, URLS_BY_NAME
from connector.options.nested import put_text
from connector.options.topic_request import (
    DECODING_OPTIONS,
    FIXED_BY_REPLAY,
    OPTIONS,
    TopicRequest,
)
from connector.options.write_request import WRITE_OPTIONS, WriteRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typer.models import OptionInfo

    from connector.options.option import Option


def _shell_name(option: Option) -> str:
    """Return the parameter name: singular if the option may be repeated."""
    return option.name.removesuffix("s") if option.kind.repeats else option.name


@dataclass(frozen=True)
class OptionGroup:
    """Marker for a command parameter that is replaced by options of a table.

    Attributes:
        names: Names of the options in Python.
        make: Class of the request that the options become.
    """

    names: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=lambda: OPTIONS)
    make: Callable[..., TopicRequest | WriteRequest] = TopicRequest

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters that replace the group."""
        return [_parameter(self.options[name]) for name in self.names]

    def request(self, texts: dict[str, Any]) -> TopicRequest | WriteRequest:
        """Remove the texts of the options from the parsed arguments, and return the request.

        Raises:
            OptionError: A text cannot be parsed.
        """
        arguments = {name: texts.pop(_shell_name(self.options[name])) for name in self.names}
        values: dict[str, Any] = {
            name: _value(self.options[name], each)
            for name, each in arguments.items()
            if each not in (None, [], False)
        }
        return self.make(**values)


_HOW_TO_REPEAT: Final = {
    URLS_BY_NAME: "May be repeated.",
    BY_NAME: "May be repeated. Dots nest (client_kwargs.region_name=…). JSON is read as JSON, so a"
    " number that is text may need quotes (key='\"12\"').",
}


def shell_option(option: Option) -> OptionInfo:
    """Return the typer option for an option of a table."""
    help_text = " ".join(filter(None, (option.help, _HOW_TO_REPEAT.get(option.kind))))
    if option.default_text and not _is_switch(option):
        help_text += f" [default: {option.default_text}]"
    allowed = list(option.kind.allowed)
    info: OptionInfo = typer.Option(
        f"--{_shell_name(option).replace('_', '-')}",
        metavar=None if _is_switch(option) else option.kind.form,
        help=help_text,
        show_default=False,
        autocompletion=(lambda: allowed) if allowed else None,
    )
    return info


_IN_SHELL = tuple(name for name, option in OPTIONS.items() if option.in_python_only is None)
_PLACE = tuple(name for name in _IN_SHELL if OPTIONS[name].scope == "place")

Reading: TypeAlias = Annotated[TopicRequest, OptionGroup(_IN_SHELL)]
"""All options of `open_topic`."""
_REPLAYED = tuple(name for name in _IN_SHELL if name not in FIXED_BY_REPLAY)
Replaying: TypeAlias = Annotated[TopicRequest, OptionGroup(_REPLAYED)]
"""Options that bound a replay, and define how its messages are read."""
Decoding: TypeAlias = Annotated[TopicRequest, OptionGroup(DECODING_OPTIONS)]
"""Options that define how values are decoded."""
Place: TypeAlias = Annotated[TopicRequest, OptionGroup(_PLACE)]
"""Options that locate topics."""
Listing: TypeAlias = Annotated[TopicRequest, OptionGroup((*_PLACE, "on_corruption"))]
"""Options that locate topics, and choose whether damage is an error."""
Bucket: TypeAlias = Annotated[TopicRequest, OptionGroup(("storage_options",))]
"""Options for access to a bucket only."""
Registry: TypeAlias = Annotated[TopicRequest, OptionGroup(("schema_options",))]
"""Options for access to a schema registry only."""
_WRITING = tuple(name for name, each in WRITE_OPTIONS.items() if each.in_python_only is None)
Writing: TypeAlias = Annotated[WriteRequest, OptionGroup(_WRITING, WRITE_OPTIONS, WriteRequest)]
"""All options of `write_messages`."""

Url: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="Bucket, prefix or folder: a path, s3://bucket/prefix, or any URL of fsspec."
    ),
]
Topic: TypeAlias = Annotated[
    str, typer.Argument(help="Name (orders), full name, or glob (sales-*).")
]
Where: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="SQL condition: only data that may contain matching rows counts. It compares columns"
        " with literals, such as __key__ = 'k42'.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option("--verbose", help="Print a line for each ledger even without a terminal."),
]


@dataclass(frozen=True)
class FormGroup:
    """Marker for a command parameter that is replaced by --format and --json."""

    help: str = (
        "Output format of rows: table (the default), csv, json (one array), jsonl (one object per"
        " line), or markdown."
    )
    json_help: str = "The same as --format jsonl."

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters that replace the group."""
        form = Annotated[
            Form | None,
            typer.Option("--format", help=self.help),
        ]
        as_json = Annotated[bool, typer.Option("--json", help=self.json_help)]
        keyword = inspect.Parameter.KEYWORD_ONLY
        return [
            inspect.Parameter("form", keyword, default=None, annotation=form),
            inspect.Parameter("as_json", keyword, default=False, annotation=as_json),
        ]

    def request(self, texts: dict[str, Any]) -> Form:
        """Remove --format and --json from the parsed arguments, and return the output format.

        Raises:
            OptionError: `--json` and another format are combined.
        """
        form, as_json = texts.pop("form"), texts.pop("as_json")
        if as_json and form not in (None, "jsonl"):
            message = f"--json means --format jsonl: leave out --json or --format {form}"
            raise OptionError(message)
        return "jsonl" if as_json else form or "table"


Printing: TypeAlias = Annotated[Form, FormGroup()]
"""Output format of a command's rows."""
PrintingWhole: TypeAlias = Annotated[
    Form,
    FormGroup(
        help="Output format: table (the default), csv or markdown (only the rows of the table),"
        " json or jsonl (one object with everything).",
        json_help="The same as --format json.",
    ),
]
"""Output format of a command whose JSON is one object rather than rows."""


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each `OptionGroup` and `FormGroup` replaced by its options.

    The command itself receives one request per group.
    """
    signature = inspect.signature(function, eval_str=True)
    groups = {
        each.name: group
        for each in signature.parameters.values()
        for group in getattr(each.annotation, "__metadata__", ())
        if isinstance(group, OptionGroup | FormGroup)
    }
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += groups[each.name].parameters() if each.name in groups else [each]

    @functools.wraps(function)
    def run(**texts: Any) -> None:  # noqa: ANN401 - as typer reads them
        requests = {name: group.request(texts) for name, group in groups.items()}
        function(**texts, **requests)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def bucket_urls(texts: Iterable[str] | None) -> dict[str, str]:
    """Parse `name=url` texts.

    Raises:
        OptionError: A text is not a pair.
    """
    pairs = [each.partition("=") for each in texts or ()]
    for pair in pairs:
        name, _, url = pair
        if not (name and url):
            message = (
                "--bucket must be NAME=URL, such as archive=s3://archive, not"
                f" {redacted_urls(''.join(pair))!r}"
            )
            raise OptionError(message)
    return {name: url for name, _, url in pairs}


def key_values(option: str, texts: Iterable[str] | None) -> dict[str, object]:
    """Parse `key=value` texts. Error messages contain no value, which may be a secret.

    Raises:
        OptionError: A text is not a pair; a name is repeated or has an empty part; or a value
            starts like JSON but is not.
    """
    options: dict[str, object] = {}
    for each in texts or ():
        name, is_pair, text = each.partition("=")
        if not is_pair:
            message = f"{option} must be KEY=VALUE"
            raise OptionError(message)
        put_text(options, option, name, text)
    return options


def _is_switch(option: Option) -> bool:
    """Return whether the option is off by default and has no value on the command line."""
    return option.kind is FLAG and option.default is False


def _parameter(option: Option) -> inspect.Parameter:
    type_: Any = (list[str] if option.kind.repeats else str) | None
    default = None
    if _is_switch(option):
        type_, default = bool, False
    return inspect.Parameter(
        _shell_name(option),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type_, shell_option(option)],
    )


def _value(option: Option, argument: Any) -> object:  # noqa: ANN401 - a text, several, a flag
    if argument is True:
        return argument
    if option.kind is URLS_BY_NAME:
        return bucket_urls(argument)
    if option.kind.repeats:
        return key_values(f"--{_shell_name(option).replace('_', '-')}", argument)
    return option.read(argument)
