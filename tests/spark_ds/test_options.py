"""Options of the Spark source: strings → one frozen value."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import OptionError
from connector.inputs.decryption_keys import read_decryption_keys
from spark_ds.options import SourceOptions
from tests.support.encryption import KEY_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

LEAST = {"url": "s3://bucket/prefix", "topic": "orders"}
RSA_FILE = KEY_FOLDER / "client-rsa-priv.pem"
PEM = RSA_FILE.read_text("utf-8")


def parse(**options: str) -> SourceOptions:
    """The options, with those that must be there."""
    return SourceOptions.parse({**LEAST, **options})


def storage(**options: str) -> object:
    """The storage options that some options amount to; `__` stands for a dot."""
    return parse(
        **{name.replace("__", "."): text for name, text in options.items()}
    ).location.storage_options


def test_least_options() -> None:
    """A URL and a topic are enough; all else is as `open_topic` has it, or as Spark needs it."""
    options = SourceOptions.parse(LEAST)

    assert options.location.url == "s3://bucket/prefix"
    assert options.topics == ("orders",)
    assert options.request.columns is None
    assert options.request.schema is None
    assert options.request.time_unit == "us"
    assert options.request.start is None
    assert options.request.on_corruption == "raise"
    assert options.request.verify_checksums is True
    assert options.task_bytes is None


def test_several_topics() -> None:
    """Both `topic` and `topics` take names and globs, separated by commas."""
    assert parse(topic="a, persistent://t/n/b,c-*").topics == ("a", "persistent://t/n/b", "c-*")
    assert SourceOptions.parse({"url": "x", "topics": "a,b"}).topics == ("a", "b")


@pytest.mark.parametrize(
    ("pattern", "full"),
    [
        ("orders-.*", "persistent://public/default/orders-.*"),
        ("t/n/o.*", "persistent://t/n/o.*"),
        ("persistent://t/n/o.*", "persistent://t/n/o.*"),
    ],
)
def test_topics_pattern(pattern: str, full: str) -> None:
    """A regular expression is completed to one of full names, as pulsar-spark does."""
    topics = SourceOptions.parse({"url": "x", "topicsPattern": pattern}).topics

    assert topics == re.compile(full)


def test_other_spellings_of_bounds() -> None:
    """Offsets and times in ms are the same bounds as `start` and `end`."""
    offsets = parse(startingOffsets="earliest", endingOffsets="7:8:-1:2")
    times = parse(startingTime="0", endingTime="1700000000123")

    assert (offsets.request.start, offsets.request.end) == (None, (7, 8, 2))
    assert parse(startingOffsets="(3,4)").request.start == (3, 4, 0)
    assert parse(endingOffsets="LATEST").request.end is None
    assert times.request.start == datetime(1970, 1, 1, tzinfo=UTC)
    assert times.request.end == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def test_storage_options_are_typed_carefully() -> None:
    """Flags, numbers and JSON are read as such, except where a name says that text is due."""
    assert storage(
        storage__anon="true",
        storage__max_concurrency="8",
        storage__key="12345678",
        storage__secret="true",
        storage__token='{"type": "service_account"}',
        storage__account_name="007",
        storage__endpoint_url="http://127.0.0.1:9000",
        storage__client_kwargs__region_name="eu-west-1",
        storage__client_kwargs__verify="false",
        storage__config_kwargs__retries='{"max_attempts": 3}',
        storage__version="1.10.0",
    ) == {
        "anon": True,
        "max_concurrency": 8,
        "key": "12345678",
        "secret": "true",
        "token": {"type": "service_account"},
        "account_name": "007",
        "endpoint_url": "http://127.0.0.1:9000",
        "client_kwargs": {"region_name": "eu-west-1", "verify": False},
        "config_kwargs": {"retries": {"max_attempts": 3}},
        "version": "1.10.0",
    }


def test_spellings_of_storage_options_add_up() -> None:
    """One JSON object, dotted names and masked names make one set of storage options."""
    assert storage(
        storage_options='{"client_kwargs": {"region_name": "r"}, "S3_Case": 1}',
        storage__client_kwargs__verify="false",
        secret__key="shhh",
    ) == {"client_kwargs": {"region_name": "r", "verify": False}, "S3_Case": 1, "key": "shhh"}


@pytest.mark.parametrize("name", ["metadata_options", "secret.metadata_options"])
def test_spellings_of_metadata_options_add_up(name: str) -> None:
    """One JSON object, plain or masked, and names of their own make one set of options."""
    options = parse(
        metadata="https://broker:8443",
        **{name: '{"timeout_s": 5, "token": "MARKER"}', "SECRET.Metadata.key_file": "key.pem"},
    )

    assert options.request.metadata_options == {
        "timeout_s": 5,
        "token": "MARKER",
        "key_file": "key.pem",
    }
    assert options.location.storage_options == {}
    assert "MARKER" not in repr(options)


def test_messages_are_a_table() -> None:
    """What is read by default can be said, with all the options that it takes."""
    assert parse(table="messages", start="(1,2)") == parse(start="(1,2)")
    with pytest.raises(OptionError, match="option topic is missing"):
        SourceOptions.parse({"url": "x", "table": "messages"})


_ENDPOINT = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("keys", "url", "storage_options"),
    [
        ({"Driver": "aws-s3", "ServiceEndpoint": _ENDPOINT}, "s3://b", {"endpoint_url": _ENDPOINT}),
        ({"Region": "eu-1"}, "s3://b", {"client_kwargs": {"region_name": "eu-1"}}),
        ({"Driver": "S3", "Region": ""}, "s3://b", {}),
        ({"Driver": "google-cloud-storage", "Region": "europe-west3"}, "gs://b", {}),
        ({"Driver": "azureblob"}, "abfs://b", {}),
    ],
)
def test_keys_of_broker_conf(
    keys: dict[str, str], url: str, storage_options: dict[str, object]
) -> None:
    """The keys by which a broker is told where to offload give URL and storage options."""
    options = {f"managedLedgerOffload{key}": text for key, text in ({"Bucket": "b"} | keys).items()}
    for given in (options, {key.lower(): text for key, text in options.items()}):
        location = SourceOptions.parse({"topic": "orders", **given}).location
        assert (location.url, location.storage_options) == (url, storage_options)


def test_a_url_takes_the_region_of_a_broker() -> None:
    """It stands for the bucket and the driver."""
    location = parse(managedLedgerOffloadRegion="eu-1").location
    assert location.url == LEAST["url"]
    assert location.storage_options == {"client_kwargs": {"region_name": "eu-1"}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topik": "x"}, "unknown option topik, did you mean topic or topics?"),
        ({"tasksize": "1", "service.url": "x"}, "unknown option service.url"),
        ({"kafka.bootstrap.servers": "x"}, "options are url, path, storage_options"),
        ({"service.url": "x"}, "metadata.<name>, secret.<name> and secret.metadata.<name>"),
        ({"range_bytes": "1", "rangeBytes": "2"}, "given twice: as range_bytes and as rangeBytes"),
        ({"topics": "x"}, "options topic and topics mean the same"),
        ({"topicsPattern": "x"}, "options topic and topicsPattern mean the same"),
        ({"start": "(1,2)", "startingTime": "1"}, "options start and startingTime mean the same"),
        (
            {"endingOffsets": "latest", "end": "(1,2)"},
            "options endingOffsets and end mean the same",
        ),
        ({"on_corruption": "raise", "failOnDataLoss": "true"}, "mean the same"),
        ({"managedLedgerOffloadBucket": "b"}, "url and managedLedgerOffload… mean the same"),
        ({"managedLedgerOffloadDriver": "aws-s3"}, "url and managedLedgerOffload… mean the same"),
        ({"storage.a": "1", "secret.a": "2"}, "storage option a is given twice"),
        ({"storage_options": '{"a": 1}', "storage.a": "1"}, "storage option a is given twice"),
        ({"storage.a": "1", "storage.a.b": "2"}, "storage option a.b is given twice"),
        ({"storage.a..b": "1"}, "lacks a part of its name"),
        ({"storage.": "1"}, "lacks a part of its name"),
        ({"metadata.": "1"}, "metadata option '' lacks a part of its name"),
        ({"metadata.a": "1", "secret.metadata.a": "2"}, "metadata option a is given twice"),
        ({"metadata_options": '{"a": 1}', "metadata.a": "1"}, "metadata option a is given twice"),
        ({"metadata_options": "{}", "secret.metadata_options": "{}"}, "mean the same"),
        ({"metadata_options": "[1]"}, "metadata_options must be a JSON object"),
        ({"metadata.token": '{"a'}, "metadata option token looks like JSON and is not"),
        ({"table": "message"}, "table must be one of messages, topics, ledgers, blocks, objects"),
        ({"verify_checksums": "yes"}, "verify_checksums must be true or false, not 'yes'"),
        ({"time_unit": "ns"}, "time_unit must be us, not 'ns': times in Spark are in microseconds"),
        ({"task_bytes": "128m"}, "task_bytes must be a whole number, not '128m'"),
        ({"task_bytes": "0"}, "task_bytes must be at least 1, not 0"),
        ({"startingTime": "now"}, "startingTime must be a whole number"),
        ({"endingTime": str(10**18)}, "endingTime must be a time in milliseconds"),
        ({"startingOffsets": "2026-01-01"}, "startingOffsets must be earliest, latest, one"),
        ({"maxBytesPerTrigger": ""}, "maxBytesPerTrigger must be a whole number, not ''"),
        ({"maxBytesPerTrigger": "k"}, "maxBytesPerTrigger must be a whole number, not ''"),
        ({"maxBytesPerTrigger": "1x"}, "maxBytesPerTrigger must be a whole number, not '1x'"),
        ({"maxBytesPerTrigger": "0k"}, "maxBytesPerTrigger must be at least 1, not 0"),
        ({"maxLedgersPerTrigger": "-1"}, "maxLedgersPerTrigger must be at least 1, not -1"),
        ({"endingOffsets": "earliest"}, "endingOffsets must be latest, or one message id"),
        ({"endingOffsets": "2026-01-01"}, "endingOffsets must be latest, or one message id"),
        ({"endingOffsets": '{"t":[8,1]}'}, "separate offsets per topic are not supported"),
        ({"columns": "a,,b"}, "columns must be one name or several"),
        ({"columns": ""}, "columns must be one name or several"),
        ({"storage_options": "[1]"}, "storage_options must be a JSON object"),
    ],
)
def test_refused_options(options: dict[str, str], said: str) -> None:
    """What is unknown, said twice or of another form is an error that says what is allowed."""
    with pytest.raises(OptionError, match=re.escape(said)):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "orders"}, "option url is missing"),
        ({"url": "s3://bucket"}, "option topic is missing"),
        ({"url": "x", "topicsPattern": "("}, "topicsPattern must be a regular expression"),
        ({"topic": "t", "managedLedgerOffloadRegion": "r"}, "option url is missing"),
        (
            {
                "topic": "t",
                "managedLedgerOffloadBucket": "b",
                "managedLedgerOffloadDriver": "filesystem",
            },
            "managedLedgerOffloadDriver must be one of aws-s3, s3, google-cloud-storage, azureblob",
        ),
        (
            {
                "topic": "t",
                "managedLedgerOffloadBucket": "b",
                "managedLedgerOffloadDriver": "azureblob",
                "managedLedgerOffloadServiceEndpoint": "http://127.0.0.1",
            },
            "managedLedgerOffloadServiceEndpoint has no meaning for abfs://",
        ),
        (
            {"topic": "t", "path": ""},
            "option url is missing: give the URL of the objects, such as s3://",
        ),
        ({"topic": "t", "paths": '["a","b"]'}, "load() takes one path or URL, not several"),
        ({}, "use CREATE TEMPORARY VIEW"),
        ({"provider": "pulsar_offload", "option.url": "x"}, "use CREATE TEMPORARY VIEW"),
    ],
)
def test_missing_options(options: dict[str, str], said: str) -> None:
    """What must be there and is not is named, and a table's lack of options is explained."""
    with pytest.raises(OptionError, match=re.escape(said)):
        SourceOptions.parse(options)


@pytest.mark.parametrize(
    "options",
    [
        {"storage_options": '{"key": "MARKER'},
        {"storage_options": '["MARKER"]'},
        {"storage.token": '{"MARKER'},
        {"metadata.token": '{"MARKER'},
        {"secret.metadata.token": '["MARKER'},
        {"metadata_options": '{"token": "MARKER'},
        {"secret.metadata_options": '["MARKER"]'},
        {"metadata_options": '{"token": "MARKER"}', "secret.metadata.token": "MARKER"},
        {"storage.key": "MARKER", "secret.key": "MARKER"},
        {"storage.key": "MARKER", "topik": "x"},
        {"url": "s3://MARKER:MARKER@bucket"},
    ],
)
def test_errors_show_no_secret(options: dict[str, str]) -> None:
    """No value of a storage option and no credential in a URL gets into an error or its causes."""
    with pytest.raises(OptionError) as caught:
        parse(**options)

    assert "MARKER" not in str(caught.getrepr(chain=True, style="native"))


@pytest.mark.parametrize("name", ["decryption_keys", "decryptionKeys", "secret.decryption_keys"])
@pytest.mark.parametrize("path", [RSA_FILE, KEY_FOLDER], ids=["file", "folder"])
def test_decryption_keys_by_path(name: str, path: Path) -> None:
    """A file or folder is read on the driver, by an option of either name."""
    options = parse(**{name: str(path)})

    assert options.request.decryption_keys == read_decryption_keys(path)
    assert options.location.storage_options == {}


@pytest.mark.parametrize("name", ["secret.decryption_keys", "SECRET.decryptionkeys"])
def test_decryption_keys_as_text(name: str) -> None:
    """PEM text is taken where Spark masks it, with line breaks or as one line, and not shown."""
    for text in (PEM, f"  {PEM}\n", PEM.replace("\n", " ")):
        options = parse(**{name: text})
        copy = pickle.loads(pickle.dumps(options))

        assert copy.request.decryption_keys is not None
        assert copy.request.decryption_keys.private_key("any") is not None
        assert not [line for line in PEM.splitlines()[1:-1] if line in repr(copy)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decryption_keys": PEM}, "must be a path: give PEM text as secret.decryption_keys"),
        ({"secret.decryption_keys": PEM[:-60]}, "it is not a private key in PEM form"),
        ({"secret.decryption_keys": PEM[5:]}, "it is not shown"),
        ({"decryption_keys": PEM[5:]}, "it is not shown"),
        ({"decryption_keys": "no/such/file"}, "it is not shown"),
        (
            {"decryption_keys": str(RSA_FILE), "secret.decryption_keys": PEM},
            "options decryption_keys and secret.decryption_keys mean the same",
        ),
        (
            {"secret.decryptionKeys": PEM, "secret.decryption_keys": PEM},
            "option secret.decryption_keys is given twice",
        ),
    ],
)
def test_decryption_keys_that_cannot_be_used(options: dict[str, str], said: str) -> None:
    """A key in the wrong place, or none, is told without its text, in the error and its causes."""
    with pytest.raises(OptionError, match=re.escape(said)) as caught:
        parse(**options)

    shown = str(caught.getrepr(chain=True, style="native"))
    assert not [line for line in PEM.splitlines()[1:-1] if line in shown]


def test_options_show_no_secret() -> None:
    """Printed options show no values of storage options, also when they come from elsewhere."""
    options = parse(
        url="sftp://me:MARKER@host/folder", **{"storage.key": "MARKER", "secret.nested.x": "MARKER"}
    )
    copy = pickle.loads(pickle.dumps(options))

    assert copy == options
    assert copy.location.storage_options == {"key": "MARKER", "nested": {"x": "MARKER"}}
    assert "MARKER" not in repr(copy)
    assert "MARKER" not in str(copy)
