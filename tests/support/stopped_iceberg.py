"""An Iceberg catalog and its files, where something happens at the n-th request."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.concurrent import ExecutorFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Killed(BaseException):
    """The process is gone."""


@dataclass
class _Requests:
    """Counts what goes to the catalog and to the files of all tables.

    Attributes:
        count: How many were sent.
        happens: What is done before each, given its number.
    """

    count: int = 0
    happens: Callable[[int], None] = field(default=lambda _: None)

    def sent(self) -> None:
        """Another one."""
        number, self.count = self.count, self.count + 1
        self.happens(number)


_requests = _Requests()


class _AtOnce(Executor):
    """Runs what it is given at once, so that requests always have the same order."""

    def submit(self, run: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:  # noqa: ANN401
        future: Future[Any] = Future()
        future.set_result(run(*args, **options))
        return future


@contextmanager
def watched(happens: Callable[[int], None]) -> Iterator[_Requests]:
    """Have something done before each request, given its number from 0 on, while this lasts.

    What it sends itself does not count.
    """

    def once(number: int) -> None:
        _requests.happens = lambda _: None
        before = _requests.count
        try:
            happens(number)
        finally:
            _requests.count = before
            _requests.happens = once

    _requests.count, _requests.happens = 0, once
    try:
        with mock.patch.object(ExecutorFactory, "get_or_create", return_value=_AtOnce()):
            yield _requests
    finally:
        _requests.happens = lambda _: None


class WatchedFiles(PyArrowFileIO):
    """Files on the local disk."""

    def new_input(self, location: str) -> Any:  # noqa: ANN401
        """A file that is about to be read."""
        _requests.sent()
        return super().new_input(location)

    def new_output(self, location: str) -> Any:  # noqa: ANN401
        """A file that is about to be written."""
        _requests.sent()
        return super().new_output(location)

    def delete(self, location: Any) -> None:  # noqa: ANN401
        """Remove a file."""
        _requests.sent()
        super().delete(location)


class WatchedCatalog(SqlCatalog):
    """A catalog in a folder, with the namespace `shop`, and its warehouse beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            "lake",
            **{
                "uri": f"sqlite:///{folder}/lake.db",
                "warehouse": f"file://{folder}/lake",
                "py-io-impl": f"{WatchedFiles.__module__}.{WatchedFiles.__qualname__}",
            },
        )
        self.create_namespace_if_not_exists("shop")

    def load_table(self, identifier: Any) -> Any:  # noqa: ANN401
        """Ask for a table."""
        _requests.sent()
        return super().load_table(identifier)

    def commit_table(self, *args: Any) -> Any:  # noqa: ANN401
        """Commit to a table; its answer is one more request, for it may be lost."""
        _requests.sent()
        answer = super().commit_table(*args)
        _requests.sent()
        return answer
