"""One cluster for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.broker.cluster import Cluster
from tests.broker.running_broker import RunningBroker
from tests.support.s3_server import running_s3_server

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_RUNNING: Final = pytest.StashKey[RunningBroker]()


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A running cluster, whose topics the tests share."""
    with running_s3_server() as s3:
        bucket = s3.new_bucket()
        broker = RunningBroker(tmp_path_factory.mktemp("broker"), s3, bucket)
        broker.start()
        request.config.stash[_RUNNING] = broker
        try:
            running = Cluster(broker, s3, bucket, tmp_path_factory.mktemp("written"))
            yield running
            running.disconnect()
        finally:
            broker.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that failed what the broker said of it."""
    report = yield
    broker = item.config.stash.get(_RUNNING, None)
    if report.failed and broker is not None:
        report.sections.append(("the end of the broker's log", broker.end_of_log()))
    return report
