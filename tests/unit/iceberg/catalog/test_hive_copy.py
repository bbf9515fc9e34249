"""What a metastore's copy of a table goes without where its database lacks letters."""

from __future__ import annotations

from typing import Any

import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import FieldSchema, InvalidObjectException, SerDeInfo, StorageDescriptor
from hive_metastore.ttypes import Table as HiveTable

from frazil.iceberg.catalog.hive import _Client


def test_metastore_without_letters_of_a_property_takes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be they in its name or in its value; what says where the metadata are stays whatever it is."""
    hive_tables: list[HiveTable] = []

    def create_table(_: Any, table: HiveTable) -> None:
        parameters = {name: text for name, text in table.parameters.items() if name != "metadata_location"}
        if table.sd.cols or not "".join([*parameters, *parameters.values()]).isascii():
            raise InvalidObjectException("Incorrect string value")
        hive_tables.append(table)

    monkeypatch.setattr(Client, "create_table", create_table)
    place = "file:/\u6ce8\u6587/1.json"
    parameters = {"metadata_location": place, "of": "nobody", "comment": "\u6ce8\u6587", "\u6ce8\u6587": "order"}
    columns = [FieldSchema("id", "bigint", "\u6ce8\u6587")]
    _Client(None).create_table(
        HiveTable(sd=StorageDescriptor(cols=columns, serdeInfo=SerDeInfo()), parameters=parameters)
    )

    (table,) = hive_tables
    assert (table.sd.cols, table.parameters) == ([], {"metadata_location": place, "of": "nobody"})
