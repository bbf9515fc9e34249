"""Routes of the position: its topics and offsets, and their reset, which does the same as `frazil reset`."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, Field, ValidationError

from frazil.batch.position import EARLIEST, Position, RunRequest, Target
from frazil.error_codes import RUN_OVERTAKEN
from frazil.run.repair.reset import plan_reset, preview_reset, reset
from frazil.run.repair.reset_batch import ResetOrder, read_tables
from frazil.run.state.context import RunContext
from frazil_airflow.rest.configuration import StoredConnector
from frazil_airflow.rest.request import ApiCall, BodyDep, CallDep

router = APIRouter()


class KafkaPartition(BaseModel):
    """One partition of a topic."""

    kafka_topic: str = Field(max_length=249)
    kafka_partition: int = Field(ge=0, lt=2**31)


class KafkaOffset(BaseModel):
    """The next offset to read."""

    kafka_offset: int = Field(ge=0, lt=2**63)


class PartitionOffset(BaseModel):
    """A pipeline's position in one partition."""

    partition: KafkaPartition
    offset: KafkaOffset


class Offsets(BaseModel):
    """A pipeline's position, partition by partition."""

    offsets: list[PartitionOffset] = Field(max_length=100_000)


class Message(BaseModel):
    """The answer to a change of offsets."""

    message: str


_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": Offsets.model_json_schema()}}}}


@router.get("/connectors/{name}/topics")
def topics(call: CallDep, name: str) -> dict[str, dict[str, list[str]]]:
    """Topics that the pipeline has read: those of its position."""
    stored = call.connector(name)
    position = _position(call, stored)
    return {stored.name: {"topics": sorted(position.topics) if position is not None else []}}


@router.get("/connectors/{name}/offsets")
def offsets(call: CallDep, name: str) -> Offsets:
    """The position, from the closing table. Empty before the first batch."""
    position = _position(call, call.connector(name))
    positions = {} if position is None else position.topics
    return Offsets(
        offsets=[
            PartitionOffset(
                partition=KafkaPartition(kafka_topic=topic, kafka_partition=number),
                offset=KafkaOffset(kafka_offset=offset),
            )
            for topic, partitions in sorted(positions.items())
            for number, offset in enumerate(partitions.next)
        ]
    )


@router.patch("/connectors/{name}/offsets", openapi_extra=_BODY)
def patch_offsets(call: CallDep, name: str, body: BodyDep) -> Message:
    """Move the position of the named partitions. Rows of partitions that move back are removed and land again."""
    stored = call.connector(name, "PUT")
    places: dict[str, dict[int, int]] = {}
    for entry in _parsed(body).offsets:
        partitions = places.setdefault(entry.partition.kafka_topic, {})
        if (
            partitions.setdefault(entry.partition.kafka_partition, entry.offset.kafka_offset)
            != entry.offset.kafka_offset
        ):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "A partition is named twice, with different offsets")
    if not places:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, "Partitions / offsets need to be provided for an alter offsets request"
        )
    _reset(call, stored, Target("offsets", offsets=places))
    return Message(message="The offsets for this connector have been altered successfully")


@router.delete("/connectors/{name}/offsets")
def delete_offsets(call: CallDep, name: str) -> Message:
    """Move the position to the beginning of all topics: records that Kafka still has land again, in place of their rows."""
    _reset(call, call.connector(name, "PUT"), EARLIEST)
    return Message(message="The offsets for this connector have been reset successfully")


def _parsed(body: dict[str, Any]) -> Offsets:
    try:
        return Offsets.model_validate(body, strict=True)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "the body"
        message = (
            f'{where}: {problem["msg"]}; expected {{"offsets": [{{"partition": {{"kafka_topic": a text, "kafka_partition": a'
            ' number}, "offset": {"kafka_offset": a number}}]}; an offset of null has no counterpart'
        )
        raise HTTPException(HTTPStatus.BAD_REQUEST, message) from None


def _position(call: ApiCall, stored: StoredConnector) -> Position | None:
    with call.source.pipeline_slot(stored.pipeline) as (project, pipeline):
        return read_tables(RunContext.open(project, pipeline))[2].position


def _reset(call: ApiCall, stored: StoredConnector, target: Target) -> None:
    """Reset a paused pipeline, on record in its ledger.

    Raises:
        HTTPException: 400, its DAG is not paused or has a run at work; 409, the settings forbid changes over HTTP.
        Terminal, Retryable: As `frazil reset`.
    """
    if call.project.settings.rest_api.changes == "refused":
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "The settings forbid resets over HTTP: run frazil reset, or set rest_api: {changes: file} or {changes: commit}",
        )
    runs = call.runs([stored.pipeline])[stored.pipeline]
    if runs is not None and not (runs.is_paused and runs.running_since is None):
        raise HTTPException(
            HTTPStatus.BAD_REQUEST,
            "Connectors must be in the STOPPED state before their offsets can be modified: here, paused, and with no run at work."
            f" This can be done by a 'PUT' request to the '/connectors/{stored.name}/stop' endpoint",
        )
    now = datetime.now(UTC)
    reason = f"{call.request.method} /connectors/{stored.name}/offsets"
    request = RunRequest(f"rest__{now.isoformat(timespec='milliseconds')}", f"rest:{call.user}", reason=reason)
    with call.source.pipeline_slot(stored.pipeline) as (project, pipeline):
        context = RunContext.open(project, pipeline)
        shown = preview_reset(context, ResetOrder(target))
        planned = plan_reset(context, shown.with_fixed_offsets)
        if not planned.has_same_effect(shown):
            raise RUN_OVERTAKEN.retryable(
                f"pipeline {pipeline.name}: a run moved the position meanwhile; nothing was reset"
            )
        position = reset(context, planned, request)
    call.note_change("reset_position", stored.pipeline, batch=position.n, epoch=position.epoch, run=request.run)
