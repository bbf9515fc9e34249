"""Makes the two DAGs for a pipeline's dead letters: one lands those that now decode, when a person triggers it with its form; one
reports new ones on a schedule.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseOperator, Context, Param

from frazil import shutdown
from frazil.batch.position import RunRequest
from frazil.error_codes import BAD_ARGUMENT, NAME_UNKNOWN, NOTICE_UNDELIVERED
from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.interval import parse_interval
from frazil.project import Project
from frazil.records.model.dead_letter import DeadCode
from frazil_airflow.compat import AirflowSkipException, conf
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.outputs.assets import landings_alias
from frazil_airflow.outputs.links import ReportLink, report_address
from frazil_airflow.project.pipelines import REPLAY, REPORT
from frazil_airflow.project.run_request import AirflowRun, started_by
from frazil_airflow.project.secrets import load_project, terminal_is_final

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import OutletEventAccessors

    from frazil.batch.changes import LetterChoice
    from frazil.report.letter_reports import KeptReport
    from frazil.run.batches.plan import RunResult
    from frazil.run.repair.dead_letter_replay import ReplayResult


CODES, TOPICS, SINCE, UNTIL = "codes", "topics", "since", "until"
REASON, DRY_RUN = "reason", "dry_run"

_INSTANT = r"^(\s*|\s*\d{1,6}[smhd]\s*|\s*\d{4}-\d{2}-\d{2}([T ]\S+)?\s*)$"
"""Roughly an instant, or how long ago it was. The task checks the rest before it lands anything."""

_EXPECTED_INSTANT = (
    "an instant such as 2026-05-01T10:00:00+00:00 (UTC if it names no offset), or how long ago it was: 90m, 24h, 7d"
)


def params(pipeline: Pipeline) -> dict[str, Param]:
    """Return the fields of the form that starts a replay."""
    codes = [code.value for code in DeadCode]
    # A pattern may match any topic, so there is no list to choose from.
    known_topics: dict[str, Any] = (
        {} if pipeline.source.topics_pattern is not None else {"examples": sorted(pipeline.source.topics)}
    )
    return {
        CODES: Param(
            [],
            type="array",
            items={"type": "string", "enum": codes},
            examples=codes,
            title="Codes",
            description="Only dead letters with these codes. Empty: any code.",
        ),
        TOPICS: Param(
            [],
            type="array",
            items={"type": "string"},
            title="Topics",
            description="Only dead letters of these topics. Empty: any topic.",
            **known_topics,
        ),
        SINCE: _instant_field(
            "Since", f"Only records with this Kafka timestamp or a later one: {_EXPECTED_INSTANT}. Empty: any time."
        ),
        UNTIL: _instant_field(
            "Until", "Only records with an earlier Kafka timestamp, in the same form. Empty: any time."
        ),
        REASON: Param(
            type="string",
            minLength=1,
            maxLength=500,
            pattern=r"\S",
            title="Reason",
            description="What was corrected, for people who read the ledger later: frazil history shows it.",
        ),
        DRY_RUN: Param(
            default=False,
            type="boolean",
            title="Dry run",
            description="Only count how many would land; nothing is landed.",
        ),
    }


def choice_of(filled_in: Mapping[str, Any], pipeline: Pipeline, topics: Sequence[str], now: datetime) -> LetterChoice:
    """Return the choice of dead letters that a filled-in form makes. `topics`: all that the pipeline ever read.

    Raises:
        Terminal: A value of the form is not valid.
    """
    from frazil.batch.changes import LetterChoice

    since, until = (_parse_instant(filled_in[field], field, now) for field in (SINCE, UNTIL))
    if since is not None and until is not None and since >= until:
        raise BAD_ARGUMENT.terminal(
            f"field {SINCE!r} is not before field {UNTIL!r}: {since.isoformat()} to {until.isoformat()}",
            next_step=f"fill in a {SINCE!r} that is before {UNTIL!r}",
        )
    for topic in filled_in[TOPICS]:
        if not pipeline.source.reads(topic) and topic not in topics:
            topic_names = sorted({*pipeline.source.topics, *topics})
            raise NAME_UNKNOWN.terminal(
                f"the field {TOPICS!r}: pipeline {pipeline.name} never read topic {topic!r}",
                next_step=f"its topics: {', '.join(topic_names) or 'none yet'}",
            )
    return LetterChoice(frozenset(filled_in[CODES]), frozenset(filled_in[TOPICS]), since, until=until)


def _instant_field(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], pattern=_INSTANT, title=title, description=description)


def _parse_instant(text: str | None, field: str, now: datetime) -> datetime | None:
    from frazil.batch.position import parse_instant

    if not text or not text.strip():
        return None
    try:
        return parse_instant(text, now.astimezone(UTC))
    except (ValueError, Terminal) as error:
        raise BAD_ARGUMENT.terminal(
            f"the field {field!r}: {error}", next_step=f"expected {_EXPECTED_INSTANT}"
        ) from error


REPLAY_TIMEOUT = timedelta(hours=2)
"""Bounds a replay that hangs. Its rows stay, and the next replay goes on with the open dead letters."""

_log = logging.getLogger(__name__)


def replay_dag(project: Project, pipeline: Pipeline) -> DAG:
    """Make the replay DAG of a pipeline. The pipeline is no field of its form, since Airflow grants permissions per DAG."""
    with DAG(
        f"{REPLAY}{pipeline.name}",
        description=f"Lands dead letters of {pipeline.name} that now decode",
        doc_md=_replay_doc(pipeline.name),
        schedule=None,
        params=params(pipeline),
        **dag_arguments("dead_letters", pipeline, project=project, ends_failure=True),
    ) as dag:
        PythonOperator(
            task_id="replay",
            doc_md="Decodes open dead letters again, from their table, and lands those that now fit, exactly once.",
            python_callable=replay,
            op_args=[pipeline.name],
            outlets=[landings_alias(pipeline.name)],
            # Two replays at once would only make each other fail. An ingest run may work beside a replay: the one that decides
            # second stages its batch again.
            max_active_tis_per_dag=1,
            execution_timeout=REPLAY_TIMEOUT,
        )
    return dag


def replay(name: str, *, dag_run: AirflowRun, params: Mapping[str, Any], outlet_events: Any) -> dict[str, Any]:
    """Land the chosen dead letters that now decode, and emit events for tables that got rows; a dry run only counts.

    Returns:
        Counts of the dead letters by outcome.

    Raises:
        AirflowSkipException: None of the chosen dead letters is open.
        AirflowFailException: A value of the form is not valid, or a person must act; the message says what to do.
        Retryable, OutcomeUnknown, Stopped: Another try reads the tables and carries on.
    """
    from dataclasses import asdict

    from frazil.run.batches.plan import run_result
    from frazil.run.repair.dead_letter_replay import replay_dead_letters
    from frazil.run.state.context import RunContext
    from frazil_airflow.outputs.run_summary import write_note

    shutdown.end_with_parent()  # without its worker Airflow starts another try, beside this one
    with terminal_is_final():
        project = load_project()
        pipeline = project.pipeline(name)
        choice = _choice(project, pipeline, params)
        request = _request(name, dag_run, params)
        context = RunContext.open(project, pipeline, _log.info)
        replay_result = replay_dead_letters(context, choice, request, dry_run=params[DRY_RUN])
        summary = _replay_sentence(
            pipeline.name, replay_result, _landed_before(project, pipeline, request.run, replay_result), params
        )
        # Of all tries, since a try that failed emitted no events.
        result = run_result(project, pipeline, request.run)
    _log.info("%s", summary)
    write_note(dag_run, summary)
    if not replay_result.tried and not result.batches:
        raise AirflowSkipException(summary)
    _emit_table_events(outlet_events, pipeline, result, request.reason)
    return {"pipeline": pipeline.name, "done": not params[DRY_RUN]} | asdict(replay_result)


def _emit_table_events(events: OutletEventAccessors, pipeline: Pipeline, result: RunResult, reason: str | None) -> None:
    """Emit an event for each table that got rows."""
    from frazil_airflow.outputs.run_summary import event_extras, event_facts

    facts = event_facts(result, "dead_letters", reason)
    for asset, extra in event_extras(pipeline, result, facts):
        if extra["table_rows"]:
            events[landings_alias(pipeline.name)].add(asset, extra=extra)


def _choice(project: Project, pipeline: Pipeline, params: Mapping[str, Any]) -> LetterChoice:
    from frazil.report.history import history

    topics = sorted({topic for batch in history(project, pipeline) for topic in batch.position})
    return choice_of(params, pipeline, topics, datetime.now(UTC))


def _request(name: str, dag_run: AirflowRun, params: Mapping[str, Any]) -> RunRequest:
    """The request of a replay. Its run id contains the id of the DAG: Airflow's run ids are unique only within a DAG."""
    return RunRequest(f"{REPLAY}{name}:{dag_run.run_id}", started_by(dag_run), reason=params[REASON])


def _landed_before(
    project: Project, pipeline: Pipeline, run: str, replay_result: ReplayResult
) -> list[tuple[int, int]]:
    """Number and rows of each batch that an earlier try of this run landed."""
    from frazil.report.history import history

    batches = (batch for batch in history(project, pipeline) if batch.run == run)
    return [(batch.n, batch.written) for batch in batches if batch.n not in replay_result.batches]


def _replay_sentence(name: str, result: ReplayResult, before: list[tuple[int, int]], params: Mapping[str, Any]) -> str:
    parts = [_outcome(name, result, dry_run=params[DRY_RUN])]
    parts += [f"an earlier try landed {rows:,} in batch {n}" for n, rows in before]
    if result.bare:
        parts.append(f"{result.bare:,} keep nothing of their record: frazil replay {name} reads it from Kafka")
    return "; ".join([*parts, f"reason: {params[REASON]}"])


def _outcome(name: str, result: ReplayResult, *, dry_run: bool) -> str:
    if not result.tried:
        return f"{name}: none of the chosen dead letters is open"
    dead = result.dead_codes or {}
    codes = ", ".join(f"{code} {count:,}" for code, count in sorted(dead.items()))
    landed = "would become rows" if dry_run else "are rows now"
    parts = [
        f"{name}: of {result.tried:,} dead letters {result.landed:,} {landed}",
        *([f"{result.filtered:,} are filtered out"] if result.filtered else []),
        *([f"{sum(dead.values()):,} stay dead ({codes})"] if dead else []),
    ]
    batches = f", batch {', '.join(map(str, result.batches))}" if result.batches else ""
    return f"{'dry run, nothing was landed; ' if dry_run else ''}{', '.join(parts)}{batches}"


def _replay_doc(name: str) -> str:
    return f"""### Replay dead letters of {name}

Decodes open dead letters again with the present pipeline file. The records are read from the dead-letter table, not from Kafka.
Those that now fit land as rows, exactly once, in a batch of their own. The position does not move. The others stay open, with
their new reason. This command does the same:

```
frazil dead-letters replay {name} --code CODE --since 24h --reason "…"
```

A replay may run while ingestion runs. If both commit at once, the second one stages its batch again.
"""


class LetterReportOperator(BaseOperator):
    """Summarize the dead letters since the last report, store the report, and send it if it is due.

    If a run ends between storing and sending, the next try or run sends the report.
    """

    operator_extra_links = (ReportLink(),)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.report_name: str | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Make, store and send the report.

        Returns:
            The report's facts, without samples.

        Raises:
            AirflowSkipException: There are no new dead letters, and no report to send.
            AirflowFailException: A person must act; the message says what to do.
            Retryable: The catalog or the storage is not available now, or a channel took no message.
        """
        from frazil.report.letter_reports import list_reports, report_new_letters

        run = context["dag_run"]
        with terminal_is_final():
            project = load_project()
            pipeline = project.pipeline(self.pipeline)
            new_report = report_new_letters(project, pipeline, run.run_id, datetime.now(UTC))
            reports = list_reports(project, pipeline)
            unsent = [report for report in reversed(reports) if report.is_unsent]
            if new_report is None and not unsent:
                summary = _nothing_new(reports)
                _report(run, summary)
                raise AirflowSkipException(summary)
            shown = new_report or unsent[-1]
            self.report_name = shown.name
            _report(run, _report_sentence(shown))
            # Send all before any error is raised: a channel that is away must not keep reports from others.
            answers = [_send_report(project, pipeline, report) for report in unsent]
        if failed := [line for _, lines in answers for line in lines]:
            raise NOTICE_UNDELIVERED.retryable(
                f"pipeline {self.pipeline}: the report of new dead letters is stored, but did not reach all channels: "
                + "; ".join(failed)
            )
        return _report_facts(next((report for report, _ in answers if report.name == shown.name), shown))


def _report(run: Any, summary: str) -> None:
    """Write a line to the log and the run's note, since Airflow does not show why a task was skipped."""
    from frazil_airflow.outputs.run_summary import write_note

    _log.info("%s", summary)
    write_note(run, summary)


def _send_report(project: Project, pipeline: Pipeline, report: KeptReport) -> tuple[KeptReport, list[str]]:
    """Send a report to the channels that have not received it.

    Returns:
        The report with the channels that received it, and a line per channel that failed.
    """
    from frazil.report.letter_reports import letters_notice, note_told, open_report
    from frazil_airflow.alerts.channels import channels_of, send

    link = f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{report_address(pipeline.name, report.name)}"
    notice = letters_notice(pipeline, report, open_report(project, pipeline, report.name), link)
    answers = send(
        project, notice, [channel for channel in channels_of(project, notice) if channel not in report.told_channels]
    )
    failed = {channel: why for channel, why in answers.items() if why is not None}
    done = [channel for channel in answers if channel not in failed]
    updated_report = note_told(project, pipeline, report, done, None if failed else datetime.now(UTC))
    if not failed:
        _log.info(
            "report %s: notified %s",
            report.name,
            ", ".join(updated_report.told_channels) or "nobody: no channel takes this report",
        )
    return updated_report, [f"report {report.name}, {channel}: {why}" for channel, why in sorted(failed.items())]


def _report_sentence(report: KeptReport) -> str:
    from frazil.report.dead_letters_summary import counted

    codes: dict[str, int] = {}
    for group in report.groups:
        codes[group.code] = codes.get(group.code, 0) + group.count
    by_code = ", ".join(f"{code} {count:,}" for code, count in codes.items())
    home = f", {report.came_home:,} became rows meanwhile" if report.came_home else ""
    due = "" if report.is_due else "; below the threshold, not sent"
    return (
        f"{counted(report.count)} new ({by_code or 'none'}), {report.open:,} open, {report.before:,} in the period before{home};"
        f" batches {report.after + 1} to {report.through}, report {report.name}{due}"
    )


def _nothing_new(reports: list[KeptReport]) -> str:
    last = (
        f"the last report, {reports[0].name}, covers batches up to {reports[0].through}"
        if reports
        else "there was none before"
    )
    return f"no new dead letters: {last}"


def _report_facts(report: KeptReport) -> dict[str, Any]:
    body = report.to_body()
    return {name: field.isoformat() if isinstance(field, datetime) else field for name, field in body.items()}


REPORT_TIMEOUT = timedelta(minutes=30)
"""Bounds reading the new dead letters and those of the period before: a second or two, a minute for millions."""

RUN_TIMEOUT = timedelta(hours=2)
"""Bounds a whole run with all tries."""


def letter_dag(project: Project, pipeline: Pipeline) -> DAG | None:
    """Make the report DAG of a pipeline; None if its file says `report: false`."""
    reporting = pipeline.dead_letters.report
    if reporting is False:
        return None
    schedule = reporting.schedule
    with DAG(
        f"{REPORT}{pipeline.name}",
        description=f"Reports new dead letters of {pipeline.name}",
        doc_md=_report_doc(pipeline, schedule),
        schedule=timetable(parse_interval(schedule)),
        dagrun_timeout=RUN_TIMEOUT,
        **dag_arguments("dead_letters", pipeline, project=project, ends_failure=True),
    ) as dag:
        LetterReportOperator(
            task_id="report",
            pipeline=pipeline.name,
            doc_md="Reports dead letters since the last report, and sends the report. Without new ones it is skipped.",
            max_active_tis_per_dag=1,
            execution_timeout=REPORT_TIMEOUT,
        )
    return dag


def _report_doc(pipeline: Pipeline, schedule: str) -> str:
    return f"""### Dead letters of {pipeline.name}

Reports every `{schedule}` (UTC) the dead letters of batches that finished since the last report: counts by code and topic,
compared with the period before, and samples. Without new ones there is no report. A run that is cleared or started twice reports
none again.

```
frazil dead-letters list {pipeline.name}
frazil dead-letters report {pipeline.name} --since 7d
```

`{pipeline.dead_letters_table}` holds them; the DAG `{REPLAY}{pipeline.name}` lands those that now decode.
"""
