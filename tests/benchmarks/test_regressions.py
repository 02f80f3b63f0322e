"""The comparison with a recorded commit: with a fake clock, and untimed on few messages."""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.peers.decoders import Ours
from tests.benchmarks.peers.payloads import KINDS
from tests.benchmarks.regressions import __main__ as command
from tests.benchmarks.regressions import checkouts, records
from tests.benchmarks.regressions.__main__ import choose_commit, results, table
from tests.benchmarks.regressions.pairing import (
    DifferentRowsError,
    Effort,
    Measured,
    WorkerError,
    measure,
    open_worker,
)
from tests.benchmarks.regressions.records import Figures, Machine, Record
from tests.benchmarks.regressions.rows import Row, open_rows
from tests.benchmarks.regressions.verdicts import CONFIDENCE, LIMIT, Verdict, compare
from tests.benchmarks.regressions.worker import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MESSAGES: Final = 40
ONCE: Final = Effort(sessions=1, max_sessions=1, pairs=1)
MACHINE: Final = Machine("Model X (2 GHz)", 2, "CPython 3.11.9", 'gcc "12"', "-O2")
ratios_of_runs = st.lists(st.floats(0.01, 100), min_size=1, max_size=40)


# Verdicts


def _noisy(seed: int, slowdown: float, noise: float, count: int = 8) -> list[float]:
    dice = random.Random(seed)
    return [slowdown * float(dice.lognormvariate(0, noise)) for _ in range(count)]


def _verdicts(slowdown: float, noise: float) -> list[Verdict]:
    return [compare(_noisy(seed, slowdown, noise)).verdict for seed in range(300)]


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03, 0.1])
def test_equal_sides_hardly_ever_fail(noise: float) -> None:
    """However large the noise is, fewer than one comparison in a hundred fails."""
    assert _verdicts(1, noise).count(Verdict.SLOWER) < 3


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02])
def test_a_tenth_more_time_fails(noise: float) -> None:
    """With the noise of an idle machine, nearly every comparison fails, and none passes."""
    verdicts = _verdicts(1.1, noise)

    assert verdicts.count(Verdict.SLOWER) > 0.9 * len(verdicts)
    assert Verdict.OK not in verdicts


def test_noise_leaves_the_limit_undecided() -> None:
    """A tenth more time is neither shown nor refuted if single ratios differ by more."""
    assert _verdicts(1.1, 0.3).count(Verdict.UNDECIDED) > 270


def test_less_time_passes() -> None:
    """A benchmark that became faster is no failure."""
    assert set(_verdicts(0.8, 0.02)) == {Verdict.OK}


@given(ratios_of_runs, st.randoms(use_true_random=False))
def test_the_order_of_ratios_does_not_matter(ratios: list[float], dice: random.Random) -> None:
    """The comparison is that of a set of ratios."""
    shuffled = ratios.copy()
    dice.shuffle(shuffled)

    assert compare(shuffled) == compare(ratios)


@given(ratios_of_runs, st.floats(0.5, 2))
def test_the_verdict_is_that_of_the_interval(ratios: list[float], limit: float) -> None:
    """The interval contains the median, and fails if all of it is above the limit."""
    found = compare(ratios, limit=limit)

    assert found.low <= found.median <= found.high
    assert (found.verdict is Verdict.SLOWER) == (found.low > limit)
    assert (found.verdict is Verdict.OK) == (found.high <= limit)


@given(ratios_of_runs, st.floats(1, 10))
def test_more_time_never_passes_what_failed(ratios: list[float], factor: float) -> None:
    """Verdicts go from ok by undecided to slower."""
    order = [Verdict.OK, Verdict.UNDECIDED, Verdict.SLOWER]
    before = compare(ratios).verdict
    after = compare([each * factor for each in ratios]).verdict

    assert order.index(after) >= order.index(before)


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_the_interval_contains_the_median_as_often_as_it_says(
    count: int, confidence: float
) -> None:
    """Of all ways in which ratios are below or above the median; no narrower interval does."""
    found = compare(range(1, count + 1), confidence=confidence)

    def coverage(left_out: int) -> float:
        below = (number.bit_count() for number in range(1 << count))
        inside: int = sum(left_out < each < count - left_out for each in below)
        return inside / (1 << count)

    if found.high == math.inf:
        assert found.low == 0
        assert coverage(0) < confidence
    else:
        left_out = round(found.low) - 1
        assert found.high == count - left_out
        assert coverage(left_out) >= confidence
        assert left_out == (count - 1) // 2 or coverage(left_out + 1) < confidence


# Pairs of runs


class _Machine:
    """A machine whose clock goes on only by what benchmarks do."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.opened = 0

    def side(
        self, name: str, cost: float | Callable[[], float], rows: tuple[str, ...] = ("decoder",)
    ) -> Callable[[], contextlib.AbstractContextManager[Timer]]:
        """Return what opens a side; `cost`: seconds of each payload that its decoder decodes."""
        (kind,) = (each for each in KINDS if each.name == "avro-flat")

        def prepare() -> Row:
            decoder = Ours(kind.payloads(MESSAGES), 16)

            def run() -> int:
                self.order.append(name)
                count = decoder.run()
                self.now += count * (cost() if callable(cost) else cost)
                return count

            return Row(run, partial(self._pass, 0.5))

        @contextlib.contextmanager
        def opened() -> Iterator[Timer]:
            self.opened += 1
            yield Timer(dict.fromkeys(rows, prepare), lambda: self.now)

        return opened

    def _pass(self, seconds: float) -> None:
        self.now += seconds


def test_a_slower_decoder_fails() -> None:
    """A decoder that does a tenth more for each payload is found, and its yardstick is not."""
    machine = _Machine()

    (row,) = measure(["decoder"], machine.side("new", 0.11), machine.side("old", 0.1))

    assert row.comparison is not None
    assert row.comparison.verdict is Verdict.SLOWER
    assert row.comparison.median == pytest.approx(1.1)
    assert row.ratio_to_floor == pytest.approx(MESSAGES * 0.11 / 0.5)
    [found] = results([row], {})
    assert found.is_failure


def test_an_equal_decoder_passes_without_more_sessions() -> None:
    """Each session has a process for each side, and undecided benchmarks alone get more."""
    machine = _Machine()

    (row,) = measure(["decoder"], machine.side("new", 0.1), machine.side("old", 0.1))

    assert row.comparison is not None
    assert row.comparison.verdict is Verdict.OK
    assert machine.opened == 2 * Effort().sessions
    assert not results([row], {})[0].is_failure


def test_what_is_undecided_gets_more_sessions() -> None:
    """As many as are allowed: a decoder that is as often faster as slower stays undecided."""
    machine = _Machine()
    costs = iter([0.05] * 5 + [0.2] * 5)
    session = Effort(sessions=8, max_sessions=11, pairs=3)

    def cost() -> float:
        nonlocal costs
        if (value := next(costs, None)) is None:
            costs = iter([0.05] * 5 + [0.2] * 5)
            value = next(costs)
        return value

    (row,) = measure(["decoder"], machine.side("new", cost), machine.side("old", 0.1), session)

    assert len(row.ratios) == 11
    assert results([row], {})[0].verdict == "undecided"
    assert not results([row], {})[0].is_failure


def test_each_side_is_first_as_often() -> None:
    """Within a session, and in the next one the other way round."""
    machine = _Machine()
    twice = Effort(sessions=2, max_sessions=2, pairs=2)

    measure(["decoder"], machine.side("new", 0.1), machine.side("old", 0.1), twice)

    prepared = ["new", "new", "old", "old"]
    first, second = machine.order[4:8], machine.order[12:16]
    assert machine.order == [*prepared, *first, *prepared, *second]
    assert sorted(first) == sorted(second) == sorted(prepared)
    assert first[0] != second[0]


def test_short_benchmarks_are_repeated() -> None:
    """The clock is too coarse for a benchmark of microseconds, so that both sides repeat it."""
    machine = _Machine()

    (row,) = measure(["decoder"], machine.side("new", 2**-20), machine.side("old", 2**-20), ONCE)

    assert row.seconds == [MESSAGES * 2**-20]
    assert machine.order.count("new") == machine.order.count("old") == 2 + 263


def test_a_benchmark_with_other_rows_is_an_error() -> None:
    """Times of different work are not compared."""

    @contextlib.contextmanager
    def fewer() -> Iterator[Timer]:
        yield Timer({"decoder": lambda: Row(lambda: 3, lambda: None)}, iter(range(99)).__next__)

    with pytest.raises(DifferentRowsError, match="decoder: 40 rows, and 3 in the old checkout"):
        measure(["decoder"], _Machine().side("new", 0.1), fewer, ONCE)


def test_a_new_benchmark_passes_and_a_missing_one_fails() -> None:
    """Unless it was removed on purpose."""
    machine = _Machine()
    (row,) = measure(["decoder"], machine.side("new", 0.1), machine.side("old", 0.1, rows=()), ONCE)

    found = results([row], {"gone": Figures(1, 2)}, {"gone", "lost"}, {"lost": "a reason"})

    assert [(each.name, each.verdict) for each in found] == [
        ("decoder", "new"),
        ("gone", "missing"),
        ("lost", "removed"),
    ]
    assert [each.is_failure for each in found] == [False, True, False]
    assert len({len(line) for line in table(found)}) == 1


# Records


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """One line for each benchmark, sorted, so that a change of one is a change of a line."""
    rows = {"b, 1": Figures(0.0123, 1.5), 'a "quoted"': Figures(1e-6, 0.25)}
    record = Record("ab" * 20, MACHINE, rows)

    path = records.write_record(record, tmp_path)

    assert path.name == "model-x-2-ghz-2-cpython-3.11.toml"
    assert records.read_records(tmp_path) == [record]
    lines = path.read_text().splitlines()
    assert lines[-2:] == [
        '"a \\"quoted\\"" = { seconds = 1e-06, ratio = 0.25 }',
        '"b, 1" = { seconds = 0.0123, ratio = 1.5 }',
    ]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_recorded(text: str) -> None:
    """A compiler may print anything."""
    record = Record("c", replace(MACHINE, compiler=text), {text: Figures(1, 2)})

    assert records.from_text(records.to_text(record)) == record


def test_a_file_that_is_no_record_is_refused() -> None:
    """The message says what a record has."""
    with pytest.raises(ValueError, match=r"has a commit, a machine and rows, and this one"):
        records.from_text("commit = 3")


def test_the_records_of_the_repository_are_records() -> None:
    """Each is in the file of its machine, and this machine has a name."""
    for path in records.FOLDER.glob("*.toml"):
        assert path.stem == records.from_text(path.read_text("utf-8")).machine.key
    machine = records.this_machine()
    assert machine.cores > 0
    assert machine.key.endswith(".".join(map(str, sys.version_info[:2])))


# Commits


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits of one file."""
    root = tmp_path / "repository"
    root.mkdir()
    run = partial(subprocess.run, cwd=root, check=True, capture_output=True)
    run(["git", "init", "--quiet"])
    for number in (1, 2):
        (root / "file").write_text(str(number))
        run(["git", "add", "file"])
        date = f"2026-01-0{number}T00:00:00Z"
        names = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        run(
            ["git", *names, "commit", "--quiet", "--no-verify", f"--date={date}", "-m", "x"],
            env=os.environ | {"GIT_COMMITTER_DATE": date},
        )
    return root


def test_a_commit_is_checked_out_and_built_once(repository: Path, tmp_path: Path) -> None:
    """A second run finds it, and one that is stopped leaves none."""
    commit = checkouts.find_commit("HEAD~1", repository)
    built: list[str] = []

    def stop(_checkout: Path) -> None:
        raise KeyboardInterrupt

    def build(checkout: Path) -> None:
        built.append((checkout / "file").read_text())

    check_out = partial(checkouts.check_out, commit, tmp_path / "bench", root=repository)
    with pytest.raises(KeyboardInterrupt):
        check_out(build=stop)
    first, second = check_out(build=build), check_out(build=build)

    assert built == ["1"]
    assert first == second == tmp_path / "bench" / commit
    assert [each.name for each in first.iterdir()] == ["file"]


def test_a_changed_tree_is_not_recorded(repository: Path) -> None:
    """A record names a commit, whose code it measured."""
    assert checkouts.clean_head(repository) == checkouts.find_commit("HEAD", repository)
    (repository / "file").write_text("3")

    with pytest.raises(checkouts.CommitError, match=r"(?s)Commit these changes first:.*file"):
        checkouts.clean_head(repository)


def test_a_commit_that_is_not_there_is_named(repository: Path) -> None:
    """A shallow clone lacks most commits."""
    with pytest.raises(checkouts.CommitError, match="does not have commit 0123abc: git fetch"):
        checkouts.find_commit("0123abc", repository)


def test_a_core_that_cannot_be_compiled_is_an_error(tmp_path: Path) -> None:
    """The message has what the compiler printed last."""
    (tmp_path / "setup.py").write_text("raise SystemExit('no compiler')")

    with pytest.raises(checkouts.CommitError, match=r"(?s)cannot be compiled:.*no compiler"):
        checkouts.compile_core(tmp_path)


def test_the_commit_of_this_machine_is_chosen(repository: Path) -> None:
    """Or that of the newest record, or the one that is named; without any, there is an error."""
    old, new = (checkouts.find_commit(each, repository) for each in ("HEAD~1", "HEAD"))
    mine, others = {"mine": Figures(1, 1)}, {"others": Figures(1, 1)}
    own = Record(old, MACHINE, mine)
    other = Record(new, replace(MACHINE, processor="Y"), others)
    third = Record(old, replace(MACHINE, processor="Z"), others)
    choose = partial(choose_commit, root=repository)

    assert choose([other, own], MACHINE, None)[:2] == (old, mine)
    commit, figures, reason = choose([third, other], MACHINE, None)
    assert (commit, figures) == (new, {})
    assert "model-x" in reason
    assert "has none" in reason
    assert choose([own], MACHINE, "HEAD")[:2] == (new, {})
    assert choose([own], MACHINE, "HEAD~1")[:2] == (old, mine)
    with pytest.raises(command.NoRecordError, match="make bench-record"):
        choose([], MACHINE, None)


# Processes


def test_both_sides_have_the_benchmarks_of_their_checkout(tmp_path: Path) -> None:
    """A process imports the benchmarks of the checkout, and this file's worker."""
    old = tmp_path / "old"
    _write_checkout(old, "{'one': lambda: Row(), 'two': lambda: Row()}")

    with open_worker(old, str(tmp_path), 7) as side:
        assert side.names == ["one", "two"]
        assert side.build == "pure"
        assert side.prepare("two")[0] == 7
        assert side.run(2) >= 0
        assert side.floor() >= 0


def test_a_process_that_fails_is_noticed(tmp_path: Path) -> None:
    """A benchmark that raises an error ends its process, and then the comparison."""
    old = tmp_path / "old"
    _write_checkout(old, "{'one': lambda: 1 / 0}")

    with open_worker(old, str(tmp_path), 7) as side:
        with pytest.raises(WorkerError, match="ended with code 1"):
            side.prepare("one")
        with pytest.raises(WorkerError, match="ended with code 1"):
            side.run(1)


def test_a_process_with_another_checkout_is_refused(tmp_path: Path) -> None:
    """Figures of the wrong tree are worse than none."""
    old = tmp_path / "old"
    _write_checkout(old, "{}")
    (old / "arrow_io").rename(old / "hidden")

    with (
        pytest.raises(WorkerError, match="was imported, which is not in"),
        open_worker(old, str(tmp_path), None),
    ):
        pass


def _write_checkout(root: Path, rows: str) -> None:
    (root / "arrow_io" / "core").mkdir(parents=True)
    (root / "arrow_io" / "__init__.py").touch()
    (root / "arrow_io" / "core" / "__init__.py").touch()
    (root / "arrow_io" / "core" / "builds.py").write_text(
        "class in_use:\n    is_compiled = False\n"
    )
    package = root / "tests" / "benchmarks" / "regressions"
    package.mkdir(parents=True)
    for folder in (root / "tests", root / "tests" / "benchmarks", package):
        (folder / "__init__.py").touch()
    (package / "rows.py").write_text(
        "def open_rows(folder, messages):\n"
        "    class Row:\n"
        "        run = lambda self: messages\n"
        "        floor = lambda self: None\n"
        f"    return {rows}\n"
    )


@pytest.mark.long
def test_every_benchmark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench-check` of this tree and itself has a row for each benchmark."""
    monkeypatch.setattr(checkouts, "check_out", lambda _commit: checkouts.ROOT)
    monkeypatch.setattr(records, "FOLDER", tmp_path)

    rows = command.check(ONCE, against="HEAD", messages=MESSAGES)

    assert [row.name for row in rows] == [*open_rows(str(tmp_path), MESSAGES)]
    assert all(row.measured and row.measured.seconds[0] > 0 for row in rows)
    assert {row.verdict for row in rows} == {"undecided"}
    printed = capsys.readouterr().out
    assert all(f"| {row.name} " in printed for row in rows)


def test_the_command_fails_for_a_slower_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1, or 0 if none is slower, or 2 if nothing can be compared."""
    effort = Effort()
    row = Measured("decoder", [1.0], [1.0], [LIMIT + 0.01] * effort.sessions)
    monkeypatch.setattr("sys.argv", ["regressions", "check", "--only", "decoder"])
    for ratios, code in ((row.ratios, 1), ([LIMIT] * effort.sessions, 0)):
        found = results([replace(row, ratios=ratios)], {})
        monkeypatch.setattr(command, "check", lambda *_args, rows=found, **_options: rows)
        assert command.main() == code

    def no_record(*_args: object, **_options: object) -> None:
        raise command.NoRecordError

    monkeypatch.setattr(command, "check", no_record)
    assert command.main() == 2


def test_the_bounds_are_those_of_the_documentation() -> None:
    """Eight sessions are enough for an interval."""
    assert LIMIT == 1.05
    assert CONFIDENCE == 0.99
    assert compare([1.0] * Effort().sessions).verdict is Verdict.OK
    assert compare([1.0] * (Effort().sessions - 1)).verdict is Verdict.UNDECIDED
