"""Options of writing with Spark: strings → where messages go, and how.

What is here are Spark's own options and spellings; all others, and what their texts mean, are those
of `connector.options.write_request`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from arrow_io.errors import OptionError
from connector.options.kinds import read_count
from connector.options.nested import put_text
from connector.options.write_request import WRITE_OPTIONS, WriteRequest
from connector.writing.write_target import WriteTarget
from spark_ds.options import (
    LOCATION_HELP,
    LOCATION_OPTIONS,
    METADATA_PREFIXES,
    STORAGE_PREFIXES,
    bucket_location,
    normal_name,
    prefix_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_TASK_LEDGERS: Final = 1000

_PASSED_OVER: Final = frozenset({"checkpointlocation"})
"""Spark hands on what is for Spark alone."""
_TASK_LEDGERS: Final = "task_ledgers"
OWN_WRITING_HELP: Final = {
    "topic": "The name of the topic to write to.",
    _TASK_LEDGERS: "Maximum number of ledgers that a task may write: so many ids are kept for each."
    f" By default {DEFAULT_TASK_LEDGERS}.",
    "secret.metadata_options": "As metadata_options. Spark masks it.",
}
"""Help on the options of writing that only Spark has."""
_OF_WRITING: Final = {
    name: each
    for name, each in WRITE_OPTIONS.items()
    if each.in_python_only is None and name != "storage_options"
}
_MASKED: Final = "secret."
_KNOWN: Final = {
    normal_name(name): name for name in (*LOCATION_OPTIONS, *OWN_WRITING_HELP, *_OF_WRITING)
}
WRITING_NOTES: Final = {
    "cluster": "Streams do not have it.",
    "first_ledger_id": "Streams do not have it.",
    "write_id": "Streams do not have it: each of their batches has an id.",
}
"""What is peculiar to Spark about options of writing that every surface has."""
WRITING_HELP: Final = (
    LOCATION_HELP
    | OWN_WRITING_HELP
    | {
        name: " ".join(filter(None, (option.help, WRITING_NOTES.get(name))))
        for name, option in _OF_WRITING.items()
        if option.not_in_spark is None
    }
)
"""Help on each option of writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where to write, and how. Shows no secret when it is printed.

    Attributes:
        target: The topic, and how it is written to.
        task_ledgers: How many ledgers a task may write: so many ids are kept for each.
    """

    target: WriteTarget
    task_ledgers: int = DEFAULT_TASK_LEDGERS

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read the options that a user gave.

        Raises:
            OptionError: An option is unknown or not for writing, given twice, missing, or has a
                value of another form. No value of a storage option is shown.
        """
        texts, storage, metadata = _sorted(given)
        location = bucket_location(texts, storage)
        if "topic" not in texts:
            message = "option topic is missing: the name of the topic to write to"
            raise OptionError(message)
        fields = _fields(texts)
        for name, text in metadata:
            put_text(fields.setdefault("metadata_options", {}), "metadata option", name, text)
        request = WriteRequest(append=True, storage_options=location.storage_options, **fields)
        target = WriteTarget.named(location.url, texts["topic"].strip(), request)
        task_ledgers = DEFAULT_TASK_LEDGERS
        if _TASK_LEDGERS in texts:
            task_ledgers = read_count(_TASK_LEDGERS, texts[_TASK_LEDGERS].strip())
        if task_ledgers < len(target.names):
            message = (
                f"{_TASK_LEDGERS} must be at least {len(target.names)}, for a task may write to"
                " each of the partitions"
            )
            raise OptionError(message)
        return cls(target=target, task_ledgers=task_ledgers)


def _sorted(
    given: Mapping[str, str],
) -> tuple[dict[str, str], list[tuple[str, str]], list[tuple[str, str]]]:
    """Texts of options that are known; names and texts of those of stores, and of metadata."""
    storage: list[tuple[str, str]] = []
    metadata: list[tuple[str, str]] = []
    texts: dict[str, str] = {}
    for name, text in given.items():
        known = _KNOWN.get(normal_name(name))
        if name.lower() in _PASSED_OVER:
            continue
        if known is None and (prefix := prefix_of(name, METADATA_PREFIXES)):
            metadata.append((name[len(prefix) :], text))
        elif known is None and (prefix := prefix_of(name, STORAGE_PREFIXES)):
            storage.append((name[len(prefix) :], text))
        elif known is None:
            raise OptionError(_unknown_option(name))
        elif known in texts:
            message = f"option {known} is given twice: the second time as {name}"
            raise OptionError(message)
        else:
            texts[known] = text
    return texts, storage, metadata


def _fields(texts: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for given_as, text in texts.items():
        name = given_as.removeprefix(_MASKED)
        if name not in _OF_WRITING:
            continue
        option = _OF_WRITING[name]
        if option.not_in_spark is not None:
            message = f"option {name} is not for Spark: {option.not_in_spark}"
            raise OptionError(message)
        if name in fields:
            message = f"options {name} and {_MASKED}{name} say the same: give one of them"
            raise OptionError(message)
        fields[name] = option.read(text.strip())
    return fields


def _unknown_option(name: str) -> str:
    near = difflib.get_close_matches(normal_name(name), _KNOWN)
    if near:
        meant = " or ".join(_KNOWN[each] for each in near)
        return f"unknown option {name} of writing, did you mean {meant}?"
    return (
        f"unknown option {name} of writing; there are {', '.join(_KNOWN.values())},"
        " storage.<name>, metadata.<name>, secret.<name> and secret.metadata.<name>"
    )
