"""An order and its outcome in storage: which outcome is believed, and who does an order that somebody did already."""

from __future__ import annotations

import json
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from frazil import shutdown
from frazil.error_codes import INTERNAL, RUN_FAILED, TOPIC_MISSING
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Stopped, Terminal, Unavailable
from frazil.iceberg.catalog.catalog import Folder
from frazil.project import Project
from frazil.runtime.process import until
from frazil.spark.submit import handover as handovers
from frazil.spark.submit.handover import Handover, Outcome
from frazil.spark.submit.job_process import STOP_SECONDS

LOST = RUN_FAILED.retryable("the job left no outcome")


@pytest.fixture
def attempt(tmp_path: Path) -> Handover:
    """An attempt at an order that is handed over."""
    begun = begin(tmp_path)
    begun.hand_over('{"plan": 1}')
    return begun


def begin(folder: Path) -> Handover:
    return Handover.begin(Project.load({}), str(folder), "orders", "manual__1")


def of_driver(attempt: Handover) -> Handover:
    """The same attempt, as its driver has it from the command line."""
    return Handover.from_arguments(attempt.project, "ingest", attempt.arguments)


def test_order_and_result_travel_by_storage(attempt: Handover, tmp_path: Path) -> None:
    """The driver needs no more than its command line; both objects are gone once the result was taken."""
    driver = of_driver(attempt)
    assert driver.read_order() == ('{"plan": 1}', False)

    driver.write_outcome(Outcome(result="1,000 rows"))

    assert attempt.take_result(LOST) == "1,000 rows"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [Retryable, Unavailable, Terminal, OutcomeUnknown, Stopped])
def test_error_of_a_job_keeps_class_code_and_next_step(attempt: Handover, kind: type[FrazilError]) -> None:
    """Whoever waits raises what the job met, and says where its log is."""
    of_driver(attempt).write_outcome(Outcome(error=kind("gone:\n  orders", code=TOPIC_MISSING, next_step="create it")))

    with pytest.raises(kind) as met:
        attempt.take_result(LOST, "job.log")

    assert type(met.value) is kind
    assert str(met.value) == "gone: [FRZ-204]\n  orders\n  next: create it; the whole log: job.log"


def test_missing_outcome_means_unknown(attempt: Handover) -> None:
    """The job was killed before it could leave one."""
    with pytest.raises(Retryable, match="left no outcome"):
        attempt.take_result(LOST)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"v": 1, "attempt": "',
        "[1]",
        '{"v": 9, "attempt": "ATTEMPT", "error": null, "result": "9"}',
        '{"v": 1, "attempt": "another", "error": null, "result": "9"}',
        '{"v": 1, "attempt": "ATTEMPT", "result": "9"}',
        '{"v": 1, "attempt": "ATTEMPT", "error": null, "result": {"rows": 9}}',
        '{"v": 1, "attempt": "ATTEMPT", "error": {"exit_code": 78, "message": "", "code": 204, "next_step": 5}, "result": null}',
        "[" * 200_000,
        '{"v": 1, "attempt": "ATTEMPT", "error": {"exit_code": 3}, "result": null}',
        '{"v": 1, "attempt": "ATTEMPT", "error": {"exit_code": 75, "message": "", "code": [1], "next_step": ""}, "result": ""}',
    ],
)
def test_object_that_is_no_outcome_of_the_attempt_is_not_believed(attempt: Handover, tmp_path: Path, text: str) -> None:
    """Half written, of another version, of another attempt, of a stranger."""
    driver = of_driver(attempt)
    driver.write_outcome(Outcome())
    (file,) = (file for file in tmp_path.iterdir() if attempt.attempt in file.name)
    file.write_text(text.replace("ATTEMPT", attempt.attempt))

    with pytest.raises(Retryable, match="left no outcome"):
        attempt.take_result(LOST)


@pytest.mark.parametrize(
    ("exit_code", "code", "shown"), [(1, 504, "FRZ-504"), (75, 999, "FRZ-999"), (3, 999, "FRZ-999")]
)
def test_error_of_a_job_of_another_version_keeps_message_code_and_next_step(
    attempt: Handover, tmp_path: Path, exit_code: int, code: int, shown: str
) -> None:
    """A class or a code that nobody knows here is no reason to say that the job left nothing."""
    driver = of_driver(attempt)
    driver.write_outcome(Outcome(error=RUN_FAILED.retryable("no room", next_step="make room")))
    (file,) = (file for file in tmp_path.iterdir() if attempt.attempt in file.name)
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"error": body["error"] | {"exit_code": exit_code, "code": code}}))

    with pytest.raises(Retryable, match=rf"no room.*\[{shown}\](.|\n)*next: make room") as met:
        attempt.take_result(LOST)
    assert met.value.code is RUN_FAILED


def test_next_try_takes_the_result_that_a_lost_task_left(attempt: Handover, tmp_path: Path) -> None:
    """Once: whoever asks again, as by clearing the task, has the order done again."""
    of_driver(attempt).write_outcome(Outcome(result="1,000 rows"))

    assert begin(tmp_path).collect('{"plan": 1}') == Outcome(result="1,000 rows")
    assert begin(tmp_path).collect('{"plan": 1}') is None


def test_failure_of_an_earlier_attempt_is_not_taken(attempt: Handover, tmp_path: Path) -> None:
    """It may have passed: the next try does the order itself."""
    of_driver(attempt).write_outcome(Outcome(error=INTERNAL.terminal("odd")))

    assert begin(tmp_path).collect('{"plan": 1}') is None


def test_run_that_was_planned_again_is_done_again(attempt: Handover, tmp_path: Path) -> None:
    """What its first plan led to says nothing of the second; a driver of the first one stops, as it counts no more."""
    driver = of_driver(attempt)
    driver.write_outcome(Outcome(result="1,000 rows"))
    cleared = begin(tmp_path)

    assert cleared.collect('{"plan": 2}') is None
    cleared.hand_over('{"plan": 2}')
    with pytest.raises(Retryable, match="another attempt took it over"):
        driver.read_order()


def test_driver_of_an_earlier_attempt_does_nothing(attempt: Handover, tmp_path: Path) -> None:
    """It waited in a queue until another try took the order over; what it left late is not read either."""
    newer = begin(tmp_path)
    newer.hand_over('{"plan": 1}')

    with pytest.raises(Retryable, match="another attempt took it over"):
        of_driver(attempt).read_order()
    attempt.write_outcome(Outcome(result="late"))
    with pytest.raises(Retryable, match="left no outcome"):
        newer.take_result(LOST)


def test_try_waits_while_a_driver_elsewhere_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task was lost, its driver was not: the next try waits, and does not do it twice."""
    monkeypatch.setattr(handovers, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(handovers, "_LOOK_SECONDS", 0.05)
    lost = begin(tmp_path)
    lost.hand_over('{"plan": 1}', outlives=True)
    driver, at_work = of_driver(lost), threading.Event()

    def work() -> None:
        with driver.heartbeats():
            at_work.set()
            threading.Event().wait(1.0)
            driver.write_outcome(Outcome(result="1,000 rows"))

    thread = threading.Thread(target=work)
    thread.start()
    assert at_work.wait(10.0)

    assert begin(tmp_path).collect('{"plan": 1}') == Outcome(result="1,000 rows")
    thread.join()


def test_driver_without_beats_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine went away in the middle: the next try does the order itself."""
    monkeypatch.setattr(handovers, "_LOST_SECONDS", 0.2)
    monkeypatch.setattr(handovers, "_LOOK_SECONDS", 0.05)
    lost = begin(tmp_path)
    lost.hand_over('{"plan": 1}', outlives=True)
    with of_driver(lost).heartbeats():
        pass

    assert begin(tmp_path).collect('{"plan": 1}') is None


def test_driver_whose_order_is_withdrawn_stops_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can send a signal to another machine: the driver looks, and asks itself, long before its next beat."""
    monkeypatch.setattr(handovers, "_LOOK_SECONDS", 0.05)
    job_order = begin(tmp_path)
    job_order.hand_over('{"plan": 1}', outlives=True)

    with shutdown.handled(lambda _: None), of_driver(job_order).heartbeats():
        job_order.withdraw()
        assert until(lambda: shutdown.requester() is not None, 10.0)


def test_driver_asks_itself_once_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends before its Spark does, and heeds no signal from then on: a second one would kill it there."""
    monkeypatch.setattr(handovers, "_LOOK_SECONDS", 0.05)
    job_order = begin(tmp_path)
    job_order.hand_over('{"plan": 1}', outlives=True)
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    try:
        with of_driver(job_order).heartbeats():
            job_order.withdraw()
            assert until(lambda: bool(signals), 10.0)
            time.sleep(0.5)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signals == [signal.SIGTERM]


def test_driver_ends_before_who_stops_it_gives_up() -> None:
    """Else `frazil stop` would report an end while the driver is at work."""
    assert handovers._LOOK_SECONDS + shutdown.GRACE_SECONDS <= STOP_SECONDS


def test_order_is_withdrawn_where_the_store_forbids_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is overwritten by one of nobody: no driver does it, and the next try does its own."""
    job_order = begin(tmp_path)
    job_order.hand_over('{"plan": 1}', outlives=True)

    def forbidden(folder: Folder, name: str) -> None:
        raise INTERNAL.terminal(f"deleting {folder.location}/{name}: permission denied")

    monkeypatch.setattr(Folder, "delete", forbidden)
    job_order.withdraw()

    with pytest.raises(Retryable, match="withdrawn"):
        of_driver(job_order).read_order()
    newer = begin(tmp_path)
    assert newer.collect('{"plan": 1}') is None
    newer.hand_over('{"plan": 1}', outlives=True)
    assert of_driver(newer).read_order() == ('{"plan": 1}', True)


def test_address_of_something_else_is_no_order(attempt: Handover) -> None:
    """A driver believes its command line, not any file."""
    with pytest.raises(Terminal, match="no address of an order"):
        Handover.from_arguments(
            attempt.project, "ingest", ["--pipeline", "payments", *replace(attempt, name="orders").arguments[2:]]
        )


@pytest.mark.parametrize(
    "stranger", [b"\xff\xfe", b"[" * 200_000, b'{"v": 1, "attempt": "x/../../y"}', b'{"v": 1, "attempt": "a\\u0000"}']
)
def test_object_of_a_stranger_stops_no_run(attempt: Handover, tmp_path: Path, stranger: bytes) -> None:
    """Whatever lies under the order's name: it is no order, and a name in it leads nowhere."""
    (order,) = tmp_path.iterdir()
    order.write_bytes(stranger)

    assert begin(tmp_path).collect('{"plan": 1}') is None
    with pytest.raises(Retryable, match="withdrawn"):
        of_driver(attempt).read_order()


def test_order_without_text_is_none(attempt: Handover, tmp_path: Path) -> None:
    """It names the attempt, and says nothing to do."""
    (order,) = tmp_path.iterdir()
    order.write_text(json.dumps({"v": 1, "attempt": attempt.attempt}))

    with pytest.raises(Retryable, match="withdrawn"):
        of_driver(attempt).read_order()


def test_lost_task_leaves_the_order_of_the_next_try_alone(attempt: Handover, tmp_path: Path) -> None:
    """A worker that Airflow had given up comes back: it takes its own late outcome, or is told to stop."""
    newer = begin(tmp_path)
    newer.hand_over('{"plan": 1}', outlives=True)
    attempt.withdraw()
    assert of_driver(newer).read_order() == ('{"plan": 1}', True)
    of_driver(attempt).write_outcome(Outcome(result="late"))

    assert attempt.take_result(LOST) == "late"
    assert of_driver(newer).read_order() == ('{"plan": 1}', True)


def test_object_that_is_removed_while_it_is_looked_at_is_not_there(
    attempt: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another try took the outcome at this moment: no file is gone that must be there."""
    opened = Folder._opened

    def removed(folder: Folder) -> object:
        files, path = opened(folder)

        class Fast:
            type_name = files.type_name
            open_input_stream = files.open_input_stream

            def get_file_info(self, name: str) -> object:
                file_info = files.get_file_info(name)
                Path(name).unlink(missing_ok=True)
                return file_info

        return Fast(), path

    monkeypatch.setattr(Folder, "_opened", removed)

    assert begin(tmp_path).collect('{"plan": 1}') is None


def test_driver_at_work_again_takes_back_what_it_failed_with(tmp_path: Path) -> None:
    """Else who waits would take the failure of the first driver while the second one is at work."""
    order = begin(tmp_path)
    order.hand_over('{"plan": 1}', outlives=True)
    driver = of_driver(order)
    driver.write_outcome(Outcome(error=INTERNAL.retryable("first")))

    with driver.heartbeats():
        driver.forget_failure()
        assert driver.find(Folder(str(tmp_path), {})) is None


def test_late_failure_does_not_take_the_place_of_a_success(attempt: Handover) -> None:
    """The driver slept, a second one of its attempt did the work, and the tables refused the first."""
    of_driver(attempt).write_outcome(Outcome(result="1,000 rows"))
    of_driver(attempt).write_outcome(Outcome(error=RUN_FAILED.retryable("refused four times")))

    assert attempt.take_result(LOST) == "1,000 rows"


def test_driver_overtaken_while_it_waited_does_not_begin(attempt: Handover, tmp_path: Path) -> None:
    """By an error, not by a signal, which the first process of a container ignores."""
    driver = of_driver(attempt)
    begin(tmp_path).hand_over('{"plan": 2}', outlives=True)

    with pytest.raises(Retryable, match="another attempt took it over"), driver.heartbeats():
        pytest.fail("it is at work")


def test_store_of_managed_tables_gets_names_that_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lets a table have Iceberg's files alone: those of a job end as the catalog's `frazil.file-suffix` says."""
    monkeypatch.setattr(Handover, "_folder", lambda _: Folder(str(tmp_path), {"frazil.file-suffix": ".stats"}))
    order = begin(tmp_path)
    order.hand_over('{"plan": 1}', outlives=True)
    driver = of_driver(order)
    with driver.heartbeats():
        driver.write_outcome(Outcome(result="1,000 rows"))

    assert {file.suffix for file in tmp_path.iterdir()} == {".stats"}
    assert order.take_result(LOST) == "1,000 rows"
    assert list(tmp_path.iterdir()) == []
