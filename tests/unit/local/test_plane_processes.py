"""The supervisor and what is known of processes, shown with programs of a line each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local import supervisor
from local.errors import ComponentDiedError, LocalError
from local.processes import Component, SupervisorLink, end_processes, read_last_lines, see_processes
from local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).parents[3]
SECONDS = 20


def shell(name: str, script: str) -> Component:
    return Component(name=name, argv=("/bin/sh", "-c", script), env={"PATH": "/usr/bin:/bin"})


def forever(name: str) -> Component:
    return Component(name=name, argv=("/bin/sleep", "1000"), env={})


def wait_for_components(folder: Path, count: int) -> None:
    wait_until(lambda: len(see_processes(folder).components) == count, timeout=SECONDS, what="the components to start")


def is_gone(pid: int) -> bool:
    return supervisor.identify(pid) is None


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    (tmp_path / "logs").mkdir()
    yield tmp_path
    end_processes(tmp_path)


@pytest.fixture
def bystander() -> Generator[subprocess.Popen[bytes]]:
    """A process that is none of ours."""
    process = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


# -- who is who -------------------------------------------------------------------------------------------------------


def test_a_process_is_known_by_more_than_its_pid(bystander: subprocess.Popen[bytes]) -> None:
    assert supervisor.identify(bystander.pid) == supervisor.identify(bystander.pid)
    assert supervisor.identify(bystander.pid) != supervisor.identify(os.getpid())


def test_a_process_that_ended_is_gone_even_before_its_parent_noticed() -> None:
    process = subprocess.Popen(["/bin/true"])
    wait_until(lambda: is_gone(process.pid), timeout=SECONDS, what="a zombie to be seen as gone")
    process.wait()
    assert is_gone(process.pid)


def record(folder: Path, pid: int, identity: str) -> None:
    log = str(folder / "logs/etcd.log")
    entry = {"pid": pid, "identity": identity, "argv": ["etcd"], "log": log, "exit_code": None}
    state: dict[str, object] = {"supervisor": {"pid": pid, "identity": identity}, "components": {"etcd": entry}}
    (folder / supervisor.STATE_FILE).write_text(json.dumps(state))


def test_a_pid_that_somebody_else_has_now_is_not_ours(folder: Path, bystander: subprocess.Popen[bytes]) -> None:
    identity = supervisor.identify(bystander.pid) or ""
    record(folder, bystander.pid, identity + "1")
    assert see_processes(folder).alive == ()
    end_processes(folder)
    assert bystander.poll() is None, "a process that only has our old pid must not be ended"


def test_a_plane_of_an_earlier_boot_is_not_running(folder: Path) -> None:
    boot, _, started = (supervisor.identify(os.getpid()) or "").rpartition(":")
    record(folder, os.getpid(), f"{boot[::-1]}:{started}")
    processes = see_processes(folder)
    assert [process.name for process in processes.dead] == ["etcd"]
    with pytest.raises(ComponentDiedError, match="nobody saw how it ended"):
        processes.raise_if_dead()


def test_a_record_that_says_the_truth_is_believed(folder: Path, bystander: subprocess.Popen[bytes]) -> None:
    record(folder, bystander.pid, supervisor.identify(bystander.pid) or "")
    assert [process.name for process in see_processes(folder).alive] == ["etcd", "supervisor"]


def test_a_folder_without_a_record_has_no_processes(folder: Path) -> None:
    assert see_processes(folder).alive == see_processes(folder).dead == ()


def test_a_record_that_is_broken_is_a_letter(folder: Path) -> None:
    (folder / supervisor.STATE_FILE).write_text("{")
    with pytest.raises(LocalError, match="not readable JSON"):
        see_processes(folder)
    (folder / supervisor.STATE_FILE).unlink()


# -- deaths -----------------------------------------------------------------------------------------------------------


def test_a_component_that_dies_is_reported_by_name_with_its_last_lines(folder: Path) -> None:
    link = SupervisorLink(folder)
    link.start(forever("etcd"))
    link.start(shell("kwok", "echo one; echo two >&2; exit 3"))
    wait_until(lambda: see_processes(folder).dead, timeout=SECONDS, what="kwok to die")
    with pytest.raises(ComponentDiedError) as died:
        see_processes(folder).raise_if_dead()
    assert died.value.component == "kwok"
    assert died.value.exit_code == 3
    assert died.value.last_lines == ("one", "two")
    assert "kwok ended by itself with exit code 3" in str(died.value)
    link.abandon()


def test_a_component_that_was_killed_says_by_which_signal(folder: Path) -> None:
    link = SupervisorLink(folder)
    link.start(forever("etcd"))
    wait_for_components(folder, 1)
    [etcd] = see_processes(folder).components
    os.kill(etcd.pid or 0, signal.SIGKILL)
    wait_until(lambda: see_processes(folder).components[0].exit_code, timeout=SECONDS, what="the death to be seen")
    with pytest.raises(ComponentDiedError, match="etcd was ended by signal 9"):
        see_processes(folder).raise_if_dead()
    link.abandon()


def test_a_program_that_is_not_there_is_reported_like_one_that_died(folder: Path) -> None:
    link = SupervisorLink(folder)
    link.start(Component(name="etcd", argv=("/nowhere/etcd",), env={}))
    wait_until(lambda: see_processes(folder).dead, timeout=SECONDS, what="the failure to be seen")
    with pytest.raises(ComponentDiedError, match="cannot start /nowhere/etcd: No such file"):
        see_processes(folder).raise_if_dead()
    link.abandon()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_components_do_not_outlive_their_supervisor_and_it_is_named(folder: Path) -> None:
    link = SupervisorLink(folder)
    link.start(forever("etcd"))
    wait_for_components(folder, 1)
    parent = see_processes(folder).supervisor
    assert parent
    assert parent.pid
    os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not see_processes(folder).alive, timeout=SECONDS, what="everything to end")
    with pytest.raises(ComponentDiedError, match="supervisor is gone"):
        see_processes(folder).raise_if_dead()
    with pytest.raises(LocalError, match="supervisor"):
        link.start(forever("kwok"))
    link.abandon()


# -- ends -------------------------------------------------------------------------------------------------------------


def test_letting_go_ends_every_component(folder: Path) -> None:
    link = SupervisorLink(folder)
    link.start(forever("etcd"))
    link.start(shell("kwok", "sleep 1000 & wait"))
    wait_for_components(folder, 2)
    everyone = see_processes(folder).alive
    assert len(everyone) == 3
    link.abandon()
    wait_until(lambda: all(is_gone(each.pid or 0) for each in everyone), timeout=SECONDS, what="everything to end")
    assert see_processes(folder).components == (), "a plane that was stopped in good order leaves no record"


def test_a_component_that_does_not_listen_is_killed(folder: Path) -> None:
    link = SupervisorLink(folder, grace_seconds=0.2)
    link.start(shell("kwok", "trap '' TERM; echo deaf; while :; do sleep 0.05; done"))
    log = folder / "logs" / "kwok.log"
    wait_until(lambda: read_last_lines(log, 1) == ("deaf",), timeout=SECONDS, what="the trap to be set")
    end_processes(folder)
    assert see_processes(folder).alive == ()
    link.abandon()


STARTER = """
import os, signal, sys
from pathlib import Path
from local.processes import Component, SupervisorLink, see_processes
from local.waiting import wait_until
folder = Path(sys.argv[1])
link = SupervisorLink(folder)
link.start(Component(name="etcd", argv=("/bin/sleep", "1000"), env={}))
wait_until(lambda: see_processes(folder).components, timeout=20, what="etcd")
if sys.argv[2] == "detach":
    link.detach()
else:
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


def run_starter(folder: Path, how: str) -> int:
    command = [sys.executable, "-c", STARTER, str(folder), how]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, timeout=60).returncode


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"])
def test_a_plane_does_not_outlive_a_starter_that_is_ended_in_the_middle(folder: Path, how: str) -> None:
    assert run_starter(folder, how) != 0
    wait_until(lambda: not see_processes(folder).alive, timeout=SECONDS, what="everything to end")


def test_a_plane_belongs_to_its_starter_until_it_is_detached(folder: Path) -> None:
    link = SupervisorLink(folder)
    owner = see_processes(folder).owner
    assert owner
    assert owner.pid == os.getpid()
    assert owner.alive
    link.detach()
    wait_until(lambda: see_processes(folder).owner is None, timeout=SECONDS, what="the supervisor to hear of it")


def test_a_detached_plane_outlives_its_starter_until_it_is_ended(folder: Path) -> None:
    assert run_starter(folder, "detach") == 0
    everyone = see_processes(folder).alive
    assert [process.name for process in everyone] == ["etcd", "supervisor"]
    end_processes(folder)
    assert all(is_gone(process.pid or 0) for process in everyone)


def test_components_get_no_variable_of_the_callers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com")
    link = SupervisorLink(folder)
    link.start(shell("kwok", "echo proxy=${HTTPS_PROXY:-none}"))
    log = folder / "logs" / "kwok.log"
    wait_until(lambda: read_last_lines(log, 1), timeout=SECONDS, what="a line")
    assert read_last_lines(log, 1) == ("proxy=none",)
    link.abandon()


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert read_last_lines(log, 2) == ("line 99998", "line 99999")
    assert read_last_lines(tmp_path / "none.log", 2) == ()
