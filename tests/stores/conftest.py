"""Every test of this folder is run in each store by each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import fsspec
import pytest

from arrow_io.storage.location import Location
from arrow_io.storage.own_options import Client
from tests.stores.emulators import Emulator, running_azure, running_gcs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    MakeLocation = Callable[[Mapping[str, bytes]], Location]


@dataclass(frozen=True)
class Cloud:
    """An emulator, and the client that reads from it."""

    emulator: Emulator
    client: str

    @property
    def options(self) -> dict[str, object]:
        """Storage options to read with."""
        return self.emulator.options[self.client] | {"client": self.client}

    @property
    def writing_options(self) -> dict[str, object]:
        """Storage options to write with: obstore alone writes to Azure only."""
        is_reader = self.client == Client.OBSTORE and self.emulator.scheme != "az"
        client = Client.FSSPEC if is_reader else self.client
        return self.emulator.options[client] | {"client": client}


@pytest.fixture(scope="session")
def gcs() -> Iterator[Emulator]:
    """An emulator of Google Cloud Storage."""
    with running_gcs() as emulator:
        yield emulator


@pytest.fixture(scope="session")
def azure() -> Iterator[Emulator]:
    """An emulator of Azure Blob Storage."""
    with running_azure() as emulator:
        yield emulator


@pytest.fixture(params=[f"{store}-{client}" for store in ("gcs", "azure") for client in Client])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """Each emulator and each client."""
    emulator, _, client = request.param.partition("-")
    return Cloud(request.getfixturevalue(emulator), client)


@pytest.fixture
def make_location(cloud: Cloud) -> MakeLocation:
    """Puts objects somewhere and tells where."""

    def make(objects: Mapping[str, bytes]) -> Location:
        url = f"{cloud.emulator.new_container()}/some/prefix"
        file_system, root = fsspec.url_to_fs(url, **cloud.emulator.options["fsspec"])
        for name, data in objects.items():
            file_system.pipe_file(f"{root}/{name}", data)
        return Location(url, cloud.options)

    return make
