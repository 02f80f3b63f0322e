"""The command that makes a topic of files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import pyarrow as pa
import pyarrow.dataset as pads
import typer

from arrow_io.errors import OptionError
from arrow_io.ledger_writer import DEFAULT_BLOCK_BYTES
from arrow_io.messages.entry_writer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_MESSAGES,
    DEFAULT_MAX_MESSAGE_BYTES,
)
from arrow_io.storage.trace import RequestTrace
from arrow_io.wording import counted
from connector.cli.app import command
from connector.cli.options import (
    AsJson,
    SchemaVersion,
    StorageOptions,
    Url,
    metadata_options,
    storage_options,
)
from connector.cli.output import print_json, print_table, progress, say
from connector.plain_text import size_text
from connector.writing.message_rows import FileRows
from connector.writing.topic_writer import (
    DEFAULT_LEDGER_BYTES,
    DEFAULT_LEDGER_ENTRIES,
    write_messages,
)

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
        " whose columns are named as head prints them; written one after the other.",
    ),
]


_WrittenSchema = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEMA",
        help="What values are encoded by and registered with: a file or folder of what Pulsar's"
        " admin API or CLI gives, an Avro schema, JSON text, or the name of a type (STRING)."
        " Values are encoded from __value__ or, of records, from a column to each field, as `query`"
        " gives them; a binary __value__ has the payloads. Without it, __value__ is bytes or text.",
    ),
]


@command("orders orders.parquet", url="bucket", writes=True)
def write(
    url: Url,
    topic: Annotated[str, typer.Argument(help="Name (orders), or full name.")],
    files: _Files,
    *,
    schema: _WrittenSchema = None,
    schema_version: SchemaVersion = None,
    compression: Annotated[
        Literal["none", "lz4", "zlib", "zstd", "snappy"], typer.Option(help="Codec of entries.")
    ] = "lz4",
    batch_messages: Annotated[
        int, typer.Option(help="Most messages of a batch; 1 makes no batches.")
    ] = DEFAULT_BATCH_MESSAGES,
    batch_bytes: Annotated[
        int, typer.Option(help="Most bytes of a batch before compression.")
    ] = DEFAULT_BATCH_BYTES,
    batch_delay_ms: Annotated[
        int,
        typer.Option(
            help="How much later than the first message of a batch the others may be published;"
            " they take its publish time."
        ),
    ] = 0,
    max_message_bytes: Annotated[
        int, typer.Option(help="Longest entry.")
    ] = DEFAULT_MAX_MESSAGE_BYTES,
    chunking: Annotated[
        bool, typer.Option("--chunking", help="Store longer messages in chunks.")
    ] = False,
    broker_metadata: Annotated[
        bool, typer.Option("--broker-metadata", help="Number messages as a broker may do.")
    ] = False,
    partitions: Annotated[int | None, typer.Option(help="Make a partitioned topic.")] = None,
    ledger_entries: Annotated[
        int, typer.Option(help="Most entries of a ledger.")
    ] = DEFAULT_LEDGER_ENTRIES,
    ledger_bytes: Annotated[
        int, typer.Option(help="Most bytes of a ledger's entries.")
    ] = DEFAULT_LEDGER_BYTES,
    first_ledger_id: Annotated[
        int | None,
        typer.Option(
            help="Id of the first ledger; by default behind those in the bucket. If the topic is to"
            " be attached to a cluster, the ids must be free in its BookKeeper, and below the id of"
            " its next ledger. The cluster loses ledgers of other ids at once, with what is"
            " produced behind them."
        ),
    ] = None,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Write also if the topic has ledgers in the bucket, with as many partitions;"
            " sequence ids and broker indexes start anew. The metadata folder that was written with"
            " them is extended.",
        ),
    ] = False,
    block_bytes: Annotated[int, typer.Option(help="Length of data blocks.")] = DEFAULT_BLOCK_BYTES,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Name of the cluster, for the objects' user metadata; with --metadata-folder, it"
            " needs --first-ledger-id."
        ),
    ] = None,
    metadata_folder: Annotated[
        str | None,
        typer.Option(
            help="Folder that receives what a cluster would know, for --metadata. To attach it to a"
            " cluster, see --first-ledger-id, and write to the root of a bucket."
        ),
    ] = None,
    metadata_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the fsspec file system of that folder; may be repeated, like"
            " --storage-option.",
        ),
    ] = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Write messages from files, as the offloaded ledgers of a topic.

    One writer at a time may write to a bucket. If anything fails, what was written is deleted.
    """
    _check_names(files)
    trace = RequestTrace()
    source = _Source(files)
    started = time.monotonic()
    with progress(trace, told=source.how_far):
        written = write_messages(
            url,
            topic,
            source.rows(),
            storage_options=storage_options(storage_option),
            schema=schema,
            schema_version=schema_version,
            compression=compression,
            batch_messages=batch_messages,
            batch_bytes=batch_bytes,
            batch_delay_ms=batch_delay_ms,
            max_message_bytes=max_message_bytes,
            chunking=chunking,
            broker_metadata=broker_metadata,
            partitions=partitions,
            ledger_entries=ledger_entries,
            ledger_bytes=ledger_bytes,
            first_ledger_id=first_ledger_id,
            append=append,
            block_bytes=block_bytes,
            cluster=cluster,
            metadata_folder=metadata_folder,
            metadata_options=metadata_options(metadata_option),
            trace=trace,
        )
    for warning in written.warnings:
        say("note", warning)
    table = _ledgers(written)
    if as_json:
        print_json(table.to_batches())
    else:
        print_table(table.schema, table.to_batches())
    say(
        "wrote",
        f"{counted(written.message_count, 'message')} of {counted(len(files), 'file')} in"
        f" {counted(table.num_rows, 'ledger')}, {size_text(sum(table['bytes'].to_pylist()))} of"
        f" entries, {time.monotonic() - started:.2f} s",
    )


class _Source:
    """The rows of files, one after the other; each file may have columns of its own.

    Args:
        files: Parquet and Arrow files, and Arrow streams.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._file_number = 0
        self._row_count = 0

    def how_far(self) -> str:
        """How much of it was taken, in words."""
        return (
            f"writing … {counted(self._row_count, 'message')}, file {self._file_number} of"
            f" {len(self._files)}"
        )

    def rows(self) -> Iterator[FileRows]:
        """The rows of each file."""
        for file in self._files:
            self._file_number += 1
            yield FileRows(str(file), self._batches(file))

    def _batches(self, file: Path) -> Iterator[pa.RecordBatch]:
        """The rows of a file.

        Raises:
            OptionError: There is no such file, or it is of another form than its name says.
        """
        try:
            for batch in _batches(file):
                self._row_count += batch.num_rows
                yield batch
        except (OSError, pa.ArrowException) as error:
            message = f"it cannot be read: {error}"
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
            message = f"the name of {file} does not end with one of {', '.join(_SUFFIXES)}"
            raise OptionError(message)
        if not file.is_file():
            message = f"there is no file {file}"
            raise OptionError(message)


def _ledgers(written: WrittenTopic) -> pa.Table:
    rows = [
        {
            "topic": str(partition.topic),
            "ledger_id": ledger.ledger_id,
            "uuid": str(ledger.offload.uuid),
            "entries": ledger.entries,
            "bytes": ledger.size_bytes,
        }
        for partition in written.partitions
        for ledger in partition.ledgers
        if ledger.offload is not None
    ]
    return pa.Table.from_pylist(rows, _LEDGER_SCHEMA)
