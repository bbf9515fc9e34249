"""Tables that only an engine can write, in a pipeline file: what is refused before anything is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from frazil.batch.position import Position
from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.manifests import operation_of
from frazil.run.staging.record_spec import record_spec
from frazil.run.state.tables import closing_table, refuse_other_closing

DOC = {"type": "variant", "from": []}


def pipeline(*destinations: dict[str, Any], **changes: Any) -> Pipeline:
    """A pipeline of these destinations."""
    body = {"name": "docs", "source": {"topics": ["docs"]}, "destinations": list(destinations)}
    return Pipeline.model_validate(body | changes)


def table(columns: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A destination with a variant."""
    return {"table": "shop.docs", "columns": {"doc": DOC} if columns is None else columns} | changes


def test_variant_reaches_the_decoder_by_name() -> None:
    """What must be held against the rule of variants is known to the decoder, and to the engine."""
    variant_pipeline = pipeline(table({"doc": DOC, "text": {"type": "string", "from": []}}))
    spec = record_spec(variant_pipeline, pa.schema([("doc", pa.string()), ("text", pa.string())]))
    assert spec.variants == {"doc"}
    assert spec.sources == {"doc": (), "text": ()}
    operation = operation_of(variant_pipeline.destinations[0], Position(1, 0, "c"))
    assert operation is not None
    assert operation.variants == ("doc",)


def test_variant_table_keeps_its_position_in_the_ledger() -> None:
    """Its pipeline keeps the position in the ledger, though it has one destination; a plain one keeps it there."""
    tables = dict.fromkeys(("shop.docs", "shop.docs__ledger"))
    assert closing_table(pipeline(table()), tables) == "shop.docs__ledger"
    assert closing_table(pipeline(table({"id": "long"})), tables) == "shop.docs"
    version_3 = table({"id": "long"}, properties={"format-version": "3"})
    assert closing_table(pipeline(version_3), tables) == "shop.docs__ledger"
    orc = table({"id": "long"}, properties={"write.format.default": "ORC"})
    assert closing_table(pipeline(orc), tables) == "shop.docs__ledger"


def test_table_that_keeps_the_position_cannot_become_a_variant_table() -> None:
    """It was declared as Parquet when the pipeline began: commits that move the position are PyIceberg's."""
    orc = pipeline(table({"id": "long"}, properties={"write.format.default": "orc"}))

    refuse_other_closing(orc, "shop.docs__ledger")
    with pytest.raises(Terminal, match=r"keeps its position in table shop\.docs, and .* only Spark can write"):
        refuse_other_closing(orc, "shop.docs")


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        (table(properties={"format-version": "2"}), r"format-version is 2; columns of type variant \(doc\) need 3"),
        (table(partition_by=["doc"]), "'doc' is variant, which has no order"),
        (table(partition_by=["bucket(4, doc)"]), "'doc' is variant, which has no order"),
        (
            table({"doc": DOC, "id": "time"}),
            "Spark has no type time for it, and only Spark writes tables of format version 3",
        ),
        (table({"doc": DOC, "l": "list<time>"}), "Spark has no type time"),
        (table({"id": "time"}, properties={"write.format.default": "orc"}), "Spark has no type time"),
        (table({"id": "uuid"}, properties={"write.format.default": "orc"}), "Spark has no type uuid"),
        (table({"id": "long"}, properties={"write.format.default": "avro"}), "can do so in parquet and orc only"),
        (
            table({"id": "long"}, properties={"write.format.default": "orc", "format-version": "3"}),
            "can read times of ORC files in version 2 only",
        ),
    ],
)
def test_impossible_variant_table_is_refused(destination: dict[str, Any], message: str) -> None:
    """A file that asks for what the table can't be is refused."""
    with pytest.raises(ValidationError, match=message):
        pipeline(destination)


def test_variant_table_without_an_engine_is_refused() -> None:
    """The inline engine can't bring rows into such a table."""
    with pytest.raises(ValidationError, match=r"inline can't write shop\.docs, of format version 3"):
        pipeline(table(), engine="inline")
    assert pipeline(table({"id": "long"}), engine="inline").engine == "inline"


def test_fields_of_values_cannot_be_variants() -> None:
    """Only whole values have that type."""
    with pytest.raises(ValidationError, match="a field has no type variant"):
        pipeline(table(), value={"fields": {"a": "list<variant>"}})
