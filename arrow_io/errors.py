"""The errors that this project raises, all derived from one base class.

Each class also inherits the builtin error that a caller would already catch: a missing object is a
`FileNotFoundError`, malformed bytes are a `ValueError`. Each error carries its location (object,
ledger, entry, offset) as attributes, and can be pickled, because Spark sends errors between
processes.
"""

from __future__ import annotations

from typing import Any, Self


class PulsarOffloadError(Exception):
    """Base of all errors of this project.

    Args:
        message: What went wrong, without the location, which `str` appends from the other
            arguments.
        object_key: Key of the object in the bucket.
        ledger_id: BookKeeper ledger id.
        entry_id: Entry id within the ledger.
        offset: Byte offset within the object.
        batch_index: 0-based position of the message in its batch.
    """

    def __init__(
        self,
        message: str,
        *,
        object_key: str | None = None,
        ledger_id: int | None = None,
        entry_id: int | None = None,
        offset: int | None = None,
        batch_index: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.object_key = object_key
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.offset = offset
        self.batch_index = batch_index

    def __str__(self) -> str:
        """Return the message, followed by the location if it is known."""
        location = ", ".join(
            f"{name} {value}"
            for name, value in (
                ("object", self.object_key),
                ("ledger", self.ledger_id),
                ("entry", self.entry_id),
                ("batch index", self.batch_index),
                ("offset", self.offset),
            )
            if value is not None
        )
        return f"{self.message} ({location})" if location else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild without `__init__`: pickle would not pass its keyword-only arguments."""
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))

    def located(self, **location: str | int | None) -> Self:
        """Fill in the parts of the location that are still unknown, and return the error itself."""
        for name, value in location.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self


def _rebuild(
    cls: type[PulsarOffloadError], args: tuple[object, ...], state: dict[str, object]
) -> PulsarOffloadError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class OptionError(PulsarOffloadError, ValueError):
    """An option or argument that is unknown or has a value that is not allowed."""


class TopicNotFoundError(PulsarOffloadError, LookupError):
    """A topic to which no offloaded ledger in the bucket belongs."""


class StorageError(PulsarOffloadError, OSError):
    """A request that the object store refused, or that failed in its last attempt too."""


class BrokerError(PulsarOffloadError, ConnectionError):
    """A broker that cannot be reached, refuses a request, or sends nothing for too long."""


class TrimmedEntriesError(PulsarOffloadError, LookupError):
    """Entries that a cluster deleted while they were being read."""


class ObjectChangedError(StorageError):
    """An object that was replaced after it was listed or first read; do not trust its rows."""


class MissingObjectError(PulsarOffloadError, FileNotFoundError):
    """An object that must exist, such as an index or data object, and is not in the bucket."""


class EntryNotInLedgerError(PulsarOffloadError, IndexError):
    """A requested entry id outside `0 … last_entry_id` (inclusive) of the ledger."""


class FormatError(PulsarOffloadError, ValueError):
    """Bytes that violate the format of PIP-17, of PIP-76, of an entry or of a message."""


class UnknownFormatError(FormatError):
    """An object in a format that is not known: an unknown magic, a draft, another version."""


class UnsupportedFormatError(UnknownFormatError, NotImplementedError):
    """Well-formed data that this version cannot read."""


class TruncatedObjectError(FormatError, EOFError):
    """An object that ends before the length that its index object records."""


class CorruptIndexError(FormatError):
    """An index object whose fields contradict each other or its size."""


class CorruptMetadataError(FormatError):
    """A cluster's metadata of a topic's ledgers, malformed or contradicting itself."""


class CorruptBlockError(FormatError):
    """A data block whose header, entry lengths or entry ids contradict the index object."""


class EntryOrderError(FormatError):
    """An entry whose broker index is lower than an earlier entry's; indexes must rise."""


class CorruptSnapshotError(FormatError):
    """A catalog snapshot that cannot be read."""


class CorruptStatisticsError(FormatError):
    """A statistics file whose bytes are not those that were written."""


class CorruptProgressError(FormatError):
    """Stored progress (how far topics were read) that cannot be read."""


class MissingEntriesError(FormatError, LookupError):
    """Entries that the ledger must have and that are not in its data object."""


class CorruptEntryError(FormatError):
    """An entry whose frame, message metadata, batch or payload cannot be decoded."""


class ChecksumError(CorruptEntryError):
    """An entry whose CRC32C differs from the stored one."""


class EncryptedPayloadError(PulsarOffloadError, PermissionError):
    """A payload encrypted with keys that were not provided; the message names the keys."""


class DecryptionError(CorruptEntryError):
    """An encrypted entry whose data key the private key cannot unwrap, or that is not authentic."""


class SchemaError(PulsarOffloadError, ValueError):
    """A schema that cannot be read, or that Arrow columns cannot represent."""


class UnknownSchemaVersionError(PulsarOffloadError, LookupError):
    """A message with an unknown schema version or schema id; the error message names it."""


class PayloadDecodeError(FormatError):
    """A payload that does not match its schema.

    Args:
        message: The problem, without the field.
        field_path: Path of the field, outermost name first, separated by dots; `[]` is an item of
            an array or map. Empty for the payload as a whole.
        location: See `PulsarOffloadError`.
    """

    def __init__(self, message: str, *, field_path: str = "", **location: Any) -> None:  # noqa: ANN401
        super().__init__(f"{field_path}: {message}" if field_path else message, **location)
        self.field_path = field_path


class LateLedgerError(PulsarOffloadError, LookupError):
    """A ledger that was found after the topic had been read past it; its rows were not returned."""


class OpenTransactionError(PulsarOffloadError, BlockingIOError):
    """New messages whose transaction is not committed or aborted yet; try again later."""


class EntryTooLargeError(PulsarOffloadError, ValueError):
    """An entry that is too large for a data block of the chosen size."""


class LakeTableError(PulsarOffloadError, ValueError):
    """A lake table cannot be read, or cannot take the columns, files or progress of a copy."""


class ConcurrentCopyError(PulsarOffloadError, RuntimeError):
    """A copy whose table another run changed meanwhile; this run's rows are not in the table."""


class IncompleteReadWarning(UserWarning):
    """A read left out or replaced data; `ReadMetrics.notices` says what."""


class UnusedStatisticsWarning(UserWarning):
    """Some statistics cannot be used or written; the rows are the same without them."""


class UnusedTableWarning(UserWarning):
    """A lake table (`lake`) cannot be used; all rows are read from the bucket instead."""


class UnsearchedFoldersWarning(UserWarning):
    """A bucket has folders that were not searched for MapFiles: too many, or not permitted."""


class UncompiledCoreWarning(RuntimeWarning):
    """The core was not compiled when the package was installed, so reads are slow."""


class UndecodedValuesWarning(UserWarning):
    """A topic was opened without a schema, so its values are returned as bytes."""
