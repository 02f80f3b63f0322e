"""Payloads are decrypted by any one of their keys, and what is not authentic is an error."""

from __future__ import annotations

import pickle
import re
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core.extras import install_command
from arrow_io.errors import (
    CorruptEntryError,
    DecryptionError,
    EncryptedPayloadError,
    OptionError,
    PulsarOffloadError,
)
from arrow_io.messages import encryption
from arrow_io.messages.encryption import DecryptionKeys, PayloadDecryptor
from tests.support.encryption import KINDS, KeyPair, Sealed, key_pair, seal
from tests.support.pulsar_proto import EncryptionKeys, MessageMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAYLOAD: Final = b"a payload"
_EC: Final = key_pair("P-256", "ec")
_RSA: Final = key_pair("RSA", "rsa")
_OTHER: Final = key_pair("P-384", "other")


def _name(pair: KeyPair) -> str:
    return pair.name + " compressed" * pair.is_compressed


def _decrypt(sealed: Sealed, *, keys: DecryptionKeys | None = None) -> bytes:
    decryptor = PayloadDecryptor(keys)
    return bytes(decryptor.decrypt(memoryview(sealed.fields), memoryview(sealed.payload)))


def _secret_lines(*pairs: KeyPair) -> Iterator[str]:
    for pair in pairs:
        yield from pair.pem().decode().splitlines()[1:-1]


@given(
    kind=st.sampled_from(KINDS),
    payload=st.binary(max_size=300),
    data_key=st.sampled_from((16, 24, 32)).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
    length_tag_bytes=st.sampled_from((8, 4)),
    is_compressed=st.booleans(),
)
def test_what_is_sealed_is_opened(
    *, kind: str, payload: bytes, data_key: bytes, length_tag_bytes: int, is_compressed: bool
) -> None:
    """Every kind of key, length of data key and form of ECIES gives the payload back."""
    pair = replace(key_pair(kind), length_tag_bytes=length_tag_bytes, is_compressed=is_compressed)

    sealed = seal(payload, [pair], data_key=data_key)

    assert _decrypt(sealed, keys=pair.keys()) == payload


@pytest.mark.parametrize("pair", [_EC, replace(_EC, is_compressed=True), _RSA], ids=_name)
def test_no_byte_of_the_metadata_can_be_another(pair: KeyPair) -> None:
    """A flip in the IV, the wrapped key or around them is a typed error, or has no effect."""
    sealed = seal(_PAYLOAD, [pair])
    wrapped = MessageMetadata.FromString(sealed.fields + _required()).encryption_keys[0].value
    refused = set()

    for at in range(len(sealed.fields)):
        damaged = replace(sealed, fields=_flipped(sealed.fields, at))
        try:
            assert _decrypt(damaged, keys=pair.keys()) == _PAYLOAD
        except (DecryptionError, EncryptedPayloadError):
            refused.add(at)

    start = sealed.fields.index(wrapped)
    assert refused.issuperset(range(start, start + len(wrapped)))
    assert refused.issuperset(range(len(sealed.fields) - 12, len(sealed.fields)))


def test_no_byte_of_the_payload_can_be_another() -> None:
    """A flip in the ciphertext or its tag, and a cut anywhere, is an error that names the key."""
    sealed = seal(_PAYLOAD, [_EC])

    for at in range(len(sealed.payload)):
        for payload in (_flipped(sealed.payload, at), sealed.payload[:at]):
            with pytest.raises(DecryptionError, match="the key ec, does not authenticate"):
                _decrypt(replace(sealed, payload=payload), keys=_EC.keys())


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _required() -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    serialised: bytes = metadata.SerializeToString()
    return serialised


def test_any_one_key_is_enough() -> None:
    """Of the keys a payload is encrypted for, the first that unwraps opens it."""
    sealed = seal(_PAYLOAD, [_OTHER, _RSA, _EC])
    wrong = DecryptionKeys({"other": _RSA.pem(), "rsa": _OTHER.pem(), "ec": _EC.pem()})

    assert _decrypt(sealed, keys=_RSA.keys()) == _PAYLOAD
    assert _decrypt(sealed, keys=_EC.keys()) == _PAYLOAD
    assert _decrypt(sealed, keys=wrong) == _PAYLOAD


def test_key_for_any_name() -> None:
    """A key without a name is tried on each of the wrapped keys."""
    sealed = seal(_PAYLOAD, [_OTHER, _EC])

    assert _decrypt(sealed, keys=DecryptionKeys(for_any_name=_EC.pem())) == _PAYLOAD


def test_key_by_callable_is_asked_for_once_for_each_data_key() -> None:
    """A callable is given the name, and is not asked again for a data key that is known."""
    asked = []

    def look_up(name: str) -> bytes | None:
        asked.append(name)
        return _EC.pem() if name == "ec" else None

    decryptor = PayloadDecryptor(DecryptionKeys(look_up=look_up))
    sealed = seal(_PAYLOAD, [_OTHER, _EC])

    for _ in range(3):
        given = decryptor.decrypt(memoryview(sealed.fields), memoryview(sealed.payload))
        assert bytes(given) == _PAYLOAD
    assert asked == ["other", "ec"]


def test_known_data_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data key that was not used for longest is unwrapped anew."""
    monkeypatch.setattr(encryption, "MAX_REMEMBERED_DATA_KEYS", 2)
    asked = []

    def look_up(name: str) -> bytes:
        asked.append(name)
        return _EC.pem()

    decryptor = PayloadDecryptor(DecryptionKeys(look_up=look_up))
    first, second, third = (seal(_PAYLOAD, [_EC]) for _ in range(3))

    for sealed in (first, second, first, third, first, second):
        decryptor.decrypt(memoryview(sealed.fields), memoryview(sealed.payload))

    assert len(asked) == 4


def test_no_key_is_given() -> None:
    """Without a key of one of the names, the error says which there are, and which were given."""
    sealed = seal(_PAYLOAD, [_RSA, _EC])

    with pytest.raises(
        EncryptedPayloadError,
        match=r"keys: ec, rsa; no private key was given: pass one as decryption_keys$",
    ):
        _decrypt(sealed)
    with pytest.raises(EncryptedPayloadError, match=r"keys: ec, rsa; .* have other names: other;"):
        _decrypt(sealed, keys=_OTHER.keys())


@pytest.mark.parametrize(
    ("names", "told"), [(["rsa"], "rsa"), (["b", "a", "b"], "a, b"), ([""], ""), (["ключ"], "ключ")]
)
def test_error_names_the_keys(names: list[str], told: str) -> None:
    """Whoever has no key hears which would open the payload: each once, in order."""
    keys = [EncryptionKeys(key=name, value=b"wrapped") for name in names]
    fields = MessageMetadata(encryption_keys=keys).SerializePartialToString()

    with pytest.raises(EncryptedPayloadError) as caught:
        _decrypt(Sealed(fields, b""))

    assert caught.value.message == (
        f"the payload is encrypted, with the keys: {told}; no private key was given: pass"
        " one as decryption_keys"
    )


@pytest.mark.parametrize(
    "metadata",
    [
        b"\x6a\x03\x0a\x01\xff",  # a name that is no UTF-8
        b"\x6a\x06\x0a\x01\xff\x12\x01x\x6a\x06\x0a\x01k\x12\x01x",  # and one that is
        b"\x6a\x00",  # no name
        b"\x6a\x05\x0a",  # cut
        b"\x6b",  # a group
        b"",
        b"\x6a\x04\x0a\x00\x12\x00" * 20_000,  # more than are believed
    ],
    ids=["no UTF-8", "two", "no name", "cut", "group", "empty", "many"],
)
def test_keys_that_cannot_be_read_do_no_harm(metadata: bytes) -> None:
    """Whatever stands in place of the keys: without a key, the error is that it is encrypted."""
    with pytest.raises(EncryptedPayloadError, match=r"^the payload is encrypted, with the keys: "):
        _decrypt(Sealed(metadata, b""))


@pytest.mark.parametrize("pair", [_EC, _RSA], ids=_name)
@pytest.mark.parametrize("given", [_OTHER, key_pair("P-256", "b"), key_pair("RSA", "c")], ids=_name)
def test_wrong_key(pair: KeyPair, given: KeyPair) -> None:
    """A private key of another pair is an error that names the key, and counts as damage."""
    sealed = seal(_PAYLOAD, [pair])
    decryptor = PayloadDecryptor(DecryptionKeys(for_any_name=given.pem()))

    for _ in range(2):
        with pytest.raises(DecryptionError, match=f"with the private key {pair.name}: it is"):
            decryptor.decrypt(memoryview(sealed.fields), memoryview(sealed.payload))
    assert issubclass(DecryptionError, CorruptEntryError)


def test_only_keys_that_were_tried_are_named() -> None:
    """A name that there is no private key of has no part in what is wrong."""
    sealed = seal(_PAYLOAD, [_OTHER, _RSA, _EC])
    wrong = DecryptionKeys({"ec": _OTHER.pem(), "rsa": _EC.pem()})

    with pytest.raises(DecryptionError, match="with the private key rsa, ec: it is the wrong"):
        _decrypt(sealed, keys=wrong)


@pytest.mark.parametrize(
    "wrapped",
    [
        b"",
        b"\4",
        b"\4" + bytes(64),
        b"\4" + bytes(64 + 32 + 20),
        b"\2" + b"\xff" * 32 + bytes(32 + 20),
        b"\0" + bytes(32 + 20),
        bytes(256),
        bytes(10_000),
    ],
    ids=len,
)
@pytest.mark.parametrize("pair", [_EC, _RSA], ids=_name)
def test_what_is_no_wrapped_key(pair: KeyPair, wrapped: bytes) -> None:
    """Points off the curve, and values too short or too long for any key, are typed errors."""
    keys = [EncryptionKeys(key=pair.name, value=wrapped)]
    fields = MessageMetadata(encryption_keys=keys).SerializePartialToString()

    with pytest.raises(DecryptionError, match="cannot be unwrapped"):
        _decrypt(Sealed(fields, bytes(40)), keys=pair.keys())


@pytest.mark.parametrize("length", [0, 5, 31, 33, 48])
@pytest.mark.parametrize("pair", [_EC, _RSA], ids=_name)
def test_data_key_that_is_none_of_aes(pair: KeyPair, length: int) -> None:
    """What unwraps to other lengths than AES has is no data key."""
    keys = [EncryptionKeys(key=pair.name, value=pair.wrap(bytes(length)))]
    fields = MessageMetadata(encryption_keys=keys).SerializePartialToString()

    with pytest.raises(DecryptionError, match="cannot be unwrapped"):
        _decrypt(Sealed(fields, bytes(40)), keys=pair.keys())


@pytest.mark.parametrize("length", [0, 11, 13, 16, 200])
def test_iv_of_another_length(length: int) -> None:
    """The IV has 12 bytes."""
    sealed = seal(_PAYLOAD, [_EC])
    cut = MessageMetadata.FromString(sealed.fields + _required())
    cut.encryption_param = bytes(length)

    with pytest.raises(DecryptionError, match=f"the IV .* has {length} bytes, not 12"):
        _decrypt(replace(sealed, fields=cut.SerializeToString()), keys=_EC.keys())


def test_algorithm_is_told_where_it_may_be_why() -> None:
    """A payload says in words how it is encrypted: they count only where AES-GCM fails."""
    sealed = seal(_PAYLOAD, [_EC], algorithm="ROT13")

    assert _decrypt(sealed, keys=_EC.keys()) == _PAYLOAD
    with pytest.raises(DecryptionError, match="or 'ROT13' is not AES-GCM"):
        _decrypt(replace(sealed, payload=bytes(40)), keys=_EC.keys())


def test_metadata_that_is_none() -> None:
    """To who has a key, encryption keys that cannot be parsed are damage."""
    for fields in (b"\x6a\x05\x0a", b"\x6a\x00", b"\x7a\xff\xff"):
        with pytest.raises(DecryptionError, match="cannot be decoded"):
            _decrypt(Sealed(fields, b""), keys=_EC.keys())


def test_key_name_that_is_no_text() -> None:
    """Bytes that are no UTF-8 are shown by their replacement, and found by it too."""
    fields = b"\x6a\x06\x0a\x02k\xff\x12\x00"

    with pytest.raises(EncryptedPayloadError, match="with the keys: k\N{REPLACEMENT CHARACTER}"):
        _decrypt(Sealed(fields, b""))
    with pytest.raises(DecryptionError, match="cannot be unwrapped"):
        _decrypt(
            Sealed(fields, b""), keys=DecryptionKeys({"k\N{REPLACEMENT CHARACTER}": _EC.pem()})
        )


def test_encryption_keys_are_bounded() -> None:
    """No message makes a reader try more keys than some bytes hold."""
    keys = [EncryptionKeys(key="ec", value=bytes(117))] * 600
    fields = MessageMetadata(encryption_keys=keys).SerializePartialToString()

    with pytest.raises(DecryptionError, match="take more than 65536 bytes"):
        _decrypt(Sealed(fields, b""), keys=_EC.keys())


_NO_KEY: Final = "not a private key in PEM form"
_ED25519: Final = ed25519.Ed25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        pytest.param(b"", _NO_KEY, id="empty"),
        pytest.param(b"junk", _NO_KEY, id="junk"),
        pytest.param(_RSA.pem()[:-60], _NO_KEY, id="cut"),
        pytest.param(_RSA.pem()[:200] + _RSA.pem()[300:], _NO_KEY, id="hole"),
        pytest.param(_EC.public_pem(), _NO_KEY, id="public"),
        pytest.param(_EC.pem(b"passphrase"), "has a passphrase", id="passphrase ec"),
        pytest.param(_RSA.pem(b"passphrase"), "has a passphrase", id="passphrase rsa"),
        pytest.param(_ED25519, "neither an RSA key nor one on an elliptic curve", id="ed25519"),
    ],
)
def test_keys_are_read_when_they_are_given(pem: bytes, said: str) -> None:
    """What is no private key that can be used is an error by name, without its text."""
    for make, name in (
        (lambda: DecryptionKeys({"mine": pem}), "key mine"),
        (lambda: DecryptionKeys(for_any_name=pem), "key <any name>"),
        (lambda: DecryptionKeys(look_up=lambda _: pem).private_key("x"), "key x"),
    ):
        with pytest.raises(OptionError, match=f"{name}: .*{said}") as caught:
            make()
        text = str(caught.getrepr(chain=True, style="native"))
        assert not [line for line in pem.decode().splitlines()[1:-1] if line in text]


def test_keys_in_other_forms_of_pem() -> None:
    """PKCS#1, SEC1 and CRLF are read as well."""
    assert isinstance(_RSA.private_key, rsa.RSAPrivateKey)
    for pair in (_RSA, _EC):
        sealed = seal(_PAYLOAD, [pair])
        traditional = pair.private_key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )

        for pem in (traditional, pair.pem().replace(b"\n", b"\r\n"), b"words\n" + pair.pem()):
            assert _decrypt(sealed, keys=DecryptionKeys(for_any_name=pem)) == _PAYLOAD


def test_keys_are_never_shown() -> None:
    """Neither the keys printed, nor those that come from elsewhere, nor an error shows a key."""
    keys = DecryptionKeys({"rsa": _RSA.pem()}, _EC.pem(), look_up=None)
    copy = pickle.loads(pickle.dumps(keys))
    sealed = seal(_PAYLOAD, [_OTHER])

    with pytest.raises(PulsarOffloadError) as caught:
        _decrypt(sealed, keys=copy)
    texts = [repr(copy), str(copy), f"{copy}", repr([copy]), repr(PayloadDecryptor(copy))]
    texts += ["".join(traceback.format_exception(caught.value)), repr(caught.value.__dict__)]

    assert copy == keys
    assert repr(copy) == "DecryptionKeys(rsa, <any name>)"
    assert repr(DecryptionKeys()) == "DecryptionKeys()"
    for text in texts:
        assert not [line for line in _secret_lines(_RSA, _EC) if line in text]


def test_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `cryptography`, a key is an error that says what to install."""
    encryption._load.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(OptionError, match=re.escape(install_command("crypto"))):
        DecryptionKeys({"ec": _EC_PEM})
    with pytest.raises(EncryptedPayloadError, match="with the keys: ec"):
        _decrypt(_SEALED_EC)


_EC_PEM: Final = _EC.pem()
_SEALED_EC: Final = seal(_PAYLOAD, [_EC])
