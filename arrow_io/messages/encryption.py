"""What an encrypted entry says of its keys (`MessageCrypto`, PIP-4)."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from arrow_io.errors import EncryptedPayloadError

_Field = descriptor_pb2.FieldDescriptorProto


def _encryption_metadata_class() -> type:
    """The fields of MessageMetadata that tell of encryption; the library skips all others."""
    file = descriptor_pb2.FileDescriptorProto(name="pulsar_encryption.proto", syntax="proto2")
    keys = file.message_type.add(name="EncryptionKeys")
    # A string in PulsarApi.proto; as bytes, one that is not UTF-8 has the same type as any other.
    keys.field.add(name="key", number=1, type=_Field.TYPE_BYTES, label=_Field.LABEL_REQUIRED)
    keys.field.add(name="value", number=2, type=_Field.TYPE_BYTES, label=_Field.LABEL_REQUIRED)
    metadata = file.message_type.add(name="EncryptionMetadata")
    metadata.field.add(
        name="encryption_keys",
        number=13,
        type=_Field.TYPE_MESSAGE,
        type_name=".EncryptionKeys",
        label=_Field.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("EncryptionMetadata"))


_EncryptionMetadata = _encryption_metadata_class()


def encrypted_payload_error(metadata: memoryview) -> EncryptedPayloadError:
    """The error that names the keys which an entry's payload is encrypted with.

    Args:
        metadata: The entry's serialised MessageMetadata.
    """
    parsed = _EncryptionMetadata()
    try:
        parsed.ParseFromString(bytes(metadata))
        keys = sorted({each.key for each in parsed.encryption_keys})
        names = ", ".join(key.decode(errors="replace") for key in keys)
    except DecodeError:
        names = "names that cannot be decoded"
    return EncryptedPayloadError(f"the payload is encrypted, with the keys: {names}")
