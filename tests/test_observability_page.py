"""The page on observability names everything that is reported, and its alerts what exists."""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from connector import otel
from connector.lake.metrics_file import METRICS
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[1]
_PAGE: Final = (_ROOT / "docs" / "observability.md").read_text("utf-8")


def _calls() -> Iterator[tuple[str, list[Any], list[str | None]]]:
    """Name, constant arguments and keywords of each call in the packages."""
    for package in ("arrow_io", "connector", "spark_ds"):
        for path in (_ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func).rpartition(".")[2]
                    texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
                    yield name, texts, [each.arg for each in node.keywords]


def _first_texts(*functions: str) -> set[str]:
    return {
        text
        for name, texts, _ in _calls()
        if name in functions
        for text in texts[:1]
        if isinstance(text, str)
    }


def test_every_operation_is_a_span_of_the_page() -> None:
    """And no other."""
    reported = _first_texts("operation", "observe_batches")
    listed = set(re.findall(r"^\| `pulsar_offload\.(\w+)` \|", _PAGE, re.MULTILINE))

    assert reported
    assert listed >= reported
    assert listed - reported <= {*otel._COUNTERS, *otel._GAUGES}


def test_every_metric_is_in_the_page() -> None:
    """Of OpenTelemetry and of the file."""
    measured = _first_texts("count", "measure") & {*otel._COUNTERS, *otel._GAUGES}
    own = {*otel._COUNTERS, *otel._GAUGES}
    assert own - measured == {"bytes"}  # requests count them
    names = [f"`pulsar_offload.{name}` |" for name in own]
    names += [f"`pulsar_offload_copy_{name}`" for name in METRICS]

    assert [name for name in names if name not in _PAGE] == []


def test_every_event_is_in_the_page() -> None:
    """Also the fields of records."""
    events = _first_texts("say", "write_event")
    table = _PAGE.partition("| event |")[2].partition("\n\n")[0]
    fields = {
        keyword
        for name, _, keywords in _calls()
        if name in {"operation", "observe_batches", "note"}
        for keyword in keywords
        if keyword
    }
    records = _PAGE.partition("Each record has its fields")[2].partition("\n\n")[0]

    assert {"copied", "verified", "log", "error"} <= events
    assert [event for event in events if f"`{event}`" not in table] == []
    assert {"attempts", "ledgers", "data_bytes"} <= fields
    assert [field for field in fields if f"`{field}`" not in records] == []


def test_alerts_are_on_metrics_that_exist() -> None:
    """The rules are those of Prometheus, and each names a series of a copy."""
    [text] = [each.text for each in snippets_of(_PAGE) if each.kind == "yaml"]
    groups = yaml.safe_load(text)["groups"]
    rules: list[dict[str, Any]] = [rule for group in groups for rule in group["rules"]]
    names = [re.findall(r"pulsar_offload_copy_(\w+)", each["expr"]) for each in rules]

    assert len(rules) >= 5
    assert all(set(each) <= {"alert", "expr", "for", "labels", "annotations"} for each in rules)
    assert all(len(each) == 1 for each in names)
    assert set(chain.from_iterable(names)) <= set(METRICS)
    for rule in rules:
        depth = [rule["expr"].count(each) for each in "()[]{}"]
        assert depth[::2] == depth[1::2]
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert labels <= {"table", "topic", "reason", "unit", "error"}
