"""Private keys in all the forms in which a user may give them, none of which is ever shown."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, Final

import pytest

from arrow_io.errors import OptionError, PulsarOffloadError
from arrow_io.messages.encryption import DecryptionKeys
from connector.inputs import decryption_keys
from connector.inputs.decryption_keys import MAX_KEY_FILE_BYTES, read_decryption_keys
from tests.support.encryption import KEY_FOLDER, key_pair
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden

RSA_FILE: Final = KEY_FOLDER / "client-rsa-priv.pem"
PEM: Final = key_pair("P-256").pem()
OTHER_PEM: Final = key_pair("P-384").pem()
SECRET: Final = PEM.decode().splitlines()[1]
ENCRYPTED: Final = golden_topic("encrypted")


def _shown(error: pytest.ExceptionInfo[BaseException]) -> str:
    """All that a traceback prints of an error and of those behind it."""
    return str(error.getrepr(chain=True, style="native"))


@pytest.mark.parametrize(
    "given",
    [
        RSA_FILE.read_text("utf-8"),
        RSA_FILE.read_bytes(),
        "some words before\n" + RSA_FILE.read_text("utf-8"),
        str(RSA_FILE),
        RSA_FILE,
        os.path.relpath(RSA_FILE),
        KEY_FOLDER,
        str(KEY_FOLDER),
        {"client-rsa": str(RSA_FILE)},
        {"client-rsa": RSA_FILE, "client-ec": KEY_FOLDER / "client-ec-priv.pem"},
        {"client-rsa": RSA_FILE.read_text("utf-8")},
        {"client-rsa": RSA_FILE.read_bytes()},
        {"client-rsa": RSA_FILE.read_bytes()}.get,
        {"client-rsa": RSA_FILE.read_text("utf-8")}.get,
        read_decryption_keys(KEY_FOLDER),
    ],
    ids=[
        "text", "bytes", "words", "file", "path", "relative", "folder", "folder text", "mapping",
        "paths", "mapping of text", "mapping of bytes", "callable", "callable of text", "read",
    ],
)  # fmt: skip
def test_every_form_opens_the_topic(given: Any) -> None:  # noqa: ANN401
    """Text, file, folder, mapping and callable give the same rows."""
    table = open_golden(ENCRYPTED, decryption_keys=given).to_table(columns=["__value__"])

    assert table.num_rows == ENCRYPTED.message_count


def test_no_keys() -> None:
    """None, and a mapping without names, are no keys."""
    assert not read_decryption_keys(None)
    assert not read_decryption_keys({})


@pytest.mark.parametrize(
    "file_name",
    ["mine", "mine.pem", "mine.key", "mine-priv.pem", "mine-private.key", "mine-private"],
)
def test_names_of_files_are_names_of_keys(tmp_path: Path, file_name: str) -> None:
    """The file of a key may be named as the key is, or with the usual endings."""
    (tmp_path / file_name).write_bytes(PEM)

    keys = read_decryption_keys(tmp_path)

    assert keys.private_key("mine") is not None
    assert keys.private_key(file_name) is not None
    assert keys.private_key("min") is None
    assert keys.private_key("") is None


def test_folder_passes_over_what_is_no_private_key(tmp_path: Path) -> None:
    """Public keys, other files, long ones and folders do not stand in the way."""
    (tmp_path / "mine.pem").write_bytes(PEM)
    (tmp_path / "mine-pub.pem").write_bytes(key_pair("P-256").public_pem())
    (tmp_path / "README").write_text("words")
    (tmp_path / "long.pem").write_bytes(PEM + b" " * MAX_KEY_FILE_BYTES)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "deep.pem").write_bytes(PEM)

    assert read_decryption_keys(tmp_path) == DecryptionKeys({"mine.pem": PEM, "mine": PEM})


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    """The same key may lie in two files of one name; two keys may not."""
    (tmp_path / "mine.pem").write_bytes(PEM)
    (tmp_path / "mine.key").write_bytes(PEM)
    assert read_decryption_keys(tmp_path).private_key("mine") is not None
    (tmp_path / "mine.key").write_bytes(OTHER_PEM)

    with pytest.raises(OptionError, match=r"two files of .* hold different keys named mine"):
        read_decryption_keys(tmp_path)


def test_folder_without_keys(tmp_path: Path) -> None:
    """A folder in which no private key lies is a wrong folder."""
    with pytest.raises(OptionError, match="holds a private key in PEM form"):
        read_decryption_keys(tmp_path)


def test_bad_keys_of_a_folder_are_named(tmp_path: Path) -> None:
    """A key with a passphrase, or cut, is told by the name of its file."""
    (tmp_path / "mine.pem").write_bytes(key_pair("P-256").pem(b"passphrase"))
    with pytest.raises(OptionError, match=r"key mine\.pem: it has a passphrase"):
        read_decryption_keys(tmp_path)

    (tmp_path / "mine.pem").write_bytes(PEM[:-70] + PEM[-30:])
    with pytest.raises(OptionError, match=r"key mine\.pem: it is not a private key"):
        read_decryption_keys(tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "no/such/file.pem",
        SECRET,
        SECRET * 100,
        "nul\0" + SECRET,
        PEM.decode().replace("BEGIN", "BEGUN"),
        PEM.decode()[:-40],
        PEM[5:],
        {"mine": SECRET},
        {"mine": None},
        {"mine": {"deeper": SECRET}},
        {"mine": "."},
        {PEM.decode(): "mine"},
        {"": PEM},
        {5: PEM},
        5,
        [PEM.decode()],
    ],
    ids=[
        "empty", "no file", "line", "long", "nul", "other words", "cut", "start cut",
        "mapping to a line", "mapping to None", "deeper mapping", "mapping to a folder",
        "mapping from text", "no name", "name of a number", "number", "list",
    ],
)  # fmt: skip
def test_what_is_no_key_is_not_shown(given: Any) -> None:  # noqa: ANN401
    """No error shows what was given, for it may be a key in a form that is not known."""
    with pytest.raises(OptionError, match="decryption_keys") as caught:
        open_golden(ENCRYPTED, decryption_keys=given)

    assert SECRET not in _shown(caught)
    assert SECRET[:20] not in _shown(caught)


@pytest.mark.parametrize(
    "gives",
    [5, "", SECRET, [PEM], PEM[5:], Path("x")],
    ids=["number", "empty", "line", "list", "start cut", "path"],
)
def test_callable_that_gives_no_key(gives: object) -> None:
    """What a callable gives is checked when it is asked, and not shown."""
    dataset = open_golden(ENCRYPTED, decryption_keys=lambda _: gives)

    with pytest.raises(OptionError, match=r"decryption_keys.*client-rsa") as caught:
        dataset.to_table()

    assert SECRET[:20] not in _shown(caught)


def test_callable_that_has_no_key() -> None:
    """None says that there is no key of the name."""
    dataset = open_golden(ENCRYPTED, decryption_keys=lambda _: None)

    with pytest.raises(PulsarOffloadError, match=r"with the keys: client-rsa; .*<looked up>"):
        dataset.to_table()


def test_nothing_of_a_scan_shows_keys() -> None:
    """Options, scans and tasks are printed without keys; pickled, they bring them along."""
    dataset = open_golden(ENCRYPTED, decryption_keys={"client-rsa": RSA_FILE, "mine": PEM})
    lines = [*PEM.decode().splitlines()[1:-1], *RSA_FILE.read_text("utf-8").splitlines()[1:-1]]
    tasks = pickle.loads(pickle.dumps(dataset.scan.plan()))
    shown = [repr(each) for each in (dataset, dataset.scan, dataset.scan.options, tasks, *tasks)]
    shown += [str(dataset.scan.options), repr(dataset.scanner()), repr(dataset.metrics)]

    assert "decryption_keys=DecryptionKeys(client-rsa, mine)" in shown[1]
    for text in shown:
        assert not [line for line in lines if line in text]
    assert tasks[0].read.options.decryption_keys == dataset.scan.options.decryption_keys


def test_files_are_read_once(tmp_path: Path) -> None:
    """The file may be gone when the topic is read."""
    file = tmp_path / "key.pem"
    file.write_bytes(RSA_FILE.read_bytes())
    dataset = open_golden(ENCRYPTED, decryption_keys=file)
    file.unlink()

    assert dataset.to_table().num_rows == ENCRYPTED.message_count


def test_long_files_are_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is as long as some files are."""
    monkeypatch.setattr(decryption_keys, "MAX_KEY_FILE_BYTES", len(PEM) - 1)
    file = tmp_path / "key.pem"
    file.write_bytes(PEM)

    with pytest.raises(OptionError, match="nor a readable file of at most "):
        read_decryption_keys(file)
