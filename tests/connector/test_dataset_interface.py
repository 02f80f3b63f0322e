"""A topic does what Arrow's own dataset of the same rows does, or says that it cannot."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from hypothesis import given
from hypothesis import strategies as st

import connector
from arrow_io.errors import IncompleteReadWarning, OptionError
from connector import TopicDataset, open_topic
from connector.dataset import TopicFragment
from connector.scan import parts
from connector.scan.topic_scan import Scan
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TOPIC: Final = golden_topic("multi-ledger")
_COLUMNS: Final = ("__ledger_id__", "__entry_id__", "__key__", "__publish_time__")
_ENTRY: Final = pc.field("__entry_id__")
_LEDGER: Final = pc.field("__ledger_id__")
_FILTERS: Final = (None, _ENTRY > 2, _LEDGER == 86, pc.field("__key__").is_valid(), _ENTRY < 0)
_TOPIC_ROWS: Final = 255
_TRUE: Final = pc.scalar(True)  # noqa: FBT003 - the literal


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks and fragments of one data block."""
    monkeypatch.setattr(Scan.plan, "__defaults__", (1,))
    monkeypatch.setattr(parts, "DEFAULT_TASK_BYTES", 1)


def _pair(name: str = "multi-ledger", **options: Any) -> tuple[TopicDataset, pads.Dataset]:  # noqa: ANN401
    dataset = open_golden(golden_topic(name), columns=_COLUMNS, **options)
    return dataset, pads.dataset(dataset.to_table())


@given(
    indices=st.lists(st.integers(0, _TOPIC_ROWS - 1), max_size=40),
    expression=st.sampled_from(_FILTERS[:4]),
    columns=st.sampled_from([None, ("__key__",), ("__value__", "__entry_id__")]),
    task_bytes=st.sampled_from([1, 1 << 28]),
)
def test_take_is_that_of_arrow(
    indices: list[int],
    expression: pc.Expression | None,
    columns: Sequence[str] | None,
    task_bytes: int,
) -> None:
    """Any indices, repeated and in any order, of any filter and columns, however tasks are cut."""
    dataset = open_golden(_TOPIC)
    table = dataset.to_table(columns, expression)
    indices = [each for each in indices if each < table.num_rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scan.plan, "__defaults__", (task_bytes,))

        rows = dataset.take(indices, columns, expression)

    assert rows.equals(pads.dataset(table).take(indices))


@pytest.mark.parametrize(
    "indices",
    [pa.array([3, 1], pa.uint8()), pa.chunked_array([[7], [7]]), range(4), (0,), [], [2.0]],
    ids=["array", "chunks", "range", "tuple", "none", "floats"],
)
def test_indices_of_any_kind(indices: Any) -> None:  # noqa: ANN401 - each kind
    """What Arrow takes for indices is taken here."""
    dataset, arrow = _pair()

    assert dataset.take(indices).equals(arrow.take(indices))
    assert dataset.scanner().take(indices).equals(arrow.take(indices))


@pytest.mark.parametrize("indices", [[], [3], [3, 1, 1]])
def test_take_without_columns_has_the_rows(indices: list[int]) -> None:
    """Their number is all that is left of them; Arrow's own `take` loses it."""
    dataset, _ = _pair()

    assert dataset.take(indices, columns=[]).num_rows == len(indices)


@pytest.mark.parametrize(
    ("indices", "error", "match"),
    [
        ([0, _TOPIC_ROWS], IndexError, f"no row with the number {_TOPIC_ROWS}"),
        ([-1], IndexError, "cannot be negative: -1"),
        ([None], OptionError, "not null"),
        ("x", OptionError, "indices must be whole numbers"),
        (["y"], OptionError, "indices must be whole numbers"),
    ],
)
def test_indices_without_a_row(indices: Any, error: type[Exception], match: str) -> None:  # noqa: ANN401
    """They are refused, as Arrow refuses them."""
    dataset, arrow = _pair()

    with pytest.raises(error, match=match):
        dataset.take(indices)
    with pytest.raises((pa.ArrowException, IndexError, ValueError)):
        arrow.take(indices)


def test_fractions_are_no_indices() -> None:
    """Arrow would truncate them."""
    dataset, _ = _pair()

    with pytest.raises(OptionError, match="indices must be whole numbers"):
        dataset.take([0.5])


@pytest.mark.parametrize("name", ["chunked", "compacted", "transactions", "partitioned"])
@pytest.mark.usefixtures("small_tasks")
def test_take_finds_rows_of_several_entries(name: str) -> None:
    """Chunks, compacted batches, transactions, partitions: numbers are those of a whole read."""
    dataset = open_topic(str(_TOPIC.objects_folder), name)
    table = dataset.to_table()

    for number in range(table.num_rows):
        assert dataset.take([number]).equals(table.slice(number, 1))


@pytest.mark.usefixtures("small_tasks")
def test_take_decodes_only_tasks_with_a_row() -> None:
    """The metrics are those of the tasks that were decoded; later ones are not even counted."""
    dataset = open_golden(_TOPIC)
    entries = dataset.to_table(["__ledger_id__"]).column(0).to_pylist()
    second = entries.index(sorted(set(entries))[1])

    dataset.take([second])

    assert dataset.metrics.rows == 1
    assert 0 < dataset.metrics.entries < len(entries) // 2


def test_take_counts_what_salvage_leaves_out() -> None:
    """A row that damage takes away shifts the numbers of the rows after it."""
    entries = [encode_entry([Message(payload=bytes(40))], batched=False) for _ in range(20)]
    objects = offload([(1, entries)])
    name = next(iter(objects))
    data = bytearray(objects[name])
    data[data.index(entries[3], data.index(entries[3]) + 1) + len(entries[3]) - 1] ^= 1
    with memory_bucket(objects | {name: bytes(data)}) as bucket:
        dataset = open_topic(
            bucket.url, TOPIC, on_corruption="salvage", columns=["__entry_id__", "__value__"]
        )

        with pytest.warns(IncompleteReadWarning, match="1 × entry lost"):
            rows = dataset.take([0, 1, 2])

    assert rows.column(0).to_pylist() == [0, 2, 3]


@pytest.fixture
def many_arrow_threads() -> Iterator[None]:
    """More threads than batches need, so that batches pass each other."""
    threads = pa.cpu_count()
    pa.set_cpu_count(16)
    yield
    pa.set_cpu_count(threads)


@pytest.mark.parametrize("sorting", ["__key__", [("__entry_id__", "descending")]])
@pytest.mark.usefixtures("many_arrow_threads")
def test_sort_by_keeps_the_order_of_equal_rows(sorting: Any) -> None:  # noqa: ANN401 - Arrow's
    """As Arrow's tables do, not its datasets; of many batches too. A filter applies before."""
    dataset, arrow = _pair(batch_rows=1)
    filtered = dataset.filter(_ENTRY > 2)

    assert isinstance(dataset.sort_by(sorting), pads.InMemoryDataset)
    for one, other in 10 * [(dataset, arrow), (filtered, arrow.filter(_ENTRY > 2))]:
        rows = one.sort_by(sorting).to_table()
        assert rows.equals(other.to_table().sort_by(sorting))


@pytest.mark.parametrize("join_type", ["inner", "left outer", "full outer", "right semi"])
def test_join_is_that_of_arrow(join_type: str) -> None:
    """With a dataset of Arrow and with another topic."""
    dataset, arrow = _pair()
    right, arrow_right = _pair("bytes-single-none")
    options: dict[str, Any] = {"join_type": join_type, "right_suffix": "_right"}
    order = [(name, "ascending") for name in ("__ledger_id__", "__entry_id__")]

    def rows(joined: pads.Dataset) -> pa.Table:
        names = [name for name in joined.schema.names if name.startswith(("__l", "__e"))]
        return joined.to_table(names).sort_by(order[: len(names)])

    expected = arrow.join(arrow_right, "__entry_id__", **options)
    assert expected.count_rows()
    for each in (right, arrow_right):
        joined = dataset.join(each, "__entry_id__", **options)
        assert joined.schema == expected.schema
        assert rows(joined).equals(rows(expected))


def test_join_asof_is_that_of_arrow() -> None:
    """The row of the other topic that is nearest in time."""
    dataset, arrow = _pair()
    right, _ = _pair("bytes-single-none")
    right = right.replace_schema(pa.schema([right.schema.field(1), right.schema.field(3)]))
    right_arrow = pads.dataset(right.to_table().rename_columns(["other", "__publish_time__"]))
    arguments: dict[str, Any] = {"on": "__publish_time__", "by": [], "tolerance": 1 << 40}

    joined = dataset.join_asof(right_arrow, **arguments)

    assert joined.to_table().equals(arrow.join_asof(right_arrow, **arguments).to_table())
    assert joined.schema.names[-1] == "other"


@pytest.mark.parametrize("expression", _FILTERS, ids=str)
def test_filtered_reads_are_those_of_arrow(expression: pc.Expression | None) -> None:
    """Rows, their number, and the first of them."""
    dataset, arrow = _pair()

    assert dataset.to_table(filter=expression).equals(arrow.to_table(filter=expression))
    assert dataset.count_rows(expression) == arrow.count_rows(filter=expression)
    assert dataset.head(5, filter=expression).equals(arrow.head(5, filter=expression))
    assert pa.Table.from_batches(dataset.to_batches(filter=expression), dataset.schema).equals(
        arrow.to_table(filter=expression)
    )


def test_replaced_schema_selects_columns() -> None:
    """In its order; what would convert values or add nulls is refused, with the reason."""
    dataset, arrow = _pair()
    schema = pa.schema([dataset.schema.field(name) for name in ("__key__", "__entry_id__")])

    replaced = dataset.replace_schema(schema)

    assert replaced.schema == schema
    assert replaced.to_table().equals(arrow.replace_schema(schema).to_table())
    with pytest.raises(
        OptionError, match="column __entry_id__ is int64 and cannot be read as int32"
    ):
        dataset.replace_schema(pa.schema({"__entry_id__": pa.int32()}))
    with pytest.raises(OptionError, match="unknown"):
        dataset.replace_schema(pa.schema({"unknown": pa.int32()}))


@pytest.mark.parametrize("name", ["multi-ledger", "multi-block", "chunked", "partitioned"])
@pytest.mark.usefixtures("small_tasks")
def test_fragments_have_each_row_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, in any process, and with any columns and filter."""
    dataset = open_topic(str(_TOPIC.objects_folder), name, columns=[*_COLUMNS, "__value__"])
    order = [(each, "ascending") for each in _COLUMNS[:2]]
    table = dataset.to_table().sort_by(order)
    counts = set()
    for cores in (1, 2, 1000):
        monkeypatch.setattr("connector.dataset.processor_count", lambda cores=cores: cores)
        fragments = list(dataset.get_fragments())
        counts.add(len(fragments))
        copies = [pickle.loads(pickle.dumps(each)) for each in fragments]

        rows = pa.concat_tables(each.to_table() for each in copies)
        filtered = pa.concat_tables(
            each.to_table(dataset.schema, columns=["__key__"], filter=_ENTRY > 2)
            for each in fragments
        )

        assert rows.sort_by(order).equals(table)
        assert sum(each.count_rows() for each in fragments) == table.num_rows
        assert filtered.num_rows == dataset.count_rows(_ENTRY > 2)
        assert filtered.column_names == ["__key__"]
    assert 1 in counts
    assert len(counts) > 1 or name in {"chunked", "multi-block"}


@pytest.mark.usefixtures("small_tasks")
def test_fragments_are_those_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter leaves out fragments, and rows only when they are read; as in Arrow."""
    monkeypatch.setattr("connector.dataset.processor_count", lambda: 1000)
    dataset, _ = _pair()

    fragments = list(dataset.get_fragments(_LEDGER == 86))

    assert all(isinstance(each, TopicFragment) for each in fragments)
    assert 0 < len(fragments) < len(list(dataset.get_fragments()))
    for each in fragments:
        whole = each.to_table()
        assert each.physical_schema == whole.schema
        assert each.partition_expression.equals(_TRUE)
        assert each.head(2).equals(whole.slice(0, 2))
        assert each.take([1, 0]).equals(whole.take([1, 0]))
        assert pa.Table.from_batches(each.to_batches()).equals(whole)
        assert each.count_rows(_LEDGER == 86) == whole.filter(_LEDGER == 86).num_rows
        assert each.scanner(dataset.schema, filter=_ENTRY < 0).to_table().num_rows == 0
        assert each.scanner().projected_schema == dataset.schema
    with pytest.raises(OptionError, match="no option filters"):
        fragments[0].to_table(filters=_ENTRY)


def test_fragments_of_a_filtered_dataset_are_filtered() -> None:
    """Arrow refuses them, because it cannot tell whether rows or fragments are meant."""
    dataset, _ = _pair()

    fragments = list(dataset.filter(_ENTRY > 2).get_fragments(_LEDGER == 86))

    rows = sum(each.to_table().filter(_LEDGER == 86).num_rows for each in fragments)
    assert rows == dataset.count_rows((_ENTRY > 2) & (_LEDGER == 86))


def test_fragments_of_the_latest_view_have_its_rows() -> None:
    """The view's own filter stays, whatever filter is added."""
    dataset, _ = _pair(view="latest")

    rows = [each.to_table() for each in dataset.get_fragments(_ENTRY > 2)]

    assert pa.concat_tables(rows).equals(dataset.to_table())
    assert dataset.count_rows() < _TOPIC_ROWS


_MISUSES: Final[dict[str, Callable[[TopicDataset, pa.Table], object]]] = {
    "join of a table": lambda dataset, table: table.join(dataset, "__entry_id__"),
    "union": lambda dataset, table: pads.dataset([dataset, pads.dataset(table)]).to_table(),
    "scanner": lambda dataset, _: pads.Scanner.from_dataset(dataset).to_table(),
    "count": lambda dataset, _: pads.Scanner.from_dataset(dataset).count_rows(),
}


@pytest.mark.parametrize("misuse", _MISUSES.values(), ids=_MISUSES)
def test_what_arrow_does_itself_is_refused(
    misuse: Callable[[TopicDataset, pa.Table], object],
) -> None:
    """Arrow's C++ code knows no topics: it raises an error, and neither crashes nor finds none."""
    dataset, arrow = _pair()

    with pytest.raises(OptionError, match=r"pass dataset.to_table\(\)"):
        misuse(dataset, arrow.to_table())


def test_arrow_refuses_a_fragment_of_a_topic() -> None:
    """A subclass of Arrow's class, without an object of its C++ code, would end the process."""
    dataset, _ = _pair()
    fragment = next(dataset.get_fragments())

    with pytest.raises(TypeError, match="fragment"):
        pads.Scanner.from_fragment(fragment)


def test_a_dataset_is_freed_with_its_last_reference() -> None:
    """What Arrow holds in the place of a topic does not hold the topic."""
    dataset = open_golden(_TOPIC)
    fragments = list(dataset.get_fragments())
    held = [weakref.ref(each) for each in (dataset, dataset.scan, *fragments)]

    dataset.head(1)
    del dataset, fragments

    gc.collect()
    assert [each() is None for each in held] == [True] * len(held)


def test_every_method_of_arrow_is_our_own() -> None:
    """None is inherited that would look for files."""
    public = {name for name in dir(pads.Dataset) if not name.startswith("_")}

    assert {name for name in public if name not in vars(TopicDataset)} == set()
    assert {name for name in dir(pads.Fragment) if not name.startswith("_")} <= {
        *vars(TopicFragment)
    }
    dataset, _ = _pair()
    assert dataset.children == [dataset]
    assert dataset.partition_expression.equals(_TRUE)


@pytest.mark.parametrize("library", ["daft", "dask", "ray"])
def test_engines_that_are_missing_are_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that installs one is part of the error."""
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"connector.engines.{library}_source", raising=False)
    dataset, _ = _pair()

    with pytest.raises(OptionError, match=rf"read_{library} needs {library}.*pip install"):
        getattr(connector, f"read_{library}")(dataset)
