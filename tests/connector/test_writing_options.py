"""Every option of writing is there in every surface, with one name, one meaning and one error."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import pytest

from arrow_io.errors import OptionError
from connector import write_messages
from connector.options import kinds
from connector.options.write_request import WRITE_OPTIONS, WriteRequest
from tests.support.command_line import USAGE, run

_POSITIONS: Final = {"url", "topic", "messages"}
_WITH_TEXT: Final = [n for n, each in WRITE_OPTIONS.items() if each.in_python_only is None]
_NOT_ANY_TEXT: Final = [
    name
    for name, each in WRITE_OPTIONS.items()
    if each.kind.form == "NUMBER" or each.kind.allowed or name == "write_id"
]


def test_the_signature_has_the_options_of_the_table() -> None:
    """Names, types and defaults are the same."""
    parameters = inspect.signature(write_messages).parameters
    own = {n: each for n, each in parameters.items() if n not in _POSITIONS}

    assert {name: each.default for name, each in own.items()} == {
        name: each.default for name, each in WRITE_OPTIONS.items()
    }
    for name, option in WRITE_OPTIONS.items():
        assert own[name].annotation == option.type


@pytest.mark.parametrize("name", WRITE_OPTIONS)
def test_python_has_help(name: str) -> None:
    """`help(write_messages)` tells of each option."""
    told = inspect.getdoc(write_messages) or ""
    assert re.search(rf"^    {name}: ", told, re.MULTILINE)


def test_the_shell_has_help() -> None:
    """`--help` of the command tells of each option, in the words of the table."""
    told = " ".join(run("write", "--help").stdout.split())

    for name in _WITH_TEXT:
        option = WRITE_OPTIONS[name]
        shown = name.removesuffix("s") if option.kind.repeats else name
        assert f"--{shown.replace('_', '-')}" in told
        assert option.help.partition(" (")[0] in told


@pytest.mark.parametrize("name", _NOT_ANY_TEXT)
def test_a_wrong_text_is_told_by_the_name_of_the_option(name: str) -> None:
    """In Python as in the shell, before anything is asked of a store."""
    wrong: dict[str, Any] = {name: "no such"}
    with pytest.raises(OptionError, match=f"^{name} "):
        WriteRequest(**wrong)

    shown = f"--{name.replace('_', '-')}"
    result = run("write", "memory://never", "t", __file__, shown, "no such", ends=USAGE)

    assert shown in result.stderr


@pytest.mark.parametrize(
    "name", [n for n, each in WRITE_OPTIONS.items() if each.kind.form in {"NUMBER", "true|false"}]
)
def test_values_of_other_types_are_refused_in_python(name: str) -> None:
    """Neither a text nor another number stands for a flag or a whole number."""
    is_flag = WRITE_OPTIONS[name].kind is kinds.FLAG
    said = "true or false" if is_flag else "a whole number"
    for wrong in ("true", "3", 0.5, 1 if is_flag else True):
        with pytest.raises(OptionError, match=f"^{name} must be {said}, not {wrong!r}"):
            WriteRequest(**{name: wrong})  # type: ignore[arg-type]


def test_numbers_have_units() -> None:
    """A number that has a unit says it in the table as in its name."""
    for name, option in WRITE_OPTIONS.items():
        assert option.help.endswith(".")
        if name.endswith(("_bytes", "_ms")):
            assert option.unit == name.rpartition("_")[2]
        if option.kind is kinds.FLAG:
            assert option.default is False
