"""`python -m tests.benchmarks.regressions`: whether benchmarks take longer than at a recorded run.

`check` runs the benchmarks of this tree and of the recorded commit in turns, on this machine, and
fails if one takes more than 5 % longer. `record` measures this commit, and writes the record of
this machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.benchmarks.peers.__main__ import print_table
from tests.benchmarks.regressions import checkouts, records
from tests.benchmarks.regressions.pairing import Effort, Measured, measure, open_worker
from tests.benchmarks.regressions.rows import REMOVED
from tests.benchmarks.regressions.verdicts import LIMIT, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tests.benchmarks.regressions.records import Figures, Machine, Record

_NEW: Final = "new"
_MISSING: Final = "missing"
_REMOVED: Final = "removed"
_FAILING: Final = (Verdict.SLOWER.value, _MISSING)


class NoRecordError(Exception):
    """There is no record to compare with."""


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table.

    Attributes:
        name: Name of the benchmark.
        recorded: Its recorded figures; None if there are no such figures.
        measured: Its figures of this run; None if this tree lacks the benchmark.
        verdict: A `Verdict`, or that it is new, missing or removed.
    """

    name: str
    recorded: Figures | None
    measured: Measured | None
    verdict: str

    @property
    def is_failure(self) -> bool:
        """Whether the check fails because of it."""
        return self.verdict in _FAILING


def results(
    measured: Sequence[Measured],
    recorded: Mapping[str, Figures],
    missing: Collection[str] = (),
    removed: Collection[str] = REMOVED,
) -> list[Result]:
    """Return the rows of the table.

    Args:
        measured: Benchmarks of this tree.
        recorded: Recorded figures of benchmarks, by name.
        missing: Names of benchmarks that the old checkout or the record has, and this tree lacks.
        removed: Names of those that were removed on purpose.
    """
    found = []
    for row in measured:
        verdict = row.comparison.verdict.value if row.comparison else _NEW
        found.append(Result(row.name, recorded.get(row.name), row, verdict))
    for name in sorted(missing):
        verdict = _REMOVED if name in removed else _MISSING
        found.append(Result(name, recorded.get(name), None, verdict))
    return found


def table(rows: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the cells of the table, its head first."""
    head = ("benchmark", "CPU time", "to floor, recorded", "now", "new to old", "99 %", "verdict")
    return [head, *(_cells(row) for row in rows)]


def _cells(row: Result) -> tuple[str, ...]:
    seconds = now = pair = interval = "–"
    if row.measured:
        seconds = f"{min(row.measured.seconds) * 1e3:,.3f} ms"
        now = f"{row.measured.ratio_to_floor:.2f}×"
        if comparison := row.measured.comparison:
            pair = f"{comparison.median:.3f}"
            interval = f"{comparison.low:.3f} to {comparison.high:.3f}"
    recorded = f"{row.recorded.ratio:.2f}×" if row.recorded else "–"
    return row.name, seconds, recorded, now, pair, interval, row.verdict


def choose_commit(
    all_records: Sequence[Record],
    machine: Machine,
    against: str | None,
    root: Path = checkouts.ROOT,
) -> tuple[str, Mapping[str, Figures], str]:
    """Choose the commit to compare with.

    Args:
        all_records: The records of all machines.
        machine: This machine.
        against: A name of the commit; None: that of the record of this machine, or else the
            newest of all records, because figures of another machine say nothing of this one.
        root: The repository.

    Returns:
        The commit, the figures that this machine recorded of it, and a sentence that says why this
        one.

    Raises:
        NoRecordError: There is no record.
        CommitError: This clone does not have it.
    """
    own = next((each for each in all_records if each.machine.key == machine.key), None)
    if against:
        commit = checkouts.find_commit(against, root)
        figures = own.rows if own and own.commit == commit else {}
        return commit, figures, f"Compared with {commit[:12]}."
    if own:
        commit = checkouts.find_commit(own.commit, root)
        return commit, own.rows, f"Compared with {commit[:12]}, which this machine recorded."
    if not all_records:
        message = (
            "There is no recorded run: make bench-record writes one, or name a commit (--against)."
        )
        raise NoRecordError(message)
    commit = checkouts.newest((each.commit for each in all_records), root)
    text = f"Compared with {commit[:12]}, the newest record: {machine.key} has none."
    return commit, {}, text


def check(
    effort: Effort,
    *,
    only: Sequence[str] = (),
    against: str | None = None,
    messages: int | None = None,
) -> list[Result]:
    """Compare this tree with an earlier commit, and print the table.

    Args:
        effort: How often benchmarks are run.
        only: Texts of which a benchmark has one in its name; empty for all benchmarks.
        against: A name of the commit; None for the recorded one.
        messages: Messages of each ledger and payloads of each kind; None: enough of each.

    Returns:
        The rows of the table.

    Raises:
        NoRecordError: No commit is recorded.
        CommitError: There is no such commit in this clone, or its core is not built as this one is.
    """
    commit, recorded, reason = choose_commit(
        records.read_records(records.FOLDER), records.this_machine(), against
    )
    print(reason, flush=True)  # noqa: T201
    old_checkout = checkouts.check_out(commit)
    with tempfile.TemporaryDirectory() as folder:
        open_new = partial(open_worker, checkouts.ROOT, folder, messages)
        open_old = partial(open_worker, old_checkout, folder, messages)
        with open_new() as new, open_old() as old:
            names, old_names = new.names, old.names
            if new.build != old.build:
                message = f"This tree has a {new.build} core, the old checkout a {old.build} one."
                raise checkouts.CommitError(message)
        chosen = _chosen(names, only)
        missing = set(_chosen([*old_names, *recorded], only)) - set(names)
        rows = results(measure(chosen, open_new, open_old, effort), recorded, missing)
    print_table(table(rows))
    if undecided := [row.name for row in rows if row.verdict == Verdict.UNDECIDED.value]:
        print(  # noqa: T201
            f"\nNot decidable on this machine now: {', '.join(undecided)}. More sessions"
            " (--max-sessions) or fewer other programs decide."
        )
    if failures := [row.name for row in rows if row.is_failure]:
        print(f"\nMore than {LIMIT - 1:.0%} slower, or missing: {', '.join(failures)}.")  # noqa: T201
    return rows


def record(effort: Effort) -> None:
    """Measure this commit, and write the record of this machine.

    Raises:
        CommitError: The tree has changes.
    """
    commit = checkouts.clean_head()
    with tempfile.TemporaryDirectory() as folder:
        open_new = partial(open_worker, checkouts.ROOT, folder, None)
        with open_new() as new:
            names = new.names
        rows = measure(names, open_new, effort=effort)
    made = records.from_measured(commit, records.this_machine(), rows)
    path = records.write_record(made, records.FOLDER)
    print(f"Recorded {commit[:12]} in {path.relative_to(checkouts.ROOT)}.")  # noqa: T201


def _chosen(names: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return the names that contain one of some texts; without texts, all."""
    return [name for name in names if not only or any(text in name for text in only)]


def main() -> int:
    """Run a command.

    Returns:
        The exit code: 1 if the check fails, 2 if it cannot be made.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.regressions")
    parser.description = __doc__
    commands = parser.add_subparsers(dest="command", required=True)
    default = Effort()
    for name in ("check", "record"):
        add = commands.add_parser(name).add_argument
        add("--sessions", type=int, default=default.sessions, help="processes for each benchmark")
        add("--pairs", type=int, default=default.pairs, help="runs in each process")
        if name == "check":
            add("--max-sessions", type=int, default=default.max_sessions, help="if undecided")
            add("--only", action="append", metavar="TEXT", help="part of a name; repeatable")
            add("--against", metavar="COMMIT", help="a commit, in the place of the recorded one")
            add("--messages", type=int, help="messages of each ledger, payloads of each kind")
    arguments = parser.parse_args()
    try:
        if arguments.command == "record":
            record(Effort(arguments.sessions, arguments.sessions, arguments.pairs))
            return 0
        most = max(arguments.sessions, arguments.max_sessions)
        rows = check(
            Effort(arguments.sessions, most, arguments.pairs),
            only=arguments.only or (),
            against=arguments.against,
            messages=arguments.messages,
        )
        return int(any(row.is_failure for row in rows))
    except (NoRecordError, checkouts.CommitError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
