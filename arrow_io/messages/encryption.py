"""Encrypted payloads (PIP-4, `MessageCryptoBc`): MessageMetadata and private keys → clear bytes.

AES-GCM encrypts a payload with a data key. `encryption_keys` holds the data key once per key pair,
wrapped with the public key. One private key that unwraps it is enough.

| field of MessageMetadata | |
|---|---|
| 13 `encryption_keys` | repeated: 1 name of the key pair, 2 wrapped data key |
| 14 `encryption_algo` | only named in errors: producers leave it out, and the tag proves more |
| 15 `encryption_param` | IV, 12 bytes |

The payload is the ciphertext and a tag of 16 bytes; there is no associated data. RSA keys wrap with
OAEP and SHA-1. EC keys wrap with BouncyCastle's ECIES (`IESEngine`), whose value is `V ‖ C ‖ T`:

| part | bytes | |
|---|---|---|
| V | by the curve | ephemeral public point in X9.63 form, uncompressed or compressed |
| C | 16, 24 or 32 | data key XOR `K[16:]` |
| T | 20 | HMAC-SHA1 by `K[:16]` of C and a length tag: 8 zero bytes, of old versions 4 |

where `K = SHA1(V ‖ Z ‖ 00000001) ‖ SHA1(V ‖ Z ‖ 00000002) ‖ …` (KDF2), and Z is the x-coordinate of
the shared point.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.message import DecodeError

from arrow_io.core.extras import install_command
from arrow_io.core.option_names import option_name
from arrow_io.core.wording import counted
from arrow_io.errors import DecryptionError, EncryptedPayloadError, OptionError, PulsarOffloadError
from arrow_io.format.protobuf_messages import message_classes
from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from arrow_io.messages.entry_run import EntryRun

    _PrivateKey: TypeAlias = EllipticCurvePrivateKey | RSAPrivateKey
    _DataKey: TypeAlias = tuple[str, AESGCM]
    """The cipher of a data key, with the name of the key pair that unwrapped it."""
    _WrappedKeys: TypeAlias = tuple[tuple[str, bytes], ...]

MAX_WRAPPED_BYTES = 64 << 10
"""Maximum bytes of encryption keys in one message: each may cost an RSA operation."""
MAX_REMEMBERED_DATA_KEYS = 256

_IV_BYTES = 12
_DATA_KEY_BYTES = (16, 24, 32)
_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_LENGTH_TAGS = (bytes(8), bytes(4))

# The fields of MessageMetadata about encryption; the library skips all others.
_EncryptionMetadata = message_classes(
    {
        "EncryptionKeys": """
            1 key required bytes
            2 value required bytes
        """,
        "EncryptionMetadata": """
            13 encryption_keys repeated EncryptionKeys
            14 encryption_algo optional bytes
            15 encryption_param optional bytes
        """,
    }
)["EncryptionMetadata"]


@dataclass(frozen=True, repr=False)
class DecryptionKeys:
    """Private keys in PEM form, by the names of their key pairs.

    Can be pickled. Prints only the names.

    Attributes:
        by_name: RSA or elliptic-curve keys by name.
        for_any_name: The key for names that `by_name` does not contain.
        look_up: Callback that returns the key of a name, or None. It is called last, each time the
            key is needed.

    Raises:
        OptionError: A key of `by_name` or `for_any_name` is not a PEM private key of RSA or a known
            elliptic curve, or has a passphrase; or the library for it is not installed.
    """

    by_name: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    for_any_name: bytes | None = None
    look_up: Callable[[str], bytes | None] | None = None

    def __post_init__(self) -> None:
        """Load the keys, so that a bad key is reported before anything else is read."""
        for name in self.by_name:
            self.private_key(name)
        if self.for_any_name is not None:
            self.private_key("")

    def __bool__(self) -> bool:
        return bool(self.by_name or self.for_any_name or self.look_up)

    def __str__(self) -> str:
        """Return the names of the keys; never the keys."""
        names = list(self.by_name)
        names += [] if self.for_any_name is None else ["<any name>"]
        names += [] if self.look_up is None else ["<looked up>"]
        return ", ".join(names)

    def __repr__(self) -> str:
        return f"DecryptionKeys({self})"

    def private_key(self, name: str) -> _PrivateKey | None:
        """Return the key of a name; None if there is none.

        Raises:
            OptionError: The looked-up key cannot be used.
        """
        pem = self.by_name.get(name, self.for_any_name)
        if pem is None and self.look_up is not None:
            pem = self.look_up(name)
        if pem is None:
            return None
        try:
            return _load(pem)
        except OptionError as error:
            place = f"{option_name('decryption_keys')}, key {name or '<any name>'}"
            error.message = f"{place}: {error.message}"
            raise


class PayloadDecryptor:
    """Decrypts payloads; unwraps each data key once, because producers keep one for hours.

    Safe to use from several threads.

    Args:
        keys: The private keys. By default there are none, and every encrypted payload is an error.
    """

    def __init__(self, keys: DecryptionKeys | None = None) -> None:
        self._keys = keys or DecryptionKeys()
        self._data_keys: OrderedDict[_WrappedKeys, _DataKey | str] = OrderedDict()
        self._lock = Lock()

    def payload(self, run: EntryRun, index: int) -> memoryview:
        """Return the payload of an entry, decrypted if it is encrypted, and still compressed.

        Raises:
            EncryptedPayloadError: There is no key for it.
            DecryptionError: The key does not decrypt it.
            OptionError: A looked-up key cannot be used.
        """
        stored = run.view(index, layout.PAYLOAD)
        if not run.number(index, layout.FLAGS) & layout.ENCRYPTED:
            return stored
        try:
            return self.decrypt(run.view(index, layout.METADATA), stored)
        except PulsarOffloadError as error:
            run.locate(error, index)
            raise

    def check(self, run: EntryRun, index: int) -> None:
        """Check that the data key of an encrypted entry can be unwrapped; do not read the payload.

        Raises:
            EncryptedPayloadError: There is no key for it.
            DecryptionError: The key does not unwrap the data key.
            OptionError: A looked-up key cannot be used.
        """
        if not run.number(index, layout.FLAGS) & layout.ENCRYPTED:
            return
        try:
            self._data_key(self._parse(run.view(index, layout.METADATA)))
        except PulsarOffloadError as error:
            run.locate(error, index)
            raise

    def decrypt(self, metadata: memoryview, payload: memoryview) -> memoryview:
        """Decrypt the payload of an encrypted entry, by its serialised MessageMetadata.

        Raises:
            EncryptedPayloadError: There is no private key for the names in the metadata.
            DecryptionError: No private key unwraps the data key, the payload does not authenticate,
                or the metadata cannot be decoded.
            OptionError: A looked-up key cannot be used.
        """
        parsed = self._parse(metadata)
        name, cipher = self._data_key(parsed)
        iv = parsed.encryption_param
        if len(iv) != _IV_BYTES:
            has = counted(len(iv), "byte")
            message = f"the IV of the encrypted payload has {has}, not {_IV_BYTES}"
            raise DecryptionError(message)
        from cryptography.exceptions import InvalidTag

        try:
            return memoryview(cipher.decrypt(iv, payload, None))
        except InvalidTag:
            algorithm = parsed.encryption_algo.decode(errors="replace")
            message = (
                f"the payload, encrypted with the key {name}, does not authenticate: it or its IV"
                f" is damaged{f', or {algorithm!r} is not AES-GCM' if algorithm else ''}"
            )
            raise DecryptionError(message) from None

    def _parse(self, metadata: memoryview) -> Any:  # noqa: ANN401 - a class made at run time
        parsed = _EncryptionMetadata()
        try:
            parsed.ParseFromString(bytes(metadata))
            is_whole = parsed.IsInitialized()
        except DecodeError:
            is_whole = False
        if is_whole:
            return parsed
        if not self._keys:
            message = (
                "the payload is encrypted, with the keys: names that cannot be decoded; no private"
                f" key was given: pass one as {option_name('decryption_keys')}"
            )
            raise EncryptedPayloadError(message)
        message = "the encryption keys in the message metadata cannot be decoded"
        raise DecryptionError(message)

    def _data_key(self, parsed: Any) -> _DataKey:  # noqa: ANN401 - a class made at run time
        size_bytes = sum(each.ByteSize() for each in parsed.encryption_keys)
        if self._keys and size_bytes > MAX_WRAPPED_BYTES:
            message = f"the encryption keys take more than {MAX_WRAPPED_BYTES} bytes"
            raise DecryptionError(message)
        wrapped = tuple(
            (each.key.decode(errors="replace"), each.value) for each in parsed.encryption_keys
        )
        with self._lock:
            if wrapped not in self._data_keys:
                self._data_keys[wrapped] = self._unwrap_key(wrapped)
            self._data_keys.move_to_end(wrapped)
            if len(self._data_keys) > MAX_REMEMBERED_DATA_KEYS:
                self._data_keys.popitem(last=False)
            data_key = self._data_keys[wrapped]
        if isinstance(data_key, str):
            message = (
                f"the data key cannot be unwrapped with the private key {data_key}: it is the"
                " wrong key, or the wrapped data key is damaged"
            )
            raise DecryptionError(message)
        return data_key

    def _unwrap_key(self, wrapped_keys: _WrappedKeys) -> _DataKey | str:
        """Return the first data key that can be unwrapped, or the names of the keys that failed."""
        failed_names = []
        for name, wrapped in wrapped_keys:
            private_key = self._keys.private_key(name)
            data_key = None if private_key is None else _unwrap(private_key, wrapped)
            if data_key is not None:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM

                return name, AESGCM(data_key)
            if private_key is not None:
                failed_names.append(name)
        if not failed_names:
            names = ", ".join(sorted({name for name, _ in wrapped_keys}))
            advice = (
                f"the private keys have other names: {self._keys}; pass the key of one"
                if self._keys
                else "no private key was given: pass one"
            )
            message = (
                f"the payload is encrypted, with the keys: {names}; {advice} as"
                f" {option_name('decryption_keys')}"
            )
            raise EncryptedPayloadError(message)
        return ", ".join(failed_names)


@lru_cache(maxsize=64)
def _load(pem: bytes) -> _PrivateKey:
    """Load a private key; cached because checking an RSA key takes 40 ms."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        message = f"decryption needs cryptography: {install_command('crypto')}"
        raise OptionError(message) from None
    # Neither the library's message nor its error as the cause: both may quote the key.
    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        message = "it has a passphrase: remove it (openssl pkey)"
        raise OptionError(message) from None
    except (ValueError, UnsupportedAlgorithm):
        message = "it is not a private key in PEM form, or its curve is not known"
        raise OptionError(message) from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        message = "it is neither an RSA key nor one on an elliptic curve of ECDH"
        raise OptionError(message)
    return key


def _unwrap(private_key: _PrivateKey, wrapped: bytes) -> bytes | None:
    """Return the data key; None if it cannot be unwrapped."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    try:
        if isinstance(private_key, RSAPrivateKey):
            data_key = _unwrap_by_rsa(private_key, wrapped)
        else:
            data_key = _unwrap_by_ecies(private_key, wrapped)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return data_key if len(data_key) in _DATA_KEY_BYTES else None


def _unwrap_by_rsa(private_key: RSAPrivateKey, wrapped: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
    from cryptography.hazmat.primitives.hashes import SHA1

    # Pulsar's clients use SHA-1; OAEP does not depend on its collision resistance.
    return private_key.decrypt(wrapped, OAEP(MGF1(SHA1()), SHA1(), label=None))  # noqa: S303


def _unwrap_by_ecies(private_key: EllipticCurvePrivateKey, wrapped: bytes) -> bytes:
    """Return the data key in an ECIES value; raises ValueError if it is not valid."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH, EllipticCurvePublicKey

    coordinate_bytes = (private_key.curve.key_size + 7) // 8
    is_compressed = wrapped[:1] in {b"\2", b"\3"}
    point_bytes = 1 + coordinate_bytes * (1 if is_compressed else 2)
    point, sealed, mac = (
        wrapped[:point_bytes],
        wrapped[point_bytes:-_MAC_BYTES],
        wrapped[-_MAC_BYTES:],
    )
    if len(sealed) not in _DATA_KEY_BYTES:
        message = "the parts have other lengths"
        raise ValueError(message)
    ephemeral = EllipticCurvePublicKey.from_encoded_point(private_key.curve, point)
    seed = point + private_key.exchange(ECDH(), ephemeral)
    derived = b"".join(_sha1(seed + counter.to_bytes(4)) for counter in (1, 2, 3))
    mac_key, stream = derived[:_MAC_KEY_BYTES], derived[_MAC_KEY_BYTES:]
    macs = [hmac.digest(mac_key, sealed + tag, "sha1") for tag in _LENGTH_TAGS]
    if not any(hmac.compare_digest(mac, each) for each in macs):
        message = "another MAC"
        raise ValueError(message)
    return bytes(a ^ b for a, b in zip(sealed, stream, strict=False))


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()  # noqa: S324 - KDF2 is defined with it
