"""Operations: what they cost when nobody listens, and what a listener gets."""

from __future__ import annotations

import gc
import logging
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from arrow_io.core import telemetry
from arrow_io.core.threads import ContextThreadPool

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

_current: ContextVar[str] = ContextVar("operation", default="none")


class _Recorder:
    """Notes what it is told, and keeps the current operation in the context."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, dict[str, object], str | None]] = []
        self.sums: list[tuple[str, float, Mapping[str, object]]] = []

    def begin(self, operation: str, fields: Mapping[str, object]) -> Any:  # noqa: ANN401 - a token
        del fields
        return _current.set(operation)

    def end(
        self,
        token: Any,  # noqa: ANN401 - from `begin`
        operation: str,
        fields: Mapping[str, object],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        assert seconds >= 0
        _current.reset(token)
        error_type = None if error is None else type(error).__name__
        self.ended.append((operation, dict(fields), error_type))

    def count(self, measurement: str, amount: float, fields: Mapping[str, object]) -> None:
        self.sums.append((measurement, amount, fields))

    measure = count


@pytest.fixture
def recorder() -> Iterator[_Recorder]:
    """A recorder that is installed during the test."""
    recorder = _Recorder()
    telemetry.install(recorder)
    yield recorder
    telemetry.install(None)


def _batches(*sizes: int, seen: list[str] | None = None) -> Generator[pa.RecordBatch, None, None]:
    try:
        for size in sizes:
            if seen is not None:
                seen.append(_current.get())
            yield pa.record_batch({"n": range(size)})
    finally:
        if seen is not None:
            seen.append("closed")


def test_nothing_is_made_if_nobody_listens() -> None:
    """All operations are one object, and batches are not wrapped."""
    batches = _batches(1)

    assert telemetry.operation("open") is telemetry.operation("plan", logging.DEBUG)
    assert telemetry.observe_batches("read", batches) is batches
    with telemetry.operation("open") as operation:
        assert not operation.is_observed
        operation.note(rows=1)
    telemetry.count("rows", 3)
    telemetry.measure("lag", 3)


def test_an_operation_is_current_while_batches_are_made(recorder: _Recorder) -> None:
    """And never while the consumer has one."""
    seen: list[str] = []
    for batch in telemetry.observe_batches("read", _batches(1, 2, seen=seen), topic="t"):
        assert batch.num_rows
        assert _current.get() == "none"

    assert seen == ["read", "read", "closed"]
    assert recorder.ended == [("read", {"topic": "t", "rows": 3}, None)]


def test_a_read_that_is_closed_early_has_not_failed(recorder: _Recorder) -> None:
    """It has the rows that were taken."""
    seen: list[str] = []
    batches = telemetry.observe_batches("read", _batches(1, 2, seen=seen))
    next(batches)
    batches.close()

    assert seen == ["read", "closed"]
    assert recorder.ended == [("read", {"rows": 1}, None)]


def test_a_failed_read_keeps_nothing_alive(recorder: _Recorder) -> None:
    """The error is reported and raised, and its frames are free at once."""

    class Held:
        pass

    def fail() -> Generator[pa.RecordBatch, None, None]:
        held = Held()
        references.append(weakref.ref(held))
        yield pa.record_batch({"n": [1]})
        raise ValueError(held.__class__.__name__)

    references: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        with pytest.raises(ValueError, match="Held"):
            list(telemetry.observe_batches("read", fail()))
        assert recorder.ended == [("read", {"rows": 1}, "ValueError")]
    finally:
        gc.enable()
    gc.collect()
    assert references[0]() is None


def test_pools_copy_the_context(recorder: _Recorder) -> None:
    """Calls of `submit` and of `map` belong to the operation of their caller."""
    with telemetry.operation("open"), ContextThreadPool(2) as pool:
        found = [pool.submit(_current.get).result(), *pool.map(lambda _: _current.get(), range(3))]

    assert found == ["open"] * 4
    assert recorder.ended == [("open", {}, None)]


def test_fields_with_spaces_are_quoted(caplog: pytest.LogCaptureFixture) -> None:
    """So that a line can be split at spaces; a field that is None is left out."""
    caplog.set_level(logging.INFO)

    telemetry.log(logging.INFO, "request", kind="range get", status=None, rows=0)

    [record] = caplog.records
    assert record.getMessage() == 'request: kind="range get" rows=0'
    assert vars(record)["kind"] == "range get"
    assert "status" not in vars(record)


def test_a_value_never_ends_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Names of topics and objects come from a bucket, and must not forge a record."""
    caplog.set_level(logging.INFO)

    telemetry.log(logging.INFO, "read", topic="été\ndropped: rows=1", object='a "b"\\', name_=' "')

    [record] = caplog.records
    assert record.getMessage() == (
        r'read: topic="\u00e9t\u00e9\ndropped: rows=1" object="a \"b\"\\" name_=" \""'
    )
    assert vars(record)["topic"] == "été\ndropped: rows=1"


def test_an_error_is_a_field_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """By its class: the text of a library's error may have a secret."""
    caplog.set_level(logging.DEBUG)

    def fail() -> None:
        with telemetry.operation("request", logging.DEBUG, kind="head"):
            raise ValueError("secret")

    with pytest.raises(ValueError, match="secret"):
        fail()

    [record] = caplog.records
    assert vars(record)["error_type"] == "ValueError"
    assert "secret" not in record.getMessage()
