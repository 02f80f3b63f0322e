"""An interruption of running code at each of its lines in turn: by another run, or by its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from types import FrameType


class Interruption:
    """Runs something once, before a call from a line of some files that was not met before.

    Args:
        files: Paths of the files.
        met_lines: File and number of the lines that were met; those of this run are added.
        run: What is run. Its exceptions leave the call.
    """

    def __init__(
        self, files: Container[str], met_lines: set[tuple[str, int]], run: Callable[[], None]
    ) -> None:
        self._files, self._met_lines, self._run = files, met_lines, run
        self.is_over = False

    def __enter__(self) -> Self:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        caller = frame if event == "c_call" else frame.f_back
        if event not in {"call", "c_call"} or caller is None:
            return
        line = caller.f_code.co_filename, caller.f_lineno
        if line[0] in self._files and line not in self._met_lines:
            self._met_lines.add(line)
            sys.setprofile(None)
            self.is_over = True
            self._run()
