"""Sources of `.proto` files that have, together, all that protobuf's language has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES: Final = {
    "proto2": r"""
syntax = "proto2";
package a.b;
import "google/protobuf/descriptor.proto";
import public "google/protobuf/timestamp.proto";
option java_package = "x.y\n\"q\"\001";
option optimize_for = CODE_SIZE;
option (text) = "поток";

message Deep {
  optional int32 x = 1;
  repeated Deep more = 2;
}
extend google.protobuf.FileOptions { optional string text = 50001; }
extend google.protobuf.MessageOptions { optional int32 of_message = 50001; }
extend google.protobuf.FieldOptions {
  optional Deep o_deep = 50002;
  repeated int32 o_several = 50003;
  optional E o_chosen = 50004;
  optional bytes o_raw = 50005;
  optional double o_real = 50006;
  optional bool o_yes = 50007;
}
extend google.protobuf.OneofOptions { optional int32 of_oneof = 50001; }
extend google.protobuf.EnumOptions { optional int32 of_enum = 50001; }
extend google.protobuf.EnumValueOptions { optional int32 of_value = 50001; }
extend google.protobuf.ServiceOptions { optional int32 of_service = 50001; }
extend google.protobuf.MethodOptions { optional int32 of_method = 50001; }
extend google.protobuf.ExtensionRangeOptions { optional int32 of_range = 50001; }

enum E {
  option allow_alias = true;
  option (of_enum) = 4;
  A = 0;
  B = -5 [deprecated = true, (of_value) = 7];
  C = -5;
  reserved 5, 7 to 9, 100 to max;
  reserved "X", "Y";
}
message M {
  option (of_message) = 3;
  option deprecated = true;
  required string text = 1 [default = "q\"uo\\te\n\t\001 \303\251 'x'"];
  optional bytes raw = 2 [default = "\000\377\"abc\n"];
  optional double most = 3 [default = inf];
  optional double least = 4 [default = -inf];
  optional float none = 5 [default = nan];
  optional double tiny = 6 [default = 1.5e-300];
  optional int64 long = 7 [default = -9223372036854775808];
  optional bool yes = 8 [default = true];
  optional E chosen = 9 [default = B];
  repeated int32 packed = 10 [
    packed = true, (o_several) = 1, (o_several) = 2, (o_deep) = { x: 1 more { x: 2 } more { } },
    (o_chosen) = B, (o_raw) = "\377\n\"", (o_real) = -1.5, (o_yes) = true
  ];
  optional string named = 11 [ctype = CORD, json_name = "other name"];
  optional int64 number = 12 [jstype = JS_STRING, lazy = false];
  optional group Group = 13 {
    optional int32 q = 1;
    optional group Inner = 2 { optional E z = 1; }
  }
  repeated group Repeated = 14 {
    message N { optional int32 t = 1; }
    optional N n = 1;
  }
  oneof one {
    option (of_oneof) = 9;
    string s = 15;
    M m = 16;
    group Other = 17 { optional int32 u = 1; }
  }
  optional int32 between = 18;
  oneof another { int32 alone = 19; }
  map<string, M> messages = 20 [deprecated = true];
  map<int32, E> enums = 21;
  message Outer {
    message Within {
      optional M.Outer.Within x = 1;
      enum Enum { Z = 1; }
      optional Enum e = 2;
    }
  }
  optional Outer.Within inner = 22;
  optional google.protobuf.Timestamp time = 23;
  enum Nested { NA = 3; }
  optional Nested nested = 24;
  optional int32 _lead = 25;
  optional int32 x__y_1_z = 26;
  optional int32 Upper_Case = 27;
  optional int32 message = 28;
  optional int32 optional = 29;
  extensions 100 to 199, 300;
  extensions 1000 to max [(of_range) = 3];
  extend M {
    optional int32 inside = 101;
    optional group Extended = 102 { optional int32 v = 1; }
  }
  reserved 50, 60 to 70;
  reserved "old", "older";
}
extend M {
  repeated M outside = 103 [deprecated = true];
  repeated group Far = 104 { optional int32 v = 1; }
}
service S {
  option (of_service) = 1;
  rpc R (M) returns (stream M) {
    option (of_method) = 2;
    option deprecated = true;
    option idempotency_level = IDEMPOTENT;
  }
  rpc Q (stream M) returns (M);
}
""",
    "proto3": r"""
syntax = "proto3";
import weak "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum E {
  ZERO = 0;
  ONE = 1;
}
message M {
  optional int32 told = 1;
  int32 untold = 2;
  repeated int32 unpacked = 3 [packed = false];
  repeated string texts = 4;
  oneof one {
    string text = 5;
    google.protobuf.Duration time = 6;
  }
  map<string, bytes> many = 7;
  optional E chosen = 8;
  optional M itself = 9;
  message message { int32 syntax = 1; }
  .M.message word = 10;
  google.protobuf.Int32Value wrapped = 11;
  reserved 12 to 536870911;
  reserved "old";
}
message Empty {}
""",
    "2023": r"""
edition = "2023";
package ed;
option features.field_presence = IMPLICIT;
option features.enum_type = CLOSED;
enum E {
  ZERO = 0;
  reserved foo, bar;
}
enum Open {
  option features.enum_type = OPEN;
  Z = 0;
}
message M {
  int32 told = 1 [features.field_presence = EXPLICIT, default = 7];
  int32 required = 2 [features.field_presence = LEGACY_REQUIRED];
  repeated int32 unpacked = 3 [features.repeated_field_encoding = EXPANDED];
  M delimited = 4 [features.message_encoding = DELIMITED];
  string text = 5 [features.utf8_validation = NONE];
  map<string, M> many = 6;
  Open open = 8;
  oneof one { M group = 7 [features.message_encoding = DELIMITED]; }
  reserved old, older;
  reserved 100;
  extensions 200 to 300;
}
extend M { M extended = 200 [features.message_encoding = DELIMITED]; }
""",
    "2024": r"""
edition = "2024";
package ed;
export message M {
  int32 i = 1;
  local enum Q { Z = 0; }
  local message N { M m = 1; }
}
local message L {}
""",
}
"""By syntax or edition."""

_LIBRARY = Path(grpc_tools.__file__).parent / "_proto"


def compiled(sources: Mapping[str, str], folder: Path) -> dict[str, FileDescriptorProto]:
    """What protoc makes of sources and all that they import, by the names of the files."""
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    out = folder / "out.desc"
    paths = [f"-I{folder}", f"-I{_LIBRARY}"]
    arguments = ["protoc", *paths, "--include_imports", f"--descriptor_set_out={out}", *sources]
    assert protoc.main(arguments) == 0
    return {each.name: each for each in FileDescriptorSet.FromString(out.read_bytes()).file}
