"""Dask reads a topic as a data frame whose partitions are parts of a scan."""

from __future__ import annotations

import pickle
from typing import Any

import dask
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import ChecksumError, IncompleteReadWarning
from connector import open_topic, read_dask
from connector.scan.parts import PartReader
from tests.engines.topics import TYPED, opened, sorted_rows
from tests.support.buckets import TOPIC

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("name", TYPED)
def test_rows_are_those_of_the_dataset(name: str) -> None:
    """All types of columns, as Arrow's, from partitions of one block each."""
    dataset = opened(name)
    frame = read_dask(dataset, task_bytes=1)

    rows = pa.Table.from_pandas(frame.compute(), preserve_index=False)

    assert [each.pyarrow_dtype for each in frame.dtypes] == dataset.schema.types
    assert rows.schema.types == dataset.schema.types
    assert sorted_rows(rows, dataset.schema) == sorted_rows(dataset.to_table(), dataset.schema)


def test_partitions_are_in_order() -> None:
    """The rows of a single topic stay in the order of their positions."""
    dataset = opened("multi-ledger")
    frame = read_dask(dataset, task_bytes=1)

    assert frame.npartitions > 2
    assert (
        pa.Table.from_pandas(frame.compute(), preserve_index=False)
        .select(dataset.schema.names)
        .equals(dataset.to_table())
    )


def test_processes_read_partitions() -> None:
    """Each partition in a worker of Dask's multiprocessing scheduler."""
    dataset = opened("multi-ledger", columns=["__ledger_id__", "__key__"])
    frame = read_dask(dataset, task_bytes=1)

    with dask.config.set(scheduler="processes", num_workers=2):
        counts = frame.groupby("__ledger_id__").size().compute()

    assert counts.sum() == dataset.count_rows()
    assert len(counts) == 6


def test_only_columns_that_are_used_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's optimizer selects them in the read."""
    selected: list[Any] = []
    original = PartReader.select

    def spy(reader: PartReader, columns: Any) -> PartReader:  # noqa: ANN401
        selected.append(sorted(columns))
        return original(reader, columns)

    monkeypatch.setattr(PartReader, "select", spy)
    dataset = opened("json-orders")
    frame = read_dask(dataset)

    total = frame[frame["status"] == "NEW"]["total"].sum().compute()

    table = dataset.to_table(["total"], pc.field("status") == "NEW")
    assert total == pytest.approx(pc.sum(table["total"]).as_py())
    assert selected == [["status", "total"]]


def test_a_filtered_dataset_is_filtered_in_the_reader() -> None:
    """Dask has no filters for sources."""
    dataset = opened("json-orders").filter(pc.field("status") == "NEW")

    frame = read_dask(dataset)

    assert len(frame) == dataset.count_rows() == 87
    assert frame[["__key__"]].compute().shape == (87, 1)
    assert frame["status"].drop_duplicates().compute().tolist() == ["NEW"]


def test_nothing_to_read() -> None:
    """Bounds that no row lies in give a frame with columns and no rows."""
    frame = read_dask(opened("json-orders", start=(999999, 0), columns=["__key__"])).compute()

    assert list(frame.columns) == ["__key__"]
    assert frame.dtypes.tolist() == [pd.ArrowDtype(pa.string())]
    assert frame.empty


def test_losses_are_warned_of() -> None:
    """In the process that reads the partition."""
    frame = read_dask(opened("transactions-open"))

    with pytest.warns(IncompleteReadWarning, match="without an outcome"):
        frame.compute()


def test_damage_is_an_error(damaged: str) -> None:
    """The error itself, with its attributes."""
    with pytest.raises(ChecksumError, match="ledger 7") as raised:
        read_dask(open_topic(damaged, TOPIC)).compute()

    assert raised.value.ledger_id == 7


def test_salvage_is_warned_of(damaged: str) -> None:
    """The row is left out, and the loss is counted."""
    frame = read_dask(open_topic(damaged, TOPIC, on_corruption="salvage"))

    with pytest.warns(IncompleteReadWarning, match="1 × entry lost"):
        assert frame.compute().empty


def test_graphs_show_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """A task has the secrets, for it may be read in another process; what Dask shows has not."""
    dataset = opened("json-orders", storage_options={"token": "abracadabra"})
    frame = read_dask(dataset)

    frame.pprint()

    graph = frame.optimize().dask
    assert b"abracadabra" in pickle.dumps(PartReader.from_scan(dataset.scan))
    shown = capsys.readouterr().out + repr(frame) + repr(dict(graph)) + str(graph)
    assert "read-pulsar" in shown or "ReadPulsar" in shown or "FromMap" in shown
    assert "abracadabra" not in shown


def test_two_reads_have_tasks_of_their_own() -> None:
    """Dask takes equal names for the same task; a topic may have grown meanwhile."""
    dataset = opened("json-orders")

    one, other = read_dask(dataset), read_dask(dataset)

    assert one._name != other._name
    assert pickle.loads(pickle.dumps(one))._name == one._name
