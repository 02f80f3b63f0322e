"""Topics whose messages have ids of a schema registry are read by it, live or saved."""

from __future__ import annotations

import base64
import io
import json
import pickle
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import duckdb
import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import (
    IncompleteReadWarning,
    OptionError,
    PayloadDecodeError,
    SchemaError,
    StorageError,
    UndecodedValuesWarning,
    UnknownSchemaVersionError,
)
from arrow_io.payloads import protobuf_schema
from arrow_io.payloads.schema_info import TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from connector import open_topic, register_duckdb, write_messages
from connector.catalog.metadata import admin_connection
from connector.catalog.registry import registry, sources
from connector.catalog.registry.definitions import schema_info
from connector.catalog.registry.registered import Reference, RegisteredSchema
from connector.catalog.registry.registry import (
    Registry,
    RegistryPlace,
    registry_schema,
    saved_answers,
)
from connector.catalog.registry.sources import RestApi, SavedAnswers
from connector.catalog.schemas.proto_parser import parse_proto
from connector.options.topic_request import TopicRequest
from connector.replay.replay import replay_topic
from tests.support.admin_server import Certificates
from tests.support.command_line import USAGE, lines_of, run
from tests.support.payload_rows import messages, rows_of, values_of
from tests.support.registries import IdsInMemory, frame, recorded_messages, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.registries import RegistryServer

_ORDERS: Final = "orders-value"
_EVENTS: Final = "events-value"
_READINGS: Final = "readings-value#shop.Reading"
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    _ORDERS: {"address": None, "note": "none", "status": "NEW"},
    _EVENTS: {"user": None, "extra": None},
    _READINGS: {"labels": {}, "inner": None},
}
"""Fields that older schemas lack, as the newest one has them."""
_PASSWORD: Final = "p4ss:word"  # noqa: S105 - invented
_BASIC: Final = f"Basic {base64.b64encode(f'me:{_PASSWORD}'.encode()).decode()}"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry with the recorded answers."""
    with running_registry() as running:
        yield running


@pytest.fixture
def saved(server: RegistryServer, tmp_path: Path) -> Path:
    """A file with the recorded answers."""
    file = tmp_path / "registry.json"
    file.write_bytes(saved_answers(RestApi(server.url, {})))
    return file


def _write(folder: Path, *payloads: bytes | None) -> str:
    write_messages(str(folder), "topic", pa.table({"__value__": pa.array(payloads, pa.binary())}))
    return str(folder)


def _subject(name: str) -> str:
    return name.partition("#")[0]


def _expected(name: str) -> list[dict[str, Any]]:
    rows = [{**_DEFAULTS[name], **each.value} for each in recorded_messages(_subject(name))]
    if name == _EVENTS:
        for row in rows:
            extra = row["extra"]
            row["extra"] = None if extra is None else json.dumps(extra, separators=(",", ":"))
    return rows


def _schema(place: str, **options: Any) -> TopicSchema:  # noqa: ANN401
    parsed = RegistryPlace.parse(place)
    assert parsed is not None
    return registry_schema(parsed, **options)


def _first_row(schema: TopicSchema, payload: bytes) -> dict[str, list[Any]]:
    return values_of(schema, rows_of((None, messages(payload))))


class TestRecordedRegistry:
    """What Confluent's own client wrote, with schemas of a real registry."""

    @pytest.mark.parametrize("subject", [_ORDERS, _EVENTS, _READINGS])
    @pytest.mark.parametrize("is_live", [True, False])
    def test_values(
        self, server: RegistryServer, saved: Path, tmp_path: Path, subject: str, is_live: bool
    ) -> None:
        """Each message is read by the schema of its id, as the newest version of the subject."""
        payloads = [each.payload for each in recorded_messages(_subject(subject))]
        url = _write(tmp_path / "bucket", *payloads, None)
        place = server.url if is_live else saved

        dataset = open_topic(url, "topic", schema=f"confluent:{place}#{subject}")

        columns = list(_expected(subject)[0])
        rows = dataset.to_table(columns=columns).to_pylist()
        expected = _expected(subject)
        for row in rows:
            if "labels" in row and row["labels"] is not None:
                row["labels"] = dict(row["labels"])
        assert rows == [*expected, dict.fromkeys(columns)]

    def test_each_id_is_requested_once(self, server: RegistryServer, tmp_path: Path) -> None:
        """Opening takes the newest version; each other id one request, however often it is met."""
        payloads = [each.payload for each in recorded_messages(_ORDERS)] * 50
        url = _write(tmp_path, *payloads)
        dataset = open_topic(url, "topic", schema=f"confluent:{server.url}#{_ORDERS}")
        assert server.paths == [
            f"/subjects/{_ORDERS}/versions/latest",
            "/subjects/address/versions/1",
        ]
        server.paths.clear()

        for _ in range(2):
            assert dataset.to_table(columns=["id"]).num_rows == len(payloads)

        by_id = [path for path in server.paths if "/ids/" in path]
        assert sorted(by_id) == sorted({f"/schemas/ids/{each[4]}" for each in payloads})

    def test_an_older_version_as_reader(self, server: RegistryServer, tmp_path: Path) -> None:
        """Columns are those of the version that `schema_version` names."""
        url = _write(tmp_path, *(each.payload for each in recorded_messages(_ORDERS)))
        place = f"confluent:{server.url}#{_ORDERS}"

        dataset = open_topic(url, "topic", schema=place, schema_version=2)

        names = [each for each in dataset.schema.names if not each.startswith("__")]
        assert names == ["id", "amount", "address"]
        with pytest.raises(OptionError, match=r"no version 9 of orders-value; it has 1, 2, 3"):
            open_topic(url, "topic", schema=place, schema_version=9)

    def test_other_messages_are_refused(self, server: RegistryServer) -> None:
        """A value of another protobuf message than the reader's is not read as one."""
        (other,) = recorded_messages(_subject(_READINGS), others=True)
        with pytest.raises(SchemaError, match=r"has shop\.Reading\.Inner at \[1, 1\], not"):
            _first_row(_schema(f"confluent:{server.url}#{_READINGS}"), other.payload)
        inner = _schema(f"confluent:{server.url}#readings-value#shop.Reading.Inner")
        assert _first_row(inner, other.payload) == {"z": [5]}

    def test_other_messages_are_cheap(
        self, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A topic may have many messages of another type: the schema is not parsed for each."""
        own = recorded_messages("readings-value")[0].payload
        other = recorded_messages("readings-value", others=True)[0].payload
        url = _write(tmp_path / "bucket", *([own, other] * 20))
        parsed: list[str] = []
        read = protobuf_schema._read_descriptor

        def count(data: str) -> object:
            parsed.append(data)
            return read(data)

        monkeypatch.setattr(protobuf_schema, "_read_descriptor", count)
        place = f"confluent:{saved}#{_READINGS}"
        dataset = open_topic(url, "topic", schema=place, on_corruption="salvage")
        with pytest.warns(IncompleteReadWarning, match="20 × value lost"):
            assert dataset.to_table().num_rows == 40
        assert len(parsed) < 10

    def test_saved_answers(self, server: RegistryServer, tmp_path: Path) -> None:
        """A saved subject has what it refers to, and nothing else."""
        file = tmp_path / "saved.json"
        file.write_bytes(saved_answers(RestApi(server.url, {}), _ORDERS))
        answers = json.loads(file.read_bytes())
        assert {(each["subject"], each["version"]) for each in answers} == {
            ("address", 1), (_ORDERS, 1), (_ORDERS, 2), (_ORDERS, 3)
        }  # fmt: skip
        again = saved_answers(SavedAnswers.read(str(file), None), _ORDERS)
        assert json.loads(again) == answers

    def test_folders_of_answers(self, server: RegistryServer, tmp_path: Path) -> None:
        """Answers may be files of their own; an answer without an id has it as its name."""
        folder = tmp_path / "registry"
        folder.mkdir()
        for path, (status, body) in server.answers.items():
            if status == 200:
                name = path.removeprefix("/schemas/ids/").strip("/").replace("/", "-")
                (folder / f"{name}.json").write_bytes(body)
        expected = _expected(_ORDERS)[0]
        payload = recorded_messages(_ORDERS)[0].payload
        found = _first_row(_schema(f"confluent:{folder}#{_ORDERS}"), payload)
        assert {name: value for name, (value,) in found.items()} == expected


class TestPlaces:
    """The option `schema` names a registry, a subject and a message."""

    def test_the_only_subject(self, server: RegistryServer, tmp_path: Path) -> None:
        """A registry with one subject needs no name of it; with several, the error lists them."""
        file = tmp_path / "one.json"
        file.write_bytes(saved_answers(RestApi(server.url, {}), _EVENTS))
        assert _schema(f"confluent:{file}").reader.type == "JSON"
        with pytest.raises(OptionError, match=r"names no subject of .*address, common\.proto"):
            _schema(f"confluent:{server.url}")

    @pytest.mark.parametrize(
        ("place", "reason"),
        [
            ("confluent:", "must be followed by the URL"),
            ("confluent:/no/such/folder", "no file or folder"),
            ("confluent:{url}#missing", "has no subject 'missing'; it has address"),
            ("confluent:{url}#orders-value#shop.Order", "is of type AVRO, so # cannot choose"),
            ("confluent:{url}#readings-value#shop.None", r"no message 'shop\.None'"),
            ("confluent:{url}/elsewhere#orders-value", "not the URL of a schema registry"),
            ("confluent:https://me:secret@host/#s", "credentials in the URL"),
        ],
    )
    def test_what_is_not_there(self, server: RegistryServer, place: str, reason: str) -> None:
        """Each error says what is missing."""
        with pytest.raises((OptionError, StorageError), match=reason) as error:
            _schema(place.format(url=server.url))
        assert "secret" not in str(error.value)

    def test_ids_of_a_context(self, server: RegistryServer) -> None:
        """Ids are unique in a context only, which the subject names."""
        subject = "%3A.other%3Aorders"
        answers = {kind: json.dumps({"id": 7, "schema": f'"{kind}"'}) for kind in ("int", "long")}
        server.answers[f"/subjects/{subject}/versions/latest"] = (200, answers["int"].encode())
        server.answers["/schemas/ids/7"] = (200, answers["long"].encode())
        server.answers[f"/schemas/ids/7?subject={subject}"] = (200, answers["int"].encode())
        inner = json.dumps({"id": 9, "schema": '{"type": "fixed", "name": "F", "size": 1}'})
        server.answers["/subjects/%3A.other%3Af/versions/1"] = (200, inner.encode())
        references = [{"name": "F", "subject": "f", "version": 1}]
        outer = json.dumps({"schema": '"F"', "references": references}).encode()
        server.answers[f"/schemas/ids/8?subject={subject}"] = (200, outer)
        schema = _schema(f"confluent:{server.url}#:.other:orders")
        assert _first_row(schema, frame(7) + b"\2") == {"__value__": [1]}
        assert server.paths[-1] == f"/schemas/ids/7?subject={subject}"
        assert schema.registry is not None
        referring = schema.registry.schema(8)
        assert referring is not None
        assert '"fixed"' in referring.data

    def test_odd_names_of_subjects(self, server: RegistryServer) -> None:
        """Names are encoded, so that they lead nowhere else."""
        name = "persistent://t/n/x ü?-value"
        path = "/subjects/persistent%3A%2F%2Ft%2Fn%2Fx%20%C3%BC%3F-value/versions/latest"
        server.answers[path] = server.answers[f"/subjects/{_EVENTS}/versions/latest"]
        assert _schema(f"confluent:{server.url}#{name}").reader.type == "JSON"

    def test_only_reading(self, saved: Path, tmp_path: Path) -> None:
        """Nothing is written or replayed by schemas of a registry."""
        url = _write(tmp_path / "bucket", b"x")
        place = f"confluent:{saved}#{_ORDERS}"
        with pytest.raises(OptionError, match="cannot be written with schemas of a registry"):
            write_messages(url, "other", pa.table({"id": [1]}), schema=place)
        with pytest.raises(OptionError, match="cannot be replayed"):
            replay_topic(url, "topic", to="pulsar://127.0.0.1:1", schema=place)


class TestFailures:
    """A registry is another server, and its answers are anyone's bytes."""

    def test_unknown_ids(self, server: RegistryServer, tmp_path: Path) -> None:
        """An unknown id names object, ledger and entry; in salvage it is counted."""
        good = recorded_messages(_ORDERS)[0].payload
        url = _write(tmp_path, good, frame(999) + b"x", good)
        place = f"confluent:{server.url}#{_ORDERS}"

        with pytest.raises(UnknownSchemaVersionError, match="schema id 999 is unknown to") as error:
            open_topic(url, "topic", schema=place).to_table()
        assert error.value.object_key
        assert (error.value.ledger_id, error.value.entry_id) != (None, None)
        salvaged = open_topic(url, "topic", schema=place, on_corruption="salvage")
        with pytest.warns(IncompleteReadWarning, match=r"1 × value lost: UnknownSchemaVersion"):
            assert [each is None for each in salvaged.to_table()["id"].to_pylist()] == [0, 1, 0]

    def test_payloads_without_an_id(self, server: RegistryServer, tmp_path: Path) -> None:
        """They are not read as bytes."""
        url = _write(tmp_path, b'{"id": 1}')
        dataset = open_topic(url, "topic", schema=f"confluent:{server.url}#{_ORDERS}")
        with pytest.raises(PayloadDecodeError, match="starts with 0x7b, not with 0"):
            dataset.to_table()

    def test_no_endless_lookups(
        self, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Damaged payloads cannot make a read send any number of requests."""
        monkeypatch.setattr(sources, "_MAX_UNKNOWN_IDS", 3)
        api = RestApi(server.url, {})
        assert [api.by_id(each) for each in (-1, 901, 901, 902, 903, 904)] == [None] * 6
        assert server.paths == [f"/schemas/ids/{each}" for each in (901, 902, 903)]
        assert api.by_id(1) is None
        assert RestApi(server.url, {}).by_id(1) is not None

    def test_a_registry_that_fails(self, server: RegistryServer, tmp_path: Path) -> None:
        """It ends the read, in salvage too: the values are not lost."""
        url = _write(tmp_path, recorded_messages(_ORDERS)[0].payload)
        place = f"confluent:{server.url}#{_ORDERS}"
        dataset = open_topic(url, "topic", schema=place, on_corruption="salvage")
        server.answers = dict.fromkeys(server.answers, (403, b"no"))
        with pytest.raises(StorageError, match="HTTP 403"):
            dataset.to_table()

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[]",
            b"5",
            b"<html>",
            b'{"schema": 5}',
            b'{"schema": "{"}',
            b'{"schema": "\\ud800"}',
            b'{"schema": "{}", "schemaType": "XML"}',
            b'{"schema": "{}", "schemaType": 5}',
            b'{"schema": "{}", "id": true}',
            b'{"schema": "{}", "id": 99999999999}',
            b'{"schema": "\\"long\\"", "references": 5}',
            b'{"schema": "\\"long\\"", "references": [5]}',
            b'{"schema": "\\"long\\"", "references": [{"name": "a", "subject": "b"}]}',
            b'{"schema": "\\"long\\"", "references": [{"name":"a","subject":"b","version":1}]}',
            b'{"schema": "x", "schemaType": "PROTOBUF"}',
            b'{"schema": "", "schemaType": "PROTOBUF"}',
            b'{"schema": "import \\"missing.proto\\"; message M {}", "schemaType": "PROTOBUF"}',
            b'{"schema": "message M { Missing x = 1; }", "schemaType": "PROTOBUF"}',
            b"[" * 100_000,
        ],
    )
    def test_malformed_answers(self, server: RegistryServer, body: bytes) -> None:
        """They are refused when a topic is opened, and later lose the value."""
        schema = _schema(f"confluent:{server.url}#{_ORDERS}")
        server.answers["/schemas/ids/77"] = (200, body)
        server.answers["/subjects/odd/versions/latest"] = (200, body)

        with pytest.raises(SchemaError, match=r"77.*ledger 1, entry 0"):
            _first_row(schema, frame(77) + b"x")
        with pytest.raises((OptionError, SchemaError)):
            _first_row(_schema(f"confluent:{server.url}#odd"), frame(77) + b"x")

    def test_too_many_values(self, server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """The advice to name fewer namespaces is for Pulsar's admin API only."""
        monkeypatch.setattr(admin_connection, "MAX_ANSWER_VALUES", 3)
        with pytest.raises(OptionError, match=r"values; 3 are allowed$"):
            _schema(f"confluent:{server.url}#{_ORDERS}")

    @pytest.mark.parametrize("body", [b"", b"{}", b"[5]", b"{"])
    def test_malformed_lists(self, server: RegistryServer, body: bytes) -> None:
        """Lists of subjects and versions are checked too."""
        server.answers["/subjects"] = (200, body)
        server.answers[f"/subjects/{_ORDERS}/versions"] = (200, body.replace(b"5", b"true"))
        with pytest.raises(OptionError):
            _schema(f"confluent:{server.url}")
        with pytest.raises(SchemaError):
            saved_answers(RestApi(server.url, {}), _ORDERS)

    def test_ids_of_two_schemas(self, tmp_path: Path) -> None:
        """Ids are unique in a context of a registry only: a value must not be read by another."""
        answers = [
            {"subject": subject, "version": 1, "id": 7, "schema": f'"{kind}"'}
            for subject, kind in (("a", "int"), (":.other:b", "long"), ("c", "int"))
        ]
        (tmp_path / "registry.json").write_text(json.dumps(answers))
        schema = _schema(f"confluent:{tmp_path}#a")
        with pytest.raises(SchemaError, match=r"id 7: two schemas"):
            _first_row(schema, frame(7) + b"\2")
        (tmp_path / "registry.json").write_text(json.dumps([answers[0], answers[2]]))
        assert _first_row(_schema(f"confluent:{tmp_path}#a"), frame(7) + b"\2") == {
            "__value__": [1]
        }

    def test_names_that_are_no_ids(self, tmp_path: Path) -> None:
        """A file whose name is a longer number has no id, and not the start of it."""
        (tmp_path / "12345678901.json").write_text('{"schema": "\\"int\\""}')
        source = SavedAnswers.read(str(tmp_path), None)
        assert source.by_id(1234567890) is None

    @pytest.mark.parametrize("content", ["", "[]", "{}", '[{"schema": 5}]', "{"])
    def test_malformed_files(self, tmp_path: Path, content: str) -> None:
        """A file without answers is refused."""
        (tmp_path / "registry.json").write_text(content)
        with pytest.raises(OptionError):
            _schema(f"confluent:{tmp_path}#x")


class TestCredentials:
    """They go to the registry, and are shown nowhere."""

    @pytest.mark.parametrize(
        ("options", "header"),
        [
            ({"username": "me", "password": _PASSWORD}, _BASIC),
            ({"token": "t0ken-text"}, "Bearer t0ken-text"),
        ],
    )
    def test_credentials(self, tmp_path: Path, options: dict[str, str], header: str) -> None:
        """Basic authentication and tokens."""
        with running_registry(authorization=header) as server:
            place = f"confluent:{server.url}#{_ORDERS}"
            assert _schema(place, schema_options=options).reader.type == "AVRO"
            wrong = {name: f"{value}-wrong" for name, value in options.items()}
            url = _write(tmp_path, b"x")
            with pytest.raises(StorageError, match="HTTP 401") as error:
                open_topic(url, "topic", schema=place, schema_options=wrong)
            secrets = [f"{_PASSWORD}-wrong", "t0ken-text-wrong"]
            secrets.append(base64.b64encode(f"me-wrong:{secrets[0]}".encode()).decode())
            shown = f"{error.value}{error.value!r}{TopicRequest(schema_options=wrong)!r}"
            assert not any(each in shown for each in secrets)

    def test_long_tokens(self) -> None:
        """A server that quotes a token longer than the reason that is shown reveals none of it."""
        token = "s3cret." * 100
        with running_registry(authorization="another") as server:
            with pytest.raises(StorageError, match="HTTP 401") as error:
                _schema(f"confluent:{server.url}#a", schema_options={"token": token})
            assert "s3cret" not in str(error.value)

    def test_redirects_to_another_host(self, tmp_path: Path) -> None:
        """Even a host with a valid certificate must not receive the credentials of the registry."""
        certificates = Certificates.make(tmp_path)
        context = certificates.server_context(asks_for_certificate=False)
        path = "/subjects/a/versions/latest"
        with running_registry(authorization=_BASIC, tls=context) as server:
            server.redirects[path] = server.url.replace("127.0.0.1", "localhost") + path
            options = {"username": "me", "password": _PASSWORD}
            with pytest.raises(StorageError, match="credentials were not sent on"):
                _schema(
                    f"confluent:{server.url}#a",
                    schema_options={**options, "ca_file": str(certificates.ca_file)},
                )
            assert server.authorizations == [_BASIC, None]

    def test_certificates(self, tmp_path: Path) -> None:
        """A registry is checked by the authority, and may ask for a certificate."""
        certificates = Certificates.make(tmp_path)
        own = {
            "cert_file": str(certificates.client_file),
            "key_file": str(certificates.client_key_file),
        }
        context = certificates.server_context(asks_for_certificate=True)
        with running_registry(tls=context) as server:
            place = f"confluent:{server.url}#{_EVENTS}"
            options = {"ca_file": str(certificates.ca_file), **own}
            assert _schema(place, schema_options=options).reader.type == "JSON"
            with pytest.raises(StorageError, match="certificate"):
                _schema(place, schema_options=own)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"username": "me"}, "need each other"),
            ({"username": "me", "password": "x", "token": "t"}, "both"),
            ({"username": "a:b", "password": "x"}, "colon"),
            ({"user": "me"}, "unknown schema option 'user'"),
            ({"timeout_s": "0"}, "above 0"),
            ({"ca_file": "x"}, "not an https URL"),
        ],
    )
    def test_options_that_are_refused(
        self, server: RegistryServer, options: dict[str, object], reason: str
    ) -> None:
        """Each is checked before a request."""
        with pytest.raises(OptionError, match=reason):
            _schema(f"confluent:{server.url}#{_ORDERS}", schema_options=options)
        assert server.paths == []

    def test_options_without_a_registry(self, tmp_path: Path) -> None:
        """They would do nothing."""
        with pytest.raises(OptionError, match="need a registry"):
            open_topic(_write(tmp_path, b"x"), "topic", schema_options={"token": "t"})


class TestEngines:
    """Every interface takes the same values."""

    def test_other_processes(self, server: RegistryServer) -> None:
        """A schema with its registry is a value that processes send to each other."""
        schema = _schema(f"confluent:{server.url}#{_ORDERS}", schema_options={"token": "t0ken"})
        again = pickle.loads(pickle.dumps(schema))
        assert again == schema
        assert hash(again) == hash(schema)
        assert again != _schema(f"confluent:{server.url}#{_ORDERS}")
        assert "t0ken" not in repr(schema)
        assert _first_row(again, recorded_messages(_ORDERS)[0].payload)["amount"] == [2.5]

    def test_duckdb(self, server: RegistryServer, saved: Path, tmp_path: Path) -> None:
        """In a statement; registered credentials stay with the registered registry."""
        url = _write(tmp_path / "bucket", *(each.payload for each in recorded_messages(_ORDERS)))
        place = f"confluent:{server.url}#{_ORDERS}"
        server.authorization = _BASIC
        options = {"username": "me", "password": _PASSWORD}
        connection = duckdb.connect()
        register_duckdb(connection, url=url, schema=place, schema_options=options)
        query = "SELECT sum(amount) FROM read_pulsar('topic'"
        assert connection.sql(f"{query})").fetchall() == [(13.0,)]
        file = f"schema := 'confluent:{saved}#{_ORDERS}'"
        assert connection.sql(f"{query}, {file})").fetchall() == [(13.0,)]
        with running_registry() as other:
            with pytest.raises(Exception, match="has no subject 'none'"):
                connection.sql(f"{query}, schema := 'confluent:{other.url}#none')").fetchall()
            other.authorization = "nothing"
            with pytest.raises(Exception, match="401") as error:
                connection.sql(f"{query}, schema := 'confluent:{other.url}#x')").fetchall()
            assert _BASIC not in str(error.value)
            assert "no None" in str(error.value)

    def test_command_line(self, server: RegistryServer, tmp_path: Path) -> None:
        """A registry is saved, and takes the place of the live one."""
        server.authorization = _BASIC
        url = _write(tmp_path / "bucket", *(each.payload for each in recorded_messages(_ORDERS)))
        place, file = f"confluent:{server.url}#{_ORDERS}", str(tmp_path / "new" / "saved.json")
        access = ("--schema-option", "username=me", "--schema-option", f"password={_PASSWORD}")

        said = run("schema", "save", place, "--to", file, *access).stdout

        assert said == f"4 schemas written to {file}\n"
        for schema, more in ((place, access), (f"confluent:{file}#{_ORDERS}", ())):
            rows = lines_of("head", url, "topic", "--schema", schema, *more, "--columns", "id,note")
            assert [each["note"] for each in rows] == [row["note"] for row in _expected(_ORDERS)]
        secret_url = server.url.replace("//", f"//me:{_PASSWORD}@")
        refused = run("schema", "save", secret_url, "--to", file, ends=USAGE)
        assert "write confluent: before its URL" in refused.stderr
        assert _PASSWORD not in refused.stderr

    def test_saved_schemas_are_counted(self, tmp_path: Path) -> None:
        """A schema whose text has the name of a field of the answer is one schema."""
        text = json.dumps({"type": "enum", "name": "schemaType", "symbols": ["schemaType"]})
        answer = {"subject": "a", "version": 1, "id": 1, "schema": text}
        file = tmp_path / "registry.json"
        file.write_text(json.dumps(answer))
        said = run("schema", "save", f"confluent:{file}", "--to", str(tmp_path / "to.json")).stdout
        assert said.startswith("1 schema written")


_WORDS: Final = st.sampled_from((
    "type", "name", "namespace", "fields", "items", "values", "symbols", "size", "record", "enum",
    "array", "map", "fixed", "string", "long", "null", "object", "integer", "properties", "$ref",
    "#", "#/properties/a", "oneOf", "anyOf", "allOf", "additionalProperties", "a", "b.c", "ref",
    "id", "",
))  # fmt: skip
_JSON: Final = st.recursive(
    st.one_of(_WORDS, st.none(), st.booleans(), st.integers(-2, 5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=4)
    ),
    max_leaves=25,
)
_TOKENS: Final = st.sampled_from((
    "message", "M", "{", "}", ";", "=", "1", "2", "int32", "repeated", "optional", "oneof", "map<",
    ",", ">", "enum", "E", "syntax", '"proto3"', "import", '"ref"', "package", "p.q", "option",
    "[", "]", "(", ")", "group", "extend", "reserved", "//", "/*", "M", "x", "-",
))  # fmt: skip


@given(
    definition=_JSON,
    referenced=_JSON,
    tokens=st.lists(_TOKENS, max_size=30),
    kind=st.sampled_from(("AVRO", "JSON", "PROTOBUF")),
)
def test_random_definitions(
    definition: object, referenced: object, tokens: list[str], kind: str
) -> None:
    """Whatever a registry returns as a definition has columns, or is an error of ours."""
    is_protobuf = kind == "PROTOBUF"
    text = " ".join(tokens) if is_protobuf else json.dumps(definition)
    other = RegisteredSchema(kind, "message R {}" if is_protobuf else json.dumps(referenced))
    source = SavedAnswers("memory", [replace(other, subject="ref", version=1, schema_id=2)])
    registered = RegisteredSchema(kind, text, (Reference("ref", "ref", 1),))
    with suppress(SchemaError):
        assert ValueColumns(TopicSchema(schema_info(registered, source))).fields


class TestReferences:
    """Schemas that refer to others are one schema afterwards."""

    @staticmethod
    def _info(kind: str, text: str, **referenced: str) -> Any:  # noqa: ANN401
        others = [
            RegisteredSchema(kind, other, (), n, name, 1)
            for n, (name, other) in enumerate(referenced.items())
        ]
        references = tuple(Reference(name, name, 1) for name in referenced)
        source = SavedAnswers("memory", others)
        return schema_info(RegisteredSchema(kind, text, references), source)

    def test_avro(self) -> None:
        """A type is defined where it is first used, whatever the namespaces around it."""
        inner = {"type": "record", "name": "z.In", "fields": [
            {"name": "k", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "next", "type": ["null", "In"]},
        ]}  # fmt: skip
        outer = {"type": "record", "name": "Out", "namespace": "x.y", "fields": [
            {"name": "a", "type": ["null", "z.In"]},
            {"name": "b", "type": {"type": "map", "values": "z.In"}},
            {"name": "c", "type": "z.Kind"},
            {"name": "d", "type": {"type": "array", "items": "other.Far"}},
            {"name": "e", "type": "Own"},
        ]}  # fmt: skip
        own = {"type": "fixed", "name": "Own", "namespace": "x.y", "size": 2}
        far = {"type": "record", "name": "Far", "namespace": "other", "fields": [
            {"name": "own", "type": "x.y.Own"}, {"name": "in", "type": ["null", "z.In"]},
        ]}  # fmt: skip
        info = self._info(
            "AVRO", json.dumps(outer),
            In=json.dumps(inner), Own=json.dumps(own), Far=json.dumps(far),
        )  # fmt: skip
        schema = fastavro.parse_schema(json.loads(info.data))
        datum = {
            "a": {"k": "B", "next": None}, "b": {"x": {"k": "A", "next": None}}, "c": "B",
            "d": [{"own": b"ab", "in": None}], "e": b"cd",
        }  # fmt: skip
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, datum)

        topic = TopicSchema(info, registry=IdsInMemory(((1, info),)))
        found = _first_row(topic, frame(1) + stream.getvalue())

        assert found["c"] == ["B"]
        assert found["a"][0]["k"] == "B"
        assert found["e"] == [b"cd"]
        assert found["d"][0][0]["own"] == b"ab"

    def test_protobuf(self) -> None:
        """Imports are files of the set; Confluent's own options need none."""
        text = 'import public "a/b.proto"; import "confluent/meta.proto"; message M { t.B b = 1; }'
        info = self._info("PROTOBUF", text, **{"a/b.proto": "package t; message B {}"})
        assert info.type == "PROTOBUF_NATIVE"
        encoded = info.data
        assert "a/b.proto" in base64.b64decode(json.loads(encoded)["fileDescriptorSet"]).decode(
            "latin-1"
        )

    def test_serialized_files(self) -> None:
        """Some clients register a serialized descriptor, which is no text of a file."""
        file = parse_proto("package t; message M { optional int32 x = 1; }", "any")
        text = base64.b64encode(file.SerializeToString()).decode()
        info = self._info("PROTOBUF", text)
        assert json.loads(info.data)["rootMessageTypeName"] == "t.M"

    @pytest.mark.parametrize(
        ("kind", "text"), [("AVRO", '"missing.Type"'), ("PROTOBUF", "message M { Other o = 1; }")]
    )
    def test_missing_references(self, kind: str, text: str) -> None:
        """The error names what is missing."""
        registered = RegisteredSchema(kind, text, (Reference("ref", "subject", 3),))
        with pytest.raises(SchemaError, match=r"'ref', version 3 of 'subject'"):
            schema_info(registered, SavedAnswers("memory", []))

    @pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
    def test_long_references(self, kind: str) -> None:
        """All schemas that one needs are together as long as one may be."""
        text = f'"{"x" * (9 << 20)}"' if kind == "AVRO" else "/*" + "x" * (9 << 20) + "*/"
        parts = [RegisteredSchema(kind, text, (), n, f"part-{n}", 1) for n in range(2)]
        references = tuple(Reference(f"n{n}", f"part-{n}", 1) for n in range(2))
        whole = RegisteredSchema(kind, '"n0"', references)
        with pytest.raises(SchemaError, match="together longer than"):
            schema_info(whole, SavedAnswers("memory", parts))

    def test_saved_answers_are_as_long_as_a_file_may_be(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """References that never end, or too many schemas, make no file that cannot be read."""

        class Endless(SavedAnswers):
            def version(self, subject: str, version: int | None) -> RegisteredSchema:
                number = version or 1
                references = (Reference("next", subject, number + 1),)
                return RegisteredSchema("AVRO", '"int"', references, number, subject, number)

            def versions(self, subject: str) -> list[int]:
                del subject
                return [1]

        monkeypatch.setattr(registry, "MAX_SOURCE_BYTES", 10_000)
        with pytest.raises(OptionError, match="longer than 10000 bytes: name a subject"):
            saved_answers(Endless("memory", []), "a")

    def test_endless_references(self) -> None:
        """Schemas that refer to each other end."""
        one = RegisteredSchema("AVRO", '"b"', (Reference("b", "b", 1),), 1, "a", 1)
        two = RegisteredSchema("AVRO", '"a"', (Reference("a", "a", 1),), 2, "b", 1)
        source = SavedAnswers("memory", [one, two])
        assert schema_info(one, source).data == '"b"'
        assert Registry(source).schema(1) is not None
        assert len(json.loads(saved_answers(source))) == 2


def test_external_keys_and_values_stay_bytes(tmp_path: Path) -> None:
    """A KEY_VALUE of external parts is opened, and the warning says where its schemas are."""
    url = _write(tmp_path, b"x")
    schema = {
        "type": "KEY_VALUE",
        "data": "",
        "properties": {
            "key.schema.type": "STRING",
            "value.schema.type": "EXTERNAL",
            "kv.encoding.type": "SEPARATED",
        },
    }
    with pytest.warns(UndecodedValuesWarning, match=r"another registry.*confluent:URL#SUBJECT"):
        dataset = open_topic(url, "topic", schema=schema)
    assert dataset.to_table(columns=["__value__"])["__value__"].to_pylist() == [b"x"]
