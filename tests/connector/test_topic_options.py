"""Whatever is given as an option, it is taken, or refused by an error of ours that says why."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import OptionError, PulsarOffloadError
from connector import open_catalog, open_topic, register_duckdb
from connector.options.topic_request import check_options
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_METADATA: Final = str(GOLDEN / "pulsar-4.0.7" / "public__default__int8")
_PLACES: Final = {"metadata", "schema", "url"}
"""Options whose text may well name a place that is not there, which is another error."""

_SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8).map(lambda text: f"-{text}"),
    st.binary(max_size=8),
    st.sampled_from(
        [
            object(),
            object,
            math.inf,
            Ellipsis,
            dt.date(2026, 1, 1),
            dt.timedelta(1),
            dt.time(1),
            len,
            Path("/-"),
            pd.NaT,
            pd.Timestamp("2026-01-01"),
            pa.scalar(5),
            pa.array([1]),
            pa.schema([]),
            np.int64(5),
            np.float32(5),
            np.bool_(True),  # noqa: FBT003 - as NumPy has it
            np.array([1, 2]),
            np.array(5),
            np.datetime64("2026"),
            np.datetime64("NaT"),
        ]
    ),
)
_ANYTHING: Final = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3),
        st.lists(inner, max_size=2).map(iter),
    ),
    max_leaves=5,
)


def _options_of(function: Callable[..., object]) -> list[str]:
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [n for n, each in inspect.signature(function).parameters.items() if each.kind in kinds]


@contextlib.contextmanager
def _taken_or_refused(option: str, value: object) -> Any:  # noqa: ANN401 - a context manager
    allowed = PulsarOffloadError if option in _PLACES else OptionError
    try:
        yield
    except allowed as error:
        assert str(error)  # noqa: PT017 - it need not be raised
    except Exception as error:
        message = f"{option}={value!r}: {type(error).__name__}: {error}"
        raise AssertionError(message) from error


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A bucket with one message."""
    with memory_bucket(offload([(3, [encode_entry([Message()], batched=False)])])) as bucket:
        yield bucket.url


@pytest.mark.parametrize("option", _options_of(open_topic))
@given(value=_ANYTHING)
@settings(max_examples=60)
def test_any_value_of_an_option_of_a_topic(url: str, option: str, value: object) -> None:
    """No value of any type lets an error through that is not ours."""
    given: dict[str, Any] = {"url": url, "topic": TOPIC} | {option: value}
    if option in {"metadata_options", "buckets"}:
        given["metadata"] = _METADATA
    if option == "schema_version":
        given["schema"] = "STRING"

    with _taken_or_refused(option, value):
        open_topic(**given)


@pytest.mark.parametrize("option", _options_of(open_catalog))
@given(value=_ANYTHING)
@settings(max_examples=60)
def test_any_value_of_an_option_of_a_catalog(url: str, option: str, value: object) -> None:
    """Nor here."""
    given: dict[str, Any] = {"url": url} | {option: value}
    if option in {"metadata_options", "buckets"}:
        given["metadata"] = _METADATA

    with _taken_or_refused(option, value):
        open_catalog(**given)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@pytest.mark.parametrize("option", ["con", "on_bind", "none_such", *_options_of(open_topic)])
@given(value=_ANYTHING)
@settings(max_examples=20, deadline=None)
def test_any_value_of_an_option_of_the_function_in_duckdb(option: str, value: object) -> None:
    """What can be told at once is told when the function is registered."""
    given: dict[str, Any] = {"con": _connection()} | {option: value}

    with _taken_or_refused(option, value):
        register_duckdb(**given)


_SQL: Final = [
    "5",
    "-1.5",
    "true",
    "'-x'",
    "[1]",
    "[NULL]",
    "['-x']",
    "{'a': 1}",
    "MAP {'a': 1}",
    "MAP {1: 'a'}",
    "'\\x00'::BLOB",
    "DATE '2026-01-01'",
    "INTERVAL 1 DAY",
    "TIME '01:00'",
    "'{}'::JSON",
    "gen_random_uuid()",
    "1e300",
    "'nan'::DOUBLE",
]


@pytest.mark.parametrize(
    "option",
    [
        "topic",
        "until",
        *(n for n in _options_of(open_topic) if n not in {"topic", "catalog", "trace"}),
    ],
)
def test_any_value_of_an_option_in_sql(url: str, option: str) -> None:
    """A statement fails with one of our sentences, and never with an error of Python's."""
    con = _connection()
    register_duckdb(con, url, metadata=_METADATA)
    for value in _SQL:
        topic, named = (
            (value, "") if option == "topic" else (f"'{TOPIC}'", f', "{option}" := {value}')
        )
        try:
            con.execute(f"SELECT count(*) FROM read_pulsar({topic}{named})").fetchall()  # noqa: S608
        except duckdb.Error as error:
            text = str(error)
            assert "Python exception" not in text or "Error: " in text, (option, value, text)
            for name in ("TypeError", "AttributeError", "ValueError", "KeyError", "Traceback"):
                assert f"{name}: " not in text, (option, value, text)


@pytest.mark.parametrize("options", [{}, {"schema": object()}, {"catalog": None, "end": None}])
def test_what_has_no_check_is_passed_over(options: dict[str, object]) -> None:
    """Options that are read elsewhere, and those that are not given, are no mistakes."""
    check_options(options)
