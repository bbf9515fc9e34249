"""Nothing outlives its component, and no stranger is killed. With real processes that sleep."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.errors import Retryable
from frazil.runtime.process import Processes, Spec, Stat, parse_stat, session_members, stat_of, until

SLEEP = ("sleep", "600")
SOON = 5.0
"""Bounds waits that take milliseconds."""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "run", tmp_path / "logs", tmp_path)
    yield processes
    processes.stop(("it", 0.0))


def spec(*command: str, name: str = "it") -> Spec:
    return Spec(name, command, dict(os.environ))


def shell(script: str) -> Spec:
    return spec("/bin/sh", "-c", script)


def is_gone(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is None or stat.has_ended


def written_pid(path: Path) -> int:
    """Wait until a script has written a pid to a file."""
    assert until(lambda: path.is_file() and path.read_text().endswith("\n"), SOON)
    return int(path.read_text())


def test_a_process_runs_until_it_is_stopped(processes: Processes) -> None:
    """It is found by its own pid, and after the stop neither process nor record is left."""
    started = processes.start(spec(*SLEEP))

    assert processes.running("it") == started
    assert until(lambda: b"sleep" in Path(f"/proc/{started.pid}/cmdline").read_bytes(), SOON)

    processes.stop(("it", SOON))

    assert is_gone(started.pid)
    assert processes.record("it") is None


def test_a_process_that_ended_by_itself_is_not_running(processes: Processes) -> None:
    """Its zombie is still listed by the kernel until its parent, which we are, has reaped it."""
    processes.start(spec("true"))

    assert until(lambda: processes.running("it") is None, SOON)
    assert processes.record("it") is not None


def test_children_in_their_own_group_die_with_their_component(processes: Processes, tmp_path: Path) -> None:
    """Airflow's tasks open process groups of their own: ending the component's misses them."""
    processes.start(shell(f"set -m; sleep 600 & echo $! > {tmp_path}/child; wait"))
    child = written_pid(tmp_path / "child")

    processes.stop(("it", SOON))

    assert is_gone(child)


def test_orphans_of_a_killed_component_die_at_the_stop(processes: Processes, tmp_path: Path) -> None:
    """After `kill -9` of a scheduler its workers live on, and only the record names them."""
    leader = processes.start(shell(f"sleep 600 & echo $! > {tmp_path}/child; wait"))
    child = written_pid(tmp_path / "child")
    os.kill(leader.pid, signal.SIGKILL)
    assert until(lambda: processes.running("it") is None, SOON)
    assert not is_gone(child)

    processes.stop(("it", SOON))

    assert is_gone(child)


def test_a_process_deaf_to_sigterm_is_killed_after_its_grace(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging component must not keep `down` from ending."""
    monkeypatch.setattr("frazil.runtime.process._FOLLOWERS_SECONDS", 0.1)
    deaf = processes.start(shell(f"trap '' TERM; echo $$ > {tmp_path}/deaf; sleep 600; sleep 600"))
    written_pid(tmp_path / "deaf")

    processes.stop(("it", 0.1))

    assert is_gone(deaf.pid)
    assert list(session_members(deaf.pid)) == []


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP, start_new_session=True) as process:
        yield process
        process.kill()


def write_record(processes: Processes, boot: str, pid: int, start_ticks: int) -> None:
    processes.run.mkdir()
    fields = ["S", "1", str(pid), str(pid), *(["0"] * 13), "1", "0", str(start_ticks)]
    (processes.run / "it.pid").write_text(f"{boot}\n{pid} (sh) {' '.join(fields)}\n\n")


def test_a_reused_pid_is_never_killed(processes: Processes, stranger: subprocess.Popen[bytes]) -> None:
    """After a crash a component's pid may be anybody's: the start time tells them apart."""
    stat = stat_of(stranger.pid)
    assert stat is not None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    write_record(processes, boot, stranger.pid, stat.start_ticks - 1)

    assert processes.running("it") is None
    processes.stop(("it", 0.0))

    assert stranger.poll() is None


def test_a_record_of_another_boot_kills_nobody(processes: Processes, stranger: subprocess.Popen[bytes]) -> None:
    """After a restart of the machine even pid and start time may coincide."""
    stat = stat_of(stranger.pid)
    assert stat is not None
    write_record(processes, "another-boot", stranger.pid, stat.start_ticks)

    assert processes.running("it") is None
    processes.stop(("it", 0.0))

    assert stranger.poll() is None


def test_stopping_twice_is_stopping_once(processes: Processes) -> None:
    """`down` after a crashed `down` must work."""
    processes.start(spec(*SLEEP))

    processes.stop(("it", SOON))
    processes.stop(("it", SOON), ("never-started", SOON))

    assert processes.running("it") is None


def test_a_command_that_does_not_exist_is_quoted(processes: Processes) -> None:
    """The component's log says why it ended; the status is the shell's for a missing command."""
    status = processes.finish(spec("no-such-command"), SOON)

    assert status == 127
    assert "no-such-command" in processes.last_lines("it")


def test_a_short_command_that_hangs_is_ended(processes: Processes) -> None:
    """A preparation that hangs must end with the message, not with the patience of the user."""
    with pytest.raises(Retryable, match="it: took over"):
        processes.finish(spec(*SLEEP), 0.1)

    assert processes.record("it") is None


def test_the_log_before_is_kept_at_a_restart(processes: Processes) -> None:
    """Starting a crashed component again must not erase why it crashed."""
    processes.finish(spec("echo", "first"), SOON)
    processes.finish(spec("echo", "second"), SOON)

    assert processes.log("it").read_text() == "second\n"
    assert processes.log("it").with_name("it.log.1").read_text() == "first\n"


def test_a_java_stack_trace_does_not_hide_its_reason(processes: Processes) -> None:
    """The last twenty lines of a crashed JVM's log are frames, the reason stands above them."""
    frames = "\\n".join(["\\tat a.B.c(B.java:1)"] * 50)
    processes.finish(shell(f"printf 'Address already in use\\n{frames}\\n\\t... 6 more\\n'"), SOON)

    assert processes.last_lines("it") == "Address already in use"


def test_a_quoted_log_shows_no_secret(processes: Processes) -> None:
    """The end of a log goes into error messages, and from there into issue trackers."""
    processes.finish(spec("echo", "key=s3cret and so on"), SOON)

    assert processes.last_lines("it", ["s3cret"]) == "key=*** and so on"


def test_part_that_does_not_start_hides_its_secret(processes: Processes) -> None:
    """What ended instead of answering is quoted, with the next step and without what is hidden."""
    processes.finish(spec("sh", "-c", "echo key=s3cret; exit 1"), SOON)

    with pytest.raises(Retryable) as error:
        processes.wait_ready("it", "the part", lambda: False, SOON, hidden=["s3cret"], advice=", then frazil up")

    assert "the part ended while starting; its log ends with [FRZ-109]\nkey=***" in str(error.value)
    assert f"read {processes.log('it')}, then frazil up" in str(error.value)
    assert "s3cret" not in str(error.value)


def test_logs_and_records_are_for_their_owner_only(processes: Processes) -> None:
    """Airflow's scheduler writes connection passwords to its output."""
    processes.start(spec(*SLEEP))

    assert processes.logs.stat().st_mode & 0o077 == 0
    assert processes.run.stat().st_mode & 0o077 == 0


def test_a_command_name_with_parentheses_is_read_past() -> None:
    """The kernel prints a command's name as it is: splitting at blanks reads the wrong fields."""
    line = "42 (a) S (b c) R 1 42 40 " + " ".join(["0"] * 13) + " 2 0 777 0"

    stat = parse_stat(line)

    assert (stat.pid, stat.state, stat.session, stat.start_ticks) == (42, "R", 40, 777)


def test_a_jvm_whose_first_thread_ended_has_not_ended() -> None:
    """After `kill -9` the others still hold its ports for a moment: a restart would find them taken."""
    dying = Stat(pid=42, state="Z", threads=2, session=42, start_ticks=7)

    assert not dying.has_ended
    assert replace(dying, threads=1).has_ended
