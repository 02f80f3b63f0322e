"""Files of the index cache: their contents, their removal, and who may read them."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.storage import index_cache
from arrow_io.storage.index_cache import IndexCache, open_index_cache
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import ObjectContent, ObjectInfo
from arrow_io.storage.object_version import ETag, WriteTime

if TYPE_CHECKING:
    from collections.abc import Callable

_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
_SHARD_BYTES = 4 * 4096
_INFO = ObjectInfo("name-index", 4, _WRITTEN, ETag("tag"))
_CONTENT = ObjectContent(b"data", {"name": "value"}, ETag("tag"))


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


@pytest.fixture
def cache(tmp_path: Path) -> IndexCache:
    """A cache with one object."""
    cache = IndexCache(tmp_path / "index", "place")
    cache.put(_INFO, _CONTENT)
    return cache


@given(
    data=st.binary(max_size=5000),
    metadata=st.none() | st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_object_is_returned_as_it_was_stored(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, metadata: dict[str, str] | None
) -> None:
    """Bytes, user metadata and version; to another process too."""
    folder = tmp_path_factory.getbasetemp() / "round-trip"
    info = replace(_INFO, size_bytes=len(data))
    content = ObjectContent(data, metadata, ETag("served"))
    IndexCache(folder, repr((data, metadata))).put(info, content)

    found = IndexCache(folder, repr((data, metadata))).get(info)

    assert found == content
    assert found is not None
    assert found.version == info.version


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other-index"},
        {"size_bytes": 5},
        {"modified": _WRITTEN + timedelta(seconds=1)},
        {"version": ETag("other")},
        {"version": WriteTime(4, _WRITTEN)},
        {"version": None},
        {"modified": None},
    ],
    ids=str,
)
def test_object_that_may_be_another_is_not_returned(
    cache: IndexCache, change: dict[str, Any]
) -> None:
    """Name, size, time of writing and ETag have to be the same; without an ETag none is stored."""
    info = replace(_INFO, **change)
    assert cache.get(_INFO) == _CONTENT

    assert cache.get(info) is None
    if info.version is None or info.modified is None:
        cache.put(info, _CONTENT)
        assert cache.get(info) is None


def test_object_of_another_place_is_not_returned(cache: IndexCache, tmp_path: Path) -> None:
    """Even if its listing is the same."""
    assert cache.get(_INFO) is not None
    assert IndexCache(tmp_path / "index", "other").get(_INFO) is None


def test_object_of_another_length_than_listed_is_not_stored(tmp_path: Path) -> None:
    """It was replaced after the listing."""
    cache = IndexCache(tmp_path, "place")

    cache.put(_INFO, ObjectContent(b"longer data", None))

    assert _files(tmp_path) == []


def test_damaged_file_is_not_used(cache: IndexCache, tmp_path: Path) -> None:
    """Wherever a bit of it is flipped or it is cut; and the next read replaces it."""
    [file] = _files(tmp_path)
    sound = file.read_bytes()
    flipped = (
        sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :] for at in range(len(sound))
    )
    cut = (sound[:stop] for stop in range(len(sound)))

    for damaged in (*flipped, *cut, sound + b"\0", bytes(len(sound)), sound * 2):
        file.write_bytes(damaged)
        assert cache.get(_INFO) is None
    cache.put(_INFO, _CONTENT)

    assert cache.get(_INFO) == _CONTENT
    assert _files(tmp_path) == [file]


def test_file_of_another_object_is_not_used(cache: IndexCache, tmp_path: Path) -> None:
    """However it got its name."""
    other = replace(_INFO, name="other-index")
    [file] = _files(tmp_path)
    sound = file.read_bytes()
    cache.put(other, _CONTENT)

    for each in _files(tmp_path):
        each.write_bytes(sound)

    assert (cache.get(_INFO), cache.get(other)) == (_CONTENT, None)


def test_size_is_bounded_and_what_was_used_remains(tmp_path: Path) -> None:
    """Of the files in a folder, those not used for longest are removed."""
    folder = tmp_path / "index"
    cache = IndexCache(folder, "place", max_bytes=_SHARD_BYTES * 256)
    infos = [replace(_INFO, name=f"{number}-index") for number in range(3000)]
    paths = {cache._path(cache._key(info) or b""): info for info in infos}
    shard = next(iter(paths)).parent
    *members, new = [info for path, info in paths.items() if path.parent == shard][:5]
    for age, info in enumerate(members):
        cache.put(info, _CONTENT)
        os.utime(cache._path(cache._key(info) or b""), (1000 + age, 1000 + age))
    assert cache.get(members[0]) == _CONTENT

    cache.put(new, _CONTENT)

    assert (cache.get(members[0]), cache.get(new)) == (_CONTENT, _CONTENT)
    assert cache.get(members[1]) is None
    for info in infos[5:500]:
        cache.put(info, _CONTENT)
    assert all(len(_files(each)) <= 4 for each in folder.iterdir())


def test_files_of_others_count_and_are_removed(tmp_path: Path) -> None:
    """What a process that was killed left behind, and what other processes wrote."""
    cache = IndexCache(tmp_path, "place", max_bytes=_SHARD_BYTES * 256)
    shard = cache._path(cache._key(_INFO) or b"").parent
    shard.mkdir()
    for number in range(10):
        (shard / f"left-{number}").write_bytes(b"x")

    cache.put(_INFO, _CONTENT)

    assert cache.get(_INFO) == _CONTENT
    assert len(_files(shard)) <= 4


def test_object_that_would_take_the_whole_folder_is_not_stored(tmp_path: Path) -> None:
    """Others would be removed for it."""
    cache = IndexCache(tmp_path, "place", max_bytes=_SHARD_BYTES * 256)

    cache.put(replace(_INFO, size_bytes=20_000), ObjectContent(bytes(20_000), None))

    assert _files(tmp_path) == []


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _refused(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("method", ["mkdir", "replace", "iterdir"])
@pytest.mark.parametrize("fail", [_full, _refused], ids=["full", "read-only"])
def test_folder_that_cannot_be_written_is_only_read(
    cache: IndexCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    fail: Callable[..., None],
) -> None:
    """It is no error, and no file is left behind."""
    before = _files(tmp_path)
    cache = IndexCache(tmp_path / "index", "place")
    monkeypatch.setattr(Path, method, fail)
    other = replace(_INFO, name="other-index")

    cache.put(other, _CONTENT)

    monkeypatch.undo()
    assert cache.get(other) is None
    assert cache.get(_INFO) == _CONTENT
    assert _files(tmp_path) == before


def test_what_is_no_folder_is_not_used(tmp_path: Path) -> None:
    """A file has its name."""
    (tmp_path / "index").write_bytes(b"file")
    cache = IndexCache(tmp_path / "index", "place")

    cache.put(_INFO, _CONTENT)

    assert cache.get(_INFO) is None
    assert (tmp_path / "index").read_bytes() == b"file"


@pytest.mark.posix
def test_only_the_user_reads_the_files(cache: IndexCache, tmp_path: Path) -> None:
    """Index objects have the passwords of ledgers."""
    folder = tmp_path / "index"
    assert cache.get(_INFO) is not None

    for each in (folder, *folder.rglob("*")):
        assert each.stat().st_mode & 0o077 == 0


_PROGRAM = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from arrow_io.storage.index_cache import IndexCache
from arrow_io.storage.object_store import ObjectContent, ObjectInfo
from arrow_io.storage.object_version import ETag

cache = IndexCache(Path(sys.argv[1]), "place", max_bytes=256 * 2 * 4096)
found = 0
for turn in range(2):
    for number in range(400):
        data = f"object {number}".encode()
        info = ObjectInfo(f"{number}-index", len(data), datetime(2026, 1, 1, tzinfo=UTC), ETag("t"))
        content = cache.get(info)
        assert content is None or content.data == data
        found += content is not None
        cache.put(info, ObjectContent(data, None))
print(found)
"""


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    """While both write, remove and read the same files, each gets whole objects or none."""
    processes = [
        subprocess.Popen([sys.executable, "-c", _PROGRAM, tmp_path], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [each.communicate(timeout=60)[0] for each in processes]

    assert [each.returncode for each in processes] == [0, 0]
    assert sum(map(int, outputs)) > 0
    # Each process knows its own files until it makes room.
    assert all(len(_files(shard)) <= 2 * 2 for shard in tmp_path.iterdir())


# Where the cache is used


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for caches, and caching that is not off."""
    monkeypatch.delenv(index_cache.SWITCH)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux" if sys.platform != "win32" else "win32")
    return tmp_path


@pytest.mark.parametrize("url", ["s3://bucket/folder", "s3a://b", "gs://b", "az://c", "oss://b"])
def test_object_stores_are_cached(home: Path, url: str) -> None:
    """Below the user's folder for caches, and only if the location asks for it."""
    cache = open_index_cache(url, {})

    assert cache is not None
    assert cache._folder == home / "pulsar-offload" / "index"
    assert Location("s3://bucket").index_cache is None


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "url", ["/folder", "file:///folder", "memory://f", "http://h/f", "hdfs://h/f", "zip::s3://b/f"]
)
def test_other_stores_are_not_cached(url: str) -> None:
    """Local files are read as fast; others have no ETags."""
    assert open_index_cache(url, {}) is None


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("text", ["0", "false", "OFF", "no"])
def test_environment_turns_it_off(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every location."""
    monkeypatch.setenv(index_cache.SWITCH, text)

    assert open_index_cache("s3://bucket", {}) is None


@pytest.mark.usefixtures("home")
def test_location_passes_it_to_its_folders_but_not_to_other_processes() -> None:
    """Executors read ranges of data objects, no index objects."""
    location = Location("s3://bucket", caches_indexes=True)

    assert location.child("folder").index_cache is not None
    assert replace(location, url="/local").index_cache is None
    assert pickle.loads(pickle.dumps(location)).index_cache is None


@pytest.mark.posix
@pytest.mark.parametrize("parent", ["relative", "~no-such-user/cache"])
def test_folder_that_is_no_absolute_path_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch, parent: str
) -> None:
    """Nor that of a user without a home."""
    del home
    monkeypatch.setenv("XDG_CACHE_HOME", parent)

    assert open_index_cache("s3://bucket", {}) is None


@pytest.mark.posix
def test_folder_that_others_can_write_is_not_used(home: Path) -> None:
    """They could put other files there."""
    folder = home / "pulsar-offload" / "index"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert open_index_cache("s3://bucket", {}) is None

    folder.chmod(0o700)
    assert open_index_cache("s3://bucket", {}) is not None


def test_no_secret_is_stored_or_needed(home: Path) -> None:
    """Neither of a URL nor of options, which may change; another endpoint is another place."""
    url = "abfs://container@account.dfs.core.windows.net/folder?sig=secret-1"
    options: list[dict[str, object]] = [
        {"key": "secret-2", "endpoint_url": "https://me:secret-3@host"},
        {"key": "secret-4", "client_kwargs": {"endpoint_url": "https://me:secret-5@host"}},
        {"key": "secret-2", "endpoint_url": "https://me:secret-3@other"},
    ]
    caches = [open_index_cache(url, each) for each in options]
    assert caches[0] is not None
    caches[0].put(_INFO, _CONTENT)

    found = [None if each is None else each.get(_INFO) for each in caches]

    assert found == [_CONTENT, _CONTENT, None]
    [file] = _files(home)
    assert "secret-" not in str(file)
    assert b"secret-" not in file.read_bytes()
