"""`frazil validate --diff`: what a pull request would change, for people, programs and comments."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from frazil.cli import console
from frazil.cli.revision import files_of
from frazil.pipeline.difference import PipelineChange, difference, key_changes
from frazil.pipeline.folder import load_pipelines
from frazil.pipeline.load import ConfigError, load_settings
from frazil.project import Places, Project
from frazil.run.effects import Effect, Weight, effects

if TYPE_CHECKING:
    from rich.text import Text

_STYLES: Mapping[Weight, str] = {"info": "", "warning": "yellow", "refused": "bold red"}
_MARKS: Mapping[Weight, str] = {"info": "", "warning": "**warning:** ", "refused": "**refused:** "}


@dataclass(frozen=True, slots=True)
class Told:
    """One pipeline that differs, and what that does."""

    change: PipelineChange
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What the files in force change against a revision.

    Attributes:
        revision: Name of the revision.
        pipelines: The pipelines that differ.
        settings: Keys of the settings that differ, without their values.
        remarks: Files of the revision that can't be read.
    """

    revision: str
    pipelines: tuple[Told, ...]
    settings: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether the next run of a pipeline would refuse."""
        return any(effect.weight == "refused" for told in self.pipelines for effect in told.effects)

    def to_json(self) -> dict[str, object]:
        """The same as JSON values."""
        pipelines = [
            {"name": of.change.name, "kind": of.change.kind, "effects": [asdict(effect) for effect in of.effects]}
            for of in self.pipelines
        ]
        return {
            "revision": self.revision,
            "refused": self.is_refused,
            "pipelines": pipelines,
            "settings": self.settings,
            "remarks": self.remarks,
        }


def compare(places: Places, project: Project, revision: str, *, offline: bool) -> Difference:
    """Compare the files in force, which can be used, with those of a revision.

    Raises:
        Terminal: There is no such revision.
    """
    references = places.references.allowing(project.settings.references.allow)
    with files_of(places, revision) as files:
        before = load_pipelines(files.pipelines, references)
        remarks = [
            f"{error.file.name} of {revision} can't be used, its pipeline counts as new" for error in before.broken
        ]
        settings: tuple[str, ...] = ()
        if files.settings.exists():
            try:
                old = load_settings(files.settings, places.references)
                settings = tuple(key.path for key in key_changes(old, project.settings))
            except ConfigError:
                remarks.append(f"the settings of {revision} can't be used")
    told = tuple(
        Told(
            change,
            tuple(replace(of, text=references.hidden(of.text)) for of in effects(change, project, offline=offline)),
        )
        for change in difference(before.usable, project.pipelines.usable)
    )
    return Difference(revision, told, settings, tuple(remarks))


def show(found: Difference) -> None:
    """Print it for people."""
    from rich.text import Text

    out = console.out()
    out.print(Text(f"against {found.revision}:", style="bold"))
    for told in found.pipelines:
        out.print(Text.assemble((f"{told.change.kind:8}", "cyan"), _title(told.change)), soft_wrap=True)
        for effect in told.effects:
            out.print(_line(effect), soft_wrap=True)
    for line in (*_settings(found), *found.remarks):
        console.say(line)
    if not found.pipelines and not found.settings:
        console.say("nothing changes")


def markdown(found: Difference) -> str:
    """The same for a comment on a pull request."""
    lines = [f"### Pipelines against `{found.revision}`", ""]
    for told in found.pipelines:
        lines += [f"**{_title(told.change)}** ({told.change.kind})", ""]
        lines += [f"- {_MARKS[effect.weight]}{_plain(effect.text)}" for effect in told.effects]
        lines.append("")
    lines += [f"- {_plain(line)}" for line in (*_settings(found), *found.remarks)]
    if not found.pipelines and not found.settings:
        lines.append("Nothing changes.")
    elif found.is_refused:
        lines += ["", "Something here would be refused by the next run."]
    return "\n".join(lines).rstrip() + "\n"


def _title(change: PipelineChange) -> str:
    return f"{change.before.name} -> {change.name}" if change.kind == "renamed" and change.before else change.name


def _line(effect: Effect) -> "Text":
    from rich.text import Text

    mark = "" if effect.weight == "info" else f"{effect.weight}: "
    return Text.assemble(" " * 10, (mark, _STYLES[effect.weight]), effect.text)


def _settings(found: Difference) -> list[str]:
    return [f"settings changed: {', '.join(found.settings)}"] if found.settings else []


def _plain(text: str) -> str:
    """Text of files and tables as Markdown that shows it as it is, on one line."""
    escaped = "".join(f"\\{of}" if of in "\\`*_<>[]|~" else of for of in " ".join(text.split()))
    return escaped.replace("@", "@\u200b")  # names of columns and owners are no mentions
