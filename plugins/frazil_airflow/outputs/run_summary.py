"""Shows a run's result in Airflow: in asset events, in the run's note, through Airflow's REST API, and as metrics."""

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
"""Beginning of Frazil's line in a note. Another try replaces that line and keeps the lines of people."""


def run_facts(result: RunResult, plan: RunPlan) -> dict[str, Any]:
    """Return the facts of a planned run for the events of its tables' assets."""
    return event_facts(result, plan.mode, plan.reason, plan.planned_at if plan.complete else None)


def event_facts(
    result: RunResult, mode: str, reason: str | None, complete_through: str | None = None
) -> dict[str, Any]:
    """Return the facts of a run for the events of its tables' assets.

    Snapshot ids are texts, because they have 64 bits and JSON numbers are exact up to 53 bits only.
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
    """Return the assets of a pipeline, each with the extra of its event."""
    # The ledger's asset stands for tables that records name.
    rows = {**result.rows, pipeline.ledger_table: sum(result.rows.values())}
    return [
        (asset, {**facts, "table_rows": rows.get(table, 0)}) for table, asset in destination_assets(pipeline).items()
    ]


def sentence(facts: Mapping[str, Any]) -> str:
    """Return the facts as one line for people."""
    batches = f"{facts['batches']} batch" + ("" if facts["batches"] == 1 else "es")
    dead = _dead(facts["dead_letters"], facts["dead_codes"])
    # A backtick would end the code spans that quote names of fields.
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


def dry_run_sentence(look: DryRun) -> str:
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
    """Yield a line per code with a sample: the place of the record and the message of its dead letter."""
    for code, letter in look.samples.items():
        place = f"topic {letter.topic}, partition {letter.partition}, offset {letter.offset}"
        yield f"dead letter {code}, {place}: {letter.message}"


def with_paragraph(note: str | None, paragraph: str) -> str:
    """Return a run's note with Frazil's paragraph at its end, in place of an earlier one."""
    other_lines = "\n".join(line for line in (note or "").splitlines() if not line.startswith(_NOTE_MARK)).strip()
    return f"{other_lines}\n\n{_NOTE_MARK}{paragraph}".strip()


CONNECTION = "frazil_api"
"""Airflow connection to Airflow's own REST API."""

_COMPLAINT = "frazil_api_complaint"
"""Airflow Variable with the day, in UTC, on which a log last said that Airflow's REST API is not usable, and the kinds of
reasons that were logged on this day.
"""

_log = logging.getLogger(__name__)


def write_note(run: Any, summary: str) -> None:
    """Write a line to the note of an Airflow run. If that fails, only a log says so, since the run's work is done."""

    def write(api: AirflowApi) -> None:
        api.note(run.dag_id, run.run_id, with_paragraph(api.run(run.dag_id, run.run_id).note, summary))

    _call_api(write)


def runs_of(flows: Sequence[Flow]) -> Mapping[str, Runs]:
    """Return what Airflow knows of the runs of pipelines and captures, by unique name; empty if its API is not usable."""
    from frazil.monitor.watch import fetch_runs

    runs: Mapping[str, Runs] | None = _call_api(lambda api: fetch_runs(api, [flow.unique_name for flow in flows]))
    return runs or {}


def _call_api(request: Callable[[AirflowApi], Any]) -> Any:
    """Call Airflow's REST API and return the answer; None if that failed, for whatever reason."""
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
        # The next steps of other errors are for the embedded Airflow.
        own_step = error.next_step if isinstance(error, Terminal) else None
        _complain("away" if isinstance(error, Retryable) else "refused", error.message_with_code, own_step or step)
    except Exception as error:  # noqa: BLE001 - the records landed: no answer of the API may fail the task
        step = f"check what answers at the address of the Airflow connection {CONNECTION}"
        _complain("odd", f"asking Airflow's REST API failed with {type(error).__name__}", step)
    return None


def _complain(kind: str, problem: str, step: str) -> None:
    """Log why the API is not usable, once a day for each kind of reason: every run and every check of the monitor calls it."""
    today, store = f"{datetime.now(UTC):%Y-%m-%d}", Variables()
    logged: list[str] = []
    with suppress(Exception):  # if Airflow's Variables fail, the line is logged again
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
    """Return the base address of the API from its connection. The scheme is the host's own, else the connection's, else http."""
    host = login.host or "localhost"
    base = host if "://" in host else f"{login.schema or 'http'}://{host}"
    return f"{base}:{login.port}" if login.port else base


# Plain StatsD drops tags. There the values of tags are parts of the name, as in Airflow's own names:
# `airflow.frazil.lag.records.orders`.

_UNFIT = re.compile(r"[^a-zA-Z0-9_.-]")
"""Characters that Airflow forbids in names of metrics."""


def emit(samples: Iterable[Sample]) -> None:
    """Send samples to Airflow's metrics. Counters add up, so send those of a run only once."""
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


def are_metrics_on() -> bool:
    """Return whether Airflow sends metrics anywhere. If not, figures that only metrics use need not be read."""
    switches = ("statsd_on", "statsd_datadog_enabled", "otel_on")
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in switches)


def carries_tags() -> bool:
    """Return whether tags reach the receiver, which plain StatsD drops.

    Checks the receivers in the order in which Airflow's `get_stats_factory` chooses one: Datadog, StatsD, OpenTelemetry.
    """
    if conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_datadog_metrics_tags", fallback=True))
    if conf.getboolean("metrics", "statsd_on", fallback=False):
        return bool(conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
    return True


def full_name(name: str, values: Iterable[str]) -> str:
    """Return a metric's name with the values of its tags at the end. A dot in a value becomes `__`, since dots separate parts."""
    return ".".join([name, *(value.replace(".", "__") for value in values)])
