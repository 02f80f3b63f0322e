"""`open_topic`: opens a topic in a bucket as a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from arrow_io.columns import every_column, projection
from arrow_io.core import telemetry
from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import check_by_name
from arrow_io.errors import OptionError, TopicNotFoundError, UndecodedValuesWarning
from arrow_io.messages.message_reader import BatchLimits
from arrow_io.payloads.decoder import is_decodable, is_external
from arrow_io.payloads.schema_info import TopicSchema
from arrow_io.payloads.value_columns import VALUE_COLUMN, ValueColumns
from arrow_io.storage.hidden import hidden, hidden_url
from arrow_io.storage.redaction import redacted_urls
from arrow_io.storage.store_kinds import url_scheme
from connector.catalog.opening import open_catalog
from connector.catalog.registry.registry import RegistryPlace, registry_schema
from connector.catalog.schemas.loading import load_schema
from connector.dataset import TopicDataset
from connector.display.topic_metrics import TopicMetrics
from connector.display.warnings import warn_of_read
from connector.inputs.bounds import Bounds
from connector.inputs.cluster_access import REGISTRY_PREFIX
from connector.inputs.decryption_keys import read_decryption_keys
from connector.inputs.message_ids import MessageId
from connector.inputs.times import duration
from connector.inputs.topic_names import topic_names
from connector.live.broker import Brokers
from connector.live.opening import live_tails, partitions_of_brokers
from connector.options.option import selected_options, takes_options
from connector.options.topic_request import OPTIONS, TopicRequest, check_with_catalog
from connector.scan.latest import LatestView
from connector.scan.read_options import ReadOptions, max_decoded_rows
from connector.scan.topic_scan import Scan
from connector.statistics.store import open_existing_statistics, open_snapshot_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.messages.encryption import DecryptionKeys
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.catalog import Catalog
    from connector.catalog.catalog_options import Metadata
    from connector.catalog.schemas.loading import SchemaSource
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.bounds import Bound
    from connector.inputs.decryption_keys import KeySource
    from connector.scan.table_read import LakeTable
    from connector.statistics.store import Statistics


@takes_options(OPTIONS)
def open_topic(  # noqa: D417 - the decorator describes the options
    url: str,
    topic: str | Sequence[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    catalog: Catalog | None = None,
    metadata: Metadata | None = None,
    metadata_options: Mapping[str, object] | None = None,
    buckets: Mapping[str, str] | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
    columns: Sequence[str] | None = None,
    schema: SchemaSource | TopicSchema | None = None,
    schema_options: Mapping[str, object] | None = None,
    schema_version: int | None = None,
    value: Literal["flat", "struct", "raw"] = "flat",
    unwrap: Literal["none", "debezium"] = "none",
    time_unit: Literal["ns", "us"] = "ns",
    naming: Literal["pulsar-sql", "pulsar-spark"] = "pulsar-sql",
    transactions: Literal["committed", "all"] = "committed",
    on_corruption: Literal["raise", "salvage"] = "raise",
    verify_checksums: bool = True,
    range_bytes: int | None = None,
    index_cache: bool = True,
    batch_rows: int = BatchLimits().max_rows,
    batch_bytes: int = BatchLimits().max_bytes,
    decryption_keys: KeySource | None = None,
    statistics: str | os.PathLike[str] | None = None,
    clock_slack: str | None = None,
    view: Literal["all", "latest"] = "all",
    view_bytes: int = 200 << 20,
    segments: Literal["current", "all"] = "current",
    live: str | None = None,
    live_options: Mapping[str, object] | None = None,
    lake: str | os.PathLike[str] | None = None,
    lake_options: Mapping[str, object] | None = None,
    trace: RequestTrace | None = None,
) -> TopicDataset:
    """Open topics that were offloaded to a bucket.

    Lists the bucket once, and sends one request for each index object that it needs: with metadata,
    those of the topic's ledgers; without it, all in the bucket. Index objects that the index cache
    or `catalog` has are not read again.

    In Python, a bound may also be a datetime, a date or a tuple; `metadata` a mapping of topic
    names to folders; `schema` a SchemaInfo as a dict (`connector.catalog.schemas.loading`);
    `decryption_keys` PEM text, a mapping by name or a callable
    (`connector.inputs.decryption_keys`).

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec supports.
        topic: A short name (`orders`), a full one (`persistent://tenant/ns/orders`,
            `topic://tenant/ns/orders`), a glob (`sales-*`), or a list of these. A partitioned or
            scalable topic is one dataset.

    Raises:
        OptionError: An option has a value that is not allowed.
        BrokerError: The brokers cannot be reached, or refuse the request.
        TopicNotFoundError: No ledger in the bucket belongs to the topic, and the metadata does not
            list it. The message lists similar names.
        MissingObjectError: The bucket, the folder or the catalog snapshot does not exist.
        LakeTableError: The table (`lake`) does not exist, or no copy wrote it.
        StorageError: The bucket, the metadata, the schema or the table cannot be read.
        SchemaError: The schema has a type that has no Arrow equivalent.
        PulsarOffloadError: The metadata is malformed; or a ledger of the topic is unsound, or is
            missing from where the metadata says it is stored.
    """
    request = TopicRequest(**selected_options(OPTIONS, locals()))
    check_with_catalog(url, request)
    return open_request(url, topic, request)


def open_request(url: str, topic: str | Sequence[str], request: TopicRequest) -> TopicDataset:
    """Open topics according to a request; see `open_topic`.

    If the request has a catalog, options that a catalog fixes are ignored.
    """
    names = topic_names(topic)
    name = names[0] if len(names) == 1 else None
    with telemetry.operation("open", url=redacted_urls(str(url)), topic=name) as operation:
        inputs = _resolve(request)
        opened = _open(url, topic, inputs)
        scan = _plan(inputs, opened)
        if operation.is_observed:
            ledgers = sum(len(each.ledgers) for each in scan.topics)
            operation.note(topic=scan.name, ledgers=ledgers)
        return TopicDataset(scan, opened.unsound)


def read_options(request: TopicRequest) -> ReadOptions:
    """Return how a request reads messages, by its own schema; sends no request to the bucket.

    Raises:
        PulsarOffloadError: See `open_topic`, for errors of options and schemas.
    """
    inputs = _resolve(request)
    return _read_options(inputs, inputs.schema)


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """A request whose schema, bounds and keys have been read and parsed.

    Attributes:
        storage_options: Options of the store, also used to read the schema and the statistics.
        needs_catalog_schema: Whether the schema has to be looked up in the catalog.
    """

    request: TopicRequest
    storage_options: Mapping[str, object] | None
    schema: TopicSchema | None
    needs_catalog_schema: bool
    bounds: Bounds
    keys: DecryptionKeys
    brokers: Brokers | None


@dataclass(frozen=True, kw_only=True)
class _OpenTopics:
    """The topics of a request, as found in the bucket, the metadata and the brokers.

    Attributes:
        unsound: Counts of the ledgers that cannot be read at all.
        schema: The schema that values are decoded with; None if values stay bytes.
    """

    catalog: Catalog
    topics: Sequence[TopicLedgers]
    unsound: TopicMetrics
    schema: TopicSchema | None


def _resolve(request: TopicRequest) -> _Inputs:
    """Read the schema and keys that a request names; sends no request to the bucket."""
    catalog = request.catalog
    has_metadata = request.metadata is not None if catalog is None else catalog.source is not None
    # The schema may be stored in the same bucket as the topic, which needs the catalog's options.
    storage_options = (
        request.storage_options if catalog is None else catalog.location.storage_options
    )
    schema = read_schema(
        request.schema, request.schema_version, storage_options, request.schema_options
    )
    inputs = _Inputs(
        request=request,
        storage_options=storage_options,
        schema=schema,
        needs_catalog_schema=schema is None and request.value != "raw" and has_metadata,
        bounds=Bounds.parse(request.start, request.end),
        keys=read_decryption_keys(request.decryption_keys),
        brokers=brokers_from_request(request),
    )
    if not inputs.needs_catalog_schema:
        # Refuse columns that no topic can have before the first request.
        _read_options(inputs, schema)
    return inputs


def _open(url: str, topic: str | Sequence[str], inputs: _Inputs) -> _OpenTopics:
    request = inputs.request
    catalog = request.catalog or open_catalog(url, **request.catalog_options())
    unsound = TopicMetrics()
    topics = _select(catalog, topic, inputs, unsound)
    schema = inputs.schema
    if inputs.needs_catalog_schema:
        try:
            schema = catalog.schema((each.topic for each in topics), request.schema_version)
        except OptionError:
            if request.columns is None or not _are_without_values(request.columns, request.naming):
                raise
    return _OpenTopics(catalog=catalog, topics=topics, unsound=unsound, schema=schema)


def _plan(inputs: _Inputs, opened: _OpenTopics) -> Scan:
    request, catalog = inputs.request, opened.catalog
    options = _read_options(inputs, opened.schema)
    if options.filterable.values is None and request.value != "raw":
        source = catalog.source
        has_unknown_schema = source is not None and not source.knows_schemas
        _warn_if_undecoded(options, opened.schema, has_unknown_schema=has_unknown_schema)
    statistics = _open_statistics(request.statistics, catalog, inputs.storage_options)
    cluster = catalog.cluster(opened.topics)
    scan = Scan(tuple(opened.topics), options, cluster=cluster, statistics=statistics)
    if inputs.brokers is not None:
        _check_live(opened.topics)
        tails = live_tails(inputs.brokers, opened.topics, options.filterable.values)
        scan = replace(scan, tails=tails)
    if request.lake is not None:
        lake = _open_lake(request.lake, request.lake_options, catalog)
        scan = replace(scan, lake=lake)
        if request.columns is None:
            scan = scan.select(lake.default_columns(options))
    elif request.lake_options:
        message = f"{option_name('lake_options')} need {option_name('lake')}"
        raise OptionError(message)
    if request.view == "latest":
        scan = replace(scan, view=LatestView(scan, int(request.view_bytes)))
    return scan


def _open_lake(
    lake: str | os.PathLike[str], lake_options: Mapping[str, object] | None, catalog: Catalog
) -> LakeTable:
    from connector.tables.table_rows import open_table_version  # noqa: PLC0415 - a slow import

    options, target = dict(lake_options or {}), os.fspath(lake)
    kind: Any = options.pop("format", "delta")
    storage_options: Any = options.pop("storage_options", None)
    if storage_options is not None:
        check_by_name(f"{option_name('lake_options')}.storage_options", storage_options)
    elif url_scheme(target) == url_scheme(catalog.location.url):
        storage_options = catalog.location.storage_options
    table_options = dict(_dotted(options))
    return open_table_version(kind, target, hidden(storage_options), hidden(table_options))


def _dotted(options: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested options by names with dots, as catalogs name them."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _open_statistics(
    url: str | os.PathLike[str] | None,
    catalog: Catalog,
    storage_options: Mapping[str, object] | None,
) -> Statistics | None:
    """Open the statistics that a request names, else those that a catalog snapshot names."""
    trace, opened = catalog.location.trace, catalog.opened_statistics
    if url is not None:
        return open_existing_statistics(url, storage_options, trace=trace, opened=opened)
    if catalog.statistics is not None:
        return open_snapshot_statistics(
            catalog.statistics, storage_options, trace=trace, opened=opened
        )
    return None


def _select(
    catalog: Catalog, topic: str | Sequence[str], inputs: _Inputs, unsound: TopicMetrics
) -> list[TopicLedgers]:
    request, bounds, brokers = inputs.request, inputs.bounds, inputs.brokers
    try:
        topics = catalog.select(
            topic,
            unsound,
            salvage=request.on_corruption == "salvage",
            first_ledger_id=bounds.first_ledger_id,
            last_ledger_id=bounds.last_ledger_id,
            segments=request.segments,
            more_partitions=None if brokers is None else partial(partitions_of_brokers, brokers),
        )
    except TopicNotFoundError as not_found:
        if brokers is not None and catalog.source is None:
            # Asking a broker for a topic would create it, so only metadata can show that it exists.
            not_found.message += (
                f"; a topic with no offloaded ledgers is found only with {option_name('metadata')}"
            )
        raise
    for option, bound in (("start", request.start), ("end", request.end)):
        _check_partition(option, bound, topics)
    return topics


def _check_live(topics: Sequence[TopicLedgers]) -> None:
    scalable = next((each.topic for each in topics if each.topic.is_scalable), None)
    if scalable is not None:
        message = (
            f"{option_name('live')} cannot be combined with scalable topics, such as"
            f" {scalable.base}: only its offloaded ledgers can be read"
        )
        raise OptionError(message)


def brokers_from_request(request: TopicRequest) -> Brokers | None:
    """Return the brokers that a request names; None if it names none.

    Raises:
        OptionError: The options of the brokers are not allowed, or conflict with other options.
    """
    if request.live is None:
        if request.live_options:
            message = f"{option_name('live_options')} need {option_name('live')}"
            raise OptionError(message)
        return None
    if request.transactions == "all":
        message = (
            f"{option_name('transactions', 'all')} cannot be combined with {option_name('live')}:"
            " brokers deliver no messages of transactions that are not committed"
        )
        raise OptionError(message)
    return Brokers.from_options(request.live, request.live_options or {})


def _read_options(inputs: _Inputs, schema: TopicSchema | None) -> ReadOptions:
    request = inputs.request
    if schema is None and request.schema_version is not None:
        message = (
            f"{option_name('schema_version')} selects a version of a schema, but no schema is"
            f" known: give {option_name('schema')} too"
        )
        raise OptionError(message)
    values = None
    if schema is not None and request.value != "raw" and is_decodable(schema):
        values = ValueColumns(
            schema,
            is_flat=request.value == "flat",
            time_unit=request.time_unit,
            is_unwrapped=request.unwrap != "none",
        )
    if request.unwrap != "none":
        _check_unwrapped(request, values)
    return ReadOptions(
        projection=projection(request.columns, naming=request.naming, values=values),
        filterable=every_column(request.naming, values),
        bounds=inputs.bounds,
        uncommitted=request.transactions == "all",
        verify_checksums=request.verify_checksums,
        salvage=request.on_corruption == "salvage",
        clock_slack=None
        if request.clock_slack is None
        else duration(option_name("clock_slack"), request.clock_slack),
        limits=_limits(values, int(request.batch_rows), int(request.batch_bytes)),
        decryption_keys=inputs.keys,
    )


def _check_unwrapped(request: TopicRequest, values: ValueColumns | None) -> None:
    option = option_name("unwrap", request.unwrap)
    if request.value != "flat":
        message = f"{option} cannot be combined with {option_name('value', request.value)}"
        raise OptionError(message)
    if values is None:
        message = (
            f"{option} needs the schema of the values: give {option_name('metadata')}, or"
            f" {option_name('schema')}"
        )
        raise OptionError(message)


def read_schema(
    schema: SchemaSource | TopicSchema | None,
    schema_version: int | None,
    storage_options: Mapping[str, object] | None,
    schema_options: Mapping[str, object] | None = None,
) -> TopicSchema | None:
    """Return the schema for the `schema` option of `open_topic`; None if that is None.

    A `TopicSchema` is returned unchanged. If `schema_version` is None, the newest version defines
    the columns.

    Raises:
        OptionError: The schema does not exist or is malformed; or `schema_version` is combined with
            a `TopicSchema`, or there are `schema_options` without a schema.
        StorageError: The schema cannot be read.
    """
    schema, storage_options = hidden_url(schema), hidden(storage_options)
    schema_options = hidden(schema_options)
    place = RegistryPlace.parse(schema)
    if place is not None:
        return registry_schema(
            place,
            schema_version=schema_version,
            storage_options=storage_options,
            schema_options=schema_options,
        )
    if schema_options and schema is None:
        message = f"{option_name('schema_options')} need a registry as {option_name('schema')}"
        raise OptionError(message)
    if schema is not None and not isinstance(schema, TopicSchema):
        return load_schema(schema, schema_version=schema_version, storage_options=storage_options)
    if schema is not None and schema_version is not None:
        message = (
            f"{option_name('schema')} is already read, so {option_name('schema_version')} cannot"
            " select another version of it"
        )
        raise OptionError(message)
    return schema


def _limits(values: ValueColumns | None, batch_rows: int, batch_bytes: int) -> BatchLimits:
    limits = BatchLimits()
    batch_rows = min(batch_rows, max_decoded_rows(values))
    return replace(
        limits,
        first_rows=min(limits.first_rows, batch_rows),
        max_rows=batch_rows,
        max_bytes=batch_bytes,
    )


def _warn_if_undecoded(
    options: ReadOptions, schema: TopicSchema | None, *, has_unknown_schema: bool
) -> None:
    """Warn if values stay bytes although decoded values were requested."""
    [name] = (name for name, own in options.filterable.columns if own == VALUE_COLUMN)
    if name not in dict(options.projection.columns):
        return
    option = option_name("schema")
    if schema is None and has_unknown_schema:
        reason = "the metadata store has no schemas, which brokers write to BookKeeper"
    elif schema is None:
        reason = "there is no schema"
    elif is_external(schema.reader):
        reason = "the schema is EXTERNAL, so it is stored in another registry than Pulsar's"
        option = option_name("schema", f"{REGISTRY_PREFIX}URL#SUBJECT")
    else:
        reason = "decoding needs a descriptor set, which a PROTOBUF schema does not contain"
    warn_of_read(
        f"values stay bytes, in {name}: {reason}; give {option} for typed columns, or"
        f" {option_name('value', 'raw')} for bytes",
        UndecodedValuesWarning,
    )


def _are_without_values(columns: Sequence[str], naming: str) -> bool:
    """Return whether none of the columns depends on the topic's schema."""
    own_names = dict(every_column(naming).columns)
    return all(own_names.get(name, VALUE_COLUMN) != VALUE_COLUMN for name in columns)


def _check_partition(option: str, bound: Bound | None, topics: Sequence[TopicLedgers]) -> None:
    """Raise OptionError if a message id names another partition than its ledger belongs to.

    The caller may have meant the third number of the id as a batch index.
    """
    message_id = MessageId.parse(bound)
    if message_id is None or message_id.partition < 0:
        return
    for each in topics:
        own = each.topic.partition
        is_other = own != message_id.partition
        if is_other and any(x.ledger_id == message_id.ledger_id for x in each.ledgers):
            ledger, entry, _, partition = message_id
            message = (
                f"{option_name(option)} {bound!r} names partition {partition}, but ledger {ledger}"
                f" belongs to {each.topic}; if {partition} is the batch index, write it fourth:"
                f" {ledger}:{entry}:{own}:{partition}"
            )
            raise OptionError(message)
