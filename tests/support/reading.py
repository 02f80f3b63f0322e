"""Tables of scans, read without the warnings that a user would get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.read_metrics import ReadMetrics
from connector.scan.execution import execute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.format.block_table import BlockTable
    from arrow_io.ledgers.open_ledger import OpenLedger
    from connector.scan.topic_read import ScanTask
    from connector.scan.topic_scan import Scan


def read(
    scan: Scan, tasks: Iterable[ScanTask] | None = None, metrics: ReadMetrics | None = None
) -> pa.Table:
    """The rows of a scan.

    Args:
        scan: The scan.
        tasks: Its tasks, in the order to execute them; None: as it plans them.
        metrics: Receives the counts.
    """
    counted = ReadMetrics() if metrics is None else metrics
    planned = scan.plan() if tasks is None else tasks
    batches = [batch for task in planned for batch in execute(task, counted)]
    return pa.Table.from_batches(batches, scan.options.projection.schema)


def block_table(ledger: OpenLedger) -> BlockTable:
    """The blocks of a ledger of PIP-17."""
    assert isinstance(ledger, OffloadedLedger)
    return ledger.index.block_table
