"""Pipelines that no look of the monitor reaches: their file is broken, or nobody watches them any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from frazil.project import Project
from frazil_airflow.book import (
    by_the_book,
    forget,
    forget_late,
    keep,
    late_variable,
    page_of,
    pages,
    variable_of,
    whole_page,
)
from frazil_airflow.callbacks import note_of
from frazil_airflow.factory import dag_id
from frazil_airflow.letter_reports import letters_dag_id
from frazil_airflow.letters_home import replay_dag_id
from frazil_airflow.maintenance import maintain_dag_id
from frazil_airflow.pipelines import broken_pipelines, sound_pipelines
from frazil_airflow.variables import Store

MISSED = 3
"""Looks, one after another, that must find no such pipeline: a deployment that is under way, or a folder that is away for a
moment, removes none."""


def tell_of_broken(project: Project, now: datetime, store: Store) -> list[str]:
    """Tell people of pipelines whose file no DAG can be made of: they stop without a failed run.

    Returns:
        Why channels were not told, and which files nobody could be told of, one line each.
    """
    from frazil.alerts.book import turned
    from frazil.alerts.notice import Notice

    found = []
    sound = {of.name for of in sound_pipelines(project)}
    for name, broken in broken_pipelines(project).items():
        if name in sound:  # of another file: one page can't say of both how they are
            found.append(f"a broken file is named as another pipeline: {broken.complaint}")
            continue
        cause, _, step = broken.complaint.partition("\n  next: ")
        title = f"{name}: its file is broken, it does not run"
        notice = Notice(name, broken.owner or "unknown", "refused", "critical", title, cause, step or "frazil validate")
        page = turned(page_of(store, name), {"refused": notice}, now)
        found += by_the_book(project, name, page, now, store)
    return found


def close_unwatched(project: Project, now: datetime, store: Store) -> list[str]:
    """Tell people that troubles of pipelines that nobody watches any more are over, and forget these pipelines.

    Returns:
        Why channels were not told, one line each.
    """
    usable = project.pipelines.usable
    unwatched = pages(store) - {name for name, of in usable.items() if of.alerts is not False}
    if project.pipelines.broken:  # a file that can't be read may be that of any
        unwatched &= usable.keys()
    problems = []
    for name in sorted(unwatched):
        if name in usable:
            problems += _close(project, name, "Its file says alerts: false.", now, store)
            continue
        page = page_of(store, name)
        page = replace(page, missed=page.missed + 1)
        keep(store, name, page)
        if page.missed >= MISSED:  # a file that could not be read was told of under its own name
            problems += _close(project, name, "No pipeline has this name, and no broken file.", now, store)
    return problems


def _close(project: Project, name: str, why: str, now: datetime, store: Store) -> list[str]:
    from frazil.alerts.book import closed

    late = store.get(late_variable(name))
    page = closed(whole_page(store, name, late), now, f"{why} Nobody watches it.")
    problems = by_the_book(project, name, page, now, store)
    forget_late(store, name, late)  # or it would be over at each look anew
    if not page_of(store, name).entries:
        notes = (dag_id(name), maintain_dag_id(name), letters_dag_id(name), replay_dag_id(name))
        forget(store, *map(note_of, notes), variable_of(name))
    return problems
