"""The table of options: what each is called, what it may be, and what it means.

Python, DuckDB, Spark and the command line are spellings of it. A field here and a parameter of
`open_topic` make an option; every surface takes it, and the text of its help, from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import BATCH_BYTES, BATCH_ROWS
from arrow_io.errors import OptionError
from arrow_io.messages.column_names import COLUMN_NAMES, Naming
from arrow_io.storage.store_kinds import store_kind
from connector.options import kinds
from connector.options.option import STORAGE_OPTIONS, TRACE, described, options_of

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
TimeUnit: TypeAlias = Literal["ns", "us"]
Transactions: TypeAlias = Literal["committed", "all"]
OnCorruption: TypeAlias = Literal["raise", "salvage"]
Rows: TypeAlias = Literal["all", "latest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRequest:
    """How topics are read: the options of `open_topic`. Shows no secret when it is printed.

    Raises:
        OptionError: A value is not allowed.
    """

    storage_options: Mapping[str, object] | None = field(default=None, metadata=STORAGE_OPTIONS)
    catalog: Catalog | None = field(
        default=None,
        metadata=described(
            kinds.CATALOG,
            "What open_catalog returned for the URL. The topic is opened without another listing,"
            " and by the options of the catalog. DuckDB's statements, Spark and the command line"
            " take a catalog snapshot instead, as metadata.",
            in_python_only="it lives in a Python process; saved, it is given as metadata",
        ),
    )
    metadata: Metadata | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "What the topics' cluster knows: URL of its admin API (https://broker:8443), whose"
            " brokers load the topics that they are asked about; a folder with a folder for each"
            " topic (managed-ledger-info.bin, or internal-info.json and internal-stats.json;"
            " schemas-rest.json); or a catalog snapshot (….json.gz). It decides which ledgers a"
            " topic has, and brings the schema. By default, the bucket alone is read.",
            scope="place",
        ),
    )
    metadata_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME,
            "Options of the source of metadata. Of an admin API: token, token_file, ca_file,"
            " cert_file, key_file, verify_hostname, namespaces and timeout_s. Of folders and"
            " catalog snapshots: those of their fsspec file system.",
            scope="place",
            is_secret=True,
        ),
    )
    buckets: Mapping[str, str] | None = field(
        default=None,
        metadata=described(
            kinds.URLS_BY_NAME,
            "URLs of additional buckets with ledgers of these topics, by the metadata's names for"
            " them. A bucket that is not named here is looked for by its own name, in the same"
            " store.",
            scope="place",
        ),
    )
    start: Bound | None = field(
        default=None,
        metadata=described(
            kinds.BOUND,
            "First message, inclusive: a publish time (ISO 8601; UTC unless it has an offset), or a"
            " message id, (ledger,entry[,batch]) or as Pulsar prints it (ledger:entry).",
        ),
    )
    end: Bound | None = field(
        default=None,
        metadata=described(
            kinds.BOUND, "End, exclusive, in the same forms as start, and not before it."
        ),
    )
    columns: Sequence[str] | None = field(
        default=None,
        metadata=described(
            kinds.NAMES,
            "Names of columns: those of the schema, * for the default ones, and any of"
            f" {', '.join(COLUMN_NAMES)}.",
        ),
    )
    schema: SchemaSource | TopicSchema | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "What values are decoded by: a file or folder of answers of Pulsar's admin API or CLI,"
            " an Avro schema, a protobuf descriptor set (FILE#Message), JSON text, or the name of a"
            " type (STRING). By default, the schema in the metadata. Without a schema, values are"
            " bytes.",
        ),
    )
    schema_version: int | None = field(
        default=None,
        metadata=described(
            kinds.VERSION,
            "Version of the schema that gives the columns; values of other versions are resolved to"
            " it. By default, the newest.",
        ),
    )
    value: ValueShape = field(
        default="flat",
        metadata=described(
            kinds.one_of(ValueShape),
            "Shape of values: flat, a column for each field of a record; struct, one column"
            " __value__; raw, the undecoded bytes as __value__.",
        ),
    )
    time_unit: TimeUnit = field(
        default="ns",
        metadata=described(
            kinds.one_of(TimeUnit),
            "Unit of columns whose Pulsar type counts nanoseconds. A value that the unit cannot"
            " hold exactly is an error.",
        ),
    )
    naming: Naming = field(
        default="pulsar-sql",
        metadata=described(
            kinds.one_of(Naming), "Names of columns: Pulsar SQL's, or pulsar-spark's."
        ),
    )
    transactions: Transactions = field(
        default="committed",
        metadata=described(
            kinds.one_of(Transactions),
            "Which messages of transactions are read: committed, as a consumer receives them; all,"
            " those of aborted and open transactions too.",
        ),
    )
    on_corruption: OnCorruption = field(
        default="raise",
        metadata=described(
            kinds.one_of(OnCorruption),
            "What damage does: raise, it is an error; salvage, it is counted and left out, and what"
            " is sound around it is read.",
        ),
    )
    verify_checksums: bool = field(
        default=True,
        metadata=described(
            kinds.FLAG,
            "Whether to compare the CRC32C of each entry. A scan of positions alone, such as a"
            " count of rows, never does.",
        ),
    )
    range_bytes: int | None = field(
        default=None,
        metadata=described(
            kinds.COUNT,
            "Maximum size of one range request for data. By default 1 MiB at first, and up to 3 MiB"
            " in a long read.",
            unit="bytes",
            scope="catalog",
        ),
    )
    batch_rows: int = field(
        default=BATCH_ROWS,
        metadata=described(kinds.COUNT, "Maximum number of rows in a record batch.", unit="rows"),
    )
    batch_bytes: int = field(
        default=BATCH_BYTES,
        metadata=described(
            kinds.COUNT,
            "Bytes of entries, and of what is decompressed or decrypted from them, after which a"
            " record batch ends. Any other entry counts twice if its payload is read.",
            unit="bytes",
        ),
    )
    decryption_keys: KeySource | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "Private keys for encrypted messages: a PEM file, or a folder of them, in which the"
            " file NAME.pem or NAME-priv.pem is the key NAME.",
            is_secret=True,
        ),
    )
    statistics: str | os.PathLike[str] | None = field(
        default=None,
        metadata=described(
            kinds.FOLDER,
            "Folder or URL of statistics, which analyze writes, reached by the options of the"
            " bucket. Data that they prove to hold no matching row is not read; the rows are the"
            " same. Statistics that are damaged, or of other versions of the objects, are not used."
            " By default, those that the catalog snapshot names.",
        ),
    )
    clock_slack: str | None = field(
        default=None,
        metadata=described(
            kinds.DURATION,
            "Your word that no message was published, by its producer's clock, further than this"
            " (90s, 10m, 1d) outside of the time in which its ledger was written. Ledgers that"
            " bounds or filters of publish time then rule out are not read, if there is metadata."
            " If it is not so, rows are missing.",
        ),
    )
    view: Rows = field(
        default="all",
        metadata=described(
            kinds.one_of(Rows),
            "Which messages are read: all; or latest, of each key of a topic partition the last one"
            " within the bounds, as after Pulsar's compaction. Filters are applied to those. The"
            " first read then reads the keys of all messages.",
        ),
    )
    view_bytes: int = field(
        default=200 << 20,
        metadata=described(
            kinds.COUNT,
            "Maximum memory for the keys of the latest messages; the rest goes to temporary files.",
            unit="bytes",
        ),
    )
    live: str | None = field(
        default=None,
        metadata=described(
            kinds.BROKERS,
            "URL of the topics' brokers (pulsar://host:6650, pulsar+ssl://host:6651). Rows after"
            " the last offloaded entry are read from them, up to the last message that exists now."
            " With metadata, so are ledgers that an offload left out, and topics of which nothing"
            " is offloaded.",
        ),
    )
    live_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME,
            "Options of the brokers: token, token_file, ca_file, cert_file, key_file,"
            " verify_hostname, timeout_s, listener and log_file.",
            is_secret=True,
        ),
    )
    trace: RequestTrace | None = field(default=None, metadata=TRACE)

    def __post_init__(self) -> None:
        """Hide what may be a secret, and check each value."""
        for name, option in OPTIONS.items():
            value = option.hide(getattr(self, name))
            object.__setattr__(self, name, value)
            option.check(value)

    def catalog_options(self) -> dict[str, Any]:
        """Return the options that `open_catalog` takes, by name, unless they have defaults."""
        return self._changed(is_fixed_by_catalog=True)

    def reading_options(self) -> dict[str, Any]:
        """Return the options that a catalog does not fix, by name, unless they have defaults."""
        return self._changed(is_fixed_by_catalog=False)

    def _changed(self, *, is_fixed_by_catalog: bool) -> dict[str, Any]:
        values = {
            name: getattr(self, name)
            for name, option in OPTIONS.items()
            if option.is_fixed_by_catalog == is_fixed_by_catalog
        }
        return {name: each for name, each in values.items() if OPTIONS[name].is_given(each)}


OPTIONS: Final = options_of(TopicRequest)
"""Every option of `open_topic`, by name."""

FIXED_BY_REPLAY: Final = (
    "columns",
    "value",
    "time_unit",
    "naming",
    "transactions",
    "view",
    "view_bytes",
    "live",
    "live_options",
)
"""Those that a replay fixes: all committed messages that are offloaded are sent as they are."""


def check_options(values: Mapping[str, object]) -> None:
    """Refuse values of options that no other option could make right.

    Args:
        values: Values by name.

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
    """Refuse what does not go with the catalog of a request; does nothing if it has none.

    Raises:
        OptionError: The catalog is that of another place; or options are given that it fixes.
    """
    if request.catalog is None:
        return
    check_place(url, request.catalog)
    fixed = [option_name(name) for name, value in request.catalog_options().items() if value != {}]
    if fixed:
        message = (
            f"{' and '.join(fixed)} {'is' if len(fixed) == 1 else 'are'} for open_catalog if"
            " catalog is given: a catalog has its own"
        )
        raise OptionError(message)


def check_place(url: str, catalog: kinds.OpenedCatalog) -> None:
    """Refuse a URL that leads to another place than a catalog was opened for.

    Raises:
        OptionError: It does; or it is not a URL.
    """
    own = catalog.location
    location = replace(own, url=url)
    if _place(location.url) != _place(own.url):
        message = f"the URL is {location}, and the catalog was opened for {own}: give one place"
        raise OptionError(message)


def _place(url: str) -> tuple[str, str]:
    """The kind of store, and the path in it; a slash at the end makes no other place."""
    scheme, _, path = url.rpartition("://")
    is_local = scheme in {"file", "local"}
    return "" if is_local else store_kind(url) or scheme, path.rstrip("/")
