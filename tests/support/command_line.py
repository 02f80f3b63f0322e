"""The command `pulsar-offload`, run in this process, and buckets that something is wrong with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from typer.testing import CliRunner

from connector.cli import load_app
from tests.support.buckets import golden_objects
from tests.support.golden import GOLDEN, golden_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typer.testing import Result

URL: Final = str(GOLDEN / "pulsar-4.0.7" / "objects")
ORDERS: Final = golden_topic("json-orders")
LEDGERS: Final = golden_topic("multi-ledger")
APP: Final = load_app()
OK, FAILED, USAGE, NOT_FOUND, STORAGE, UNREADABLE, INCOMPLETE, FOUND, TRY_AGAIN = range(9)

Row: TypeAlias = dict[str, Any]
"""What a line of JSON holds."""


def run(*arguments: str, ends: int = OK) -> Result:
    """Run a command in this process, and check how it ends."""
    result = CliRunner().invoke(APP, arguments, catch_exceptions=False)
    assert result.exit_code == ends, result.output
    return result


def store_arguments(options: Mapping[str, object], name: str = "--storage-option") -> list[str]:
    """Return the options of a store as arguments of a command."""
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in options.items()
    }
    return [f"{name}={key}={text}" for key, text in texts.items()]


def lines_of(*arguments: str, ends: int = OK) -> list[Row]:
    """The objects that a command prints as JSON lines."""
    return [json.loads(line) for line in run(*arguments, "--json", ends=ends).stdout.splitlines()]


def cells(table: str) -> list[list[str]]:
    """The cells of a printed table, header first."""
    rows = [line.split("│")[1:-1] for line in table.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


def broken(objects: Mapping[str, bytes], name: str, at: int) -> dict[str, bytes]:
    """The objects, a bit of one of which is flipped."""
    data = bytearray(objects[name])
    data[at] ^= 1
    return {**objects, name: bytes(data)}


def broken_orders() -> dict[str, bytes]:
    """A topic of 8 entries, one of which has another checksum than its bytes."""
    data_object = ORDERS.ledgers[0].data_object
    return broken(golden_objects(ORDERS), data_object.name, data_object.stat().st_size // 2)


def unsound_ledgers() -> dict[str, bytes]:
    """A topic of 6 ledgers, one of which has no data object."""
    objects = golden_objects(LEDGERS)
    del objects[LEDGERS.ledgers[2].data_object.name]
    return objects
