"""What a read will cost, against what is counted of real reads."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import OptionError
from arrow_io.ledgers import data as ledger_data
from arrow_io.ledgers.offset_memory import OffsetMemory
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector.catalog.opening import open_catalog
from connector.inputs.topic_names import TopicName
from connector.topic import open_topic
from connector.upkeep.forecast.cost import (
    EXAMPLE_PRICES,
    LIST_PAGE_KEYS,
    PriceTable,
    load_prices,
    opening_requests,
    read_cost,
    stored_bytes,
)
from tests.support.buckets import golden_objects, memory_bucket, object_name, offload
from tests.support.command_line import lines_of, run
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN, golden_topic
from tests.support.reading import block_table

if TYPE_CHECKING:
    from pathlib import Path

    from connector.dataset import TopicDataset
    from tests.support.s3_server import S3Server

URL: Final = str(GOLDEN / "pulsar-4.0.7" / "objects")
LEDGERS: Final = golden_topic("multi-ledger")
ORDERS: Final = "json-orders"
EUROS: Final = """
currency = "EUR"
as_of = 2026-01-31
list_per_1000 = 0.1
get_per_1000 = 1
put_per_1000 = 10
egress_per_gb = 0
stored_per_gb_month = 0.5
"""


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test before this one has left behind where entries begin."""
    monkeypatch.setattr(ledger_data, "_OFFSETS", OffsetMemory())


def read_whole(dataset: TopicDataset, trace: RequestTrace) -> RequestCounts:
    """Read all rows, and give what was asked for since the dataset was opened."""
    before = trace.counts
    for _ in dataset.scanner().to_batches():
        pass
    after = trace.counts
    return RequestCounts(
        **{
            each.name: getattr(after, each.name) - getattr(before, each.name)
            for each in fields(after)
        }
    )


def foreseen_and_counted(
    topic: str, url: str = URL, **options: object
) -> tuple[RequestCounts, RequestCounts]:
    """What reading a golden topic should ask for, and what it asked for."""
    trace = RequestTrace()
    dataset = open_topic(url, topic, value="raw", trace=trace, **options)  # type: ignore[arg-type]
    return read_cost(dataset.scan).reading, read_whole(dataset, trace)


# Reading


@pytest.mark.parametrize("range_bytes", [4000, 100_000, 1 << 20])
@pytest.mark.parametrize(
    "topic", ["json-orders", "multi-*", "partitioned", "bytes-batched-zstd", "kv-json-inline"]
)
def test_a_whole_read_asks_for_what_was_foreseen(topic: str, range_bytes: int) -> None:
    """Requests and bytes are exactly those counted of the read that follows."""
    foreseen, counted = foreseen_and_counted(topic, range_bytes=range_bytes)

    assert foreseen.requests > 0
    assert foreseen == counted


def test_bounds_between_blocks_are_foreseen() -> None:
    """Of a ledger, only the blocks within the bounds cost something."""
    with memory_bucket(_again("json-orders", 1 << 14)) as bucket:
        [ledger] = open_topic(bucket.url, ORDERS, value="raw").scan.topics[0].ledgers
        bounds = {
            "start": (ledger.ledger_id, block_table(ledger).first_entry_id(1)),
            "end": (ledger.ledger_id, block_table(ledger).first_entry_id(3)),
        }
        foreseen, counted = foreseen_and_counted(ORDERS, bucket.url, **bounds)

    assert foreseen == counted
    table = block_table(ledger)
    assert foreseen.range_bytes == table.block_stop(2) - table.block_start(1)


def test_a_bound_within_a_block_costs_no_more_than_foreseen() -> None:
    """A block is counted whole, so a read that ends within it asks for less, or the same."""
    [ledger] = open_topic(URL, "multi-block", value="raw").scan.topics[0].ledgers
    end = (ledger.ledger_id, ledger.last_entry_id // 2)

    foreseen, counted = foreseen_and_counted("multi-block", end=end, range_bytes=1 << 16)

    assert 0 < counted.range_requests < foreseen.range_requests
    assert 0 < counted.range_bytes < foreseen.range_bytes


def test_a_message_that_goes_on_behind_the_end_costs_more_than_foreseen() -> None:
    """A read that has to join the chunks of a message goes on behind its bounds."""
    topic = golden_topic("chunked")
    ledger_id, block_bytes = topic.ledgers[0].ledger_id, 1 << 10
    chunked = next(row for row in topic.messages() if "first_chunk" in row)
    trace = RequestTrace()
    with memory_bucket(_again(topic.name, block_bytes)) as bucket:
        end = (ledger_id, chunked["first_chunk"][1] + 1)
        dataset = open_topic(bucket.url, topic.name, value="raw", end=end, trace=trace)
        foreseen, counted = read_cost(dataset.scan).reading, read_whole(dataset, trace)

    assert foreseen.range_bytes < counted.range_bytes
    assert foreseen.range_requests < counted.range_requests


def _again(name: str, block_bytes: int) -> dict[str, bytes]:
    """The golden topic in blocks of another size."""
    topic = golden_topic(name)
    dataset = open_topic(str(topic.objects_folder), topic.name, value="raw")
    ledgers = [
        (each.ledger_id, [e.data for e in each.read_entries(0, each.last_entry_id)])
        for each in dataset.scan.topics[0].ledgers
    ]
    return offload(ledgers, block_bytes=block_bytes, managed_ledger=topic.managed_ledger)


def test_a_cut_between_tasks_adds_its_request() -> None:
    """Each task asks for its own ranges, and reads no byte twice."""
    scan = open_topic(URL, "multi-block", value="raw").scan
    [ledger] = scan.topics[0].ledgers

    whole, cut = read_cost(scan), read_cost(scan, task_bytes=1)

    assert (whole.tasks, cut.tasks) == (1, block_table(ledger).block_count)
    assert whole.reading.range_bytes == cut.reading.range_bytes
    assert whole.reading.requests <= cut.reading.requests < whole.reading.requests + cut.tasks


def test_another_range_size_can_be_asked_about() -> None:
    """The cost for ranges of another size needs no topic opened with it."""
    scan = open_topic(URL, "multi-ledger", value="raw").scan
    expected, _ = foreseen_and_counted("multi-ledger", range_bytes=999)

    assert read_cost(scan, range_bytes=999).reading == expected
    with pytest.raises(OptionError, match="range_bytes"):
        read_cost(scan, range_bytes=0)


def test_a_scan_read_twice_costs_twice() -> None:
    """Each scan given is one read."""
    scan = open_topic(URL, "multi-ledger", value="raw").scan

    once, twice = read_cost(scan), read_cost(scan, scan)

    assert twice.reading == once.reading + once.reading
    assert read_cost().counts == RequestCounts()


def test_a_cut_data_object_costs_what_is_there() -> None:
    """A salvaging read of an object that is shorter than its index says asks for no more."""
    objects = golden_objects(LEDGERS)
    cut = LEDGERS.ledgers[1].data_object.name
    objects[cut] = objects[cut][:3000]
    trace = RequestTrace()
    with memory_bucket(objects) as bucket:
        dataset = open_topic(
            bucket.url, "multi-ledger", value="raw", on_corruption="salvage", trace=trace
        )
        foreseen = read_cost(dataset.scan).reading
        with pytest.warns(UserWarning, match="lost"):
            counted = read_whole(dataset, trace)

    assert foreseen == counted


# Opening and keeping


@pytest.mark.s3
def test_opening_is_foreseen_on_s3(s3_server: S3Server) -> None:
    """On S3 too, listing, index objects and data are those counted of another, real read."""
    address = s3_server.upload_golden(GOLDEN / "pulsar-4.0.7-small")
    first = open_catalog(address.url, storage_options=address.storage_options)
    name = next(iter(first.topics()))
    known = open_topic(address.url, str(name), catalog=first, value="raw")
    foreseen = read_cost(known.scan, openings=[first.opening([name])])

    trace = RequestTrace()
    again = open_topic(
        address.url, str(name), storage_options=address.storage_options, value="raw", trace=trace
    )
    assert trace.counts == foreseen.opening
    for _ in again.scanner().to_batches():
        pass

    assert trace.counts == foreseen.counts


def test_every_key_in_the_folder_is_listed() -> None:
    """Objects of others, and offloads that never completed, take their place in the pages."""
    entry = encode_entry([Message(payload=b"v")], batched=False)
    objects = offload([(7, [entry])])
    unfinished = {object_name(8).data_name: b"data"}
    others = {f"other-{number}": b"x" for number in range(LIST_PAGE_KEYS - 3)}
    with memory_bucket(objects | unfinished | others) as bucket:
        full = open_catalog(bucket.url).opening([TopicName.parse("orders")])
        bucket.put({"one-more": b"y"})
        more = open_catalog(bucket.url).opening([TopicName.parse("orders")])

    index_bytes = next(len(data) for name, data in objects.items() if name.endswith("-index"))
    assert opening_requests(full) == RequestCounts(
        list_requests=1, head_requests=1, index_requests=1, index_bytes=index_bytes
    )
    assert opening_requests(more).list_requests == 2


def test_stored_bytes_are_those_of_the_objects() -> None:
    """Everything, or both objects of each ledger of some topics."""
    contents = open_catalog(URL).contents
    objects = [
        path for ledger in LEDGERS.ledgers for path in (ledger.data_object, ledger.index_object)
    ]

    assert stored_bytes(contents, {TopicName.parse("multi-ledger")}) == sum(
        path.stat().st_size for path in objects
    )
    assert stored_bytes(contents) == sum(
        path.stat().st_size for path in GOLDEN.glob("pulsar-4.0.7/objects/*")
    )
    assert stored_bytes(contents, set()) == 0


def test_all_that_lies_in_a_bucket_is_stored() -> None:
    """Objects of others and offloads that never completed are paid for too."""
    stray = {object_name(8).data_name: b"data", "other": b"xyz"}
    with memory_bucket(stray) as bucket:
        assert stored_bytes(open_catalog(bucket.url).contents) == 7


# Money


def test_money_is_price_times_number() -> None:
    """Each kind of request has its price, and bytes that come back have theirs."""
    prices = PriceTable(
        list_per_1000=Decimal(1),
        get_per_1000=Decimal(10),
        put_per_1000=Decimal(100),
        egress_per_gb=Decimal(8),
        stored_per_gb_month=Decimal(4),
    )
    counts = RequestCounts(
        list_requests=1,
        head_requests=1,
        index_requests=2,
        range_requests=3,
        put_requests=1,
        upload_requests=2,
        part_requests=3,
        delete_requests=9,
        index_bytes=1 << 28,
        range_bytes=1 << 28,
        part_bytes=1 << 40,
    )

    money = prices.money(counts)

    assert money.list_requests == Decimal("0.001")
    assert money.get_requests == Decimal("0.06")
    assert money.put_requests == Decimal("0.6")
    assert money.egress == 4
    assert money.total == Decimal("4.661")
    assert prices.stored_per_month(1 << 29) == 2


def test_a_read_is_priced_by_the_table_given() -> None:
    """The money of a cost is that of all its requests, opening included."""
    catalog = open_catalog(URL)
    scan = open_topic(URL, "multi-ledger", catalog=catalog, value="raw").scan
    free = replace(EXAMPLE_PRICES, list_per_1000=Decimal(0), egress_per_gb=Decimal(0))

    cost = read_cost(
        scan, openings=[catalog.opening([TopicName.parse("multi-ledger")])], prices=free
    )

    gets = cost.opening.index_requests + cost.reading.range_requests
    assert cost.money.total == free.get_per_1000 * gets / 1000 > 0


def test_a_price_table_is_read(tmp_path: Path) -> None:
    """Each line of the file is taken, exactly as it is written."""
    path = tmp_path / "prices.toml"
    path.write_text(EUROS)

    assert load_prices(path) == PriceTable(
        currency="EUR",
        as_of=date(2026, 1, 31),
        list_per_1000=Decimal("0.1"),
        get_per_1000=Decimal(1),
        put_per_1000=Decimal(10),
        egress_per_gb=Decimal(0),
        stored_per_gb_month=Decimal("0.5"),
    )


def test_the_table_in_the_documentation_is_one(tmp_path: Path) -> None:
    """What the docstring shows can be copied to a file and read."""
    _, _, rest = (load_prices.__doc__ or "").partition("```toml")
    path = tmp_path / "prices.toml"
    path.write_text(rest.partition("```")[0])

    assert load_prices(path).currency == "EUR"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("currency", "Currency", "exactly the keys"),
        ("put_per_1000 = 10", "", "put_per_1000"),
        ("= 10", "= -1", "put_per_1000 must be"),
        ("= 10", "= nan", "put_per_1000 must be"),
        ("= 10", "= inf", "put_per_1000 must be"),
        ("= 10", "= true", "put_per_1000 must be"),
        ("= 10", '= "10"', "put_per_1000 must be"),
        ("= 10", "= 1000000001", "put_per_1000 must be"),
        ("= 10", "= 1e999999999999", "put_per_1000 must be"),
        ("= 10", f"= 0x{'f' * 9999}", "put_per_1000 must be"),
        ("= 10", "= 1e9999999999999999999999", "out of range"),
        ("= 10", "= 1e-9999999999999999999999", "out of range"),
        ("= 10", f"= {'[' * 9999}", "nested too deep"),
        ("= 10", f"= {'1' * 9999}", "not TOML"),
        ('"EUR"', "1", "must be a string"),
        ("2026-01-31", '"2026-01-31"', "must be a string, and as_of a date"),
        ("2026-01-31", "2026-01-31T00:00:00", "must be a string, and as_of a date"),
        ("= 10", "= ten", "not TOML"),
        ("EUR", "€" * 30_000, "longer than a price table"),
    ],
)
def test_a_wrong_price_table_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    """What is missing, unknown, no number or out of bounds is told."""
    path = tmp_path / "prices.toml"
    path.write_text(EUROS.replace(old, new), encoding="utf-8")

    with pytest.raises(OptionError, match=said):
        load_prices(path)


@pytest.mark.parametrize("price", [Decimal(-1), Decimal("NaN"), Decimal("1e10"), 0.5])
def test_a_price_out_of_bounds_is_refused(price: Any) -> None:  # noqa: ANN401 - a wrong one too
    """A table made in Python has the same prices as one in a file."""
    with pytest.raises(OptionError, match="egress_per_gb must be a decimal number in 0 …"):
        replace(EXAMPLE_PRICES, egress_per_gb=price)


def test_any_price_can_be_shown(tmp_path: Path) -> None:
    """The highest, the lowest and the longest prices make money that is told, not an error."""
    path = tmp_path / "prices.toml"
    path.write_text(
        EUROS.replace("= 0.1", "= 1_000_000_000")
        .replace("= 1\n", "= 1e-999999999999\n")
        .replace("egress_per_gb = 0", f"egress_per_gb = 999999999.{'9' * 999}")
    )
    arguments = ("cost", URL, "multi-ledger", "--prices", str(path))

    [whole] = lines_of(*arguments)
    table = run(*arguments).stdout

    assert Decimal(whole["listing"]["money"]) == 1_000_000
    assert Decimal(whole["data"]["money"]) > 0
    assert "1000000.000000" in table


def test_a_price_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    """So is one that is no text."""
    with pytest.raises(OptionError, match="no price table"):
        load_prices(tmp_path / "prices.toml")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="not TOML"):
        load_prices(path)
