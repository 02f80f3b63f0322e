"""The options of the commands: those of the table, spelled for a shell, and how they are read."""

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
from connector.options.topic_request import FIXED_BY_REPLAY, OPTIONS, TopicRequest
from connector.options.write_request import WRITE_OPTIONS, WriteRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typer.models import OptionInfo

    from connector.options.option import Option


def _shell_name(option: Option) -> str:
    """Its name among a command's parameters; one that may be repeated is singular."""
    return option.name.removesuffix("s") if option.kind.repeats else option.name


@dataclass(frozen=True)
class OptionGroup:
    """Stands for some options of the table among the parameters of a command.

    Attributes:
        names: Their names in Python.
        options: The table.
        make: Makes the value of the options.
    """

    names: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=lambda: OPTIONS)
    make: Callable[..., TopicRequest | WriteRequest] = TopicRequest

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that take their place."""
        return [_parameter(self.options[name]) for name in self.names]

    def request(self, texts: dict[str, Any]) -> TopicRequest | WriteRequest:
        """The options as one value.

        Args:
            texts: What the shell gave, by parameter; those of these options are taken out of it.

        Raises:
            OptionError: A text is not of its option's form.
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
    """An option of a table, as typer takes it."""
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
"""Those that bound a replay, and say how its messages are read."""
Place: TypeAlias = Annotated[TopicRequest, OptionGroup(_PLACE)]
"""Those that say where topics are."""
Listing: TypeAlias = Annotated[TopicRequest, OptionGroup((*_PLACE, "on_corruption"))]
"""Where topics are, and whether damage is an error."""
Bucket: TypeAlias = Annotated[TopicRequest, OptionGroup(("storage_options",))]
"""How to get at a bucket alone."""
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
        help="A condition, as a query might have it: only what rows that meet it may be in counts."
        " Columns are compared with literals, such as __key__ = 'k42'.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option("--verbose", help="Print a line for each ledger even if there is no terminal."),
]


@dataclass(frozen=True)
class FormGroup:
    """Stands for --format and --json among the parameters of a command.

    Attributes:
        help: The help of --format.
        json_help: The help of --json.
    """

    help: str = (
        "How rows are printed: table (the default), csv, json (one array), jsonl (one object a"
        " line), or markdown."
    )
    json_help: str = "The same as --format jsonl."

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that take its place."""
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
        """The form; what the shell gave for it is taken out of the texts.

        Raises:
            OptionError: Two forms are given.
        """
        form, as_json = texts.pop("form"), texts.pop("as_json")
        if as_json and form not in (None, "jsonl"):
            message = f"--json is --format jsonl: leave it out, or --format {form}"
            raise OptionError(message)
        return "jsonl" if as_json else form or "table"


Printing: TypeAlias = Annotated[Form, FormGroup()]
"""How the rows of a command are printed."""
PrintingWhole: TypeAlias = Annotated[
    Form,
    FormGroup(
        help="How it is printed: table (the default), csv or markdown (only the rows of the table),"
        " json or jsonl (one object with everything).",
        json_help="The same as --format json.",
    ),
]
"""How a command is printed whose JSON is one object, and not its rows."""


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """The command, with the options of a group in place of each `OptionGroup` that it takes.

    Args:
        function: The command; for a group it is called with the `TopicRequest` of its options.
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
    """URLs of buckets from `name=url` texts.

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
    """Options from `key=value` texts; no message shows a value, which may be a secret.

    Args:
        option: Name of the command's option, for messages.
        texts: The texts.

    Raises:
        OptionError: A text is not a pair, or a name is given twice or lacks a part; or a value
            begins as JSON and is not JSON.
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
    """Whether a shell gives it without a value, as it is off otherwise."""
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
