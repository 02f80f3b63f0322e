"""What an open, a plan, a request or a commit reports while it runs: log records and measurements.

Code that does such work reports an *operation*: its name, its fields and its duration. Each goes to
the logger `pulsar_offload`, and to a `Recorder` if one is installed (`connector.otel`). While
nobody listens, an operation costs two comparisons, and a measurement one.

The running operation is part of the context (`contextvars`), which the threads of this project
copy. So an operation in a worker thread belongs to the operation that started the work.
"""

from __future__ import annotations

import json
import logging
import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import pyarrow as pa

LOG: Final = logging.getLogger("pulsar_offload")
"""The logger of this project. Its records have the fields of an operation as attributes."""
NULL_HANDLER: Final = logging.NullHandler()
"""Keeps the records from standard error, unless a program asks for them."""
LOG.addHandler(NULL_HANDLER)


class Recorder(Protocol):
    """A receiver of operations and measurements. Several threads use it at once."""

    def begin(self, operation: str, fields: Mapping[str, object]) -> Any:  # noqa: ANN401 - its own
        """Start an operation in the current context, and return a token for `end`."""

    def end(
        self,
        token: Any,  # noqa: ANN401 - from `begin`
        operation: str,
        fields: Mapping[str, object],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """End an operation, in the context in which it started."""

    def count(self, measurement: str, amount: float, fields: Mapping[str, object]) -> None:
        """Add to a sum."""

    def measure(self, measurement: str, amount: float, fields: Mapping[str, object]) -> None:
        """Set the current value."""


_recorder: Recorder | None = None


def install(recorder: Recorder | None) -> None:
    """Install the recorder of this process, in place of any other; None to record nothing."""
    global _recorder  # noqa: PLW0603 - there is one of it in a process
    _recorder = recorder


class Operation:
    """A context manager that reports one operation when it ends.

    A field is a number, a text or None; it contains neither a payload nor a secret.

    Attributes:
        fields: The fields so far.
        is_observed: Whether anybody listens. If not, do not compute fields.
    """

    is_observed: Final = True

    __slots__ = ("_level", "_name", "_recorder", "_start_s", "_token", "fields")

    def __init__(self, name: str, level: int, fields: dict[str, object]) -> None:
        self._name = name
        self._level = level
        self._recorder = _recorder
        self.fields = fields

    def __enter__(self) -> Self:
        self._start_s = time.perf_counter()
        if self._recorder is not None:
            self._token = self._recorder.begin(self._name, self.fields)
        return self

    def note(self, **fields: object) -> None:
        """Add fields that are known only while the operation runs."""
        self.fields |= fields

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        """Report the operation. A generator that is closed early has not failed."""
        seconds = time.perf_counter() - self._start_s
        if isinstance(error, GeneratorExit):
            error = None
        if self._recorder is not None:
            self._recorder.end(self._token, self._name, self.fields, seconds, error)
        if LOG.isEnabledFor(self._level):
            if error is not None:
                self.note(error_type=type(error).__name__)
            log(self._level, self._name, **self.fields, seconds=round(seconds, 6))


class _Unobserved:
    """An operation that nobody listens to."""

    is_observed: Final = False

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def note(self, **fields: object) -> None:
        """Do nothing."""

    def __exit__(self, *exc_info: object) -> None:
        """Do nothing."""


_UNOBSERVED: Final = _Unobserved()


def operation(name: str, level: int = logging.INFO, /, **fields: object) -> Operation | _Unobserved:
    """Return a context manager that reports an operation, with its duration, when it ends.

    Args:
        name: Its name, one of a few.
        level: Level of the log record.
        fields: What it works on: numbers, texts and None.
    """
    if _recorder is None and not LOG.isEnabledFor(level):
        return _UNOBSERVED
    return Operation(name, level, fields)


def observe_batches(
    name: str,
    batches: Generator[pa.RecordBatch, None, None],
    level: int = logging.DEBUG,
    /,
    **fields: object,
) -> Generator[pa.RecordBatch, None, None]:
    """Return a generator of the same record batches that reports an operation when it ends.

    The operation has the number of rows. It lasts until the last batch is taken, or the generator
    is closed. It is never the current one of the consumer's context, even between two batches.

    Args:
        name: Its name.
        batches: The record batches.
        level: Level of the log record.
        fields: As for `operation`.
    """
    if _recorder is None and not LOG.isEnabledFor(level):
        return batches
    return _observed(batches, Operation(name, level, fields))


def _observed(
    batches: Generator[pa.RecordBatch, None, None], observed: Operation
) -> Generator[pa.RecordBatch, None, None]:
    context = copy_context()
    context.run(observed.__enter__)
    rows = 0
    failure: BaseException | None = None
    try:
        while (batch := context.run(next, batches, None)) is not None:
            rows += batch.num_rows
            yield batch
            # Do not hold it while the next one is decoded.
            del batch
    except BaseException as error:
        failure = error
        raise
    finally:
        observed.note(rows=rows)
        try:
            context.run(batches.close)
        finally:
            context.run(observed.__exit__, None, failure, None)
            # Break the cycle: the error's traceback refers to this frame.
            del failure


def count(measurement: str, amount: float = 1, **fields: object) -> None:
    """Add an amount to a measurement that only grows, such as `rows`."""
    if _recorder is not None and amount:
        _recorder.count(measurement, amount, fields)


def measure(measurement: str, amount: float, **fields: object) -> None:
    """Set the current value of a measurement, such as `lag`."""
    if _recorder is not None:
        _recorder.measure(measurement, amount, fields)


def log(level: int, event: str, /, **fields: object) -> None:
    """Log an event as text, with its fields as attributes of the record.

    Example of a message: `commit: table=lake/orders files=1 rows=400 seconds=0.21`.
    """
    if LOG.isEnabledFor(level):
        known = {name: each for name, each in fields.items() if each is not None}
        texts = (f"{name}={_spell(each)}" for name, each in known.items())
        LOG.log(level, "%s: %s", event, " ".join(texts), extra={"event": event, **known})


def _spell(value: object) -> str:
    """Return a value as text without spaces, or as a JSON string, which has no ends of lines."""
    text = str(value)
    if text.isprintable() and not {" ", '"'} & set(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
