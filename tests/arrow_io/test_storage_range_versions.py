"""All ranges of an object are of one version of it, or the one that is not is an error."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import ObjectChangedError, OptionError
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestTrace
from tests.support.changing_buckets import Meddler, changing_bucket
from tests.support.faulty_storage import FakeBody, FakeS3, FaultScript, ToldByHead, cut_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.storage.object_version import ObjectVersion
    from tests.support.changing_buckets import ChangingBucket

DATA = bytes(range(100))
NAME = "data"
FIRST = ETag("first")


def _take(stream: RangeStream, position: int, length: int = 10) -> bytes:
    view, index = stream.at(position, length)
    return bytes(view[index : index + length])


def _reader(
    script: FaultScript, *, is_async: bool = False, version: ObjectVersion | None = FIRST
) -> RangeReader:
    location = replace(script.location(is_async=is_async), range_bytes=10, trace=RequestTrace())
    return RangeReader(location, NAME, 100, version=version)


def _heads(reader: RangeReader) -> int:
    return reader.location.trace.counts.head_requests


@pytest.mark.parametrize("is_async", [False, True])
def test_version_is_asked_for_once_before_the_last_range(*, is_async: bool) -> None:
    """Where answers do not tell it; a reader that stops before the end needs no request more."""
    reader = _reader(ToldByHead({NAME: DATA}), is_async=is_async)

    with RangeStream(reader.span(0, 50)) as stream:
        for position in range(0, 40, 10):
            assert _take(stream, position) == DATA[position : position + 10]
        assert _heads(reader) == 0
        assert _take(stream, 40) == DATA[40:50]
    assert _heads(reader) == 1


def test_version_is_not_asked_for_after_an_error() -> None:
    """The caller need not wait for one request more; without an error it is asked for."""
    reader = _reader(ToldByHead({NAME: DATA}))

    with pytest.raises(OptionError), RangeStream(reader.span(0, 50)) as stream:
        b"".join(_take(stream, position) for position in (0, 60))
    assert _heads(reader) == 0

    with RangeStream(reader.span(0, 50)) as stream:
        stream.at(0, 10)
    assert _heads(reader) == 1


def test_unknown_version_is_not_asked_for() -> None:
    """There is nothing to compare it with."""
    reader = _reader(ToldByHead({NAME: DATA}), version=None)

    with RangeStream(reader.span(0, 10)) as stream:
        assert _take(stream, 0) == DATA[:10]
    reader.check_version()

    assert _heads(reader) == 0


def test_other_version_is_an_error_before_the_last_range() -> None:
    """However often it is asked for, and once more when the stream ends; its name is told."""
    script = ToldByHead({NAME: DATA})
    reader = _reader(script)

    with ExitStack() as stack:
        stream = stack.enter_context(RangeStream(reader.span(0, 20)))
        assert _take(stream, 0) == DATA[:10]
        script.version = "second"
        for _ in range(2):
            with pytest.raises(ObjectChangedError) as caught:
                stream.at(10, 10)
            assert caught.value.object_key == NAME
        with pytest.raises(ObjectChangedError):
            stack.close()
    with pytest.raises(ObjectChangedError):
        reader.check_version()


def test_an_answer_that_tells_its_version_says_nothing_of_one_that_does_not() -> None:
    """One that does not is enough for a HEAD, whatever those behind it tell."""
    answers = [
        {"Body": FakeBody(DATA[start : start + 10]), "ContentRange": f"bytes {start}-/30", **tag}
        for start, tag in ((0, {"ETag": '"first"'}), (10, {}), (20, {"ETag": '"first"'}))
    ]
    location = FakeS3(*answers, {"ContentLength": 30, "ETag": '"first"'}).location()
    # In order, one after the other, as the answers are.
    options = {**(location.storage_options or {}), "max_connections": 1}
    location = replace(location, storage_options=options, range_bytes=10)
    reader = RangeReader(location, NAME, 30, version=FIRST)

    with RangeStream(reader.span(0, 30)) as stream:
        for position in (0, 10, 20):
            assert _heads(reader) == 0
            assert _take(stream, position) == DATA[position : position + 10]
    assert _heads(reader) == 1


@pytest.fixture(params=["memory", "folder"])
def bucket(request: pytest.FixtureRequest) -> Iterator[ChangingBucket]:
    """A bucket whose answers tell versions, with the object."""
    with changing_bucket(request.param) as changing:
        changing.write(NAME, DATA, "")
        yield changing


def _listed(bucket: ChangingBucket) -> RangeReader:
    location = Location(bucket.url)
    (info,) = location.list_objects()
    return RangeReader(
        replace(location, range_bytes=10, trace=RequestTrace()), NAME, 100, version=info.version
    )


@pytest.mark.parametrize("is_listed", [False, True])
def test_ranges_of_two_versions_are_an_error(bucket: ChangingBucket, *, is_listed: bool) -> None:
    """The version that was listed is the only one, or else that of the first range."""
    reader = _listed(bucket)
    reader = reader if is_listed else replace(reader, version=None)

    with RangeStream(reader.span(0, 100)) as stream:
        assert _take(stream, 0) == DATA[:10]
        bucket.write(NAME, DATA[::-1], "")
        with pytest.raises(ObjectChangedError):
            stream.at(10, 10)
    assert _heads(reader) == 0


def test_version_that_was_listed_is_the_only_one(bucket: ChangingBucket) -> None:
    """Already the first range is compared with it."""
    reader = _listed(bucket)
    bucket.write(NAME, DATA[::-1], "")

    with RangeStream(reader.span(0, 100)) as stream, pytest.raises(ObjectChangedError):
        stream.at(0, 10)
    with pytest.raises(ObjectChangedError):
        reader.read(0, 10)
    assert replace(reader, version=None).read(0, 10) == DATA[::-1][:10]


def test_requests_for_one_range_are_of_one_version(bucket: ChangingBucket) -> None:
    """That of the first answer, if no version was listed."""
    trace = Meddler(1, lambda: bucket.write(NAME, DATA[::-1], ""))
    reader = RangeReader(Location(bucket.url, range_bytes=10, trace=trace), NAME, 100)

    with pytest.raises(ObjectChangedError):
        reader.read(0, 20)


def test_first_answer_is_told(bucket: ChangingBucket) -> None:
    """What it says of the object, without the bytes; nothing before it came."""
    reader = _listed(bucket)

    with RangeStream(replace(reader, version=None).span(0, 100)) as stream:
        assert stream.first is None
        stream.at(0, 10)
        first = stream.first
        stream.at(10, 10)
        assert stream.first is first is not None
        assert (stream.first.version, stream.first.data) == (reader.version, b"")


def test_range_in_pieces_tells_what_the_first_piece_told() -> None:
    """An empty range, of which nothing was asked, is of the version that the reader is of."""
    script = FaultScript({NAME: DATA}, [cut_to(3)])
    reader = RangeReader(script.location(), NAME, 100, version=FIRST)
    assert reader.read_content(0, 10).data == DATA[:10]
    assert reader.read_content(0, 0).version == FIRST

    answers = [
        {
            "Body": FakeBody(DATA[start : start + 10]),
            "ContentRange": f"bytes {start}-/20",
            "Metadata": {"start": str(start)},
        }
        for start in (0, 10)
    ]
    location = replace(FakeS3(*answers).location(), range_bytes=10)
    content = RangeReader(location, NAME, 20).read_content(0, 20)
    assert (content.data, content.user_metadata) == (DATA[:20], {"start": "0"})


def test_ranges_asked_for_before_the_first_answer_are_compared_with_it() -> None:
    """Where no listing told a version, the requests sent at once could not name one."""
    answers = [
        {
            "Body": FakeBody(DATA[start : start + 10]),
            "ContentRange": f"bytes {start}-/20",
            "ETag": tag,
        }
        for start, tag in ((0, '"first"'), (10, '"second"'))
    ]
    location = FakeS3(*answers).location()
    options = {**(location.storage_options or {}), "max_connections": 1}
    location = replace(location, storage_options=options, range_bytes=10)
    span = RangeReader(location, NAME, 20).span(0, 20)

    with RangeStream(span) as stream:
        assert _take(stream, 0) == DATA[:10]
        with pytest.raises(ObjectChangedError):
            stream.at(10, 10)
