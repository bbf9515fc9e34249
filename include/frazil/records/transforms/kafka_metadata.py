"""The Iceberg sink's KafkaMetadataTransform: where a record came from, as fields of its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.model.frame import Frame, Transformed
from frazil.records.transforms.fields import put_column

_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class KafkaMetadata:
    """Adds topic (string, as consumed), partition (int32), offset (int64) and timestamp (int64, milliseconds, optional).

    Fields of the same names are replaced.

    Attributes:
        field_name: Prefix of the added fields, `<field_name>_topic` and so on; the name of the struct if `nested`.
        nested: Whether they become one struct with the fields topic, partition, offset and timestamp.
        external_field: `name,text`: one more field, with this text in every record.

    Raises:
        Terminal: `external_field` is not a name, a comma and a text.
    """

    field_name: str = "_kafka_metadata"
    nested: bool = False
    external_field: str | None = None

    def __post_init__(self) -> None:
        if self.external_field is not None and (len(self._external) != _PARTS or not all(self._external)):
            raise BAD_TRANSFORM.terminal(
                f"KafkaMetadata: expected external_field as name,text, found {self.external_field!r}",
                next_step="write it as in `external_field: cluster,eu-west`",
            )

    @property
    def _external(self) -> list[str]:
        return [] if self.external_field is None else self.external_field.split(",")

    def apply(self, frame: Frame) -> Transformed:
        """Add the fields."""
        facts = self._facts(frame)
        value = frame.value
        if self.nested:
            struct = pa.StructArray.from_arrays(list(facts.values()), names=list(facts))
            return Transformed(frame.with_value(put_column(value, self.field_name, struct)))
        for name, values in facts.items():
            value = put_column(value, f"{self.field_name}_{name}", values)
        return Transformed(frame.with_value(value))

    @property
    def facts(self) -> tuple[str, ...]:
        """Names of the facts."""
        return ("topic", "partition", "offset", "timestamp", *self._external[:1])

    def _facts(self, frame: Frame) -> dict[str, pa.Array]:
        records = frame.records
        facts = {name: records.column(name) for name in self.facts[:3]}
        # Kafka counts milliseconds, so the microseconds of Arrow are whole ones.
        facts["timestamp"] = records.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        if self._external:
            name, text = self._external
            facts[name] = pa.repeat(pa.scalar(text), len(frame))
        return facts
