"""The table of read options: name, allowed values and meaning of each.

Python, DuckDB, Spark and the command line are spellings of it. A field here and a parameter of
`open_topic` define an option; every surface takes its help from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import BATCH_BYTES, BATCH_ROWS
from arrow_io.errors import OptionError
from arrow_io.messages.column_names import COLUMN_NAMES, Naming
from arrow_io.storage.store_kinds import store_kind
from connector.inputs.topic_names import SegmentSelection
from connector.options import kinds
from connector.options.option import STORAGE_OPTIONS, TRACE, option_metadata, options_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.catalog import Catalog
    from connector.catalog.catalog_options import Metadata
    from connector.catalog.schemas.loading import SchemaSource
    from connector.inputs.bounds import Bound
    from connector.inputs.decryption_keys import KeySource

ValueShape: TypeAlias = Literal["flat", "struct", "raw"]
Unwrapping: TypeAlias = Literal["none", "debezium"]
TimeUnit: TypeAlias = Literal["ns", "us"]
Transactions: TypeAlias = Literal["committed", "all"]
OnCorruption: TypeAlias = Literal["raise", "salvage"]
Rows: TypeAlias = Literal["all", "latest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRequest:
    """The options of `open_topic`. Printing it shows no secret.

    Raises:
        OptionError: A value is not allowed.
    """

    storage_options: Mapping[str, object] | None = field(default=None, metadata=STORAGE_OPTIONS)
    catalog: Catalog | None = field(
        default=None,
        metadata=option_metadata(
            kinds.CATALOG,
            "What open_catalog returned for the URL. The topic is opened without another listing,"
            " and by the options of the catalog. DuckDB's statements, Spark and the command line"
            " take a catalog snapshot instead, as metadata.",
            in_python_only="it lives in a Python process; pass a catalog snapshot as metadata",
        ),
    )
    metadata: Metadata | None = field(
        default=None,
        metadata=option_metadata(
            kinds.SOURCE,
            "Source of the cluster's metadata: URL of its admin API (https://broker:8443), whose"
            " brokers load the topics that they are asked about; URL of its metadata store"
            " (zk://host:2181,other:2181/chroot or oxia://host:6648/namespace), which needs no"
            " broker and has no schemas; a folder with a folder for each topic"
            " (managed-ledger-info.bin, or internal-info.json and internal-stats.json;"
            " schemas-rest.json); or a catalog snapshot (….json.gz). It determines which ledgers a"
            " topic has, and contains the schema. By default, only the bucket is read.",
            scope="place",
        ),
    )
    metadata_options: Mapping[str, object] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BY_NAME,
            "Options of the source of metadata. Of an admin API: token, token_file, ca_file,"
            " cert_file, key_file, verify_hostname, namespaces and timeout_s. Of ZooKeeper:"
            " username, password, sasl, tls, ca_file, cert_file, key_file, verify_hostname and"
            " timeout_s. Of Oxia: token, token_file, tls, ca_file, cert_file, key_file and"
            " timeout_s. Of folders and catalog snapshots: those of their fsspec file system.",
            scope="place",
            is_secret=True,
        ),
    )
    buckets: Mapping[str, str] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.URLS_BY_NAME,
            "URLs of additional buckets with ledgers of these topics, by their names in the"
            " metadata. A bucket that is not listed here is looked up by its own name, in the same"
            " store. The filesystem driver has base paths (storageBasePath) in place of names.",
            scope="place",
        ),
    )
    start: Bound | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BOUND,
            "First message, inclusive: a publish time (ISO 8601; UTC unless it has an offset), or a"
            " message id, (ledger,entry[,batch]) or as Pulsar prints it (ledger:entry).",
        ),
    )
    end: Bound | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BOUND, "End, exclusive, in the same forms as start, and not before it."
        ),
    )
    columns: Sequence[str] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.NAMES,
            "Names of columns: those of the schema, * for the default ones, and any of"
            f" {', '.join(COLUMN_NAMES)}.",
        ),
    )
    schema: SchemaSource | TopicSchema | None = field(
        default=None,
        metadata=option_metadata(
            kinds.SOURCE,
            "Schema that values are decoded with: a file or folder with responses of Pulsar's admin"
            " API or CLI, an Avro schema, a protobuf descriptor set (FILE#Message), JSON text, or"
            " the name of a type (STRING). Or confluent:URL#SUBJECT, if messages have ids of a"
            " Confluent schema registry; its saved answers, in a file or folder, may take the place"
            " of the URL. By default, the schema in the metadata. Without a schema, values are"
            " bytes.",
        ),
    )
    schema_options: Mapping[str, object] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BY_NAME,
            "Options of the schema registry: username and password, or token or token_file; and"
            " ca_file, cert_file, key_file, verify_hostname and timeout_s.",
            is_secret=True,
        ),
    )
    schema_version: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.VERSION,
            "Version of the schema, or of the registry's subject, that defines the columns; values"
            " of other versions are resolved to it. By default, the newest.",
        ),
    )
    value: ValueShape = field(
        default="flat",
        metadata=option_metadata(
            kinds.one_of(ValueShape),
            "Shape of values: flat, a column for each field of a record; struct, one column"
            " __value__; raw, the undecoded bytes as __value__.",
        ),
    )
    unwrap: Unwrapping = field(
        default="none",
        metadata=option_metadata(
            kinds.one_of(Unwrapping),
            "Whether values are envelopes to be unwrapped: none, columns are those of the schema;"
            " debezium, values are change events of Debezium, and columns are those of the changed"
            " row, and __op, __deleted and __source_ts.",
        ),
    )
    time_unit: TimeUnit = field(
        default="ns",
        metadata=option_metadata(
            kinds.one_of(TimeUnit),
            "Unit of columns whose Pulsar type counts nanoseconds. A value that the unit cannot"
            " hold exactly is an error.",
        ),
    )
    naming: Naming = field(
        default="pulsar-sql",
        metadata=option_metadata(
            kinds.one_of(Naming), "Names of columns: Pulsar SQL's, or pulsar-spark's."
        ),
    )
    transactions: Transactions = field(
        default="committed",
        metadata=option_metadata(
            kinds.one_of(Transactions),
            "Which messages of transactions are read: committed, as a consumer receives them; all,"
            " including those of aborted and open transactions.",
        ),
    )
    on_corruption: OnCorruption = field(
        default="raise",
        metadata=option_metadata(
            kinds.one_of(OnCorruption),
            "How damage is handled: raise, it is an error; salvage, it is counted and left out, and"
            " the intact data around it is read.",
        ),
    )
    verify_checksums: bool = field(
        default=True,
        metadata=option_metadata(
            kinds.FLAG,
            "Whether to compare the CRC32C of each entry. A scan of positions only, such as a"
            " count of rows, never does.",
        ),
    )
    range_bytes: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.COUNT,
            "Maximum size of one range request for data. By default 1 MiB at first, and up to 3 MiB"
            " in a long read.",
            unit="bytes",
            scope="catalog",
        ),
    )
    index_cache: bool = field(
        default=True,
        metadata=option_metadata(
            kinds.FLAG,
            "Whether index objects of S3, GCS, Azure and OSS, which never change, are kept in files"
            " of this computer and not read again. The environment variable"
            " PULSAR_OFFLOAD_INDEX_CACHE=0 turns this off everywhere.",
            scope="catalog",
        ),
    )
    batch_rows: int = field(
        default=BATCH_ROWS,
        metadata=option_metadata(
            kinds.COUNT, "Maximum number of rows in a record batch.", unit="rows"
        ),
    )
    batch_bytes: int = field(
        default=BATCH_BYTES,
        metadata=option_metadata(
            kinds.COUNT,
            "Bytes of entries, and of data decompressed or decrypted from them, after which a"
            " record batch ends. Any other entry counts twice if its payload is read.",
            unit="bytes",
        ),
    )
    decryption_keys: KeySource | None = field(
        default=None,
        metadata=option_metadata(
            kinds.SOURCE,
            "Private keys for encrypted messages: a PEM file, or a folder of them, in which the"
            " file NAME.pem or NAME-priv.pem is the key NAME.",
            is_secret=True,
        ),
    )
    statistics: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.FOLDER,
            "Folder or URL of statistics written by analyze, opened with the options of the bucket."
            " Zones that provably hold no matching row are pruned; the rows are the same."
            " Statistics that are damaged, or of other versions of the objects, are not used. By"
            " default, those that the catalog snapshot names.",
        ),
    )
    clock_slack: str | None = field(
        default=None,
        metadata=option_metadata(
            kinds.DURATION,
            "Your guarantee that each message's publish time, by its producer's clock, is at most"
            " this much (90s, 10m, 1d) outside of the time in which its ledger was written. With"
            " metadata, bounds and filters of publish time then prune ledgers. If the guarantee"
            " does not hold, rows are missing.",
        ),
    )
    view: Rows = field(
        default="all",
        metadata=option_metadata(
            kinds.one_of(Rows),
            "Which messages are read: all; or latest, the last message within the bounds for each"
            " key of a topic partition or scalable topic, as after Pulsar's compaction. Filters are"
            " applied to those."
            " The first read then reads the keys of all messages.",
        ),
    )
    view_bytes: int = field(
        default=200 << 20,
        metadata=option_metadata(
            kinds.COUNT,
            "Maximum memory for the keys of the latest messages; the rest goes to temporary files.",
            unit="bytes",
        ),
    )
    segments: SegmentSelection = field(
        default="current",
        metadata=option_metadata(
            kinds.one_of(SegmentSelection),
            "Which segments of scalable topics are read: current, those that the metadata names;"
            " all, also those in the bucket that it does not name, because the cluster pruned them."
            " Without metadata, all.",
        ),
    )
    live: str | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BROKERS,
            "URL of the topics' brokers (pulsar://host:6650, pulsar+ssl://host:6651). Rows after"
            " the last offloaded entry are read from them, up to the last message that exists now."
            " With metadata, so are ledgers that an offload left out, and topics of which nothing"
            " is offloaded.",
        ),
    )
    live_options: Mapping[str, object] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BY_NAME,
            "Options of the brokers: token, token_file, ca_file, cert_file, key_file,"
            " verify_hostname, timeout_s, listener and log_file.",
            is_secret=True,
        ),
    )
    lake: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.FOLDER,
            "Table that the topics are copied to (copy): its folder or URL, or the name"
            " namespace.table of an Iceberg table. Rows that were copied are read from the table's"
            " files, later ones from the bucket, and each is returned once. If the table lacks a"
            " requested column, all rows are read from the bucket, with a warning. By default,"
            " message columns are those of the table. Its rows come first, in any order.",
        ),
    )
    lake_options: Mapping[str, object] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BY_NAME,
            "Options of the table: format (delta, iceberg or parquet; by default delta);"
            " storage_options, those of its folder's fsspec file system, by default the bucket's if"
            " both URLs have the same scheme; and the table options of copy: of Iceberg, the"
            " catalog's properties, and its name as catalog.",
            is_secret=True,
        ),
    )
    trace: RequestTrace | None = field(default=None, metadata=TRACE)

    def __post_init__(self) -> None:
        """Hide possible secrets, and check each value."""
        for name, option in OPTIONS.items():
            value = option.hide(getattr(self, name))
            object.__setattr__(self, name, value)
            option.check(value)

    def catalog_options(self) -> dict[str, Any]:
        """Return the options that `open_catalog` takes, by name, unless they have defaults."""
        return self._non_default_options(is_fixed_by_catalog=True)

    def reading_options(self) -> dict[str, Any]:
        """Return the options that a catalog does not fix, by name, unless they have defaults."""
        return self._non_default_options(is_fixed_by_catalog=False)

    def _non_default_options(self, *, is_fixed_by_catalog: bool) -> dict[str, Any]:
        values = {
            name: getattr(self, name)
            for name, option in OPTIONS.items()
            if option.is_fixed_by_catalog == is_fixed_by_catalog
        }
        return {
            name: each for name, each in values.items() if OPTIONS[name].differs_from_default(each)
        }


OPTIONS: Final = options_of(TopicRequest)
"""Every option of `open_topic`, by name."""

DECODING_OPTIONS: Final = (
    "storage_options",
    "columns",
    "schema",
    "schema_options",
    "schema_version",
    "value",
    "time_unit",
    "naming",
)
"""Options that define how values are decoded, and which columns they become."""

FIXED_BY_REPLAY: Final = (
    "columns",
    "schema_options",
    "value",
    "unwrap",
    "time_unit",
    "naming",
    "transactions",
    "view",
    "view_bytes",
    "live",
    "live_options",
    "lake",
    "lake_options",
)
"""Options that a replay fixes: it sends all committed, offloaded messages unchanged."""


def check_options(values: Mapping[str, object]) -> None:
    """Check values of options, each on its own.

    Raises:
        OptionError: There is no option of that name, or its value is not allowed.

    Example:
        >>> check_options({"value": "struct", "batch_rows": 500, "catalog": None})
    """
    for name, value in values.items():
        if name not in OPTIONS:
            message = f"there is no option {name!r}; the options are url, {', '.join(OPTIONS)}"
            raise OptionError(message)
        OPTIONS[name].check(value)


def check_with_catalog(url: str, request: TopicRequest) -> None:
    """Check that a request does not conflict with its catalog; do nothing if it has none.

    Raises:
        OptionError: The catalog was opened for another URL; or the request sets options that the
            catalog fixes.
    """
    if request.catalog is None:
        return
    check_place(url, request.catalog)
    fixed = [option_name(name) for name, value in request.catalog_options().items() if value != {}]
    if fixed:
        message = (
            f"{' and '.join(fixed)} cannot be combined with catalog: pass"
            f" {'it' if len(fixed) == 1 else 'them'} to open_catalog instead"
        )
        raise OptionError(message)


def check_place(url: str, catalog: kinds.OpenedCatalog) -> None:
    """Check that a URL is the one that a catalog was opened for.

    Raises:
        OptionError: It is another one, or it is not a URL.
    """
    own = catalog.location
    location = replace(own, url=url)
    if _place(location.url) != _place(own.url):
        message = f"the URL is {location}, but the catalog was opened for {own}: pass its URL"
        raise OptionError(message)


def _place(url: str) -> tuple[str, str]:
    """Return the kind of store and the path in it; a trailing slash does not matter."""
    scheme, _, path = url.rpartition("://")
    is_local = scheme in {"file", "local"}
    return "" if is_local else store_kind(url) or scheme, path.rstrip("/")
