"""The file of a copy's metrics, in the text format of Prometheus.

The textfile collector of Prometheus' node exporter reads such files. Counters add up over runs, so
the previous content of the file is read first. A run replaces the file at once, or leaves it.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias
from uuid import uuid4

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from connector.lake.table_copy import TableSummary

    _Labels: TypeAlias = tuple[tuple[str, str], ...]
    _Series: TypeAlias = tuple[str, _Labels]

_PREFIX: Final = "pulsar_offload_copy_"
METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "last_run_timestamp_seconds": ("gauge", "When a copy to the table last ended, or failed."),
    "last_success_timestamp_seconds": ("gauge", "When a copy to the table last succeeded."),
    "lag_bytes": ("gauge", "Bytes of data objects in the bucket that could not be copied yet."),
    "lag_ledgers": ("gauge", "Number of ledgers that these bytes belong to."),
    "newest_publish_timestamp_seconds": ("gauge", "Latest publish time of the copied rows."),
    "rows_total": ("counter", "Rows added to the table."),
    "dead_letters_total": ("counter", "Rows added to the table of dead letters."),
    "dropped_total": ("counter", "Units that were left out, by reason."),
    "failures_total": ("counter", "Copies that failed, by class of the error."),
}
"""Type and help of each metric, by its name without the prefix."""
_MAX_BYTES: Final = 64 << 20
_LINE: Final = re.compile(rf"{_PREFIX}(?P<name>\w+)\{{(?P<labels>.*)\}} (?P<value>[\d.e+]+)")
_LABEL: Final = re.compile(r'(?P<name>\w+)="(?P<value>(?:[^"\\]|\\.)*)"(?:,|$)')
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_UNESCAPED: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class MetricsFile:
    """A context manager of one run, which writes the file when the run ends or fails.

    Series of tables that the run does not copy to are dropped, unless the run ends early: by an
    interrupt, or by an error before its tables are known.

    Args:
        path: The file; None writes none.
        table: Name of the table, or of all tables, for a failure of the run itself.
        topics: Names of the topics, likewise.

    Raises:
        OptionError: The file has other content, or its folder does not exist.
    """

    def __init__(self, path: str | os.PathLike[str] | None, table: str, topics: str) -> None:
        self._path = None if path is None else Path(path)
        self._all = _labels(table, topics)
        self._tables: set[_Labels] = set()
        self._series: dict[_Series, float] = {}
        if self._path is not None:
            self._series = dict(_read(self._path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        """Write the file.

        Raises:
            OptionError: It cannot be written. After an error of the run, that is a note on it.
        """
        if self._path is None:
            return
        if isinstance(error, Exception):
            self._note_failure(self._all, error)
        elif error is None:
            self._series = {
                (name, labels): value
                for (name, labels), value in self._series.items()
                if labels[: len(self._all)] in self._tables
            }
        try:
            _replace(self._path, _text(self._series))
        except OSError as failure:
            message = f"cannot write the metrics to {self._path}: {failure.strerror}"
            if error is None:
                raise OptionError(f"{message}; the copy succeeded") from None
            error.add_note(message)

    def note_omission(self, table: str, topic: str) -> None:
        """Record that this run leaves a table out: its series keep their values."""
        self._tables.add(_labels(table, topic))

    def note_success(self, table: str, topic: str, summary: TableSummary) -> None:
        """Record a copy to a table."""
        own = _labels(table, topic)
        self._tables.add(own)
        now = time.time()
        self._set("last_run_timestamp_seconds", own, now)
        self._set("last_success_timestamp_seconds", own, now)
        self._set("lag_bytes", own, summary.lag_bytes)
        self._set("lag_ledgers", own, summary.lag_ledgers)
        if summary.newest_publish_time is not None:
            newest = summary.newest_publish_time.timestamp()
            self._set("newest_publish_timestamp_seconds", own, newest)
        self._add("rows_total", own, summary.rows)
        self._add("dead_letters_total", own, summary.dead_letters)
        for (unit, reason), amount in summary.metrics.dropped().items():
            self._add("dropped_total", (*own, ("reason", reason), ("unit", unit)), amount)

    def note_failure(self, table: str, topic: str, error: Exception) -> None:
        """Record that a copy to a table failed."""
        own = _labels(table, topic)
        self._tables.add(own)
        self._note_failure(own, error)

    def _note_failure(self, own: _Labels, error: Exception) -> None:
        self._set("last_run_timestamp_seconds", own, time.time())
        self._add("failures_total", (*own, ("error", type(error).__name__)), 1)

    def _set(self, name: str, labels: _Labels, value: float) -> None:
        self._series[name, labels] = value

    def _add(self, name: str, labels: _Labels, value: float) -> None:
        self._series[name, labels] = self._series.get((name, labels), 0) + value


def _labels(table: str, topic: str) -> _Labels:
    return ("table", table), ("topic", topic)


def _read(path: Path) -> Iterator[tuple[_Series, float]]:
    """Yield the series of the previous run; none if there is no file."""
    if not path.parent.is_dir():
        message = f"the folder of the file of metrics does not exist: {path.parent}"
        raise OptionError(message)
    try:
        # Labels may have other characters that end a line for Python.
        with path.open(encoding="utf-8", newline="\n") as file:
            lines = file.read(_MAX_BYTES).split("\n")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the metrics of earlier runs in {path}: {error}"
        raise OptionError(message) from None
    for line in lines:
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        labels = () if match is None else tuple(_read_labels(match["labels"]))
        if match is None or match["name"] not in METRICS or not labels:
            message = f"{path} has other content than the metrics of a copy: give another file"
            raise OptionError(message)
        yield (match["name"], labels), float(match["value"])


def _read_labels(text: str) -> Iterator[tuple[str, str]]:
    for match in _LABEL.finditer(text):
        value = re.sub(r"\\.", lambda escape: _UNESCAPED.get(escape[0], escape[0]), match["value"])
        yield match["name"], value


def _text(series: Mapping[_Series, float]) -> str:
    return "".join(line for name in METRICS for line in _metric(name, series))


def _metric(name: str, series: Mapping[_Series, float]) -> Iterable[str]:
    kind, about = METRICS[name]
    lines = [
        f"{_PREFIX}{name}{{{_spell(labels)}}} {value:.17g}\n"
        for (own, labels), value in sorted(series.items())
        if own == name
    ]
    head = [f"# HELP {_PREFIX}{name} {about}\n", f"# TYPE {_PREFIX}{name} {kind}\n"]
    return [*head, *lines] if lines else []


def _spell(labels: _Labels) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels)


def _escape(value: str) -> str:
    return "".join(_ESCAPES.get(each, each) for each in value)


def _replace(path: Path, text: str) -> None:
    """Write a file so that readers see the old or the new content, whole."""
    # The collector reads only names that end in `.prom`.
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
