"""Options of writing with Spark: parses Spark's strings into a write target.

This module has only Spark's own options and spellings. All others are those of
`connector.options.write_request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Self

from arrow_io.errors import OptionError
from connector.options.kinds import read_count, read_text
from connector.options.write_request import WRITE_OPTIONS, WriteRequest
from connector.writing.write_target import WriteTarget
from spark_ds.options import LOCATION_HELP, Parser, PassedOptions, bucket_location, option_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.options.option import Option

DEFAULT_TASK_LEDGERS: Final = 1000

_IGNORED: Final = frozenset({"checkpointlocation"})
"""Options for Spark itself, which it also passes to a source."""
_TASK_LEDGERS: Final = "task_ledgers"
OWN_WRITING_HELP: Final = {
    "topic": "Name of the topic to write to.",
    _TASK_LEDGERS: "Maximum number of ledgers that a task may write: the number of ids reserved for"
    f" each task. By default {DEFAULT_TASK_LEDGERS}.",
    "secret.metadata_options": "The same as metadata_options.",
}
"""Help of options for writing that only Spark has."""
_SPARK_WRITE_OPTIONS: Final = {
    name: each
    for name, each in WRITE_OPTIONS.items()
    if each.in_python_only is None and name != "storage_options"
}
WRITING_NOTES: Final = {
    "cluster": "Not for streams.",
    "first_ledger_id": "Not for streams.",
    "write_id": "Not for streams: each of their batches has an id.",
}
"""Spark's peculiarities of shared options for writing."""
WRITING_HELP: Final = (
    LOCATION_HELP
    | OWN_WRITING_HELP
    | {
        name: " ".join(filter(None, (option.help, WRITING_NOTES.get(name))))
        for name, option in _SPARK_WRITE_OPTIONS.items()
        if option.not_in_spark is None
    }
)
"""Help of each option for writing."""


def _parser(option: Option) -> Parser:
    def refuse(name: str, _text: str) -> NoReturn:
        message = f"option {name} is not for Spark: {option.not_in_spark}"
        raise OptionError(message)

    return option_parser(option) if option.not_in_spark is None else refuse


_PARSERS: Final[Mapping[str, tuple[str, Parser]]] = {
    "topic": ("topic", read_text),
    _TASK_LEDGERS: (_TASK_LEDGERS, read_count),
    "secret.metadata_options": (
        "metadata_options",
        option_parser(WRITE_OPTIONS["metadata_options"]),
    ),
    **{name: (name, _parser(option)) for name, option in _SPARK_WRITE_OPTIONS.items()},
}
"""Field and parser of each option for writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a write. Printing it shows no secrets.

    Attributes:
        task_ledgers: Maximum number of ledgers per task, and number of ids reserved for each.
    """

    target: WriteTarget
    task_ledgers: int = DEFAULT_TASK_LEDGERS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the user's options.

        Raises:
            OptionError: An option is unknown, not for writing, repeated, missing, or has a value
                that is not allowed. Values of storage options are never shown.
        """
        options = {n: text for n, text in options.items() if n.lower() not in _IGNORED}
        passed = PassedOptions.sort(options, _PARSERS, suffix=" of writing")
        location = bucket_location(passed.texts, passed.storage)
        fields = passed.fields(_PARSERS)
        if "topic" not in fields:
            message = "option topic is missing: give the name of the topic to write to"
            raise OptionError(message)
        topic, task_ledgers = fields.pop("topic"), fields.pop(_TASK_LEDGERS, DEFAULT_TASK_LEDGERS)
        request = WriteRequest(append=True, storage_options=location.storage_options, **fields)
        target = WriteTarget.from_name(location.url, topic, request)
        if task_ledgers < len(target.names):
            message = (
                f"{_TASK_LEDGERS} must be at least {len(target.names)}: a task may write to each"
                " partition"
            )
            raise OptionError(message)
        return cls(target=target, task_ledgers=task_ledgers)
