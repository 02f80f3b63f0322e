"""Parts of a scan: what a process reads, and how a part is sized."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from arrow_io.errors import IncompleteReadWarning
from connector.scan.parts import PartReader, default_part_bytes, plan_parts, report_losses
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden

if TYPE_CHECKING:
    from arrow_io.read_metrics import ReadMetrics

MIB = 1 << 20


@pytest.mark.parametrize(
    ("scan_bytes", "part_bytes"),
    [
        (0, 16 * MIB),
        (64 * 16 * MIB, 16 * MIB),
        (64 * 100 * MIB, 100 * MIB),
        (1 << 50, 128 * MIB),
    ],
)
def test_default_part_bytes(scan_bytes: int, part_bytes: int) -> None:
    """Parts are worth their cost, and enough for a cluster where there is much to read."""
    assert default_part_bytes(scan_bytes) == part_bytes


@pytest.mark.parametrize("part_bytes", [None, 1, 20_000])
def test_parts_have_the_rows_of_a_scan(part_bytes: int | None) -> None:
    """In order, read by a copy of the reader; each task reports its metrics once."""
    dataset = open_golden(golden_topic("multi-ledger"))
    reader: PartReader = pickle.loads(pickle.dumps(PartReader.from_scan(dataset.scan)))
    reported: list[int] = []

    def report(topic: str, metrics: ReadMetrics) -> None:
        assert topic == "persistent://public/default/multi-ledger"
        reported.append(metrics.rows)

    parts = list(plan_parts(reader.reads, part_bytes))
    batches = [batch for part in parts for batch in reader.batches(part, report)]

    assert pa.Table.from_batches(batches).equals(dataset.to_table())
    assert sum(reported) == dataset.metrics.rows
    assert len(reported) == sum(map(len, parts))
    assert (len(parts) > 1) == (part_bytes is not None)


def test_losses_are_reported_where_a_part_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """What was left out is a warning, unless the caller takes the metrics."""
    dataset = open_golden(golden_topic("transactions-open"))
    reader = PartReader.from_scan(dataset.scan)
    (part,) = plan_parts(reader.reads)

    with pytest.warns(IncompleteReadWarning, match="without an outcome"):
        assert list(reader.batches(part))
    dataset_metrics = dataset.metrics
    dataset_metrics.losses.append("entry 3 is damaged")
    with caplog.at_level("WARNING", "pulsar_offload"):
        report_losses("orders", dataset_metrics)
    assert caplog.messages == ["orders: entry 3 is damaged"]
