"""Notes and errors call an option as it is called where the user stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.core.option_names import option_name, use_spelling
from arrow_io.errors import EncryptedPayloadError, OptionError, UndecodedValuesWarning
from connector import Message, open_catalog, open_topic, register_duckdb, write_messages
from spark_ds.datasource import PulsarOffloadDataSource
from tests.support.command_line import UNREADABLE, URL, USAGE, run
from tests.support.golden import golden_topics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PYTHON_NAME = re.compile(r"\b(?!(?:json|multi)_)[a-z]+(?:_[a-z]+)+\b|\b[a-z]+='")
"""A name of several words, or an argument, as no command line has it."""


def test_python_is_told_of_arguments() -> None:
    """The advice can be copied into the call."""
    with pytest.warns(UndecodedValuesWarning, match="give schema for .* or value='raw' for bytes"):
        open_topic(URL, "json-orders")


def test_sql_is_told_of_named_parameters() -> None:
    """The advice can be copied into the statement."""
    con = duckdb.connect()
    register_duckdb(con, URL)

    with pytest.warns(UndecodedValuesWarning, match="give schema for .* or value := 'raw' for"):
        con.execute("from read_pulsar('json-orders') limit 1")


def test_spark_is_told_of_its_options() -> None:
    """The advice can be copied behind the reader."""
    source = PulsarOffloadDataSource({"url": URL, "topic": "json-orders"})

    with pytest.warns(UndecodedValuesWarning, match=r'give schema for .* or option\("value", "raw'):
        source.schema()


def _encrypted() -> str:
    return next(
        each.name for each in golden_topics() if "encrypted" in each.name and "4.0.7" in str(each)
    )


def _ledger_of_partition(number: int) -> int:
    [topic] = open_catalog(URL).select(f"partitioned-partition-{number}")
    return topic.ledgers[0].ledger_id


@pytest.mark.parametrize(
    ("arguments", "said", "ends"),
    [
        (("head", URL, "json-orders"), "give --schema for typed columns, or --value raw for", 0),
        (
            ("query", URL, 'FROM "json-orders"'),
            "give --schema for typed columns, or --value raw",
            0,
        ),
        (("head", URL, "json-orders", "--schema-version", "1"), "--schema-version selects", USAGE),
        (("head", URL, _encrypted(), "--value", "raw"), "as --decryption-keys", UNREADABLE),
        (("head", URL, "json-orders", "--start", "soon"), "--start must be a datetime", USAGE),
        (
            ("head", URL, "json-orders", "--start", "2:0", "--end", "1:0"),
            "--start is after --end: ",
            USAGE,
        ),
        (
            ("head", URL, "json-orders", "--decryption-keys", "nowhere.pem"),
            "--decryption-keys must be PEM text",
            USAGE,
        ),
        (
            ("head", URL, "partitioned", "--start", f"{_ledger_of_partition(1)}:0:0"),
            "--start '",
            USAGE,
        ),
        (
            ("topics", URL, "--bucket", "a=s3://a"),
            "--bucket cannot be used without --metadata",
            USAGE,
        ),
    ],
)
def test_commands_are_told_of_their_options(arguments: Sequence[str], said: str, ends: int) -> None:
    """Threads that read ahead say so too, and nothing is called as in Python."""
    told = run(*arguments, ends=ends).stderr

    assert said in told
    assert _PYTHON_NAME.findall(told.replace("__value__", "")) == []


def test_writing_by_a_command_is_told_of_its_options(tmp_path: Path) -> None:
    """What a Python caller is told of arguments, who writes by a command is told of options."""
    file, bucket = tmp_path / "messages.parquet", str(tmp_path / "bucket")
    pq.write_table(pa.table({"__value__": [b"one"]}), file)
    run("write", bucket, "orders", str(file))

    assert "give --append to write more" in run("write", bucket, "orders", str(file), ends=2).stderr
    with pytest.raises(OptionError, match="give append to write more"):
        write_messages(bucket, "orders", [Message(payload=b"", publish_time_ms=0)])


def test_the_outermost_surface_decides() -> None:
    """And outside of it, names are Python's."""
    with use_spelling(lambda name, _: f"--{name}"), use_spelling(lambda name, _: f"{name} :="):
        assert option_name("value", "raw") == "--value"

    assert option_name("value", "raw") == "value='raw'"


def test_a_reading_thread_is_python_by_default() -> None:
    """A dataset that is read ahead names the argument."""
    with pytest.raises(EncryptedPayloadError, match="as decryption_keys"):
        open_topic(URL, _encrypted(), value="raw").to_table()
