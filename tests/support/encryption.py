"""Encryption as Pulsar's producers do it: entries in the clear → entries that a key pair opens.

The inverse of `arrow_io.messages.encryption`, and independent of it: `MessageCryptoBc` encrypts the
payload of each entry (a batch, a message, a chunk) after it was compressed and cut.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import crc32c
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from arrow_io.messages.encryption import DecryptionKeys
from tests.support.golden import GOLDEN
from tests.support.pulsar_proto import EncryptionKeys, MessageMetadata
from tests.support.reference import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_FOLDER: Final = GOLDEN / "keys"
"""Both private keys of the golden topics, and their public ones."""

CURVES: Final = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
    "secp256k1": ec.SECP256K1(),
}
KINDS: Final = ("RSA", *CURVES)

_PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair that a producer encrypts data keys for.

    Attributes:
        name: What messages call it.
        private_key: The private key.
        length_tag_bytes: How many zero bytes ECIES ends its MAC with: 8, or 4 as it once was.
        is_compressed: Whether ECIES writes its point compressed.
    """

    name: str
    private_key: _PrivateKey
    length_tag_bytes: int = 8
    is_compressed: bool = False

    def pem(self, passphrase: bytes | None = None) -> bytes:
        """The private key as a file has it."""
        protection = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)

    def public_pem(self) -> bytes:
        """The public key as a file has it."""
        return self.private_key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    def keys(self) -> DecryptionKeys:
        """What opens messages that are encrypted for this pair."""
        return DecryptionKeys({self.name: self.pem()})

    def wrap(self, data_key: bytes) -> bytes:
        """A data key, encrypted for this pair."""
        if isinstance(self.private_key, rsa.RSAPrivateKey):
            oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303
            return self.private_key.public_key().encrypt(data_key, oaep)
        return self._seal_by_ecies(self.private_key.public_key(), data_key)

    def _seal_by_ecies(self, public_key: ec.EllipticCurvePublicKey, data_key: bytes) -> bytes:
        ephemeral = ec.generate_private_key(public_key.curve)
        form = (
            PublicFormat.CompressedPoint if self.is_compressed else PublicFormat.UncompressedPoint
        )
        point = ephemeral.public_key().public_bytes(Encoding.X962, form)
        shared = ephemeral.exchange(ec.ECDH(), public_key)
        stream = b""
        while len(stream) < 16 + len(data_key):
            number = struct.pack(">I", 1 + len(stream) // 20)
            stream += hashlib.sha1(point + shared + number).digest()  # noqa: S324
        sealed = bytes(map(int.__xor__, data_key, stream[16:]))
        return (
            point + sealed + hmac.digest(stream[:16], sealed + bytes(self.length_tag_bytes), "sha1")
        )


@functools.cache
def key_pair(kind: str = "P-256", name: str = "key") -> KeyPair:
    """One of `KINDS`; the same each time."""
    if kind == "RSA":
        return KeyPair(name, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    return KeyPair(name, ec.generate_private_key(CURVES[kind]))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A payload, encrypted, and what the message metadata says of it."""

    fields: bytes
    payload: bytes


def seal(
    payload: bytes,
    pairs: Sequence[KeyPair],
    *,
    data_key: bytes | None = None,
    iv: bytes | None = None,
    algorithm: str | None = None,
) -> Sealed:
    """Encrypt a payload for some key pairs, with a data key of its own unless one is given."""
    data_key = os.urandom(32) if data_key is None else data_key
    iv = os.urandom(12) if iv is None else iv
    metadata = MessageMetadata(encryption_param=iv, encryption_algo=algorithm)
    for pair in pairs:
        metadata.encryption_keys.append(
            EncryptionKeys(
                key=pair.name,
                value=pair.wrap(data_key),
                metadata=[{"key": "version", "value": "1"}],
            )
        )
    fields: bytes = metadata.SerializePartialToString()
    return Sealed(fields, AESGCM(data_key).encrypt(iv, payload, None))


def sealed_entry(entry: bytes, *pairs: KeyPair, data_key: bytes | None = None) -> bytes:
    """An entry in the clear with its payload encrypted; a marker as it is."""
    broker, rest = b"", entry
    if entry.startswith(BROKER_METADATA_MAGIC):
        stop = 6 + int.from_bytes(entry[2:6])
        broker, rest = entry[:stop], entry[stop:]
    has_checksum = rest.startswith(CHECKSUM_MAGIC)
    rest = rest[6:] if has_checksum else rest
    stop = 4 + int.from_bytes(rest[:4])
    metadata, payload = rest[4:stop], rest[stop:]
    if MessageMetadata.FromString(metadata).HasField("marker_type"):
        return entry
    sealed = seal(payload, pairs, data_key=data_key)
    metadata += sealed.fields
    rest = struct.pack(">I", len(metadata)) + metadata + sealed.payload
    checksum = CHECKSUM_MAGIC + struct.pack(">I", crc32c.crc32c(rest)) if has_checksum else b""
    return broker + checksum + rest
