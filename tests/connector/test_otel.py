"""Spans and metrics of OpenTelemetry, as its own SDK gets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fsspec
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from arrow_io.errors import ChecksumError, OptionError, StorageError
from arrow_io.storage.trace import RequestTrace
from connector import copy_topics, instrument, open_topic
from connector.otel import uninstrument
from tests.support.command_line import broken_orders
from tests.support.faulty_storage import FaultScript, raising, s3_error
from tests.support.golden import GOLDEN, golden_topic
from tests.support.observed import Observed
from tests.support.otlp_collector import running_collector

if TYPE_CHECKING:
    from collections.abc import Iterator

_METADATA: Final = GOLDEN / "pulsar-4.0.7"
_URL: Final = str(_METADATA / "objects")
_MARKER: Final = "s3cr3tMaterialOfNoAccount"
_OPEN, _PLAN, _READ, _DECODE, _REQUEST, _COPY, _COMMIT = (
    f"pulsar_offload.{each}"
    for each in ("open", "plan", "read", "decode", "request", "copy", "commit")
)


@pytest.fixture
def observed() -> Iterator[Observed]:
    """What is reported during a test."""
    receiver = Observed()
    instrument(tracer_provider=receiver.tracer_provider, meter_provider=receiver.meter_provider)
    yield receiver
    uninstrument()


def test_spans_of_a_read_are_children_of_the_users(observed: Observed) -> None:
    """Requests and decoding of other threads belong to the read that they are for."""
    with observed.tracer_provider.get_tracer("user").start_as_current_span("user"):
        rows = open_topic(_URL, "multi-ledger").to_table().num_rows

    edges = observed.edges()
    assert {edge for edge in edges if edge[1] != _REQUEST} == {
        ("user", _OPEN),  # the topic
        (_OPEN, _OPEN),  # the bucket
        ("user", _PLAN),
        ("user", _READ),
        (_READ, _DECODE),
        (None, "user"),
    }
    # Index objects are read when the bucket is opened, data objects when the topic is read.
    requests = {edge for edge in edges if edge[1] == _REQUEST}
    assert requests == {(_OPEN, _REQUEST), (_READ, _REQUEST)}
    [read] = observed.named("read")
    assert dict(read.attributes or {}) == {
        "messaging.system": "pulsar",
        "messaging.destination.name": "persistent://public/default/multi-ledger",
        "pulsar_offload.rows": rows,
    }
    assert {each.kind for each in observed.named("request")} == {SpanKind.CLIENT}


def test_requests_and_bytes_are_those_of_the_trace(observed: Observed) -> None:
    """Each request is a span and counted, with the bytes that it received."""
    counter = RequestTrace()
    topic = open_topic(_URL, "multi-ledger", trace=counter)
    rows = topic.to_table().num_rows

    counts = counter.counts
    assert observed.total("requests") == counts.requests == len(observed.named("request"))
    received = observed.total("bytes", **{"network.io.direction": "receive"})
    assert received == counts.received_bytes
    assert observed.total("rows") == rows == 255
    ranges = [
        each
        for each in observed.named("request")
        if (each.attributes or {})["pulsar_offload.kind"] == "range get"
    ]
    assert len(ranges) == counts.range_requests
    for each in ranges:
        fields: Any = each.attributes
        length = fields["pulsar_offload.stop"] - fields["pulsar_offload.start"]
        assert fields["pulsar_offload.received_bytes"] <= length
        assert fields["url.full"] == _URL
    durations = observed.points("operation.duration")
    names = {"pulsar_offload.operation": "request"}
    assert counts.requests == sum(n for own, n in durations if names.items() <= own.items())


def test_the_consumers_context_is_left_alone(observed: Observed) -> None:
    """Between two batches, and after an early end, the current span is the consumer's."""
    tracer = observed.tracer_provider.get_tracer("user")
    with tracer.start_as_current_span("user") as own:
        batches: Any = open_topic(_URL, "multi-block").to_batches()
        next(batches)
        assert trace.get_current_span() is own
        batches.close()
        assert trace.get_current_span() is own

    [read] = observed.named("read")
    assert read.status.status_code is StatusCode.UNSET
    assert "error.type" not in (read.attributes or {})


def test_what_was_left_out_is_counted_by_reason(observed: Observed) -> None:
    """Messages of open transactions, and damage that was passed over."""
    with pytest.warns(match="without an outcome"):
        open_topic(_URL, "transactions-open").to_table()
    store = "memory://observed-damage"
    for name, data in broken_orders().items():
        fsspec.filesystem("memory").pipe_file(f"/observed-damage/{name}", data)
    salvaged = open_topic(store, "json-orders", on_corruption="salvage")
    with pytest.warns(match="lost"):
        salvaged.to_table()

    topic = "persistent://public/default/transactions-open"
    [open_messages] = [
        (own["pulsar_offload.unit"], value)
        for own, value in observed.points("dropped")
        if own["pulsar_offload.reason"] == "open_transaction"
        and own["messaging.destination.name"] == topic
    ]
    assert open_messages[0] == "message"
    assert open_messages[1] > 0
    lost = observed.total("dropped", **{"pulsar_offload.reason": "ChecksumError"})
    assert lost == sum(salvaged.metrics.lost.values()) == 1


def test_a_failed_read_is_an_error_with_its_text(observed: Observed) -> None:
    """And so is the unit in which the damage was found."""
    for name, data in broken_orders().items():
        fsspec.filesystem("memory").pipe_file(f"/observed-error/{name}", data)
    with pytest.raises(ChecksumError) as raised:
        open_topic("memory://observed-error", "json-orders").to_table()

    [read] = observed.named("read")
    assert read.status.status_code is StatusCode.ERROR
    assert read.status.description == str(raised.value)
    assert (read.attributes or {})["error.type"] == "ChecksumError"
    types = [(each.attributes or {}).get("error.type") for each in observed.named("decode")]
    assert types.count("ChecksumError") == 1


def test_retries_are_counted(observed: Observed) -> None:
    """One request is one span, however often it is sent."""
    script = FaultScript({"a": b"data"}, [raising(s3_error(503, "SlowDown"))] * 2)

    script.location().read_range("a", 0, 4)

    [request] = observed.named("request")
    assert (request.attributes or {})["pulsar_offload.attempts"] == 3
    assert observed.total("requests") == 3
    assert observed.total("retries", **{"http.response.status_code": 503}) == 2


def test_a_commit_is_a_span_and_the_lag_is_measured(observed: Observed, tmp_path: Path) -> None:
    """Of a copy, whose tasks run in threads of their own."""
    target = str(tmp_path / "lake")
    [summary] = copy_topics(_URL, "transactions-open", target, format="parquet")

    assert summary.lag_bytes > 0
    [(attributes, lag)] = observed.points("lag")
    assert attributes == {
        "messaging.system": "pulsar",
        "messaging.destination.name": "persistent://public/default/transactions-open",
        "db.collection.name": target,
    }
    assert lag == summary.lag_bytes
    [commit] = observed.named("commit")
    assert dict(commit.attributes or {}) == {
        "db.collection.name": target,
        "db.system.name": "parquet",
        "pulsar_offload.files": 1,
        "pulsar_offload.rows": summary.rows,
    }
    edges = observed.edges()
    assert edges[_COPY, _COMMIT] == 1
    assert edges[_COPY, _DECODE] >= 1
    assert edges[_COMMIT, _REQUEST] + edges[_COPY, _REQUEST] > 1
    assert [edge for edge in edges if edge[0] is None and edge[1] == _REQUEST] == []
    [(_, seconds)] = observed.points("copy.last_success")
    assert seconds > 1.7e9


def test_nothing_secret_is_reported(
    observed: Observed, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """No credential of a URL or an option, and no payload, is in a span, a metric or a record."""
    caplog.set_level("DEBUG", logger="pulsar_offload")
    options = {"key": "me", "secret": _MARKER, "client_kwargs": {"password": [_MARKER]}}
    with pytest.raises(StorageError):
        open_topic(f"sftp://me:{_MARKER}@127.0.0.1:1/x", "orders")
    with pytest.raises((OptionError, StorageError)):
        open_topic(
            f"s3://bucket/x?token={_MARKER}",
            "orders",
            storage_options={
                **options,
                "endpoint_url": "http://127.0.0.1:1",
                "request_attempts": 1,
            },
        )
    rows = open_topic(_URL, "json-orders").to_table(columns=["__key__"])
    copy_topics(_URL, "json-orders", str(tmp_path / "lake"), format="parquet")

    reported = observed.everything() + "".join(map(repr, (vars(each) for each in caplog.records)))
    assert "sftp://***@127.0.0.1:1/x" in reported
    assert "persistent://public/default/json-orders" in reported
    assert _MARKER not in reported
    keys = {key for key in rows["__key__"].to_pylist() if key and len(key) > 3}
    assert keys
    assert not any(f'"{key}"' in reported or f"={key} " in reported for key in keys)


def test_nothing_is_imported_unless_asked_for() -> None:
    """A read and a copy run without OpenTelemetry, whether or not it is installed."""
    code = (
        "import sys, tempfile\n"
        "from connector import copy_topics, open_topic\n"
        f"assert open_topic({_URL!r}, 'multi-ledger').to_table().num_rows == 255\n"
        f"copy_topics({_URL!r}, 'multi-ledger', tempfile.mkdtemp(), format='parquet')\n"
        "print([each for each in sys.modules if each.startswith('opentelemetry')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[]\n"


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(OptionError, match=r"\[otel\]"):
        instrument()


def test_a_command_exports_to_a_collector(tmp_path: Path) -> None:
    """`opentelemetry-instrument` finds this project, and OTLP carries spans and metrics."""
    target = str(tmp_path / "lake")
    command = ("copy", _URL, "json-orders", target, "--format", "parquet", "--json")
    scripts = Path(sysconfig.get_path("scripts"))
    with running_collector() as collector:
        ended = subprocess.run(
            [scripts / "opentelemetry-instrument", scripts / "pulsar-offload", *command],
            capture_output=True,
            text=True,
            timeout=100,
            cwd=tmp_path,
            check=True,
            env={**os.environ, **collector.environment},
        )

    assert json.loads(ended.stdout)["rows"] == 400
    names = {each.name for each in collector.spans}
    assert names >= {_OPEN, _PLAN, _REQUEST, _DECODE, _COPY, _COMMIT}
    [rows] = collector.values("rows")
    assert rows == golden_topic("json-orders").message_count == 400
    assert collector.values("lag") == [0]
    assert collector.values("copy.last_success")
