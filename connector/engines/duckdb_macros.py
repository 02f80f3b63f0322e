"""The table functions' macros in DuckDB, and the arguments that a statement passes to them.

A table function is a table macro over `query(text)`. The text is the result of a scalar function,
which opens the topic as a Python variable (`duckdb_binding`), and selects from it. The macro passes
its arguments to the function as JSON, because DuckDB requires typed parameters of Python functions,
and most options allow several types.

DuckDB takes `start = '2026-01-31'` in a call for a positional argument: a comparison of the text
'start' with the value. `alias` returns the text of such an expression without evaluating it, and
from the text DuckDB's parser returns the value.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden
from connector.engines.duckdb_binding import PLACE_OPTIONS, ROWS
from connector.options.kinds import FLAG
from connector.options.option import hidden_arguments
from connector.options.topic_request import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READ: Final = "read_pulsar"
PLAN: Final = "pulsar_plan"
BOUNDS: Final = "pulsar_bounds"
LIST_ZONES: Final = "pulsar_zones"
LISTINGS: Final = ("pulsar_topics", "pulsar_ledgers", "pulsar_blocks", "pulsar_objects")
"""Table functions for `connector.catalog.tables.TABLES`."""
UNTIL: Final = "until"
"""Alias of the option `end` that SQL accepts without quotes."""
WHERE: Final = "where"
STATISTICS: Final = "statistics"

# A positional argument, as DuckDB sees `=`, must not take the place of one that `:=` names, so
# options that are seldom named come first.
_READ_PARAMETERS: Final = (
    *(name for name, each in reversed(list(OPTIONS.items())) if each.in_python_only is None),
    UNTIL,
    "url",
)
MACROS: Final[Mapping[str, tuple[str, ...]]] = {
    READ: _READ_PARAMETERS,
    PLAN: (*_READ_PARAMETERS, WHERE),
    BOUNDS: (*_READ_PARAMETERS, WHERE),
    LIST_ZONES: ("topic", STATISTICS, *PLACE_OPTIONS),
} | dict.fromkeys(LISTINGS, ("topic", *PLACE_OPTIONS))
"""The named parameters of each table function; those that read take the topic before them."""

_VARIABLE: Final = "pulsar_"
"""Prefix of the SQL variables that hold options."""
_ASSIGNMENT: Final = re.compile(r"CASE\s+WHEN \([^)]*\)+ THEN \(\(CAST\('(\w+)' AS ")
"""Text of a comparison of a constant text, as the THEN of a CASE."""


def macro_sql(name: str, function: str, macro: str | None = None) -> str:
    """Return the macro of a table function, which calls a scalar function, for CREATE MACRO.

    `macro` is what the macro is called; None: the name of the table function.
    """
    parameters = _parameters(name)
    named = ", ".join(f'"{each}" := NULL' for each in MACROS[name])
    declared = named if "topic" in MACROS[name] else f"topic, {named}"
    options = [each for each in parameters if each == "url" or each in OPTIONS]
    call = {
        "function": f"'{name}'",
        "time_zone": "current_setting('TimeZone')",
        "reads_files": "current_setting('enable_external_access')",
        "arguments": _struct({each: _unless_boolean(each) for each in parameters}),
        "booleans": _struct({each: _boolean(each) for each in parameters}),
        "variables": _struct({each: f"getvariable('{_VARIABLE}{each}')" for each in options}),
    }
    columns = f'* EXCLUDE ("{ROWS}")' if name == READ else "*"
    table = f"query({function}(to_json({_struct(call)})::VARCHAR))"
    return f"{macro or name}({declared}) AS TABLE FROM {table} SELECT {columns}"


def _parameters(name: str) -> list[str]:
    return list(dict.fromkeys(("topic", *MACROS[name])))


def _struct(fields: Mapping[str, str]) -> str:
    members = ", ".join(f"'{name}': {value}" for name, value in fields.items())
    return f"{{{members}}}"


def _is_boolean(parameter: str) -> str:
    return f"typeof(\"{parameter}\") = 'BOOLEAN'"


def _unless_boolean(parameter: str) -> str:
    return f'CASE WHEN {_is_boolean(parameter)} THEN NULL ELSE to_json("{parameter}") END'


def _boolean(parameter: str) -> str:
    """Return the SQL of a BOOLEAN argument's value and text; NULL for arguments of other types.

    The value is NULL if it cannot be evaluated, such as a comparison of a text with a number.
    """
    text = f'alias(CASE WHEN false THEN "{parameter}" END)'
    pair = f'to_json([to_json(TRY("{parameter}")), to_json({text})])'
    return f"CASE WHEN {_is_boolean(parameter)} THEN {pair} END"


class Call(NamedTuple):
    """What a statement calls: a table function, with its arguments that are not NULL."""

    function: str
    arguments: dict[str, Any]
    reads_files: bool
    """Whether the statement's connection may read files itself (`enable_external_access`)."""


def read_call(text: str) -> Call:
    """Return the table function that a statement calls, and its arguments that are not NULL.

    Options that the statement does not set are taken from SQL variables. Possible secrets are
    hidden.

    Args:
        text: The JSON object that the macro passes.

    Raises:
        OptionError: An argument is a BOOLEAN, but not allowed to be one; or `name = value` names no
            parameter, or one twice.
    """
    call = json.loads(text)
    del text
    function: str = call["function"]
    arguments = _present(call["arguments"])
    variables = _present(call["variables"])
    booleans, time_zone = hidden(call["booleans"]), call["time_zone"]
    reads_files = bool(call["reads_files"])
    del call
    for name, value in _booleans(function, booleans, time_zone):
        if name in arguments:
            message = f"{function} has the argument {name} twice"
            raise OptionError(message)
        arguments[name] = value
    if UNTIL in arguments:
        variables.pop("end", None)
    own = {n: each for n, each in arguments.items() if each is not None}
    return Call(function, variables | own, reads_files)


def _present(arguments: dict[str, Any]) -> dict[str, Any]:
    return hidden_arguments(OPTIONS, {n: each for n, each in arguments.items() if each is not None})


def _booleans(
    function: str, booleans: Mapping[str, Any], time_zone: str
) -> Iterator[tuple[str, Any]]:
    """Yield arguments that arrive as BOOLEANs: values of flags, and what `=` assigns."""
    for parameter, boolean in booleans.items():
        if boolean is None:
            continue
        value, text = boolean
        match = _ASSIGNMENT.match(text)
        name = None if match is None else str(match[1])
        if name in _parameters(function):
            yield name, _assigned_value(name, text, time_zone)
        elif parameter in OPTIONS and OPTIONS[parameter].kind is FLAG and name is None:
            yield parameter, value
        elif name is not None:
            message = f"{function} has no argument {name}"
            raise OptionError(message)
        else:
            message = (
                f"{parameter} of {function} cannot be a BOOLEAN: name an argument as in"
                " start := '2026-01-31'"
            )
            raise OptionError(message)


def _assigned_value(name: str, text: str, time_zone: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value that a statement assigns to an argument by `=`.

    Raises:
        OptionError: Only the statement's own connection could evaluate it.
    """
    value = _compared_value(text, time_zone)
    if value is None:
        message = (
            f"write {name} := … for this value: DuckDB takes {name} = … for a comparison, from"
            " which only constants can be read, and no STRUCT"
        )
        raise OptionError(message)
    return hidden(json.loads(value))


def _compared_value(text: str, time_zone: str) -> str | None:
    """Return the JSON of the value that a constant text is compared with; None if not possible."""
    import duckdb

    # The statement's connection is busy with binding the statement.
    with duckdb.connect() as con:
        try:
            con.execute("SET TimeZone = ?", [time_zone])
            [(tree,)] = con.execute("SELECT json_serialize_sql(?)", [f"SELECT {text}"]).fetchall()
            statements = json.loads(tree)
            node = statements["statements"][0]["node"]
            comparison = node["select_list"][0]["case_checks"][0]["then_expr"]
            if comparison["type"] != "COMPARE_EQUAL":
                return None
            node["select_list"] = [comparison["right"]]
            [(select,)] = con.execute(
                "SELECT json_deserialize_sql(?::JSON)", [json.dumps(statements)]
            ).fetchall()
            [(value,)] = con.sql(select).project("to_json(#1)::VARCHAR").fetchall()
        except (duckdb.Error, LookupError):
            # It is no constant, or DuckDB has another form for it.
            return None
        return "null" if value is None else str(value)
