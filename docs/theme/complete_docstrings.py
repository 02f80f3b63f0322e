"""Completes docstrings for the API pages.

mkdocstrings reads them in the source, where the help on options is missing that `takes_options`
adds at run time.
"""

from __future__ import annotations

import inspect
import pkgutil
import re

import griffe

_CODE_SPAN = re.compile(r"(`[^`]*`)")
_NOT_EMPHASIS = re.compile(r"\w*_\w*|(?<!\S)\*(?!\S)")
"""Words with underscores, and a lone asterisk: Markdown would read them as emphasis."""


class CompleteDocstrings(griffe.Extension):
    """Adds the help on options, and shows doctests as code."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Name the section of doctests as griffe knows it: other sections become text."""
        if obj.docstring:
            obj.docstring.value = _with_examples(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: object) -> None:
        """Complete the docstring of a function with the decorator `takes_options`."""
        decorators = [str(each.value) for each in func.decorators]
        if func.docstring and any(each.startswith("takes_options(") for each in decorators):
            module = func.module.path
            name = func.path.removeprefix(f"{module}.")
            function = pkgutil.resolve_name(f"{module}:{name}")
            docstring = inspect.getdoc(function) or ""
            func.docstring.value = _with_examples(_with_names_as_code(docstring))


def _with_examples(docstring: str) -> str:
    return docstring.replace("\nExample:\n", "\nExamples:\n")


def _with_names_as_code(docstring: str) -> str:
    """Return a docstring with the names in its section `Args` between backticks."""
    head, title, tail = docstring.partition("\nArgs:\n")
    arguments, blank, others = tail.partition("\n\n")
    marked = "\n".join(map(_with_code, arguments.split("\n")))
    return head + title + marked + blank + others


def _with_code(line: str) -> str:
    name, text = re.fullmatch(r"(    \w+: )?(.*)", line).groups(default="")
    parts = _CODE_SPAN.split(text)
    return name + "".join(
        part if part.startswith("`") else _NOT_EMPHASIS.sub(r"`\g<0>`", part) for part in parts
    )
