"""The blocks of the page on engines run, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import ray

from tests.engines.topics import FOLDER
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.snippets import Snippet

pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(600),
    # Ray's and Ibis' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # Of the DuckDB that Ibis needs; the page says it.
    pytest.mark.filterwarnings("ignore:.*leaves out rows with NaN"),
]

_PAGE: Final = Path(__file__).parents[2] / "docs" / "engines.md"
_BLOCKS: Final = {
    each.text.split()[1].partition(".")[0]: each
    for each in snippets_of(_PAGE.read_text("utf-8"))
    if each.skipped == "not run here: the tests of engines run it"
}


@pytest.fixture(scope="module", autouse=True)
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster for Ray's block, whose workers find the bucket under the name on the page."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "golden").symlink_to(FOLDER)
    with contextlib.chdir(folder):
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=150 << 20,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(tmp_path_factory.mktemp("r")),
            runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        try:
            yield
        finally:
            ray.shutdown()


def test_each_engine_has_a_block() -> None:
    """All engines that have a section."""
    assert _BLOCKS.keys() == {"daft", "datafusion", "ibis", "pyarrow", "ray"}


@pytest.mark.parametrize("snippet", _BLOCKS.values(), ids=_BLOCKS)
def test_block_prints_what_the_page_shows(snippet: Snippet) -> None:
    """Word by word."""
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(snippet.text, {})  # noqa: S102 - it is our own page

    assert printed.getvalue().strip() == snippet.printed
