"""The option `decryption_keys`: reads private keys, by name, once and where the option is set.

The keys are held in memory and can be pickled, so executors need no files. No message shows the
option's value, because it may be a key.

| option value | names that the key is for |
|---|---|
| PEM text, or bytes of it | every name |
| path of a PEM file | every name |
| path of a folder | the file's name, for each file with a private key directly in it |
| mapping: name → PEM text, or path of a PEM file | that name |
| callable: name → PEM text, bytes of it, or None | the name it is called with, in each process |

A file `orders-private.pem` in a folder is the key of `orders-private.pem`, `orders-private` and
`orders`: the ending `.pem` or `.key`, and then `-private` or `-priv`, may be left out. Files
without a private key, such as public keys, are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError
from arrow_io.messages.encryption import DecryptionKeys
from arrow_io.storage.hidden import HiddenBytes, hidden

Pem: TypeAlias = str | bytes
KeySource: TypeAlias = (
    Pem
    | os.PathLike[str]
    | Mapping[str, Pem | os.PathLike[str]]
    | Callable[[str], Pem | None]
    | DecryptionKeys
)

MAX_KEY_FILE_BYTES = 64 << 10

_PEM_START = "-----BEGIN "
_PRIVATE_KEY = b"PRIVATE KEY-----"


def read_decryption_keys(source: KeySource | None) -> DecryptionKeys:
    """Read private keys.

    Args:
        source: A value from the table above; None for no keys; or a result of this function.

    Raises:
        OptionError: The value has none of these forms, a file cannot be read, two files of a folder
            hold different keys with one name, or a key cannot be used.

    Example:
        >>> read_decryption_keys("tests/data/golden/keys/client-ec-priv.pem")
        DecryptionKeys(<any name>)
    """
    source = hidden(source)
    if source is None:
        return DecryptionKeys()
    if isinstance(source, DecryptionKeys):
        return source
    if isinstance(source, Mapping):
        return DecryptionKeys({_check_name(name): _read_pem(each) for name, each in source.items()})
    if callable(source):
        return DecryptionKeys(look_up=_LookUp(source))
    folder = _read_folder(source)
    return (
        DecryptionKeys(for_any_name=_read_pem(source)) if folder is None else DecryptionKeys(folder)
    )


@dataclass(frozen=True, slots=True, repr=False)
class _LookUp:
    """A user's callable, with its results converted to bytes."""

    get: Callable[[str], Pem | None]

    def __call__(self, name: str) -> bytes | None:
        pem = hidden(self.get(name))
        if pem is None or isinstance(pem, bytes):
            return pem
        if isinstance(pem, str):
            return HiddenBytes(pem.encode())
        message = f"{_option_label()} returned neither PEM text nor None for the key {name}"
        raise OptionError(message)


def _option_label() -> str:
    return option_name("decryption_keys")


def _check_name(name: object) -> str:
    if isinstance(name, str) and name and _PEM_START not in name:
        return name
    message = f"{_option_label()} must be a mapping from names of keys to PEM text or paths"
    raise OptionError(message)


def _read_folder(source: object) -> dict[str, bytes] | None:
    """Return the private keys of a folder by each of their names; None if it is not a folder."""
    path = _to_path(source)
    try:
        files = sorted(path.iterdir()) if path is not None and path.is_dir() else None
    except (OSError, ValueError):
        # Not a path. The error would quote the value, which may be a key.
        return None
    if files is None:
        return None
    keys: dict[str, bytes] = {}
    for file in files:
        pem = _read_file(file) if file.is_file() else None
        if pem is None or _PRIVATE_KEY not in pem:
            continue
        for name in _key_names(file.name):
            if keys.setdefault(name, pem) != pem:
                message = f"{_option_label()}: two files of {path} hold different keys named {name}"
                raise OptionError(message)
    if not keys:
        message = f"{_option_label()}: no file of {path} holds a private key in PEM form"
        raise OptionError(message)
    return keys


def _key_names(file_name: str) -> tuple[str, str, str]:
    stem = file_name.removesuffix(".pem").removesuffix(".key")
    return file_name, stem, stem.removesuffix("-private").removesuffix("-priv")


def _read_pem(source: object) -> bytes:
    """Return PEM text as bytes, or the content of the file at a path."""
    if isinstance(source, bytes):
        return source
    if isinstance(source, str) and _PEM_START in source:
        return HiddenBytes(source.encode())
    pem = _read_path(source)
    if pem is None:
        message = (
            f"{_option_label()} must be PEM text, the path of a PEM file or of a folder of them, or"
            " a mapping from names to these: the value is neither PEM text nor a readable file of"
            f" at most {MAX_KEY_FILE_BYTES} bytes (it is not shown because it may be a key)"
        )
        raise OptionError(message)
    return pem


def _read_path(source: object) -> bytes | None:
    """Return the content of a file; None if the value, which may be a key, names no such file."""
    path = _to_path(source)
    return None if path is None else _read_file(path)


def _to_path(source: object) -> Path | None:
    if not isinstance(source, str | os.PathLike) or _PEM_START in str(source) or source == "":
        return None
    return Path(source).expanduser()


def _read_file(path: Path) -> bytes | None:
    """Read a file; return None if it cannot be read, or is too long for a key."""
    try:
        with path.open("rb") as file:
            data = HiddenBytes(file.read(MAX_KEY_FILE_BYTES + 1))
    except (OSError, ValueError):
        return None
    return data if len(data) <= MAX_KEY_FILE_BYTES else None
