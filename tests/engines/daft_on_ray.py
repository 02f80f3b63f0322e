"""Reads a topic with Daft on a Ray cluster of two workers, and writes its counts as JSON.

A program of its own, because Daft's runner is chosen once for a process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import daft
import ray

from connector import read_daft
from tests.engines.topics import opened

if __name__ == "__main__":
    _, folder, result = sys.argv
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=150 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    daft.set_runner_ray(noop_if_initialized=True)
    try:
        frame = read_daft(opened("multi-ledger"), task_bytes=1)
        counted = (
            frame.where(daft.col("__entry_id__") > 2)
            .groupby("__ledger_id__")
            .agg(daft.col("__entry_id__").count().alias("rows"))
            .to_pylist()
        )
        Path(result).write_text(
            json.dumps({str(each["__ledger_id__"]): each["rows"] for each in counted}),
            encoding="utf-8",
        )
    finally:
        ray.shutdown()
