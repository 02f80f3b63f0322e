"""What can be run of the README and of `docs` is run, pages are linked, tables are complete."""

from __future__ import annotations

import contextlib
import io
import json
import pkgutil
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arrow_io.columns import ALL_COLUMNS
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.cli import load_app
from connector.cli.app import ExitCode
from connector.inputs.topic_names import TopicName
from connector.options.topic_request import OPTIONS
from connector.options.write_request import WRITE_OPTIONS
from spark_ds.options import NOTES, OWN_HELP
from spark_ds.write_options import OWN_WRITING_HELP, WRITING_NOTES
from tests.support.command_line import run
from tests.support.golden import GOLDEN
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.options.option import Option

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(each for each in DOCS.rglob("*.md") if each.parent.name != "api")
"""The pages with prose; those of `api` name the objects whose docstrings they show."""
FORMAT_PAGES = sorted((DOCS / "format").glob("*.md"))
"""Specifications: they name nodes of clusters, and `test_format_pages` checks their tables."""
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PACKAGES = ("arrow_io", "connector", "spark_ds")
FOLDERS = (*PACKAGES, "docs", "sql_examples", "tests", ".ci", ".github")
MAX_CELL_CHARACTERS = 120
"""Two lines of a table."""
BUCKET = "s3://offloaded"
"""The bucket of a page's examples, in the place of which the test has a folder."""


SUFFIXES = (".md", ".pxd", ".py", ".sql", ".toml", ".yml")
"""Endings of the names of our own files; those of users have others."""
NOT_OURS = (
    "build/",
    "dist/",
    ".venv/",
    "golden/",
    "mapfiles/",
    "tenant/namespace/topic",
    "_pulsar_offload/",
)
"""What `make` builds, and the folders of users and of their tables."""


def _text(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


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


@pytest.mark.posix
@pytest.mark.parametrize("page", [README, *PAGES], ids=_name)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and commands, one after the other, print what stands below them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "golden").symlink_to(GOLDEN / "pulsar-4.0.7")
    (tmp_path / "mapfiles").symlink_to(GOLDEN / "filesystem-4.0.8-broker-record")

    _ran(page)


@pytest.mark.parametrize("page", [README, *PAGES], ids=_name)
def test_every_block_of_a_page_is_run_or_says_why_not(page: Path) -> None:
    """A block that no test runs gives the reason in a comment before it."""
    for each in snippets_of(page.read_text("utf-8")):
        assert each.skipped or each.kind == "python" or each.commands, each.text


def test_the_readme_needs_no_checkout() -> None:
    """What it runs reads the bucket that `pulsar-offload demo` copies, in any folder."""
    run_blocks = [each for each in snippets_of(README.read_text("utf-8")) if not each.skipped]

    assert "$ pulsar-offload demo --copy shop\n" in run_blocks[0].text
    assert [each.text for each in run_blocks if re.search(r"\b(tests|golden)\b", each.text)] == []


def test_make_targets_of_the_readme_exist() -> None:
    """Each `make` command of the README is a target of the Makefile."""
    targets = re.findall(r"^\$ make ([a-z-]+)", README.read_text("utf-8"), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert targets
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


def test_pages_are_linked_from_the_readme() -> None:
    """Who reads the README finds each of them."""
    readme = README.read_text("utf-8")

    pages = [_name(page) for page in PAGES if page.parent == DOCS or page.name == "index.md"]
    assert "recipes/index.md" in pages
    assert [page for page in pages if f"[docs/{page}" not in readme] == []


def test_links_of_the_readme_lead_somewhere() -> None:
    """Each file that it links is there, and each heading; `make docs` looks at the pages' links.

    The README is also the description on the package index, so a link names a definition at its
    end, which is the absolute address of the file that is its label.
    """
    readme = README.read_text("utf-8")
    definitions = dict(re.findall(r"^\[([^]]+)\]: (.+)$", readme, re.MULTILINE))
    home = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]

    assert re.findall(r"\]\((?!#)[^)]*\)", readme) == []
    assert set(re.findall(r"\]\[([^]]+)\]", readme)) == definitions.keys()
    assert definitions == {label: f"{home}/blob/main/{label}" for label in definitions}
    within = [f"README.md{anchor}" for anchor in re.findall(r"\]\((#[^)]*)\)", readme)]
    for label in (*definitions, *within):
        name, _, anchor = label.partition("#")
        page = (ROOT / name).read_text("utf-8")
        headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
        assert not anchor or anchor in anchors


@pytest.mark.parametrize("page", [README, *PAGES], ids=_name)
def test_no_cell_of_a_table_is_a_paragraph(page: Path) -> None:
    """A table is there to be looked at: what takes more than two lines is told in sentences."""
    rows = re.findall(r"^\| .*\|$", page.read_text("utf-8"), re.MULTILINE)
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")]

    assert [cell for cell in cells if len(cell) > MAX_CELL_CHARACTERS] == []


def _quoted(page: str) -> list[str]:
    """What stands between backticks, but not in fenced blocks."""
    return re.findall(
        r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    )


@pytest.fixture(scope="module")
def tree() -> list[str]:
    """Every file and folder of the project, relative to its root."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths = [*(path for path in ROOT.iterdir()), *inside]
    return [path.relative_to(ROOT).as_posix() for path in paths]


@pytest.mark.parametrize(
    "page",
    [
        README,
        CONTRIBUTING,
        ROOT / "SECURITY.md",
        ROOT / "sql_examples" / "README.md",
        *(page for page in PAGES if page not in FORMAT_PAGES),
    ],
    ids=_name,
)
def test_paths_and_modules_that_a_page_names_are_there(page: Path, tree: list[str]) -> None:
    """A path in backticks ends the path of a file or folder, and a dotted name can be imported."""
    words = [
        word
        for quoted in _quoted(page.read_text("utf-8"))
        if "://" not in quoted
        for word in re.findall(r"[\w./*-]*\w[\w./*-]*", quoted)
    ]
    paths = [
        word.rstrip("/")
        for word in words
        if ("/" in word or word.endswith(SUFFIXES)) and not word.startswith(NOT_OURS)
    ]
    roots = "|".join((*PACKAGES, "tests"))
    dotted = [word for word in words if re.fullmatch(rf"({roots})(\.\w+)+", word)]

    missing = [
        path
        for path in paths
        if not any(fnmatch(f"/{each}", f"*{'' if path[0] == '.' else '/'}{path}") for each in tree)
    ]
    assert missing == []
    for name in dotted:
        pkgutil.resolve_name(name)


def test_the_architecture_names_every_room(tree: list[str]) -> None:
    """The section names each folder of the packages, and nothing that is not there."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = text.partition("## Rooms")[2].partition("\n## ")[0]
    named = {name for name in _quoted(section) if re.fullmatch(r"[\w/]+", name)}
    own = [path for path in tree if path.startswith(PACKAGES)]
    sources = "".join((ROOT / path).read_text("utf-8") for path in own if path.endswith(".py"))

    classes = {name for name in named if not name.islower()}
    assert [name for name in sorted(classes) if f"class {name}" not in sources] == []
    modules = {path.removesuffix(".py") for path in own}
    missing = [
        name
        for name in sorted(named - classes)
        if not any(f"/{module}".endswith(f"/{name}") for module in modules)
    ]
    assert missing == []
    folders = [path.split("/")[1] for path in own if re.fullmatch(r"\w+/\w+/__init__\.py", path)]
    assert [folder for folder in folders if folder not in named] == []


def _with_default(option: Option) -> str:
    return f"{option.name} (default {option.default_text})" if option.default_text else option.name


@pytest.mark.parametrize(
    ("page", "helps"),
    [
        ("options.md", {_with_default(each): each.help for each in OPTIONS.values()}),
        ("writing.md", {_with_default(each): each.help for each in WRITE_OPTIONS.values()}),
        ("spark.md", OWN_HELP),
        ("spark.md", NOTES),
        ("spark.md", OWN_WRITING_HELP | WRITING_NOTES),
    ],
)
def test_options_have_their_help(page: str, helps: Mapping[str, str]) -> None:
    """The lists of options say word for word what `help` says of each, in any line breaks."""
    text = " ".join(re.sub("`", "", _text(page)).split())

    assert [
        line for line in (f"- {n}: {each}" for n, each in helps.items()) if line not in text
    ] == []


def test_columns_are_those_of_a_topic() -> None:
    """Each column stands in a table with its type, the default ones in the first."""
    default, _, on_request = _text("columns.md").partition("## Columns on request")
    for column in ALL_COLUMNS:
        table = default if column.default else on_request
        assert f"\n| `{column.name}` | {column.type} | " in table


def test_exit_codes_are_those_of_the_command() -> None:
    """Each number that a command ends with is explained."""
    codes = re.findall(r"^\| (\d+) \|", _text("errors.md"), re.MULTILINE)

    assert codes == [str(code) for code in sorted({0, *ExitCode})]


def test_commands_are_those_of_the_program() -> None:
    """Each command is listed."""
    app = load_app()
    names = [each.name for each in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        within = group.typer_instance.registered_commands
        names += [f"{group.typer_instance.info.name} {each.name}" for each in within]

    assert [name for name in names if f"`{name}`" not in _text("command-line.md")] == []


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
