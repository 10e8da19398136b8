"""The processes of a plane as seen from outside: starting its supervisor, seeing who lives, stopping what was left.

A pid alone proves nothing, since pids come round again and files outlive a reboot, so every process is known by its pid
together with its start time (see `supervisor.identify`). What the processes do is no concern of this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from local import supervisor
from local.errors import ComponentDiedError, DeadlineError, LocalError
from local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES_SHOWN = 12
EXPLAIN_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Component:
    """A program of the plane, ready to be started."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process as the supervisor recorded it."""

    name: str
    pid: int | None
    identity: str | None
    exit_code: int | None
    log: Path

    @property
    def alive(self) -> bool:
        """Whether it lives now; another process that has its pid does not count."""
        return self.pid is not None and self.identity is not None and supervisor.identify(self.pid) == self.identity


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Everything a plane runs, or ran when it was last seen; empty if it was stopped in good order.

    Attributes:
        supervisor: Parent of the components.
        components: In the order of their start.
        owner: The process with which the plane ends; None if it was detached.
    """

    supervisor: Process | None
    components: tuple[Process, ...]
    owner: Process | None = None

    @property
    def alive(self) -> tuple[Process, ...]:
        """Every process that lives, the supervisor included."""
        everyone = (*self.components, self.supervisor) if self.supervisor else self.components
        return tuple(process for process in everyone if process.alive)

    @property
    def dead(self) -> tuple[Process, ...]:
        """Every component that was started, was not asked to stop, and is gone."""
        return tuple(process for process in self.components if not process.alive)

    @property
    def is_unexplained(self) -> bool:
        """Whether a component is gone and the supervisor, which lives, has not said how it ended."""
        watched = self.supervisor is not None and self.supervisor.alive
        return watched and any(process.exit_code is None for process in self.dead)

    def raise_if_dead(self) -> None:
        """Report the first component that died, in the order of their start, since the later depend on the earlier.

        The supervisor comes before components that nobody saw ending: they went with it.

        Raises:
            ComponentDiedError: with its name and its last lines.
        """
        seen = [process for process in self.dead if process.exit_code is not None]
        lost = [self.supervisor] if self.supervisor and not self.supervisor.alive else []
        for process in (*seen, *lost, *self.dead):
            raise ComponentDiedError(
                process.name,
                exit_code=process.exit_code,
                log=process.log,
                last_lines=read_last_lines(process.log, LINES_SHOWN),
            )


def see_processes(folder: Path) -> Processes:
    """Read what the supervisor of this folder recorded and check it against the processes that exist.

    A component that ended this moment is looked at again until its supervisor has written down how.
    """
    processes = _read(folder)
    deadline = time.monotonic() + EXPLAIN_SECONDS
    while processes.is_unexplained and time.monotonic() < deadline:
        time.sleep(0.01)
        processes = _read(folder)
    return processes


def _read(folder: Path) -> Processes:
    try:
        state = cast("dict[str, Any]", json.loads((folder / supervisor.STATE_FILE).read_text()))
    except FileNotFoundError:
        return Processes(supervisor=None, components=())
    except json.JSONDecodeError as error:
        raise LocalError(
            f"{folder / supervisor.STATE_FILE} is not readable JSON ({error}). Remove the folder {folder} once no "
            "process of it runs any more."
        ) from None

    def seen(name: str, entry: dict[str, Any], log: Path) -> Process:
        return Process(
            name=name, pid=entry["pid"], identity=entry["identity"], exit_code=entry.get("exit_code"), log=log
        )

    components = cast("dict[str, dict[str, Any]]", state["components"])
    log = folder / "logs" / "supervisor.log"
    owner = cast("dict[str, Any] | None", state.get("owner"))
    return Processes(
        supervisor=seen("supervisor", state["supervisor"], log),
        owner=seen("owner", owner, log) if owner else None,
        components=tuple(seen(name, entry, Path(entry["log"])) for name, entry in components.items()),
    )


class SupervisorLink:
    """This process's hold on the supervisor of a plane it is starting or that it keeps until it ends itself."""

    def __init__(self, folder: Path, *, grace_seconds: float = supervisor.GRACE_SECONDS) -> None:
        """Start a supervisor for this folder and wait until it serves.

        Args:
            folder: The plane's; it has a folder `logs`.
            grace_seconds: How long a component that was asked to stop may take before it is killed.

        Raises:
            LocalError: if it does not come up.
        """
        self.folder = folder
        self.log = folder / "logs" / "supervisor.log"
        # It writes this file as soon as it serves; one that is there already is from a plane that ended badly.
        (folder / supervisor.STATE_FILE).unlink(missing_ok=True)
        me = str(os.getpid())
        reader, self._writer = os.pipe()
        try:
            with self.log.open("ab") as output:
                started = subprocess.run(
                    [sys.executable, "-S", "-E", supervisor.__file__, str(folder), str(grace_seconds), me],
                    stdin=reader,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    start_new_session=True,
                    check=False,
                )
            wait_until(
                lambda: started.returncode != 0 or (folder / supervisor.STATE_FILE).exists(),
                timeout=20,
                what="the plane's supervisor to start",
            )
        except BaseException:
            os.close(self._writer)
            raise
        finally:
            os.close(reader)
        if started.returncode != 0:
            os.close(self._writer)
            said = "\n".join(f"  | {line}" for line in read_last_lines(self.log, LINES_SHOWN))
            raise LocalError(f"The plane's supervisor did not start. Its last lines, from {self.log}:\n{said}")

    def start(self, component: Component) -> None:
        """Have one component started; its output is appended to `logs/<name>.log`."""
        log = self.folder / "logs" / f"{component.name}.log"
        message = {"name": component.name, "argv": component.argv, "env": dict(component.env), "log": str(log)}
        self._send({"start": message})

    def detach(self) -> None:
        """Let the plane outlive this process."""
        self._send({"detach": True})
        os.close(self._writer)

    def abandon(self) -> None:
        """Let go without `detach`: the supervisor stops everything and ends. Returns at once."""
        os.close(self._writer)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            os.write(self._writer, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            see_processes(self.folder).raise_if_dead()
            raise LocalError(f"The plane's supervisor went away. Its log is {self.log}.") from None


def end_processes(folder: Path) -> None:
    """End every process of this folder's plane, whoever started it, and make sure of it.

    The supervisor is asked first, since it stops the others in order; what still lives after that is killed.

    Raises:
        DeadlineError: if a process survives even that.
    """
    processes = see_processes(folder)
    if processes.supervisor and processes.supervisor.alive:
        _signal(processes.supervisor, signal.SIGTERM)
        with contextlib.suppress(DeadlineError):
            wait_until(lambda: not processes.alive, timeout=4 * supervisor.GRACE_SECONDS, what="the plane to stop")
    # The supervisor may have started another one before it heard of the end.
    left = (*processes.alive, *see_processes(folder).alive)
    for process in left:
        _signal(process, signal.SIGKILL)
    wait_until(lambda: not any(process.alive for process in left), timeout=10, what=f"every process of {folder} to end")
    (folder / supervisor.STATE_FILE).unlink(missing_ok=True)


def _signal(process: Process, number: int) -> None:
    if process.pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        if process.name == "supervisor":
            os.kill(process.pid, number)
        else:  # a component leads its own group
            os.killpg(process.pid, number)


def read_last_lines(path: Path, count: int) -> tuple[str, ...]:
    """Return the last lines of a log that may be long; () if there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 64 * 1024))
            return tuple(log.read().decode(errors="replace").splitlines()[-count:])
    except FileNotFoundError:
        return ()
