"""Whoever meets an encrypted payload hears which keys would open it."""

from __future__ import annotations

import pytest

from arrow_io.errors import EncryptedPayloadError
from arrow_io.messages.encryption import encrypted_payload_error
from tests.support.pulsar_proto import EncryptionKeys, MessageMetadata


def _metadata(*names: str) -> bytes:
    keys = [EncryptionKeys(key=name, value=b"wrapped") for name in names]
    metadata: bytes = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, encryption_keys=keys
    ).SerializeToString()
    return metadata


@pytest.mark.parametrize(
    ("names", "told"),
    [(["rsa"], "rsa"), (["b", "a", "b"], "a, b"), ([""], ""), (["ключ"], "ключ")],
)
def test_error_names_the_keys(names: list[str], told: str) -> None:
    """Each key once, in order."""
    error = encrypted_payload_error(memoryview(_metadata(*names)))

    assert isinstance(error, EncryptedPayloadError)
    assert error.message == f"the payload is encrypted, with the keys: {told}"


@pytest.mark.parametrize(
    "metadata",
    [
        b"\x6a\x03\x0a\x01\xff",  # a name that is no UTF-8
        b"\x6a\x06\x0a\x01\xff\x12\x01x\x6a\x06\x0a\x01k\x12\x01x",  # and one that is
        b"\x6a\x00",  # no name
        b"\x6a\x05\x0a",  # cut
        b"\x6b",  # a group
        b"",
    ],
)
def test_keys_that_cannot_be_read_do_no_harm(metadata: bytes) -> None:
    """Whatever stands in place of the keys, the error is that the payload is encrypted."""
    error = encrypted_payload_error(memoryview(metadata))

    assert error.message.startswith("the payload is encrypted, with the keys: ")
