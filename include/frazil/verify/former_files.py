"""Reads former pipeline files, which are stored by hash beside the ledger, so that each batch is judged by its own file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frazil.errors import Terminal
from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import UnfitRulesError, pipeline_of, rules_file
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.value import Column
from frazil.pipeline.settings.catalogs import SUFFIX
from frazil.verify.catalogs import FileGone, reading_tables
from frazil.verify.values.column_readers import compared_columns
from frazil.verify.values.typed_expectation import SchemasOf, no_registry


@dataclass(frozen=True)
class FormerFiles:
    """Pipeline files that batches ran under, other than the present one, and how their columns map to a destination.

    Attributes:
        files: Hash -> the former pipeline, or the reason why it is unknown.
        schema: The present schema of the destination.
        names: Former name of a column of the destination -> its present name.
        schemas: Returns the schemas of a registry, for the formats of the files.
    """

    files: Mapping[str, Pipeline | str] = field(default_factory=dict)
    schema: Schema = field(default_factory=Schema)
    names: Mapping[str, str] = field(default_factory=dict)
    schemas: SchemasOf = no_registry

    def of_table(self, pipeline: Pipeline, table: str) -> dict[str, tuple[Pipeline, dict[str, Column]]]:
        """Hash -> each file that had a destination of the same kind and key, and its columns by their present names."""
        present, files = pipeline.destination(table), {}
        for fingerprint, file in self.files.items():
            if isinstance(file, str) or table not in file.tables:
                continue
            former, judged = file.destination(table), file
            if (former.write, former.order_by) != (present.write, present.order_by):
                continue
            if not former.identifier and present.identifier:  # an undeclared identifier is that of the table
                former = former.keyed(present.identifier)
                destinations = tuple(former if each.table == table else each for each in file.destinations)
                judged = file.model_copy(update={"destinations": destinations})
            if former.identifier == present.identifier:
                declared = compared_columns(former, self.schema, file.value)
                # The source is the former name: the column may have been renamed since.
                columns = {
                    self.names[name]: column.model_copy(update={"source": (name,)}) if column.source is None else column
                    for name, column in declared.items()
                    if name in self.names
                }
                files[fingerprint] = judged, columns
        return files


NO_FORMER_FILES: Final = FormerFiles()


def former_files(
    ledger: Table, pipeline: Pipeline, hashes: Collection[str], references: References, created_tables: Collection[str]
) -> dict[str, Pipeline | str]:
    """Hash of a former pipeline file -> its pipeline, or the reason why the file can't be read beside the ledger."""
    pipelines: dict[str, Pipeline | str] = {}
    for fingerprint in sorted({*hashes} - {pipeline.outcome_fingerprint}):
        name = rules_file(pipeline.name, fingerprint) + ledger.catalog.properties.get(SUFFIX, "")
        path = ledger.location_provider().new_metadata_location(name)
        try:
            with reading_tables(f"reading {path}"), ledger.io.new_input(path).open() as stream:
                text = stream.read()
            pipelines[fingerprint] = pipeline_of(text, pipeline, fingerprint, references).with_auto_created(
                created_tables
            )
        except FileGone:
            pipelines[fingerprint] = "is not kept beside the ledger"
        except UnfitRulesError as error:
            pipelines[fingerprint] = f"is kept beside the ledger, and {error}"
        except Terminal as error:  # a storage without permission to list may refuse access to a missing file
            pipelines[fingerprint] = f"can't be read beside the ledger: {error.message}"
    return pipelines


def present_names(metadata: TableMetadata) -> dict[str, str]:
    """Former name of a column -> its present name, without dropped columns and names that several columns had."""
    present = {field.field_id: field.name for field in metadata.schema().fields}
    ids_per_name: dict[str, set[int]] = {}
    for schema in metadata.schemas:
        for column in schema.fields:
            ids_per_name.setdefault(column.name, set()).add(column.field_id)
    only = {name: next(iter(ids)) for name, ids in ids_per_name.items() if len(ids) == 1}
    return {name: present[number] for name, number in only.items() if number in present}
