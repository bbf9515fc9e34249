"""Tables that are not there: what a command that changes nothing looks at in their place."""

from __future__ import annotations

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER


def absent_table(name: str) -> Table:
    """An empty table in memory, as one would be that was made this moment: no columns, no snapshots, a UUID of its own.

    Args:
        name: Its name.
    """
    metadata = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location="", properties={}
    )
    return Table(tuple(name.split(".")), metadata, "", load_file_io(), NoopCatalog("absent"))
