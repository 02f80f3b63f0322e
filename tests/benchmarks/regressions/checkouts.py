"""Commits of this repository, and checkouts of them with a compiled core."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT: Final = Path(__file__).parents[3]


class CommitError(Exception):
    """A commit cannot be checked out, or the tree has changes; the text says what to do."""


def git(*arguments: str, root: Path = ROOT) -> str:
    """Run git, and return what it prints.

    Raises:
        CommitError: It fails.
    """
    finished = subprocess.run(
        ["git", *arguments], cwd=root, check=False, capture_output=True, text=True
    )
    if finished.returncode:
        message = f"git {arguments[0]} fails: {finished.stderr.strip()}"
        raise CommitError(message)
    return finished.stdout.strip()


def clean_head(root: Path = ROOT) -> str:
    """Return the commit that the tree is equal to.

    Raises:
        CommitError: The tree has changes.
    """
    if changes := git("status", "--porcelain", root=root):
        message = f"Only a commit can be recorded. Commit these changes first:\n{changes}"
        raise CommitError(message)
    return git("rev-parse", "HEAD", root=root)


def find_commit(name: str, root: Path = ROOT) -> str:
    """Return the 40 digits of a commit.

    Raises:
        CommitError: This clone does not have it.
    """
    try:
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", root=root)
    except CommitError:
        message = f"This clone does not have commit {name}: git fetch --unshallow may get it."
        raise CommitError(message) from None


def newest(commits: Iterable[str], root: Path = ROOT) -> str:
    """Return the commit that was made last.

    Raises:
        CommitError: This clone does not have one of them.
    """
    return max(
        (find_commit(each, root) for each in commits),
        key=lambda each: int(git("show", "--no-patch", "--format=%ct", each, root=root)),
    )


def compile_core(checkout: Path) -> None:
    """Compile the core of a checkout, with its own options.

    Raises:
        CommitError: The compiler fails.
    """
    finished = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=checkout,
        env=os.environ | {"PULSAR_OFFLOAD_PURE": "0"},
        check=False,
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        message = f"The core in {checkout} cannot be compiled:\n{finished.stderr[-2000:]}"
        raise CommitError(message)


def check_out(
    commit: str,
    folder: Path = ROOT / "build" / "bench",
    *,
    root: Path = ROOT,
    build: Callable[[Path], None] = compile_core,
) -> Path:
    """Return the root of a checkout with a core; make it, unless an earlier run did.

    Args:
        commit: Its 40 digits.
        folder: Where checkouts are, each under the name of its commit.
        root: The repository.
        build: Compiles the core of a checkout.

    Raises:
        CommitError: git cannot write the tree, or the compiler fails.
    """
    checkout = folder / commit
    if checkout.is_dir():
        return checkout
    # Under another name until it is whole, so that a run that is stopped leaves no part of one.
    unfinished = folder / f"{commit}.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    archive = unfinished / "tree.tar"
    git("archive", "--output", str(archive), commit, root=root)
    shutil.unpack_archive(archive, unfinished, filter="data")
    archive.unlink()
    build(unfinished)
    return unfinished.rename(checkout)
