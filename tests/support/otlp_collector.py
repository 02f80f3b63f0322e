"""A collector of OpenTelemetry's protocol on loopback, which decodes what it receives."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_servers import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Spans and metrics of this project that were received, of any process."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: list[Metric] = []
        self.url = ""
        self._changed = threading.Condition()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process exports to this collector."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_LOGS_EXPORTER": "none",
        }

    def values(self, name: str) -> list[int]:
        """The values of a metric, in the order in which they came."""
        return [
            point.as_int
            for metric in self.metrics
            if metric.name == f"pulsar_offload.{name}"
            for point in (*metric.sum.data_points, *metric.gauge.data_points)
        ]

    def wait_for(self, is_there: Callable[[], bool]) -> bool:
        """Wait until a condition holds; it is looked at whenever something has come."""
        with self._changed:
            return self._changed.wait_for(is_there, timeout=60)

    def receive(self, path: str, data: bytes) -> None:
        """Decode a request."""
        with self._changed:
            if path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
                    for scope in resource.scope_spans:
                        if scope.scope.name == "pulsar_offload":
                            self.spans += scope.spans
            if path == "/v1/metrics":
                for measuring in ExportMetricsServiceRequest.FromString(data).resource_metrics:
                    for measured in measuring.scope_metrics:
                        if measured.scope.name == "pulsar_offload":
                            self.metrics += measured.metrics
            self._changed.notify_all()


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Yield a collector that receives until the context ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            collector.receive(self.path, gzip.decompress(data) if is_packed else data)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as collector.url:
        yield collector
