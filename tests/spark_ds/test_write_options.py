"""Options of writing in Spark: those of the table, and Spark's own, each with one meaning."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import OptionError
from connector.options.write_request import WRITE_OPTIONS
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.write_options import SinkOptions

if TYPE_CHECKING:
    from pathlib import Path

URL = "memory://sink-options"


def _parsed(**options: str) -> SinkOptions:
    return SinkOptions.parse({"url": URL, "topic": "orders", **options})


def test_texts_become_values() -> None:
    """In any spelling that Spark's users know, nested and masked ones too."""
    options = _parsed(
        batchMessages="7", chunking="TRUE", partitions="3", compression="zstd", taskLedgers="50",
        write_id="a-1", metadata_folder="memory://m", checkpointLocation="/c",
        **{"secret.key": "k", "storage.client_kwargs.region_name": "r", "metadata.x": "1"},
    )  # fmt: skip

    request = options.target.request
    given = (request.batch_messages, request.chunking, request.partitions, request.compression)
    assert given == (7, True, 3, "zstd")
    assert (request.append, request.write_id, options.task_ledgers) == (True, "a-1", 50)
    assert request.storage_options == {"key": "k", "client_kwargs": {"region_name": "r"}}
    assert request.metadata_options == {"x": 1}
    assert len(options.target.names) == 3


def test_a_path_is_a_url(tmp_path: Path) -> None:
    """As `save` and `start` call it."""
    options = SinkOptions.parse({"path": str(tmp_path), "topic": "orders"})

    assert options.target.url == str(tmp_path)


def test_they_go_to_executors_and_show_no_secret() -> None:
    """What was parsed is pickled whole; nothing that is printed has a secret in it."""
    options = _parsed(**{"secret.key": "MARKER4711", "secret.metadata_options": '{"a": "MARKER"}'})

    sent = pickle.loads(pickle.dumps(options))

    assert sent.target.request.storage_options == {"key": "MARKER4711"}
    assert "MARKER" not in repr(options)
    assert "MARKER" not in repr(sent)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topics": "a"}, "unknown option topics of writing, did you mean topic?"),
        ({"zzz": "red"}, "unknown option zzz of writing; options are url"),
        ({"append": "true"}, r'append is not for Spark: mode\("append"\)'),
        ({"broker_metadata": "true"}, "broker_metadata is not for Spark: tasks write at once"),
        ({"batch_messages": "many"}, "batch_messages must be a whole number, not 'many'"),
        ({"batchMessages": "1", "batch_messages": "2"}, "batch_messages is given twice"),
        ({"metadata_options": "{}", "secret.metadata_options": "{}"}, "mean the same"),
        ({"path": "memory://other"}, "url and path mean the same"),
        ({"task_ledgers": "2", "partitions": "3"}, "task_ledgers must be at least 3"),
        ({"write_id": "../x"}, "write_id must be at most 200 letters"),
        ({"url": "dir::s3://bucket"}, "chain of URLs"),
        ({"partitions": "2", "topic": "orders-partition-1"}, "cannot have partitions"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told(options: dict[str, str], reason: str) -> None:
    """The error names the option."""
    with pytest.raises(OptionError, match=reason):
        _parsed(**options)


def test_a_topic_is_asked_for() -> None:
    """There is no default of it."""
    with pytest.raises(OptionError, match="option topic is missing"):
        SinkOptions.parse({"url": URL})


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, each in WRITE_OPTIONS.items()
        if (each.in_python_only, each.not_in_spark) == (None, None) and name != "storage_options"
    ],
)
def test_spark_has_help(name: str) -> None:
    """`help(PulsarOffloadDataSource)` tells of each option of writing that Spark has."""
    doc = inspect.getdoc(PulsarOffloadDataSource) or ""
    section = " ".join(doc.partition("\nOptions of writing:\n")[2].split())

    assert f" {name}: {WRITE_OPTIONS[name].help}" in section
