"""Files that schemas import without referring to them: registries know them.

Only what decoding needs of them, with the field numbers of the originals: Confluent's annotations and decimal, and the
Google types that have a column type of their own. The well-known types (`google/protobuf/…`) come with the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_META: Final = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""

_DECIMAL: Final = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""

_GOOGLE_DATE: Final = """
syntax = "proto3";
package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
"""

_GOOGLE_TIME: Final = """
syntax = "proto3";
package google.type;
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
"""

_GOOGLE_DECIMAL: Final = """
syntax = "proto3";
package google.type;
message Decimal { string value = 1; }
"""

IMPORTS: Final[Mapping[str, str]] = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "google/type/date.proto": _GOOGLE_DATE,
    "google/type/timeofday.proto": _GOOGLE_TIME,
    "google/type/decimal.proto": _GOOGLE_DECIMAL,
}
"""Source by file name."""
