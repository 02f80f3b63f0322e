"""`copy_topics`: incremental copies of topics to Delta, Iceberg and Parquet tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from arrow_io.columns import ALL_COLUMNS
from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError
from arrow_io.payloads.value_columns import VALUE_COLUMN
from arrow_io.storage.hidden import hidden
from arrow_io.storage.redaction import redacted_urls
from arrow_io.storage.store_kinds import url_scheme
from connector.catalog.opening import open_catalog
from connector.increments.increment import Increments
from connector.inputs.topic_names import TopicName, common_base, owning_topics, topic_names
from connector.lake.change_events import change_filter
from connector.lake.copy_plan import DEFAULT_SIZES, CopySizes
from connector.lake.copy_run import CopyRun, copy_tables, raise_first
from connector.lake.metrics_file import MetricsFile
from connector.lake.replacement import keep_latest
from connector.lake.table_copy import TableCopy
from connector.options.option import selected_options, takes_options
from connector.options.topic_request import (
    OPTIONS,
    TopicRequest,
    check_options,
    check_with_catalog,
)
from connector.statistics.store import open_statistics
from connector.tables.dead_letters import DEAD_LETTERS, dead_letter_options, refuse_branches
from connector.tables.executors import run_in_threads
from connector.tables.table_kinds import open_table
from connector.topic import open_request

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from connector.catalog.catalog import Catalog
    from connector.lake.copy_plan import CopyPlan
    from connector.lake.maintenance import MaintenanceSettings
    from connector.lake.table_copy import ProgressCallback, TableSummary
    from connector.scan.read_options import ReadOptions
    from connector.tables.evolution import TableKind
    from connector.tables.executors import Executor
    from connector.tables.table import LakeTable, RewritableTable

MESSAGE_COLUMNS: Final = (
    "__publish_time__",
    "__ledger_id__",
    "__entry_id__",
    "__batch_index__",
    "__key__",
)
"""Message columns that a table has by default, in addition to the value columns."""
_UNSAFE: Final = re.compile(r"^\.|[^\w.-]")
"""Matches what a topic name may contain and a folder name must not."""
_UNSAFE_IN_ICEBERG: Final = re.compile(r"[^\w-]")
"""The same for Iceberg, whose namespaces are separated by dots."""
_PLACEHOLDERS: Final = ("{tenant}", "{namespace}", "{topic}")
_RUN_OPTIONS: Final = ("maintenance", "metrics_file", "on_progress", "on_table", "executor")
"""Options of `copy_topics` that control how it runs, and do not affect what it writes."""
_SECRETS: Final = ("target_options", "table_options")


@takes_options(OPTIONS, secrets=_SECRETS)
def copy_topics(
    url: str,
    topic: str | Sequence[str],
    target: str,
    *,
    format: TableKind = "delta",  # noqa: A002 - Spark's and everybody's name
    partition_by: Sequence[str] | None = None,
    dead_letters: bool = False,
    latest_per_key: bool = False,
    key_columns: Sequence[str] | None = None,
    target_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, object] | None = None,
    sizes: CopySizes = DEFAULT_SIZES,
    analyze: bool = False,
    maintenance: MaintenanceSettings | None = None,
    metrics_file: str | os.PathLike[str] | None = None,
    on_progress: ProgressCallback | None = None,
    on_table: Callable[[TableSummary], object] | None = None,
    executor: Executor = run_in_threads,
    **topic_options: Any,  # noqa: ANN401 - those of `open_topic`
) -> list[TableSummary]:
    """Copy the new messages of topics to lake tables.

    A table stores how far its topics are copied. Each run resumes from there, even if an earlier
    run was stopped, and adds each row exactly once. If two runs copy to one table at the same time,
    one of them fails.

    If each topic has its own table, a table that cannot be copied does not stop the others.

    Args:
        url: Location of the topics, as in `open_topic`.
        topic: Names or patterns of the topics, as in `open_topic`.
        target: URL of the table's folder. For Iceberg, the table's name, `namespace.table`. If it
            contains `{topic}`, each topic gets its own table, else all topics share one. It may
            also contain `{tenant}` and `{namespace}`.
        format: `delta`, `iceberg` or `parquet`.
        partition_by: How a new table is partitioned (`connector.tables.transforms`), such as
            `["day(__publish_time__)", "bucket(16, customer)"]`. None keeps the partitioning of an
            existing table, and creates a new one without partitions.
        dead_letters: Whether messages whose value cannot be decoded are written to a second table,
            whose name ends in `_dead_letters`. By default, the first such message is an error.
            Refused for a branch of an Iceberg table.
        latest_per_key: Whether the table keeps only the latest row of each key of a topic
            partition, and removes a key whose latest value is null. Messages without a key are left
            out and counted. Not available for plain Parquet, whose files are never rewritten.
        key_columns: With `latest_per_key`, the columns of numbers, texts, decimals, booleans, dates
            or timestamps that identify rows, such as `["id"]`; rows with a null in one of them are
            left out like messages without a key. None: the key of the message, `__key__`.
        target_options: Options of the target's fsspec file system. None uses the topics'
            `storage_options` if both URLs have the same scheme.
        table_options: For Delta, additional options of `deltalake`'s own storage, and properties of
            a new table (`delta.…`). For Iceberg, properties of the catalog, its name as `catalog`,
            the URL of a new table's folder as `location`, properties of a new table
            (`table-default.…`), its `sort-order`, and a `branch` and `tag` of the table.
        sizes: Target sizes of files, tasks and commits.
        analyze: Whether to store statistics of each completely copied ledger in the folder
            `statistics`, unless it has them. If it cannot be written, the copy issues an
            `UnusedStatisticsWarning` and continues.
        maintenance: How each table is maintained after its copy (`maintain_table`), if it has files
            to merge or rows to delete. None does not. If another writer changes the table at the
            same time, a notice says so, and a later run maintains it. Another error is raised
            after all tables were copied.
        metrics_file: File to which metrics of this run and earlier ones are written when it ends or
            fails, for Prometheus (`connector.lake.metrics_file`).
        on_progress: Called after each task with the bytes of data objects that were copied, and the
            total.
        on_table: Called with the summary of each table as soon as its copy is finished.
        executor: Runs the tasks.
        topic_options: Options of `open_topic`. Messages before `start` are never copied; `end` is
            refused. `statistics` show which transactions are open and which entries precede
            `start`; `notices` names statistics that cannot be used. `time_unit` is `us` by default,
            except for plain Parquet. By default, `columns` are `MESSAGE_COLUMNS` and the value
            columns. If several topics share a table, `__topic__` comes first. With `latest_per_key`
            and a partitioned topic, `__partition__` does.

    Returns:
        The summary of each table.

    Raises:
        OptionError: An option is not allowed, or a library is not installed.
        TopicNotFoundError: There is no such topic.
        LakeTableError: A table cannot store the rows; nothing was written for them.
        ConcurrentCopyError: Another run copied to the table at the same time.
        PulsarOffloadError: Data cannot be read, decoded or written. Earlier commits remain. With
            several tables, this is the error of the first table that failed, raised after all
            others were copied; its notes name each failed table.
    """
    request = CopyRequest(**selected_options(CopyRequest.__dataclass_fields__, locals()))
    run = CopyRun(
        maintenance=maintenance, on_progress=on_progress, on_table=on_table, executor=executor
    )
    topics = ", ".join(topic_names(topic))
    with MetricsFile(metrics_file, redacted_urls(target), topics) as metrics:
        summaries, failures = copy_tables(request, run, metrics)
    raise_first(failures, len(summaries))
    return summaries


@takes_options(OPTIONS, secrets=_SECRETS)
def plan_copy(
    url: str,
    topic: str | Sequence[str],
    target: str,
    **options: Any,  # noqa: ANN401 - those of `copy_topics`
) -> list[CopyPlan]:
    """Return what `copy_topics` would copy now, table by table; write nothing.

    Args:
        url: Location of the topics, as in `open_topic`.
        topic: Names or patterns of the topics.
        target: URL of the table's folder.
        options: Options of `copy_topics`, including those of `open_topic`. `analyze`,
            `maintenance`, `metrics_file`, `on_progress`, `on_table` and `executor` have no effect.

    Raises:
        PulsarOffloadError: See `copy_topics`, for errors that occur before data is read.
    """
    own = selected_options(CopyRequest.__dataclass_fields__, options)
    topic_options = {n: each for n, each in options.items() if n not in {*own, *_RUN_OPTIONS}}
    request = CopyRequest(url=url, topic=topic, target=target, topic_options=topic_options, **own)
    return [open_copy().plan() for _, _, open_copy in request.copies()]


@dataclass(frozen=True, kw_only=True)
class CopyRequest:
    """The arguments of `copy_topics`."""

    url: str
    topic: str | Sequence[str]
    target: str
    format: TableKind = "delta"
    partition_by: Sequence[str] | None = None
    dead_letters: bool = False
    latest_per_key: bool = False
    key_columns: Sequence[str] | None = None
    target_options: Mapping[str, object] | None = field(default=None, repr=False)
    table_options: Mapping[str, object] | None = field(default=None, repr=False)
    sizes: CopySizes = DEFAULT_SIZES
    analyze: bool = False
    topic_options: Mapping[str, object] = field(repr=False)

    def copies(self) -> Iterator[tuple[str, str, Callable[[], TableCopy]]]:
        """Yield each table's name, that of its topics, and a function that opens its copy.

        Raises:
            PulsarOffloadError: An option is not allowed, or the topics do not exist or cannot be
                opened. The functions raise it too.
        """
        names = topic_names(self.topic)
        self._check()
        check_options(self.topic_options)
        unit: dict[str, Any] = {} if self.format == "parquet" else {"time_unit": "us"}
        request = TopicRequest(**(unit | dict(self.topic_options)))
        check_with_catalog(self.url, request)
        catalog = request.catalog or open_catalog(self.url, **request.catalog_options())
        matches = catalog.select(names)
        bases = list(dict.fromkeys(owning_topics(each.topic for each in matches).values()))
        if not has_own_tables(self.target):
            # A pattern may match more topics later, when the table's columns can no longer change.
            classic = {each.classic for each in bases}
            is_shared = len(names) > 1 or classic != {TopicName.parse(names[0]).classic}
            yield self._defer_copy(catalog, request, names, self.target, is_shared=is_shared)
            return
        if "location" in (self.table_options or {}):
            message = "location is the folder of one table, but the target names one for each topic"
            raise OptionError(f"{message}: leave location out")
        targets: dict[str, TopicName] = {}
        for base in bases:
            unsafe = _UNSAFE_IN_ICEBERG if self.format == "iceberg" else _UNSAFE
            target = _fill_target(self.target, base, unsafe)
            other = targets.setdefault(target, base)
            if other is not base:
                advice = "add {tenant} and {namespace} to the target"
                if base.classic == other.classic:
                    advice = "copy each of them to a target of its own"
                message = (
                    f"{base} and {other} would share the table {redacted_urls(target)}: {advice}"
                )
                raise OptionError(message)
        for target, base in targets.items():
            yield self._defer_copy(catalog, request, [str(base)], target, is_shared=False)

    def _check(self) -> None:
        """Raise `OptionError` if options of the copy conflict, before the topics are looked up."""
        if isinstance(self.partition_by, str):
            message = f"partition_by must be a list of strings, such as [{self.partition_by!r}]"
            raise OptionError(message)
        if isinstance(self.key_columns, str) or self.key_columns == []:
            message = "key_columns must be a list of names, such as ['id']"
            raise OptionError(message)
        if self.key_columns is not None and not self.latest_per_key:
            message = "key_columns need latest_per_key"
            raise OptionError(message)
        if self.dead_letters:
            refuse_branches(self.table_options)
        if self.latest_per_key and self.format == "parquet":
            message = (
                "latest_per_key needs a Delta or Iceberg table: the files of a plain Parquet table"
                " are never rewritten"
            )
            raise OptionError(message)

    def _defer_copy(
        self,
        catalog: Catalog,
        request: TopicRequest,
        topics: Sequence[str],
        target: str,
        *,
        is_shared: bool,
    ) -> tuple[str, str, Callable[[], TableCopy]]:
        name = common_base(map(TopicName.parse, topics)) if not is_shared else None
        name = name or ", ".join(topics)
        opening = partial(self._copy, catalog, request, topics, target, name, is_shared=is_shared)
        return redacted_urls(target), name, opening

    def _copy(
        self,
        catalog: Catalog,
        request: TopicRequest,
        topics: Sequence[str],
        target: str,
        name: str,
        *,
        is_shared: bool,
    ) -> TableCopy:
        for each in ("live", "lake"):
            if getattr(request, each) is not None:
                message = f"a copy reads only offloaded ledgers: leave out {option_name(each)}"
                raise OptionError(message)
        # A copy that writes statistics may create their folder.
        statistics_url = request.statistics if self.analyze else None
        folder = None if self.analyze else request.statistics
        dataset = open_request(
            self.url, topics, replace(request, catalog=catalog, statistics=folder)
        )
        statistics = dataset.scan.statistics
        if statistics_url is not None:
            location = catalog.location
            statistics = open_statistics(
                statistics_url, location.storage_options, trace=location.trace
            )
        options = dataset.scan.options
        if dataset.scan.view is not None:
            message = "a copy reads all messages: instead of a view, use latest_per_key"
            raise OptionError(message)
        members = [each.topic for each in dataset.scan.topics]
        is_scalable = any(each.is_scalable for each in members)
        scope = self._scope(members, is_shared=is_shared)
        if request.columns is None:
            options = _add_default_columns(options, scope)
        table = self._table(catalog, target, self.table_options)
        latest = None
        if self.latest_per_key:
            rewritable = cast("RewritableTable", table)
            key_columns = None if self.key_columns is None else tuple(self.key_columns)
            latest, options = keep_latest(
                rewritable, options, key_columns, scope, is_scalable=is_scalable
            )
        return TableCopy(
            increments=Increments(catalog, topics, options, statistics, segments=request.segments),
            kind=self.format,
            table=table,
            latest=latest,
            changes=change_filter(options, None if latest is None else latest.key_columns),
            # Each kind of table can be rewritten.
            dead_letter_table=cast(
                "RewritableTable",
                self._table(
                    catalog,
                    target.rstrip("/") + DEAD_LETTERS,
                    dead_letter_options(self.table_options),
                ),
            )
            if self.dead_letters
            else None,
            partition_by=self.partition_by,
            sizes=self.sizes,
            topic=name,
            source=f"{catalog.location}: {', '.join(topics)}",
        )

    def _scope(self, topics: Sequence[TopicName], *, is_shared: bool) -> str | None:
        """Return the column within whose values keys are unique; None if the table needs none.

        Raises:
            OptionError: Keys of a scalable topic would share a table with those of other topics.
        """
        is_scalable = any(each.is_scalable for each in topics)
        if self.latest_per_key and is_shared and is_scalable:
            message = (
                "latest_per_key of a scalable topic, whose keys move between segments, needs a"
                " table of its own: name one topic, or put {topic} into the target"
            )
            raise OptionError(message)
        # If several topics share a table, `__topic__` includes the partition.
        if is_shared:
            return "__topic__"
        has_partitions = any(each.partition >= 0 for each in topics) and not is_scalable
        return "__partition__" if self.latest_per_key and has_partitions else None

    def _table(
        self, catalog: Catalog, target: str, table_options: Mapping[str, object] | None
    ) -> LakeTable:
        options = self.target_options
        if options is None and url_scheme(target) == url_scheme(self.url):
            options = catalog.location.storage_options
        return open_table(self.format, target, hidden(options), hidden(table_options))


def _add_default_columns(options: ReadOptions, scope: str | None) -> ReadOptions:
    message_columns = {each.name for each in ALL_COLUMNS if each.name != VALUE_COLUMN}
    values = [name for name, own in options.projection.columns if own not in message_columns]
    own_names = {own: name for name, own in options.filterable.columns}
    defaults = [own_names[each] for each in (scope, *MESSAGE_COLUMNS) if each is not None]
    return replace(options, projection=options.filterable.select([*defaults, *values]))


def has_own_tables(target: str) -> bool:
    """Return whether each topic has a table of its own."""
    return any(each in target for each in _PLACEHOLDERS)


def _fill_target(target: str, topic: TopicName, unsafe: re.Pattern[str]) -> str:
    parts = (topic.tenant, topic.namespace, topic.local_name)
    for placeholder, part in zip(_PLACEHOLDERS, parts, strict=True):
        target = target.replace(placeholder, unsafe.sub("_", part))
    return target
