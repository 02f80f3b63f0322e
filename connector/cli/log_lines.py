"""Records of the logger `pulsar_offload` on stderr, for `--log-level`."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from arrow_io.core.telemetry import LOG
from connector.cli import event_lines
from connector.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"event", "message", "taskName"}
"""Attributes of a record that are not fields of an operation."""


class _LineHandler(logging.Handler):
    """Writes each record as a line, or as an event `log`."""

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        if not event_lines.is_json():
            say(level, record.getMessage())
            return
        fields = {name: value for name, value in vars(record).items() if name not in _OWN}
        # Operations have fields, and other records a text.
        operation = getattr(record, "event", None)
        text = None if operation else record.getMessage()
        event_lines.write_event("log", level=level, operation=operation, text=text, **fields)


@contextmanager
def logging_to_stderr(level: LogLevel | None) -> Iterator[None]:
    """Write records of a level and above to stderr while a command runs; None writes none."""
    if level is None:
        yield
        return
    handler, earlier_level = _LineHandler(), LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(level.upper())
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(earlier_level)
