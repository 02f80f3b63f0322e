"""The rounds of the fuzzer find nothing, and do reach the code that they are for."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.rounds import ROUNDS, changed


@pytest.mark.parametrize("name", ROUNDS)
@pytest.mark.usefixtures("build")
def test_rounds(name: str) -> None:
    """Changed bytes are read or refused, and some of them are read."""
    assert sum(ROUNDS[name](Random(seed)) for seed in range(60)) > 0


def test_changes() -> None:
    """Of the same seed, the same bytes; of others, others, shorter and longer ones among them."""
    data = bytes(range(100))
    found = [changed(Random(seed), data) for seed in range(200)]

    assert found == [changed(Random(seed), data) for seed in range(200)]
    assert min(map(len, found)) < len(data) < max(map(len, found))
    assert len(set(found)) > 100
