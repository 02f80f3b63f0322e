"""One number says how many requests are sent to a location at a time."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden
from arrow_io.storage.location import Location
from tests.support.faulty_storage import FaultScript

if TYPE_CHECKING:
    from collections.abc import Mapping


def _pool_of(options: Mapping[str, object]) -> int:
    """Connections that botocore's client keeps, which is made without a request."""
    location = Location("s3://bucket/prefix", {"key": "k", "secret": "s", **options})
    client = location._sender.store()._file_system.s3
    pool: int = client.meta.config.max_pool_connections
    return pool


@pytest.mark.parametrize(
    ("options", "most"), [({}, 32), ({"max_connections": 5}, 5), ({"max_connections": "64"}, 64)]
)
def test_max_connections_goes_where_the_location_goes(
    options: dict[str, object], most: int
) -> None:
    """As text too; to folders and other processes, and never to the file system."""
    script = FaultScript({"a": b"data"})
    location = Location("faulty://folder", {"script": script, **options})

    assert (location.max_connections, location.child("folder").max_connections) == (most, most)
    assert location.read_object("a", max_bytes=4).data == b"data"
    plain = Location("memory://folder", options)
    assert pickle.loads(pickle.dumps(plain)).max_connections == most


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", None, 1025, float("nan")])
def test_max_connections_out_of_bounds_is_refused(value: object) -> None:
    """Before any request; a number is no secret, so it is shown."""
    with pytest.raises(OptionError, match=r"max_connections must be .* not"):
        Location("memory://folder", hidden({"max_connections": value}))


@pytest.mark.parametrize(
    ("options", "pool"),
    [
        ({}, 32),
        ({"max_connections": 7}, 7),
        ({"config_kwargs": hidden({"user_agent_extra": "x"})}, 32),
        ({"config_kwargs": {"max_pool_connections": 3}}, 3),
    ],
)
def test_the_pool_of_s3_follows(options: dict[str, object], pool: int) -> None:
    """Else botocore's ten connections bound what is sent; who sets the pool by name gets it."""
    assert _pool_of(options) == pool


def test_no_other_store_is_told_of_a_pool() -> None:
    """Their file systems take no such option."""
    script = FaultScript({"a": b"data"})
    assert script.location(max_connections=3).read_object("a", max_bytes=4).data == b"data"
