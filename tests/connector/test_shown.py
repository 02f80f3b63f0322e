"""What `repr` and a notebook show of datasets and catalogs, and what the package exports."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import connector
from arrow_io import errors
from arrow_io.storage.trace import RequestTrace
from connector import Catalog, TopicDataset, open_catalog, open_topic
from connector.display.html import MAX_SHOWN_ROWS, html_table
from tests.support.buckets import memory_bucket, object_name, offload_ledger
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN, golden_topic
from tests.support.golden_datasets import open_golden

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRIES = [encode_entry([Message()], batched=False)] * 2


@pytest.fixture
def hostile() -> Iterator[tuple[Catalog, RequestTrace]]:
    """A bucket with a topic whose name is markup, and one of three partitions."""
    objects = offload_ledger(
        object_name(1), _ENTRIES, managed_ledger="public/default/persistent/%3Cscript%3E%0A"
    )
    for number in range(3):
        objects |= offload_ledger(
            object_name(10 + number),
            _ENTRIES,
            managed_ledger=f"public/default/persistent/parts-partition-{number}",
        )
    trace = RequestTrace()
    with memory_bucket(objects) as bucket:
        yield open_catalog(bucket.url, trace=trace), trace


def test_a_catalog_is_shown_without_a_request(hostile: tuple[Catalog, RequestTrace]) -> None:
    """Its URL and sizes, markup escaped; looking at it costs nothing."""
    catalog, trace = hostile
    before = trace.counts

    assert repr(catalog) == f"Catalog('{catalog.location}': 2 topics, 4 ledgers)"
    html = catalog._repr_html_()
    assert "<td>persistent://public/default/parts</td><td>3</td>" in html
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert trace.counts == before


def test_a_dataset_is_shown_without_a_request(hostile: tuple[Catalog, RequestTrace]) -> None:
    """Its topics, sizes and columns, markup escaped."""
    catalog, trace = hostile
    topics = open_topic(str(catalog.location), ["parts", "<script>\n"], catalog=catalog)
    before = trace.counts

    shown = repr(topics)
    assert shown.startswith("TopicDataset(persistent://public/default/<script>")
    assert "…" in shown
    assert "4 in all: 4 ledgers, 8 entries, " in shown
    assert shown.endswith(" 11 columns)")
    html = topics._repr_html_()
    assert "<td>__key__</td><td>string</td>" in html
    assert "<script>" not in html
    assert trace.counts == before


def test_metadata_is_told_and_not_asked() -> None:
    """A live cluster is not asked for the sake of a repr: here there is none."""
    catalog = open_catalog(
        str(GOLDEN / "pulsar-4.0.7-small" / "objects"), metadata="http://127.0.0.1:1"
    )

    assert repr(catalog).endswith(", with metadata)")
    assert "with metadata" in catalog._repr_html_()


def test_an_empty_dataset_is_shown() -> None:
    """One without rows too, and one topic by its name."""
    dataset = open_golden(golden_topic("json-orders"))

    assert isinstance(dataset, TopicDataset)
    assert repr(dataset).startswith("TopicDataset(persistent://public/default/json-orders: 1 led")


def test_long_tables_are_cut() -> None:
    """A catalog of many topics does not fill the notebook."""
    html = html_table("many", ["n"], [[n] for n in range(MAX_SHOWN_ROWS + 1_000)])

    assert html.count("<tr>") == MAX_SHOWN_ROWS + 2
    assert "… and 1,000 more" in html
    assert "…</td>" in html_table("long", ["n"], [["x" * 1_000]])


def test_the_package_exports_its_errors() -> None:
    """Whoever catches an error, or reads metrics, finds its class beside the functions."""
    classes = {
        name
        for name, each in vars(errors).items()
        if inspect.isclass(each) and each.__module__ == errors.__name__
    }

    assert classes | {"ReadMetrics"} <= set(connector.__all__)
    assert all(hasattr(connector, name) for name in connector.__all__)
    assert connector.OptionError is errors.OptionError
