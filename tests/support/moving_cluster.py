"""A cluster that goes on working while somebody reads: it moves between any two requests.

Nothing is ever lost in it. So whatever a reader, an audit or a copy calls lost is a false verdict.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.support.cluster_model import ModelTopic, ModelWorld, Stage
from tests.support.oxia_server import OxiaServer
from tests.support.saved_metadata import answer_for, nodes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.admin_server import AdminServer
    from tests.support.cluster_model import ModelLedger

ORDERS: Final = "persistent://public/default/orders"
OTHER: Final = "persistent://public/default/other"
_LEDGERS: Final = 3


class Move(StrEnum):
    """What the cluster does to the topic that is read."""

    OFFLOAD = "offload"
    """A ledger is filled and offloaded."""
    OFFLOAD_IN_STEPS = "offload in steps"
    """The same; its index object comes a request after its data object."""
    TRIM = "trim"
    """Retention takes the oldest ledger."""
    TRIM_IN_STEPS = "trim in steps"
    """The same; its data object goes a request after it, and its index object another one after."""
    ROLL = "roll"
    """A ledger is filled and closed, and stays in BookKeeper."""
    TERMINATE = "terminate"
    """The topic ends."""
    RECREATE = "recreate"
    """The topic is deleted and made anew, with a ledger that is offloaded."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a cluster offloads and answers.

    Attributes:
        label: How tests name it.
        by_metadata: Whether who reads its topics asks it.
        by_store: Whether they ask its metadata store, and not its admin API.
        segments: In how many segments of streaming offload it writes a ledger; 0: by PIP-17.
        writes_map_files: Whether it has the filesystem driver instead.
        tells_uuids: Whether it answers with the uuids of offloads.
        buckets: How many buckets it offloads to by turns, one or two.
        gap: How many requests come between two steps of an offload, or of a deletion.
    """

    label: str
    by_metadata: bool = True
    by_store: bool = False
    segments: int = 0
    writes_map_files: bool = False
    tells_uuids: bool = True
    buckets: int = 1
    gap: int = 0

    def __str__(self) -> str:
        """The label."""
        return self.label


class MovingCluster:
    """A cluster with two topics, offloaded but for their last ledgers.

    Args:
        server: Answers for it: its admin API, or its metadata store.
        setting: How it offloads and answers.
    """

    def __init__(self, server: AdminServer | OxiaServer, setting: Setting) -> None:
        self.world = ModelWorld()
        self.world.first.segments = setting.segments
        self.world.first.writes_map_files = setting.writes_map_files
        self.setting = setting
        self.server = server
        self.trimmed: set[int] = set()
        self.log: list[str] = []
        self._lock = threading.RLock()
        self._is_done = False
        self._steps: deque[Callable[[], object]] = deque()
        self.orders = self.world.create(self.world.first, ORDERS)
        other = self.world.create(self.world.first, OTHER)
        for _ in range(_LEDGERS):
            self._offload(self.orders)
            self._offload(other)
        # A copy that was replaced: nothing needs its objects.
        replaced = self.orders.ledgers[-2].attempt
        assert replaced is not None
        self.leftover = set(replaced.objects)
        self.world.offload_again(self.orders.ledgers[-2])
        self._offloaded = {each.ledger_id: each for each in self.orders.ledgers if each.rows}
        self._answer()

    @property
    def url(self) -> str:
        """The bucket."""
        return self.world.bucket.url

    @property
    def is_at_rest(self) -> bool:
        """Whether the cluster has made its last move, and taken its last step."""
        return self._is_done and not self._steps

    @property
    def kept(self) -> dict[int, list[str]]:
        """Rows of each ledger that was offloaded at the beginning, and is not trimmed until now."""
        with self._lock:
            return {
                ledger_id: ledger.rows
                for ledger_id, ledger in self._offloaded.items()
                if ledger_id not in self.trimmed
            }

    @contextmanager
    def moving(self, moves: Iterator[Move | None]) -> Iterator[None]:
        """Take the next of some moves before each request; None: the cluster rests."""

        def move(*_: object) -> None:
            with self._lock:
                self.log.append("request")
                if self._steps:
                    self._steps.popleft()()
                elif not self._is_done:
                    self._move_by(moves)
                self._answer()

        buckets = (self.world.bucket, self.world.elsewhere)
        for each in buckets:
            each.before_request = move
        self.server.before_answer = move
        try:
            yield
        finally:
            for each in buckets:
                each.before_request = lambda: None
            self.server.before_answer = lambda *_: None

    def _answer(self) -> None:
        if isinstance(self.server, OxiaServer):
            self.server.replace(nodes_of(self.world.first))
            return
        answer_for(self.world.first, self.server, tells_uuids=self.setting.tells_uuids)

    def _then(self, step: Callable[[], object]) -> None:
        """Take a step after the gap; until then the cluster does nothing else."""
        self._steps.extend([_rest] * self.setting.gap)
        self._steps.append(step)

    def _move_by(self, moves: Iterator[Move | None]) -> None:
        try:
            move = next(moves)
        except StopIteration:
            self._is_done = True
        else:
            self._move(move)

    def _move(self, move: Move | None) -> None:
        if move is None:
            return
        self.log.append(move.value)
        if self.orders.is_terminated and move in {Move.OFFLOAD, Move.OFFLOAD_IN_STEPS, Move.ROLL}:
            return
        match move:
            case Move.OFFLOAD:
                self._offload(self.orders)
            case Move.OFFLOAD_IN_STEPS:
                attempt = self.world.begin_offload(self._filled(self.orders), Stage.DATA)
                self._then(lambda: self.world.finish_offload(attempt))
            case Move.TRIM | Move.TRIM_IN_STEPS:
                self._trim(in_steps=move is Move.TRIM_IN_STEPS)
            case Move.ROLL:
                self._filled(self.orders)
            case Move.TERMINATE:
                self.world.terminate(self.orders)
            case Move.RECREATE:
                self._recreate()

    def _trim(self, *, in_steps: bool) -> None:
        if len(self.orders.ledgers) > 1:
            ledger = self.orders.ledgers[0]
            self.world.trim(self.orders, remove=False)
            self._delete(ledger, in_steps=in_steps)

    def _recreate(self) -> None:
        ledgers = list(self.orders.ledgers)
        self.world.delete_topic(self.orders, remove=False)
        for ledger in ledgers:
            self._delete(ledger, in_steps=False)
        self.orders = self.world.create(self.world.first, ORDERS)
        self._offload(self.orders)

    def _filled(self, topic: ModelTopic) -> ModelLedger:
        """Close the open ledger with two messages in it, and give the oldest to be offloaded."""
        self.world.produce(topic, 2)
        self.world.roll(topic)
        first = self.world.first
        first.offloads_here = self.setting.buckets == 1 or not first.offloads_here
        return next(each for each in topic.ledgers if each.is_closed and not each.is_offloaded)

    def _offload(self, topic: ModelTopic) -> None:
        """Offload all that is closed, the oldest first, as Pulsar does."""
        self._filled(topic)
        for each in topic.ledgers:
            if each.is_closed and not each.is_offloaded:
                self.world.offload(each)

    def _delete(self, ledger: ModelLedger, *, in_steps: bool) -> None:
        """Delete the objects of a ledger that no metadata lists any more."""
        self.trimmed.add(ledger.ledger_id)
        attempt = ledger.attempt
        if attempt is None:
            return
        if in_steps:
            for name in attempt.encoded:
                self._then(partial(self.world.delete, name))
        else:
            self.world.delete(*attempt.encoded)


def _rest() -> None:
    """Do nothing."""


def one_move(move: Move, at: int) -> Iterator[Move | None]:
    """One move before the request of a number, counted from 0."""
    yield from [None] * at
    yield move


def many_moves(seed: int) -> Iterator[Move | None]:
    """Moves at random, before about every fourth request; most of them offload.

    Whoever reads a topic that is trimmed or made anew may end with an error, which is no loss; and
    then less is looked at. So one of three seeds does neither, and one of three does both.
    """
    source = random.Random(seed)
    moves = [Move.OFFLOAD, Move.OFFLOAD_IN_STEPS, Move.ROLL] * 3 + [Move.TERMINATE]
    if seed % 3:
        moves += [Move.TRIM, Move.TRIM_IN_STEPS]
    if seed % 3 == 2:
        moves.append(Move.RECREATE)
    for _ in range(60):
        yield source.choice(moves) if source.random() < 1 / 4 else None
