"""Ray Data reads a topic on its workers, through a source whose read tasks are parts of a scan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import ray
from ray.data.expressions import col, udf

from arrow_io.errors import ChecksumError, IncompleteReadWarning
from connector import open_topic, read_ray
from connector.engines.ray_source import TopicDatasource
from tests.engines.damage import damaged_objects
from tests.engines.topics import TYPED, opened, sorted_rows
from tests.support.buckets import TOPIC, offload
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector import TopicDataset

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(600),
    # Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_SECRET: Final = "abracadabra"  # noqa: S105 - invented


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster of two workers on loopback, and the folder of its logs."""
    # A socket's path in the folder must be short.
    folder = tmp_path_factory.mktemp("r")
    context = ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=150 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(folder),
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield Path(context.address_info["session_dir"])
    finally:
        ray.shutdown()


pytestmark.append(pytest.mark.usefixtures("session"))


def _table(dataset: ray.data.Dataset) -> pa.Table:
    return pa.concat_tables(ray.get(list(dataset.to_arrow_refs())))


@pytest.mark.parametrize("name", TYPED)
def test_rows_are_those_of_the_dataset(name: str) -> None:
    """All types of columns, from tasks of one block each."""
    dataset = opened(name)

    rows = _table(read_ray(dataset, task_bytes=1))

    assert rows.schema.types == dataset.schema.types
    assert sorted_rows(rows, dataset.schema) == sorted_rows(dataset.to_table(), dataset.schema)


def test_tasks_run_on_workers() -> None:
    """Each read task runs in a process of Ray's; the tasks are those that were planned."""
    dataset = opened("multi-ledger", columns=["__ledger_id__"])
    source = TopicDatasource(dataset.scan, 1)

    tasks = source.get_read_tasks(200)

    @ray.remote  # type: ignore[untyped-decorator]
    def run(task: ray.data.ReadTask) -> tuple[int, int]:
        return os.getpid(), sum(block.num_rows for block in task())

    results = ray.get([run.remote(each) for each in tasks])
    assert len(tasks) > 2
    assert sum(rows for _, rows in results) == dataset.count_rows()
    assert os.getpid() not in {pid for pid, _ in results}
    (alone,) = TopicDatasource(dataset.scan).get_read_tasks(1)
    assert sum(block.num_rows for block in alone()) == dataset.count_rows()


def test_projection_and_filter_reach_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan that Ray runs reads two columns of the matching rows, and filters nothing."""
    planned: list[Any] = []
    original = TopicDatasource.get_read_tasks

    def spy(source: TopicDatasource, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        planned.append((source._scan.options.row_filter, source._get_data_columns()))
        return original(source, *arguments, **options)

    monkeypatch.setattr(TopicDatasource, "get_read_tasks", spy)
    dataset = opened("json-orders")
    frame = read_ray(dataset).filter(expr=col("status") == "NEW").select_columns(["total"])

    rows = _table(frame)

    expected = dataset.to_table(["total", "status"]).to_pylist()
    assert rows.column_names == ["total"]
    assert sorted(rows.column(0).to_pylist()) == sorted(
        each["total"] for each in expected if each["status"] == "NEW"
    )
    row_filter, columns = planned[-1]
    assert str(row_filter.expression) == '(status == "NEW")'
    assert set(columns) == {"total"}


def test_ray_applies_what_the_reader_cannot() -> None:
    """Functions of the user's, and comparisons that Arrow has no kernel for."""

    @udf(return_dtype=ray.data.datatype.DataType.bool())  # type: ignore[untyped-decorator]
    def is_new(status: pa.Array) -> pa.Array:
        return pc.equal(status, "NEW")

    dataset = opened("json-orders")
    source = TopicDatasource(dataset.scan)
    frame = read_ray(dataset)

    assert frame.filter(expr=is_new(col("status")) & (col("total") > 100)).count() == (
        dataset.count_rows((pc.field("status") == "NEW") & (pc.field("total") > 100))
    )
    assert source.apply_predicate(col("customer") == "x") is source


def test_counts_without_columns() -> None:
    """`count()` reads no column, and all rows."""
    dataset = opened("multi-ledger")

    assert read_ray(dataset).count() == dataset.count_rows()
    assert read_ray(dataset, task_bytes=1).count() == dataset.count_rows()
    counted = read_ray(dataset, task_bytes=1).groupby("__ledger_id__").count().take_all()
    assert sum(each["count()"] for each in counted) == dataset.count_rows()


def test_nothing_to_read() -> None:
    """Bounds that no row lies in give a dataset with columns and no rows."""
    frame = read_ray(opened("json-orders", start=(999999, 0), columns=["__key__"]))

    assert frame.count() == 0
    assert frame.schema().names == ["__key__"]


def _damaged(folder: Path, **options: Any) -> TopicDataset:  # noqa: ANN401 - of open_topic
    for name, data in damaged_objects().items():
        (folder / name).write_bytes(data)
    return open_topic(str(folder), TOPIC, **options)


def test_damage_is_an_error(tmp_path: Path) -> None:
    """On the driver it is the error that the worker raised, with its attributes."""
    with pytest.raises(ChecksumError, match="ledger 7"):
        read_ray(_damaged(tmp_path)).take_all()


def _logs(session: Path) -> str:
    files = [each for each in (session / "logs").rglob("*") if each.is_file()]
    return "\n".join(each.read_text("utf-8", errors="replace") for each in files)


def test_losses_are_in_the_log_of_the_worker(tmp_path: Path, session: Path) -> None:
    """Ray shows it on the driver; the location of the damage is there too."""
    frame = read_ray(_damaged(tmp_path, on_corruption="salvage"))

    assert frame.take_all() == []
    logs = _logs(session)
    assert "IncompleteReadWarning: persistent://public/default/orders: 1 × entry lost" in logs
    assert "ledger 7, entry 0, offset 140" in logs


def test_losses_of_opening_are_warned_of_on_the_driver(tmp_path: Path) -> None:
    """A ledger that cannot be read at all is in no task."""
    entry = encode_entry([Message(payload=b"x")], batched=False)
    for name, data in offload([(7, [entry]), (8, [entry])]).items():
        if not name.endswith("ledger-8"):
            (tmp_path / name).write_bytes(data)
    dataset = open_topic(str(tmp_path), TOPIC, on_corruption="salvage")

    with pytest.warns(IncompleteReadWarning, match="1 × ledger lost"):
        read_ray(dataset)


def test_logs_show_no_secret(session: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Workers have the secrets; neither Ray's logs nor its plans have."""
    dataset = opened("json-orders", storage_options={"token": _SECRET})
    frame = read_ray(dataset)

    frame.explain()
    assert frame.filter(expr=col("status") == "NEW").count() == 87

    shown = "".join(capfd.readouterr()) + repr(frame) + frame.stats() + _logs(session)
    assert "ReadPulsarOffload" in shown
    assert _SECRET not in shown
