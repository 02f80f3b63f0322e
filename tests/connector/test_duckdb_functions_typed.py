"""Typed columns by `read_pulsar`: schemas in SQL, exact filters, no needless decoding."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest

from connector import open_topic, register_duckdb
from connector.catalog.schemas.loading import load_schema
from connector.dataset import TopicDataset
from tests.support.buckets import memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_values import expected_values, golden_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow.compute as pc

    from tests.support.golden import GoldenTopic

EVOLVED: Final = golden_topic("avro-evolved")
URL: Final = str(EVOLVED.objects_folder)
PATH: Final = str(EVOLVED.folder / "schemas-rest.json")
ORDERS: Final = golden_topic("json-orders")
VERSIONS: Final = dict(golden_schema(EVOLVED).versions)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows where the golden topics are."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        register_duckdb(connection, URL)
        yield connection


def names_of(con: duckdb.DuckDBPyConnection, options: str, *parameters: object) -> list[str]:
    """The typed columns that `avro-evolved` has with some options."""
    relation = con.execute(f"FROM read_pulsar('avro-evolved', {options}) LIMIT 0", parameters)
    return [name for name, *_ in relation.description if not name.startswith("__")]


def fields_of(version: int) -> list[str]:
    """The fields of a version of its schema."""
    return [field["name"] for field in json.loads(VERSIONS[version].data)["fields"]]


# How a schema is given


def test_schema_in_sql(con: duckdb.DuckDBPyConnection) -> None:
    """A path, JSON text, JSON, a STRUCT, a MAP and a list of them are taken, and parameters."""
    info = {"type": "AVRO", "schema": VERSIONS[0].data}
    text = json.dumps(info).replace("'", "''")
    avro = VERSIONS[0].data.replace("'", "''")

    for options in (
        f"schema := '{text}'",
        f"schema := '{avro}'",
        f"schema := '{text}'::JSON",
        f"schema := {{'type': 'AVRO', 'schema': '{avro}'}}",
        f"schema := MAP {{'type': 'AVRO', 'schema': '{avro}'}}",
        f"schema := [{{'type': 'AVRO', 'schema': '{avro}', 'version': 0}}]",
        f"schema := '{PATH}', schema_version := 0",
    ):
        assert names_of(con, options) == fields_of(0)
    for schema in (json.dumps(info), info, VERSIONS[0].data):
        assert names_of(con, "schema := ?", schema) == fields_of(0)
    newest = max(VERSIONS)
    assert names_of(con, f"schema := '{PATH}'") == fields_of(newest) != fields_of(0)
    assert names_of(con, "schema := ?, schema_version := ?", PATH, newest) == fields_of(newest)


def test_schema_by_the_name_of_a_type(con: duckdb.DuckDBPyConnection) -> None:
    """A primitive needs its name only; a bucket of them can be registered with it."""
    expected = [(row.value,) for row in expected_values(golden_topic("int16"))]
    sql = "SELECT __value__ FROM read_pulsar('int16'{})"

    assert con.execute(sql.format(", schema := 'INT16'")).fetchall() == expected
    register_duckdb(con, URL, schema="int16")
    assert con.execute(sql.format("")).fetchall() == expected
    assert con.sql(sql.format(", value := 'raw'")).types == [duckdb.type("BLOB")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("schema := 'no/such.json'", "no/such.json"),
        ("schema := 5", "OptionError: .*a schema cannot be read from a value of type int"),
        ("schema := {'type': 'NOTHING'}", "OptionError: .*NOTHING"),
        (f"schema := '{PATH}', schema_version := 9", "OptionError: .*no schema of version 9"),
        (f"schema := '{PATH}', schema_version := 'x'", "schema_version must be a whole number"),
        ("schema_version := 0", "OptionError: .*give schema too"),
        (f"schema := '{PATH}', value := 'wide'", "value must be one of flat, struct, raw"),
        (f"schema := '{PATH}', time_unit := 'ms'", "time_unit must be one of ns, us"),
        ("""schema := '{"type": "AVRO", "schema": "{}"}'""", "Error: "),
    ],
)
def test_wrong_options_are_told(con: duckdb.DuckDBPyConnection, options: str, said: str) -> None:
    """What is wrong with a schema is said when the statement is bound, by an error of ours."""
    with pytest.raises(duckdb.Error, match=said) as caught:
        names_of(con, options)

    assert "avro-evolved: " in str(caught.value)


# Prepared statements


def test_a_statement_is_run_by_the_schema_that_it_was_bound_with(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """DuckDB binds it when it is prepared; from 2.0.1 on, when it is run: the file counts then."""
    file = tmp_path / "schemas.json"
    shutil.copy(PATH, file)
    con.execute(f"PREPARE old AS FROM read_pulsar('avro-evolved', schema := '{file}')")
    old = con.execute("EXECUTE old").fetchall()

    other = {"type": "AVRO", "schema": VERSIONS[0].data}
    file.write_text(json.dumps([json.loads(file.read_text()), other]))
    con.execute(f"PREPARE new AS FROM read_pulsar('avro-evolved', schema := '{file}')")
    new = con.execute("EXECUTE new").fetchall()

    assert len(new[0]) < len(old[0])
    run = con.execute("EXECUTE old").fetchall()
    assert run in (old, new)
    assert con.execute("EXECUTE old").fetchall() == run
    file.unlink()
    for name, rows in (("old", old), ("new", new)):
        if run == old:
            assert con.execute(f"EXECUTE {name}").fetchall() == rows
        else:
            with pytest.raises(duckdb.Error, match="there is no such file"):
                con.execute(f"EXECUTE {name}")


def test_a_view_reads_the_schema_anew(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A view is bound by each statement that reads it, so it follows the schema file."""
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "INT16"}))
    con.execute(f"CREATE VIEW numbers AS FROM read_pulsar('int16', schema := '{file}')")

    assert con.sql("SELECT __value__ FROM numbers").types == [duckdb.type("SMALLINT")]
    file.write_text(json.dumps({"type": "BYTES"}))
    assert con.sql("SELECT __value__ FROM numbers").types == [duckdb.type("BLOB")]


# Filters

FILTERS: Final[dict[str, Sequence[str]]] = {
    "json-orders": (
        "status = 'NEW'",
        "status IN ('NEW', 'PAID')",
        "customer.id > 5",
        "customer.id > 5 AND status = 'NEW' AND __entry_id__ < 5",
        "customer.name LIKE 'l%'",
        "customer IS NULL",
        "total > 10.5",
        "total <> 'nan'::DOUBLE",
        "discount < 0.3::FLOAT",
        "gift",
        "gift IS DISTINCT FROM true",
        "orderId = 9223372036854775807",
        "signature > '\\x80'::BLOB",
        "items[1].price > 3",
        "items[1].attrs['color'] = 'red'",
    ),
    "avro-logical": (
        "day > DATE '1960-01-01'",
        "day IN (DATE '1959-01-19', DATE '1970-01-01')",
        "tms >= TIME '00:00:12.345'",
        "tus BETWEEN TIME '00:00:00' AND TIME '12:00:00'",
        "ms > TIMESTAMPTZ '2023-11-14 22:13:20.040+00'",
        "us < TIMESTAMPTZ '2026-01-01 00:00:00.000001+00'",
        "lms >= TIMESTAMP '1969-12-31 23:59:59'",
        "amount = -1234567.8901",
        "amount IN (0, 1.5)",
        "fdec >= -0.01",
        'u."long" > 3',
        "u.\"string\" LIKE 's1%'",
        "m['k0'] = 0",
        "nested[1].a > 0",
    ),
    "protobuf-native": (
        "odometer_m = 18446744073709551615",
        "position.lat > 0",
        "position.accuracy_m IS NULL",
        "taken_at > '2023-11-14 22:13:21.000001+00'::TIMESTAMPTZ_NS",
        "taken_at = '2023-11-14 22:13:21.000001+00'::TIMESTAMPTZ_NS",
        "mode IN ('IDLE', '7')",
        "checksum > 4000000000",
        "trail[1].lon = 1",
    ),
    "instant": ("__value__ > '1970-01-01 00:00:00+00'::TIMESTAMPTZ_NS",),
    "local-time": (
        "__value__ = '23:59:59.999999999'::TIME_NS",
        "__value__ > '12:34:56.789012344'::TIME_NS",
    ),
    "local-date-time": (
        "__value__ > TIMESTAMP_NS '2026-11-21 10:11:12.123456788'",
    ),
    "local-date": ("__value__ > DATE '1582-10-14'",),
    "float": ("__value__ = 'nan'::FLOAT", "__value__ > 0", "__value__ < 'infinity'::FLOAT"),
    "double": ("__value__ >= 'nan'::DOUBLE", "__value__ <> 0", "__value__ IN (1.5, 'nan')"),
    "int8": ("__value__ = -128", "__value__ > 0"),
    "bool": ("__value__", "NOT __value__"),
    "kv-avro-separated": ('"__key.shard" > 1', "\"__key.region\" = 'eu' AND orderId > 3"),
}  # fmt: skip


@pytest.fixture(scope="module")
def both_ways() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with, for each topic, a view over it and a table of the same rows."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        register_duckdb(connection, URL)
        for name in FILTERS:
            schema = golden_topic(name).folder / "schemas-rest.json"
            connection.execute(
                f"CREATE VIEW \"{name}\" AS FROM read_pulsar('{name}', schema := '{schema}')"
            )
            connection.execute(f'CREATE TABLE "{name} rows" AS FROM "{name}"')
        yield connection


@pytest.mark.parametrize(
    ("name", "condition"),
    [(name, condition) for name, conditions in FILTERS.items() for condition in conditions],
)
def test_filters_are_exact(both_ways: duckdb.DuckDBPyConnection, name: str, condition: str) -> None:
    """A condition gives of a topic what DuckDB gives of a table with the same rows."""
    given, expected = (
        both_ways.view(source)
        .filter(condition)
        .project("__ledger_id__, __entry_id__, __batch_index__")
        .order("ALL")
        .fetchall()
        for source in (name, f"{name} rows")
    )

    assert given == expected


def test_filters_on_typed_columns_reach_the_reader(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the reader is given stands for whole conditions, on fields of structs too."""
    given: list[tuple[Sequence[str] | None, str]] = []
    scanner = TopicDataset.scanner

    def spy(
        dataset: TopicDataset,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **tuning: object,
    ) -> object:
        given.append((columns, str(filter)))
        return scanner(dataset, columns, filter, **tuning)

    monkeypatch.setattr(TopicDataset, "scanner", spy)
    register_duckdb(con, URL, schema=ORDERS.folder / "schemas-rest.json")
    [(count,)] = con.execute(
        "SELECT count(total) FROM read_pulsar('json-orders')"
        " WHERE customer.id > 5 AND status = 'NEW' AND createdAt > 0"
    ).fetchall()

    values = [row.value for row in expected_values(ORDERS) if row.value is not None]
    assert count == sum(
        (v["customer"] or {"id": 0})["id"] > 5
        and v["status"] == "NEW"
        and (v["createdAt"] or 0) > 0
        and v["total"] is not None
        for v in values
    )
    ((columns, condition),) = given
    assert columns == ["total"]
    for part in (
        "(FieldRef.Nested(FieldRef.Name(customer) FieldRef.Name(id)) > 5)",
        '(status == "NEW")',
        "(createdAt > 0)",
    ):
        assert part in condition


# What is decoded


def test_count_decodes_no_payload(
    con: duckdb.DuckDBPyConnection, decoded: list[tuple[tuple[str, ...], int]]
) -> None:
    """`count(*)` decodes none; an aggregate decodes its column; a filter comes before the rest."""
    register_duckdb(con, URL, schema=ORDERS.folder / "schemas-rest.json")

    def one(sql: str) -> Any:  # noqa: ANN401
        decoded.clear()
        [(value,)] = con.execute(sql).fetchall()
        return value

    assert one("SELECT count(*) FROM read_pulsar('json-orders')") == ORDERS.message_count
    assert decoded == []
    assert one("SELECT count(DISTINCT status) FROM read_pulsar('json-orders')") == 4
    assert {columns for columns, _ in decoded} == {("status",)}
    new = one("SELECT count(total) FROM read_pulsar('json-orders') WHERE status = 'NEW'")
    assert {columns for columns, _ in decoded} == {("status",), ("total",)}
    assert sum(rows for columns, rows in decoded if columns == ("total",)) == 87 >= new


def test_names_that_differ_in_case_only_stay_apart(con: duckdb.DuckDBPyConnection) -> None:
    """Fields whose names DuckDB would take for one, or for a column of ours, can all be read."""
    names = ["a", "A", "__KEY__", "__entry_id__"]
    fields = [{"name": name, "type": ["null", "string"]} for name in names]
    schema = {
        "type": "JSON",
        "schema": json.dumps({"type": "record", "name": "R", "fields": fields}),
    }
    payload = json.dumps({name: f"value of {name}" for name in names}).encode()
    entry = encode_entry([Message(payload=payload, partition_key="k")], batched=False)
    with memory_bucket(offload([(7, [entry])])) as bucket:
        register_duckdb(con, bucket.url)
        rows = con.execute(
            "SELECT a, A_2, __KEY___2, __entry_id___2, __key__, __entry_id__"
            " FROM read_pulsar('orders', schema := ?)",
            [schema],
        ).fetchall()

    assert rows == [(*(f"value of {name}" for name in names), "k", 0)]


def test_a_schema_that_was_read_before_can_be_registered() -> None:
    """`register_duckdb` takes what `load_schema` gave, of which a statement picks no version."""
    with duckdb.connect() as con:
        register_duckdb(con, URL, schema=load_schema(PATH))
        expected = open_topic(URL, "avro-evolved", schema=PATH).schema.names

        assert con.sql("FROM read_pulsar('avro-evolved')").columns == expected
        with pytest.raises(duckdb.Error, match="schema is already read"):
            con.execute("FROM read_pulsar('avro-evolved', schema_version := 0)")


@pytest.mark.parametrize(
    "topic",
    [golden_topic(name) for name in ("avro-evolved", "kv-json-inline", "protobuf-native")],
    ids=str,
)
def test_types_are_those_of_the_dataset(con: duckdb.DuckDBPyConnection, topic: GoldenTopic) -> None:
    """What is described before anything is read is what comes."""
    schema = str(topic.folder / "schemas-rest.json")
    sql = f"FROM read_pulsar('{topic.name}', schema := '{schema}')"

    described = [(name, kind) for name, kind, *_ in con.execute(f"DESCRIBE {sql}").fetchall()]

    dataset = open_topic(URL, topic.name, schema=schema)
    table = con.sql(sql).to_arrow_table()
    assert [name for name, _ in described] == dataset.schema.names
    assert table.cast(dataset.schema).num_rows == topic.message_count
