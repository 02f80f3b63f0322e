"""The option `where` means what SQL means, and what it does not understand is an error."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from connector.filters.row_filters import ArrowFilter, row_numbers
from connector.filters.where import where_expression

NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS: Final = {
    "a": pa.array([None, -(2**31), -2, 0, 1, 2, 2**31 - 1], pa.int32()),
    "long": pa.array([None, -(2**63), 2**53, 2**53 + 1, 2**63 - 1], pa.int64()),
    "money": pa.array([None, *map(Decimal, ("-999.99", "0.00", "1.00", "1.01", "999.99"))]),
    "f": pa.array([None, float("nan"), float("-inf"), -0.0, 0.0, 1.5, float("inf")]),
    "s": pa.array([None, "", "a", "ab", "it's", "ä", "a%", "\U0001f600"]),
    "is it": pa.array([None, True, False]),
    "t": pa.array([None, *(NOON + timedelta(microseconds=n) for n in (-1, 0, 1))]),
    "local": pa.array([None, *(NOON.replace(tzinfo=None) + timedelta(days=n) for n in (-1, 0))]),
    "d": pa.array([None, *(date(2026, 1, day) for day in (30, 31))]),
}
"""Values at which conditions may change."""
ROWS: Final = max(map(len, COLUMNS.values()))
TABLE: Final = pa.table(
    {
        name: values.take(pa.array([row % len(values) for row in range(ROWS)]))
        for name, values in COLUMNS.items()
    }
)
NUMBERS: Final = ("0", "1", "-2", "1.5", "1.005", "-.5", "2147483648", "-2147483649.5", "1e0")
LITERALS: Final = {
    "a": NUMBERS,
    "long": ("9007199254740993", "9007199254740992", "0.5", "-9223372036854775808"),
    "money": ("0", "1", "1.005", "1.01", "1000", "-999.99", "-1000.5"),
    "f": NUMBERS,
    "s": ("''", "'a'", "'ab'", "'it''s'", "'b'", "'ä'", "'%'"),
    "is it": ("TRUE", "false"),
    "t": (
        "TIMESTAMP '2026-01-31 12:00:00'",
        "timestamp '2026-01-31 12:00:00.000001'",
        "'2026-01-31 12:00:00'",
        "'2026-01-31T13:00:00.000001+01:00'",
        "'2026-01-31'",
        "DATE '2026-02-01'",
    ),
    "local": (
        "TIMESTAMP '2026-01-30 12:00'",
        "TIMESTAMP '2026-01-31T00:00:00'",
        "'2026-01-30 12:00'",
        "date '2026-01-31'",
    ),
    "d": ("DATE '2026-01-31'", "date '2026-02-01'", "'2026-01-31'"),
}


@st.composite
def predicates(draw: st.DrawFn) -> str:
    """What is said of one column."""
    name = draw(st.sampled_from(sorted(LITERALS)))
    column = f"`{name}`" if " " in name else name
    literals = st.sampled_from(LITERALS[name])
    listed = st.lists(st.one_of(literals, st.just("NULL")), min_size=1)
    patterns = st.sampled_from(["'a%'", "'%'", "'ab'"])
    negation = draw(st.sampled_from(["", "NOT "]))
    forms = ["null", "in"]
    if name == "is it":
        forms += ["equal", "bare"]
    else:
        forms += ["sign", "mirrored", "between"] + ["like"] * (name == "s")
    sign = draw(st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">="]))
    texts = {
        "null": f"{column} IS {negation}NULL",
        "in": f"{column} {negation}in ({', '.join(draw(listed))})",
        "equal": f"{column} {draw(st.sampled_from(['=', '!=']))} {draw(literals)}",
        "bare": f"{negation}{column}",
        "between": f"{column} {negation}BETWEEN {draw(literals)} AND {draw(literals)}",
        "like": f"{column} {negation}LIKE {draw(patterns)}",
        "sign": f"{column} {sign} {draw(literals)}",
        "mirrored": f"{draw(literals)} {sign} {column}",
    }
    return texts[draw(st.sampled_from(forms))]


CONDITIONS: Final = st.recursive(
    st.one_of(predicates(), st.sampled_from(["TRUE", "false", "NOT TRUE"])),
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.lists(inner, min_size=2, max_size=3).map(" AND ".join).map("({})".format),
        st.lists(inner, min_size=2, max_size=3).map(" or ".join).map("({})".format),
        st.tuples(inner, inner, inner).map("{0[0]} AND NOT {0[1]} OR {0[2]}".format),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    """The same rows in DuckDB, whose times are in UTC."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("given", TABLE.append_column("row", row_numbers(ROWS)))
    connection.execute("CREATE TABLE rows AS SELECT * FROM given")
    return connection


def matching_rows(condition: str) -> list[int]:
    """The numbers of the rows that a condition keeps."""
    found = ArrowFilter.from_expression(where_expression(condition, TABLE.schema), TABLE.schema)
    (batch,) = TABLE.combine_chunks().to_batches()
    numbers: list[int] = found.matching_rows(batch).to_pylist()
    return numbers


def check(duck: duckdb.DuckDBPyConnection, conditions: list[str]) -> None:
    """Each condition keeps the rows for which it is true in DuckDB."""
    answers = ", ".join(each.replace("`", '"') for each in conditions)
    rows = duck.execute(f'SELECT {answers} FROM rows ORDER BY "row"').fetchall()  # noqa: S608
    for condition, answer in zip(conditions, zip(*rows, strict=True), strict=True):
        assert matching_rows(condition) == [row for row, it_is in enumerate(answer) if it_is], (
            condition
        )


def test_comparisons_are_those_of_duckdb(duck: duckdb.DuckDBPyConnection) -> None:
    """Every operator, with each of the literals."""
    names = (name for name in LITERALS if " " not in name)
    check(
        duck,
        [
            f"{negation}{name} {sign} {literal}"
            for name in names
            for literal in LITERALS[name]
            for sign in ("=", "!=", "<", "<=", ">", ">=")
            for negation in ("", "NOT ")
        ],
    )


@given(conditions=st.lists(CONDITIONS, min_size=3, max_size=3))
def test_rows_are_those_of_duckdb(duck: duckdb.DuckDBPyConnection, conditions: list[str]) -> None:
    """A row is given if a condition is true, and not if it is false or null."""
    check(duck, conditions)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("t = TIMESTAMP '2026-01-31 13:00:00+01:00'", 1),
        ("t = TIMESTAMP '2026-01-31T12:00:00Z'", 1),
        ("T > timestamp '2026-01-31'", 2),
        ("`it``s` IS NULL", 2),
        ("(" * 99 + "`it``s` = 0" + ")" * 99, 1),
        ("`it``s` = 0" + " OR `it``s` = 0" * 5000, 1),
        ("NOT " * 5001 + "`it``s` = 0", 0),
        ("`it``s` < 1e300", 1),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_duckdb_writes_otherwise(condition: str, count: int) -> None:
    """Offsets of times, columns in backticks, in any case; and conditions of any length."""
    times = pa.array([None, NOON, NOON + timedelta(days=1)])
    table = pa.table({"t": times, "it`s": pa.array([0, None, None])})

    found = table.filter(where_expression(condition, table.schema))

    assert found.num_rows == count


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "it is incomplete"),
        ("a =", "it is incomplete"),
        ("(a = 1", "it is incomplete"),
        ("a = 1)", ") at character 6"),
        ("a = 1 a", "a at character 7"),
        ("a <=> 1", "> at character 5"),
        ("a = 1 -- b", "- at character 7"),
        ("a + 1 = 2", "+ at character 3"),
        ("a = f", "f at character 5"),
        ("1 = 1", "1 at character 5"),
        ("a = 1 = 1", "= at character 7"),
        ("upper(s) = 'A'", "no column upper"),
        ("b = 1", "no column b"),
        ("mony = 1", "did you mean money?"),
        ("and = 1", "and at character 1"),
        ("s.x = 1", ".x = 1 at character 2"),
        ("a = 1L", "1L at character 5"),
        ("a = NULL", "use IS NULL"),
        ("a IN (1, NULL, '1')", "compare it with a number"),
        ("a NOT IN (NULL, '1')", "compare it with a number"),
        ("TRUE = 1", "1 at character 8"),
        ("a = 1 TRUE", "TRUE at character 7"),
        ("a IN ()", ") at character 7"),
        ("a NOT = 1", "= at character 7"),
        ('s = "a"', "write strings in single quotes"),
        ("s = 'a", "must end with a single quote"),
        (r"s = 'a\n'", "have no backslash"),
        ("s LIKE 'a_'", "LIKE 'a_' is not supported"),
        ("s LIKE '%a%'", "LIKE '%a%' is not supported"),
        ("a LIKE '1%'", "LIKE needs a string"),
        ("a = '1'", "column a is int32: compare it with a number"),
        ("f = TRUE", "compare it with a number"),
        ("s = 1", "with a string in single quotes"),
        ("`is it` > FALSE", "with TRUE or FALSE"),
        ("t = '2026-1-31'", "cannot parse '2026-1-31': write it like '2026-01-31 12:00"),
        ("t = 1", "compare it with a time, such as '2026-01-31 12:00:00'"),
        ("d = '2026-01-31 12:00'", "cannot parse '2026-01-31 12:00': write it like '2026"),
        ("local = '2026-01-31 00:00:00Z'", "has no time zone"),
        ("d = TIMESTAMP '2026-01-31'", "with a date, such as '2026-01-31'"),
        ("local = TIMESTAMP '2026-01-31 00:00:00Z'", "has no time zone"),
        ("t = TIMESTAMP '2026-02-30'", "cannot parse TIMESTAMP '2026-02-30'"),
        ("t = TIMESTAMP '2026-01-31 00:00:00.0000001'", "cannot parse TIMESTAMP"),
        ("t = TIMESTAMP '0001-01-01 00:00:00+10:00'", "cannot parse TIMESTAMP"),
        ("d = DATE '2026-1-1'", "cannot parse DATE '2026-1-1'"),
        ("f = 1e400", "greater than any floating-point number"),
        ("a = 1e10000", "1e10000 at character 5"),
        ("bytes = 'a'", "with NULL only"),
        ("a", "it is incomplete"),
        ("(" * 101 + "a = 1" + ")" * 101, "nested more than 100 deep"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_say_what_cannot_be_parsed(condition: str, message: str) -> None:
    """With its offset, or with the literals that the column can be compared with."""
    schema = TABLE.schema.append(pa.field("bytes", pa.binary()))
    with pytest.raises(OptionError, match=r"^where is not a valid condition: ") as caught:
        where_expression(condition, schema)

    assert message in str(caught.value)


def test_names_that_differ_in_case_alone() -> None:
    """Case decides if it has to; what it cannot decide is not guessed."""
    schema = pa.schema({"Key": pa.int8(), "key": pa.int8()})

    assert str(where_expression("Key = 1", schema)) == "(Key == 1)"
    with pytest.raises(OptionError, match="did you mean Key or key"):
        where_expression("KEY = 1", schema)


def test_conditions_are_texts_of_options() -> None:
    """An error shows the condition as it was given, quotes and all."""
    with pytest.raises(OptionError) as caught:
        where_expression("s = 'it''s' x", pa.schema({"s": pa.string()}))

    assert json.dumps("s = 'it''s' x") in str(caught.value)
