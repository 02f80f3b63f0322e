"""A folder in which the files of the page run, and copies that stop in the middle."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from deltalake import DeltaTable

from connector import open_topic
from tests.support.golden import GOLDEN
from tests.support.snippets import write_files

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE: Final = Path(__file__).parents[2] / "docs" / "recipes" / "scheduling.md"
POSITION: Final = ["__ledger_id__", "__entry_id__", "__batch_index__"]
TOPIC: Final = "multi-ledger"
"""A topic of six ledgers, each of which has a commit of its own in a copy that stops."""
SECOND_TO_APPEND: Final = 2
STOPPING: Final = f'''
import os
import signal
from itertools import count
from pathlib import Path

import deltalake
from connector.lake.copy_plan import CopySizes

_append = deltalake.DeltaTable.create_write_transaction
_numbers = count(1)


def stop(*args, **options):
    """Stop before the third commit, once."""
    if next(_numbers) == {SECOND_TO_APPEND} and not Path("stopped").exists():
        Path("stopped").touch()
        if os.environ["STOPPED_BY"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the worker has lost its disk")
    return _append(*args, **options)


deltalake.DeltaTable.create_write_transaction = stop
SIZES = CopySizes(commit_bytes=1)
'''


@dataclass(frozen=True)
class Workplace:
    """The current folder, with the bucket of the page as `golden`, and the files of the page."""

    folder: Path
    files: dict[str, Path]

    def replace(self, name: str, *changes: tuple[str, str]) -> None:
        """Change texts in a file."""
        text = self.files[name].read_text("utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.files[name].write_text(text, "utf-8")

    def let_stop(self, name: str) -> None:
        """Let the copy in a Python file stop, as `STOPPED_BY` says, before its third commit."""
        (self.folder / "stopping.py").write_text(STOPPING, "utf-8")
        self.replace(
            name,
            ("import copy_topics\n", "import copy_topics\n{}import stopping\n"),
            ('metadata="golden"', 'metadata="golden", sizes=stopping.SIZES'),
        )
        text = self.files[name].read_text("utf-8")
        line = next(each for each in text.split("\n") if "import copy_topics" in each)
        indent = line[: len(line) - len(line.lstrip())]
        self.files[name].write_text(text.replace("{}import", f"{indent}import"), "utf-8")

    def positions(self, table: str) -> list[tuple[object, ...]]:
        """The positions of a table's rows, in order."""
        rows = DeltaTable(self.folder / table).to_pyarrow_dataset().to_table(POSITION)
        return _in_order(rows.to_pylist())

    def environment(self, **variables: str) -> dict[str, str]:
        """Variables of processes that find this folder's modules, and `pulsar-offload`."""
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
            **variables,
        }


def positions_of(topic: str) -> list[tuple[object, ...]]:
    """The positions of a topic's messages, in order."""
    golden = GOLDEN / "pulsar-4.0.7"
    return _in_order(open_topic(f"{golden}/objects", topic).to_table(POSITION).to_pylist())


def _in_order(rows: Iterable[dict[str, int | None]]) -> list[tuple[object, ...]]:
    # Of messages that are not in a batch, the index is null.
    return sorted(tuple(-1 if each is None else each for each in row.values()) for row in rows)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "golden").symlink_to(GOLDEN / "pulsar-4.0.7")
    program = tmp_path / "bin" / "pulsar-offload"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m connector.cli "$@"\n', "utf-8")
    program.chmod(0o755)
    return Workplace(tmp_path, write_files(PAGE.read_text("utf-8"), tmp_path))
