"""The page of a report: what is on it, and that nothing else gets onto it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote_plus
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.format.block_table import BlockEntry
from arrow_io.format.index_block import write_index_block
from arrow_io.ledgers.writer import new_ledger_metadata
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.opening import open_catalog
from connector.catalog.topic_ledgers import LedgerState
from connector.inputs.topic_names import TopicName
from connector.report.charts import STATE_TEXTS, TimeScale, sizes_charts, timeline
from connector.report.data import LedgerSpan
from connector.report.page import escape, page, section
from connector.report.render import render_report
from connector.upkeep.audit.audit import audit
from tests.support.bucket_reports import (
    FULL,
    HOSTILE_NAME,
    SMALL,
    damaged_small_set,
    drawn_ledgers,
    parsed,
    report_of,
    texts,
)
from tests.support.buckets import MANAGED_LEDGER, memory_bucket, object_name, offload
from tests.support.command_line import NOT_FOUND, URL, USAGE, run
from tests.support.encoded_ledgers import encode_ledger
from tests.support.golden import golden_topic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MANY = 10_000
BIGGEST_BYTES = 2_000_000
MAX_LONG = 2**63 - 1
LAST_MS = 253_402_300_799_999  # the last moment of the year 9999
FIRST_MS = -62_135_596_800_000  # the first of the year 1


def write_metadata(folder: Path, ledgers: Sequence[LedgerInfo], topic: str = "orders") -> Path:
    """The metadata of a topic, as a folder has it."""
    metadata = TopicMetadata(topic=TopicName.parse(topic), ledgers=tuple(ledgers))
    value = folder / "public" / "default" / topic / "managed-ledger-info.bin"
    value.parent.mkdir(parents=True)
    value.write_bytes(serialize_managed_ledger_info(metadata))
    return folder


def many_ledgers(*, offloaded: bool) -> list[LedgerInfo]:
    """Ten thousand ledgers of one second, every third one offloaded, or none."""
    return [
        LedgerInfo(
            ledger_id=number,
            entries=number % 7 + 1,
            size_bytes=1000,
            timestamp_ms=1_700_000_000_000 + number * 1000,
            offload=(
                OffloadContext(uuid=UUID(int=number), complete=True)
                if offloaded and number % 3 == 0
                else None
            ),
        )
        for number in range(1, MANY + 1)
    ]


def facts_of(page_text: str) -> dict[str, str]:
    """What the head of a page says, by name."""
    [facts] = parsed(page_text).iterfind(".//dl[@class='facts']")
    return dict(zip(texts(facts, "dt"), texts(facts, "dd"), strict=True))


def totals_of(page_text: str) -> dict[str, str]:
    """The figures of a page, by name, each with what explains it."""
    [totals] = parsed(page_text).iterfind(".//dl[@class='totals']")
    return dict(zip(texts(totals, "div/dt"), texts(totals, "div/dd"), strict=True))


def table_of(page_text: str, label: str) -> list[dict[str, str]]:
    """The rows of one of a page's tables, by the titles of its columns."""
    [box] = parsed(page_text).iterfind(f".//div[@aria-label='{label}']")
    columns = texts(box, "table/thead/tr/th")
    return [
        dict(zip(columns, texts(row, "td"), strict=True)) for row in box.iterfind("table/tbody/tr")
    ]


# What is shown


def test_page_of_a_topic_has_its_figures() -> None:
    """Ledgers, entries, bytes and times are those of the golden topic."""
    ledgers = golden_topic("multi-ledger").ledgers
    stored = sum(
        path.stat().st_size for each in ledgers for path in (each.data_object, each.index_object)
    )

    shown = report_of(FULL / "objects", metadata=str(FULL), topic="multi-ledger")

    totals = totals_of(shown)
    assert totals["Ledgers"] == f"{len(ledgers) + 1}{len(ledgers)} both, 1 open"
    assert totals["Entries"].startswith(str(sum(each.entry_count for each in ledgers)))
    assert totals["Stored"].startswith(f"{stored / 1000:.1f} kB")
    assert totals["Findings"].startswith("0")
    facts = facts_of(shown)
    assert facts["Bucket"] == str(FULL / "objects")
    assert facts["Metadata"] == str(FULL)
    assert re.fullmatch(
        r"2026-11-21 12:48:28\.100 to 2026-11-21 12:48:\d\d.* UTC", facts["Written"]
    )
    rows = table_of(shown, "Ledgers")
    assert [row["Ledger"] for row in rows[:-1]] == [str(each.ledger_id) for each in ledgers]
    assert [row["Uuid"] for row in rows[:-1]] == [each.uuid for each in ledgers]
    assert texts(parsed(shown), ".//h1") == ["persistent://public/default/multi-ledger"]


def test_each_ledger_is_drawn_over_time_and_by_size() -> None:
    """Of a whole bucket with metadata, every ledger is in a bar of both charts."""
    offloaded = [
        ledger.ledger_id
        for topic in golden_topics()
        if topic.set_name == SMALL.name
        for ledger in topic.ledgers
    ]

    root = parsed(report_of(SMALL / "objects", metadata=str(SMALL)))

    lanes = drawn_ledgers(root, "lane")
    sizes = drawn_ledgers(root, "plot")
    # Each of the nine topics has an open ledger, too.
    assert sum(count for count, _, _ in lanes) == len(offloaded) + 9
    assert all(any(first <= each <= last for _, first, last in lanes) for each in offloaded)
    assert set(offloaded) < {first for _, first, _ in sizes}
    assert all(first == last for _, first, last in sizes)


def test_charts_tell_without_being_seen() -> None:
    """Every chart is an image with a title and a description; what is decoration is hidden."""
    root = parsed(report_of(SMALL / "objects", metadata=str(SMALL)))

    charts = [each for each in root.iter("svg") if each.get("aria-hidden") != "true"]

    assert len(charts) == 9 + 4
    for chart in charts:
        assert chart.get("role") == "img"
        assert all(text for path in ("title", "desc") for text in texts(chart, path))
        assert [each.tag for each in chart][:2] == ["title", "desc"]


def test_findings_are_told_losses_first(tmp_path: Path) -> None:
    """Each finding is a row, the worst first, and the head says how many are losses."""
    bucket, metadata = damaged_small_set(tmp_path)

    shown = report_of(bucket, metadata=str(metadata))

    rows = table_of(shown, "Findings")
    assert [row["Severity"] for row in rows][:5] == ["loss"] * 4 + ["to look at"]
    assert {row["Ledger"] for row in rows[:4]} == {"15", "17", "19", "24"}
    assert "4 loss" in totals_of(shown)["Findings"]
    assert "4 findings say that messages cannot be read" in "".join(texts(parsed(shown), ".//h2"))
    states = {row["Ledger"]: row["State"] for row in table_of(shown, "Ledgers")}
    assert (states["15"], states["19"], states["27"]) == ("missing", "unsound", "trimmed")
    assert HOSTILE_NAME not in shown
    assert rows[-1]["Objects"] == "<script>alert(1)<\\u202e.txt"


def test_page_without_metadata_says_so() -> None:
    """Without metadata, what cannot be told is told to be so."""
    shown = report_of(SMALL / "objects")

    assert facts_of(shown)["Metadata"] == "none: only the bucket is shown"
    assert "no metadata to compare with" in shown


def test_page_of_a_snapshot_says_so(tmp_path: Path) -> None:
    """The time of the metadata is that of the snapshot, whenever the bucket was listed."""
    path = str(tmp_path / "catalog.json.gz")
    open_catalog(str(SMALL / "objects"), metadata=str(SMALL)).save(path)
    opened = open_catalog(str(SMALL / "objects"), metadata=path)
    listed_anew = opened.relisted()
    listed_anew.listed_at = opened.listed_at + timedelta(days=1)

    facts = [
        facts_of(render_report(each, audit(each), metadata=path)) for each in (opened, listed_anew)
    ]

    made = f"{opened.listed_at:%F %T} UTC"
    assert {each["Metadata"] for each in facts} == {f"{path}, a snapshot of {made}"}
    listed = [f"{each.listed_at:%F %T} UTC" for each in (opened, listed_anew)]
    assert [each["Listed"] for each in facts] == listed


def test_page_of_an_empty_bucket_is_whole(tmp_path: Path) -> None:
    """A bucket without a ledger has a page, with no chart on it."""
    shown = report_of(tmp_path)

    assert totals_of(shown)["Ledgers"].startswith("0")
    assert facts_of(shown)["Topics"] == "none"
    assert 'role="img"' not in shown


def test_ledgers_without_times_are_drawn_in_order() -> None:
    """Where nothing tells a time, ledgers are of one width, and the page says so."""
    entries = [(ledger_id, [b"entry"] * 3) for ledger_id in (3, 4, 9, 11)]
    with memory_bucket(offload(entries)) as bucket:
        root = parsed(report_of(bucket.url))

    lefts = [each.get("x") for each in root.iterfind(".//div[@class='lane']/svg/rect[title]")]
    assert lefts == ["0.00%", "25.00%", "50.00%", "75.00%"]
    assert any("the ledgers are drawn in order" in each for each in texts(root, ".//p"))
    assert any("ledgers were written are unknown" in each for each in texts(root, ".//p"))


def test_page_shows_no_secret() -> None:
    """User parts and queries of the metadata's URL are masked."""
    catalog = open_catalog(str(SMALL / "objects"), metadata=str(SMALL))

    shown = render_report(
        catalog, audit(catalog), metadata="https://me:s3cret@broker:8443/?token=s3cret"
    )

    assert facts_of(shown)["Metadata"] == "https://***@broker:8443/?***"
    assert "s3cret" not in shown


# How large it is


@pytest.mark.parametrize("offloaded", [False, True])
def test_page_of_many_ledgers_is_small(tmp_path: Path, offloaded: bool) -> None:
    """Ten thousand ledgers fit in two megabytes, each in a bar, and no table is longer than 500."""
    metadata = write_metadata(tmp_path / "metadata", many_ledgers(offloaded=offloaded))
    (tmp_path / "bucket").mkdir()

    shown = report_of(tmp_path / "bucket", metadata=str(metadata))

    root = parsed(shown)
    assert len(shown.encode()) < BIGGEST_BYTES
    lanes = drawn_ledgers(root, "lane")
    assert sum(count for count, _, _ in lanes) == MANY
    assert len(lanes) <= 4000
    states = {each.get("class") for each in root.iterfind(".//div[@class='lane']/svg/rect[title]")}
    assert states == ({"bookkeeper", "missing"} if offloaded else {"bookkeeper"})
    assert len(table_of(shown, "Ledgers")) == 500
    assert "The first 500 of 10,000 ledgers" in shown
    assert ("The first 500 of" in "".join(texts(root, ".//section[h2='Findings']"))) == offloaded


def test_many_topics_share_the_room() -> None:
    """However ledgers overlap and in whatever states they are, bars stay few."""
    states = list(LedgerState)
    topics = {
        f"topic-{number}": [
            LedgerSpan(
                topic=f"topic-{number}",
                ledger_id=at,
                state=states[at * 7 % len(states)],
                entries=1,
                size_bytes=at,
                start_ms=at * 37 % 1000,
                stop_ms=at * 37 % 1000 + at * 61 % 3000,
            )
            for at in range(500)
        ]
        for number in range(40)
    }
    scale = TimeScale.from_spans([span for spans in topics.values() for span in spans])

    drawn = timeline(topics.items(), scale)
    sizes = sizes_charts([span for spans in topics.values() for span in spans])

    root = parsed(page("topics", section("Ledgers", drawn, sizes)))
    assert len(drawn) < BIGGEST_BYTES / 2
    assert len(sizes) < BIGGEST_BYTES / 2
    assert sum(count for count, _, _ in drawn_ledgers(root, "lane")) == 40 * 500


# What others wrote


def dated_ledger(ledger_id: int, ctime_ms: int) -> dict[str, bytes]:
    """The objects of a ledger that says of itself when it was created."""
    name, entry = object_name(ledger_id), b"entry"
    metadata = new_ledger_metadata([len(entry)], managed_ledger=MANAGED_LEDGER, ctime_ms=0)
    encoded = encode_ledger([entry], replace(metadata, ctime_ms=ctime_ms), block_bytes=1 << 10)
    return {name.data_name: encoded.data, name.index_name: encoded.index}


@pytest.mark.parametrize(
    ("ctimes_ms", "written"),
    [
        ([LAST_MS], "9999-12-31 23:59:59.998 to 9999-12-31 23:59:59.999 UTC"),
        ([LAST_MS, LAST_MS], "9999-12-31 23:59:59.998 to 9999-12-31 23:59:59.999 UTC"),
        ([FIRST_MS], "0001-01-01 00:00:00 to 0001-01-01 00:00:00.001 UTC"),
        ([FIRST_MS, LAST_MS], "0001-01-01 00:00:00 to 9999-12-31 23:59:59.999 UTC"),
        ([LAST_MS + 1, FIRST_MS - 1, MAX_LONG, -MAX_LONG - 1], None),
    ],
)
def test_any_time_of_a_ledger_has_a_page(ctimes_ms: list[int], written: str | None) -> None:
    """The first and the last time of a calendar are drawn, and others are not known."""
    ledgers = [dated_ledger(number, each) for number, each in enumerate(ctimes_ms)]
    with memory_bucket({name: data for each in ledgers for name, data in each.items()}) as bucket:
        shown = report_of(bucket.url)

    assert facts_of(shown).get("Written") == written
    lanes = drawn_ledgers(parsed(shown), "lane")
    assert sum(count for count, _, _ in lanes) == len(ctimes_ms)
    lefts = [each.get("x") for each in parsed(shown).iterfind(".//div[@class='lane']/svg/rect")]
    assert all(0 <= float((left or "0%")[:-1]) <= 100 for left in lefts)


def test_numbers_beyond_a_column_have_a_page(tmp_path: Path) -> None:
    """Entries of partitions that add up to more than 2^63 - 1 are shown, and break no table."""
    metadata = tmp_path / "metadata"
    for number in range(2):
        ledger = LedgerInfo(ledger_id=number, entries=MAX_LONG, size_bytes=MAX_LONG, timestamp_ms=1)
        write_metadata(metadata, [ledger], f"orders-partition-{number}")
    (tmp_path / "bucket").mkdir()

    shown = report_of(tmp_path / "bucket", metadata=str(metadata))

    assert f"{MAX_LONG:,} in BookKeeper only" in totals_of(shown)["Entries"]
    assert [row["Entries"] for row in table_of(shown, "Ledgers")] == [f"{MAX_LONG:,}"] * 2


def test_entries_that_were_lost_are_counted_as_far_as_a_column_reaches() -> None:
    """An index object that ends in a hole may say any last entry, 2^63 - 1 too."""
    name, entry = object_name(1), b"entry"
    metadata = new_ledger_metadata([len(entry)], managed_ledger=MANAGED_LEDGER, ctime_ms=1)
    data = encode_ledger([entry], metadata, block_bytes=1 << 10).data
    index = write_index_block(
        data_object_length_bytes=len(data),
        entries=[BlockEntry(0, 1, 0), BlockEntry(1, 2, len(data))],
        ledger_metadata=replace(metadata, last_entry_id=MAX_LONG, length_bytes=MAX_LONG),
    )
    with memory_bucket({name.data_name: data, name.index_name: index}) as bucket:
        shown = report_of(bucket.url)

    [row] = table_of(shown, "Ledgers")
    assert row["Entries"] == f"{MAX_LONG:,}"
    assert totals_of(shown)["Entries"].startswith(f"{MAX_LONG:,}")
    assert f"entries 1 … {MAX_LONG} were lost" in row["Remarks"]


@pytest.mark.parametrize("metadata", [False, True])
def test_hostile_names_stay_text(tmp_path: Path, metadata: bool) -> None:
    """Markup in the name of a topic, and control characters, are shown and do nothing."""
    name = '--><title><script>alert("1")&\x00\u202e\ud7ff'
    managed_ledger = f"a<b>c/d&amp;e/persistent/{quote_plus(name)}"
    folder = write_metadata(tmp_path, many_ledgers(offloaded=True)[:3]) if metadata else None
    with memory_bucket(offload([(1, [b"entry"])], managed_ledger=managed_ledger)) as bucket:
        shown = report_of(bucket.url, metadata=str(folder) if folder else None)

    root = parsed(shown)
    topic = 'persistent://a<b>c/d&amp;e/--><title><script>alert("1")&\\x00\\u202e\\ud7ff'
    assert topic in {row["Topic"] for row in table_of(shown, "Ledgers")}
    assert not {each.tag for each in root.iter()} & {"script", "b>c", "img", "iframe", "link"}
    assert "<script" not in shown
    assert not set(shown) & {"\0", "\u202e"}


@settings(max_examples=30)
@given(text=st.text(max_size=600) | st.text("<>&\"'/=;\0\ud800\u202e", max_size=600))
def test_any_text_stays_text(text: str) -> None:
    """What is escaped is one piece of text, in which nothing is lost but the end of long texts."""
    shown = page("title", section("heading", escape(text)))

    [found] = texts(parsed(shown), ".//section")
    shown.encode()
    printable = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    assert found == f"heading{printable}" or (
        len(text) > 400 and found.endswith("…") and f"heading{printable}".startswith(found[:-1])
    )
    assert len(found) < 400 * len("\\U0010ffff") + len("heading…")


def test_page_refers_to_nothing() -> None:
    """The page has no script, no handler, no address, and forbids all of that by its policy."""
    shown = report_of(FULL / "objects", metadata=str(FULL))

    root = parsed(shown)
    attributes = [each for element in root.iter() for each in element.attrib.items()]
    assert not {name for name, _ in attributes} & {"src", "href", "style", "srcset", "action"}
    assert not [name for name, _ in attributes if name.startswith("on")]
    assert "//" not in "".join(texts(root, ".//style"))
    assert "script" not in {each.tag for each in root.iter()}
    [policy] = root.iterfind(".//meta[@http-equiv='Content-Security-Policy']")
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/]{43}='", policy.get("content", "")
    )
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    referred = set(re.findall(r"url\(#(\w+)\)", shown))
    assert referred == set(ids)


def test_every_state_is_told_apart_without_colours() -> None:
    """Each state of a ledger has words, and a rule in the style that fills its bars."""
    style = "".join(texts(parsed(page("title", section("heading"))), ".//style"))

    assert set(STATE_TEXTS) == set(LedgerState)
    for state in LedgerState:
        assert re.search(rf"^\.{state} {{ fill: ", style, re.MULTILINE)


# The command


def test_command_writes_the_page(tmp_path: Path) -> None:
    """The command writes the page that the library makes, over what was there."""
    output = tmp_path / "report.html"
    output.write_text("old")

    result = run("report", URL, "multi-*", "--output", str(output), "--metadata", str(FULL))

    expected = report_of(URL, topic="multi-*", metadata=str(FULL))
    listed = re.compile(r"<dt>Listed</dt><dd>[^<]*</dd>")
    assert listed.sub("", output.read_text("utf-8")) == listed.sub("", expected)
    assert re.fullmatch(rf"[\d.]+ kB written to {re.escape(str(output))}\n", result.stdout)


def test_command_tells_what_is_wrong(tmp_path: Path) -> None:
    """No such topic, or no place for the page, is one line and an exit code."""
    output = str(tmp_path / "no" / "report.html")

    missing = run("report", URL, "nothing", "--output", output, ends=NOT_FOUND)
    refused = run("report", URL, "multi-ledger", "--output", output, ends=USAGE)
    run("report", URL, ends=USAGE)

    assert "no offloaded topic" in missing.stderr
    assert f"the report cannot be written to {output}" in refused.stderr
