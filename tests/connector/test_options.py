"""Every option is there in every surface, with one name, one meaning and one error."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Final, get_args

import duckdb
import pytest
from typer.main import get_command

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic, plan_copy, plan_replay, register_duckdb
from connector.cli.options import OptionGroup, Reading
from connector.options import kinds
from connector.options.topic_request import OPTIONS, check_options
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.options import SourceOptions
from tests.support.command_line import APP, USAGE, run
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connector.options.topic_request import TopicRequest

URL: Final = str(GOLDEN / "pulsar-4.0.7-small" / "objects")
TOPIC: Final = "small-chunked"
READING_COMMANDS: Final = ("head", "tail", "get", "plan", "query", "cost")
_POSITIONS: Final = {"url", "topic"}
_WITH_TEXT: Final = [n for n, each in OPTIONS.items() if each.in_python_only is None]

_RIGHT: Final[dict[str, tuple[str, object]]] = {
    "storage_options": ('{"a": {"b": 1}}', {"a": {"b": 1}}),
    "metadata": ("https://broker:8443", "https://broker:8443"),
    "metadata_options": ('{"timeout_s": 5}', {"timeout_s": 5}),
    "buckets": ('{"old": "s3://old"}', {"old": "s3://old"}),
    "start": ("7:8", "7:8"),
    "end": ("2026-01-01", "2026-01-01"),
    "columns": ("__key__, __topic__", ("__key__", "__topic__")),
    "schema": ("STRING", "STRING"),
    "schema_version": ("3", 3),
    "value": ("struct", "struct"),
    "unwrap": ("debezium", "debezium"),
    "time_unit": ("us", "us"),
    "naming": ("pulsar-spark", "pulsar-spark"),
    "transactions": ("all", "all"),
    "on_corruption": ("salvage", "salvage"),
    "verify_checksums": ("false", False),
    "range_bytes": ("1024", 1024),
    "index_cache": ("false", False),
    "batch_rows": ("7", 7),
    "batch_bytes": ("2048", 2048),
    "decryption_keys": ("keys", "keys"),
    "statistics": ("s3://bucket/statistics", "s3://bucket/statistics"),
    "clock_slack": ("10m", "10m"),
    "view": ("latest", "latest"),
    "view_bytes": ("1000", 1000),
    "segments": ("all", "all"),
    "live": ("pulsar://broker:6650", "pulsar://broker:6650"),
    "live_options": ('{"timeout_s": 5}', {"timeout_s": 5}),
    "lake": ("s3://lake/orders", "s3://lake/orders"),
    "lake_options": ('{"format": "parquet"}', {"format": "parquet"}),
    "schema_options": ('{"timeout_s": 5}', {"timeout_s": 5}),
}
"""A text of each option, and the value that it is; for each option there has to be one."""

_WRONG: Final[dict[kinds.Kind, tuple[object, str]]] = {
    kinds.FLAG: ("no", "{} must be true or false, not 'no'"),
    kinds.COUNT: ("x", "{} must be a whole number, not 'x'"),
    kinds.VERSION: ("x", "{} must be a whole number, not 'x'"),
    kinds.DURATION: ("x", "{} must be a whole number followed by s, m, h, d or w, not 'x'"),
    kinds.BOUND: ("soon", "must be a datetime, its ISO text, or a message id"),
}
"""A text that is wrong in each surface, and the error."""


def _wrong_text(name: str) -> tuple[str, str] | None:
    kind = OPTIONS[name].kind
    if kind.allowed:
        return "x", f"{{}} must be one of {', '.join(kind.allowed)}, not 'x'"
    return _WRONG.get(kind)  # type: ignore[return-value]


# The table, and the signature


def test_the_signature_has_the_options_of_the_table() -> None:
    """Names and defaults are the same; allowed values stand in the signature as in the table."""
    parameters = inspect.signature(open_topic).parameters
    own = {n: each.default for n, each in parameters.items() if n not in _POSITIONS}

    assert own == {name: each.default for name, each in OPTIONS.items()}
    for name, option in OPTIONS.items():
        annotation = str(parameters[name].annotation)
        if option.kind.allowed:
            literal = ", ".join(map(repr, option.kind.allowed))
            assert annotation.replace('"', "'") == f"Literal[{literal}]"
        else:
            assert annotation == option.type


def test_the_signature_of_a_catalog_has_its_options() -> None:
    """What a catalog fixes is what it is opened with."""
    parameters = inspect.signature(open_catalog).parameters
    fixed = [name for name, each in OPTIONS.items() if each.is_fixed_by_catalog]

    assert [name for name in parameters if name != "url"] == fixed


def test_every_option_is_described() -> None:
    """Each has help, and a number that has a unit says it in the table as in its name."""
    for name, option in OPTIONS.items():
        assert option.help.endswith(".")
        if name.endswith(("_bytes", "_rows")):
            assert option.unit == name.rpartition("_")[2]


# Help


def _help_of_python() -> str:
    return inspect.getdoc(open_topic) or ""


def _help_of_spark() -> str:
    return inspect.getdoc(PulsarOffloadDataSource) or ""


@pytest.mark.parametrize("name", OPTIONS)
def test_python_has_help(name: str) -> None:
    """`help(open_topic)` tells of each option, in the words of the table."""
    [section] = re.findall(r"^Args:\n(.*?)\n\n", _help_of_python(), re.MULTILINE | re.DOTALL)

    assert f" {name}: {OPTIONS[name].help}" in " ".join(f" {section}".split())


@pytest.mark.parametrize("name", _WITH_TEXT)
def test_spark_has_help(name: str) -> None:
    """`help(PulsarOffloadDataSource)` tells of each option, in the words of the table."""
    section = " ".join(_help_of_spark().partition("\nOptions of reading:\n")[2].split())

    assert f" {name}: {OPTIONS[name].help}" in section.partition(" Options of writing: ")[0]


@pytest.mark.parametrize("command", READING_COMMANDS)
def test_the_shell_has_help(command: str) -> None:
    """`--help` of each command that reads tells of each option, in the words of the table."""
    told = " ".join(run(command, "--help").stdout.split())

    for name in _WITH_TEXT:
        option = OPTIONS[name]
        shell = name.removesuffix("s") if option.kind.repeats else name
        assert f"--{shell.replace('_', '-')} {option.kind.form}" in told
        assert option.help.split(":")[0].split("-")[0] in told
        assert option.default is None or f"[default: {str(option.default)[:1].lower()}" in told


def test_sql_has_help() -> None:
    """DuckDB lists each option as a parameter of the table function."""
    with duckdb.connect() as con:
        register_duckdb(con, URL)
        [(parameters,)] = con.execute(
            "select parameters from duckdb_functions()"
            " where function_name = 'read_pulsar' and database_name = 'temp'"
        ).fetchall()

    assert set(parameters) == {"topic", "url", "until", *_WITH_TEXT}


# Right values


def _in_sql(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> Any:  # noqa: ANN401
    made: list[Any] = []

    def stop(_: object, _url: str, request: TopicRequest, _given: object) -> None:
        made.append(getattr(request, name))
        raise OptionError("enough")

    monkeypatch.setattr("connector.engines.duckdb_functions._Binder._catalog", stop)
    value = [each.strip() for each in text.split(",")] if name == "columns" else text
    with duckdb.connect() as con:
        register_duckdb(con, URL)
        with pytest.raises(duckdb.Error, match="enough"):
            con.execute(f"from read_pulsar('{TOPIC}', \"{name}\" := ?)", [value])
    return tuple(made[0]) if name == "columns" else made[0]


def _in_spark(_: pytest.MonkeyPatch, name: str, text: str) -> Any:  # noqa: ANN401
    options = SourceOptions.parse({"url": URL, "topic": TOPIC, name: text})
    return getattr(options.request, name)


def _in_shell(_: pytest.MonkeyPatch, name: str, text: str) -> Any:  # noqa: ANN401
    option = OPTIONS[name]
    given: object = text
    if option.kind.repeats:
        given = [f"{key}={_text(value)}" for key, value in json.loads(text).items()]
    group = OptionGroup((name,))
    [parameter] = group.parameters()
    return getattr(group.request({parameter.name: given}), name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_SURFACES: Final[dict[str, Callable[[pytest.MonkeyPatch, str, str], Any]]] = {
    "sql": _in_sql,
    "spark": _in_spark,
    "shell": _in_shell,
}


@pytest.mark.parametrize("surface", _SURFACES)
@pytest.mark.parametrize("name", _WITH_TEXT)
def test_a_text_is_the_same_value_everywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, surface: str, name: str
) -> None:
    """SQL, Spark and the shell read each option's text as the value that Python is given."""
    text, value = _RIGHT[name]
    if name == "decryption_keys" and surface == "spark":
        # The driver reads them, so that executors need no file.
        monkeypatch.setattr("spark_ds.options.read_decryption_keys", lambda path: path)
    monkeypatch.chdir(tmp_path)
    if name == "decryption_keys":
        (tmp_path / "keys").mkdir()

    assert _SURFACES[surface](monkeypatch, name, text) == value
    check_options({name: value})


@pytest.mark.parametrize("name", ["live_options", "metadata_options", "schema_options"])
def test_spark_has_a_masked_name_of_what_is_secret(name: str) -> None:
    """An option that holds secrets means the same by the name that Spark masks."""
    options = SourceOptions.parse({"url": URL, "topic": TOPIC, f"secret.{name}": '{"token": "t"}'})

    assert OPTIONS[name].is_secret
    assert getattr(options.request, name) == {"token": "t"}
    assert not options.location.storage_options


def test_the_shell_has_every_option() -> None:
    """Commands that read have the whole table, and are commands that there are."""
    [group] = [each for each in get_args(Reading) if isinstance(each, OptionGroup)]

    assert list(group.names) == _WITH_TEXT
    assert set(READING_COMMANDS) <= get_command(APP).commands.keys()  # type: ignore[attr-defined]


# Wrong ones


_TYPES: Final = [5.5, "\N{SNOWMAN}", b"x", object(), [object()]]


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_types_are_refused_in_python(name: str) -> None:
    """A value of another type is an error of ours, which names the option, and sends no request."""
    kind = OPTIONS[name].kind
    wrong = [
        each for each in _TYPES if not (kind.read is kinds.read_text and isinstance(each, str))
    ]
    wrong += ["7", True] if kind in {kinds.COUNT, kinds.VERSION} else []
    wrong += ["false", 0, None] if kind is kinds.FLAG else []
    wrong += ["x", None] if kind.allowed else []
    for value in wrong:
        trace = RequestTrace() if name != "trace" else value
        with pytest.raises(OptionError) as caught:
            open_topic(URL, TOPIC, **({"trace": trace, "value": "raw"} | {name: value}))  # type: ignore[arg-type]
        assert str(caught.value)
        if kind is not kinds.SOURCE:
            assert name in str(caught.value)
        if isinstance(trace, RequestTrace):
            assert trace.counts.requests == 0


@pytest.mark.parametrize("name", [n for n in _WITH_TEXT if _wrong_text(n)])
def test_a_wrong_text_is_the_same_error_everywhere(name: str) -> None:
    """SQL, Spark and the shell refuse it in one sentence, each by its own spelling of the name."""
    wrong = _wrong_text(name)
    assert wrong is not None
    text, said = wrong
    with duckdb.connect() as con:
        register_duckdb(con, URL)
        with pytest.raises(duckdb.Error) as in_sql:
            con.execute(f"from read_pulsar('{TOPIC}', \"{name}\" := ?)", [text])
    with pytest.raises(OptionError) as in_spark:
        SourceOptions.parse({"url": URL, "topic": TOPIC, name: text})
    shell = f"--{name.replace('_', '-')}"
    in_shell = run("head", URL, TOPIC, shell, text, ends=USAGE)

    assert said.format(name) in str(in_sql.value)
    assert said.format(shell) in " ".join(in_shell.stderr.split())
    if name != "time_unit":
        assert said.format(name) in str(in_spark.value)


# A catalog, which has options of its own


_DOORS: Final[dict[str, Callable[..., object]]] = {
    "read": lambda **options: open_topic(URL, TOPIC, value="raw", **options),
    "copy": lambda **options: plan_copy(URL, TOPIC, "memory://no-table", **options),
    "replay": lambda **options: plan_replay(URL, TOPIC, **options),
}


@pytest.mark.parametrize("door", _DOORS)
@pytest.mark.parametrize(
    "options",
    [
        {"storage_options": {"a": 1}},
        {"metadata": "https://broker"},
        {"metadata_options": {"token": "t"}},
        {"buckets": {"b": "memory://b"}},
        {"range_bytes": 5},
        {"trace": RequestTrace()},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_a_catalog_fixes_is_refused_beside_it(door: str, options: dict[str, Any]) -> None:
    """An option that would not be heeded must be an error that says where it belongs."""
    [name] = options
    with pytest.raises(OptionError, match=rf"^{name} cannot be combined with catalog"):
        _DOORS[door](catalog=open_catalog(URL), **options)


def test_a_catalog_of_another_place_is_refused() -> None:
    """The error names both places; the URL must not be passed over."""
    other = str(GOLDEN / "pulsar-4.0.7" / "objects")
    catalog = open_catalog(URL)
    said = f"the URL is {other}, but the catalog was opened for {URL}: pass its URL"

    with pytest.raises(OptionError, match=f"^{re.escape(said)}$"):
        open_topic(other, TOPIC, catalog=catalog, value="raw")
    with pytest.raises(OptionError, match=re.escape(said)):
        register_duckdb(duckdb.connect(), other, catalog=catalog)


@pytest.mark.parametrize("spelled", ["{}", "{}/", "file://{}", "file://{}/"])
def test_one_place_has_several_spellings(spelled: str) -> None:
    """A slash at the end makes no other place, nor does the scheme of a path."""
    dataset = open_topic(spelled.format(URL), TOPIC, catalog=open_catalog(URL), value="raw")

    assert dataset.count_rows() > 0


def test_sql_refuses_what_a_registered_catalog_fixes() -> None:
    """A statement that names no other place cannot change how its catalog was opened."""
    with duckdb.connect() as con:
        register_duckdb(con, URL, catalog=open_catalog(URL))
        with pytest.raises(duckdb.Error, match="range_bytes cannot be combined with catalog"):
            con.execute(f"from read_pulsar('{TOPIC}', range_bytes := 5, value := 'raw')")
