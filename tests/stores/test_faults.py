"""Whatever a store answers, a door gives the right rows or a typed error, in time.

Nothing is left of one that fails, or its error says what is, and it works as soon as the store
does. `make fuzz-faults` tries all; FAULT_SEED=… chooses other requests that fail.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import fsspec
import pytest

from arrow_io.core import threads
from arrow_io.errors import PulsarOffloadError, StorageError
from tests.stores.emulators import running_gateway
from tests.stores.faulty_doors import CLIENTS, DOORS, NUMBERS, Scene, write_source
from tests.support.faulty_proxy import Fault, FaultyProxy, Plan, running_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [
    pytest.mark.stores,
    # Of what is damaged by answers that nothing tells from those of a damaged object.
    pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning"),
    # aiohttp leaves it to Python to close the socket of a request that was given up.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED: Final = int(os.environ.get("FAULT_SEED", "0"))
_LIMITS: Final = {"request_deadline_s": 1.0, "request_attempts": 3}
_MOST_S: Final = 60.0
"""A door may take this long, on a busy machine."""
_SILENCE_S: Final = 15.0
"""So long after a door was left, requests that nobody waits for may go on."""
_SHARE: Final = 0.3
_BUCKET: Final = "faults"
_OF_OTHER_BYTES: Final = frozenset({Fault.ZEROED, Fault.SHORTENED, Fault.EMPTIED})
"""Of a request for an object, nothing tells these answers from those of a damaged one."""
_REPORTING: Final = frozenset({"analyze", "audit", "salvage"})
"""Doors that go on beside what is damaged, and report it."""
_UUID_LENGTH: Final = 36
_numbers = itertools.count()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    """What stands before a gateway that has the topic."""
    folder = str(tmp_path_factory.mktemp("gateway"))
    with running_gateway(os.environ["VERSITYGW"], folder) as options:
        fsspec.filesystem("s3", **options).mkdir(_BUCKET)
        write_source(f"s3://{_BUCKET}/source", options)
        with running_proxy(options) as running:
            yield running
    # Sockets of requests that were given up are collected here, where that is no error.
    gc.collect()


def new_scene(client: str, proxy: FaultyProxy, folder: Path, limits: Mapping[str, object]) -> Scene:
    """Return a scene with an empty room."""
    number = next(_numbers)
    room = folder / str(number)
    room.mkdir()
    return Scene(
        f"s3://{_BUCKET}/source",
        client,
        proxy.options | dict(limits),
        proxy.server_options,
        f"s3://{_BUCKET}/room-{number}",
        room,
    )


class Sound:
    """What doors give, and how many requests they send, where nothing fails."""

    def __init__(self, proxy: FaultyProxy, folder: Path) -> None:
        self.proxy = proxy
        self._folder = folder
        self._found: dict[tuple[str, str], tuple[object, int]] = {}

    def of(self, door: str, client: str) -> tuple[object, int]:
        """The outcome, and the number of requests."""
        if (door, client) not in self._found:
            with self.proxy.failing(Plan(Fault.RESET, probability=0)):
                scene = new_scene(client, self.proxy, self._folder, {})
                outcome = DOORS[door](scene)
                self._found[door, client] = outcome, self.proxy.request_count
            assert not scene.left_over()
        return self._found[door, client]


@pytest.fixture(scope="module")
def sound(proxy: FaultyProxy, tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """What doors give where nothing fails."""
    return Sound(proxy, tmp_path_factory.mktemp("sound"))


@dataclass(frozen=True)
class Case:
    """A door that is opened by a client while some requests fail.

    Attributes:
        kind: Which do: all, those from a later one on, a share of them, or all listings.
    """

    door: str
    client: str
    fault: Fault
    kind: str

    def __str__(self) -> str:
        """Name the case as tests do."""
        return f"{self.door}, {self.client}, {self.fault.value}, {self.kind}"

    @property
    def is_deceptive(self) -> bool:
        """Whether the answers are those that a store has of damaged objects."""
        return self.fault in _OF_OTHER_BYTES and self.kind != "listings"

    def plan(self, requests: int) -> Plan:
        """Return what fails, of so many requests if none does."""
        random = Random(f"{SEED} {self}")
        if self.kind == "some":
            return Plan(self.fault, probability=_SHARE, seed=random.getrandbits(32))
        if self.kind == "listings":
            return Plan(self.fault, listings=True)
        after = 0 if self.kind == "all" else random.randrange(1, max(2, requests))
        return Plan(self.fault, after=after)


_KINDS: Final = ("all", "later", "some", "listings")
_PAIRS: Final = tuple(
    each
    for each in itertools.product(DOORS, CLIENTS)
    # obstore does not write to S3.
    if each != ("write", "obstore")
)
_EVERY_CASE: Final = tuple(
    Case(*pair, fault, kind) for pair, fault, kind in itertools.product(_PAIRS, Fault, _KINDS)
)
_SELECTION: Final = tuple(
    case
    for number, fault in enumerate(Fault)
    for case in (
        Case("open", CLIENTS[number % len(CLIENTS)], fault, "listings"),
        Case(*_PAIRS[number % len(_PAIRS)], fault, "later"),
    )
)


def _check(case: Case, sound: Sound, scene: Scene) -> None:
    expected, requests = sound.of(case.door, case.client)
    plan, door, proxy = case.plan(requests), DOORS[case.door], sound.proxy
    print(f"seed {SEED}: {plan}")  # noqa: T201 - shown of a test that fails
    failure: PulsarOffloadError | None = None
    outcome: object = None
    begun = time.monotonic()
    with proxy.failing(plan):
        try:
            outcome = door(scene)
        except PulsarOffloadError as error:
            failure = error
    took_s = time.monotonic() - begun
    print(f"{took_s:.2f} s, {proxy.request_count} requests: {failure!r}")  # noqa: T201 - likewise

    assert took_s < _MOST_S
    assert proxy.wait_for_silence(_SILENCE_S) == 0
    _wait_for_threads()
    left = scene.left_over()
    if failure is None:
        assert outcome == expected or (case.is_deceptive and case.door in _REPORTING)
        assert not left
        return
    # Other errors say something of the data, which is sound.
    assert isinstance(failure, StorageError) or case.is_deceptive
    told = "\n".join([str(failure), *getattr(failure, "__notes__", ())])
    for name, delete in left.items():
        assert name in told or name[:_UUID_LENGTH] in told
        delete()
    assert door(scene.sound) == expected


def _wait_for_threads() -> None:
    """Wait until each thread of a read has ended, or waits for its next call and nothing else."""
    for thread in threading.enumerate():
        if thread.name == threads._NAME:
            thread.join(_SILENCE_S)
            frame = sys._current_frames().get(thread.ident or 0)
            # Another thread may have the number of one that has ended.
            is_idle = (
                frame is None
                or not thread.is_alive()
                or frame.f_code is threads._Threads._work.__code__
            )
            assert is_idle, "".join(traceback.format_stack(frame))


@pytest.mark.parametrize("door", DOORS)
def test_a_door_gives_the_same_by_each_client(door: str, sound: Sound) -> None:
    """Where nothing fails; of messages, all that were written."""
    outcome, _ = sound.of(door, "fsspec")

    assert all(sound.of(door, client)[0] == outcome for client in CLIENTS)
    if door in {"read", "salvage", "stream", "copy", "write"}:
        assert isinstance(outcome, list)
        assert len(outcome) == len(NUMBERS)


@pytest.mark.parametrize("case", _SELECTION, ids=str)
def test_each_fault_once(case: Case, sound: Sound, tmp_path: Path) -> None:
    """In the answers to listings, and behind some that are right."""
    _check(case, sound, new_scene(case.client, sound.proxy, tmp_path, _LIMITS))


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", _EVERY_CASE, ids=str)
def test_a_door_gives_the_right_rows_or_an_error(case: Case, sound: Sound, tmp_path: Path) -> None:
    """By either client, whatever happens to all requests, to later ones, or to some."""
    _check(case, sound, new_scene(case.client, sound.proxy, tmp_path, _LIMITS))
