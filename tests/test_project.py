"""What the project promises as a whole: its build, its packages, its dependencies, its commands."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path, PurePath
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
GOLDEN = str(ROOT / "tests" / "data" / "golden" / "pulsar-4.0.7" / "objects")
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
    """Without extras, only Arrow, fsspec, protobuf, ZSTD and CRC32C; time zones where none are."""
    everywhere = {"crc32c", "fsspec", "protobuf", "pyarrow", "zstandard"}
    needed = [each for each in PROJECT["dependencies"] if ";" not in each]
    assert {name_of(requirement) for requirement in needed} == everywhere
    on_windows = set(PROJECT["dependencies"]) - set(needed)
    assert on_windows == {"tzdata>=2025.2; sys_platform == 'win32'"}


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


@pytest.mark.posix
def test_make_lists_each_target() -> None:
    """`make` alone must print every target that a person may call, with its purpose."""
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = [line.split(maxsplit=2) for line in run("make").splitlines()]
    assert [target for _make, target, _purpose in listed] == targets


def _selected_by(target: str) -> str:
    """Return the expression of markers by which a target of the Makefile selects tests."""
    command = run("make", "--dry-run", "--old-file=install", target)
    [expression] = re.findall(r'-m "([^"]+)"', command)
    return " ".join(expression.split())


def _left_out() -> str:
    """Return the markers that pytest leaves out if it is called without `-m`, which replaces it."""
    by_default = PYPROJECT["tool"]["pytest"]["addopts"][3]
    return " or ".join(by_default.removeprefix("not ").split(" and not "))


@pytest.mark.posix
def test_portable_tests_need_neither_java_nor_a_browser() -> None:
    """They leave out those, and all that pytest alone leaves out."""
    assert _selected_by("test-portable") == f"not ({_left_out()} or spark or browser)"


@pytest.mark.posix
def test_daily_and_long_tests_are_all() -> None:
    """What `make test` leaves out for its duration, `make test-long` runs, and CI runs both."""
    assert _selected_by("daily-tests") == f"not ({_left_out()} or long)"
    assert _selected_by("test-long") == f"(long or hypothesis) and not ({_left_out()})"
    commands = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert {"make test </dev/null", "make test-long </dev/null"} <= {*commands}


@pytest.mark.posix
def test_the_demo_answers() -> None:
    """`make demo` must print its question and the table that answers it from the bundled topic."""
    installed = f"BIN={Path(sys.executable).parent}"
    printed = run("make", "--old-file=.venv/demo-installed", installed, "demo")
    assert "FROM orders" in printed
    assert re.search(r"│ DE +│ +\d+ │ +\d+\.\d+ │", printed)


@pytest.mark.posix
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
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
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
    (file,) = folder.glob("*.tar.gz")
    return file


def build_wheel(sdist: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel in a folder, without a network; `content` is what is in it."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--verbose"]
    built = subprocess.run(
        [*command, "--no-deps", "--no-build-isolation", sdist],
        cwd=folder,
        env=os.environ | environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for wheel in folder.glob("*.whl"):
        shutil.unpack_archive(wheel, folder / "content", "zip")
    return built


@pytest.fixture(scope="module")
def unpacked_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel that pip builds from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    built = build_wheel(sdist, folder, **{builds.PURE_SWITCH: "0"})
    assert built.returncode == 0, built.stdout
    return folder / "content"


def test_the_source_distribution_holds_what_the_wheel_is_built_from(sdist: Path) -> None:
    """None of the tests may be in it: their data is larger than all else together."""
    with tarfile.open(sdist) as archive:
        packed = {PurePath(*PurePath(name).parts[1:]) for name in archive.getnames()}
    sources = {
        source.relative_to(ROOT)
        for package in TOP_PACKAGES
        for source in (ROOT / package).rglob("*")
        if source.suffix in {".h", ".py", ".pxd", ".typed"}
    }
    assert sources <= packed
    assert {path.parts[0] for path in packed if path.parts} == {
        *TOP_PACKAGES,
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml"),
        *("pulsar_offload.egg-info", "setup.cfg", "setup.py"),
    }


@pytest.mark.parametrize(
    ("switch", "reason"),
    [("", "there is no C compiler that finds Python.h"), ("1", f"{builds.PURE_SWITCH}=1")],
)
def test_without_a_compiler_the_sources_are_installed(
    switch: str, reason: str, sdist: Path, tmp_path: Path
) -> None:
    """One line of the build and a warning at run time must say that reads are slow."""
    built = build_wheel(sdist, tmp_path, CC="/no/such/cc", **{builds.PURE_SWITCH: switch})

    assert built.returncode == 0, built.stdout
    (told,) = [line for line in built.stdout.splitlines() if "is not compiled" in line]
    assert told.strip().startswith(f"pulsar-offload: the core is not compiled, because {reason}")
    content = tmp_path / "content"
    assert [*content.rglob("*.so"), *content.rglob("sboms")] == []
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from connector import open_topic\n"
        f"    rows = open_topic({GOLDEN!r}, 'json-orders', value='raw').to_table().num_rows\n"
        "print(rows, *(each.category.__name__ for each in caught))"
    )
    environment = {"PYTHONPATH": str(content), builds.PURE_SWITCH: ""}
    read = run(sys.executable, "-c", script, cwd=content, **environment)
    assert read.split() == ["400", "UncompiledCoreWarning"]


def test_a_missing_compiler_can_be_an_error(sdist: Path, tmp_path: Path) -> None:
    """A build that must not be slow fails, and names the compiler that it tried."""
    built = build_wheel(sdist, tmp_path, CC="/no/such/cc", **{builds.PURE_SWITCH: "0"})

    assert built.returncode != 0
    assert f"{builds.PURE_SWITCH}=0 requires a compiled core, but there is no C" in built.stdout
    assert "'/no/such/cc'" in built.stdout
    assert list(tmp_path.glob("*.whl")) == []


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
    environment = {"PYTHONPATH": str(unpacked_wheel), builds.PURE_SWITCH: "0"}
    compiled, file = run(sys.executable, "-c", script, cwd=unpacked_wheel, **environment).split(
        maxsplit=1
    )
    assert compiled == "True"
    assert Path(file.strip()).is_relative_to(unpacked_wheel)


def test_the_wheel_holds_the_bucket_of_the_demo(unpacked_wheel: Path) -> None:
    """What `pulsar-offload demo` reads must be in the wheel, byte for byte."""
    folder = Path("connector") / "demo-bucket"
    inside = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert len(inside) == 8
    for path in inside:
        assert (unpacked_wheel / path).read_bytes() == (ROOT / path).read_bytes()


def test_the_wheel_says_what_is_compiled_in(unpacked_wheel: Path) -> None:
    """Cython's own code is part of each module: a list names it, its version and its license."""
    bill = json.loads(next(unpacked_wheel.glob("*.dist-info/sboms/*.cdx.json")).read_text())
    (component,) = bill["components"]

    assert bill["metadata"]["component"]["version"] == PROJECT["version"]
    assert f"{component['name']}=={component['version']}" in PYPROJECT["build-system"]["requires"]
    assert component["licenses"] == [{"license": {"id": "Apache-2.0"}}]


def test_the_core_has_no_debug_symbols(unpacked_wheel: Path) -> None:
    """However Python was compiled; they would be two thirds of the wheel."""
    modules = [*unpacked_wheel.rglob("*.so")]

    assert len(modules) == len(SETUPTOOLS["ext-modules"])
    assert [each for each in modules if b".debug_info" in each.read_bytes()] == []


def test_the_core_says_that_it_needs_no_lock() -> None:
    """One module that does not would lock all of a free-threaded interpreter, when imported."""
    sources = [ROOT / each["sources"][0] for each in SETUPTOOLS["ext-modules"]]

    directive = re.compile("^# cython: .*freethreading_compatible=True", re.MULTILINE)
    assert [each for each in sources if not directive.search(each.read_text())] == []


def test_the_core_imports_without_cython() -> None:
    """A source that uses more of Cython than `_no_cython` has could not run where it is missing."""
    sources = [each["sources"][0] for each in SETUPTOOLS["ext-modules"]]
    names = [each.removesuffix(".py").replace("/", ".") for each in sources]
    code = (
        "import importlib, sys\n"
        "sys.modules['cython'] = None\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
