"""The pages of `docs` are linked, and what can be run of them is run, from the top to the end."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.topic_name import TopicName
from tests.support.command_line import run
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES = sorted(Path("docs").resolve().glob("*.md"))
BUCKET = "s3://offloaded"
"""The bucket of a page's examples, in the place of which the test has a folder."""


def _ran(page: Path) -> Mapping[str, object]:
    """Run a page where the test stands; gives what its Python blocks made."""
    namespace: dict[str, object] = {}
    for snippet in snippets_of(page.read_text("utf-8")):
        if snippet.skipped:
            continue
        if snippet.kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(snippet.text, namespace)  # noqa: S102 - it is our own page
            assert printed.getvalue().strip() == (snippet.printed or "").strip()
        for arguments, expected in snippet.commands:
            result = run(*shlex.split(arguments.replace(BUCKET, "bucket")))
            assert expected.strip() in {"", result.stdout.strip()}
            assert "error" not in result.stderr
            assert "nothing found" in result.stdout or not arguments.startswith("audit ")
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and commands, one after the other, print what stands below them."""
    monkeypatch.chdir(tmp_path)

    _ran(page)

    assert (tmp_path / "metadata").is_dir()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_run_or_says_why_not(page: Path) -> None:
    """A block that no test runs gives the reason in a comment before it."""
    snippets = snippets_of(page.read_text("utf-8"))

    assert len([each for each in snippets if not each.skipped]) > 3
    for each in snippets:
        assert each.skipped or each.kind == "python" or each.commands, each.text


def test_pages_are_linked_from_the_readme() -> None:
    """Who reads the README finds them."""
    readme = Path("README.md").read_text("utf-8")

    assert PAGES
    assert all(f"(docs/{page.name})" in readme for page in PAGES)


def test_what_is_attached_is_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values have the ledgers that the page chose ids for, and the body the schema."""
    monkeypatch.chdir(tmp_path)

    values = _ran(next(page for page in PAGES if page.name == "attach.md"))["values"]

    assert isinstance(values, dict)
    partitions, *ledgers = values.values()
    assert json.loads(partitions) == {"partitions": 2}
    topic = TopicName.parse("sales-partition-0")
    infos = [info for each in ledgers for info in parse_managed_ledger_info(each, topic).ledgers]
    assert sorted(info.ledger_id for info in infos) == [3000, 3001, 3002, 3003]
    assert json.loads(Path("schema-0.json").read_text("utf-8"))["type"] == "JSON"
