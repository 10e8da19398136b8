"""The parent process of one plane: it starts the components, notices when one dies, and leaves none behind.

It runs as a program of its own, detached from the terminal, with nothing but the standard library, so that it is small
and starts at once. Whoever starts a plane holds the other end of its standard input and sends one JSON object a line:

    {"start": {"name": ..., "argv": [...], "env": {...}, "log": ...}}
    {"detach": true}                       the plane may outlive the sender
    {"stop": true}

If that pipe closes before `detach` came, the sender is gone (Ctrl-C, a crash, SIGKILL), and the supervisor stops every
component and ends. So a plane in the middle of its start, or one that a test holds, never survives its owner. On Linux
the kernel ends the components too should the supervisor itself be killed.

What it knows stands in `components.json` in the plane's folder, rewritten whole at each change. It decides nothing:
what to start and in which order, what counts as ready and whether a death matters is for others.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STATE_FILE = "components.json"

# Those that talk to the API server go first and the store goes last, so that no log ends in refused connections.
LAST_TO_STOP = ("kube-apiserver", "etcd")
GRACE_SECONDS = 5.0


def identify(pid: int) -> str | None:
    """Return what tells this process from others that had or will have its pid; None if there is no such process.

    On Linux this is the boot id with the start time in clock ticks (proc(5), `/proc/[pid]/stat`, field 22), elsewhere
    the start date that `ps` prints. A zombie counts as gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _identify_by_ps(pid)
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}:{fields[19]}"


def _identify_by_ps(pid: int) -> str | None:
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip() or None


def _die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the supervisor ends (prctl(2), PR_SET_PDEATHSIG is 1)."""
    import ctypes  # noqa: PLC0415  # only the child of a fork needs it

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Supervisor:
    """Holds the running components of the plane whose folder it is given."""

    def __init__(self, folder: Path, grace_seconds: float, owner: int) -> None:
        self.folder = folder
        self.grace_seconds = grace_seconds
        self.owner: dict[str, Any] | None = _described(owner)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.record: dict[str, dict[str, Any]] = {}

    def write(self) -> None:
        """Publish what is known, atomically: a reader sees the old state or the new one."""
        state = {"supervisor": _described(os.getpid()), "owner": self.owner, "components": self.record}
        draft = self.folder / f".{STATE_FILE}.draft"
        draft.write_text(json.dumps(state, indent=1))
        draft.replace(self.folder / STATE_FILE)

    def start(self, name: str, argv: list[str], env: dict[str, str], log: str) -> None:
        """Start one component in a process group of its own, with its output appended to its log."""
        entry: dict[str, Any] = {"pid": None, "identity": None, "argv": argv, "log": log, "exit_code": None}
        self.record[name] = entry
        try:
            with Path(log).open("ab") as output:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=env,
                    cwd=self.folder,
                    process_group=0,
                    preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  # no threads here
                )
        except OSError as error:
            with Path(log).open("a") as output:
                output.write(f"cannot start {argv[0]}: {error.strerror}\n")
            entry["exit_code"] = 127
        else:
            self.running[name] = child
            entry.update(pid=child.pid, identity=identify(child.pid))
        self.write()

    def reap(self) -> None:
        """Record the components that have ended."""
        ended = {name: code for name, child in self.running.items() if (code := child.poll()) is not None}
        for name, code in ended.items():
            del self.running[name]
            self.record[name]["exit_code"] = code
        if ended:
            self.write()

    def stop(self) -> None:
        """End every component, in order, asking first and insisting after the grace."""
        first = [name for name in self.running if name not in LAST_TO_STOP]
        for names in (first, *([name] for name in LAST_TO_STOP)):
            children = [self.running[name] for name in names if name in self.running]
            for child in children:
                _signal_group(child, signal.SIGTERM)
            deadline = time.monotonic() + self.grace_seconds
            for child in children:
                try:
                    child.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    _signal_group(child, signal.SIGKILL)
                    child.wait()
        (self.folder / STATE_FILE).unlink(missing_ok=True)

    def obey(self, line: str) -> bool:
        """Do what one line says; False if it says to stop."""
        message = json.loads(line)
        if "start" in message:
            self.start(**message["start"])
        if "detach" in message:
            self.owner = None
            self.write()
        return "stop" not in message

    def run(self) -> None:
        """Serve until told to stop, by the pipe or by a signal."""
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        asked_to_stop: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda caught, _frame: asked_to_stop.append(caught))
        signal.signal(signal.SIGCHLD, lambda _caught, _frame: None)
        pending: bytes = b""
        self.write()
        with selectors.DefaultSelector() as selector:
            selector.register(woken, selectors.EVENT_READ)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            while not asked_to_stop:
                for key, _ in selector.select():
                    if key.fd == woken:
                        os.read(woken, 4096)
                        self.reap()
                        continue
                    received = os.read(key.fd, 65536)
                    if not received:
                        if self.owner:
                            return
                        selector.unregister(key.fd)
                    lines = (pending + received).split(b"\n")
                    pending = lines.pop()
                    if not all(self.obey(line.decode()) for line in lines):
                        return


def _described(pid: int) -> dict[str, Any]:
    return {"pid": pid, "identity": identify(pid)}


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def main() -> None:
    """Serve the plane whose folder, grace and owner are the arguments, as a process that nobody need wait for."""
    if os.fork():
        os._exit(0)
    supervisor = Supervisor(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    try:
        supervisor.run()
    finally:
        supervisor.stop()


if __name__ == "__main__":
    main()
