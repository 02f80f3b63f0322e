"""`python -m tests.mutation [MODULE …]`: what the tests of some modules do not notice.

Works on a copy of the tree, in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SESSION = HERE / "mutmut_session.py"
SETTINGS: dict[str, Any] = tomllib.loads((HERE / "settings.toml").read_text("utf-8"))
EQUIVALENT = tomllib.loads((HERE / "equivalent.toml").read_text("utf-8")).get("equivalent", [])
PACKAGES = ("arrow_io", "connector", "spark_ds")
KILLED = {"killed", "timeout", "segfault", "suspicious"}
"""Statuses of mutmut's; a change that hangs is noticed by the time that a test may take."""


@dataclass(frozen=True)
class Outcome:
    """What came of one module.

    Attributes:
        tried: How many mutants were tried.
        killed: How many of them the tests noticed.
        equivalent: How many of the others are listed as equivalent.
        survivors: Diffs of what remains.
        complaints: What is wrong with the list of equivalent mutations.
    """

    tried: int
    killed: int
    equivalent: int
    survivors: tuple[str, ...]
    complaints: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Share of the killed in those that are not equivalent."""
        counted = self.tried - self.equivalent
        return 100 * self.killed / counted if counted else 100.0


def copy_tree(folder: Path, module: str) -> None:
    """Copy what git knows and what is compiled, with mutmut's settings for one module.

    Args:
        folder: Where to; empty.
        module: Path of the module, below the root.
    """
    listed = subprocess.run(
        ("git", "ls-files", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()
    compiled = [str(path.relative_to(ROOT)) for path in ROOT.glob("arrow_io/*/*.so")]
    for name in (*listed, *compiled):
        source = ROOT / name
        if source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(source.read_bytes())
    beside = sorted({Path(name).parts[0] for name in listed} - {*PACKAGES, "tests"})
    # JSON's strings and lists are TOML's, too.
    settings = {
        "source_paths": PACKAGES,
        "only_mutate": [module],
        "also_copy": beside,
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "-p", "stable_ids"],
        "pytest_add_cli_args_test_selection": SETTINGS["modules"][module],
        "timeout_constant": SETTINGS["timeout_seconds"],
        "timeout_multiplier": SETTINGS["timeout_factor"],
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    with (folder / "pyproject.toml").open("a") as file:
        file.write("\n".join(("\n[tool.mutmut]", *lines, "")))


def mutants_of(module: str, sample: int, seed: int) -> list[dict[str, str]]:
    """All mutants of a module; those that were tried have a status.

    Raises:
        SystemExit: mutmut could not do its work, as when a test fails on what is unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = Path(name)
        copy_tree(folder, module)
        session = (sys.executable, SESSION, "results.json", str(sample), str(seed))
        with (folder / "log").open("w") as log:
            ended = subprocess.run(
                session,
                cwd=folder,
                env=os.environ | {"HYPOTHESIS_PROFILE": "mutation"},
                check=False,
                stdout=log,
                stderr=log,
            )
        results = folder / "results.json"
        if ended.returncode or not results.exists():
            sys.exit((folder / "log").read_text(errors="replace")[-5_000:])
        mutants: list[dict[str, str]] = json.loads(results.read_text("utf-8"))
        return mutants


def judge(module: str, mutants: list[dict[str, str]]) -> Outcome:
    """Take out what is listed as equivalent, and check that list."""
    known: dict[tuple[str, str, str], list[str | None]] = {
        (each["function"], each["from"], each["to"]): []
        for each in EQUIVALENT
        if each["module"] == module
    }
    tried = [each for each in mutants if "status" in each]
    for each in mutants:
        key = each["function"], each["removed"], each["added"]
        if key in known:
            known[key].append(each.get("status"))
    # On a busy machine time is up for what changes nothing, too: only a failed test says otherwise.
    complaints = [
        f"{key} is listed as equivalent, yet " + ("was killed" if statuses else "no mutation is it")
        for key, statuses in known.items()
        if not statuses or "killed" in statuses
    ]
    alive = [each for each in tried if each["status"] not in KILLED]
    survivors = tuple(
        f"{each['status']}: {each['function']}\n{each['diff']}"
        for each in alive
        if (each["function"], each["removed"], each["added"]) not in known
    )
    return Outcome(
        len(tried),
        len(tried) - len(alive),
        len(alive) - len(survivors),
        survivors,
        tuple(complaints),
    )


def main() -> int:
    """Try the modules that are named, or all; 1 if too many mutants survive."""
    modules: dict[str, list[str]] = SETTINGS["modules"]
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(modules)}")
    parser.add_argument("--sample", type=int, default=0, help="mutants of a module, 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of the sample")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(modules):
        parser.error(f"no tests are known for {', '.join(sorted(unknown))}")
    is_enough = True
    for module in given.modules or modules:
        outcome = judge(module, mutants_of(module, given.sample, given.seed))
        for each in (*outcome.survivors, *outcome.complaints):
            sys.stdout.write(f"{each}\n\n")
        sys.stdout.write(
            f"{module}: {outcome.tried} tried, {outcome.killed} killed,"
            f" {len(outcome.survivors)} survived, {outcome.equivalent} equivalent:"
            f" {outcome.percent:.1f} %\n"
        )
        sys.stdout.flush()
        is_enough &= not outcome.complaints and outcome.percent >= SETTINGS["fail_under_percent"]
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
