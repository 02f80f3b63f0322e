"""`clock_slack`: ledgers that are not read because of when they were written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from connector import open_topic, write_messages
from connector.catalog.ledger_origin import ledger_metadata_of
from tests.support.buckets import TOPIC, MemoryBucket

if TYPE_CHECKING:
    from connector.catalog.topic_ledgers import TopicLedger
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
    assert spared.scan.where(never).pruning().ledgers_by_time == len(_read_ledgers(whole))
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


def _closed_early(state: TopicLedger) -> TopicLedger:
    """The ledger as if the clock of the broker that closed it were an hour behind."""
    metadata = None if state.copy is None else ledger_metadata_of(state.copy)
    if metadata is None or metadata.ctime_ms is None or state.info is None:
        return state
    return replace(state, info=replace(state.info, timestamp_ms=metadata.ctime_ms - 3_600_000))


def test_a_ledger_that_was_closed_before_it_was_created_is_read() -> None:
    """Two clocks are not to be trusted, so its times prove nothing."""
    scan = _opened(clock_slack="1s", start=_middle().as_py() + timedelta(days=1)).scan
    [topic] = scan.topics
    doubtful = replace(topic, states=tuple(map(_closed_early, topic.states)))

    assert not [read for read in scan.reads() if read.ranges]
    assert [read for read in replace(scan, topics=(doubtful,)).reads() if read.ranges]


@given(times_s=st.lists(st.integers(0, 4_000_000_000), min_size=1, max_size=8), at=st.integers(0))
def test_ledgers_that_were_written_without_a_broker_have_the_times_of_their_messages(
    times_s: list[int], at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever those are, past or to come, the shortest slack costs no row."""
    bucket, metadata = MemoryBucket(), tmp_path_factory.mktemp("metadata")
    times = pa.array(times_s, pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"__value__": [b""] * len(times), "__publish_time__": times})
    write_messages(bucket.url, TOPIC, rows, metadata_folder=metadata, ledger_entries=2)
    middle = times[at % len(times)].cast(pa.timestamp("ms", "UTC"))

    def count(filter_: pc.Expression, slack: str | None) -> int:
        options: Any = {"metadata": metadata, "value": "raw", "clock_slack": slack}
        return open_topic(bucket.url, TOPIC, **options).count_rows(filter=filter_)

    for filter_ in (_time < middle, _time == middle, _time > middle):
        assert count(filter_, "1s") == count(filter_, None)
    bucket.drop()


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
