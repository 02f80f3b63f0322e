"""The definition of an option, its names, values and help, for every surface that offers it."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeAlias, TypeVar

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden, hidden_url
from connector.options import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping

    from connector.options.kinds import Kind

Scope: TypeAlias = Literal["place", "catalog", "topic"]
"""What an option is about: where topics are, how a catalog is opened, or how topics are read.

`open_catalog` takes the options of the first two scopes, so a catalog fixes them."""

_OPTION: Final = "option"
_HELP_WIDTH: Final = 96

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, kw_only=True)
class Option:
    """The definition of an option.

    Attributes:
        kind: The allowed values.
        help: Its meaning, in sentences that hold on every surface.
        unit: The unit of its number; None if it has none.
        scope: What it is about.
        is_secret: Whether its value may contain a secret.
        in_python_only: Why other surfaces lack the option; None if they have it.
        not_in_spark: Why Spark lacks the option; None if it has it.
        name: Its name in Python, in SQL and in Spark.
        type: Its type in Python.
        default: The default value; None if there is none.
    """

    kind: Kind
    help: str
    unit: str | None = None
    scope: Scope = "topic"
    is_secret: bool = False
    in_python_only: str | None = None
    not_in_spark: str | None = None
    name: str = ""
    type: str = ""
    default: object = None

    @property
    def default_text(self) -> str:
        """The default as text, with its unit; empty if there is none."""
        if self.default is None:
            return ""
        text = str(self.default)
        text = text.lower() if isinstance(self.default, bool) else text
        return f"{text} {self.unit}" if self.unit else text

    @property
    def is_fixed_by_catalog(self) -> bool:
        """Whether it is an option of `open_catalog`, so that a catalog fixes it."""
        return self.scope != "topic"

    def differs_from_default(self, value: object) -> bool:
        """Return whether a value differs from the default."""
        # Without a default, compare with None only: == on values such as arrays is not a bool.
        return value is not None if self.default is None else value != self.default

    def check(self, value: object) -> None:
        """Check a value on its own, without the values of other options.

        Raises:
            OptionError: It is not allowed.
        """
        if value is not None or self.default is not None:
            self.kind.check(self.name, value)

    def read(self, text: str) -> Any:  # noqa: ANN401 - the kind decides
        """Convert a text, as Spark, SQL and the shell pass it, to a value.

        Raises:
            OptionError: The text does not have the option's form.
        """
        if self.kind.read is None:
            message = f"{self.name} cannot be passed as text: {self.in_python_only}"
            raise OptionError(message)
        value = self.kind.read(self.name, self.hide(text))
        self.check(value)
        return value

    def hide(self, value: Any) -> Any:  # noqa: ANN401 - as it came
        """Return the same value, hidden from stack frames if it may contain a secret."""
        return hidden(value) if self.is_secret else hidden_url(value)


def option_metadata(kind: Kind, help_: str, **facts: Any) -> dict[str, Option]:  # noqa: ANN401
    """Return the metadata of a dataclass field that is an option."""
    return {_OPTION: Option(kind=kind, help=help_, **facts)}


def options_of(request: type) -> Mapping[str, Option]:
    """Return the options among a dataclass's fields, by name."""
    return {
        each.name: replace(
            each.metadata[_OPTION], name=each.name, type=str(each.type), default=each.default
        )
        for each in fields(request)
    }


STORAGE_OPTIONS: Final = option_metadata(
    kinds.BY_NAME,
    "Options of the fsspec file system, such as key, secret and client_kwargs. s3fs also reads"
    " credentials from the environment.",
    scope="place",
    is_secret=True,
)
TRACE: Final = option_metadata(
    kinds.TRACE,
    "Counts the requests.",
    scope="catalog",
    in_python_only="it is an object that is read later",
)


def selected_options(options: Container[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a function's arguments that are options, by name."""
    return {name: value for name, value in arguments.items() if name in options}


def help_text(helps: Mapping[str, str]) -> str:
    """Format help on options as a docstring section."""
    return "\n".join(
        textwrap.fill(
            f"{name}: {text}",
            width=_HELP_WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, text in helps.items()
    )


def hidden_arguments(
    options: Mapping[str, Option], arguments: Mapping[str, Any], secrets: Collection[str] = ()
) -> dict[str, Any]:
    """Return a function's arguments by name, with possible secrets hidden.

    Args:
        options: The options that may be among them.
        arguments: The arguments. Those that are not options are treated as URLs.
        secrets: Names of additional arguments that are secret.
    """
    return {
        name: hidden(value)
        if name in secrets
        else options[name].hide(value)
        if name in options
        else hidden_url(value)
        for name, value in arguments.items()
    }


def takes_options(
    options: Mapping[str, Option], *, secrets: Collection[str] = ()
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator for functions that have options as keyword parameters.

    It hides possible secrets among the arguments, so that no stack frame of the function shows
    them. It adds the help on its options to the docstring's section `Args`.

    Args:
        options: The options by name. Other arguments are treated as URLs.
        secrets: Names of additional arguments that are secret.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def call(*args: Any, **named: Any) -> _R:  # noqa: ANN401 - those of the function
            args = tuple(hidden_url(each) if isinstance(each, str) else each for each in args)
            named = hidden_arguments(options, named, secrets)
            return function(*args, **named)

        doc = inspect.getdoc(function) or ""
        helps = {
            name: options[name].help
            for name in inspect.signature(function).parameters
            if name in options and f"\n    {name}: " not in doc
        }
        if helps and "\nArgs:\n" in doc:
            head, raises, tail = doc.partition("\n\nRaises:")
            call.__doc__ = f"{head}\n{help_text(helps)}{raises}{tail}"
        return call

    return decorate
