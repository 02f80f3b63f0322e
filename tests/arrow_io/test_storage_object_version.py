"""Versions of objects: what stores tell of them, and what follows where two differ."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import ObjectChangedError, OptionError, StorageError
from arrow_io.storage.location import Location
from arrow_io.storage.object_store import ObjectHead, ObjectInfo
from arrow_io.storage.object_version import ETag, WriteTime, agree, modified_in, version_in
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.served_versions import ServedVersions
from arrow_io.storage.trace import RequestTrace
from tests.support.faulty_storage import FakeBody, FakeS3, FaultScript, s3_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from arrow_io.storage.object_version import ObjectVersion

_TIME: Final = datetime(2026, 1, 1, 12, 0, 0, 250_000, UTC)
_GONE: Final = s3_error(412, "PreconditionFailed")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (ETag("a"), ETag("a"), True),
        (ETag("a"), ETag("b"), False),
        (ETag("a"), None, True),
        (None, None, True),
        (ETag("a"), WriteTime(1, _TIME), True),
        (WriteTime(1, _TIME), WriteTime(1, _TIME), True),
        (WriteTime(1, _TIME), WriteTime(2, _TIME), False),
        (WriteTime(1, _TIME), WriteTime(1, _TIME.replace(microsecond=0)), True),
        (WriteTime(1, _TIME), WriteTime(2, _TIME.replace(microsecond=0)), False),
        (WriteTime(1, _TIME), WriteTime(1, _TIME.replace(microsecond=1)), False),
        (WriteTime(1, _TIME), WriteTime(1, _TIME.replace(second=1, microsecond=0)), False),
    ],
)
def test_only_versions_of_one_kind_are_compared(
    one: ObjectVersion | None, other: ObjectVersion | None, *, expected: bool
) -> None:
    """Whichever comes first; times on whole seconds where one of them has no fraction."""
    assert agree(one, other) is agree(other, one) is expected


@pytest.mark.parametrize(
    "time",
    ["", "yesterday", "2026-13-01", 1e300, float("nan"), float("inf"), -(10**30), 10**30, None],
    ids=repr,
)
def test_what_is_no_time_is_not_known(time: object) -> None:
    """A store may say anything of an object; without a time there is no version to compare."""
    assert modified_in({"LastModified": time}) is None
    assert version_in({"mtime": time}, 4) is None
    assert modified_in({"LastModified": time, "mtime": _TIME}) == _TIME


def _listing(tag: str | None, size_bytes: int = 4) -> dict[str, Any]:
    entry = {"Key": "a", "Size": size_bytes, "LastModified": _TIME}
    return {"Contents": [entry | ({"ETag": f'"{tag}"'} if tag else {})], "KeyCount": 1}


def _answer(data: bytes, start: int = 0, tag: str | None = None) -> dict[str, Any]:
    named = {"ETag": f'"{tag}"'} if tag else {}
    body = {"Body": FakeBody(data), "LastModified": _TIME, "ContentLength": len(data)}
    return body | named | {"ContentRange": f"bytes {start}-{start + len(data) - 1}/4"}


def _head(tag: str | None, size_bytes: int = 4) -> dict[str, Any]:
    return {"ContentLength": size_bytes, "LastModified": _TIME} | (
        {"ETag": f'"{tag}"'} if tag else {}
    )


def test_s3_without_etags_is_read() -> None:
    """No answer needs one, and nothing else that is told is asked for as one."""
    head = _head(None)
    store = FakeS3(_listing(None), head, _answer(b"data"), _answer(b"da"), _answer(b"ta", 2), head)
    location = store.location()

    (info,) = location.list_objects()
    assert location.find("a") == replace(info, version=None)
    assert location.read_object("a", max_bytes=9, version=info.version).data == b"data"
    reader = RangeReader(replace(location, range_bytes=2), "a", 4, version=info.version)
    assert reader.read(0, 4) == b"data"

    assert not any("IfMatch" in call for call in store.calls)


def test_a_time_is_never_asked_for_as_an_etag() -> None:
    """Whoever gives S3 a version of another kind."""
    store = FakeS3(_answer(b"data"))

    store.location().read_range("a", 0, 4, version=WriteTime(4, _TIME))

    assert "IfMatch" not in store.calls[0]


def test_a_store_that_lists_another_etag_than_it_serves_is_read() -> None:
    """A new listing and a HEAD prove it, once for each object; all ranges are of what is served."""
    store = FakeS3(
        _listing("listed"),
        _GONE,
        _listing("listed"),
        _head("served"),
        _answer(b"da", tag="served"),
        _answer(b"ta", 2, tag="served"),
        _GONE,
    )
    location = store.location()
    (info,) = location.list_objects()

    def read(start: int) -> bytes:
        return bytes(location.read_range("a", start, start + 2, version=info.version).data)

    assert read(0) + read(2) == b"data"
    with pytest.raises(ObjectChangedError):
        read(0)

    matched = [call.get("IfMatch") for call in store.calls if call["method"] == "get_object"]
    assert matched == ['"listed"', '"served"', '"served"', '"served"']
    counts = location.trace.counts
    assert (counts.list_requests, counts.head_requests) == (2, 1)


@pytest.mark.parametrize(
    "answers",
    [
        [_listing("new")],
        [_listing("listed", 5), _head("served")],
        [{"KeyCount": 0}],
        [_listing("listed"), _head("served", 5)],
        [_listing("listed"), _head(None)],
        [_listing("listed"), _head("listed"), _GONE],
        [_listing("listed"), _head("served"), _GONE],
    ],
)
def test_a_replaced_object_is_no_other_name_of_the_listed_one(answers: list[Any]) -> None:
    """The listing shows it, or the length, or the store does not serve what its HEAD told."""
    store = FakeS3(_listing("listed"), _GONE, *answers)
    location = store.location()
    (info,) = location.list_objects()

    with pytest.raises(ObjectChangedError):
        location.read_object("a", max_bytes=9, version=info.version)

    assert not store.answers


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_a_folder_of_replaced_objects_is_listed_anew_once(scheme: str, tmp_path: Path) -> None:
    """What tells that one object was replaced tells it of the others."""
    location = Location(f"{scheme}{tmp_path}")
    names = [f"{number:03}" for number in range(200)]
    for name in names:
        location.write_object(name, b"data", user_metadata={})
    infos = location.list_objects()
    for name in names:
        location.write_object(name, b"other data", user_metadata={})
    before = location.trace.counts

    for info in infos:
        with pytest.raises(ObjectChangedError):
            location.read_range(info.name, 0, 4, version=info.version)

    after = location.trace.counts
    assert after.list_requests - before.list_requests == 1
    assert after.head_requests == before.head_requests
    for info in location.list_objects():
        assert location.read_object(info.name, max_bytes=99, version=info.version).data
    location.delete_objects(names)


def _read(
    versions: ServedVersions,
    name: str,
    version: ObjectVersion,
    get: Callable[[ObjectVersion | None], str],
    *,
    relist: Callable[[str], list[ObjectInfo]],
    head: Callable[[str], ObjectHead],
) -> str:
    """Read an object as a location does."""
    wanted = versions.request_version(name, version)
    try:
        return get(wanted)
    except ObjectChangedError:
        served = versions.resolve(name, version, wanted, relist, head)
        if served is None:
            raise
    return get(served)


def test_an_object_that_is_replaced_again_is_listed_anew() -> None:
    """A listing proves nothing of versions that are younger than it."""
    versions = ServedVersions()

    def read(*, listed: str, relisted: str, served: str) -> str | None:
        def get(version: ObjectVersion | None) -> str:
            if version != ETag(served):
                raise ObjectChangedError("replaced")
            return served

        return _read(
            versions,
            "a",
            ETag(listed),
            get,
            relist=lambda name: [ObjectInfo(name, 4, None, ETag(relisted))],
            head=lambda _name: ObjectHead(4, None, ETag(served)),
        )

    with pytest.raises(ObjectChangedError):
        read(listed="one", relisted="two", served="2")
    assert read(listed="two", relisted="two", served="2") == "2"
    with pytest.raises(ObjectChangedError):
        read(listed="three", relisted="three", served="3")
    versions.forget_listings()
    assert read(listed="three", relisted="three", served="3") == "3"


class _ListedOtherwise:
    """A folder that lists other ETags than it serves, read by several threads."""

    def __init__(self) -> None:
        self.versions = ServedVersions()
        self.listings = 0
        self.heads = 0

    def read(
        self,
        name: str = "a",
        *,
        refused: Callable[[], object] = lambda: None,
        listed: Callable[[], object] = lambda: None,
    ) -> str:
        """Read an object; `refused` and `listed` are called before the answers of their names."""

        def get(version: ObjectVersion | None) -> str:
            if version != ETag("served"):
                refused()
                raise ObjectChangedError("replaced")
            return name

        def relist(name: str) -> list[ObjectInfo]:
            self.listings += 1
            listed()
            return [ObjectInfo(name, 4, None, ETag("listed"))]

        def head(_name: str) -> ObjectHead:
            self.heads += 1
            return ObjectHead(4, None, ETag("served"))

        return _read(self.versions, name, ETag("listed"), get, relist=relist, head=head)


def test_threads_that_meet_another_version_ask_once() -> None:
    """The others take what the first learns, whether they come before it knows or after."""
    folder, barrier = _ListedOtherwise(), threading.Barrier(16)

    with ThreadPoolExecutor(16) as executor:
        reads = [executor.submit(folder.read, refused=barrier.wait) for _ in range(16)]

        assert [read.result(30) for read in reads] == ["a"] * 16
    assert (folder.listings, folder.heads) == (1, 1)


def test_threads_do_not_wait_for_what_another_object_is() -> None:
    """Each object is asked for by itself."""
    folder, is_read = _ListedOtherwise(), threading.Event()

    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(folder.read, "a", listed=partial(is_read.wait, 30))
        assert folder.read("b") == "b"
        is_read.set()
        assert first.result(30) == "a"


@pytest.mark.parametrize("error", [StorageError("busy"), KeyboardInterrupt()])
def test_nobody_waits_for_an_answer_that_failed(error: BaseException) -> None:
    """Its error is that of all who waited for it, or they ask themselves; later reads ask anew."""
    folder, barrier = _ListedOtherwise(), threading.Barrier(8)

    def fail() -> None:
        raise error

    with ThreadPoolExecutor(8) as executor:
        reads = [executor.submit(folder.read, refused=barrier.wait, listed=fail) for _ in range(8)]
        for read in reads:
            assert read.exception(30) is error
    assert folder.read() == "a"


def test_who_waits_for_one_that_was_interrupted_asks_itself() -> None:
    """An interrupt is for the thread that it comes to."""
    folder, is_listing, may_end = _ListedOtherwise(), threading.Event(), threading.Event()

    def interrupted() -> None:
        is_listing.set()
        may_end.wait(30)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(folder.read, listed=interrupted)
        is_listing.wait(30)
        second = executor.submit(folder.read, refused=may_end.set)

        assert isinstance(first.exception(30), KeyboardInterrupt)
        assert second.result(30) == "a"


@pytest.mark.parametrize("sure_stop", [0, None])
def test_a_stream_that_ends_early_asks_for_the_version_once(sure_stop: int | None) -> None:
    """Where answers do not tell it; not where nothing was read, nor behind an error."""
    script, trace = FaultScript({"a": bytes(1000)}), RequestTrace()
    version = WriteTime(999, _TIME)
    reader = RangeReader(
        replace(script.location(), range_bytes=100, trace=trace), "a", 1000, version=version
    )

    for position, expected in [(None, 0), (0, 1), (300, 1), (950, 1)]:
        before = trace.counts.head_requests
        with RangeStream(reader.span(0, 1000, sure_stop=sure_stop)) as stream:
            if position is not None:
                stream.at(position, 50)
        assert trace.counts.head_requests - before == expected

    before = trace.counts.head_requests
    stream = RangeStream(reader.span(0, 1000))
    stream.at(0, 50)
    with pytest.raises(OptionError, match="-1 bytes"), stream:
        stream.at(0, -1)
    assert trace.counts.head_requests == before


@pytest.mark.parametrize(
    "url",
    [
        "simplecache::s3://bucket",
        "filecache::file:///folder",
        "blockcache::memory://folder",
        "cached::sftp://host/folder",
        "zip::simplecache::s3://bucket/x",
        "simplecache://bucket",
    ],
)
def test_a_cache_is_refused(url: str) -> None:
    """It would give old bytes of objects that were replaced, of the length that is listed."""
    with pytest.raises(OptionError, match="goes through a cache"):
        Location(url)
