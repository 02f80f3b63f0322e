"""The index cache: index objects of object stores, stored in files of this computer.

An index object never changes. If a listing shows that it is still the same object, it need not be
read again. Each file of the cache belongs to one version of one object: the file's name is a hash
of the store and of the object's name, size, time of writing and ETag. A file has a checksum and is
replaced as a whole, so several processes can share the folder. A damaged file is ignored. If the
folder cannot be written, the cache is only read. Neither is an error.

One file for each object is read four times as fast as rows of an SQLite file. It also needs no
locks, which home folders on network file systems may lack, and no connection that a forked process
must not share.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from arrow_io.storage.object_store import ObjectContent, ObjectInfo
from arrow_io.storage.object_version import ETag
from arrow_io.storage.redaction import redacted_urls
from arrow_io.storage.store_kinds import StoreKind, store_kind

SWITCH: Final = "PULSAR_OFFLOAD_INDEX_CACHE"
"""Environment variable: 0 turns the cache off for a process and those that it starts."""
MAX_CACHE_BYTES: Final = 256 << 20

_MAGIC: Final = b"pulsar-offload index 1\n"
"""Start of each file. Another layout has another number."""
_DIGEST_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">I")
_PAGE_BYTES: Final = 4096
"""Files occupy whole pages of the disk."""
_SHARDS: Final = 256
"""Number of folders. Each has its share of the size, so that enforcing it looks at few files."""
_FULL_SHARE: Final = 0.75
"""What remains of a full folder, so that not each new file makes room anew."""
_RECENT_S: Final = 3600.0
"""A file is marked as used at most once in this time."""


class IndexCache:
    """The cached index objects of one location. Safe to use from several threads and processes.

    Args:
        folder: Folder of the cache; created for its first file.
        place: What tells the location from others; contains no secret.
        max_bytes: Maximum size of all files in the folder, whatever their location. Processes that
            write at the same time may exceed it until one of them writes again.
    """

    def __init__(self, folder: Path, place: str, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._folder = folder
        self._place = place
        self._max_shard_bytes = max_bytes // _SHARDS
        self._lock = threading.Lock()
        self._sizes: dict[Path, int] = {}
        self._is_writable = True

    def get(self, info: ObjectInfo) -> ObjectContent | None:
        """Return an object as it is listed; None if it is not in the cache."""
        key = self._key(info)
        if key is None:
            return None
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                stored = file.read()
                if time.time() - os.fstat(file.fileno()).st_mtime > _RECENT_S:
                    # On a file system that is only read, the order of use is not known.
                    with suppress(OSError):
                        os.utime(path)
        except OSError:
            return None
        return _decode(stored, key, info)

    def put(self, info: ObjectInfo, content: ObjectContent) -> None:
        """Store an object that was read as it is listed; do nothing if that is not possible."""
        key = self._key(info)
        if key is None or len(content.data) != info.size_bytes or not self._is_writable:
            return
        stored = _encode(content, key)
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
        try:
            if not self._has_room(path.parent, len(stored)):
                return
            try:
                with open(temporary, "xb", opener=_open_private) as file:
                    file.write(stored)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except PermissionError:
            # On Windows, a file that another process reads cannot be replaced.
            self._is_writable = sys.platform == "win32"
        except OSError:
            self._is_writable = False

    def _key(self, info: ObjectInfo) -> bytes | None:
        """Return what identifies a version of an object; None if a listing does not show one.

        The time of writing is part of it: new user metadata need not change an ETag.
        """
        if info.modified is None or not isinstance(info.version, ETag):
            return None
        modified = info.modified.isoformat()
        parts = (self._place, info.name, info.size_bytes, modified, info.version.text)
        return blake2b(repr(parts).encode(), digest_size=32).digest()

    def _path(self, key: bytes) -> Path:
        name = key.hex()
        return Path(f"{self._folder}/{name[:2]}/{name[2:]}")

    def _has_room(self, shard: Path, size_bytes: int) -> bool:
        """Remove the files not used for longest until one fits; return False if it never does."""
        needed = _occupied_bytes(size_bytes)
        if needed > self._max_shard_bytes * _FULL_SHARE:
            return False
        with self._lock:
            known = self._sizes.get(shard)
            if known is None:
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                for folder in (self._folder, shard):
                    folder.mkdir(mode=0o700, exist_ok=True)
            if known is None or known + needed > self._max_shard_bytes:
                known = _shrink(shard, self._max_shard_bytes - needed)
            self._sizes[shard] = known + needed
        return True


def open_index_cache(url: str, storage_options: Mapping[str, object]) -> IndexCache | None:
    """Return the cache of a location; None if its store is no object store, or caching is off."""
    kind = store_kind(url)
    folder = _cache_folder()
    is_off = os.environ.get(SWITCH, "").lower() in {"0", "false", "off", "no"}
    if kind is None or "::" in url or folder is None or is_off:
        return None
    return IndexCache(folder, _place(kind, url, storage_options))


def _cache_folder() -> Path | None:
    """Return the folder for caches of this user; None if others may write to it.

    Its files are trusted to be what this project wrote.
    """
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA", ""))
    elif sys.platform == "darwin":
        parent = Path("~/Library/Caches")
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        parent = parent.expanduser()
    except RuntimeError:  # the user has no home
        return None
    if not parent.is_absolute():
        return None
    folder = parent / "pulsar-offload" / "index"
    if sys.platform != "win32":
        with suppress(FileNotFoundError):
            status = folder.stat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
    return folder


def _place(kind: StoreKind, url: str, storage_options: Mapping[str, object]) -> str:
    client = storage_options.get("client_kwargs")
    servers = [
        options.get(name)
        for options in (storage_options, client if isinstance(client, Mapping) else {})
        for name in ("endpoint_url", "account_name", "account_host")
    ]
    servers += [os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")]
    path = redacted_urls(url).partition("://")[2].rstrip("/")
    return json.dumps([kind, path, [redacted_urls(str(each)) for each in servers if each]])


def _encode(content: ObjectContent, key: bytes) -> bytes:
    metadata = json.dumps(content.user_metadata).encode()
    body = b"".join((_LENGTH.pack(len(metadata)), metadata, content.data))
    return b"".join((_MAGIC, _digest(body, key), body))


def _decode(stored: bytes, key: bytes, info: ObjectInfo) -> ObjectContent | None:
    """Return the content of a file; None if the file is damaged."""
    start = len(_MAGIC) + _DIGEST_BYTES
    body = stored[start:]
    if not stored.startswith(_MAGIC) or stored[len(_MAGIC) : start] != _digest(body, key):
        return None
    (length,) = _LENGTH.unpack_from(body)
    data_start = _LENGTH.size + length
    metadata = json.loads(body[_LENGTH.size : data_start])
    return ObjectContent(body[data_start:], metadata, info.version)


def _digest(body: bytes, key: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES, key=key).digest()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _occupied_bytes(size_bytes: int) -> int:
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


def _shrink(folder: Path, max_bytes: int) -> int:
    """Remove the files not used for longest if a folder is too large; return its size."""
    files = [each for each in map(_stat, folder.iterdir()) if each is not None]
    size_bytes = sum(_occupied_bytes(status.st_size) for _, status in files)
    if size_bytes > max_bytes:
        for path, status in sorted(files, key=_last_use):
            with suppress(PermissionError):  # on Windows, if another process reads it
                path.unlink(missing_ok=True)
            size_bytes -= _occupied_bytes(status.st_size)
            if size_bytes <= max_bytes * _FULL_SHARE:
                break
    return size_bytes


def _stat(path: Path) -> tuple[Path, os.stat_result] | None:
    """Return a file with its status; None if another process has removed it."""
    with suppress(FileNotFoundError):
        return path, path.stat(follow_symlinks=False)
    return None


def _last_use(file: tuple[Path, os.stat_result]) -> float:
    return file[1].st_mtime
