"""Whether settings, pipelines and captures can be used, and what changed in them since a revision of the git repository,
such as the target of a pull request.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from frazil.capture.change_impact import capture_impact
from frazil.cli.output import console
from frazil.error_codes import BAD_ARGUMENT, PROGRAM_MISSING
from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import (
    CAPTURES,
    CaptureChange,
    Impact,
    PipelineChange,
    Weight,
    capture_difference,
    difference,
    files_of_same_name,
    key_changes,
    load_capture,
    load_captures,
    load_pipelines,
)
from frazil.pipeline.files.load import SCHEMAS, ConfigError, load_pipeline, load_settings
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import FileCapture, unknown_in_capture
from frazil.pipeline.settings.settings import Settings, unfit_catalogs, unknown_names
from frazil.pipeline.syntax.patterns import refused_because
from frazil.project import Places, Project
from frazil.run.batches.apply import change_impact
from frazil.run.staging.record_problems import record_problems, remarks


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one file. Without problems the file is valid; remarks point at likely mistakes."""

    file: str
    kind: Literal["settings", "pipeline", "capture"]
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def judge(files: list[Path], env: Mapping[str, str]) -> list[Verdict]:
    """Check files, or the whole project if none is given. Pipelines and captures must name entries that the settings have.

    Without files, the first verdict is that of the settings.
    """
    places = Places.resolve(env)
    references, settings_file = places.references, places.settings_file
    settings, settings_verdict = _judge_settings(settings_file, references)
    if settings is not None:
        references = references.allowing(settings.references.allow)
    pipeline, capture = (
        partial(check, references=references, settings=settings) for check in (_judge_pipeline, _judge_capture)
    )
    if files:
        chosen = [file for file in files if file != settings_file]
        verdicts = [(capture if file.parent == places.captures_folder else pipeline)(file) for file in chosen]
        folders = (places.pipelines_folder, places.captures_folder)
        verdicts = [_refuse_shared_name(v) if Path(v.file).parent in folders else v for v in verdicts]
        return [*([settings_verdict] if settings_file in files else []), *verdicts]
    pipelines = load_pipelines(places.pipelines_folder, references)
    captures = load_captures(places.captures_folder, references)
    return [
        settings_verdict,
        *_judge_folder(places.pipelines_folder, pipelines.broken, pipeline),
        *_judge_folder(places.captures_folder, captures.broken, capture),
    ]


def _judge_settings(file: Path, references: References) -> tuple[Settings | None, Verdict]:
    try:
        return load_settings(file, references), Verdict(str(file), "settings")
    except ConfigError as error:
        return None, Verdict(str(file), "settings", tuple(error.problems))


def _judge_pipeline(file: Path, references: References, settings: Settings | None) -> Verdict:
    try:
        pipeline = load_pipeline(file, references)
    except ConfigError as error:
        return Verdict(str(file), "pipeline", tuple(error.problems))
    misfits = (*unknown_names(pipeline, settings), *unfit_catalogs(pipeline, settings)) if settings else ()
    problems, warnings = (
        tuple(map(references.hidden, lines)) for lines in ((*misfits, *record_problems(pipeline)), remarks(pipeline))
    )
    return Verdict(str(file), "pipeline", problems, warnings)


def _judge_capture(file: Path, references: References, settings: Settings | None) -> Verdict:
    try:
        capture = load_capture(file, references)
    except ConfigError as error:
        return Verdict(str(file), "capture", tuple(error.problems))
    pattern = capture.key_pattern if isinstance(capture, FileCapture) else None
    refusal = None if pattern is None else refused_because(pattern)
    missing = unknown_in_capture(capture, settings) if settings else ()
    problems = (*([] if refusal is None else [f"key_pattern: {refusal}"]), *missing)
    return Verdict(str(file), "capture", tuple(map(references.hidden, problems)))


def _refuse_shared_name(verdict: Verdict) -> Verdict:
    if verdict.problems or not (same := files_of_same_name(Path(verdict.file))):
        return verdict
    return replace(
        verdict, problems=(f"name: is the name of several files, so none of them runs: {', '.join(map(str, same))}",)
    )


def _judge_folder(folder: Path, broken: Iterable[ConfigError], judge_file: Callable[[Path], Verdict]) -> list[Verdict]:
    """Check every file of a folder. One that is valid by itself may still be broken, by a name that two files share."""
    shared = {str(error.file): tuple(error.problems) for error in broken}
    verdicts = [judge_file(file) for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])]
    return [replace(v, problems=v.problems or shared.get(v.file, ())) for v in verdicts]


@contextmanager
def revision_files(places: Places, revision: str) -> Iterator[tuple[Path, Path]]:
    """Copy pipelines, captures, schemas and settings of a revision into a temporary folder.

    Yields:
        The folder of pipeline files, and the path of the settings file, which exists only if the revision has one.

    Raises:
        Terminal: There is no such revision, or the files are in no git repository.
    """
    folder = places.pipelines_folder.resolve()
    top = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).strip())
    _git(
        folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", revision_name=revision
    )
    with TemporaryDirectory(prefix="frazil-") as temporary:
        root = Path(temporary)
        pipelines, settings_copy = root / "files" / "pipelines", root / "settings.yaml"
        pipelines.mkdir(parents=True)
        for name in (folder, folder.parent / SCHEMAS, folder.parent / CAPTURES):
            _copy(top, revision, name, pipelines.parent / ("pipelines" if name == folder else name.name))
        settings = places.settings_file.resolve()
        if settings.is_relative_to(top):
            relative = settings.relative_to(top).as_posix()
            if _git(top, "ls-tree", "--name-only", revision, "--", relative):
                settings_copy.write_bytes(_git(top, "show", f"{revision}:{relative}"))
        yield pipelines, settings_copy


def _copy(top: Path, revision: str, folder: Path, target: Path) -> None:
    """Copy a folder of a revision. A folder outside the repository is skipped: no revision has it."""
    if not folder.is_relative_to(top):
        return
    relative = folder.relative_to(top).as_posix()
    file_names = _git(top, "ls-tree", "-r", "-z", "--name-only", revision, "--", f"{relative}/")
    for name in filter(None, os.fsdecode(file_names).split("\0")):
        copy = target / Path(name).relative_to(relative)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(_git(top, "show", f"{revision}:{name}"))


def _git(folder: Path, *arguments: str, revision_name: str | None = None) -> bytes:
    program = shutil.which("git")
    if program is None:
        raise PROGRAM_MISSING.terminal(
            "git is not installed", next_step="install it: --diff reads the files of a revision with it"
        )
    done = subprocess.run([program, "-C", str(folder), *arguments], capture_output=True, check=False)
    if done.returncode:
        message = (
            f"{folder}: no revision is named {revision_name!r}"
            if revision_name
            else f"git in {folder}: {done.stderr.decode(errors='replace').strip()}"
        )
        step = "name a branch, a tag or a commit of the repository of the pipeline files"
        raise BAD_ARGUMENT.terminal(message, next_step=step)
    return done.stdout


_STYLES: Mapping[Weight, str] = {"info": "", "warning": "yellow", "refused": "bold red"}
_MARKS: Mapping[Weight, str] = {"info": "", "warning": "**warning:** ", "refused": "**refused:** "}


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed pipeline or capture, and the effects of the change."""

    change: PipelineChange | CaptureChange
    effects: tuple[Impact, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes of the present files since a revision.

    Attributes:
        revision: A branch, tag or commit.
        pipelines: Changed pipelines.
        captures: Changed captures.
        settings: Keys of the settings that changed.
        remarks: About files of the revision that can't be used.
    """

    revision: str
    pipelines: tuple[ChangedFile, ...]
    captures: tuple[ChangedFile, ...]
    settings: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def files(self) -> tuple[ChangedFile, ...]:
        """Pipelines and captures."""
        return (*self.pipelines, *self.captures)

    @property
    def is_refused(self) -> bool:
        """Whether the next run of a pipeline or a capture would be refused."""
        return any(effect.weight == "refused" for file in self.files for effect in file.effects)

    def to_json(self) -> dict[str, object]:
        """The difference as a JSON object."""
        bodies = [
            [{"name": file.change.name, "kind": file.change.kind, "effects": file.effects} for file in files]
            for files in (self.pipelines, self.captures)
        ]
        return {
            "revision": self.revision,
            "refused": self.is_refused,
            "pipelines": bodies[0],
            "captures": bodies[1],
            "settings": self.settings,
            "remarks": self.remarks,
        }


def compare(places: Places, project: Project, revision: str, *, offline: bool) -> Difference:
    """Compare the present files, which must be valid, with those of a revision.

    Raises:
        Terminal: There is no such revision.
    """
    references = places.references.allowing(project.settings.references.allow)
    with revision_files(places, revision) as (pipelines_folder, settings_file):
        old_pipelines = load_pipelines(pipelines_folder, references)
        old_captures = load_captures(pipelines_folder.parent / CAPTURES, references)
        remarks = [
            f"{error.file.name} of {revision} can't be used, its {kind} counts as new"
            for kind, files in (("pipeline", old_pipelines), ("capture", old_captures))
            for error in files.broken
        ]
        settings: tuple[str, ...] = ()
        if settings_file.exists():
            try:
                old = load_settings(settings_file, places.references)
                settings = tuple(key.path for key in key_changes(old, project.settings))
            except ConfigError:
                remarks.append(f"the settings of {revision} can't be used")

    def changed(change: PipelineChange | CaptureChange, effects: Iterable[Impact]) -> ChangedFile:
        return ChangedFile(change, tuple(replace(effect, text=references.hidden(effect.text)) for effect in effects))

    changed_pipelines = tuple(
        changed(change, change_impact(change, project, offline=offline))
        for change in difference(old_pipelines.usable, project.pipelines.usable)
    )
    changed_captures = tuple(
        changed(capture_change, capture_impact(capture_change))
        for capture_change in capture_difference(old_captures.usable, project.captures.usable)
    )
    return Difference(revision, changed_pipelines, changed_captures, settings, tuple(remarks))


def show(comparison: Difference) -> None:
    """Print the difference for people."""
    from rich.text import Text

    console.say(Text(f"against {comparison.revision}:", style="bold"))
    for file in comparison.files:
        console.say(Text.assemble((f"{file.change.kind:8}", "cyan"), _title(file.change)))
        for effect in file.effects:
            label = "" if effect.weight == "info" else f"{effect.weight}: "
            console.say(Text.assemble(" " * 10, (label, _STYLES[effect.weight]), effect.text))
    for line in (*_settings_lines(comparison), *comparison.remarks):
        console.say(line)
    if not comparison.files and not comparison.settings:
        console.say("nothing changes")


def markdown(comparison: Difference) -> str:
    """The difference in Markdown, for a comment on a pull request."""
    lines = [f"### Pipelines against `{comparison.revision}`", ""]
    for file in comparison.files:
        lines += [f"**{_title(file.change)}** ({file.change.kind})", ""]
        lines += [f"- {_MARKS[effect.weight]}{_plain(effect.text)}" for effect in file.effects]
        lines.append("")
    lines += [f"- {_plain(line)}" for line in (*_settings_lines(comparison), *comparison.remarks)]
    if not comparison.files and not comparison.settings:
        lines.append("Nothing changes.")
    elif comparison.is_refused:
        lines += ["", "Something here would be refused by the next run."]
    return "\n".join(lines).rstrip() + "\n"


def _title(change: PipelineChange | CaptureChange) -> str:
    flow = change.after or change.before
    kind = "" if flow is None or isinstance(flow, Pipeline) else "capture "
    name = f"{change.before.name} -> {change.name}" if change.kind == "renamed" and change.before else change.name
    return f"{kind}{name}"


def _settings_lines(comparison: Difference) -> list[str]:
    return [f"settings changed: {', '.join(comparison.settings)}"] if comparison.settings else []


def _plain(text: str) -> str:
    """Escape text from files and tables, so that Markdown shows it literally on one line."""
    escaped = "".join(
        f"\\{character}" if character in "\\`*_<>[]|~" else character for character in " ".join(text.split())
    )
    return escaped.replace("@", "@\u200b")  # a space without width: a name of a column or owner must notify nobody
