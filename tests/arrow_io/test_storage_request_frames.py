"""Few calls of ours lie between a reader of ranges and the library that sends the request."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import arrow_io
import connector
from arrow_io.core import threads
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import RangeReader
from tests.support.faulty_storage import FakeBody, FakeS3, FaultScript
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_MOST_FRAMES: Final = 4
_OURS: Final = tuple(str(Path(package.__path__[0])) for package in (arrow_io, connector))


class _Stack:
    """The calls of ours that led to the library, innermost first.

    Args:
        reader: The thread that reads.
    """

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self.calls: list[str] = []

    def note(self) -> None:
        """Note who called; to be called in place of the library."""
        self.calls = _ours(sys._getframe(1))
        if threading.get_ident() != self._reader:
            wait_until(self._is_waiting)
            self.calls += _ours(sys._current_frames()[self._reader])

    def _is_waiting(self) -> bool:
        code = sys._current_frames()[self._reader].f_code
        return code.co_filename == threading.__file__


def _ours(frame: FrameType | None) -> list[str]:
    """Calls of ours below `read_content`; the loop of a thread that is used again is none."""
    calls = []
    while frame is not None and frame.f_code is not RangeReader.read_content.__code__:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and file != threads.__file__:
            calls.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return calls


def _read(location: Location) -> None:
    assert bytes(RangeReader(location, "a", 4).read_content(0, 4).data) == b"data"


def _noting(stack: _Stack, answer: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the library
        stack.note()
        return answer(*arguments, **options)

    return noting


@pytest.fixture
def stack() -> _Stack:
    """The calls that lead to the library."""
    return _Stack(threading.get_ident())


def _check(stack: _Stack) -> None:
    assert 0 < len(stack.calls) <= _MOST_FRAMES, stack.calls


def test_few_calls_lead_to_a_file(
    stack: _Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local file is opened by the store."""
    (tmp_path / "a").write_bytes(b"data")
    location = Location(str(tmp_path))
    monkeypatch.setattr(Path, "open", _noting(stack, Path.open))

    _read(location)

    _check(stack)


@pytest.mark.parametrize("is_async", [False, True])
def test_few_calls_lead_to_a_file_system(stack: _Stack, *, is_async: bool) -> None:
    """Whether it blocks, so that a thread of its own sends the request, or not."""
    script = FaultScript({"a": b"data"})
    location = script.location(is_async=is_async)
    file_system = location._sender.store()._file_system
    file_system.cat_file = _noting(stack, file_system.cat_file)

    _read(location)

    _check(stack)


def test_few_calls_lead_to_s3(stack: _Stack) -> None:
    """The calls of the reading thread and those in the event loop together."""
    location = FakeS3({"Body": FakeBody(b"data"), "ContentRange": "bytes 0-3/4"}).location()
    file_system = location._sender.store()._file_system
    file_system._call_s3 = _noting(stack, file_system._call_s3)

    _read(location)

    _check(stack)


def test_few_calls_lead_to_obstore(stack: _Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the reading thread and those of the thread that sends together."""
    obstore = pytest.importorskip("obstore")
    memory = obstore.store.MemoryStore()
    obstore.put(memory, "a", b"data")
    get = obstore.get
    options = {"client": "obstore", "key": "k", "secret": "s", "region": "us-east-1"}
    location = Location("s3://bucket", options)

    def in_memory(_client: object, path: str, options: Any) -> Any:  # noqa: ANN401 - obstore's
        return get(memory, path, options=options)

    monkeypatch.setattr(obstore, "get", _noting(stack, in_memory))

    _read(location)

    _check(stack)
