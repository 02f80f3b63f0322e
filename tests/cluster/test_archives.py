"""Executors that have nothing installed get this project with the job; `make cluster` packs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any, Final

import pytest

from connector import open_topic
from tests.spark_ds.conftest import QUICK_JVM
from tests.support.snippets import snippets_of
from tests.support.spark_home import link_spark_home

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PACKED: Final = Path(os.environ.get("CLUSTER", "build/cluster")).absolute()
"""What `make cluster` built."""
PAGE: Final = Path(__file__).parents[2] / "docs" / "spark-clusters.md"
PROGRAM: Final = Path(__file__).with_name("archive_program.py")
TOPIC: Final = "small-transactions"
COLUMNS: Final = ("__ledger_id__", "__entry_id__", "__key__")
TIMEOUT_SECONDS: Final = 500
SETTINGS: Final = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has every library of ours, and nothing of this project."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    [site] = folder.glob("lib/python*/site-packages")
    # What a .pth file of that folder names, such as this repository, is not followed.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def options_of(heading: str) -> tuple[dict[str, str], list[str]]:
    """The environment and the options of `spark-submit` in a section of the page."""
    section = PAGE.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [
        line
        for snippet in snippets_of(section)
        for line in snippet.text.replace("\\\n", " ").splitlines()
        if "spark-submit" in line
    ]
    [line] = lines
    before, _, after = line.removeprefix("$ ").partition("spark-submit")
    options = after.split()
    assert options.pop() == "job.py"
    return dict(each.split("=", 1) for each in before.split()), options


def submit(
    folder: Path, url: str, environment: dict[str, str], options: list[str]
) -> dict[str, Any]:
    """Run the job in a folder, and without anything of this process's environment but Java's."""
    home = link_spark_home(folder / "home")
    result = folder / "result.json"
    read = {"url": url, "topic": TOPIC, "columns": ",".join(COLUMNS), "task_bytes": "1"}
    argument = json.dumps({"options": read, "result": str(result)})
    settings = [word for each in SETTINGS.items() for word in ("--conf", "=".join(each))]
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    passed = {
        name: os.environ[name] for name in ("HOME", "JAVA_HOME", "PATH") if name in os.environ
    }
    command = [str(home / "bin" / "spark-submit"), *settings, *options, str(PROGRAM), argument]
    done = subprocess.run(
        command,
        env=passed | own | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def expected_rows(url: str) -> list[list[object]]:
    """The rows by our own reader."""
    table = open_topic(url, TOPIC, value="raw").to_table(columns=list(COLUMNS))
    return [list(row.values()) for row in table.to_pylist()]


def test_the_bare_python_lacks_this_project(bare_python: Path, tmp_path: Path) -> None:
    """So what executors import comes with the job."""
    script = "import pyarrow, importlib.util; print(importlib.util.find_spec('spark_ds'))"
    command = [str(bare_python), "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "None"


def test_an_environment_is_packed(tmp_path: Path, small_bucket: str) -> None:
    """Executors run the Python of the archive, and the compiled core in it."""
    environment, options = options_of("A packed environment")
    for name in ("environment", "environment.tar.gz"):
        (tmp_path / name).symlink_to(PACKED / name)

    found = submit(tmp_path, small_bucket, environment, options)

    assert sorted(found["rows"]) == sorted(expected_rows(small_bucket))
    for file, is_compiled in found["executors"]:
        assert re.fullmatch(rf"{tmp_path}/home/work/app-[^/]*/\d/environment/lib/.*", file)
        assert is_compiled


def test_a_wheel_is_unpacked(tmp_path: Path, small_bucket: str, bare_python: Path) -> None:
    """Where the cluster has pyarrow and pandas, an archive of the rest is enough."""
    environment, options = options_of("An unpacked wheel")
    (tmp_path / "site.zip").symlink_to(PACKED / "site.zip")
    (tmp_path / "site").symlink_to(PACKED / "site")

    python = {"PYSPARK_PYTHON": str(bare_python)}
    found = submit(tmp_path, small_bucket, environment | python, options)

    assert sorted(found["rows"]) == sorted(expected_rows(small_bucket))
    for file, is_compiled in found["executors"]:
        assert re.fullmatch(rf"{tmp_path}/home/work/app-[^/]*/\d/site/arrow_io/.*", file)
        assert is_compiled


def test_compiled_modules_are_not_imported_from_a_zip(bare_python: Path, tmp_path: Path) -> None:
    """Which is how Spark passes `--py-files` on."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); import spark_ds.datasource"
    command = [str(bare_python), "-c", script, str(PACKED / "site.zip")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "site.zip/crc32c/" in done.stderr
    assert "ModuleNotFoundError: No module named 'crc32c._crc32c'" in done.stderr
