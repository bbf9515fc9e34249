"""A pipeline with one destination, and rows of its dead-letter table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.project import Project
from frazil.report.letter_reports import KeptReport, list_reports, report_new_letters

NAME = "shop.orders__dead_letters"
LEDGER = "shop.orders__ledger"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIDNIGHT = NOW.replace(hour=0)

SETTINGS = """
clusters: {local: {bootstrap_servers: "127.0.0.1:9"}}
catalogs: {lake: {uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}}
"""
ORDERS = """
name: orders
owner: team <b>
engine: inline
source: {topics: [orders]}
destinations: [{table: shop.orders, columns: {id: long}}]
"""


def letter(offset: int, **changed: Any) -> dict[str, Any]:
    """A row as batch 1 writes it."""
    about = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": NOW - timedelta(hours=1)}
    reason = {"code": "WRONG_TYPE", "stage": "convert", "path": "id", "message": 'id: expected a long, found "x"'}
    record = {"key": b"k", "value": b'{"id": "x"}', "headers": [{"key": "h", "value": b"v"}]}
    return {
        **about,
        **reason,
        **record,
        "_frazil_batch": 1,
        "attempts": 1,
        "landed_batch": None,
        "destination": None,
        **changed,
    }


POSITION = '{"v": 1, "n": 1, "epoch": 0, "cluster": "c", "topics": {}}'


def batch(n: int, **changed: Any) -> dict[str, Any]:
    """The ledger's row of a batch, for the dead-letter table; decided `n` minutes after midnight."""
    decided = MIDNIGHT + timedelta(minutes=n)
    times = dict.fromkeys(("planned_at", "started_at", "decided_at", "recorded_at"), decided)
    records = {"records_read": 9, "records_written": 0, "records_dead": 9, "records_filtered": 0}
    texts = {"dead_codes": "{}", "position": POSITION, "phases": "{}", "version": "0", "config": "0", "run": f"run {n}"}
    facts = {"pipeline": "orders", "epoch": 0, "batch": f"id {n}", "kind": "ingest", "table": NAME}
    return {
        **facts,
        **times,
        **records,
        **texts,
        "n": n,
        "role": "dead_letters",
        "rows": 9,
        "files": 1,
        "bytes": 1,
    } | changed


def make_report(project: Project, instant: datetime = NOW) -> KeptReport | None:
    """The report that a look finds something for."""
    return report_new_letters(project, project.pipeline("orders"), "run", instant)


def kept_reports(project: Project) -> list[KeptReport]:
    """The reports that are there, the newest first."""
    return list_reports(project, project.pipeline("orders"))


def with_file(project: Project, text: str) -> Project:
    """The project with another pipeline file."""
    (project.pipelines_folder / "orders.yaml").write_text(text)
    names = {"HOME": project.home.root, "SETTINGS": project.settings_file, "PIPELINES": project.pipelines_folder}
    return Project.load({f"FRAZIL_{name}": str(place) for name, place in names.items()})


def with_settings(project: Project, text: str) -> Project:
    """The project with more in its settings."""
    project.settings_file.write_text(project.settings_file.read_text() + text)
    return with_file(project, ORDERS)
