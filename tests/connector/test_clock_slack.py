"""`clock_slack`: ledgers that are not read because of when they were written."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.errors import OptionError
from connector import open_topic

if TYPE_CHECKING:
    from connector.dataset import TopicDataset

_GOLDEN: Final = "tests/data/golden/pulsar-4.0.7"

_time = pc.field("__publish_time__")


def _opened(**options: Any) -> TopicDataset:  # noqa: ANN401 - those of `open_topic`
    given = {"metadata": _GOLDEN, "value": "raw"} | options
    return open_topic(f"{_GOLDEN}/objects", "multi-ledger", **given)


def _middle() -> pa.Scalar:
    times = _opened().to_table(columns=["__publish_time__"])["__publish_time__"]
    return times[len(times) // 2]


def _read_ledgers(dataset: TopicDataset, filter_: pc.Expression | None = None) -> set[int]:
    scan = dataset.scan if filter_ is None else dataset.scan.where(filter_)
    return {each.ledger_id for read in scan.reads() for each in read.ranges}


def test_times_spare_ledgers_only_on_the_word_of_the_user() -> None:
    """The rows are the same, since the golden topic's producer had the broker's clock."""
    middle = _middle()
    whole, spared = _opened(), _opened(clock_slack="5s")

    for filter_ in (_time < middle, (_time >= middle) & (_time < middle), _time == middle):
        assert spared.to_table(filter=filter_).equals(whole.to_table(filter=filter_))
    never = _time < pa.scalar(middle.as_py() - timedelta(days=1), middle.type)
    assert _read_ledgers(whole, never) == _read_ledgers(whole) != set()
    assert _read_ledgers(spared, never) == set()
    assert spared.scan.where(never).skipped().ledgers_by_time == len(_read_ledgers(whole))
    assert _read_ledgers(spared) == _read_ledgers(whole)


def test_bounds_and_polars_spare_ledgers_too() -> None:
    """`start`, `end`, and a predicate of Polars."""
    late = _middle().as_py() + timedelta(days=1)

    after = _opened(clock_slack="1h", start=late)

    assert _read_ledgers(after) == set()
    assert after.count_rows() == 0
    frame = _opened(clock_slack="1h").scan_polars().filter(pl.col("__publish_time__") > late)
    assert frame.collect().height == 0


def test_slack_widens_the_time_of_a_ledger() -> None:
    """Within the slack a ledger is read; however long it is, nothing overflows."""
    late = _middle().as_py() + timedelta(hours=2)

    assert _read_ledgers(_opened(clock_slack="1h", start=late)) == set()
    for slack in ("3h", "3w", "999999999s", "1000w"):
        assert _read_ledgers(_opened(clock_slack=slack, start=late)) != set()


def test_without_metadata_nothing_is_spared() -> None:
    """An index object says when a ledger was created, and nothing when it was closed."""
    late = _middle().as_py() + timedelta(days=1)

    bare = _opened(clock_slack="1s", start=late, metadata=None)

    assert _read_ledgers(bare) == _read_ledgers(_opened(metadata=None))


@pytest.mark.parametrize(
    "wrong", ["10", "m", "-1s", "1y", "1.5h", "", 60, timedelta(hours=1)], ids=repr
)
def test_slack_is_a_time(wrong: object) -> None:
    """A whole number and its unit."""
    with pytest.raises(OptionError, match="clock_slack"):
        _opened(clock_slack=wrong)
