"""OpenTelemetry's own SDK, which keeps in memory what is reported to it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import ReadableSpan


class Observed:
    """Providers that keep spans and metrics, to pass to `instrument`."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider([self._reader])

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Every span that has ended."""
        spans: tuple[ReadableSpan, ...] = self._exporter.get_finished_spans()
        return spans

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans with a name, without `pulsar_offload.`."""
        return [each for each in self.spans if each.name == f"pulsar_offload.{name}"]

    def edges(self) -> Counter[tuple[str | None, str]]:
        """How often a span with one name is the child of one with another; None: it is no child."""
        names: dict[int, str] = {}
        for each in self.spans:
            context = each.get_span_context()
            assert context is not None
            names[context.span_id] = each.name
        return Counter(
            (names[each.parent.span_id] if each.parent else None, each.name) for each in self.spans
        )

    def points(self, name: str) -> list[tuple[Mapping[str, Any], Any]]:
        """Attributes and value of each point of a metric, or sum of values of a histogram's."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"pulsar_offload.{name}"
            for point in metric.data.data_points
        ]

    def total(self, name: str, **attributes: object) -> float:
        """Sum of a metric's points that have some attributes."""
        points = self.points(name)
        values: list[float] = [n for own, n in points if attributes.items() <= own.items()]
        return sum(values)

    def everything(self) -> str:
        """All names, attributes, events and states as text, to look for what must not be there."""
        spans = [each.to_json() for each in self.spans]
        data = self._reader.get_metrics_data()
        return "\n".join([*spans, data.to_json() if data else ""])
