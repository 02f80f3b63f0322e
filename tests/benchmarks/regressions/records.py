"""Recorded runs: one file of TOML for each machine, with what its last run measured."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sysconfig
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.regressions.pairing import Measured

FOLDER: Final = Path(__file__).parents[1] / "recorded"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures depend on besides the commit.

    Attributes:
        processor: Model of the processor.
        cores: Number of its cores that the system sees.
        python: Implementation and version of Python.
        compiler: Version of the C compiler.
        flags: Options of the C compiler that Python adds to those of the core.
    """

    processor: str
    cores: int
    python: str
    compiler: str
    flags: str

    @property
    def key(self) -> str:
        """Name of its file without suffix: the processor, its cores, and Python's minor version."""
        python = ".".join(self.python.split(".")[:2])
        text = f"{self.processor} {self.cores} {python}".lower()
        return re.sub(r"[^a-z0-9.]+", "-", text).strip("-")


@dataclass(frozen=True, slots=True)
class Figures:
    """The recorded figures of one benchmark.

    Attributes:
        seconds: CPU time.
        ratio: CPU time divided by that of the yardstick, in the same run.
    """

    seconds: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Record:
    """A recorded run.

    Attributes:
        commit: Its commit, as 40 hexadecimal digits.
        machine: Its machine.
        rows: Its figures, by name of the benchmark.
    """

    commit: str
    machine: Machine
    rows: dict[str, Figures]


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    try:
        printed = subprocess.run(
            [*compiler.split(), "--version"], check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        printed = ""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        compiler=printed.partition("\n")[0] or "unknown",
        flags=sysconfig.get_config_var("CFLAGS") or "",
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def from_measured(commit: str, machine: Machine, rows: Iterable[Measured]) -> Record:
    """Return the record of a run."""
    figures = {row.name: Figures(min(row.seconds), row.ratio_to_floor) for row in rows}
    return Record(commit, machine, figures)


def write_record(record: Record, folder: Path) -> Path:
    """Write the record of a machine, in the place of its last one; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.machine.key}.toml"
    path.write_text(to_text(record), encoding="utf-8")
    return path


def to_text(record: Record) -> str:
    """Return a record as TOML, with one line for each benchmark, sorted by name."""
    lines = [f"commit = {_text(record.commit)}", "", "[machine]"]
    lines += [
        f"{name} = {value if isinstance(value, int) else _text(value)}"
        for name, value in sorted(asdict(record.machine).items())
    ]
    lines += ["", "[rows]"]
    lines += [
        f"{_text(name)} = {{ seconds = {each.seconds:.3g}, ratio = {each.ratio:.3g} }}"
        for name, each in sorted(record.rows.items())
    ]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    # A string of JSON is one of TOML, unless it has characters that JSON leaves as they are: DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_records(folder: Path) -> list[Record]:
    """Return the records of all machines."""
    return [from_text(path.read_text("utf-8")) for path in sorted(folder.glob("*.toml"))]


def from_text(text: str) -> Record:
    """Return the record that a text of TOML is.

    Raises:
        ValueError: The text is not a record.
    """
    match tomllib.loads(text):
        case {"commit": str(commit), "machine": dict(machine), "rows": dict(rows)}:
            figures = {
                name: Figures(float(each["seconds"]), float(each["ratio"]))
                for name, each in rows.items()
            }
            return Record(commit, Machine(**machine), figures)
        case values:
            message = f"a record has a commit, a machine and rows, and this one {sorted(values)}"
            raise ValueError(message)
