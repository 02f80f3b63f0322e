"""The table of write options, spelled by `write_messages`, the command `write` and Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from arrow_io.core.option_names import option_name
from arrow_io.core.option_values import check_one_of
from arrow_io.errors import OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.ledgers.writer import DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, MIN_BLOCK_BYTES
from arrow_io.messages.entry_writer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_MESSAGES,
    DEFAULT_MAX_MESSAGE_BYTES,
    MAX_ENTRY_BYTES,
    MIN_MAX_MESSAGE_BYTES,
)
from connector.options import kinds
from connector.options.kinds import Kind
from connector.options.option import STORAGE_OPTIONS, TRACE, option_metadata, options_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.schemas.loading import SchemaSource

Compression: TypeAlias = Literal["none", "lz4", "zlib", "zstd", "snappy"]

DEFAULT_LEDGER_ENTRIES: Final = 1_000_000
"""So large that the size limit decides, unless messages are tiny. A broker's default is 50,000, but
it fills a ledger for at least `managedLedgerMinLedgerRolloverTimeMinutes` (10), with any number of
entries."""
DEFAULT_LEDGER_BYTES: Final = 256 << 20
"""Less than a broker's `managedLedgerMaxSizePerLedgerMbytes`, because this much is buffered."""
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
    form="|".join(_CODECS), check=_check_codec, read=kinds.read_text, allowed=_CODECS
)
_WRITE_ID: Final = Kind(form="TEXT", check=_check_write_id, read=kinds.read_text)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteRequest:
    """The options of `write_messages` and of Spark's write tasks. Printing it shows no secret.

    Raises:
        OptionError: A value is not allowed.
    """

    storage_options: Mapping[str, object] | None = field(default=None, metadata=STORAGE_OPTIONS)
    schema: SchemaSource | TopicSchema | None = field(
        default=None,
        metadata=option_metadata(
            kinds.SOURCE,
            "Schema that values are encoded with and that the topic registers, in the same forms"
            " as for a read. Values are encoded from __value__ or, for records, from a column for"
            " each field, as a read returns them; a binary __value__ holds encoded payloads."
            " Without a schema, __value__ is bytes or text.",
        ),
    )
    schema_version: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.VERSION, "Version of the schema to use. By default, the newest."
        ),
    )
    compression: str = field(
        default="lz4", metadata=option_metadata(_CODEC, f"Codec of entries: {', '.join(_CODECS)}.")
    )
    batch_messages: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.whole_number(1, _MAX_COUNT),
            "Maximum number of messages in a batch; 1 disables batches. If it is set, all messages"
            " of a batch take the publish time of its first, and a warning counts those that had"
            f" another. By default {DEFAULT_BATCH_MESSAGES}, and only messages with the same"
            " publish time share a batch.",
        ),
    )
    batch_bytes: int = field(
        default=DEFAULT_BATCH_BYTES,
        metadata=option_metadata(
            kinds.whole_number(1, MAX_ENTRY_BYTES),
            "Maximum size of a batch before compression.",
            unit="bytes",
        ),
    )
    batch_delay_ms: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.whole_number(0, _MAX_COUNT),
            "Maximum delay of a message's publish time after that of its batch's first message, in"
            " milliseconds; all messages of a batch take the publish time of the first. 0 keeps the"
            " publish time of each. By default, batch_messages decides.",
            unit="ms",
        ),
    )
    max_message_bytes: int = field(
        default=DEFAULT_MAX_MESSAGE_BYTES,
        metadata=option_metadata(
            kinds.whole_number(MIN_MAX_MESSAGE_BYTES, MAX_ENTRY_BYTES),
            "Maximum size of an entry, without broker entry metadata.",
            unit="bytes",
        ),
    )
    chunking: bool = field(
        default=False,
        metadata=option_metadata(
            kinds.FLAG, "Store longer messages in chunks, instead of an error."
        ),
    )
    broker_metadata: bool = field(
        default=False,
        metadata=option_metadata(
            kinds.FLAG,
            "Number messages as brokers can: entries have broker entry metadata (PIP-70).",
            not_in_spark="tasks write at once, and do not know the messages before their own",
        ),
    )
    partitions: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.whole_number(1, MAX_PARTITIONS),
            "Number of partitions of a partitioned topic. Keys are hashed as by Pulsar's Java"
            " client. By default, the topic is not partitioned.",
        ),
    )
    ledger_entries: int = field(
        default=DEFAULT_LEDGER_ENTRIES,
        metadata=option_metadata(
            kinds.whole_number(1, _MAX_LIMIT), "Maximum number of entries in a ledger."
        ),
    )
    ledger_bytes: int = field(
        default=DEFAULT_LEDGER_BYTES,
        metadata=option_metadata(
            kinds.whole_number(1, _MAX_LIMIT),
            "Maximum size of a ledger's entries, unless it has only one.",
            unit="bytes",
        ),
    )
    first_ledger_id: int | None = field(
        default=None,
        metadata=option_metadata(
            kinds.whole_number(0, MAX_LEDGER_ID),
            "Id of the first ledger; the others follow. By default, the ids follow the greatest in"
            " the bucket, and the topic cannot be attached to a cluster. To attach it, all ids,"
            " including those of the open ledgers at the end, must be free in the cluster's"
            " BookKeeper, and below the id of its next ledger. The cluster immediately loses"
            " ledgers with other ids, and the messages produced after them.",
        ),
    )
    append: bool = field(
        default=False,
        metadata=option_metadata(
            kinds.FLAG,
            "Write even if the topic has ledgers in the bucket; it must have the same number of"
            " partitions. Sequence ids and broker indexes restart. Metadata of the topic in the"
            " metadata folder is extended.",
            not_in_spark='mode("append") says it',
        ),
    )
    block_bytes: int = field(
        default=DEFAULT_BLOCK_BYTES,
        metadata=option_metadata(
            kinds.whole_number(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES),
            "Length of each data block but the last.",
            unit="bytes",
        ),
    )
    cluster: str | None = field(
        default=None,
        metadata=option_metadata(
            kinds.NAME,
            "Name of the cluster, for the objects' user metadata. With a metadata folder, it"
            " requires the id of the first ledger.",
        ),
    )
    metadata_folder: str | os.PathLike[str] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.FOLDER,
            "Folder or URL that receives the metadata a cluster would record for the topic and for"
            " each partition; a read takes it as metadata. With append, metadata of the topic that"
            " was written there before is extended, completely or not at all. For a cluster,"
            " choose the id of the first ledger, and write to the root of a bucket.",
        ),
    )
    metadata_options: Mapping[str, object] | None = field(
        default=None,
        metadata=option_metadata(
            kinds.BY_NAME, "Options of the fsspec file system of that folder.", is_secret=True
        ),
    )
    write_id: str | None = field(
        default=None,
        metadata=option_metadata(
            _WRITE_ID,
            "A name of this write, unique per topic, that makes it safe to repeat: rows written"
            " under this name, by a complete or an interrupted write, are not written again. A"
            " small object in the folder _writes of the bucket records it.",
        ),
    )
    trace: RequestTrace | None = field(default=None, metadata=TRACE)

    def __post_init__(self) -> None:
        """Hide possible secrets, and check each value.

        Raises:
            OptionError: A value is not allowed, or conflicts with another.
        """
        for name, option in WRITE_OPTIONS.items():
            value = option.hide(getattr(self, name))
            object.__setattr__(self, name, value)
            option.check(value)
        if self.schema is None and self.schema_version is not None:
            message = "schema_version picks one of the versions of a schema: give schema too"
            raise OptionError(message)
        if self.cluster and self.metadata_folder is not None and self.first_ledger_id is None:
            # A cluster's metadata must not contain ids that were not chosen for it.
            message = (
                f"metadata for the cluster {self.cluster} needs {option_name('first_ledger_id')},"
                " the first of ids that are free in its BookKeeper and below its next one: a broker"
                " immediately loses ledgers with other ids, and the messages produced after them;"
                f" for readers alone, leave {option_name('cluster')} out"
            )
            raise OptionError(message)


WRITE_OPTIONS: Final = options_of(WriteRequest)
"""Every option of `write_messages`, by name."""
