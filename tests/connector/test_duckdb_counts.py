"""`count(*)` in DuckDB: from statistics as far as they are exact, and always the number of rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import IncompleteReadWarning, PulsarOffloadError, UnusedStatisticsWarning
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, register_duckdb
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.damage import flipped
from tests.support.golden import golden_topic
from tests.support.statistics import analyzed
from tests.support.topics import topics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.topics import Topic

BLOCKS: Final = golden_topic("multi-block")
_COLUMNS: Final = (
    "__ledger_id__",
    "__entry_id__",
    "__publish_time__",
    "__event_time__",
    "__key__",
)
_BOUND_COLUMNS: Final = [
    *("__ledger_id__", "__entry_id__", "__batch_index__"),
    *("__publish_time__", "__event_time__", "__broker_time__"),
]
_BOUNDS: Final = (
    "SELECT messages, (first_ledger_id, first_entry_id, first_batch_index),"
    " (last_ledger_id, last_entry_id, last_batch_index), min_publish_time, max_publish_time,"
    " min_event_time, max_event_time, min_broker_time, max_broker_time FROM {} WHERE messages > 0"
)
_PLAIN_BOUNDS: Final = (
    "SELECT count(__ledger_id__), first((__ledger_id__, __entry_id__, __batch_index__)),"
    " last((__ledger_id__, __entry_id__, __batch_index__)),"
    " min(__publish_time__), max(__publish_time__), min(__event_time__), max(__event_time__),"
    " min(__broker_time__), max(__broker_time__)"
    " FROM (FROM {} ORDER BY __ledger_id__, __entry_id__, __batch_index__) HAVING count(*) > 0"
)
"""The same, of all rows."""


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with statistics of a topic whose ledger has many zones."""
    folder = tmp_path_factory.mktemp("statistics")
    open_catalog(str(BLOCKS.objects_folder)).analyze(folder, ["multi-block"])
    return folder


def _answer(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...] | str:
    """The rows, or the error instead of them."""
    with warnings.catch_warnings():
        for each in (IncompleteReadWarning, UnusedStatisticsWarning):
            warnings.simplefilter("ignore", each)
        try:
            rows = con.execute(sql).fetchall()
        except duckdb.Error as error:
            return next(
                each.__name__
                for each in [*PulsarOffloadError.__subclasses__(), PulsarOffloadError, Exception]
                if each.__name__ in str(error) or each is Exception
            )
        return tuple(rows)


@pytest.mark.parametrize(
    ("condition", "is_read"),
    [
        ("true", False),
        ("__publish_time__ >= '2026-01-01' AND __entry_id__ >= 0", False),
        ("__ledger_id__ = 91 OR __ledger_id__ = 92", False),
        ("__entry_id__ < 16", False),
        ("__publish_time__ >= '2026-11-21 12:48:28.6Z'", False),
        ("__publish_time__ < '2026-01-01'", False),
        ("__publish_time__ >= '2026-11-21 12:48:28.56Z'", True),
        ("__entry_id__ < 17", True),
    ],
)
def test_recorded_counts_are_not_read(statistics: Path, condition: str, *, is_read: bool) -> None:
    """Zones all of whose rows match are not requested, nor those none of whose rows match."""
    trace = RequestTrace()
    with duckdb.connect() as con:
        register_duckdb(con, str(BLOCKS.objects_folder), value="raw", trace=trace)
        rows = f"read_pulsar('multi-block', statistics := '{statistics}') WHERE {condition}"
        [(expected,)] = con.execute(
            f"SELECT count(__publish_time__) FROM read_pulsar('multi-block') WHERE {condition}"  # noqa: S608
        ).fetchall()
        before = trace.counts.range_bytes
        [(counted,)] = con.execute(f"SELECT count(*) FROM {rows}").fetchall()  # noqa: S608
        read_bytes = trace.counts.range_bytes - before

    assert counted == expected
    # The topic has 15 MiB. The statistics are read too, which takes a few kB.
    assert read_bytes < 3 << 20
    assert (read_bytes > 100_000) == is_read


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM {0}",
        "SELECT sum(1) FROM {0}",
        "SELECT count(*) FROM {0} a, {0} b WHERE a.__entry_id__ = b.__entry_id__",
        "SELECT count(*) FROM (SELECT 7 FROM {0} LIMIT 100)",
        "SELECT max(n) FROM (SELECT row_number() OVER () AS n FROM {0})",
        "SELECT count(*), count(__key__) FROM {0} WHERE __key__ IS NOT NULL",
        "SELECT EXISTS (FROM {0} WHERE __entry_id__ > 5)",
        "SELECT count(*) FROM {0} WHERE octet_length(__value__) % 2 = 0",
    ],
)
def test_statements_without_columns(statistics: Path, sql: str) -> None:
    """Whatever uses no column has as many rows as one that does."""
    with duckdb.connect() as con:
        register_duckdb(con, str(BLOCKS.objects_folder), value="raw")
        con.execute("CREATE TABLE rows AS FROM read_pulsar('multi-block')")
        known = f"read_pulsar('multi-block', statistics := '{statistics}')"

        expected = con.execute(sql.format("rows")).fetchall()
        assert con.execute(sql.format(known)).fetchall() == expected
        assert con.execute(sql.format("read_pulsar('multi-block')")).fetchall() == expected


def test_the_column_that_counts_is_hidden() -> None:
    """No statement sees it: neither by a star, nor by its name, nor in a description."""
    with duckdb.connect() as con:
        register_duckdb(con, str(BLOCKS.objects_folder), value="raw")
        rows = "read_pulsar('multi-block')"
        names = [name for name, *_ in con.execute(f"DESCRIBE FROM {rows}").fetchall()]
        starred = con.execute(f"FROM {rows} LIMIT 0").description
        with pytest.raises(duckdb.BinderException, match="not found"):
            con.execute(f'SELECT "rows of the topic" FROM {rows}')  # noqa: S608

    assert [name for name, *_ in starred] == names
    assert names[0] == "__entry_id__"


@settings(max_examples=settings().max_examples // 4)
@given(
    topic=topics(compacted=False, max_threads=4),
    sizes=st.tuples(st.sampled_from((140, 700, 1 << 20)), st.sampled_from((1, 200, 1 << 20))),
    state=st.sampled_from(("whole", "whole", "damaged", "later damage", "grown")),
    data=st.data(),
)
def test_counts_are_those_of_a_plain_scan(
    *, topic: Topic, sizes: tuple[int, int], state: str, data: st.DataObject
) -> None:
    """Of chunks, transactions and damage, and if the statistics are older than the topic."""
    block_bytes, zone_bytes = sizes
    objects = offload(topic.ledgers, block_bytes=block_bytes)
    names = sorted(name for name in objects if not name.endswith("-index"))
    early = dict(objects)
    if names and state in {"damaged", "later damage"}:
        name = data.draw(st.sampled_from(names), label="damaged")
        at = data.draw(st.integers(0, len(objects[name]) - 1))
        objects[name] = flipped(objects[name], at, 0x80)
        early = early if state == "later damage" else dict(objects)
    if state == "grown":
        late = {each.rpartition("-")[2] for each in names[len(names) // 2 :]}
        early = {
            n: d
            for n, d in objects.items()
            if n.removesuffix("-index").rpartition("-")[2] not in late
        }
    with memory_bucket(early) as bucket, memory_bucket({"README": b""}) as folder:
        if early:
            analyzed(bucket.url, TOPIC, folder.url, zone_bytes=zone_bytes)
        for name, content in objects.items():
            if early.get(name) != content:
                bucket.put({name: content})
        options: dict[str, Any] = {
            "value": "raw",
            "on_corruption": data.draw(st.sampled_from(("raise", "salvage"))),
            "transactions": data.draw(st.sampled_from(("committed", "all"))),
        }
        with duckdb.connect(config={"threads": 1}) as con:
            register_duckdb(con, bucket.url, **options)
            plain = f"(SELECT {', '.join(_COLUMNS)} FROM read_pulsar('{TOPIC}'))"  # noqa: S608
            known = f"read_pulsar('{TOPIC}', statistics := '{folder.url}')"
            condition = data.draw(_conditions(con, plain), label="condition")
            where = f"WHERE {condition}"

            counted = _answer(con, f"SELECT count(*) FROM {known} {where}")  # noqa: S608
            # A column that is never null, so that rows are read.
            read = _answer(con, f"SELECT count(__ledger_id__) FROM {plain} {where}")  # noqa: S608

            bounds = _answer(con, _BOUNDS.format(known.replace("read_pulsar", "pulsar_bounds")))
            plain_bounds = _answer(
                con, _PLAIN_BOUNDS.format(f"read_pulsar('{TOPIC}', columns := {_BOUND_COLUMNS})")
            )

    assert counted == read
    if isinstance(plain_bounds, str):
        # Which damage is met first depends on what is read.
        assert isinstance(bounds, str)
    else:
        assert bounds == plain_bounds


@st.composite
def _conditions(draw: st.DrawFn, con: duckdb.DuckDBPyConnection, rows: str) -> str:
    """Conditions at values that occur."""
    name = draw(st.sampled_from(("true", *_COLUMNS)))
    if name == "true":
        return name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteReadWarning)
        try:
            found = con.execute(f"SELECT DISTINCT {name}::VARCHAR AS v FROM {rows} ORDER BY v")  # noqa: S608
        except duckdb.Error:
            return "true"
        values = [value for (value,) in found.fetchall()]
    if not values:
        return f"{name} IS NOT NULL"
    sign = draw(st.sampled_from(("=", "<>", "<", ">=", "IS DISTINCT FROM")))
    one, other = (
        "NULL" if value is None else "'" + value.replace("'", "''") + "'"
        for value in (draw(st.sampled_from(values)), draw(st.sampled_from(values)))
    )
    return draw(
        st.sampled_from(
            (
                f"{name} {sign} {one}",
                f"{name} IN ({one}, {other})",
                f"{name} >= {one} AND __ledger_id__ >= 0",
                f"NOT ({name} > {one}) OR {name} IS NULL",
            )
        )
    )


def test_footers_are_read_once(statistics: Path) -> None:
    """Later statements list the folder of statistics again, but read only footers of new files."""
    trace = RequestTrace()
    sql = "SELECT count(*) FROM read_pulsar('multi-block')"
    with duckdb.connect() as con:
        register_duckdb(
            con, str(BLOCKS.objects_folder), value="raw", statistics=str(statistics), trace=trace
        )
        [(first,)] = con.execute(sql).fetchall()
        requests = trace.counts.range_requests
        [(second,)] = con.execute(sql).fetchall()

    assert first == second == BLOCKS.message_count
    assert requests > 0
    assert trace.counts.range_requests == requests


@pytest.mark.parametrize(
    "arguments",
    [
        "'multi-*'",
        "'multi-block', start := '91:40'",
        "'multi-block', until := '2026-11-21T12:48:28.56Z'",
        "'multi-block', view := 'latest'",
        "['partitioned', 'transactions', 'chunked']",
        "'transactions', transactions := 'all'",
        "'multi-block', naming := 'pulsar-spark'",
    ],
)
def test_bounds_of_topics(statistics: Path, arguments: str) -> None:
    """One row for each partition, the same with statistics and without."""
    aggregated = """
        SELECT __topic__, count(*), min(__publish_time__), max(__publish_time__),
        min((__ledger_id__, __entry_id__)), max((__ledger_id__, __entry_id__))
        FROM read_pulsar(%s, columns := ['__topic__', %s]) GROUP BY ALL ORDER BY ALL
    """
    bounds = (
        "SELECT topic, messages, min_publish_time, max_publish_time,"
        " (first_ledger_id, first_entry_id), (last_ledger_id, last_entry_id)"
        " FROM pulsar_bounds(%s) ORDER BY ALL"
    )
    columns = ", ".join(f"'{each}'" for each in _BOUND_COLUMNS[:4])
    plain_arguments = arguments.replace("pulsar-spark", "pulsar-sql")
    with duckdb.connect() as con:
        register_duckdb(con, str(BLOCKS.objects_folder), value="raw")
        expected = con.execute(aggregated % (plain_arguments, columns)).fetchall()

        assert con.execute(bounds % arguments).fetchall() == expected
        known = f"{arguments}, statistics := '{statistics}'"
        assert con.execute(bounds % known).fetchall() == expected


def test_bounds_with_a_condition(statistics: Path) -> None:
    """The condition is a text, as in `pulsar_plan`; null bounds are of no message at all."""
    trace = RequestTrace()
    with duckdb.connect() as con:
        register_duckdb(
            con, str(BLOCKS.objects_folder), value="raw", statistics=str(statistics), trace=trace
        )
        answers = [
            con.execute(
                "SELECT messages, first_entry_id, last_entry_id, min_publish_time IS NULL"
                " FROM pulsar_bounds('multi-block', \"where\" := $1)",
                [condition],
            ).fetchone()
            for condition in ("__entry_id__ >= 72", "__entry_id__ < 0")
        ]
        con.execute("EXPLAIN FROM pulsar_bounds('multi-block')").fetchall()
        before = trace.counts.range_bytes
        con.execute("FROM pulsar_bounds('multi-block')").fetchall()

    assert answers == [(4, 72, 75, False), (0, None, None, True)]
    # Only the first and the last messages are read, of 15 MiB.
    assert 0 < trace.counts.range_bytes - before < 5 << 20
