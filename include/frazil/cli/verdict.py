"""Whether settings and pipeline files can be used, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from frazil.pipeline.folder import load_pipelines
from frazil.pipeline.load import ConfigError, load_pipeline, load_settings
from frazil.pipeline.references import References
from frazil.pipeline.settings import Settings, unfit_catalogs, unknown_names
from frazil.project import Places
from frazil.run.record_problems import record_problems, remarks


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one file; no problems means that it can be used. Remarks are what a person may not have meant."""

    file: str
    kind: Literal["settings", "pipeline"]
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def judge(files: list[Path], env: Mapping[str, str]) -> list[Verdict]:
    """Check files, or the whole project when there are none. Names of settings that pipelines use are checked too."""
    places = Places.resolve(env)
    references, settings_file = places.references, places.settings_file
    settings, about_settings = _settings(settings_file, references)
    if files:
        chosen = [file for file in files if file != settings_file]
        pipelines = [_pipeline(file, references, settings) for file in chosen]
        return [*([about_settings] if settings_file in files else []), *pipelines]
    return [about_settings, *_folder(places.pipelines_folder, references, settings)]


def _settings(file: Path, references: References) -> tuple[Settings | None, Verdict]:
    try:
        return load_settings(file, references), Verdict(str(file), "settings")
    except ConfigError as error:
        return None, Verdict(str(file), "settings", tuple(error.problems))


def _pipeline(file: Path, references: References, settings: Settings | None) -> Verdict:
    try:
        pipeline = load_pipeline(file, references)
    except ConfigError as error:
        return Verdict(str(file), "pipeline", tuple(error.problems))
    unknown = (*unknown_names(pipeline, settings), *unfit_catalogs(pipeline, settings)) if settings else ()
    return Verdict(str(file), "pipeline", (*unknown, *record_problems(pipeline)), remarks(pipeline))


def _folder(folder: Path, references: References, settings: Settings | None) -> list[Verdict]:
    """Every file on its own, then what only shows beside the others: a name that is taken."""
    together = {str(error.file): tuple(error.problems) for error in load_pipelines(folder, references).broken}
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    alone = [_pipeline(file, references, settings) for file in files]
    return [replace(v, problems=v.problems or together.get(v.file, ())) for v in alone]
