"""What the project promises as a whole: its build, its packages, its dependencies, its commands."""

from __future__ import annotations

import importlib.metadata
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import connector
from arrow_io.core import builds

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
SETUPTOOLS: dict[str, Any] = PYPROJECT["tool"]["setuptools"]
TOP_PACKAGES = ("arrow_io", "connector", "spark_ds")
READING_MODULES = ("arrow_io.ledgers.reader", "arrow_io.ledgers.writer", "connector")
DOTTED_NAME = re.compile(rf"`((?:{'|'.join(TOP_PACKAGES)})(?:\.\w+)+)(?:\(\))?`")
ENGINES = {"cryptography", "duckdb", "pandas", "polars", "pyspark", "rich", "s3fs", "typer"}


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a program that must succeed; its standard output."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def is_importable(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def name_of(requirement: str) -> str:
    """The distribution that a requirement names, without extras and versions."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0]


@pytest.mark.skipif(
    os.environ.get(builds.PURE_SWITCH) == "1", reason="the uncompiled build was asked for"
)
def test_the_installed_build_is_compiled() -> None:
    """Tests must run on the compiled hot loop, unless its source is asked for."""
    assert builds.in_use.is_compiled


def test_the_installed_version_is_that_of_the_source() -> None:
    """The installed distribution must be made from this pyproject.toml."""
    assert importlib.metadata.version("pulsar-offload") == PROJECT["version"]


def test_every_package_is_listed() -> None:
    """Each folder with an `__init__.py` must be in the list of packages, and nothing else."""
    found = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for top in TOP_PACKAGES
        for file in (ROOT / top).rglob("__init__.py")
    }
    mapped = {name: folder.replace("/", ".") for name, folder in SETUPTOOLS["package-dir"].items()}
    listed = SETUPTOOLS["packages"]
    assert sorted(mapped.get(name, name) for name in listed) == sorted(found)


@pytest.mark.parametrize("package", TOP_PACKAGES)
def test_each_package_says_that_it_is_typed(package: str) -> None:
    """Type checkers read our annotations only where `py.typed` stands."""
    assert (ROOT / package / "py.typed").is_file()


def test_the_base_install_is_small() -> None:
    """Without extras, only Arrow, fsspec, protobuf, ZSTD and CRC32C may be installed."""
    assert {name_of(requirement) for requirement in PROJECT["dependencies"]} == {
        "crc32c",
        "fsspec",
        "protobuf",
        "pyarrow",
        "zstandard",
    }


def test_the_extra_all_holds_every_other_extra() -> None:
    """`pulsar-offload[all]` must name each extra there is."""
    extras = dict(PROJECT["optional-dependencies"])
    (everything,) = extras.pop("all")
    assert everything == f"pulsar-offload[{','.join(extras)}]"


def test_the_build_group_repeats_the_build_requirements() -> None:
    """The wheel that tests build without a network must be built with the pinned versions."""
    assert PYPROJECT["dependency-groups"]["build"] == PYPROJECT["build-system"]["requires"]


@pytest.mark.parametrize("module", READING_MODULES)
def test_import_loads_no_engine(module: str) -> None:
    """Importing what reads must load no engine."""
    loaded = run(sys.executable, "-c", f"import sys, {module}; print(*sys.modules)").split()
    assert module in loaded
    assert ENGINES & {name.partition(".")[0] for name in loaded} == set()


def test_every_public_name_is_there_and_listed() -> None:
    """Names that are imported when they are asked for must be the package's like all others."""
    script = (
        "import connector; listed = set(dir(connector)); from connector import *;"
        "print(*(name for name in connector.__all__ if name in globals() and name in listed))"
    )
    assert run(sys.executable, "-c", script).split() == connector.__all__
    with pytest.raises(AttributeError, match="module 'connector' has no attribute 'open_topics'"):
        _ = getattr(connector, "open_topics")  # noqa: B009 - mypy knows that it is not there


def test_every_name_of_ours_that_prose_points_to_is_there() -> None:
    """What docstrings, comments and pages call by its whole dotted name can be imported."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    files += [file for package in TOP_PACKAGES for file in (ROOT / package).rglob("*.py")]
    found = {name for file in files for name in DOTTED_NAME.findall(file.read_text())}

    assert len(found) > 20
    assert [name for name in sorted(found) if not is_importable(name)] == []


def test_spark_finds_the_data_source_module() -> None:
    """Spark lists top-level modules named `pyspark_*`; ours must be among them."""
    assert "pyspark_pulsar_offload" in {module.name for module in pkgutil.iter_modules()}


def test_a_property_that_fails_tells_what_failed() -> None:
    """However long what it was given is; Hypothesis warns of that, and a warning is an error."""

    @given(drawn=st.booleans())
    def fails(given_to_it: str, *, drawn: bool) -> None:
        assert not (drawn and given_to_it), "what failed"

    with pytest.raises(AssertionError, match="what failed"):
        fails("long" * 10_000)


def test_make_lists_each_target() -> None:
    """`make` alone must print every target that a person may call, with its purpose."""
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = [line.split(maxsplit=2) for line in run("make").splitlines()]
    assert [target for _make, target, _purpose in listed] == targets


def test_the_demo_answers() -> None:
    """`make demo` must print its question and the table that answers it from the bundled topic."""
    installed = f"BIN={Path(sys.executable).parent}"
    printed = run("make", "--old-file=.venv/demo-installed", installed, "demo")
    assert "FROM orders" in printed
    assert re.search(r"│ DE +│ +\d+ │ +\d+\.\d+ │", printed)


def test_too_old_a_python_is_refused_with_words(tmp_path: Path) -> None:
    """A machine whose Python is too old must be told which one is needed, and how to name it."""
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")  # what it answers when asked for 3.11 or newer
    old.chmod(0o755)
    refused = subprocess.run(
        [ROOT / ".ci" / "provide", "python"],
        env=os.environ | {"PYTHON": str(old)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert f"no Python 3.11 or newer found as {old}" in refused.stderr
    assert "make PYTHON=" in refused.stderr


@pytest.fixture(scope="module")
def unpacked_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel that pip builds from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # A copy without what was built here, so that nothing of it can be packed.
    built = (".*", "build", "dist", "*.egg-info", "*.so", "*.c", "__pycache__", "golden")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*built))
    # How fast the wheel is, no test asks: what the compiler does for that is most of its time.
    pyproject = source / "pyproject.toml"
    optimised = pyproject.read_text()
    assert '"-O3"' in optimised
    pyproject.write_text(optimised.replace('"-O3"', '"-O0"'))
    script = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", script, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", sdist, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "content")
    return folder / "content"


def test_the_wheel_holds_the_packages_and_nothing_else(unpacked_wheel: Path) -> None:
    """A wheel must give the three packages and Spark's module; no tests and no examples."""
    assert {path.name for path in unpacked_wheel.iterdir()} == {
        *TOP_PACKAGES,
        "pyspark_pulsar_offload",
        f"pulsar_offload-{PROJECT['version']}.dist-info",
    }


def test_the_wheel_holds_every_module_and_marker(unpacked_wheel: Path) -> None:
    """Each source file of the packages must be in the wheel."""
    for package in TOP_PACKAGES:
        for source in (ROOT / package).rglob("*"):
            if source.suffix == ".py" or source.name == "py.typed":
                inside = source.relative_to(ROOT)
                if "autoload" in inside.parts:
                    inside = inside.relative_to("spark_ds/autoload")
                assert (unpacked_wheel / inside).is_file(), inside


def test_the_wheel_is_compiled(unpacked_wheel: Path) -> None:
    """What a user installs must run the compiled hot loop, out of the wheel itself."""
    script = (
        "from arrow_io.core import builds;"
        "print(builds.in_use.is_compiled, builds.in_use.entries.__file__)"
    )
    environment = {"PYTHONPATH": str(unpacked_wheel), builds.PURE_SWITCH: ""}
    compiled, file = run(sys.executable, "-c", script, cwd=unpacked_wheel, **environment).split(
        maxsplit=1
    )
    assert compiled == "True"
    assert Path(file.strip()).is_relative_to(unpacked_wheel)


def test_the_wheel_holds_the_bucket_of_the_demo(unpacked_wheel: Path) -> None:
    """What `pulsar-offload demo` reads must be in the wheel, byte for byte."""
    folder = Path("connector") / "demo_bucket"
    inside = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert len(inside) == 8
    for path in inside:
        assert (unpacked_wheel / path).read_bytes() == (ROOT / path).read_bytes()
