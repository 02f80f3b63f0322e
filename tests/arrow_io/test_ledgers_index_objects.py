"""Index objects through the cache: a store and a cache folder to which anything may happen."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from arrow_io.errors import CorruptIndexError, MissingObjectError
from arrow_io.ledgers.index_objects import read_index_object
from arrow_io.storage.index_cache import IndexCache
from arrow_io.storage.object_store import ObjectContent, ObjectInfo
from arrow_io.storage.object_version import ETag

if TYPE_CHECKING:
    from arrow_io.storage.object_version import ObjectVersion

_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
_NAMES = st.integers(0, 3).map("ledger-{}-index".format)
_BYTES = st.sampled_from([b"one", b"two", b"bad", b"", bytes(2000), bytes(5000)])


@dataclass
class _Location:
    """A location of a store in memory, with the cache of one process."""

    objects: dict[str, tuple[ObjectInfo, ObjectContent]]
    index_cache: IndexCache | None
    requests: list[str] = field(default_factory=list)

    def read_object(
        self, name: str, *, max_bytes: int, version: ObjectVersion | None
    ) -> ObjectContent:
        self.requests.append(name)
        if name not in self.objects:
            raise MissingObjectError("missing", object_key=name)
        info, content = self.objects[name]
        assert len(content.data) <= max_bytes
        assert version == info.version
        return content


def _parse(content: ObjectContent) -> bytes:
    if content.data == b"bad":
        raise CorruptIndexError("bad")
    return content.data


class _Opens(RuleBasedStateMachine):
    """Objects change, vanish and come back; files are damaged; two processes read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.objects: dict[str, tuple[ObjectInfo, ObjectContent]] = {}
        self.earlier: list[tuple[ObjectInfo, ObjectContent]] = []
        self.clock = 0
        self.locations = [_Location(self.objects, self._cache()) for _ in range(2)]
        self.cached: set[ObjectInfo] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _cache(self) -> IndexCache:
        return IndexCache(self.folder / "index", "place", max_bytes=256 * 3 * 4096)

    @rule(name=_NAMES, data=_BYTES, metadata=st.none() | st.just({"version": "1"}))
    def write(self, name: str, data: bytes, metadata: dict[str, str] | None) -> None:
        self.clock += 1
        version = ETag(f"tag-{self.clock}")
        info = ObjectInfo(name, len(data), _WRITTEN, version)
        self.objects[name] = info, ObjectContent(data, metadata, version)
        self.earlier.append(self.objects[name])

    @rule(name=_NAMES)
    def vanish(self, name: str) -> None:
        self.objects.pop(name, None)

    @rule(number=st.integers(0, 20))
    def come_back(self, number: int) -> None:
        for info, content in self.earlier[number : number + 1]:
            self.objects[info.name] = info, content

    @rule(process=st.integers(0, 1))
    def restart(self, process: int) -> None:
        self.locations[process].index_cache = self._cache()

    @rule(
        place=st.integers(0, 20),
        damage=st.sampled_from(["cut", "flip", "empty", "remove", "folder", "swap"]),
    )
    def damage(self, place: int, damage: str) -> None:
        files = sorted(each for each in self.folder.rglob("*") if each.is_file())
        for file in files[place : place + 1]:
            data = file.read_bytes()
            if damage == "flip":
                data = data[:-1] + bytes([data[-1] ^ 1])
            elif damage == "swap":
                data = files[0].read_bytes()
            file.write_bytes({"cut": data[:-1], "empty": b""}.get(damage, data))
            if damage in {"remove", "folder"}:
                file.unlink()
            if damage == "folder":
                file.mkdir()
        if files:
            self.cached.clear()

    @rule(what=st.sampled_from(["gone", "file", "left"]))
    def change_folder(self, what: str) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        if what == "file":
            (self.folder / "index").write_bytes(b"in the way")
        elif what == "left":
            (self.folder / "index" / "00").mkdir(parents=True)
            (self.folder / "index" / "00" / "left").write_bytes(bytes(20_000))
        self.cached.clear()

    @rule(process=st.integers(0, 1))
    def open(self, process: int) -> None:
        """List the store, and read each index object that is listed."""
        location = self.locations[process]
        location.requests.clear()
        for name, (info, content) in sorted(self.objects.items()):
            arguments: Any = {"version": info.version, "listed": info}
            if content.data == b"bad":
                with pytest.raises(CorruptIndexError):
                    read_index_object(location, name, _parse, **arguments)  # type: ignore[arg-type]
                assert location.requests[-1] == name
                continue
            found, index = read_index_object(location, name, _parse, **arguments)  # type: ignore[arg-type]
            assert (found, index) == (content, content.data)
            assert info not in self.cached or name not in location.requests
        # Objects that are in the cache now are not read from the store until it is damaged.
        assert location.index_cache is not None
        for info, _ in self.objects.values():
            if location.index_cache.get(info) is not None:
                self.cached.add(info)


TestOpens = _Opens.TestCase
TestOpens.settings = settings(stateful_step_count=20)


def test_sound_cache_that_is_written_answers_the_next_open(tmp_path: Path) -> None:
    """In another process too."""
    info = ObjectInfo("name", 3, _WRITTEN, ETag("tag"))
    objects = {"name": (info, ObjectContent(b"one", None, ETag("tag")))}
    for requests in (["name"], []):
        location: Any = _Location(objects, IndexCache(tmp_path, "place"))
        _, index = read_index_object(location, "name", _parse, version=info.version, listed=info)
        assert (index, location.requests) == (b"one", requests)


def test_cached_object_that_is_unsound_is_read_from_the_store(tmp_path: Path) -> None:
    """What an earlier release accepted, a later one may not: the store has the last word."""
    info = ObjectInfo("name", 3, _WRITTEN, ETag("tag"))
    cache = IndexCache(tmp_path, "place")
    cache.put(info, ObjectContent(b"bad", None))
    location: Any = _Location({"name": (info, ObjectContent(b"one", None, ETag("tag")))}, cache)

    _, index = read_index_object(location, "name", _parse, version=info.version, listed=info)

    assert (index, location.requests) == (b"one", ["name"])


def test_object_that_was_not_listed_is_read_from_the_store(tmp_path: Path) -> None:
    """Its version is not known."""
    info = ObjectInfo("name", 3, _WRITTEN, ETag("tag"))
    cache = IndexCache(tmp_path, "place")
    cache.put(info, ObjectContent(b"two", None))
    location: Any = _Location({"name": (info, ObjectContent(b"one", None, ETag("tag")))}, cache)

    _, index = read_index_object(location, "name", _parse, version=info.version, listed=None)

    assert index == b"one"
