"""Compile the core, or leave it as Python source where nothing can compile it.

All else about the build is in `pyproject.toml`; `docs/install.md` is for users.
"""

import json
import logging
import os
import tempfile
from pathlib import Path

import Cython
from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

SWITCH = "PULSAR_OFFLOAD_PURE"


class BuildCore(build_ext):
    """Compiles all modules of the core or none: a read may need any of them.

    `PULSAR_OFFLOAD_PURE` has three states, as when the core is imported. 0 makes a missing compiler
    an error, 1 compiles nothing. Unset or empty, the core is compiled if that is possible.
    """

    def build_extensions(self) -> None:
        """Compile the extensions, unless their Python sources are to be used.

        Raises:
            PlatformError: The core must be compiled, and nothing can compile it.
        """
        switch = os.environ.get(SWITCH, "")
        reason = f"{SWITCH}={switch}" if switch not in {"", "0"} else self._problem()
        if reason and switch == "0":
            raise PlatformError(f"{SWITCH}=0 requires a compiled core, but {reason}")
        if reason:
            self.extensions = []
            message = f"pulsar-offload: the core is not compiled, because {reason}"
            self.announce(f"{message}; reads will be about 50 times slower", logging.WARNING)
        if self.compiler.compiler_type == "msvc":
            header = Path("arrow_io/core/_msvc.h").resolve()
            for extension in self.extensions:
                extension.extra_compile_args = ["/O2", f"/FI{header}"]
        super().build_extensions()

    def _problem(self) -> str:
        """Return why nothing can be compiled; empty if a C file that needs Python's can."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("#include <Python.h>\n#include <stdint.h>\n", encoding="utf-8")
            try:
                self.compiler.compile([str(source)], output_dir=folder)
            except (CompileError, PlatformError) as error:
                return f"there is no C compiler that finds Python.h ({error})"
        return ""


class BuildWheel(bdist_wheel):
    """Adds a list of what is compiled in (PEP 770): Cython's own code is part of each module."""

    def write_wheelfile(self, wheelfile_base: str, *args: str) -> None:
        """Write the wheel's metadata, and the list if the core is compiled."""
        super().write_wheelfile(wheelfile_base, *args)
        if not self.get_finalized_command("build_ext").extensions:
            return
        name, version = "pulsar-offload", self.distribution.get_version()
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": _component("library", name, version)},
            "components": [_component("framework", "cython", Cython.__version__)],
        }
        folder = Path(wheelfile_base, "sboms")
        folder.mkdir()
        (folder / "pulsar-offload.cdx.json").write_text(json.dumps(bill, indent=1))


def _component(kind: str, name: str, version: str) -> dict[str, object]:
    """Return an entry of a CycloneDX document for a distribution of PyPI under Apache-2.0."""
    return {
        "type": kind,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


setup(cmdclass={"build_ext": BuildCore, "bdist_wheel": BuildWheel})
