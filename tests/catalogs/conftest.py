"""Every test of this folder is run in each catalog."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import load_catalog

from tests.connector.conftest import bucket
from tests.stores.emulators import free_port, running
from tests.support.grids import grid
from tests.support.s3_server import REGION, running_s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog

    from tests.support.s3_server import S3Server

__all__ = ["bucket", "grid"]

_numbers = itertools.count()
_SERVER = "org.apache.iceberg.rest.RESTCatalogServer"


@dataclass(frozen=True)
class Lake:
    """A catalog, and a name that no table of it has.

    Attributes:
        options: Options of a copy's table: those of the catalog.
        storage_options: Options of the file system of data files.
    """

    options: dict[str, str]
    storage_options: dict[str, object] = field(default_factory=dict)
    name: str = ""

    def open(self) -> Catalog:
        """Return the catalog, as any other program would open it."""
        return load_catalog(**self.options)


@pytest.fixture(scope="session", name="rest")
def _rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Iceberg's REST server, with tables in a folder."""
    port = free_port()
    folder = tmp_path_factory.mktemp("warehouse")
    settings = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": folder.as_uri()}
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
    command = (
        java,
        "-Xmx256m",
        "-classpath",
        Path(os.environ["ICEBERG_REST"]).read_text(encoding="utf-8"),
        _SERVER,
    )
    with running(port, *command, environment=settings):
        yield Lake({"type": "rest", "uri": f"http://127.0.0.1:{port}"})


@pytest.fixture(scope="session", name="s3_server")
def _s3_server() -> Iterator[S3Server]:
    with running_s3_server() as server:
        yield server


@pytest.fixture(scope="session", name="glue")
def _glue(s3_server: S3Server) -> Lake:
    """Glue's API, with tables on S3, as moto answers for both."""
    storage_options = s3_server.storage_options
    access = {
        "access-key-id": storage_options["key"],
        "secret-access-key": storage_options["secret"],
    }
    shared = {**access, "endpoint": s3_server.endpoint_url, "region": REGION}
    options = {f"glue.{name}": str(each) for name, each in shared.items()}
    options |= {f"s3.{name}": str(each) for name, each in shared.items()}
    warehouse = f"s3://{s3_server.new_bucket()}/warehouse"
    return Lake({"type": "glue", "warehouse": warehouse, **options}, storage_options)


@pytest.fixture(params=["rest", "glue"])
def lakes(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """Each catalog, with one name of a table after another."""
    lake: Lake = request.getfixturevalue(request.param)
    namespace = f"shop_{next(_numbers)}"
    lake.open().create_namespace(namespace)
    return (replace(lake, name=f"{namespace}.orders_{number}") for number in itertools.count())


@pytest.fixture
def lake(lakes: Iterator[Lake]) -> Lake:
    """Each catalog, with the name of a table that does not exist yet."""
    return next(lakes)
