"""The policy `fail`: a value that its column can't be widened to ends the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.dead import DeadCode
from frazil.records.declared_names import DeclaredNames
from frazil.records.spec import RecordSpec

_CODES: Final = pa.array([DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST], pa.string())


def refuse_incompatible(letters: pa.RecordBatch, specs: Mapping[str, RecordSpec]) -> None:
    """Refuse a batch that has such values for a table whose policy it is. Says where, never what.

    Args:
        letters: Dead letters, with the table in `destination`.
        specs: Table -> how records become its rows.

    Raises:
        Terminal: there is one.
    """
    strict = [table for table, of in specs.items() if of.evolution and of.evolution.on_incompatible == "fail"]
    if not strict or not letters.num_rows:
        return
    to = letters.column("destination")  # null where there is one table
    meant = pc.or_(to.is_null(), pc.is_in(to, value_set=pa.array(strict, pa.string())))
    found = letters.filter(pc.and_(meant, pc.is_in(letters.column("code"), value_set=_CODES)))
    if not found.num_rows:
        return
    first = found.slice(0, 1).drop_columns("timestamp").to_pylist()[0]  # Python knows no years beyond 9999
    path = DeclaredNames.of(specs.values()).shown(first["path"] or "")  # a key of a map, say, may be secret
    raise Terminal(
        f"topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: field {path} does not fit"
        f" its column of {first['destination'] or strict[0]} ({first['code']}), which can't be widened to it; nothing was published",
        next_step="mend the producer, or set on_incompatible of the destination to rescue, dead_letter or variant_column",
    )
