"""`python -m tests.fuzz`: changed bytes of real ledgers, until the time is over."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from random import Random

from arrow_io.core import builds
from tests.fuzz.rounds import ROUNDS


def main() -> None:
    """Run rounds, each with a seed of its own, which is told if it fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long; 60 by default")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the first round")
    given = parser.parse_args()
    assert builds.in_use.is_compiled
    print(f"core: {Path(builds.in_use.entries.__file__ or '').parent}, first seed: {given.seed}")  # noqa: T201
    deadline = time.monotonic() + given.seconds
    rounds, taken = 0, dict.fromkeys(ROUNDS, 0)
    while time.monotonic() < deadline:
        for name, run in ROUNDS.items():
            seed = given.seed + rounds
            try:
                taken[name] += run(Random(seed))
            except BaseException:
                print(f"{name}, seed {seed}")  # noqa: T201
                raise
        rounds += 1
    print(f"{rounds} rounds; sound all the same: {taken}")  # noqa: T201


if __name__ == "__main__":
    main()
