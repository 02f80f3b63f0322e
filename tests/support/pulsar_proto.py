"""The protobuf messages of an entry, as classes of the protobuf library, made from descriptors.

Fields, numbers, types and defaults are those of Pulsar's `PulsarApi.proto` (`MessageMetadata`,
`SingleMessageMetadata`, `BrokerEntryMetadata`, `KeyValue`, `EncryptionKeys`). Nothing is generated
by `protoc`, and the decoder under test knows nothing of these classes, so the two can disagree.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ProtoMessage: TypeAlias = Any
"""An instance of a class below: its fields exist at run time only, so no type can name them."""

COMPRESSION_TYPES: Final = {"NONE": 0, "LZ4": 1, "ZLIB": 2, "ZSTD": 3, "SNAPPY": 4}
"""Pulsar's `CompressionType`: name to number on the wire."""

_PACKAGE: Final = "pulsar.proto"

_FIELDS: Final = {
    "KeyValue": """
        1 key required string
        2 value required string
    """,
    "EncryptionKeys": """
        1 key required string
        2 value required bytes
        3 metadata repeated KeyValue
    """,
    "BrokerEntryMetadata": """
        1 broker_timestamp optional uint64
        2 index optional uint64
    """,
    "MessageMetadata": """
        1 producer_name required string
        2 sequence_id required uint64
        3 publish_time required uint64
        4 properties repeated KeyValue
        5 replicated_from optional string
        6 partition_key optional string
        7 replicate_to repeated string
        8 compression optional CompressionType NONE
        9 uncompressed_size optional uint32 0
        11 num_messages_in_batch optional int32 1
        12 event_time optional uint64 0
        13 encryption_keys repeated EncryptionKeys
        14 encryption_algo optional string
        15 encryption_param optional bytes
        16 schema_version optional bytes
        17 partition_key_b64_encoded optional bool false
        18 ordering_key optional bytes
        19 deliver_at_time optional int64
        20 marker_type optional int32
        22 txnid_least_bits optional uint64
        23 txnid_most_bits optional uint64
        24 highest_sequence_id optional uint64 0
        25 null_value optional bool false
        26 uuid optional string
        27 num_chunks_from_msg optional int32
        28 total_chunk_msg_size optional int32
        29 chunk_id optional int32
        30 null_partition_key optional bool false
        31 compacted_batch_indexes repeated int32
        32 schema_id optional bytes
        33 entry_hash_min optional uint32
        34 entry_hash_max optional uint32
    """,
    "SingleMessageMetadata": """
        1 properties repeated KeyValue
        2 partition_key optional string
        3 payload_size required int32
        4 compacted_out optional bool false
        5 event_time optional uint64 0
        6 partition_key_b64_encoded optional bool false
        7 ordering_key optional bytes
        8 sequence_id optional uint64
        9 null_value optional bool
        10 null_partition_key optional bool
    """,
}


def _add_field(message: descriptor_pb2.DescriptorProto, line: str) -> None:
    number, name, label, type_name, *default = line.split()
    field = message.field.add(name=name, number=int(number))
    field.label = descriptor_pb2.FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}")
    if type_name == "CompressionType":
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_ENUM
        field.type_name = f".{_PACKAGE}.{type_name}"
    elif type_name in _FIELDS:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{type_name}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{type_name.upper()}")
    if default:
        field.default_value = default[0]


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="PulsarApi.proto", package=_PACKAGE, syntax="proto2"
    )
    compression = file.enum_type.add(name="CompressionType")
    for name, number in COMPRESSION_TYPES.items():
        compression.value.add(name=name, number=number)
    for name, lines in _FIELDS.items():
        message = file.message_type.add(name=name)
        for line in lines.strip().splitlines():
            _add_field(message, line)
    return file


# A pool of its own: the default pool is shared by the process and would refuse a second definition
# of the same names.
_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _message_class(name: str) -> ProtoMessage:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


KeyValue: Final = _message_class("KeyValue")
EncryptionKeys: Final = _message_class("EncryptionKeys")
BrokerEntryMetadata: Final = _message_class("BrokerEntryMetadata")
MessageMetadata: Final = _message_class("MessageMetadata")
SingleMessageMetadata: Final = _message_class("SingleMessageMetadata")


def varint(number: int, length: int = 0) -> bytes:
    """A number in as many bytes as it needs, or in `length` if that is more."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F or len(encoded) < length - 1:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
