"""Errors say where, travel between processes, and are what a caller would catch anyway."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Final

import pytest

from arrow_io import errors
from arrow_io.errors import PulsarOffloadError

_PLACE: Final = {
    "object_key": "uuid-ledger-7",
    "ledger_id": 7,
    "entry_id": 3,
    "offset": 1024,
    "batch_index": 2,
}
_BUILTINS: Final = {
    "PulsarOffloadError": (Exception,),
    "OptionError": (ValueError,),
    "TopicNotFoundError": (LookupError,),
    "StorageError": (OSError,),
    "ObjectChangedError": (OSError,),
    "MissingObjectError": (FileNotFoundError,),
    "EntryNotInLedgerError": (IndexError,),
    "FormatError": (ValueError,),
    "UnsupportedFormatError": (ValueError, NotImplementedError),
    "UnknownFormatError": (ValueError,),
    "TruncatedObjectError": (ValueError, EOFError),
    "CorruptIndexError": (ValueError,),
    "CorruptMetadataError": (ValueError,),
    "CorruptBlockError": (ValueError,),
    "EntryOrderError": (ValueError,),
    "CorruptSnapshotError": (ValueError,),
    "CorruptStatisticsError": (ValueError,),
    "CorruptProgressError": (ValueError,),
    "LateLedgerError": (LookupError,),
    "BrokerError": (ConnectionError, OSError),
    "TrimmedEntriesError": (LookupError,),
    "OpenTransactionError": (BlockingIOError,),
    "MissingEntriesError": (ValueError, LookupError),
    "CorruptEntryError": (ValueError,),
    "ChecksumError": (ValueError,),
    "EncryptedPayloadError": (PermissionError,),
    "DecryptionError": (ValueError,),
    "SchemaError": (ValueError,),
    "UnknownSchemaVersionError": (LookupError,),
    "PayloadDecodeError": (ValueError,),
    "EntryTooLargeError": (ValueError,),
    "LakeTableError": (ValueError,),
    "ConcurrentCopyError": (RuntimeError,),
}
_CLASSES: Final = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, PulsarOffloadError)
]


def test_every_error_is_looked_at() -> None:
    """A class that is added here is tested here."""
    assert {each.__name__ for each in _CLASSES} == set(_BUILTINS)
    for each in vars(errors).values():
        if inspect.isclass(each) and issubclass(each, Exception):
            assert issubclass(each, (PulsarOffloadError, Warning))


@pytest.mark.parametrize("error_class", _CLASSES, ids=lambda each: each.__name__)
def test_error_is_what_a_caller_would_catch(error_class: type[PulsarOffloadError]) -> None:
    """Each inherits the builtin of its kind."""
    error = error_class("broken")

    for builtin in _BUILTINS[error_class.__name__]:
        assert isinstance(error, builtin)
    assert isinstance(error, PulsarOffloadError)


@pytest.mark.parametrize("error_class", _CLASSES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("place", [{}, {"ledger_id": 0}, _PLACE], ids=["none", "some", "all"])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_error_survives_pickling(
    error_class: type[PulsarOffloadError], place: dict[str, int | str], protocol: int
) -> None:
    """Class, text and every attribute come out on the other side, as Spark sends them."""
    error = error_class("broken", **place)  # type: ignore[arg-type]

    for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(other) is error_class
        assert vars(other) == vars(error)
        assert other.args == error.args == ("broken",)
        assert str(other) == str(error)
        assert repr(other) == repr(error)


@pytest.mark.parametrize("error_class", _CLASSES, ids=lambda each: each.__name__)
def test_text_shows_the_place(error_class: type[PulsarOffloadError]) -> None:
    """What is known of the place stands behind the message; a zero is known too."""
    assert str(error_class("broken")) == "broken"
    assert str(error_class("broken", entry_id=0)) == "broken (entry 0)"
    assert str(error_class("broken", **_PLACE)) == (  # type: ignore[arg-type]
        "broken (object uuid-ledger-7, ledger 7, entry 3, batch index 2, offset 1024)"
    )


def test_notes_and_causes_are_kept() -> None:
    """A note added on the way is pickled with the error."""
    error = errors.FormatError("broken", ledger_id=7)
    error.add_note("while reading a topic")

    other = pickle.loads(pickle.dumps(error))

    assert other.__notes__ == ["while reading a topic"]


def test_place_is_filled_in_but_not_changed() -> None:
    """Whoever knows more of the place adds it; what was said closer to the damage stays."""
    error = errors.CorruptEntryError("broken", entry_id=0, offset=5)

    located = error.located(entry_id=9, ledger_id=7, object_key=None)

    assert located is error
    assert (error.entry_id, error.ledger_id, error.offset, error.object_key) == (0, 7, 5, None)


def test_warning_is_a_user_warning() -> None:
    """It is shown by default, and can be filtered by its own class."""
    assert issubclass(errors.IncompleteReadWarning, UserWarning)
