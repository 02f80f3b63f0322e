"""Encrypted topics by `read_pulsar`: keys in all the forms that SQL has, and in no message."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import duckdb
import pytest

from connector import register_duckdb
from tests.support.encryption import KEY_FOLDER, key_pair
from tests.support.golden import golden_topic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.golden import GoldenTopic

ENCRYPTED: Final = golden_topic("encrypted")
RSA_FILE: Final = KEY_FOLDER / "client-rsa-priv.pem"
RSA_PEM: Final = RSA_FILE.read_text("utf-8")
WRONG_PEM: Final = key_pair("P-256").pem().decode()
SECRETS: Final = [*RSA_PEM.splitlines()[1:-1], *WRONG_PEM.splitlines()[1:-1]]
COUNT: Final = "select count(__value__) from read_pulsar('encrypted', decryption_keys := {})"


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows where the golden topics are, and no keys."""
    with duckdb.connect() as connection:
        register_duckdb(connection, str(ENCRYPTED.objects_folder))
        yield connection


@pytest.mark.parametrize(
    "topic", [each for each in golden_topics() if "encrypted" in each.name], ids=str
)
def test_payloads_are_those_that_the_client_read(topic: GoldenTopic) -> None:
    """Each encrypted topic gives the client's payloads, in order."""
    with duckdb.connect() as con:
        register_duckdb(con, str(topic.objects_folder), decryption_keys=KEY_FOLDER)
        values = con.execute("select __value__ from read_pulsar(?)", [topic.name]).fetchall()

    hashes = [hashlib.sha256(value).hexdigest() for (value,) in values]
    assert hashes == [row["sha256"] for row in topic.messages()]


@pytest.mark.parametrize(
    ("keys", "parameter"),
    [
        (f"'{KEY_FOLDER}'", None),
        (f"'{RSA_FILE}'", None),
        ("?", RSA_PEM),
        ("MAP {'client-rsa': ?}", RSA_PEM),
        ("{'client-rsa': ?, 'other': ?}", RSA_PEM),
        (f"{{'client-rsa': '{RSA_FILE}'}}", None),
        ("?", {"client-rsa": RSA_PEM}),
    ],
    ids=["folder", "file", "text", "map", "struct", "struct of a path", "dict"],
)
def test_keys_in_sql(
    con: duckdb.DuckDBPyConnection, keys: str, parameter: str | dict[str, str] | None
) -> None:
    """A path, PEM text, a MAP and a STRUCT are taken, as constants or as parameters."""
    parameters = [parameter] * keys.count("?")

    [(count,)] = con.execute(COUNT.format(keys), parameters).fetchall()

    assert count == ENCRYPTED.message_count


@pytest.mark.parametrize(
    ("keys", "parameter", "said"),
    [
        ("?", WRONG_PEM, "DecryptionError: the data key cannot be unwrapped"),
        ("{'other': ?}", WRONG_PEM, "EncryptedPayloadError: .*have other names: other"),
        ("?", RSA_PEM[:-60], "OptionError: .*it is not a private key in PEM form"),
        ("?", RSA_PEM.replace("BEGIN", "BEGUN"), "OptionError: .*it is not shown"),
        ("?", "".join(RSA_PEM.splitlines()[1:-1]), "OptionError: .*it is not shown"),
        ("[?]", RSA_PEM, "OptionError: .*it is not shown"),
        ("{'client-rsa': [?]}", RSA_PEM, "OptionError: .*it is not shown"),
        ("MAP {?: 'client-rsa'}", RSA_PEM, "OptionError: .*a mapping from names of keys"),
        ("?, transactions := 'some'", RSA_PEM, "OptionError: .*must be one of committed, all"),
        ("5", None, "OptionError: .*it is not shown"),
    ],
    ids=[
        "wrong key", "other name", "cut", "other words", "base64", "list", "deeper", "inverted",
        "another option", "number",
    ],
)  # fmt: skip
def test_errors_show_no_key(
    con: duckdb.DuckDBPyConnection, keys: str, parameter: str | None, said: str
) -> None:
    """Whatever is wrong, the key that was given as a parameter is not in DuckDB's message."""
    with pytest.raises(duckdb.Error, match=said) as caught:
        con.execute(COUNT.format(keys), [parameter] * keys.count("?")).fetchall()

    assert not [line for line in SECRETS if line in str(caught.value)]


def test_nothing_in_duckdb_shows_a_key(con: duckdb.DuckDBPyConnection) -> None:
    """Neither a plan, nor a profile, nor the catalog of functions has it."""
    register_duckdb(con, str(ENCRYPTED.objects_folder), decryption_keys=RSA_PEM)
    sql = "select count(__value__) from read_pulsar('encrypted')"

    shown = [
        con.execute(statement).fetchall()
        for statement in (
            f"explain {sql}",
            f"explain analyze {sql}",
            "select * from duckdb_functions()",
            "select * from duckdb_settings()",
        )
    ]

    assert not [line for line in SECRETS if line in str(shown)]
