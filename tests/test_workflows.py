"""What GitHub and conda-forge would run: targets of the Makefile, few rights, pinned tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.test_systems import NODES_WITH_COLONS

ROOT: Final = Path(__file__).parents[1]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS: Final = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: Final[dict[str, Any]] = PYPROJECT["project"]
PROVEN: Final = {"id-token": "write"}
EXTRA_RIGHTS: Final = {
    ("docs", "publish"): {"pages": "write", **PROVEN},
    ("wheels", "publish"): PROVEN,
}
"""What a job may do besides reading the sources; neither of these jobs checks them out."""
CONDA_NAMES: Final = {"tzdata": "python-tzdata"}
"""Distributions that have another name in conda-forge."""

_each_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)


def _jobs(file: Path) -> dict[str, dict[str, Any]]:
    jobs: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text("utf-8"))["jobs"]
    return jobs


def _steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in _jobs(file).values() for step in job["steps"]]


def test_there_is_a_workflow_for_tests_wheels_and_pages() -> None:
    """These are all."""
    assert [file.stem for file in WORKFLOWS] == ["ci", "docs", "wheels"]


@_each_workflow
def test_a_workflow_holds_no_logic(file: Path) -> None:
    """It runs targets of the Makefile, or a tool of a fixed version: one command a step."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = [step["run"] for step in _steps(file) if "run" in step]

    assert commands
    for command in commands:
        assert re.fullmatch(r"make [a-z-]+|pipx run [a-z]+==[\d.]+( --?[\w-]+| \w+)*", command)
        target = command.removeprefix("make ")
        assert target == command or f"\n.PHONY: {target}\n{target}:" in makefile


@_each_workflow
def test_a_workflow_may_do_little(file: Path) -> None:
    """It reads the sources; it knows no secret; each job ends."""
    text = file.read_text("utf-8")
    jobs = _jobs(file)

    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert {
        (file.stem, name): job["permissions"] for name, job in jobs.items() if "permissions" in job
    } == {name: rights for name, rights in EXTRA_RIGHTS.items() if name[0] == file.stem}
    assert [name for name, job in jobs.items() if "timeout-minutes" not in job] == []
    assert "secrets." not in text
    assert "pull_request_target" not in text


@_each_workflow
def test_actions_are_pinned(file: Path) -> None:
    """By the hash of a commit, with its version beside it; a checkout keeps no credentials."""
    uses = re.findall(r"uses: (.+)$", file.read_text("utf-8"), re.MULTILINE)

    assert uses
    assert [
        each for each in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)
    ] == []
    for step in _steps(file):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_what_is_published_was_built_and_tested_before() -> None:
    """From a tag only, after all wheels, with attestations, and in an environment with a guard."""
    publish = _jobs(ROOT / ".github" / "workflows" / "wheels.yml")["publish"]

    assert publish["needs"] == ["wheels", "sdist"]
    assert "startsWith(github.ref, 'refs/tags/v')" in publish["if"]
    assert publish["environment"]["name"] == "pypi"
    (upload,) = (step for step in publish["steps"] if "pypi-publish" in step["uses"])
    assert upload["with"] == {"attestations": True}


def test_the_pythons_that_are_promised_are_tested() -> None:
    """The classifiers name the versions on which the whole suite runs."""
    tested = _jobs(ROOT / ".github" / "workflows" / "ci.yml")["linux"]["strategy"]["matrix"]
    start = "Programming Language :: Python :: 3."
    promised = [each for each in PROJECT["classifiers"] if each.startswith(start)]

    assert promised == [f"Programming Language :: Python :: {each}" for each in tested["python"]]


@pytest.mark.parametrize(("file", "job"), [("ci", "portable"), ("wheels", "wheels")])
def test_a_checkout_on_windows_has_no_file_with_a_colon(file: str, job: str) -> None:
    """Git could not create it."""
    steps = _jobs(ROOT / ".github" / "workflows" / f"{file}.yml")[job]["steps"]
    patterns = steps[0]["with"]["sparse-checkout"].splitlines()

    assert patterns == ["/*", f"!/{NODES_WITH_COLONS}"]


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_forms_for_issues_are_complete(file: Path) -> None:
    """Each asks something, and each question has a label."""
    form = yaml.safe_load(file.read_text("utf-8"))

    if file.stem == "config":
        assert all(link["url"].startswith("https://") for link in form["contact_links"])
        return
    assert form["name"]
    assert form["description"]
    questions = [each for each in form["body"] if each["type"] != "markdown"]
    assert all(each["id"] and each["attributes"]["label"] for each in questions)
    assert any(each.get("validations", {}).get("required") for each in questions)


def _conda(requirement: str) -> str:
    """A requirement of pyproject.toml as conda writes it."""
    specifier = requirement.partition(";")[0].strip()
    name = re.split("[>=]", specifier)[0]
    return f"{CONDA_NAMES.get(name, name)} {specifier.removeprefix(name)}"


def test_the_recipe_for_conda_requires_what_the_project_does() -> None:
    """Version, requirements, licence and command are those of pyproject.toml."""
    recipe = yaml.safe_load((ROOT / ".ci" / "conda" / "recipe.yaml").read_text("utf-8"))
    requirements = recipe["requirements"]
    pinned = [_conda(each) for each in PYPROJECT["build-system"]["requires"]]

    assert recipe["context"]["version"] == PROJECT["version"]
    assert sorted(requirements["run"]) == sorted(["python", *map(_conda, PROJECT["dependencies"])])
    assert requirements["host"] == ["python", "pip", *pinned]
    assert [f"{name} = {each}" for name, each in PROJECT["scripts"].items()] == recipe["build"][
        "python"
    ]["entry_points"]
    about = recipe["about"]
    assert (about["license"], about["summary"]) == (PROJECT["license"], PROJECT["description"])
    assert about["repository"] == PROJECT["urls"]["Source"]
