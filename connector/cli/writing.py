"""The command `write`, which writes the rows of files as a topic."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import pyarrow.dataset as pads
import typer

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector.cli.app import command
from connector.cli.options import Printing, Url, Verbose, Writing  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows, progress, say
from connector.display.text import size_text
from connector.writing.message_rows import FileRows
from connector.writing.topic_writer import write_to
from connector.writing.write_target import WriteTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from connector.writing.topic_writer import WrittenTopic

_PARQUET: Final = ".parquet"
_SUFFIXES: Final = (_PARQUET, ".arrow", ".feather", ".ipc", ".arrows")
_ARROW_FILE_MAGIC: Final = b"ARROW1"
_LEDGER_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "ledger_id": pa.int64(),
        "uuid": pa.string(),
        "entries": pa.int64(),
        "bytes": pa.int64(),
    }
)

_Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE…",
        help="Parquet files (.parquet), Arrow files (.arrow, .feather, .ipc) or streams (.arrows),"
        " with the column names that head prints. They are written in order.",
    ),
]


@command("orders orders.parquet", url="bucket", writes=True)
def write(
    url: Url,
    topic: Annotated[str, typer.Argument(help="Name (orders), or full name.")],
    files: _Files,
    *,
    request: Writing,
    verbose: Verbose = False,
    form: Printing,
) -> None:
    """Write messages from files, as the offloaded ledgers of a topic.

    Let only one writer at a time write to a bucket. If the write fails, its objects are deleted.
    """
    _check_names(files)
    trace = RequestTrace()
    source = _Source(files)
    start_s = time.monotonic()
    with progress(trace, status=source):
        target = WriteTarget.from_name(url, topic, replace(request, trace=trace))
        result = write_to(target, source.rows())
    for warning in result.warnings:
        say("note", warning)
    ledgers = table = _ledgers(result)
    if form == "table" and not verbose and not sys.stdout.isatty():
        table = _partitions(table)
    print_rows(table.schema, table.to_batches(), form)
    if not result.is_earlier:
        files_text, ledgers_text = counted(len(files), "file"), counted(ledgers.num_rows, "ledger")
        size = size_text(sum(ledgers["bytes"].to_pylist()))
        seconds = time.monotonic() - start_s
        say(
            "wrote",
            f"{counted(result.message_count, 'message')} of {files_text} in {ledgers_text}, {size}"
            f" of entries, {seconds:.2f} s",
            messages=result.message_count,
            ledgers=ledgers.num_rows,
            seconds=round(seconds, 3),
        )


class _Source:
    """The rows of files in order. Each file may have its own columns."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._file_number = 0
        self._row_count = 0

    def text(self) -> str:
        return (
            f"writing … {counted(self._row_count, 'message')}, file {self._file_number} of"
            f" {len(self._files)}"
        )

    def fields(self) -> dict[str, object]:
        return {
            "messages": self._row_count,
            "file": self._file_number,
            "files": len(self._files),
        }

    def rows(self) -> Iterator[FileRows]:
        for file in self._files:
            self._file_number += 1
            yield FileRows(str(file), self._batches(file))

    def _batches(self, file: Path) -> Iterator[pa.RecordBatch]:
        try:
            for batch in _batches(file):
                self._row_count += batch.num_rows
                yield batch
        except (OSError, pa.ArrowException) as error:
            message = f"the file cannot be read: {error}"
            raise OptionError(message) from None


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    if file.suffix.lower() == _PARQUET:
        yield from pads.dataset(file, format="parquet").to_batches()
        return
    with file.open("rb") as stream:
        is_file = stream.read(len(_ARROW_FILE_MAGIC)) == _ARROW_FILE_MAGIC
    if is_file:
        yield from pads.dataset(file, format="arrow").to_batches()
        return
    with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
        yield from reader


def _check_names(files: Iterable[Path]) -> None:
    for file in files:
        if file.suffix.lower() not in _SUFFIXES:
            message = f"the name of {file} must end with one of {', '.join(_SUFFIXES)}"
            raise OptionError(message)
        if not file.is_file():
            message = f"the file {file} does not exist"
            raise OptionError(message)


def _partitions(ledgers: pa.Table) -> pa.Table:
    """Return one row per topic or partition from the rows of its ledgers."""
    return (
        ledgers.group_by("topic", use_threads=False)
        .aggregate([([], "count_all"), ("entries", "sum"), ("bytes", "sum")])
        .rename_columns(["topic", "ledgers", "entries", "bytes"])
    )


def _ledgers(result: WrittenTopic) -> pa.Table:
    rows = [
        {
            "topic": str(partition.topic),
            "ledger_id": ledger.ledger_id,
            "uuid": str(ledger.offload.uuid),
            "entries": ledger.entries,
            "bytes": ledger.size_bytes,
        }
        for partition in result.partitions
        for ledger in partition.ledgers
        if ledger.offload is not None
    ]
    return pa.Table.from_pylist(rows, _LEDGER_SCHEMA)
