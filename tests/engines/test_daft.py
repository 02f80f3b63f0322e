"""Daft reads a topic through a data source whose tasks are parts of a scan."""

from __future__ import annotations

import asyncio
import json
import operator
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

import daft
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from daft import col, lit
from daft.io.pushdowns import Pushdowns
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import IncompleteReadWarning
from connector import open_topic, read_daft
from connector.engines import daft_source
from tests.engines.topics import TYPED, opened, sorted_rows
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from daft import Expression

    from connector import TopicDataset
    from connector.scan.parts import PartReader

pytestmark = pytest.mark.engines

_SCHEMA: Final = pa.schema(
    {
        "i": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.binary(),
        "t": pa.timestamp("ms", "UTC"),
        "d": pa.date32(),
        "o": pa.bool_(),
        "c": pa.time64("us"),
    }
)
_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
_CONVERTED: Final = [
    (col("i") > 3, "(i > 3)"),
    (lit(3) < col("i"), "(3 < i)"),
    (col("s") == "x", '(s == "x")'),
    (col("b") != b"x", '(b != "78")'),
    (col("t") <= _TIME, "(t <= 2026-01-01 00:00:00.000Z)"),
    (col("d") == date(2026, 1, 1), "(d == 2026-01-01)"),
    (col("c") < time(1), "(c < 01:00:00.000000)"),
    (col("i").between(1, 5), "((i >= 1) and (i <= 5))"),
    (col("s").is_null(), "is_null(s, {nan_is_null=false})"),
    (col("f").not_null(), "is_valid(f)"),
    ((col("i") > 3) & (col("f") > 1.0), "(i > 3)"),
    ((col("i") > 3) | (col("s") == "x"), '((i > 3) or (s == "x"))'),
]
_APPLIED_AFTER: Final = {
    "floats": col("f") > 1.0,
    "a column and a float": col("i") > 1.5,
    "one side of an or": (col("i") > 3) | (col("f") > 1.0),
    "a negation": ~(col("s") == "x"),
    "a function": col("s").startswith("x"),
    "a cast": col("i").cast("string") == "3",
    "two columns": col("i") == col("i"),
    "finer than the column": col("t") >= _TIME + timedelta(microseconds=500),
    "a day and a time": col("t") >= date(2026, 1, 1),
    "too large": col("i") < 1 << 40,
}


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[PartReader]:
    """Record the readers of all tasks that are planned."""
    readers = []
    original = daft_source.TopicTask.__init__

    def spy(task: Any, reader: PartReader, *arguments: Any) -> None:  # noqa: ANN401
        readers.append(reader)
        original(task, reader, *arguments)

    monkeypatch.setattr(daft_source.TopicTask, "__init__", spy)
    return readers


@pytest.mark.parametrize("name", TYPED)
def test_rows_are_those_of_the_dataset(name: str) -> None:
    """All types of columns, from tasks of one block each."""
    dataset = opened(name)

    rows = read_daft(dataset, task_bytes=1).to_arrow()

    assert sorted_rows(rows, dataset.schema) == sorted_rows(dataset.to_table(), dataset.schema)


@pytest.mark.parametrize(("expression", "converted"), _CONVERTED, ids=repr)
def test_filters_reach_the_reader(expression: Expression, converted: str) -> None:
    """As an expression of Arrow, whose literals have the types of the columns."""
    row_filter = daft_source._filter(expression, _SCHEMA)

    assert row_filter is not None
    assert str(row_filter.expression) == converted


def test_values_in_a_list_reach_the_reader() -> None:
    """Of which none may be null: then Daft and Arrow differ."""
    row_filter = daft_source._filter(col("i").is_in([1, 2]), _SCHEMA)

    assert row_filter is not None
    assert row_filter.expression.equals(pc.field("i").isin(pa.array([1, 2], pa.int32())))
    assert daft_source._filter(col("i").is_in([1, None]), _SCHEMA) is None


@pytest.mark.parametrize("expression", _APPLIED_AFTER.values(), ids=_APPLIED_AFTER)
def test_other_filters_are_applied_by_daft(expression: Expression) -> None:
    """Where Daft compares otherwise than Arrow, a filter of ours would take rows away."""
    assert daft_source._filter(expression, _SCHEMA) is None


_OPERATORS: Final = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
_VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "__entry_id__": st.integers(-1, 9) | st.sampled_from([2.5, 3.0]),
    "__key__": st.sampled_from(["key-0", "key-2", "key-9", ""]),
    "__event_time__": st.sampled_from([0, 1, 500_000, 1_000_500, 2_000_000]).map(
        lambda us: datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC) + timedelta(microseconds=us)
    ),
    "gift": st.booleans(),
    "discount": st.sampled_from([0.0, -0.0, 0.1, 0.5, float("nan")]),
    "status": st.sampled_from(["NEW", "PAID", "x"]),
}


@st.composite
def _comparisons(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(list(_VALUES)))
    value = draw(_VALUES[name])
    kind = draw(st.sampled_from(["compare", "swap", "null", "valid", "in"]))
    if kind in {"null", "valid"}:
        return col(name).is_null() if kind == "null" else col(name).not_null()
    if kind == "in":
        return col(name).is_in([value])
    compare = draw(st.sampled_from(_OPERATORS))
    expression: Expression = (
        compare(col(name), lit(value)) if kind == "compare" else compare(lit(value), col(name))
    )
    return expression


_EXPRESSIONS: Final = st.recursive(
    _comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(operator.invert),
    ),
    max_leaves=4,
)


@given(expression=_EXPRESSIONS)
def test_a_filter_has_the_rows_that_it_has_in_memory(expression: Expression) -> None:
    """Whatever Daft takes a comparison to mean."""
    dataset = opened("json-orders", columns=[*_VALUES, "__batch_index__"])
    rows = dataset.to_table()

    found = read_daft(dataset).where(expression).to_arrow()

    expected = daft.from_arrow(rows).where(expression).to_arrow()
    order = [("__entry_id__", "ascending"), ("__batch_index__", "ascending")]
    assert repr(found.sort_by(order).to_pylist()) == repr(expected.sort_by(order).to_pylist())


def test_projection_and_filter_are_decoded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Daft applies the filter again, so its columns are returned too, and no others."""
    readers = _spied(monkeypatch)
    frame = read_daft(opened("json-orders"))

    rows = frame.where(col("status") == "NEW").select("total").to_pydict()

    assert len(rows["total"]) == 87
    (reader,) = readers
    options = reader.reads[0].options
    assert options.projection.schema.names == ["status", "total"]
    assert options.row_filter is not None
    assert options.row_filter.columns == ("status",)


def test_a_limit_ends_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task reads no more rows than the limit; with a filter, Daft counts them."""
    limits: list[int | None] = []
    original = daft_source.TopicSource.get_tasks

    async def spy(source: Any, pushdowns: Pushdowns) -> Any:  # noqa: ANN401
        async for task in original(source, pushdowns):
            limits.append(task._limit)
            yield task

    monkeypatch.setattr(daft_source.TopicSource, "get_tasks", spy)
    frame = read_daft(opened("multi-ledger"))

    assert len(frame.limit(3).to_pydict()["__key__"]) == 3
    assert len(frame.where(col("__entry_id__") > 2).limit(3).to_pydict()["__key__"]) == 3
    assert limits[0] == 3
    assert limits[-1] is None


def test_counts_and_aggregates() -> None:
    """Of all tasks."""
    dataset = opened("partitioned")
    frame = read_daft(dataset, task_bytes=1)

    counted = frame.groupby("__partition__").agg(col("__entry_id__").count().alias("n"))

    assert frame.count_rows() == dataset.count_rows()
    expected = dataset.to_table(["__partition__"]).column(0).value_counts().to_pylist()
    found = counted.to_pylist()
    assert {each["__partition__"]: each["n"] for each in found} == {
        each["values"]: each["counts"] for each in expected
    }


def test_nothing_to_read() -> None:
    """Bounds that no row lies in give a frame with columns and no rows."""
    frame = read_daft(opened("json-orders", start=(999999, 0), columns=["__key__"]))

    assert frame.to_pydict() == {"__key__": []}


def test_losses_are_warned_of() -> None:
    """In the process that reads the task."""
    frame = read_daft(opened("transactions-open"))

    with pytest.warns(IncompleteReadWarning, match="without an outcome"):
        frame.collect()


def test_plans_show_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """A task has the secrets, for it may be read in another process; what Daft shows has not."""
    entry = encode_entry([Message(payload=b"x")], batched=False)
    with memory_bucket(offload([(7, [entry])])) as bucket:
        secret = {"token": "abracadabra"}
        dataset = open_topic(bucket.url, TOPIC, storage_options=secret, columns=["__entry_id__"])
        frame = read_daft(dataset)
        (task,) = _tasks(dataset)

        frame.explain(show_all=True)

        assert b"abracadabra" in pickle.dumps(task)
        copy = pickle.loads(pickle.dumps(task))
        assert copy.schema == task.schema
        shown = capsys.readouterr().out + repr(frame) + repr(vars(task)) + repr(vars(copy))
        assert "pulsar_offload" in shown
        assert "abracadabra" not in shown
        assert frame.to_pydict() == {"__entry_id__": [0]}


def _tasks(dataset: TopicDataset) -> list[Any]:
    async def gather() -> list[Any]:
        source = daft_source.TopicSource(dataset, 1 << 20)
        return [task async for task in source.get_tasks(Pushdowns())]

    return asyncio.run(gather())


def test_damage_is_an_error(damaged: str) -> None:
    """The message of Daft's exception is ours, with object, ledger and entry."""
    with pytest.raises(Exception, match=r"ChecksumError(.|\n)*ledger 7"):
        read_daft(open_topic(damaged, TOPIC)).collect()


def test_salvage_is_warned_of(damaged: str) -> None:
    """The row is left out, and the loss is counted."""
    frame = read_daft(open_topic(damaged, TOPIC, on_corruption="salvage"))

    with pytest.warns(IncompleteReadWarning, match="1 × entry lost"):
        assert frame.to_pydict()["__value__"] == []


@pytest.mark.timeout(600)
def test_workers_of_ray_read_tasks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Daft's distributed runner sends the tasks to processes of Ray's."""
    result = tmp_path_factory.mktemp("result") / "counts.json"
    program = [sys.executable, "-m", "tests.engines.daft_on_ray"]

    subprocess.run([*program, str(tmp_path_factory.mktemp("r")), str(result)], check=True)

    table = opened("multi-ledger").to_table(["__ledger_id__"], pc.field("__entry_id__") > 2)
    expected = table.column(0).value_counts().to_pylist()
    assert json.loads(result.read_text()) == {
        str(each["values"]): each["counts"] for each in expected
    }
