"""Storage options on the command line."""

from __future__ import annotations

import re

import pytest

from connector.cli_options import storage_options
from tests.support.command_line import STORAGE, USAGE, lines_of, run
from tests.support.golden import GOLDEN, golden_topic
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, running_s3_server


@pytest.mark.parametrize("ends_with", ["", "?versions=1"])
def test_secrets_are_never_printed(ends_with: str) -> None:
    """Neither a failing request nor a wrong option shows a storage option's value."""
    options = [
        "--storage-option", "key=AKIAVERYPUBLIC",
        "--storage-option", "secret=TopSecret/Value",
        "--storage-option", "token=SessionToken",
        "--storage-option", "endpoint_url=http://127.0.0.1:1",
        "--storage-option", 'config_kwargs.retries={"max_attempts": 0}',
    ]  # fmt: skip
    runs = [
        run("topics", f"s3://bucket{ends_with}", *options, ends=STORAGE),
        run("query", f"s3://bucket{ends_with}", "SELECT 1", *options, ends=STORAGE),
        run("topics", "s3://bucket", "--storage-option", "TopSecret/Value", ends=USAGE),
        run(
            "topics",
            "s3://bucket",
            *options,
            "--storage-option",
            "key.below=TopSecret/Value",
            ends=USAGE,
        ),
    ]

    for result in runs:
        assert result.stderr.startswith("error: ")
        assert not re.search("AKIAVERYPUBLIC|TopSecret|SessionToken", result.output)


@pytest.mark.s3
def test_storage_options_reach_the_store() -> None:
    """Options given as texts, nested ones and JSON values too, open a bucket of S3."""
    with running_s3_server() as server:
        address = server.upload_golden(GOLDEN / "pulsar-4.0.7-small", prefix="deep/down")
        options = [
            "--storage-option", f"key={ACCESS_KEY}",
            "--storage-option", f"secret={SECRET_KEY}",
            "--storage-option", f"endpoint_url={server.endpoint_url}",
            "--storage-option", f"client_kwargs.region_name={REGION}",
            "--storage-option", "default_block_size=65536",
            "--storage-option", "use_listings_cache=false",
        ]  # fmt: skip
        listed = lines_of("topics", address.url, *options)
        sql = 'SELECT count(*) AS n FROM "small-compacted"'
        [counted] = lines_of("query", address.url, sql, *options)

    assert listed == lines_of("topics", str(golden_topic("small-compacted").objects_folder))
    assert counted["n"] == golden_topic("small-compacted").message_count


def test_storage_options_are_json_where_they_can_be() -> None:
    """Dots nest, JSON is taken as JSON, the rest as text; quotes keep a number a text."""
    given = ["a=true", "b.c.d=5", 'b.c.e="5"', "b.f=x=y", 'g={"h": [1]}', "i=", "j=NaN,1"]

    assert storage_options(given) == {
        "a": True,
        "b": {"c": {"d": 5, "e": "5"}, "f": "x=y"},
        "g": {"h": [1]},
        "i": "",
        "j": "NaN,1",
    }
