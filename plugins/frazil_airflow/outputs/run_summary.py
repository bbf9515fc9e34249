"""The result of a run in Airflow: the extra of the asset event, the run's note, written through Airflow's REST API,
and its metrics.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Connection

from frazil.batch.facts import UnknownFields
from frazil.batch.plan import RunPlan
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.monitor.metrics import Sample
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow
from frazil.run.batches.plan import RunResult
from frazil_airflow.compat import AirflowNotFoundException, Stats, conf
from frazil_airflow.outputs.assets import destination_assets
from frazil_airflow.project.secrets import Variables

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from frazil.monitor.condition import Runs
    from frazil.run.batches.dry_run import DryRun
    from frazil.runtime.airflow_api import AirflowApi


_NOTE_MARK = "Frazil: "
"""Begins our line of a note, so that another try replaces it and leaves the lines of people alone."""


def facts_of(result: RunResult, plan: RunPlan) -> dict[str, Any]:
    """Return the facts of a planned run from the tables' asset events."""
    return event_facts(result, plan.mode, plan.reason, plan.planned_at if plan.complete else None)


def event_facts(
    result: RunResult, mode: str, reason: str | None, complete_through: str | None = None
) -> dict[str, Any]:
    """Return the facts of a run from the tables' asset events.

    Snapshot ids are text: they have 64 bits, and JSON numbers are only safe up to 53.
    """
    return {
        "pipeline": result.pipeline,
        "run": result.run,
        "mode": mode,
        "reason": reason,
        "batches": result.batches,
        "read": result.read,
        "rows": result.written,
        "dead_letters": result.dead,
        "dead_codes": dict(result.dead_codes),
        "filtered": result.filtered,
        "unknown_records": result.unknown_fields.records,
        "unknown_fields": dict(result.unknown_fields.names),
        "changes": {table: asdict(counts) for table, counts in result.changes.items()},
        "position": {topic: list(offsets) for topic, offsets in result.position.items()},
        "snapshot_ids": [str(snapshot) for snapshot in result.snapshots],
        "complete_through": complete_through,
        "seconds": result.seconds,
    }


def event_extras(pipeline: Pipeline, result: RunResult, facts: Mapping[str, Any]) -> list[tuple[Asset, dict[str, Any]]]:
    """Return the tables that a pipeline announces, and the extra of the event of each."""
    rows = {**result.rows, pipeline.ledger_table: sum(result.rows.values())}  # which stands for all of its tables
    return [
        (asset, {**facts, "table_rows": rows.get(table, 0)}) for table, asset in destination_assets(pipeline).items()
    ]


def sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts as one line for people."""
    batches = f"{facts['batches']} batch" + ("" if facts["batches"] == 1 else "es")
    dead = _dead(facts["dead_letters"], facts["dead_codes"])
    # A backtick of a person would end the code spans in which names of fields stand.
    reason = (facts["reason"] or "none given").replace("`", "'")
    mode = "" if facts["mode"] == "ingest" else f"{facts['mode']}, reason: {reason}; "
    summary = (
        f"{mode}{facts['rows']:,} rows, {dead}, {facts['filtered']:,} filtered in {batches}, {facts['seconds']:.1f} s"
    )
    if left_out := UnknownFields(facts["unknown_records"], facts["unknown_fields"]).summary:
        summary = f"{summary}; {left_out}"
    through = facts["complete_through"]
    return f"{summary}; complete through {through}" if through else summary


def _dead(letters: int, codes: Mapping[str, int]) -> str:
    by_code = ", ".join(f"{code} {count:,}" for code, count in sorted(codes.items()))
    return f"{letters:,} dead letters ({by_code})" if codes else f"{letters:,} dead letters"


def look_sentence(look: DryRun) -> str:
    """Return the result of a dry run as one line for people."""
    counts = look.counts
    summary = (
        f"dry run, nothing was landed; looked at {look.looked_at:,} of {look.offsets:,} offsets ({look.bytes:,} bytes):"
        f" {counts.written:,} rows, {_dead(counts.dead, look.dead_codes)}, {counts.filtered:,} filtered,"
        f" {look.seconds:.1f} s"
    )
    if left_out := look.unknown_fields.summary:
        summary = f"{summary}; {left_out}"
    return f"{summary}; a run would not publish this: {look.too_many_dead}" if look.too_many_dead else summary


def sample_lines(look: DryRun) -> Iterator[str]:
    """Return a dead letter of each code, one line each: where its record is and what was wrong."""
    for code, letter in look.samples.items():
        place = f"topic {letter.topic}, partition {letter.partition}, offset {letter.offset}"
        yield f"dead letter {code}, {place}: {letter.message}"


def with_facts(note: str | None, paragraph: str) -> str:
    """Return the note of a run as Markdown, with Frazil's paragraph at its end, replacing an earlier one."""
    note_of_others = "\n".join(line for line in (note or "").splitlines() if not line.startswith(_NOTE_MARK)).strip()
    return f"{note_of_others}\n\n{_NOTE_MARK}{paragraph}".strip()


CONNECTION = "frazil_api"

_COMPLAINT = "frazil_api_complaint"
"""Airflow Variable: the day, in UTC, on which a log last said that Airflow's REST API gives nothing, and the kinds of reasons that
logs of this day have.
"""

_log = logging.getLogger(__name__)


def write_note(run: Any, summary: str) -> None:
    """Put a line into the note of Airflow's run. The data has landed by now, so a note that fails is a line of a log."""

    def write(api: AirflowApi) -> None:
        api.note(run.dag_id, run.run_id, with_facts(api.run(run.dag_id, run.run_id).note, summary))

    _ask(write)


def runs_of(flows: Sequence[Flow]) -> Mapping[str, Runs]:
    """Return Airflow's run states of pipelines and captures by unique name; empty if its API is not available."""
    from frazil.monitor.watch import fetch_runs

    runs: Mapping[str, Runs] | None = _ask(lambda api: fetch_runs(api, [flow.unique_name for flow in flows]))
    return runs or {}


def _ask(request: Callable[[AirflowApi], Any]) -> Any:
    """Ask Airflow's REST API. Return None if there is no login for it, or it does not answer, or refuses, or anything else."""
    from frazil.runtime.airflow_api import AirflowApi
    from frazil.runtime.airflow_login import token_maker

    try:
        login = Connection.get(CONNECTION)
        user, password = login.login or "", login.password or ""
        make_token = None if user else token_maker(password, f"the password of the Airflow connection {CONNECTION!r}")
        with AirflowApi(address(login), user, password, make_token) as api:
            return request(api)
    except AirflowNotFoundException:
        step = f"airflow connections add {CONNECTION} --conn-type http --conn-host URL --conn-login USER --conn-password PASSWORD"
        _complain("missing", f"there is no Airflow connection {CONNECTION}", step)
    except FrazilError as error:
        step = f"correct the Airflow connection {CONNECTION}; its user must be allowed to read DAGs and to edit runs"
        own_step = error.next_step if isinstance(error, Terminal) else None  # `frazil up` starts no Airflow of a task
        _complain("away" if isinstance(error, Retryable) else "refused", error.message_with_code, own_step or step)
    except Exception as error:  # noqa: BLE001 - records have landed, alerts are due: no answer may stop the task
        step = f"check what answers at the address of the Airflow connection {CONNECTION}"
        _complain("odd", f"asking Airflow's REST API failed with {type(error).__name__}", step)
    return None


def _complain(kind: str, problem: str, step: str) -> None:
    """Say in the log of one task a day, for each kind of reason, what lacks. Each run asks, and so does each look of the monitor."""
    today, store = f"{datetime.now(UTC):%Y-%m-%d}", Variables()
    logged: list[str] = []
    with suppress(Exception):  # Airflow's database or a secrets backend: a line too many, rather than a failed task
        logged = (store.get(_COMPLAINT) or "").split()
    if {today, kind} <= {*logged}:
        return
    text = (
        "%s. So runs get no notes, and the monitor reads results of runs from the tables alone. Alerts are sent all the same."
        " No other task says so today.\n  next: %s"
    )
    _log.log(logging.INFO if kind == "missing" else logging.WARNING, text, problem, step)
    kinds_today = [*(logged if today in logged else [today]), kind]
    with suppress(Exception):
        store.set(_COMPLAINT, " ".join(kinds_today), "Frazil: the day on which a task's log said why runs get no notes")


def address(login: Connection) -> str:
    """Return the base address of the API: the host as it is when it names its scheme, else http."""
    host = login.host or "localhost"
    base = host if "://" in host else f"{login.schema or 'http'}://{host}"
    return f"{base}:{login.port}" if login.port else base


# Where none is switched on this costs nothing. Plain StatsD drops tags, so there their values end the name, as in Airflow's
# own names: `airflow.frazil.lag.records.orders`.

_UNFIT = re.compile(r"[^a-zA-Z0-9_.-]")
"""What Airflow lets no name of a metric hold."""


def emit(samples: Iterable[Sample]) -> None:
    """Send values. Counters add up: those of a run are sent once per run."""
    tagged = carries_tags()
    for sample in samples:
        tags = {name: _UNFIT.sub("_", value) for name, value in sample.tags.items()}
        name = sample.metric.name if tagged else full_name(sample.metric.name, tags.values())
        match sample.metric.kind:
            case "counter":
                Stats.incr(name, int(sample.value), tags=tags)
            case "gauge":
                Stats.gauge(name, sample.value, tags=tags)
            case "timing":
                Stats.timing(name, timedelta(seconds=sample.value), tags=tags)


def are_sent() -> bool:
    """Return whether Airflow sends metrics anywhere: without, figures used only by metrics need not be read."""
    switches = ("statsd_on", "statsd_datadog_enabled", "otel_on")
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in switches)


def carries_tags() -> bool:
    """Return whether tags reach the receiver: anywhere but in plain StatsD.

    In the order in which Airflow chooses where to send to (`get_stats_factory`): Datadog, StatsD, OpenTelemetry.
    """
    if conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_datadog_metrics_tags", fallback=True))
    if conf.getboolean("metrics", "statsd_on", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
    return True


def full_name(name: str, values: Iterable[str]) -> str:
    """Return a name that ends with the values of its tags. A dot parts names, so it is written `__` inside a value."""
    return ".".join([name, *(value.replace(".", "__") for value in values)])
