"""The rates of a report by publish times, and how much statistics are said to know of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector import open_catalog, open_topic
from connector.report.charts import TimeScale
from connector.report.data import rates
from connector.report.publish_times import WriteSpan, read_publish_times
from connector.report.render import render_report
from connector.upkeep.audit.audit import audit
from tests.support.bucket_reports import FULL, parsed, texts
from tests.support.buckets import TOPIC, memory_bucket, object_name, offload_ledger
from tests.support.command_line import run
from tests.support.encryption import key_pair, sealed_entry
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.statistics import analyzed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.buckets import MemoryBucket

HOUR_MS: Final = 3_600_000
BEGIN_MS: Final = 1_700_000_000_000
NAMES: Final = [object_name(number) for number in range(4)]
URL: Final = str(FULL / "objects")


def _entry(time_ms: int) -> bytes:
    return encode_entry([Message(payload=b"x")] * 2, batched=True, publish_time=time_ms)


def _ledger(ledger_id: int, *times_ms: int) -> dict[str, bytes]:
    """The same names for the same ledger."""
    return offload_ledger(NAMES[ledger_id], [_entry(each) for each in times_ms])


@pytest.fixture
def known() -> Iterator[tuple[MemoryBucket, str]]:
    """A topic of three ledgers, an hour each, and statistics of it."""
    with memory_bucket({}) as bucket, memory_bucket({}) as folder:
        for number in range(3):
            begin = BEGIN_MS + number * HOUR_MS
            bucket.put(_ledger(number, begin, begin + HOUR_MS))
        analyzed(bucket.url, TOPIC, folder.url, zone_bytes=1 << 20)
        yield bucket, folder.url


def _notes(page: str) -> list[str]:
    """What stands in the section of the rates."""
    [section] = [
        each
        for each in parsed(page).iter("section")
        if (heading := each.find("h2")) is not None and heading.text == "Rate"
    ]
    return texts(section, "p")


def _page(url: str, **options: Any) -> str:  # noqa: ANN401 - render_report's
    catalog = open_catalog(url)
    return render_report(catalog, audit(catalog), **options)


def test_every_message_has_its_time(tmp_path: Path) -> None:
    """Of a golden topic as many as it has, from the least publish time to the greatest."""
    folder = str(tmp_path / "statistics")
    catalog = open_catalog(URL)
    catalog.analyze(folder, ["multi-*"])

    found = read_publish_times(catalog, folder, "multi-block")

    times = open_topic(URL, "multi-block", value="raw").to_table()["__publish_time__"].to_pylist()
    size = sum(each.size_bytes for each in found.zones)
    assert sum(each.count for each in found.zones) == len(times)
    assert min(each.start_ms for each in found.zones) == min(times).timestamp() * 1000
    assert max(each.stop_ms for each in found.zones) == max(times).timestamp() * 1000
    [ledger] = golden_topic("multi-block").ledgers
    assert 0 < size <= ledger.data_object.stat().st_size
    assert (found.ledgers, found.recorded_ledgers, found.stale, found.gone_ledgers) == (1, 1, (), 0)
    assert read_publish_times(catalog, folder).recorded_ledgers == 7


def test_what_statistics_do_not_know_is_told(known: tuple[MemoryBucket, str]) -> None:
    """A ledger that came since, one that is another object now, and one that is gone."""
    bucket, folder = known
    bucket.put(_ledger(1, BEGIN_MS, BEGIN_MS, BEGIN_MS))
    bucket.put(_ledger(3, BEGIN_MS))
    for name in _ledger(0, BEGIN_MS):
        bucket.delete(name)
    found = read_publish_times(open_catalog(bucket.url), folder)

    assert [each.start_ms for each in found.zones] == [BEGIN_MS + 2 * HOUR_MS]
    assert (found.ledgers, found.recorded_ledgers) == (3, 1)
    assert (found.stale, found.gone_ledgers) == (((TOPIC, 1),), 1)
    assert 0 < found.recorded_bytes < found.data_bytes
    _, *notes = _notes(_page(bucket.url, statistics=folder))
    assert notes[0].startswith("Statistics record 1 of 3 ledgers in the bucket, ")
    assert f"stale for {TOPIC}, ledger 1, because the object" in notes[1]
    assert notes[2] == "They also record 1 ledger that can no longer be read from the bucket."
    analyzed(bucket.url, TOPIC, folder)
    again = read_publish_times(open_catalog(bucket.url), folder)
    assert (again.recorded_ledgers, again.stale, again.gone_ledgers) == (3, (), 1)
    assert sum(each.count for each in again.zones) == 2 * (3 + 2 + 1)


def test_rates_are_those_of_publish_times(known: tuple[MemoryBucket, str]) -> None:
    """Two messages at each end of three hours; the page says whose clocks these are."""
    bucket, folder = known
    page = _page(bucket.url, statistics=folder)

    how, *_ = _notes(page)
    assert how.startswith("By publish times, which are those of the producers' clocks")
    assert texts(parsed(page), ".//h3")[-2:] == ["Messages a second", "Bytes a second"]
    drawn = [each for each in texts(parsed(page), ".//rect/title") if each.endswith(" a second")]
    assert drawn[0].startswith("2023-11-14 22:13")
    without = _page(bucket.url)
    assert not any("publish times, which" in each for each in _notes(without))
    assert "Messages a second" not in texts(parsed(without), ".//h3")


def test_times_that_are_not_known_are_counted() -> None:
    """Of encrypted entries, for one."""
    sealed = sealed_entry(_entry(BEGIN_MS), key_pair("P-256"), data_key=bytes(32))
    entries = [_entry(BEGIN_MS), sealed]
    objects = offload_ledger(object_name(1), entries)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        found = read_publish_times(open_catalog(bucket.url), folder.url)
        notes = _notes(_page(bucket.url, statistics=folder.url))

    assert len(found.zones) == found.timeless_zones == 1
    assert any(note.startswith("1 zone with ") for note in notes)


def test_damaged_statistics_are_told(known: tuple[MemoryBucket, str]) -> None:
    """On the page; the rates are of what is left."""
    bucket, _ = known
    with memory_bucket({}) as other:
        [file] = analyzed(bucket.url, TOPIC, other.url).files
        data = file.location.read_object(file.name, max_bytes=file.size_bytes).data
        other.put({file.name: bytes([data[0] ^ 1]) + bytes(data[1:])})
        notes = _notes(_page(bucket.url, statistics=other.url))

    assert notes[0] == "No publish times are known."
    assert any("is not as it was written" in note for note in notes)


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 500), st.integers(1, 10)),
        min_size=1,
        max_size=20,
    ),
    wrong=st.sampled_from((None, -(10**11), 10**12, -(10**18), 10**18)),
)
def test_a_wrong_clock_moves_no_scale(spans: list[tuple[int, int, int]], wrong: int | None) -> None:
    """Of a thousandth of the messages; all others are on it."""
    zones = [WriteSpan(begin, begin + length, 1000 * n, 1) for begin, length, n in spans]
    strange = [] if wrong is None else [WriteSpan(wrong, wrong, 1, 1)]

    scale = TimeScale.from_zones([*zones, *strange])

    assert scale is not None
    assert scale.start_ms == min(each.start_ms for each in zones)
    assert scale.stop_ms == max(scale.start_ms + 1, *(each.stop_ms for each in zones))
    per_bin = rates([*zones, *strange], scale.start_ms, scale.stop_ms, bins=7)
    drawn = sum(each.count_per_s * (each.stop_ms - each.start_ms) / 1000 for each in per_bin)
    assert drawn == pytest.approx(sum(each.count for each in zones))


def test_the_command_takes_statistics(known: tuple[MemoryBucket, str], tmp_path: Path) -> None:
    """As it takes them of `analyze`; a folder with nothing in it knows nothing."""
    bucket, folder = known
    page = tmp_path / "report.html"
    run("report", bucket.url, "--statistics", folder, "--output", str(page))

    assert _notes(page.read_text("utf-8"))[1].startswith("Statistics record 3 of 3 ledgers")
    snapshot = str(tmp_path / "catalog.json.gz")
    run("save", bucket.url, snapshot, "--statistics", folder)
    run("report", bucket.url, "--metadata", snapshot, "--output", str(page))
    assert _notes(page.read_text("utf-8"))[1].startswith("Statistics record 3 of 3 ledgers")
    (tmp_path / "none").mkdir()
    run("report", bucket.url, "--statistics", str(tmp_path / "none"), "--output", str(page))
    assert re.match("No publish times", _notes(page.read_text("utf-8"))[0])
