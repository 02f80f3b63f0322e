"""`instrument`: spans and metrics of this project, through OpenTelemetry's API.

The API is imported when `instrument` is called. A program's SDK decides where spans and metrics go.
Names are those of OpenTelemetry's semantic conventions if there are any, and begin with
`pulsar_offload.` otherwise.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core import telemetry
from arrow_io.core.extras import install_command
from arrow_io.errors import MissingObjectError, OptionError, PulsarOffloadError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    _Token = tuple[Span, Token[Context], dict[str, object]]

_OWN: Final = "pulsar_offload."
_ATTRIBUTES: Final = {
    "topic": "messaging.destination.name",
    "table": "db.collection.name",
    "format": "db.system.name",
    "url": "url.full",
    "status": "http.response.status_code",
    "error_type": "error.type",
}
"""Attributes that have a name in the semantic conventions, by field."""
_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
"""Bounds of the histogram of durations."""
_COUNTERS: Final = {
    "rows": ("{row}", "Rows read, or committed by a copy."),
    "dropped": ("{unit}", "Units that a read left out, by reason."),
    "requests": ("{request}", "Requests sent to a store, repeated ones too."),
    "retries": ("{request}", "Requests that were sent again after a transient error."),
    "bytes": ("By", "Bytes of objects received from a store, or sent to it."),
}
_GAUGES: Final = {
    "lag": ("By", "Bytes of data objects in the bucket that a copy or stream has not read."),
    "copy.last_success": ("s", "Unix time at which a copy to a table last succeeded."),
}


def instrument(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Report the operations of this process as spans and metrics of OpenTelemetry.

    A repeated call replaces the providers. `opentelemetry-instrument` calls this function itself.

    Args:
        tracer_provider: Receives the spans. None: the global provider.
        meter_provider: Receives the metrics. None: the global provider.

    Raises:
        OptionError: OpenTelemetry's API is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ModuleNotFoundError:
        message = f"instrument needs OpenTelemetry's API: {install_command('otel')}"
        raise OptionError(message) from None
    name, own_version = "pulsar_offload", version("pulsar-offload")
    telemetry.install(
        _Recorder(
            trace.get_tracer(name, own_version, tracer_provider),
            metrics.get_meter(name, own_version, meter_provider),
        )
    )


def uninstrument() -> None:
    """Report nothing more. Operations that are running are still reported."""
    telemetry.install(None)


class Instrumentor:
    """The entry point of `opentelemetry-instrument`, which passes options for other libraries."""

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **_: object,
    ) -> None:
        """Call `instrument`."""
        instrument(tracer_provider=tracer_provider, meter_provider=meter_provider)

    def uninstrument(self, **_: object) -> None:
        """Call `uninstrument`."""
        uninstrument()


class _Recorder:
    """A recorder that calls OpenTelemetry's API."""

    def __init__(self, tracer: Any, meter: Any) -> None:  # noqa: ANN401 - imported when asked for
        from opentelemetry import context, trace

        self._context, self._trace, self._tracer = context, trace, tracer
        self._seconds = meter.create_histogram(
            f"{_OWN}operation.duration",
            "s",
            "Duration of opens, plans, requests, reads, decodes, copies and commits.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._counters = {
            name: meter.create_counter(f"{_OWN}{name}", unit, about)
            for name, (unit, about) in _COUNTERS.items()
        }
        self._gauges = {
            name: meter.create_gauge(f"{_OWN}{name}", unit, about)
            for name, (unit, about) in _GAUGES.items()
        }

    def begin(self, operation: str, fields: Mapping[str, object]) -> _Token:
        kind = self._trace.SpanKind
        span = self._tracer.start_span(
            f"{_OWN}{operation}",
            kind=kind.CLIENT if operation == "request" else kind.INTERNAL,
            attributes=_attributes(fields),
        )
        attached = self._context.attach(self._trace.set_span_in_context(span))
        return span, attached, dict(fields)

    def end(
        self,
        token: _Token,
        operation: str,
        fields: Mapping[str, object],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        span, attached, earlier = token
        error_type: Any = fields.get("error_type")
        if error is not None:
            error_type = type(error).__name__
        if span.is_recording():
            new = {name: each for name, each in fields.items() if earlier.get(name) is not each}
            span.set_attributes(_attributes({**new, "error_type": error_type}))
        # Many requests find out whether an object exists.
        is_answer = operation == "request" and isinstance(error, MissingObjectError)
        if error is not None and not is_answer:
            # The text of other errors may contain a secret.
            text = str(error) if isinstance(error, PulsarOffloadError) else error_type
            span.set_status(self._trace.StatusCode.ERROR, text)
        if operation == "request":
            self._count_request(fields)
        shared = operation, fields.get("kind"), fields.get("format"), error_type
        # Before the span is detached, so that exemplars have its id.
        self._seconds.record(seconds, _duration_attributes(*shared))
        self._context.detach(attached)
        span.end()

    def _count_request(self, fields: Mapping[str, Any]) -> None:
        self.count("requests", fields["attempts"], {"kind": fields["kind"]})
        for direction, name in (("receive", "received_bytes"), ("transmit", "sent_bytes")):
            if fields.get(name):
                attributes = _attributes({"kind": fields["kind"]})
                attributes["network.io.direction"] = direction
                self._counters["bytes"].add(fields[name], attributes)

    def count(self, measurement: str, amount: float, fields: Mapping[str, object]) -> None:
        self._counters[measurement].add(amount, _attributes(fields))

    def measure(self, measurement: str, amount: float, fields: Mapping[str, object]) -> None:
        self._gauges[measurement].set(amount, _attributes(fields))


@cache
def _duration_attributes(
    operation: str, kind: object, format_: object, error_type: str | None
) -> dict[str, Any]:
    return _attributes(
        {"operation": operation, "kind": kind, "format": format_, "error_type": error_type}
    )


def _attributes(fields: Mapping[str, object]) -> dict[str, Any]:
    known = {name: each for name, each in fields.items() if each is not None}
    # The API takes plain types, not `StrEnum` and the hidden text of options.
    attributes: dict[str, Any] = {
        _ATTRIBUTES.get(name, f"{_OWN}{name}"): str(each) if isinstance(each, str) else each
        for name, each in known.items()
    }
    if "topic" in known:
        attributes["messaging.system"] = "pulsar"
    return attributes
