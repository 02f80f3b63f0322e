"""Ranges of one object come exactly, in order, with no more requests and bytes than promised."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import fsspec
import pytest
from botocore.exceptions import ReadTimeoutError

from arrow_io.errors import MissingObjectError, OptionError, StorageError, TruncatedObjectError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.ranges import RangeReader
from arrow_io.storage.trace import RequestCounts, RequestTrace
from tests.support.faulty_storage import FaultScript, as_it_is, cut_to, raising

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_server import S3Server

DATA = bytes(index * 7 % 251 for index in range(1000))
NAME = "data"

_memory_folders = itertools.count()


def _take(stream: RangeStream, position: int, length: int) -> bytes:
    view, index = stream.at(position, length)
    assert view.readonly
    return bytes(view[index : index + length])


class RangeReaderContract:
    """What every reader of ranges must do; a subclass says where the object lies."""

    @pytest.fixture
    def location(self) -> Location:
        """Where an object `NAME` of `DATA` lies."""
        raise NotImplementedError

    @pytest.fixture
    def reader(self, location: Location) -> RangeReader:
        """A reader of the object by ranges of 100 bytes, with a trace."""
        return RangeReader(
            replace(location, range_bytes=100, trace=RequestTrace()), NAME, len(DATA)
        )

    @pytest.mark.parametrize(
        ("start", "stop", "requests"),
        [(0, 1000, 10), (0, 1, 1), (999, 1000, 1), (250, 350, 1), (250, 351, 2), (0, 999, 10)],
    )
    def test_a_range_is_read_exactly(
        self, reader: RangeReader, start: int, stop: int, requests: int
    ) -> None:
        """Start is inclusive, stop exclusive; no request asks for more than `range_bytes`."""
        assert reader.read(start, stop) == DATA[start:stop]
        assert reader.location.trace.counts == RequestCounts(
            range_requests=requests, range_bytes=stop - start
        )

    @pytest.mark.parametrize("position", [0, 500, 1000])
    def test_an_empty_range_is_no_request(self, reader: RangeReader, position: int) -> None:
        """Nothing is asked for where nothing is wanted, at the very end too."""
        assert reader.read(position, position) == b""
        with RangeStream(reader.span(position, position)) as stream:
            assert _take(stream, position, 0) == b""
        assert reader.location.trace.counts.requests == 0

    @pytest.mark.parametrize(("start", "stop"), [(0, 1001), (1000, 1001), (2000, 3000)])
    def test_past_the_end_is_no_request(self, reader: RangeReader, start: int, stop: int) -> None:
        """Bytes beyond the known length are refused unasked, with the end's offset."""
        for read in (reader.read, reader.span):
            with pytest.raises(TruncatedObjectError) as raised:
                read(start, stop)
            assert (raised.value.object_key, raised.value.offset) == (NAME, len(DATA))
            assert f"bytes up to {stop} of an object of 1000 bytes" in str(raised.value)
        assert reader.location.trace.counts.requests == 0

    @pytest.mark.parametrize(("start", "stop"), [(-1, 10), (10, 9)])
    def test_no_range_is_refused(self, reader: RangeReader, start: int, stop: int) -> None:
        """A negative start, or a stop before the start, is an error of the caller."""
        for read in (reader.read, reader.span):
            with pytest.raises(OptionError, match="invalid range") as raised:
                read(start, stop)
            assert raised.value.object_key == NAME

    def test_an_object_shorter_than_told_is_truncated(self, location: Location) -> None:
        """Where the object really ends is found out, also when a range ends short there."""
        trace = RequestTrace()
        reader = RangeReader(replace(location, range_bytes=300, trace=trace), NAME, 5000)

        with pytest.raises(TruncatedObjectError) as raised:
            reader.read(900, 5000)
        assert (raised.value.object_key, raised.value.offset) == (NAME, len(DATA))
        assert trace.counts == RequestCounts(range_requests=2, head_requests=1, range_bytes=100)

    def test_a_stream_reaches_the_real_end_before_it_fails(self, location: Location) -> None:
        """Ranges that are there are given before the error about those that are not."""
        reader = RangeReader(replace(location, range_bytes=250), NAME, 5000)

        with RangeStream(reader.span(0, 5000)) as stream:
            for position in range(0, 1000, 250):
                assert _take(stream, position, 250) == DATA[position : position + 250]
            for _ in range(2):
                with pytest.raises(TruncatedObjectError) as raised:
                    stream.at(1000, 1)
                assert raised.value.offset == len(DATA)

    def test_a_missing_object_is_named(self, location: Location) -> None:
        """Reading what is not there raises an error with the key."""
        reader = RangeReader(replace(location, range_bytes=100), "none", 1000)

        with pytest.raises(MissingObjectError) as raised:
            reader.read(0, 10)
        assert raised.value.object_key == "none"
        with RangeStream(reader.span(0, 1000)) as stream, pytest.raises(MissingObjectError):
            stream.at(0, 1)

    def test_a_stream_gives_every_byte_once(self, reader: RangeReader) -> None:
        """A whole object read by pieces costs each of its ranges once."""
        with RangeStream(reader.span(0, 1000)) as stream:
            pieces = [_take(stream, position, 8) for position in range(0, 1000, 8)]

        assert b"".join(pieces) == DATA
        assert reader.location.trace.counts == RequestCounts(range_requests=10, range_bytes=1000)

    def test_a_stream_of_one_range_is_one_request(self, reader: RangeReader) -> None:
        """A consumer of a part that fits one range makes one request."""
        with RangeStream(reader.span(430, 530)) as stream:
            assert _take(stream, 430, 100) == DATA[430:530]
        assert reader.location.trace.counts == RequestCounts(range_requests=1, range_bytes=100)


class TestFolder(RangeReaderContract):
    """A local folder."""

    @pytest.fixture
    def location(self, tmp_path: Path) -> Location:
        """A folder with the object."""
        (tmp_path / NAME).write_bytes(DATA)
        return Location(str(tmp_path))


class TestMemory(RangeReaderContract):
    """fsspec's memory."""

    @pytest.fixture
    def location(self) -> Location:
        """A folder in memory with the object."""
        url = f"memory://ranges-{next(_memory_folders)}"
        fsspec.filesystem("memory").pipe_file(f"{url}/{NAME}", DATA)
        return Location(url)


class TestS3(RangeReaderContract):
    """An S3 server."""

    @pytest.fixture
    def location(self, s3_server: S3Server) -> Location:
        """A prefix in a bucket with the object."""
        address = s3_server.upload({NAME: DATA}, prefix="prefix")
        return Location(address.url, address.storage_options)


class TestRead:
    """What a read makes of a store that misbehaves."""

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_short_answer_is_continued(self, is_async: bool) -> None:
        """The next request asks for what is missing; progress needs no pause."""
        script = FaultScript({NAME: DATA}, [cut_to(30), cut_to(1), as_it_is, cut_to(20)])
        location = script.location(is_async=is_async)

        assert (
            RangeReader(replace(location, range_bytes=100), NAME, len(DATA)).read(100, 300)
            == DATA[100:300]
        )
        assert script.requests == [(100, 200), (130, 230), (131, 231), (231, 300), (251, 300)]
        assert script.pauses_s == []

    def test_progress_renews_the_attempts(self) -> None:
        """Only failures in a row without a byte between them use the attempts up."""
        failing = [raising(TimeoutError()), raising(TimeoutError()), cut_to(10)]
        script = FaultScript({NAME: DATA}, failing * 5)

        data = RangeReader(script.location(attempts=3), NAME, len(DATA)).read(0, 60)

        assert data == DATA[:60]
        assert script.pauses_s == [0.1, 0.2] * 5

    def test_failures_name_the_byte_that_is_missing(self) -> None:
        """The error's offset is behind the last byte that came."""
        cut = raising(ReadTimeoutError(endpoint_url="http://host"))
        script = FaultScript({NAME: DATA}, [cut_to(42), cut, cut])

        with pytest.raises(StorageError, match="ReadTimeoutError") as raised:
            RangeReader(script.location(attempts=2), NAME, len(DATA)).read(100, 200)
        assert (raised.value.object_key, raised.value.offset) == (NAME, 142)

    def test_a_hostile_length_allocates_nothing(self) -> None:
        """However long the index says that the object is, one request asks for one range."""
        script = FaultScript({NAME: DATA})
        reader = RangeReader(replace(script.location(), range_bytes=500), NAME, 1 << 62)

        with pytest.raises(TruncatedObjectError):
            reader.read(0, 1 << 62)
        assert all(stop - start == 500 for start, stop in script.requests)
        assert len(script.requests) == 3

    @pytest.mark.parametrize(("start", "came"), [(0, 31), (500, 31), (969, 31)])
    def test_pieces_of_a_range_have_a_deadline_together(self, start: int, came: int) -> None:
        """A server that sends one byte for each request is given up, unless it was the last one."""
        now_s = [1000.0]

        def slow(data: bytes) -> bytes:
            now_s[0] += 3
            return data[:1]

        script = FaultScript({NAME: DATA}, [slow] * 1000)
        retry = RetryPolicy(deadline_s=60, least_bytes_per_s=1, clock=lambda: now_s[0])
        location = replace(script.location(), retry=retry)
        reader = RangeReader(location, NAME, len(DATA))

        # 3 s a byte are allowed 60 s, and 1 s a byte.
        if start + came == len(DATA):
            assert reader.read(start, len(DATA)) == DATA[start:]
        else:
            with pytest.raises(StorageError, match=r"^31 bytes took longer than 60 s") as caught:
                reader.read(start, len(DATA))
            assert (caught.value.object_key, caught.value.offset) == (NAME, start + came)
        assert len(script.requests) == came

    def test_bytes_of_a_span_are_certainly_read_unless_told_otherwise(self) -> None:
        """Up to `sure_stop`; by default, up to its end."""
        reader = RangeReader(Location("memory://"), NAME, 10)

        assert reader.span(1, 9).sure_stop == 9
        assert reader.span(1, 9, sure_stop=5).sure_stop == 5

    def test_a_negative_size_is_refused(self) -> None:
        """The message has its value."""
        with pytest.raises(OptionError, match="size_bytes must be at least 0, not -1"):
            RangeReader(Location("memory://"), NAME, -1)


def test_ranges_are_no_larger_than_positions_can_tell() -> None:
    """Beyond a GiB a range is refused before it is asked for, not read wrongly."""
    script = FaultScript({NAME: DATA})

    for range_bytes in (0, (1 << 30) + 1):
        with pytest.raises(OptionError, match=f"range_bytes is {range_bytes}; allowed are 1 …"):
            replace(script.location(), range_bytes=range_bytes)

    reader = RangeReader(replace(script.location(), range_bytes=1 << 30), NAME, len(DATA))
    assert bytes(reader.read(0, 9)) == DATA[:9]
