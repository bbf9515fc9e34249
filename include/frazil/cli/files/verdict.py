"""Whether settings and pipeline files can be used, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from frazil.pipeline.files.folder import files_of_same_name, load_capture, load_captures, load_pipelines
from frazil.pipeline.files.load import ConfigError, load_pipeline, load_settings
from frazil.pipeline.files.references import References
from frazil.pipeline.settings.capture import FileCapture, unknown_in_capture
from frazil.pipeline.settings.settings import Settings, unfit_catalogs, unknown_names
from frazil.pipeline.syntax.patterns import refused_because
from frazil.project import Places
from frazil.run.staging.record_problems import record_problems, remarks


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one file. Without problems the file is valid; remarks point at likely mistakes."""

    file: str
    kind: Literal["settings", "pipeline", "capture"]
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def judge(files: list[Path], env: Mapping[str, str]) -> list[Verdict]:
    """Check files, or the whole project when there are none. Names of settings that pipelines use are checked too."""
    places = Places.resolve(env)
    references, settings_file = places.references, places.settings_file
    settings, about_settings = _settings(settings_file, references)
    if settings is not None:
        references = references.allowing(settings.references.allow)
    pipeline, capture = (partial(check, references=references, settings=settings) for check in (_pipeline, _capture))
    if files:
        chosen = [file for file in files if file != settings_file]
        verdicts = [(capture if file.parent == places.captures_folder else pipeline)(file) for file in chosen]
        folders = (places.pipelines_folder, places.captures_folder)
        verdicts = [_with_shared_name(v) if Path(v.file).parent in folders else v for v in verdicts]
        return [*([about_settings] if settings_file in files else []), *verdicts]
    pipelines = load_pipelines(places.pipelines_folder, references)
    captures = load_captures(places.captures_folder, references)
    return [
        about_settings,
        *_folder(places.pipelines_folder, pipelines.broken, pipeline),
        *_folder(places.captures_folder, captures.broken, capture),
    ]


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
    unfit = (*unknown_names(pipeline, settings), *unfit_catalogs(pipeline, settings)) if settings else ()
    problems, remarks_of_file = (
        tuple(map(references.hidden, lines)) for lines in ((*unfit, *record_problems(pipeline)), remarks(pipeline))
    )
    return Verdict(str(file), "pipeline", problems, remarks_of_file)


def _capture(file: Path, references: References, settings: Settings | None) -> Verdict:
    try:
        capture = load_capture(file, references)
    except ConfigError as error:
        return Verdict(str(file), "capture", tuple(error.problems))
    pattern = capture.key_pattern if isinstance(capture, FileCapture) else None
    refused = None if pattern is None else refused_because(pattern)
    missing = unknown_in_capture(capture, settings) if settings else ()
    problems = (*([] if refused is None else [f"key_pattern: {refused}"]), *missing)
    return Verdict(str(file), "capture", tuple(map(references.hidden, problems)))


def _with_shared_name(verdict: Verdict) -> Verdict:
    if verdict.problems or not (same := files_of_same_name(Path(verdict.file))):
        return verdict
    return replace(
        verdict, problems=(f"name: is the name of several files, so none of them runs: {', '.join(map(str, same))}",)
    )


def _folder(folder: Path, broken: Iterable[ConfigError], judged: Callable[[Path], Verdict]) -> list[Verdict]:
    """Check every file alone, then names that two files share."""
    shared = {str(error.file): tuple(error.problems) for error in broken}
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    verdicts = [judged(file) for file in files]
    return [replace(v, problems=v.problems or shared.get(v.file, ())) for v in verdicts]
