"""The source `pulsar_offload` on the driver: options and a schema in, a planned read out."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema

from arrow_io.core.lazy import cached_property
from arrow_io.errors import MissingObjectError, OptionError
from connector.catalog.opening import open_catalog
from connector.catalog.tables import TABLES
from connector.filters.where import where_expression
from connector.increments.increment import Increments, Limits
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.bounds import Bounds
from connector.inputs.topic_names import matching_topics
from connector.options.option import help_text
from connector.topic import open_request
from spark_ds.batch_reader import TopicBatchReader
from spark_ds.column_types import spark_schema
from spark_ds.listing_reader import ListingReader
from spark_ds.options import READING_HELP, SourceOptions, hide_secrets
from spark_ds.sentence_first import sentence_first
from spark_ds.spark_version import is_spark_since
from spark_ds.stream_source import (
    DEFAULT_BATCH_BYTES,
    STREAMS_SINCE,
    RefusedStream,
    StreamSource,
)
from spark_ds.write_options import WRITING_HELP, SinkOptions
from spark_ds.writer import TopicBatchWriter, TopicStreamWriter, refuse_overwrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from connector.catalog.catalog import Catalog
    from connector.dataset import TopicDataset
    from spark_ds.offsets import StartingOffsets


class PulsarOffloadDataSource(DataSource):
    """Topics that were offloaded to a bucket: batches and streams, read and written.

    For a batch read the ledgers are looked up when the data frame is made (`load()`, `CREATE
    TEMPORARY VIEW`) and kept with it, as Spark keeps the files of a Parquet data frame: what is
    offloaded later is seen by a new one. A stream looks at the bucket again for each batch.

    Columns: `.schema("…")` or the option `columns` says which, on-request ones included; otherwise
    the default ones. Spark tells a source in Python nothing of what a query needs, so all of
    them are decoded, even for `count()`: name few. Filters are applied by Spark.

    Rows: the option `where` is a condition (`connector.filters.where`) that the source applies
    itself. It then decodes other columns only for the rows that match, and with `statistics` reads
    only what may have such rows. Spark's own filters spare nothing.

    Values: with the option `schema`, which is not Spark's `.schema("…")`, they become typed columns
    (`arrow_io.columns`); executors get what they need of it inside their tasks. A time of day is a
    `bigint`, microseconds since midnight, because Spark's `TIME` is switched off by default.

    A stream has no end, and begins at the earliest message unless told otherwise. `startingTime`
    leaves out what was published before, in all its batches; other starts matter to a new query
    only, as Spark goes on from its checkpoint.

    Names of options are compared without case and underscores.

    Secrets: nothing shows the options of a query, neither its plan nor Spark's web pages, logs and
    errors. But where a view is made (`CREATE VIEW`, `createOrReplaceTempView`), the SQL page and
    the event log show the options of the frames in it, except for those that Spark masks: by
    default, where the name or the value has `secret`, `password`, `token` or `url` in it. So give
    credentials as `secret.<name>`, such as `secret.key`, or set
    `spark.sql.redaction.options.regex`. `decryption_keys` therefore takes no PEM text, which
    `secret.decryption_keys` does; executors get the keys inside their tasks. The text of a SQL
    statement is also repeated by Spark, in syntax errors and debug logs.

    Requirements: this package, on driver and executors. Spark's JVM starts with the module
    `jdk.incubator.vector`; a Java runtime that was made by `jlink` must have been given it
    (`--add-modules …,jdk.incubator.vector`), or it stops with "Module jdk.incubator.vector not
    found" before anything is read.

    Writing: with `mode("append")` or `writeStream`.

    Example:
        >>> frame = (
        ...     spark.read.format("pulsar_offload")
        ...     .option("url", "s3://bucket")
        ...     .option("topic", "orders")
        ...     .load()
        ... )  # doctest: +SKIP - needs a session and a bucket
        >>> frame.groupBy("__key__").count().show()  # doctest: +SKIP
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(hide_secrets(options))

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "pulsar_offload"

    def schema(self) -> StructType:
        """The columns given unless the user names them by a schema.

        Raises:
            PulsarOffloadError: The topics cannot be opened; see `open_topic`.
        """
        with sentence_first():
            if self._options.table in TABLES:
                return from_arrow_schema(self._listing.schema)
            try:
                dataset = self._dataset
            except MissingObjectError:
                # A stream ends before what is missing; a batch read is told when it is planned.
                dataset = _open(self._options, on_corruption="salvage")
            return from_arrow_schema(spark_schema(dataset.schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read.

        Args:
            schema: The columns to give, of `schema()` or of the user.

        Raises:
            OptionError: It has a column that the topics do not have, or have with another type.
            PulsarOffloadError: The topics cannot be opened; see `open_topic`.
        """
        with sentence_first():
            if self._options.table in TABLES:
                return ListingReader(_select_columns(self._listing, schema))
            self._refuse_options_of_streams()
            dataset = self._dataset
            self._check(schema, dataset)
            return TopicBatchReader(
                dataset.scan.select(schema.names), dataset.unsound, self._options.task_bytes
            )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """A stream. What is wrong with it is told as it starts: Spark would hide an error here.

        Args:
            schema: As in `reader`.
        """
        if not is_spark_since(STREAMS_SINCE):
            return RefusedStream()
        from spark_ds.stream_reader import TopicStreamReader  # noqa: PLC0415 - not on Spark 4.1

        return TopicStreamReader(partial(self._stream_source, schema))

    def _stream_source(self, schema: StructType) -> StreamSource:
        options = self._options
        if options.table in TABLES:
            message = f"the table {options.table} cannot be read as a stream: use spark.read"
            raise OptionError(message)
        if options.request.end is not None:
            message = "a stream has no end: use spark.read for a part of a topic"
            raise OptionError(message)
        if options.request.live is not None:
            message = "a stream reads what is offloaded: option live is for spark.read"
            raise OptionError(message)
        start = Bounds.parse(options.request.start, None)
        catalog = _catalog(options)
        dataset = _open(options, catalog, on_corruption="salvage", start=None)
        self._check(schema, dataset)
        increments = Increments(
            catalog,
            options.topics,
            replace(
                dataset.scan.select(schema.names).options,
                bounds=replace(start, start_id=None),
                salvage=options.request.on_corruption == "salvage",
            ),
            dataset.scan.statistics,
        )
        begin = partial(_starting_progress, increments, options.offsets, start.start_id)
        limits = Limits(options.max_bytes, options.max_ledgers)
        if limits == Limits():
            limits = Limits(DEFAULT_BATCH_BYTES)
        return StreamSource(increments, begin, limits, options.task_bytes)

    def _refuse_options_of_streams(self) -> None:
        options = self._options
        if options.offsets is not None:
            message = "startingOffsets must be earliest, or one message id, unless for readStream"
            raise OptionError(message)
        if (options.max_bytes, options.max_ledgers) != (None, None):
            message = "maxBytesPerTrigger and maxLedgersPerTrigger are for readStream"
            raise OptionError(message)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """A batch write; the write begins here, on the driver.

        Args:
            schema: The columns of the frame.
            overwrite: Whether it is to replace what is there.

        Raises:
            OptionError: It is; or a column is not usable.
            PulsarOffloadError: The topic cannot be written to; see `write_messages`.
        """
        with sentence_first():
            refuse_overwrite(overwrite=overwrite)
            return TopicBatchWriter(SinkOptions.parse(self.options), schema)

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """What begins a batch of a stream, or ends one; as `writer`."""
        with sentence_first():
            refuse_overwrite(overwrite=overwrite)
            return TopicStreamWriter(
                SinkOptions.parse(self.options), schema, is_resuming=self._was_sent
            )

    _was_sent = False

    def __getstate__(self) -> dict[str, object]:
        """Pickled as one that was sent: to end a batch, Spark sends the source to a new process."""
        return {**self.__dict__, "_was_sent": True}

    @cached_property
    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    @cached_property
    def _dataset(self) -> TopicDataset:
        return _open(self._options)

    @cached_property
    def _listing(self) -> pa.Table:
        options = self._options
        catalog = _catalog(options)
        return TABLES[options.table](catalog, _topic_patterns(options, catalog) or None)

    def _check(self, schema: StructType, dataset: TopicDataset) -> None:
        if self._options.request.columns is not None and dataset.schema.names != schema.names:
            message = (
                f"the schema has columns {', '.join(schema.names)}, the option columns says"
                f" {', '.join(dataset.schema.names)}: give one of them"
            )
            raise OptionError(message)
        # The schema's names first, for an error that lists what there is.
        named = dataset.scan.select(schema.names).options.projection.schema
        available = from_arrow_schema(spark_schema(named))
        for field, own in zip(schema, available, strict=True):
            if field.dataType != own.dataType:
                type_, own_type = field.dataType.simpleString(), own.dataType.simpleString()
                message = f"column {field.name} is of type {own_type}, not {type_}"
                raise OptionError(message)
            if not field.nullable:
                message = f"column {field.name} cannot be NOT NULL: all columns are nullable"
                raise OptionError(message)


PulsarOffloadDataSource.__doc__ = (
    f"{inspect.cleandoc(PulsarOffloadDataSource.__doc__ or '')}\n\n"
    f"Options of reading:\n{help_text(READING_HELP)}\n\n"
    f"Options of writing:\n{help_text(WRITING_HELP)}\n"
)


def _open(
    options: SourceOptions,
    catalog: Catalog | None = None,
    **instead: Any,  # noqa: ANN401 - of open_topic
) -> TopicDataset:
    """Open the topics, for the rows that are asked for.

    Args:
        options: What the user gave.
        catalog: What it is opened with, if that is known.
        instead: Other options of `open_topic` than the user's.
    """
    if options.request.view != "all":
        message = "option view must be all: Spark finds the latest of each key by SQL"
        raise OptionError(message)
    catalog = catalog or _catalog(options)
    request = replace(options.request, catalog=catalog, **instead)
    dataset = open_request(options.location.url, _topic_patterns(options, catalog), request)
    if options.where is None:
        return dataset
    return dataset.filter(where_expression(options.where, dataset.scan.options.filterable.schema))


def _starting_progress(
    increments: Increments,
    offsets: StartingOffsets | None,
    start_id: tuple[int, int, int] | None,
) -> Progress:
    """Where a new stream begins.

    Raises:
        OptionError: It would begin within a batch of messages, or in a topic that is not read.
        PulsarOffloadError: The topics cannot be found.
    """
    if offsets is not None:
        return offsets.progress(increments)
    if start_id is None:
        return Progress()
    *position, batch_index = start_id
    if batch_index:
        message = f"a stream begins at an entry, not within it: give {tuple(position)}"
        raise OptionError(message)
    beginning = TopicProgress.at(Position(*position))
    return Progress(dict.fromkeys(increments.latest().topics, beginning))


def _catalog(options: SourceOptions) -> Catalog:
    return open_catalog(options.location.url, **options.request.catalog_options())


def _topic_patterns(options: SourceOptions, catalog: Catalog) -> Sequence[str]:
    topics = options.topics
    if not isinstance(topics, re.Pattern):
        return topics
    return sorted({str(topic.base) for topic in matching_topics(topics, catalog.topics())})


def _select_columns(table: pa.Table, schema: StructType) -> pa.Table:
    """The columns of a listing that a schema names.

    Raises:
        OptionError: There is no such column, or it is of another type.
    """
    available = {field.name: field.dataType for field in from_arrow_schema(table.schema)}
    for field in schema:
        if available.get(field.name) != field.dataType:
            message = f"no column {field.name} of type {field.dataType.simpleString()}; there are:"
            raise OptionError(f"{message} {from_arrow_schema(table.schema).simpleString()}")
    return table.select(schema.names)
