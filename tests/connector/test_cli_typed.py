"""Typed columns on the command line: `--schema` and what goes with it, and how values are shown."""

from __future__ import annotations

import json
import re
import struct
from typing import Final

import pyarrow as pa
import pytest

from connector.cli.output import print_json, print_table
from tests.support.buckets import memory_bucket, offload
from tests.support.command_line import (
    INCOMPLETE,
    ORDERS,
    UNREADABLE,
    URL,
    USAGE,
    Row,
    cells,
    lines_of,
    run,
)
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_values import expected_values

EVOLVED: Final = golden_topic("avro-evolved")
VERSIONS: Final = ("--schema", str(EVOLVED.folder / "schemas-rest.json"))
SCHEMA: Final = ("--schema", str(ORDERS.folder / "schemas-rest.json"))
NOTE: Final = (
    "note: values stay bytes, in __value__: there is no schema; give --schema for typed columns,"
    " or --value raw for bytes\n"
)


# head


def test_head_shows_fields_as_columns() -> None:
    """With a schema, each field has a column; nested values are JSON in it."""
    rows = [row.value for row in expected_values(ORDERS)[:3]]

    listed = lines_of("head", URL, "json-orders", "-n", "3", *SCHEMA)
    columns = ("--columns", "orderId,status,customer,items")
    header, *table = cells(run("head", URL, "json-orders", "-n", "3", *SCHEMA, *columns).stdout)

    for name in ("orderId", "status", "customer", "items", "total", "gift", "createdAt"):
        assert [row[name] for row in listed] == [row[name] for row in rows]
    assert header == ["orderId", "status", "customer", "items"]
    assert [json.loads(row[2]) for row in table] == [row["customer"] for row in rows]
    assert [row[1] for row in table] == [row["status"] for row in rows]


def test_head_picks_a_version_a_shape_and_a_unit() -> None:
    """The other options do what they do in `open_topic`."""
    arguments = ("head", URL, "avro-evolved", "-n", "1", *VERSIONS)

    [newest] = lines_of(*arguments)
    [oldest] = lines_of(*arguments, "--schema-version", "0")
    [whole] = lines_of(*arguments, "--schema-version", "0", "--value", "struct")
    [raw] = lines_of(*arguments, "--value", "raw", "--columns", "__value__")

    fields = {name: value for name, value in oldest.items() if not name.startswith("__")}
    assert newest.keys() != oldest.keys()
    assert whole["__value__"] == fields
    assert raw.keys() == {"__value__"}
    time = ("head", URL, "local-date-time", "--schema", "LOCAL_DATE_TIME", "--columns", "__value__")
    assert "2026-11-21T10:11:12.123456789" in [row["__value__"] for row in lines_of(*time)]
    error = run(*time, "--time-unit", "us", ends=UNREADABLE).stderr
    assert re.fullmatch(r"error: [^\n]*ledger \d+, entry \d+[^\n]*\n", error)


def printed(table: pa.Table, capsys: pytest.CaptureFixture[str]) -> list[Row]:
    """A table as JSON lines."""
    print_json(table.to_batches())
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_times_inside_nested_values_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Nanoseconds are not cut in structs, lists and maps, nulls and slices among them."""
    moment = 1_700_000_000_123_456_789
    nested = pa.struct(
        [
            ("t", pa.time64("ns")),
            ("l", pa.list_(pa.timestamp("ns", "UTC"))),
            ("m", pa.map_(pa.string(), pa.timestamp("ns"))),
        ]
    )
    value = {"t": 1, "l": [moment, None], "m": [("k", moment), ("n", None)]}
    rows: list[object] = [
        value,
        value,
        None,
        {"t": None, "l": [], "m": None},
        {"t": 2, "l": None, "m": []},
    ]
    table = pa.table({"a": pa.array(rows, nested)}).slice(1)

    assert [row["a"] for row in printed(table, capsys)] == [
        {
            "t": "00:00:00.000000001",
            "l": ["2023-11-14T22:13:20.123456789Z", None],
            "m": {"k": "2023-11-14T22:13:20.123456789", "n": None},
        },
        None,
        {"t": None, "l": [], "m": None},
        {"t": "00:00:00.000000002", "l": None, "m": {}},
    ]
    times = pa.table({"at": pa.array([moment], pa.timestamp("ns", "UTC"))})
    print_table(times.schema, times.to_batches())
    assert cells(capsys.readouterr().out)[1] == ["2023-11-14 22:13:20.123456789Z"]


@pytest.mark.parametrize(
    ("type_", "number", "shown"),
    [
        (pa.timestamp("us", "UTC"), 253_402_300_800_000_000, "10000-01-01T00:00:00.000000Z"),
        (pa.timestamp("us"), 253_402_300_800_000_000, "10000-01-01T00:00:00.000000"),
        (pa.timestamp("us", "UTC"), 1 << 62, f"<value out of range: {1 << 62}>"),
        (pa.timestamp("us", "UTC"), -(1 << 62), f"<value out of range: {-(1 << 62)}>"),
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.date32(), -719_163, "0000-12-31"),
        (pa.date32(), (1 << 31) - 1, f"<value out of range: {(1 << 31) - 1}>"),
    ],
    ids=str,
)
def test_years_that_python_has_not(
    type_: pa.DataType, number: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time beyond the years 1 to 9999 is shown, alone and nested, and stops nothing."""
    alone = pa.array([number, None], type_)
    nested = pa.array([[number], None], pa.list_(type_))

    assert printed(pa.table({"a": alone, "b": nested}), capsys) == [
        {"a": shown, "b": [shown]},
        {"a": None, "b": None},
    ]


# query and plan


def test_query_reads_typed_columns() -> None:
    """`--schema` holds for topics that name none; the SQL can name its own."""
    values = [row.value for row in expected_values(ORDERS) if row.value]
    new = sum(value["status"] == "NEW" for value in values)
    sql = "SELECT count(*) AS n FROM {} WHERE status = 'NEW' AND customer.id IS NOT NULL"

    by_option = lines_of("query", URL, sql.format('"json-orders"'), *SCHEMA)
    by_sql = lines_of(
        "query", URL, sql.format(f"read_pulsar('json-orders', schema := '{SCHEMA[1]}')")
    )
    own = lines_of(
        "query",
        URL,
        "SELECT sum(__value__)::INT AS n FROM read_pulsar('int16', schema := 'INT16')",
        *SCHEMA,
    )

    assert by_option == by_sql
    assert 0 < by_option[0]["n"] <= new
    assert own == [{"n": sum(row.value or 0 for row in expected_values(golden_topic("int16")))}]


def test_plan_takes_typed_columns() -> None:
    """A read can be planned with the options that it will have."""
    options = (*SCHEMA, "--value", "flat", "--time-unit", "us", "--columns", "status,total")

    [whole] = lines_of("plan", URL, "json-orders", *options)

    assert [whole] == lines_of("plan", URL, "json-orders")
    said = run("plan", URL, "json-orders", "--columns", "status", ends=USAGE).stderr
    assert "no column 'status'" in said


# What is told


def test_bytes_are_noted_once() -> None:
    """Without a schema, a note says so, once; not where no value is given, nor was asked for."""
    twice = 'SELECT count(*) AS n FROM "json-orders" UNION ALL SELECT 1 FROM "int16"'

    assert run("head", URL, "json-orders", "-n", "1").stderr == NOTE
    assert run("query", URL, twice).stderr.count("note: ") == 1
    own = f"FROM read_pulsar('json-orders', schema := '{SCHEMA[1]}') LIMIT 1"
    assert "note: " not in run("query", URL, own).stderr
    for arguments in (
        ("head", URL, "json-orders", "-n", "1", "--columns", "__key__"),
        ("head", URL, "json-orders", "-n", "1", "--value", "raw"),
        ("head", URL, "json-orders", "-n", "1", *SCHEMA),
        ("plan", URL, "json-orders"),
    ):
        assert run(*arguments).stderr == ""


def test_a_misfit_is_one_line_and_an_exit_code() -> None:
    """A payload that does not fit its schema ends the command with its place."""
    payloads = [struct.pack(">h", 5), b"five!"]
    entry = encode_entry([Message(payload=each) for each in payloads], batched=True)
    options = ("--schema", "INT16")
    with memory_bucket(offload([(7, [entry])])) as bucket:
        results = [
            run("head", bucket.url, "orders", *options, ends=UNREADABLE),
            run("query", bucket.url, "SELECT __value__ FROM orders", *options, ends=UNREADABLE),
        ]
        salvaged = run(
            "head", bucket.url, "orders", *options, "--on-corruption", "salvage", ends=INCOMPLETE
        )

    for result in results:
        assert re.fullmatch(r"error: [^\n]*ledger 7, entry 0, batch index 1[^\n]*\n", result.stderr)
    assert "1 × value lost: PayloadDecodeError" in salvaged.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--schema", "no/such/file"), "there is no such file or folder"),
        (("--schema", "{}"), "error: "),
        (("--schema-version", "0"), "give --schema too"),
        ((*VERSIONS, "--schema-version", "9"), "no schema of version 9"),
        (("--value", "wide"), "--value must be one of flat, struct, raw, not 'wide'"),
        (("--time-unit", "ms"), "--time-unit must be one of ns, us, not 'ms'"),
    ],
)
def test_wrong_options_are_told(options: tuple[str, ...], said: str) -> None:
    """What is wrong with an option ends the command as wrong usage."""
    for command in (("head", URL, "int16"), ("query", URL, "FROM int16"), ("plan", URL, "int16")):
        assert said in run(*command, *options, ends=USAGE).stderr
