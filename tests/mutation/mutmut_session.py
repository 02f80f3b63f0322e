"""Runs mutmut on the tree in the working folder, with two kinds of mutations more.

What mutmut itself leaves out: it never takes a whole condition for false or true, and never takes a
statement away. Started by path, not as a module: no package `tests` may be loaded before that of
the mutants.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import libcst as cst
from mutmut import __main__ as mutmut
from mutmut.mutation import mutators
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STRING = re.compile(r"\"[^\"\n]*\"")


def conditions_forced(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """`if c:` never and always, `while c:` never."""
    inside = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.BooleanOperation(inside, cst.And(), cst.Name("False")))
    if isinstance(node, cst.If):
        yield node.with_changes(test=cst.BooleanOperation(inside, cst.Or(), cst.Name("True")))


def statements_left_out(node: cst.Expr | cst.Raise) -> Iterator[cst.CSTNode]:
    """A raise, and a call whose result nobody takes."""
    if isinstance(node, cst.Raise) or isinstance(node.value, cst.Call):
        yield cst.Pass()


def add_operators() -> None:
    """Add ours to mutmut's own list."""
    mutators.mutation_operators += [
        (cst.If, conditions_forced),
        (cst.While, conditions_forced),
        (cst.Expr, statements_left_out),
        (cst.Raise, statements_left_out),
    ]


def is_wording(diff: str) -> bool:
    """Whether only the text of a message changes: a string with a space in it."""
    removed, added = ("".join(_changed(diff, sign)) for sign in "-+")
    strings = _STRING.findall(removed)
    return (
        _STRING.sub('""', removed) == _STRING.sub('""', added)
        and any(old != new for old, new in zip(strings, _STRING.findall(added), strict=True))
        and all(
            " " in old
            for old, new in zip(strings, _STRING.findall(added), strict=True)
            if old != new
        )
    )


def _changed(diff: str, sign: str) -> list[str]:
    return [line[1:].strip() for line in diff.splitlines()[2:] if line.startswith(sign)]


def generate() -> dict[str, dict[str, str]]:
    """Make all mutants; what each changes, by mutmut's name of it."""
    set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir()
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.create_mutants(1)
    _, files = mutmut.collect_source_file_mutation_data(mutant_names=())
    mutants = {}
    for path, data in files.items():
        for name in data.exit_code_by_key:
            diff = get_diff_for_mutant(name, path=path)
            if not is_wording(diff):
                function, in_class = orig_function_and_class_names_from_key(name)
                mutants[name] = {
                    "function": f"{in_class}.{function}" if in_class else function,
                    "removed": " ".join(_changed(diff, "-")),
                    "added": " ".join(_changed(diff, "+")),
                    "diff": diff,
                }
    return mutants


def run(names: Sequence[str]) -> dict[str, str]:
    """Run the tests on some mutants; the status of each, in mutmut's words."""
    # A command line is not as long as this list.
    mutmut._run(list(names), 1)
    _, files = mutmut.collect_source_file_mutation_data(mutant_names=())
    codes = {name: code for data in files.values() for name, code in data.exit_code_by_key.items()}
    return {name: status_by_exit_code[codes[name]] for name in names}


def main() -> None:
    """Arguments: where the results go, how many mutants to try (0: all), the seed of the choice."""
    results = Path(sys.argv[1])
    sample, seed = map(int, sys.argv[2:])
    add_operators()
    mutants = generate()
    names = sorted(mutants)
    if 0 < sample < len(names):
        names = Random(seed).sample(names, sample)
    for name, status in run(names).items():
        mutants[name]["status"] = status
    results.write_text(json.dumps(list(mutants.values())), encoding="utf-8")


if __name__ == "__main__":
    main()
