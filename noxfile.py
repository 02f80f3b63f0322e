"""Environments besides `.venv`: other versions of libraries and Python, and heavy libraries.

`make test-versions` runs a session for each version in `tests/versions.toml`; `make test-engines`
and the like run one dependency group. uv makes each environment in `build/nox`. Sessions import
the checkout, with the core that `make install` compiled.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import nox

ROOT = Path(__file__).parent
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "tests" / "versions.toml").read_text())
TOGETHER = SETTINGS["together"]
GROUPS = {
    "engines": ["pandas", "polars", "s3"],  # Ibis needs another DuckDB than the extra's
    "notebooks": ["cli", "duckdb", "pandas", "polars"],
    "schedulers": ["cli", "delta", "duckdb", "iceberg"],
}
"""Extras beside a dependency group, whose name is also that of a marker and a folder of tests."""

os.environ.setdefault("UV_CACHE_DIR", str(ROOT / "build" / "uv"))
# pyenv has programs on the PATH that fail unless their version is chosen; these do not.
os.environ["PATH"] = os.pathsep.join(
    [os.environ["PATH"], *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
)

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.envdir = "build/nox"
nox.options.reuse_venv = "yes"


def install(session: nox.Session, extras: list[str], *arguments: str) -> None:
    """Install what extras and tests need, and put the checkout where an installation would be."""
    wanted = [f"--extra={extra}" for extra in extras]
    session.install("--group=test-base", "--requirements=pyproject.toml", *wanted, *arguments)
    (packages,) = Path(session.virtualenv.location).glob("lib/*/site-packages")
    (packages / "pulsar_offload.pth").write_text(f"{ROOT}\n{ROOT / 'spark_ds' / 'autoload'}\n")
    program = Path(session.bin, "pulsar-offload")
    program.write_text(
        f"#!{session.bin}/python\nfrom connector.cli import main\n\nraise SystemExit(main())\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def run_tests(session: nox.Session, patterns: list[str], *arguments: str) -> None:
    """Run the tests that patterns name. What follows `--` on nox's command line goes to pytest."""
    files = [str(file) for pattern in patterns for file in sorted(ROOT.glob(pattern))]
    options = ["-q", "-p", "no:cacheprovider", *arguments, *session.posargs]
    session.run("python", "-m", "pytest", *options, *files)


def add_version(name: str, version: str) -> None:
    """Add the session of one version of a library."""
    settings = SETTINGS["alone"][name]
    library = settings.get("library", name)

    @nox.session(name=f"{name}-{version.removesuffix('.*')}", tags=["versions"])
    def session(session: nox.Session) -> None:
        beside = settings.get("beside", ())
        install(session, settings["extras"], f"{library}=={version}", *beside)
        run_tests(session, settings["tests"], *settings.get("options", ()))


def add_resolution(name: str, resolution: str) -> None:
    """Add the session of the oldest or the newest versions of many libraries."""

    @nox.session(name=name, tags=["versions", "brief"])
    def session(session: nox.Session) -> None:
        install(session, TOGETHER["extras"], f"--resolution={resolution}", "--upgrade")
        run_tests(session, TOGETHER["tests"])


def add_group(group: str) -> None:
    """Add the session of a dependency group."""

    @nox.session(name=group)
    def session(session: nox.Session) -> None:
        install(session, GROUPS[group], f"--group={group}")
        run_tests(session, [f"tests/{group}"], "-m", group)


@nox.session(python=TOGETHER["pythons"], tags=["versions"])
def python(session: nox.Session) -> None:
    """Compile the core for an interpreter, beside those for others, and run tests on it."""
    install(session, TOGETHER["extras"], "--group=build")
    setup = "from setuptools import setup; setup()"
    session.run("python", "-c", setup, "--quiet", "build_ext", "--inplace")
    run_tests(session, TOGETHER["tests"])


for _name, _settings in SETTINGS["alone"].items():
    for _version in _settings["versions"]:
        add_version(_name, _version)
add_resolution("oldest", "lowest-direct")
add_resolution("newest", "highest")
for _group in GROUPS:
    add_group(_group)
