"""The least, the greatest and the oddest values are kept, or refused before a table is made."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from arrow_io.errors import LakeTableError, OptionError
from connector.tables.delta import DeltaTable
from connector.tables.table_kinds import KINDS
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import staged, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from connector.tables.evolution import TableKind

_US: Final = pa.timestamp("us", "UTC")
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def _texts(*texts: str | None) -> pa.Array:
    return pa.array(texts, pa.string())


def _times(*ticks: int | None, unit: pa.DataType = _US) -> pa.Array:
    return pa.array(ticks, pa.int64()).view(unit)


def _days(*days: int | None) -> pa.Array:
    return pa.array(days, pa.int32()).view(pa.date32())


COLUMNS: Final = {
    "text": _texts("a/b", "ü %", "a=b", " ", ".", "..", "%2F", "null", "\x00", "\U0010ffff", None),
    "url": _texts("a/b c", "what?x=1", "#frag", "a+b", "x:y", "\\", "\n\0"),
    "empty-text": _texts("", "a", None),
    "text-that-says-null": _texts("__HIVE_DEFAULT_PARTITION__", "a", None),
    "long-text": _texts("x" * 300, "\U0010ffff" * 70, "\ud7ff" * 70),
    "bytes": pa.array([b"", b"\xff", b"\x00", b"a", None], pa.binary()),
    "long-bytes": pa.array([b"\xff" * 300, b"a" * 300], pa.binary()),
    "letters": pa.array([b"a", b"b"], pa.binary()),
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-(2**7), 2**7 - 1], pa.int8()),
    "int64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "infinite": pa.array([math.inf, 1.0, None]),
    "minus-infinite": pa.array([-math.inf, 1.0], pa.float32()),
    "nan": pa.array([math.nan, -math.inf, math.inf]),
    "tiny": pa.array([5e-324, -0.0, 0.0, 1.7976931348623157e308]),
    "decimal": pa.array([Decimal(10**38 - 1), Decimal(1 - 10**38), None], pa.decimal128(38, 0)),
    "small-decimal": pa.array([Decimal("1E-8"), Decimal("0E-8")], pa.decimal128(20, 8)),
    "time-of-day": pa.array([0, 86_399_999_999, None], pa.int64()).view(pa.time64("us")),
    "date": pa.array([date.min, date.max, date(999, 1, 1), None]),
    "far-date": _days(_LAST_DAY + 1, 0),
    "early-date": _days(_FIRST_DAY - 1, 0, None),
    "time": _times(_FIRST_US, _LAST_US, -1, None),
    "time-without-zone": _times(_FIRST_US, _LAST_US, -1, unit=pa.timestamp("us")),
    "far-time": _times(_LAST_US + 1, 0),
    "farthest-time": _times(2**62, 0, None),
    "early-time": _times(_FIRST_US - 1, 0),
    "farthest-time-without-zone": _times(-(2**62), 0, unit=pa.timestamp("us")),
}
_WITHOUT_HOME: Final = {
    # What partitions of a Delta table cannot tell apart, or what no folder can be named.
    "delta": {
        *("empty-text", "text-that-says-null", "long-text"),
        *("bytes", "long-bytes", "letters"),
    },
    "iceberg": set[str](),
    "parquet": set[str](),
}
_OF_NO_PARTITION: Final = {
    *("infinite", "minus-infinite", "nan", "tiny"),
    *("far-date", "early-date", "far-time", "farthest-time", "early-time"),
    "farthest-time-without-zone",
}
"""Neither floats divide rows, nor times that no calendar has."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partition_by", [[], ["v"]], ids=["", "partitioned"])
@pytest.mark.parametrize("name", COLUMNS)
def test_extreme_values(
    name: str, partition_by: list[str], kind: TableKind, tmp_path: Path
) -> None:
    """They are read back as they are, unless a partition is refused for them."""
    rows = pa.table({"n": range(len(COLUMNS[name])), "v": COLUMNS[name]})
    is_refused = partition_by and name in _OF_NO_PARTITION | _WITHOUT_HOME[kind]
    with table_in(tmp_path, kind) as table:
        if is_refused:
            with pytest.raises((LakeTableError, OptionError), match="v"):
                table.commit(staged(table, None, rows, "all", partition_by), None)
            assert list(tmp_path.rglob("*.parquet")) == []
            assert table.read_state() is None
            return
        table.commit(staged(table, None, rows, "all", partition_by), None)
        expected = shown(rows)
        assert shown(read_back(table)) == expected
        if isinstance(table, DeltaTable):
            assert shown(table_of(table)) == expected, "Polars reads otherwise"
            assert len(statistics(tmp_path)) == len(list(tmp_path.rglob("*.parquet")))


def statistics(folder: Path) -> list[Any]:
    """What a Delta log says of its files, by the letter of JSON, which has no infinite number."""
    log = (folder / "t" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    added = [json.loads(line)["add"] for line in log if '"add"' in line]
    return [json.loads(each["stats"], parse_constant=pytest.fail) for each in added]


def shown(rows: pa.Table) -> list[str]:
    """The values in the order of their numbers; times as numbers, as Python has not all of them."""
    values = rows.sort_by("n")["v"].combine_chunks()
    type_ = values.type
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        assert type_.unit == "us"
        values = values.view(pa.int64())
    elif pa.types.is_date32(type_):
        values = values.view(pa.int32())
    return [_shown(each) for each in values.to_pylist()]


def _shown(value: Any) -> str:  # noqa: ANN401 - of any type
    # Decimals that are equal may be spelled in two ways.
    return str(value.normalize()) if isinstance(value, Decimal) else repr(value)
