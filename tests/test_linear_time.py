"""Whatever is typed, named or answered, its work grows with its length, never with the square.

Each parser gets texts that make careless ones try again at each letter. A parser may refuse them,
with a typed error, whose text is made as well.

Times are those of this process's CPU. They are compared with each other alone: with the same call
on a shorter text, and with a plain loop over the letters of the text.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pytest

from arrow_io.errors import CorruptEntryError, PulsarOffloadError, StorageError
from arrow_io.format.object_names import parse_object_name
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.storage.location import Location, folder_and_name
from arrow_io.storage.redaction import redacted, redacted_urls
from arrow_io.storage.store_uploads import parse_temporary_name
from connector.catalog.schemas.forms import parse_json
from connector.catalog.schemas.loading import load_schema
from connector.cli import sql
from connector.cli.output import cell_text
from connector.display.text import printable
from connector.engines.credential_scope import origins
from connector.filters.where import where_expression
from connector.inputs.bounds import Bounds
from connector.inputs.message_ids import MessageId
from connector.inputs.times import duration
from connector.inputs.topic_names import TopicName, namespaces_of, select_topics, topic_names
from connector.options.nested import put_text
from connector.options.option import options_of
from connector.options.topic_request import OPTIONS
from connector.options.write_request import WriteRequest
from connector.tables.transforms import Partitioning
from connector.upkeep.forecast.policy_settings import parse_conf

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.options.option import Option


LENGTHS: Final = (1_000, 4_000, 40_000)
"""Lengths of texts, in characters; the first shows a growth that would take minutes at the last."""

_SLACK: Final = 4
"""So many times a growth in proportion is no fault: tables grow by doubling, caches are small."""
_LOOPS: Final = 40
"""What takes less than so many loops over the letters of a text is no fault either."""
_RUNS: Final = 5
"""How often a growth that seems to be too great is measured again; the least counts."""


def first_excess(call: Callable[[str], object], text: Callable[[int], str]) -> str | None:
    """Return how the work of a call grows out of proportion, or None if it does not.

    Args:
        call: What is called.
        text: Makes a text of about so many characters.
    """
    for shorter, longer in pairwise(LENGTHS):
        texts = text(shorter), text(longer)
        if _exceeds(call, *texts, runs=1) and _exceeds(call, *texts, runs=_RUNS):
            return f"from {shorter} to {longer} characters"
    return None


def _exceeds(call: Callable[[str], object], shorter: str, longer: str, *, runs: int) -> bool:
    in_proportion = _cpu_s(call, shorter, runs) * len(longer) / len(shorter)
    allowed = _SLACK * in_proportion + _LOOPS * _cpu_s(_loop, longer, runs)
    return _cpu_s(call, longer, runs) > allowed


def _loop(text: str) -> int:
    return sum(letter == "a" for letter in text)


def _cpu_s(call: Callable[[str], object], text: str, runs: int) -> float:
    least = float("inf")
    for _ in range(runs):
        begun = time.process_time()
        call(text)
        least = min(least, time.process_time() - begun)
    return least


_SCHEMA: Final = pa.schema([("a", pa.int64()), ("s", pa.string()), ("day(", pa.string())])
_TOPICS: Final = [TopicName.parse("orders"), TopicName.parse("sales-partition-0")]


class _Catalog:
    """What hints in errors of SQL are looked up in."""

    def topics(self) -> list[TopicName]:
        return _TOPICS


_CATALOG: Final[Any] = _Catalog()
_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "urls of a text": redacted_urls,
    "secrets of a text": lambda text: redacted(text, {"secret": text, "key": "aaaa"}),
    "location": lambda text: str(Location(f"s3://bucket/{text}").child(text)),
    "chain of locations": lambda text: Location(f"zip://{text}::memory://a").child("b"),
    "folder": lambda text: folder_and_name(str(Location(text))),
    "origins": origins,
    "object name": parse_object_name,
    "unfinished name": parse_temporary_name,
    "topic": TopicName.parse,
    "partition": lambda text: TopicName("a", "b", text).base,
    "managed ledger": TopicName.from_managed_ledger_name,
    "topics": topic_names,
    "namespaces": namespaces_of,
    "selection": lambda text: select_topics(text, _TOPICS),
    "selection among long names": lambda text: select_topics("*a*b*", [TopicName("a", "b", text)]),
    "message id": MessageId.parse,
    "bound": lambda text: Bounds.parse(text, None),
    "duration": lambda text: duration("option", text),
    "where": lambda text: where_expression(text, _SCHEMA),
    "where, a value": lambda text: where_expression(f"s = '{text}", _SCHEMA),
    "where, a list": lambda text: where_expression(f"a in ({text}", _SCHEMA),
    "where, behind a condition": lambda text: where_expression(f"a = 1 and {text}", _SCHEMA),
    "schema": load_schema,
    "schema, JSON": lambda text: load_schema("{" + text),
    "schema, definition": lambda text: load_schema({"type": "AVRO", "schema": text}),
    "Avro schema": parse_avro,
    "JSON": parse_json,
    "partitioning": lambda text: Partitioning.parse([text], _SCHEMA),
    "partitioning by time": lambda text: Partitioning.parse([f"day({text})x"], _SCHEMA),
    "partitioning by hash": lambda text: Partitioning.parse([f"bucket(1,{text})x"], _SCHEMA),
    "storage option": lambda text: put_text({}, "storage option", "endpoint", text),
    "name of a storage option": lambda text: put_text({}, "storage option", text, "a"),
    "error of DuckDB": lambda text: sql._to_project_error(text, _CATALOG, StorageError),
    "place of an error in SQL": lambda text: sql._explain_error(
        duckdb, duckdb.Error("no\n\nLINE 1"), text, _CATALOG
    ),
    "broker.conf": parse_conf,
    "cell of a table": cell_text,
    "plain text": printable,
    "error": lambda text: str(CorruptEntryError(text, object_key=text)),
}


def _read(option: Option) -> Callable[[str], object]:
    return option.read if option.kind.read is not None else option.check


# Options of one kind have one parser.
_OF_OPTIONS: Final = {
    f"option {option.name}": _read(option)
    for option in {
        (option.kind.read, option.kind.check): option
        for option in {**OPTIONS, **options_of(WriteRequest)}.values()
    }.values()
}

_UNITS: Final = (
    "a", " ", "a/", "(", "'", "`", ":", "1:", "a,", "\\", "a.", "[", "{", "*a", "?", " )",
    "-partition-1", "a://", "a://b@", "#a", '"', "a=1 and ", "not ", "aError", "a-", "\n", "::",
    "Table with name ", '{"a":', "'',", "1,", "é", "\ud800",
)  # fmt: skip


def _repeated(unit: str, length: int) -> str:
    return unit * (length // len(unit))


def _outcome(parse: Callable[[str], object]) -> Callable[[str], object]:
    def outcome(text: str) -> object:
        try:
            return parse(text)
        except PulsarOffloadError as error:
            return str(error)

    return outcome


@pytest.mark.parametrize(
    "parse", [*_PARSERS.values(), *_OF_OPTIONS.values()], ids=[*_PARSERS, *_OF_OPTIONS]
)
def test_work_is_in_proportion_to_text(parse: Callable[[str], object]) -> None:
    """Ten times the text takes about ten times the work, whatever the text is made of."""
    call = _outcome(parse)
    for unit in _UNITS:
        assert first_excess(call, partial(_repeated, unit)) is None, unit
