"""The table of options: what each is called, what it may be, and what it means.

Python, DuckDB, Spark and the command line are spellings of it. A field here, a parameter of
`open_topic` and a line of the README make an option; every surface takes it from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from arrow_io.column_names import COLUMN_NAMES, Naming
from arrow_io.errors import OptionError
from arrow_io.option_names import option_name
from arrow_io.option_values import BATCH_BYTES, BATCH_ROWS
from arrow_io.storage.store_kinds import store_kind
from connector.options import kinds
from connector.options.option import described, options_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.trace import RequestTrace
    from connector.bounds import Bound
    from connector.catalog.catalog import Catalog
    from connector.catalog.catalog_options import Metadata
    from connector.catalog.schemas.loading import SchemaSource
    from connector.decryption_keys import KeySource

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

    storage_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME,
            "Option of the fsspec file system. Dots nest (client_kwargs.region_name=…). A value"
            " that is JSON is taken as JSON; a number that is text may need quotes"
            " (key='\"12\"'). What s3fs finds in the environment need not be given.",
            scope="place",
            is_secret=True,
        ),
    )
    catalog: Catalog | None = field(
        default=None,
        metadata=described(
            kinds.CATALOG,
            "What open_catalog gave for the URL, to spare the requests.",
            in_python_only="it lives in a Python process; saved, it is given as metadata",
        ),
    )
    metadata: Metadata | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "What the topics' cluster knows: URL of the admin API, whose brokers load the topics"
            " that they are asked about; a folder with a folder for each topic"
            " (managed-ledger-info.bin, or internal-info.json and internal-stats.json); or a saved"
            " catalog (….json.gz).",
            scope="place",
        ),
    )
    metadata_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME,
            "Option of the source of metadata, such as token_file.",
            scope="place",
            is_secret=True,
        ),
    )
    buckets: Mapping[str, str] | None = field(
        default=None,
        metadata=described(
            kinds.URLS_BY_NAME,
            "URL of a further bucket that ledgers were written to, by the name that the metadata"
            " has for it.",
            scope="place",
        ),
    )
    start: Bound | None = field(
        default=None,
        metadata=described(
            kinds.BOUND,
            "First message, inclusive: publish time (ISO 8601; UTC) or id (ledger:entry).",
        ),
    )
    end: Bound | None = field(
        default=None,
        metadata=described(kinds.BOUND, "Behind the last message, exclusive; likewise."),
    )
    columns: Sequence[str] | None = field(
        default=None,
        metadata=described(
            kinds.NAMES,
            "Columns to give: those that the schema has, * for the default ones, and any of"
            f" {', '.join(COLUMN_NAMES)}.",
        ),
    )
    schema: SchemaSource | TopicSchema | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "What values are decoded by: a file or folder of what Pulsar's admin API or CLI gives,"
            " an Avro schema, a protobuf descriptor set (FILE#Message), JSON text, or the name of a"
            " type (STRING). By default the schema that the metadata has; without any, values are"
            " bytes.",
        ),
    )
    schema_version: int | None = field(
        default=None,
        metadata=described(
            kinds.VERSION, "Version of the schema that gives the columns; else the newest."
        ),
    )
    value: ValueShape = field(
        default="flat",
        metadata=described(
            kinds.one_of(ValueShape),
            "What is given of a value: flat, a column for each field; struct, one column for all;"
            " raw, the bytes.",
        ),
    )
    time_unit: TimeUnit = field(
        default="ns",
        metadata=described(kinds.one_of(TimeUnit), "Unit of times whose type counts nanoseconds."),
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
            "Whether messages of aborted and open transactions are left out (committed), or given"
            " too (all).",
        ),
    )
    on_corruption: OnCorruption = field(
        default="raise",
        metadata=described(
            kinds.one_of(OnCorruption), "Whether damage is an error, or left out and told."
        ),
    )
    verify_checksums: bool = field(
        default=True,
        metadata=described(kinds.FLAG, "Whether the CRC32C of each entry is compared."),
    )
    range_bytes: int | None = field(
        default=None,
        metadata=described(
            kinds.COUNT,
            "Most bytes that one request for data asks for; by default 1 MiB, later 3.",
            unit="bytes",
            scope="catalog",
        ),
    )
    batch_rows: int = field(
        default=BATCH_ROWS,
        metadata=described(kinds.COUNT, "Most rows of a record batch.", unit="rows"),
    )
    batch_bytes: int = field(
        default=BATCH_BYTES,
        metadata=described(
            kinds.COUNT,
            "Bytes of entries, and of what is made of them, after which a record batch is given.",
            unit="bytes",
        ),
    )
    decryption_keys: KeySource | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "Private key for encrypted messages, a PEM file; or a folder of them, where a file"
            " NAME.pem or NAME-priv.pem is the key NAME.",
            is_secret=True,
        ),
    )
    statistics: str | os.PathLike[str] | None = field(
        default=None,
        metadata=described(
            kinds.FOLDER,
            "Folder of statistics (analyze): what they show that nobody asked for is not read.",
        ),
    )
    clock_slack: str | None = field(
        default=None,
        metadata=described(
            kinds.DURATION,
            "Your word that no message was published further than this (10m) outside of the time in"
            " which its ledger was written: then times spare whole ledgers, if there is metadata.",
        ),
    )
    view: Rows = field(
        default="all",
        metadata=described(
            kinds.one_of(Rows),
            "Which messages are given: all, or of each key the latest, as from Pulsar's"
            " compaction. Topics are then read twice.",
        ),
    )
    view_bytes: int = field(
        default=200 << 20,
        metadata=described(
            kinds.COUNT,
            "Bytes of memory for the keys of view=latest; what is more goes to files.",
            unit="bytes",
        ),
    )
    live: str | None = field(
        default=None,
        metadata=described(
            kinds.BROKERS,
            "URL of the topics' brokers (pulsar://host:6650): rows behind the last offloaded entry"
            " are read of them, up to the last message there is.",
        ),
    )
    live_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME,
            "Option of the brokers, such as token_file.",
            is_secret=True,
        ),
    )
    trace: RequestTrace | None = field(
        default=None,
        metadata=described(
            kinds.TRACE,
            "Counts the requests.",
            scope="catalog",
            in_python_only="it is an object that is asked later",
        ),
    )

    def __post_init__(self) -> None:
        """Hide what may be a secret, and check each value."""
        for name, option in OPTIONS.items():
            value = option.hide(getattr(self, name))
            object.__setattr__(self, name, value)
            option.check(value)

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Self:
        """Make a request of a function's arguments by name; ignore those that are no options.

        Raises:
            OptionError: A value is not allowed.
        """
        return cls(**{name: each for name, each in arguments.items() if name in OPTIONS})

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

NOT_OF_REPLAYS: Final = (
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


def check_options(given: Mapping[str, object]) -> None:
    """Refuse values of options that no other option could make right.

    Args:
        given: Values by name.

    Raises:
        OptionError: There is no option of that name, or its value is not allowed.

    Example:
        >>> check_options({"value": "struct", "batch_rows": 500, "catalog": None})
    """
    for name, value in given.items():
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
    wanted = replace(own, url=url)
    if _place(wanted.url) != _place(own.url):
        message = f"the URL is {wanted}, and the catalog was opened for {own}: give one place"
        raise OptionError(message)


def _place(url: str) -> tuple[str, str]:
    """The kind of store, and the path in it; a slash at the end makes no other place."""
    scheme, _, path = url.rpartition("://")
    is_local = scheme in {"file", "local"}
    return "" if is_local else store_kind(url) or scheme, path.rstrip("/")
