"""No frame that an error passes through shows a secret to tools that print local variables."""

from __future__ import annotations

import io
import pickle
import traceback
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest
from rich.console import Console
from rich.traceback import Traceback

from arrow_io.storage.hidden import HiddenBytes, HiddenText, hidden, hidden_url, shown_to_library
from arrow_io.storage.location import Location
from connector import (
    LedgerOffloader,
    copy_topics,
    open_catalog,
    open_topic,
    plan_copy,
    plan_replay,
    register_duckdb,
    replay_topic,
    write_messages,
)
from connector.catalog.schemas.loading import load_schema
from connector.inputs.decryption_keys import read_decryption_keys
from connector.lake.copy import CopyRequest
from spark_ds.datasource import PulsarOffloadDataSource
from spark_ds.statistics import analyze
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

_SECRET: Final = "s3cr3tMaterialOfNoAccount"  # noqa: S105 - invented
_URL: Final = str(GOLDEN / "pulsar-4.0.7-small" / "objects")
_TOPIC: Final = "small-chunked"
_NOBODY: Final = "http://127.0.0.1:1"
_PEM: Final = f"-----BEGIN PRIVATE KEY-----\n{_SECRET}\n-----END PRIVATE KEY-----"
_OPTIONS: Final = {"key": "me", "secret": _SECRET, "client_kwargs": {"password": [_SECRET]}}
_TOKEN: Final = {"token": _SECRET}
_WITH_PASSWORD: Final = f"sftp://me:{_SECRET}@127.0.0.1:1/x"


def _spark(**options: str) -> Callable[[], object]:
    return lambda: PulsarOffloadDataSource({"url": _URL, "topic": _TOPIC} | options).schema()


class _Connection:
    """What DuckDB would call can be called here; DuckDB gives the text of an error alone."""

    function: Callable[[str], object]

    def create_function(
        self, _name: str, function: Callable[[str], object], *_: object, **__: object
    ) -> None:
        """Take the function."""
        self.function = function

    def execute(self, _sql: str) -> _Connection:
        """Do nothing."""
        return self

    def fetchone(self) -> None:
        """There are no rows."""


def _sql(arguments: str, **options: Any) -> Callable[[], object]:  # noqa: ANN401
    def bind() -> object:
        connection = _Connection()
        register_duckdb(connection, **options)  # type: ignore[arg-type]
        return connection.function(arguments)

    return bind


CALLS: Final[dict[str, Callable[[], object]]] = {
    "wrong option": lambda: open_topic(
        _URL,
        _TOPIC,
        storage_options=_OPTIONS,
        metadata_options=_TOKEN,
        decryption_keys={"a": _PEM},
        naming="x",  # type: ignore[arg-type]
    ),
    "no mapping": lambda: open_topic(_URL, _TOPIC, storage_options=_SECRET),  # type: ignore[arg-type]
    "no folder": lambda: open_topic("/no/such", _TOPIC, storage_options=_OPTIONS),
    "no library": lambda: open_topic("nothing://x", _TOPIC, storage_options=_OPTIONS),
    "bad client": lambda: open_topic("s3://bucket", _TOPIC, storage_options={"bad": _SECRET}),
    "no S3": lambda: open_topic(
        "s3://bucket", _TOPIC, storage_options=_OPTIONS | {"endpoint_url": _NOBODY}
    ),
    "no host": lambda: open_topic(_WITH_PASSWORD, _TOPIC),
    "no schema": lambda: open_topic(
        _URL, _TOPIC, storage_options=_OPTIONS, schema="memory://nothing"
    ),
    "credentials in a URL": lambda: open_topic(f"s3://me:{_SECRET}@bucket/x", _TOPIC),
    "query in a URL": lambda: open_topic(f"s3://bucket/x?{_SECRET}", _TOPIC),
    "no port": lambda: open_topic(f"sftp://me:{_SECRET}@127.0.0.1:99999/x", _TOPIC),
    "through a cache": lambda: open_topic(f"simplecache::{_WITH_PASSWORD}", _TOPIC),
    "no archive": lambda: open_topic(f"zip://me:{_SECRET}@x", _TOPIC),
    "references": lambda: open_topic(f"reference::{_WITH_PASSWORD}", _TOPIC),
    "bad endpoint": lambda: open_topic(
        "s3://bucket", _TOPIC, storage_options={"endpoint": f"ftp://me:{_SECRET}@host"}
    ),
    "bucket of a topic": lambda: open_topic(
        _URL, _TOPIC, metadata="/no/such", buckets={"a": f"s3://me:{_SECRET}@bucket"}
    ),
    "metadata with password": lambda: open_topic(
        _URL, _TOPIC, metadata=f"http://me:{_SECRET}@127.0.0.1:1"
    ),
    "ZooKeeper with password": lambda: open_topic(
        _URL, _TOPIC, metadata=f"zk://me:{_SECRET}@127.0.0.1:1"
    ),
    "no ZooKeeper": lambda: open_topic(
        _URL,
        _TOPIC,
        metadata="zk://127.0.0.1:1",
        metadata_options={"username": "me", "password": _SECRET},
    ),
    "no SASL": lambda: open_topic(
        _URL,
        _TOPIC,
        metadata="zk://127.0.0.1:1",
        metadata_options={"username": "me", "password": _SECRET, "sasl": True},
    ),
    "Oxia with password": lambda: open_topic(
        _URL, _TOPIC, metadata=f"oxia://me:{_SECRET}@127.0.0.1:1"
    ),
    "no Oxia": lambda: open_topic(
        _URL, _TOPIC, metadata="oxia://127.0.0.1:1", metadata_options=_TOKEN | {"tls": True}
    ),
    "statistics with password": lambda: open_topic(_URL, _TOPIC, statistics=_WITH_PASSWORD),
    "brokers with password": lambda: open_topic(_URL, _TOPIC, live=_WITH_PASSWORD),
    "schema with password": lambda: load_schema(_WITH_PASSWORD),
    "no topic": lambda: open_topic(_URL, "nothing", storage_options=_OPTIONS),
    "nothing to copy": lambda: copy_topics(
        _URL, "nothing", "memory://copied-secrets", storage_options=_OPTIONS
    ),
    "no table": lambda: copy_topics(
        _URL, "nothing", "x", target_options=_OPTIONS, table_options=_OPTIONS
    ),
    "nothing to plan": lambda: plan_copy(
        _URL, "nothing", "x", target_options=_OPTIONS, storage_options=_OPTIONS
    ),
    "nothing to replay": lambda: replay_topic(
        _URL, "nothing", to="pulsar://127.0.0.1:1", to_options=_TOKEN, storage_options=_OPTIONS
    ),
    "no replay": lambda: plan_replay(_URL, "nothing", storage_options=_OPTIONS),
    "nothing to analyze": lambda: analyze(
        None,  # type: ignore[arg-type]
        _URL,
        "nothing",
        statistics=_WITH_PASSWORD,
        storage_options=_OPTIONS,
    ),
    "nowhere to offload": lambda: LedgerOffloader(
        f"simplecache::{_WITH_PASSWORD}", storage_options=_OPTIONS
    ),
    "no catalog": lambda: open_catalog("/no/such", storage_options=_OPTIONS),
    "nothing to write": lambda: write_messages(
        "memory://written-secrets", _TOPIC, [], storage_options=_OPTIONS
    ),
    "metadata elsewhere": lambda: write_messages(
        _WITH_PASSWORD, _TOPIC, [], metadata_folder=_WITH_PASSWORD, metadata_options=_OPTIONS
    ),
    "no metadata": lambda: open_topic(_URL, _TOPIC, metadata="/no/such", metadata_options=_OPTIONS),
    "unknown metadata option": lambda: open_catalog(
        _URL, metadata=_NOBODY, metadata_options={"tokens": _SECRET}
    ),
    "bad token": lambda: open_catalog(
        _URL, metadata=_NOBODY, metadata_options={"token": _SECRET + "\n"}
    ),
    "no PEM": lambda: open_topic(_URL, _TOPIC, decryption_keys=_PEM),
    "no PEM of a name": lambda: open_topic(_URL, _TOPIC, decryption_keys={"a": _PEM.encode()}),
    "no key file": lambda: read_decryption_keys(_SECRET),
    "no key looked up": lambda: read_decryption_keys(lambda _: _PEM).private_key("a"),
    "nothing looked up": lambda: read_decryption_keys(
        lambda _: [_SECRET]  # type: ignore[arg-type]
    ).private_key("a"),
    "registered": _sql(
        '{"function": "read_pulsar", "topic": "nothing"}', url=_URL, storage_options=_OPTIONS
    ),
    "registered wrong": lambda: register_duckdb(
        duckdb, _URL, storage_options=_OPTIONS, decryption_keys=_PEM, nothing=5
    ),
    "in SQL": _sql(
        f'{{"function": "read_pulsar", "topic": "nothing", "storage_options": {{"secret":'
        f' "{_SECRET}"}}, "decryption_keys": "{_SECRET}"}}',
        url=_URL,
    ),
    "in SQL as text": _sql(
        '{"function": "read_pulsar", "topic": "nothing", "storage_options":'
        f' "{{\\"secret\\": \\"{_SECRET}\\"}}"}}',
        url=_URL,
    ),
    "Spark storage": _spark(**{"secret.key": _SECRET, "storage.pass": _SECRET, "topic": "x"}),
    "Spark JSON": _spark(storage_options=f'{{"key": "{_SECRET}"'),
    "Spark objects": _spark(storage_options=f'{{"key": "{_SECRET}"}}', naming="x"),
    "Spark nested": _spark(**{"storage.a": f'{{"b": "{_SECRET}"', "storage.c": _SECRET}),
    "Spark twice": _spark(**{"storage.a": _SECRET, "secret.a": _SECRET}),
    "Spark unknown": _spark(**{"secret.a": _SECRET, "nothing": "5"}),
    "Spark token": _spark(
        **{"metadata": "/no/such", "secret.metadata.token": _SECRET, "topic": "x"}
    ),
    "Spark keys": _spark(**{"secret.decryption_keys": _PEM}),
    "Spark keys in the open": _spark(decryption_keys=_PEM),
}


def _frames(error: BaseException) -> Iterator[TracebackType]:
    """The frames of an error and of those it is shown with, but for the first, a test's own."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != __file__:
            yield trace
        trace = trace.tb_next
    behind = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if behind is not None:
        yield from _frames(behind)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_frame_shows_a_secret(call: Callable[[], object]) -> None:
    """Neither does an error's own text, nor its attributes."""
    with pytest.raises(Exception, match=r".") as caught:
        call()

    told = [
        (trace.tb_frame.f_code.co_qualname, name)
        for trace in _frames(caught.value)
        for name, value in trace.tb_frame.f_locals.items()
        if _SECRET in repr(value)
    ]
    assert told == []
    assert _SECRET not in str(caught.value)
    assert _SECRET not in repr(vars(caught.value))
    assert _SECRET not in "".join(traceback.format_exception(caught.value))


def test_rich_shows_no_part_of_a_secret() -> None:
    """It cuts long texts before it asks for their `repr`, and looks into mappings by itself."""

    def entry(options: dict[str, Any]) -> None:
        options = hidden(options)
        raise ValueError

    with pytest.raises(ValueError, match=r"^$") as caught:
        entry({"secret": _SECRET * 20, "nested": {"password": _SECRET.encode() * 20}})

    frame = caught.value.__traceback__
    assert frame is not None
    console = Console(width=200, record=True, file=io.StringIO())
    shown = Traceback.from_exception(ValueError, caught.value, frame.tb_next, show_locals=True)
    console.print(shown)
    text = console.export_text()
    assert "options" in text
    assert "***" in text
    assert _SECRET[:8] not in text


def test_what_is_hidden_is_what_it_was() -> None:
    """To whoever uses it, and in another process too."""
    options = {"a": _SECRET, "b": [b"x", {"c": (_SECRET, 5)}], "d": None}
    masked = hidden(options)

    assert masked == options
    assert pickle.loads(pickle.dumps(masked)) == options
    assert repr(pickle.loads(pickle.dumps(masked))) == repr(masked)
    assert repr(masked) == "{'a': '***', 'b': ['***', {'c': ('***', 5)}], 'd': None}"
    plain = shown_to_library(masked)
    assert plain == options
    assert type(plain["a"]) is str
    assert f"{masked['a']}" == str(masked["a"]) == _SECRET
    assert repr(HiddenText(f" {_SECRET} ").strip()[1:]) == "'***'"
    assert isinstance(hidden(b"x"), HiddenBytes)
    assert hidden_url("s3://bucket/x") == "s3://bucket/x"
    assert repr(hidden_url(_WITH_PASSWORD)) == "'***'"
    assert hidden(len) is len


_OPERATORS: Final = frozenset({"__add__", "__getitem__", "__mod__", "__mul__", "__rmul__"})


@pytest.mark.parametrize(
    ("plain", "masked"),
    [("a://b?c", HiddenText("a://b?c")), (b"a://b?c", HiddenBytes(b"a://b?c"))],
    ids=["text", "bytes"],
)
def test_what_methods_return_is_hidden(plain: Any, masked: Any) -> None:  # noqa: ANN401
    """Each method that returns a text or bytes, or a list of them, returns them hidden."""
    one = plain[:1]
    arguments: list[tuple[object, ...]] = [
        (), (one,), (0,), (9,), (slice(2),), (one, one), ([plain, plain],), ({97: 98},),
    ]  # fmt: skip
    shown = {
        name: result
        for name in dir(plain)
        if name in _OPERATORS or not name.startswith(("_", "maketrans"))
        for given in arguments
        if isinstance(result := _result(masked, name, given), str | bytes | list | tuple)
        and result != _result(masked, "__getitem__", (slice(0, 0),))
        and set(repr(result)) - set("'*,()[] ")
    }
    assert shown == {}
    assert repr(one + masked) == repr(masked + one) == repr(masked) == "'***'"
    assert [masked.partition(one), masked.split(one)] == [plain.partition(one), plain.split(one)]


def _result(value: Any, name: str, arguments: tuple[object, ...]) -> object:  # noqa: ANN401
    try:
        return getattr(value, name)(*arguments)
    except (TypeError, ValueError, LookupError):
        return None


def test_file_systems_of_different_secrets_are_not_mixed_up() -> None:
    """Those of fsspec are kept by the text of their options, which would be the same."""
    options = {"key": "me", "endpoint_url": _NOBODY}
    stores = [
        Location("s3://bucket", hidden(options | {"secret": secret}))._sender.store()
        for secret in ("one-secret", "other-secret")
    ]

    one, other = (store._file_system for store in stores)
    assert one is not other
    assert [fs.storage_options["secret"] for fs in (one, other)] == ["one-secret", "other-secret"]


def test_key_files_are_hidden(tmp_path: Path) -> None:
    """What is read of a folder is as secret as what is given."""
    (tmp_path / "a.pem").write_text(_PEM)

    for given in (tmp_path, tmp_path / "a.pem"):
        with pytest.raises(ValueError, match="not a private key") as caught:
            read_decryption_keys(given)
        for trace in _frames(caught.value):
            assert _SECRET not in repr(trace.tb_frame.f_locals)


_HIDDEN = "SEKRET"
FOLDER = GOLDEN / "pulsar-4.0.7"


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_no_option_is_shown(kind: str, tmp_path: Path) -> None:
    """Neither by what was asked for, nor by a copy and its tables, as errors and logs show them."""
    options: dict[str, Any] = {
        "delta": {"table_options": {"AWS_SECRET_ACCESS_KEY": _HIDDEN}},
        "iceberg": {
            "table_options": {
                "type": "sql",
                "uri": f"sqlite:///{tmp_path}/catalog.db",
                "warehouse": tmp_path.as_uri(),
                "s3.secret-access-key": _HIDDEN,
            }
        },
        "parquet": {},
    }[kind]
    request = CopyRequest(
        url=str(FOLDER / "objects"),
        topic="json-orders",
        target="shop.t" if kind == "iceberg" else "s3://bucket/t",
        target_options={"key": "k", "secret": _HIDDEN},
        format=kind,  # type: ignore[arg-type]
        dead_letters=True,
        topic_options={"metadata": str(FOLDER), "storage_options": {"password": _HIDDEN}},
        **options,
    )
    assert _HIDDEN not in repr(request)
    for _, _, open_copy in request.copies():
        copy = open_copy()
        assert _HIDDEN not in repr(copy)
        assert _HIDDEN not in f"{copy.table} {copy.table!r} {copy.dead_letter_table!r}"
        if kind == "iceberg":
            copy.table.catalog.close()  # type: ignore[attr-defined]
            assert copy.dead_letter_table is not None
            copy.dead_letter_table.catalog.close()  # type: ignore[attr-defined]
