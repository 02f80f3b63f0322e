"""Every error that this project raises, below one base.

Each class also inherits the builtin that a caller would already catch (a missing object is a
`FileNotFoundError`, bytes that break the format are a `ValueError`, …), carries where it happened
as attributes, and survives pickling, because Spark sends errors between processes.
"""

from __future__ import annotations

from typing import Any, Self


class PulsarOffloadError(Exception):
    """Base of all errors of this project.

    Args:
        message: What went wrong, in words; without the place, which is appended from the other
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
        """The message, followed by the place if that is known."""
        place = ", ".join(
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
        return f"{self.message} ({place})" if place else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild without `__init__`: pickle would not pass its keyword-only arguments."""
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))

    def located(self, **place: str | int | None) -> Self:
        """Fill in the parts of the place that are still unknown, and return the error itself."""
        for name, value in place.items():
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
    """An option or argument has a value that is not allowed, or is unknown."""


class TopicNotFoundError(PulsarOffloadError, LookupError):
    """No offloaded ledger in the bucket belongs to the topic asked for."""


class StorageError(PulsarOffloadError, OSError):
    """The object store refused a request, or still failed at the last attempt."""


class BrokerError(PulsarOffloadError, ConnectionError):
    """A broker cannot be reached, refuses, or gives nothing for too long."""


class TrimmedEntriesError(PulsarOffloadError, LookupError):
    """A cluster deleted entries of a topic while they were read from it."""


class ObjectChangedError(StorageError):
    """An object was replaced since it was listed or first read; none of its rows can be trusted."""


class MissingObjectError(PulsarOffloadError, FileNotFoundError):
    """An object that must exist (an index, or the data object of one) is not in the bucket."""


class EntryNotInLedgerError(PulsarOffloadError, IndexError):
    """An entry id outside `0 … last_entry_id` (inclusive) of the ledger was asked for."""


class FormatError(PulsarOffloadError, ValueError):
    """Bytes break the format of PIP-17 or PIP-76, of an entry, or of a message."""


class UnknownFormatError(FormatError):
    """The object is of no format that we know: an unknown magic, a draft, another version."""


class UnsupportedFormatError(UnknownFormatError, NotImplementedError):
    """What is there is well-formed, and more than can be read of it."""


class TruncatedObjectError(FormatError, EOFError):
    """An object ends before the length that its index object gives."""


class CorruptIndexError(FormatError):
    """The fields of an index object contradict each other or its size."""


class CorruptMetadataError(FormatError):
    """A cluster's metadata of a topic's ledgers is malformed or contradicts itself."""


class CorruptBlockError(FormatError):
    """The header, entry lengths or entry ids of a data block contradict the index object."""


class EntryOrderError(FormatError):
    """The broker indexes of entries, which rise through a topic, go back."""


class CorruptSnapshotError(FormatError):
    """A catalog snapshot cannot be read."""


class CorruptStatisticsError(FormatError):
    """A file of statistics is not as it was written."""


class CorruptProgressError(FormatError):
    """What was kept of how far topics were read cannot be read."""


class MissingEntriesError(FormatError, LookupError):
    """Entries that the ledger must have are not in its data object."""


class CorruptEntryError(FormatError):
    """The frame, message metadata, batch or payload of an entry cannot be decoded."""


class ChecksumError(CorruptEntryError):
    """The CRC32C of an entry differs from the one stored in it."""


class EncryptedPayloadError(PulsarOffloadError, PermissionError):
    """A payload is encrypted and no key that opens it was given; the message names the keys."""


class DecryptionError(CorruptEntryError):
    """A private key does not unwrap the data key of an entry, or its payload is not authentic."""


class SchemaError(PulsarOffloadError, ValueError):
    """A schema cannot be read, or asks for what cannot be given as Arrow columns."""


class UnknownSchemaVersionError(PulsarOffloadError, LookupError):
    """A message was written with a schema version that is not known; the message names it."""


class PayloadDecodeError(FormatError):
    """A payload does not fit its schema.

    Args:
        message: What is wrong with it.
        field_path: Which field, from the outermost in, with dots; `[]` stands for an item of an
            array or map. Empty: the payload as a whole.
        place: As for every error.
    """

    def __init__(self, message: str, *, field_path: str = "", **place: Any) -> None:  # noqa: ANN401
        super().__init__(f"{field_path}: {message}" if field_path else message, **place)
        self.field_path = field_path


class LateLedgerError(PulsarOffloadError, LookupError):
    """A ledger came to light behind which the topic was read already; its rows were not given."""


class OpenTransactionError(PulsarOffloadError, BlockingIOError):
    """What is new in a topic has messages whose transaction has no outcome yet; try it again."""


class EntryTooLargeError(PulsarOffloadError, ValueError):
    """An entry fits no data block of the chosen block size."""


class LakeTableError(PulsarOffloadError, ValueError):
    """A lake table cannot be read, or cannot take the columns, files or progress of a copy."""


class ConcurrentCopyError(PulsarOffloadError, RuntimeError):
    """Another run copied to the same lake table meanwhile; what this one wrote is not in it."""


class IncompleteReadWarning(UserWarning):
    """A read left something out or replaced it; `ReadMetrics.notices` says what."""


class UnusedStatisticsWarning(UserWarning):
    """Some statistics cannot be used, or not be written; the rows are the same without them."""


class UndecodedValuesWarning(UserWarning):
    """A topic was opened without a schema, so its values are given as bytes."""
