"""Pipeline files that batches ran under: kept by their hash beside the ledger, so that each batch is judged by its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frazil.errors import Terminal
from frazil.pipeline.files.outcome_rules import UnfitRulesError, pipeline_of, rules_file
from frazil.pipeline.files.references import References
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.value import Column
from frazil.verify.catalogs import FileGone, reading_tables
from frazil.verify.values.evolved_schema import columns_of
from frazil.verify.values.typed_expectation import SchemasOf, no_registry


@dataclass(frozen=True)
class FormerFiles:
    """Pipeline files that batches ran under, other than the present one.

    Attributes:
        files: Hash -> the pipeline as it was, or why that can't be told.
        schema: The columns of the destination as they are.
        names: Name that a column of the destination had once -> the one that it has.
        schemas: Knows the registries that formats need.
    """

    files: Mapping[str, Pipeline | str] = field(default_factory=dict)
    schema: Schema = field(default_factory=Schema)
    names: Mapping[str, str] = field(default_factory=dict)
    schemas: SchemasOf = no_registry

    def of_table(self, pipeline: Pipeline, table: str) -> dict[str, tuple[Pipeline, dict[str, Column]]]:
        """Files that had a destination of the same kind and key, and the columns that they gave it, by their present names."""
        now, found = pipeline.destination(table), {}
        for fingerprint, file in self.files.items():
            then = None if isinstance(file, str) or table not in file.tables else file.destination(table)
            if isinstance(file, str) or then is None or then.write != now.write or then.order_by != now.order_by:
                continue
            if not then.identifier and now.identifier:  # the table says it
                then = then.keyed(now.identifier)
                rest = [then if of.table == table else of for of in file.destinations]
                file = file.model_copy(update={"destinations": tuple(rest)})  # noqa: PLW2901
            if then.identifier == now.identifier:
                declared = columns_of(then, self.schema, file.value)
                found[fingerprint] = (
                    file,
                    {self.names[of]: _named(of, c) for of, c in declared.items() if of in self.names},
                )
        return found


def _named(name: str, column: Column) -> Column:
    """A column that takes the field of its name, whatever it is called by now."""
    return column.model_copy(update={"source": (name,)}) if column.source is None else column


NO_FORMER_FILES: Final = FormerFiles()


def former_files(
    ledger: Table, pipeline: Pipeline, hashes: Collection[str], references: References, made: Collection[str]
) -> dict[str, Pipeline | str]:
    """The pipeline as it was under other files, as far as they are kept beside the ledger; else why they can't be told."""
    found: dict[str, Pipeline | str] = {}
    for fingerprint in sorted({*hashes} - {pipeline.outcome_fingerprint}):
        path = ledger.location_provider().new_metadata_location(rules_file(pipeline.name, fingerprint))
        try:
            with reading_tables(f"reading {path}"), ledger.io.new_input(path).open() as stream:
                text = stream.read()
            found[fingerprint] = pipeline_of(text, pipeline, fingerprint, references).with_made(made)
        except FileGone:
            found[fingerprint] = "is not kept beside the ledger"
        except UnfitRulesError as error:
            found[fingerprint] = f"is kept beside the ledger, and {error}"
        except Terminal as error:  # a storage that lets nobody list may say so of a file that is not there
            found[fingerprint] = f"can't be read beside the ledger: {error.message}"
    return found


def present_names(metadata: TableMetadata) -> dict[str, str]:
    """Name that a column had once -> the one that it has. Left out are names that several columns had, and those that went."""
    present = {field.field_id: field.name for field in metadata.schema().fields}
    had: dict[str, set[int]] = {}
    for schema in metadata.schemas:
        for column in schema.fields:
            had.setdefault(column.name, set()).add(column.field_id)
    only = {name: next(iter(ids)) for name, ids in had.items() if len(ids) == 1}
    return {name: present[number] for name, number in only.items() if number in present}
