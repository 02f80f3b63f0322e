"""Adds to the API pages the help on options that `takes_options` adds to docstrings at run time."""

from __future__ import annotations

import inspect
import pkgutil
import re

import griffe

_CODE_SPAN = re.compile(r"(`[^`]*`)")
_NOT_EMPHASIS = re.compile(r"\w*_\w*|(?<!\S)\*(?!\S)")
"""Words with underscores, and a lone asterisk: Markdown would read them as emphasis."""


class OptionHelp(griffe.Extension):
    """Replaces the docstring in the source by that of the imported function."""

    def on_function(self, *, func: griffe.Function, **_: object) -> None:
        """Complete the docstring of a function with the decorator `takes_options`."""
        decorators = [str(each.value) for each in func.decorators]
        if func.docstring and any(each.startswith("takes_options(") for each in decorators):
            module = func.module.path
            name = func.path.removeprefix(f"{module}.")
            function = pkgutil.resolve_name(f"{module}:{name}")
            func.docstring.value = as_markdown(inspect.getdoc(function) or "")


def as_markdown(docstring: str) -> str:
    """Return a docstring with names of its section `Args` as code."""
    head, args, tail = docstring.partition("\nArgs:\n")
    return head + args + "\n".join(map(_with_code, tail.split("\n")))


def _with_code(line: str) -> str:
    name, text = re.fullmatch(r"(    \w+: )?(.*)", line).groups(default="")
    parts = _CODE_SPAN.split(text)
    return name + "".join(
        part if part.startswith("`") else _NOT_EMPHASIS.sub(r"`\g<0>`", part) for part in parts
    )
