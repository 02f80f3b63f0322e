"""The numbers that C is told again, in `.pxd` files, and those of Python that they must be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_ENUMERATED = re.compile(r"^    (\w+) = (-?\d+)$", re.MULTILINE)
_LONG = re.compile(r'^    const long long (\w+) "(?:(-?\d+)LL|\((-?\d+)LL - 1\))"$', re.MULTILINE)


def python_numbers(module: ModuleType) -> dict[str, int]:
    """The numbers in capitals of a module, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) is int and not name.startswith("_") and name.isupper()
    }


def c_numbers(module: ModuleType) -> dict[str, int]:
    """The numbers that C is told of a module, by name: in `_NAME.pxd`, beside it."""
    assert module.__file__ is not None
    source = Path(module.__file__)
    declared = source.with_name(f"_{source.stem}.pxd").read_text(encoding="utf-8")
    told = [(name, int(number)) for name, number in _ENUMERATED.findall(declared)]
    # C has no literal of the least number there is, so that is told as a difference.
    told += [
        (name, int(number) if number else int(above) - 1)
        for name, number, above in _LONG.findall(declared)
    ]
    assert len(dict(told)) == len(told)
    return dict(told)
