"""A topic in a folder, offloaded by a live cluster whose retention may take its first ledger."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.support.admin_server import running_admin_server
from tests.support.cluster_model import ModelWorld
from tests.support.saved_metadata import answer_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.admin_server import AdminServer

TOPIC: Final = "persistent://public/default/orders"
LEDGERS: Final = 3


class TrimmedTopic:
    """A topic of three offloaded ledgers of two messages each.

    Args:
        folder: The bucket.
        server: The admin API of the cluster.
    """

    def __init__(self, folder: Path, server: AdminServer) -> None:
        self.url = str(folder)
        self.metadata = server.url
        self._folder, self._server = folder, server
        self._world = ModelWorld()
        self._topic = self._world.create(self._world.first, TOPIC)
        for _ in range(LEDGERS):
            self._world.produce(self._topic, 2)
            self._world.roll(self._topic)
            self._world.offload(self._topic.ledgers[-2])
        self._publish()

    def lose(self) -> None:
        """Delete the objects of the first ledger by mistake."""
        self._world.lose(self._topic.ledgers[0], index=True, data=True)
        self._publish()

    def trim(self) -> None:
        """Let retention take the first ledger."""
        self._world.trim(self._topic, remove=True)
        self._publish()

    def _publish(self) -> None:
        objects = self._world.bucket.objects
        for each in self._folder.iterdir():
            if each.name not in objects:
                each.unlink()
        for name, stored in objects.items():
            # One that is written again would be another version.
            if not (self._folder / name).exists():
                (self._folder / name).write_bytes(stored.data)
        answer_for(self._world.first, self._server)

    def drop(self) -> None:
        """Forget the model."""
        self._world.drop()


@contextmanager
def trimmed_topic(folder: Path) -> Iterator[TrimmedTopic]:
    """Offload the topic to a folder that does not exist yet."""
    folder.mkdir()
    with running_admin_server() as server:
        topic = TrimmedTopic(folder, server)
        try:
            yield topic
        finally:
            topic.drop()
