"""The store that takes its time counts the requests in flight, and says if too few come at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from arrow_io.storage.location import Location
from tests.support import slow_store
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OBJECTS = {f"o{number}": bytes([number]) * 10 for number in range(7)}


@pytest.fixture
def make_store() -> Iterator[type[SlowStore]]:
    """Makes stores, and forgets them."""
    before = set(slow_store._stores)
    yield SlowStore
    for name in set(slow_store._stores) - before:
        slow_store._stores[name].drop()


def _read_all(store: SlowStore, threads: int) -> Mapping[str, bytes]:
    location = Location(store.url)
    with ThreadPoolExecutor(threads) as executor:
        contents = executor.map(lambda name: location.read_object(name, max_bytes=99), _OBJECTS)
        return dict(zip(_OBJECTS, (each.data for each in contents), strict=True))


def test_waves_are_answered_when_they_are_whole(make_store: type[SlowStore]) -> None:
    """Seven requests of five threads: five at once, then two; counted as they were."""
    store = make_store(_OBJECTS, waves=[5, 2])

    assert _read_all(store, 5) == _OBJECTS
    assert store.waves_left == []
    assert (store.flights.count, store.flights.greatest, store.flights.now) == (7, 5, 0)
    assert 0 < store.flights.mean <= 5


def test_a_wave_that_does_not_come_fails(
    make_store: type[SlowStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never hangs, and its failure is not a store's, which would be tried again."""
    monkeypatch.setattr(slow_store, "PATIENCE_S", 0.01)
    store = make_store(_OBJECTS, waves=[3])

    with pytest.raises(AssertionError, match="2 requests at once, where 3 were expected"):
        _read_all(store, 2)


def test_requests_wait_for_a_connection(make_store: type[SlowStore]) -> None:
    """A store with three connections never has more in flight, whoever asks."""
    store = make_store(_OBJECTS, connections=3, first_byte_s=0.001, bytes_per_s=1e6)

    assert _read_all(store, 7) == _OBJECTS
    assert store.flights.greatest == 3
    assert store.flights.seconds > 0
    store.measure_anew()
    assert store.flights.count == 0
