"""What fields of messages were called before: a field is known by its number, and earlier versions of the schema have that too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from frazil.records.dead import Rejection
from frazil.records.formats.port import WriterSchema
from frazil.records.formats.protobuf_schema import Schema


class FormerNames:
    """Tells former names.

    Args:
        earlier: Earlier versions of the schema, the last one first. One that does not compile tells nothing.

    Raises:
        Retryable: the compiler does not come to an end.
    """

    def __init__(self, earlier: Iterable[WriterSchema] = ()) -> None:
        self._pools: Final = tuple(_pools(earlier))

    def of(self, field: FieldDescriptor) -> Iterator[str]:
        """Yield the names that the field of this number had in the message, the last one first."""
        for pool in self._pools:
            try:
                known = pool.FindMessageTypeByName(field.containing_type.full_name).fields_by_number
            except KeyError:
                continue
            if field.number in known:
                yield known[field.number].name


def _pools(earlier: Iterable[WriterSchema]) -> Iterator[DescriptorPool]:
    for writer in earlier:
        try:
            yield Schema(writer).pool
        except Rejection:
            continue
