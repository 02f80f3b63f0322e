"""The data source `pulsar_offload` on the driver: reads and writes planned from Spark's options."""

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
from connector.options.option import help_text
from connector.topic import open_request
from spark_ds.batch_reader import TopicBatchReader
from spark_ds.column_types import spark_schema
from spark_ds.listing_reader import ListingReader
from spark_ds.options import READING_HELP, SourceOptions, hide_secrets
from spark_ds.spark_version import is_spark_since
from spark_ds.stream_source import (
    DEFAULT_BATCH_BYTES,
    STREAMS_SINCE,
    RefusedStream,
    StreamSource,
)
from spark_ds.tracebacks import hide_traceback
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
    """Offloaded topics in a bucket, to read and write as batches and streams.

    A batch read looks up the ledgers when the data frame is created (`load()`, `CREATE TEMPORARY
    VIEW`), as Spark lists the files of a Parquet data frame. To see ledgers that are offloaded
    later, create a new frame. A stream looks at the bucket again for each batch.

    Columns: `.schema("…")` or the option `columns` chooses them, including those on request.
    Otherwise the frame has the default columns. Spark does not tell a Python source which columns a
    query needs, so all columns of the frame are decoded, even for `count()`. Choose only those that
    you need. Spark applies filters itself.

    Rows: the source applies the condition of the option `where` (`connector.filters.where`). It
    decodes other columns only for matching rows, and with `statistics` skips data without such
    rows. Spark's own filters save no reading.

    Values: with the option `schema`, which is not Spark's `.schema("…")`, they become typed columns
    (`arrow_io.columns`). Tasks contain what executors need of the schema. A time of day is a
    `bigint`, microseconds since midnight, because Spark's `TIME` is switched off by default.

    Streams: a stream has no end, and starts at the earliest message by default. `startingTime`
    excludes earlier messages from all its batches. Other starts only affect a new query, since
    Spark resumes from its checkpoint.

    Names of options are compared without case and underscores.

    Secrets: the plan of a query, Spark's web pages, logs and errors never show its options. But if
    a view is created (`CREATE VIEW`, `createOrReplaceTempView`), the SQL page and the event log
    show the options of its frames, except those that Spark masks. By default, it masks options
    whose name or value contains `secret`, `password`, `token` or `url`. So pass credentials as
    `secret.<name>`, such as `secret.key`, or set `spark.sql.redaction.options.regex`. For this
    reason, only `secret.decryption_keys` accepts PEM text, and `decryption_keys` does not; tasks
    contain the keys. Spark also repeats the text of a SQL statement in syntax errors and debug
    logs. A server of Spark Connect shows all options of each request on its web pages and in the
    event log, unless it has the settings of `docs/spark-clusters.md`.

    Requirements: this package on driver and executors. Spark's JVM starts with the module
    `jdk.incubator.vector`. A Java runtime made by `jlink` must include it (`--add-modules
    …,jdk.incubator.vector`). Otherwise it stops with "Module jdk.incubator.vector not found" before
    anything is read.

    Writing: use `mode("append")` or `writeStream`.

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
        """Return the name for `format`."""
        return "pulsar_offload"

    def schema(self) -> StructType:
        """Return the columns of a frame without a user-defined schema.

        Raises:
            PulsarOffloadError: The topics cannot be opened; see `open_topic`.
        """
        with hide_traceback():
            if self._options.table in TABLES:
                return from_arrow_schema(self._listing.schema)
            try:
                dataset = self._dataset
            except MissingObjectError:
                # A stream ends before a missing object, and planning a batch read raises for it.
                dataset = _open(self._options, on_corruption="salvage")
            return from_arrow_schema(spark_schema(dataset.schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader.

        Args:
            schema: The columns to read, from `schema()` or the user.

        Raises:
            OptionError: The schema has a column that the topics lack or that has another type.
            PulsarOffloadError: The topics cannot be opened; see `open_topic`.
        """
        with hide_traceback():
            if self._options.table in TABLES:
                return ListingReader(_select_columns(self._listing, schema))
            self._refuse_options_of_streams()
            dataset = self._dataset
            self._check(schema, dataset)
            return TopicBatchReader(
                dataset.scan.select(schema.names), dataset.unsound, self._options.task_bytes
            )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return a stream reader, which raises errors at its start: Spark would hide them here."""
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
            message = "a stream cannot have an end: use spark.read to read a part of a topic"
            raise OptionError(message)
        for name in ("live", "lake"):
            if getattr(options.request, name) is not None:
                message = (
                    f"a stream reads only offloaded ledgers: use option {name} with spark.read"
                )
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
            segments=options.request.segments,
        )
        begin = partial(_starting_progress, increments, options.offsets, start.start_id)
        limits = Limits(options.max_bytes, options.max_ledgers)
        if limits == Limits():
            limits = Limits(DEFAULT_BATCH_BYTES)
        return StreamSource(increments, begin, limits, options.task_bytes)

    def _refuse_options_of_streams(self) -> None:
        options = self._options
        if options.offsets is not None:
            message = "for spark.read, startingOffsets must be earliest or one message id"
            raise OptionError(message)
        if (options.max_bytes, options.max_ledgers) != (None, None):
            message = "maxBytesPerTrigger and maxLedgersPerTrigger are only for readStream"
            raise OptionError(message)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Begin a batch write, and return its writer.

        Args:
            schema: The columns of the frame.
            overwrite: Whether to replace the topic, which is not allowed.

        Raises:
            OptionError: `overwrite` is True, or a column is not usable.
            PulsarOffloadError: The topic cannot be written to; see `write_messages`.
        """
        with hide_traceback():
            refuse_overwrite(overwrite=overwrite)
            return TopicBatchWriter(SinkOptions.parse(self.options), schema)

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Return an object that begins or commits a batch of a stream. See `writer`."""
        with hide_traceback():
            refuse_overwrite(overwrite=overwrite)
            return TopicStreamWriter(
                SinkOptions.parse(self.options), schema, is_resuming=self._was_sent
            )

    _was_sent = False

    def __getstate__(self) -> dict[str, object]:
        """Mark the copy as pickled: to commit a batch, Spark sends the source to a new process."""
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
                f"the schema has the columns {', '.join(schema.names)}, but the option columns has"
                f" {', '.join(dataset.schema.names)}: leave one of them out"
            )
            raise OptionError(message)
        # Select by name first: its error lists the available columns.
        projection_schema = dataset.scan.select(schema.names).options.projection.schema
        available = from_arrow_schema(spark_schema(projection_schema))
        for field, available_field in zip(schema, available, strict=True):
            if field.dataType != available_field.dataType:
                type_, available_type = (
                    field.dataType.simpleString(),
                    available_field.dataType.simpleString(),
                )
                message = f"column {field.name} is of type {available_type}, not {type_}"
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
    **overrides: Any,  # noqa: ANN401 - of open_topic
) -> TopicDataset:
    """Open the topics, with the condition of `where`.

    The overrides replace the user's options of `open_topic`.
    """
    if options.request.view != "all":
        message = "option view must be all: use SQL to find the latest message of each key in Spark"
        raise OptionError(message)
    catalog = catalog or _catalog(options)
    request = replace(options.request, catalog=catalog, **overrides)
    dataset = open_request(options.location.url, _topic_patterns(options, catalog), request)
    if options.where is None:
        return dataset
    return dataset.filter(where_expression(options.where, dataset.scan.options.filterable.schema))


def _starting_progress(
    increments: Increments,
    offsets: StartingOffsets | None,
    start_id: tuple[int, int, int] | None,
) -> Progress:
    """Return the progress with which a new stream starts.

    Raises:
        OptionError: The start is inside a batch of messages, or in a topic that is not read.
        PulsarOffloadError: The topics cannot be found.
    """
    if offsets is not None:
        return offsets.progress(increments)
    if start_id is None:
        return Progress()
    *position, batch_index = start_id
    if batch_index:
        message = f"a stream must start at an entry, not inside a batch: give {tuple(position)}"
        raise OptionError(message)
    beginning = TopicProgress.at(Position(*position))
    return Progress(dict.fromkeys(increments.latest().topics, beginning))


def _catalog(options: SourceOptions) -> Catalog:
    return open_catalog(options.location.url, **options.request.catalog_options())


def _topic_patterns(options: SourceOptions, catalog: Catalog) -> Sequence[str]:
    topics = options.topics
    if not isinstance(topics, re.Pattern):
        return topics
    return sorted({str(topic.base) for topic in catalog.select_names(topics)})


def _select_columns(table: pa.Table, schema: StructType) -> pa.Table:
    """Return the columns of a listing that a schema names.

    Raises:
        OptionError: A column does not exist or has another type.
    """
    available = {field.name: field.dataType for field in from_arrow_schema(table.schema)}
    for field in schema:
        if available.get(field.name) != field.dataType:
            message = f"no column {field.name} of type {field.dataType.simpleString()}; columns are"
            raise OptionError(f"{message} {from_arrow_schema(table.schema).simpleString()}")
    return table.select(schema.names)
