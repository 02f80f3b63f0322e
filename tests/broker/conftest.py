"""One cluster for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.cluster import Cluster
from tests.broker.running_broker import RunningBroker
from tests.support.s3_server import running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster, whose topics the tests share."""
    with running_s3_server() as s3:
        bucket = s3.new_bucket()
        broker = RunningBroker(tmp_path_factory.mktemp("broker"), s3, bucket)
        broker.start()
        try:
            running = Cluster(broker, s3, bucket, tmp_path_factory.mktemp("written"))
            yield running
            running.disconnect()
        finally:
            broker.stop()
