"""Options that are numbers are checked, and errors name them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arrow_io.core.option_values import check_count, check_whole_number
from arrow_io.errors import OptionError


@pytest.mark.parametrize("value", [1, 5, np.int64(5)])
def test_numbers_within_bounds_are_taken(value: Any) -> None:  # noqa: ANN401
    """Both bounds are inclusive, and any whole number will do."""
    check_whole_number("partitions", value, 1, 5)


@pytest.mark.parametrize("value", [0, 6, -1, 10**30])
def test_numbers_out_of_bounds_are_refused(value: int) -> None:
    """The error says what is allowed."""
    with pytest.raises(OptionError, match=f"partitions is {value}; allowed are 1 … 5"):
        check_whole_number("partitions", value, 1, 5)


@pytest.mark.parametrize("value", ["3", 3.0, None, [3]])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:  # noqa: ANN401
    """The error says what was given."""
    with pytest.raises(OptionError, match="partitions must be a whole number, not"):
        check_whole_number("partitions", value, 1, 5)


@pytest.mark.parametrize("value", [0, -1, np.int64(0), np.int32(-1)])
def test_a_count_is_at_least_one(value: Any) -> None:  # noqa: ANN401
    """No whole number below 1 is taken, of whatever class it is."""
    with pytest.raises(OptionError, match=f"batch_rows must be at least 1, not {value}"):
        check_count("batch_rows", value)


def test_a_count_is_bounded() -> None:
    """A count that no array can have is refused."""
    with pytest.raises(OptionError, match="allowed are 1 … 9223372036854775807"):
        check_count("batch_rows", 10**30)
