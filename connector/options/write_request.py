"""The table of options of writing: `write_messages`, the command `write` and Spark spell them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from arrow_io.errors import OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.ledger_writer import DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, MIN_BLOCK_BYTES
from arrow_io.messages.entry_writer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_MESSAGES,
    DEFAULT_MAX_MESSAGE_BYTES,
    MAX_ENTRY_BYTES,
    MIN_MAX_MESSAGE_BYTES,
)
from arrow_io.option_names import option_name
from arrow_io.option_values import check_one_of
from connector.options import kinds
from connector.options.kinds import Kind
from connector.options.option import described, options_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.schemas.loading import SchemaSource

Compression: TypeAlias = Literal["none", "lz4", "zlib", "zstd", "snappy"]

DEFAULT_LEDGER_ENTRIES: Final = 1_000_000
"""So many that bytes decide, unless messages are tiny. A broker's default is 50,000, but it writes
to a ledger for `managedLedgerMinLedgerRolloverTimeMinutes` (10), whatever number that makes."""
DEFAULT_LEDGER_BYTES: Final = 256 << 20
"""Less than a broker's `managedLedgerMaxSizePerLedgerMbytes`, since so much is kept aside."""
MAX_PARTITIONS: Final = 500

_MAX_COUNT: Final = 2**31 - 1
_MAX_LIMIT: Final = 2**63 - 1
_WRITE_ID_TEXT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def _check_write_id(option: str, value: object) -> None:
    if not isinstance(value, str) or not _WRITE_ID_TEXT.fullmatch(value):
        message = (
            f"{option_name(option)} must be at most 200 letters, digits, dots, hyphens and"
            f" underscores, and begin with a letter or digit, not {value!r}"
        )
        raise OptionError(message)


def _check_codec(option: str, value: object) -> None:
    check_one_of(_CODECS, option, value.lower() if isinstance(value, str) else value)


_CODECS: Final = get_args(Compression)
_CODEC: Final = Kind(
    form="|".join(_CODECS), check=_check_codec, read=kinds.read_text, allowed=_CODECS, is_text=True
)
_WRITE_ID: Final = Kind(form="TEXT", check=_check_write_id, read=kinds.read_text, is_text=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteRequest:
    """How messages are written: the options of `write_messages`, and those of Spark's tasks.

    Shows no secret when it is printed.

    Raises:
        OptionError: A value is not allowed.
    """

    storage_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME,
            "Option of the fsspec file system. Dots nest (client_kwargs.region_name=…). A value"
            " that is JSON is taken as JSON; a number that is text may need quotes"
            " (key='\"12\"').",
            scope="place",
            is_secret=True,
        ),
    )
    schema: SchemaSource | TopicSchema | None = field(
        default=None,
        metadata=described(
            kinds.SOURCE,
            "What values are encoded by and registered with: a file or folder of what Pulsar's"
            " admin API or CLI gives, an Avro schema, JSON text, or the name of a type (STRING)."
            " Values are encoded from __value__ or, of records, from a column to each field, as"
            " `query` gives them; a binary __value__ has the payloads. Without it, __value__ is"
            " bytes or text.",
        ),
    )
    schema_version: int | None = field(
        default=None,
        metadata=described(kinds.VERSION, "Version of the schema that is meant; else the newest."),
    )
    compression: str = field(default="lz4", metadata=described(_CODEC, "Codec of entries."))
    batch_messages: int | None = field(
        default=None,
        metadata=described(
            kinds.whole_number(1, _MAX_COUNT),
            f"Most messages of a batch; 1 makes no batches. By default {DEFAULT_BATCH_MESSAGES}, of"
            " one publish time. If this is given, all messages of a batch take the publish time of"
            " its first.",
        ),
    )
    batch_bytes: int = field(
        default=DEFAULT_BATCH_BYTES,
        metadata=described(
            kinds.whole_number(1, MAX_ENTRY_BYTES),
            "Most bytes of a batch before compression.",
            unit="bytes",
        ),
    )
    batch_delay_ms: int | None = field(
        default=None,
        metadata=described(
            kinds.whole_number(0, _MAX_COUNT),
            "How much later than the first message of a batch the others may be published; they"
            " take its publish time. 0 keeps the publish time of each.",
            unit="ms",
        ),
    )
    max_message_bytes: int = field(
        default=DEFAULT_MAX_MESSAGE_BYTES,
        metadata=described(
            kinds.whole_number(MIN_MAX_MESSAGE_BYTES, MAX_ENTRY_BYTES),
            "Longest entry.",
            unit="bytes",
        ),
    )
    chunking: bool = field(
        default=False, metadata=described(kinds.FLAG, "Store longer messages in chunks.")
    )
    broker_metadata: bool = field(
        default=False,
        metadata=described(
            kinds.FLAG,
            "Number messages as a broker may do.",
            not_in_spark="tasks write at once, and know nothing of the messages before their own",
        ),
    )
    partitions: int | None = field(
        default=None,
        metadata=described(
            kinds.whole_number(1, MAX_PARTITIONS), "Make a partitioned topic, of so many."
        ),
    )
    ledger_entries: int = field(
        default=DEFAULT_LEDGER_ENTRIES,
        metadata=described(kinds.whole_number(1, _MAX_LIMIT), "Most entries of a ledger."),
    )
    ledger_bytes: int = field(
        default=DEFAULT_LEDGER_BYTES,
        metadata=described(
            kinds.whole_number(1, _MAX_LIMIT), "Most bytes of a ledger's entries.", unit="bytes"
        ),
    )
    first_ledger_id: int | None = field(
        default=None,
        metadata=described(
            kinds.whole_number(0, MAX_LEDGER_ID),
            "Id of the first ledger; by default behind those in the bucket. If the topic is to be"
            " attached to a cluster, the ids must be free in its BookKeeper, and below the id of"
            " its next ledger. The cluster loses ledgers of other ids at once, with what is"
            " produced behind them.",
        ),
    )
    append: bool = field(
        default=False,
        metadata=described(
            kinds.FLAG,
            "Write also if the topic has ledgers in the bucket, with as many partitions; sequence"
            " ids and broker indexes start anew. The metadata folder that was written with them is"
            " extended.",
            not_in_spark='mode("append") says it',
        ),
    )
    block_bytes: int = field(
        default=DEFAULT_BLOCK_BYTES,
        metadata=described(
            kinds.whole_number(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES),
            "Length of data blocks.",
            unit="bytes",
        ),
    )
    cluster: str | None = field(
        default=None,
        metadata=described(
            kinds.NAME,
            "Name of the cluster, for the objects' user metadata; with a metadata folder, the id of"
            " the first ledger must be given too.",
        ),
    )
    metadata_folder: str | os.PathLike[str] | None = field(
        default=None,
        metadata=described(
            kinds.FOLDER,
            "Folder that receives what a cluster would know, for who reads by metadata. For a"
            " cluster, choose the id of the first ledger, and write to the root of a bucket.",
        ),
    )
    metadata_options: Mapping[str, object] | None = field(
        default=None,
        metadata=described(
            kinds.BY_NAME, "Option of the fsspec file system of that folder.", is_secret=True
        ),
    )
    write_id: str | None = field(
        default=None,
        metadata=described(
            _WRITE_ID,
            "A name of this write for the topic: what was written under it once is never written"
            " again, so that a job that was cut off, or ended, can be run again.",
        ),
    )
    trace: RequestTrace | None = field(
        default=None,
        metadata=described(
            kinds.TRACE,
            "Counts the requests.",
            in_python_only="it is an object that is asked later",
        ),
    )

    def __post_init__(self) -> None:
        """Hide what may be a secret, and check each value.

        Raises:
            OptionError: A value is not allowed, or does not go with another.
        """
        for name, option in WRITE_OPTIONS.items():
            value = option.hide(getattr(self, name))
            object.__setattr__(self, name, value)
            option.check(value)
        if self.schema is None and self.schema_version is not None:
            message = "schema_version picks one of the versions of a schema: give schema too"
            raise OptionError(message)
        if self.cluster and self.metadata_folder is not None and self.first_ledger_id is None:
            # Let nobody give a cluster's metadata ids that were not chosen for it.
            message = (
                f"metadata for the cluster {self.cluster} needs {option_name('first_ledger_id')},"
                " the first of ids that are free in its BookKeeper and below its next one: a broker"
                " loses ledgers of other ids at once, with what is produced behind them; for"
                f" readers alone, leave {option_name('cluster')} out"
            )
            raise OptionError(message)


WRITE_OPTIONS: Final = options_of(WriteRequest)
"""Every option of `write_messages`, by name."""
