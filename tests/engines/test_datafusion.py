"""DataFusion reads a topic as a dataset of Arrow: its fragments, with projection and filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from datafusion import SessionContext

from arrow_io.errors import IncompleteReadWarning
from connector import open_topic
from connector.scan import parts
from tests.engines.topics import TYPED, opened, sorted_rows
from tests.support.buckets import TOPIC

if TYPE_CHECKING:
    from connector import TopicDataset

pytestmark = pytest.mark.engines

_PUSHED: Final = {
    "status = 'NEW'": '(status == "NEW")',
    "status IN ('NEW', 'PAID')": '((status == "NEW") or (status == "PAID"))',
    "status IS NULL": "is_null(status, {nan_is_null=false})",
    "status IS NOT NULL AND total > 100": "(is_valid(status) and (total > 100))",
    "total BETWEEN 10 AND 5000": "((total >= 10) and (total <= 5000))",
    "__publish_time__ >= '2026-01-01'": "(__publish_time__ >= 2026-01-01 00:00:00.000000Z)",
    "NOT gift": "invert(gift)",
    """ "orderId" = 9223372036854775807 """: "(orderId == 9223372036854775807)",
    "signature > X'80'": '(signature > "80")',
    "__key__ > 'key-5' OR __entry_id__ = 2": '((__key__ > "key-5") or (__entry_id__ == 2))',
}
_APPLIED_AFTER: Final = (
    "upper(status) = 'NEW'",
    "status LIKE 'N%'",
    "customer['id'] < 40",
    "cardinality(items) > 2",
    "__entry_id__ % 2 = 0",
    "CASE WHEN status = 'NEW' THEN true ELSE false END",
    "__properties__['n'] < '3'",
)


def _context(dataset: TopicDataset) -> SessionContext:
    """The topic as `topic`, and its rows in memory as `rows`."""
    context = SessionContext()
    context.register_dataset("topic", dataset)
    context.register_record_batches("rows", [dataset.to_table().to_batches()])
    return context


def _matching(context: SessionContext, table: str, condition: str) -> list[tuple[int, ...]]:
    rows = context.sql(f"SELECT __entry_id__, __batch_index__ FROM {table} WHERE {condition}")  # noqa: S608
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def _plan(context: SessionContext, sql: str) -> str:
    return "\n".join(row["plan"] for row in context.sql(f"EXPLAIN {sql}").to_pylist())


@pytest.mark.parametrize("name", TYPED)
def test_rows_are_those_of_the_dataset(name: str) -> None:
    """All types of columns."""
    dataset = opened(name)
    batches = _context(dataset).sql("SELECT * FROM topic").collect()

    rows = pa.Table.from_batches(batches)

    assert rows.schema.types == dataset.schema.types
    assert sorted_rows(rows, dataset.schema) == sorted_rows(dataset.to_table(), dataset.schema)


@pytest.mark.parametrize("condition", [*_PUSHED, *_APPLIED_AFTER])
def test_a_condition_has_the_rows_that_it_has_in_memory(condition: str) -> None:
    """Whether it is pushed down or applied by DataFusion."""
    context = _context(opened("json-orders"))

    rows = _matching(context, "topic", condition)

    assert rows == _matching(context, "rows", condition)
    assert 0 < len(rows) < 400 or "2026" in condition


@pytest.mark.parametrize(("condition", "expression"), _PUSHED.items(), ids=_PUSHED)
def test_conditions_reach_the_reader(condition: str, expression: str) -> None:
    """As an expression of Arrow; the plan has no filter of its own, and only the columns used."""
    context = _context(opened("json-orders"))

    plan = _plan(context, f"SELECT total FROM topic WHERE {condition}")  # noqa: S608

    assert f"filter_expr={expression}, projection=[total]" in plan
    assert "FilterExec" not in plan


@pytest.mark.parametrize("condition", _APPLIED_AFTER)
def test_other_conditions_are_applied_by_datafusion(condition: str) -> None:
    """Rows come unfiltered from the reader."""
    plan = _plan(_context(opened("json-orders")), f"SELECT total FROM topic WHERE {condition}")  # noqa: S608

    assert "filter_expr" not in plan
    assert "FilterExec" in plan


def test_nan_compares_as_in_arrow_if_pushed_down() -> None:
    """DataFusion itself takes NaN for the greatest number, but passes comparisons to Arrow."""
    context = _context(opened("double"))

    pushed = _matching(context, "topic", "__value__ > 0")
    applied_after = _matching(context, "topic", "abs(__value__) > 0 AND __value__ > 0 + random()*0")

    assert set(pushed) < set(_matching(context, "rows", "__value__ > 0"))
    assert _matching(context, "topic", "__value__ > 0 OR isnan(__value__)") == _matching(
        context, "rows", "__value__ > 0"
    )
    assert applied_after == _matching(context, "rows", "__value__ > 0")


def test_partitions_are_read_as_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fragment is a partition of DataFusion's plan; aggregates and joins see each row once."""
    monkeypatch.setattr(parts, "DEFAULT_TASK_BYTES", 1)
    monkeypatch.setattr("connector.dataset.processor_count", lambda: 3)
    dataset = opened("partitioned")
    context = _context(dataset)

    sql = "SELECT __partition__, count(*) AS n FROM topic GROUP BY 1 ORDER BY 1"
    joined = context.sql("SELECT count(*) AS n FROM topic a JOIN topic b USING (__sequence_id__)")

    assert "number_of_fragments=3" in _plan(context, sql)
    expected = context.sql(sql.replace("topic", "rows")).to_pylist()
    assert context.sql(sql).to_pylist() == expected
    ids = dataset.to_table(["__sequence_id__"]).column(0).value_counts().to_pylist()
    assert joined.to_pylist() == [{"n": sum(each["counts"] ** 2 for each in ids)}]


def test_a_limit_and_no_columns() -> None:
    """A limit ends a read early, and `count(*)` decodes no column."""
    context = _context(opened("json-orders"))

    assert len(context.sql("SELECT __key__ FROM topic LIMIT 7").to_pylist()) == 7
    assert context.sql("SELECT count(*) AS n FROM topic").to_pylist() == [{"n": 400}]
    assert "projection=[]" in _plan(context, "SELECT count(*) FROM topic")


def test_losses_are_warned_of() -> None:
    """Also from the threads in which DataFusion reads fragments."""
    context = SessionContext()
    context.register_dataset("topic", opened("transactions-open"))

    with pytest.warns(IncompleteReadWarning, match="without an outcome"):
        context.sql("SELECT * FROM topic").collect()


def test_damage_is_an_error(damaged: str) -> None:
    """The message of DataFusion's exception is ours, with object, ledger and entry."""
    context = SessionContext()
    context.register_dataset("topic", open_topic(damaged, TOPIC))

    with pytest.raises(Exception, match=r"ChecksumError.*ledger 7"):
        context.sql("SELECT * FROM topic").collect()
