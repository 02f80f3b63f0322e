"""What is no place at all is refused by every surface that takes one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from arrow_io.errors import OptionError
from connector import (
    LedgerOffloader,
    Message,
    open_catalog,
    open_topic,
    register_duckdb,
    write_messages,
)
from tests.support.command_line import USAGE, run
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = GOLDEN / "pulsar-4.0.7-small" / "objects"
MESSAGES = [Message(payload=b"value", publish_time_ms=0)]
OPENERS: dict[str, Callable[[Any], object]] = {
    "open_catalog": open_catalog,
    "open_topic": lambda url: open_topic(url, "orders"),
    "write_messages": lambda url: write_messages(url, "orders", MESSAGES),
    "LedgerOffloader": LedgerOffloader,
    "register_duckdb": lambda url: register_duckdb(duckdb.connect(), url),
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder, which an empty path would be."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "shown"), [("", "an empty text"), (" ", "an empty text"), (5, "an int")]
)
@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_no_place_is_refused(opener: str, given: object, shown: str) -> None:
    """An empty URL must not be the working directory; the error shows what a URL looks like."""
    said = f"url must be a path or URL, such as s3://bucket/prefix, not {shown}"

    with pytest.raises(OptionError, match=said):
        OPENERS[opener](given)

    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("source", ["read_pulsar('orders', url := '')", "pulsar_topics(url := '')"])
def test_sql_refuses_what_is_no_place(source: str) -> None:
    """In a statement too."""
    con = duckdb.connect()
    register_duckdb(con)

    with pytest.raises(duckdb.Error, match=r"OptionError: .*url must be a path or URL"):
        con.execute(f"from {source}")


@pytest.mark.parametrize(
    "arguments", [("topics", ""), ("head", "", "orders"), ("query", "", "select 1"), ("audit", "")]
)
def test_commands_refuse_what_is_no_place(arguments: tuple[str, ...]) -> None:
    """A shell's unset variable must not be the folder that the user stands in."""
    assert "url must be a path or URL" in run(*arguments, ends=USAGE).stderr


@pytest.mark.parametrize(
    ("given", "shown"), [(5, "an int"), (None, "None"), (b"x.json.gz", "a bytes"), ("", "an empty")]
)
def test_catalogs_are_saved_to_a_path_alone(given: Any, shown: str) -> None:  # noqa: ANN401
    """What is no path must be an error of ours that names the argument."""
    said = f"path must be a path or URL, such as s3://bucket/prefix, not {shown}"

    with pytest.raises(OptionError, match=said):
        open_catalog(str(SMALL)).save(given)


def test_paths_may_be_objects() -> None:
    """A path of `pathlib` is the place that its text is."""
    assert open_catalog(SMALL).topics() == open_catalog(str(SMALL)).topics()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda dataset: dataset.head("5"), "num_rows must be a whole number, not '5'"),
        (lambda dataset: dataset.to_table(5), "columns must be a list of names, not 5"),
        (lambda dataset: dataset.count_rows("x"), "a filter must be an Arrow expression"),
    ],
)
def test_datasets_refuse_values_of_a_wrong_kind(call: Callable[[Any], object], said: str) -> None:
    """What a dataset is asked for by a wrong value must be an error of ours that names it."""
    dataset = open_topic(str(SMALL), "small-chunked", value="raw")

    with pytest.raises(OptionError, match=said):
        call(dataset)


def test_errors_have_the_right_article() -> None:
    """They are read aloud: `not an int`."""
    with pytest.raises(OptionError, match=r"^con must be .*, not an int$"):
        register_duckdb(5)  # type: ignore[arg-type]
