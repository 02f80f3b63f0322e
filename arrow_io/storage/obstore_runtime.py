"""Whether obstore works in this process: its threads do not exist after a fork."""

from __future__ import annotations

import os
from typing import Final

from arrow_io.errors import StorageError


class ObstoreRuntime:
    """The state of obstore's threads, of which a process has one set.

    Attributes:
        is_in_parent: Whether the threads exist only in the parent of this forked process.
    """

    def __init__(self) -> None:
        self.is_in_parent = False
        self._is_used = False
        if hasattr(os, "register_at_fork"):  # Windows does not fork
            os.register_at_fork(after_in_child=self._fork)

    def use(self) -> None:
        """Raise `StorageError` if the threads exist only in the parent: a request would hang."""
        if self.is_in_parent:
            message = (
                "obstore does not work in a process that was forked from one that used it: start"
                " processes by 'spawn' or 'forkserver', or leave out the storage option client"
            )
            raise StorageError(message)
        self._is_used = True

    def _fork(self) -> None:
        self.is_in_parent = self._is_used


runtime: Final = ObstoreRuntime()
"""The threads of this process."""
