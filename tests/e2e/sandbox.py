"""A Pod's sandbox without Kubernetes: namespaces of its own, PID 1 that does nothing, containers, and a kubelet's way
of ending them.

What is real: process, network and mount namespaces as a container runtime makes them with a shared process namespace
(a container's main process has no parent in there), the rendered hook, its arguments, signals, sockets. What is not:
cgroups, users, images.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from local.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

LONG_SECONDS = 30
MODEL = "model"

NAMESPACES = ("unshare", "--pid", "--net", "--mount", "--fork", "--mount-proc")
PAUSE = """\
import fcntl, signal, socket, struct
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are adopted and reaped
with socket.socket() as any_socket:  # `lo` is made down: up with it
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""Stands in for the sandbox's pause process."""

ENGINE = """\
import http.server, itertools, signal, socket, socketserver, sys, time
host, port, how, state = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
turns = itertools.cycle(("0", "1"))

class Engine(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
    daemon_threads = True
    allow_reuse_address = True
    server_bind = socketserver.TCPServer.server_bind  # without a look for its own name, for which there is no server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if how == "hung":
            time.sleep(3600)
        with open(state) as file:
            running, waiting, *ended = file.read().split()
        if how == "flickering":
            running = next(turns)
        said = (
            "# TYPE vllm:num_requests_running gauge\\n"
            f'vllm:num_requests_running{{engine="0",model_name="a }} b"}} {running}\\n'
            f'vllm:num_requests_waiting{{engine="0",model_name="a }} b"}} {waiting}\\n'
            'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0\\n'
        )
        for number in ended:
            said += f'vllm:request_success_total{{engine="0",finished_reason="length"}} {number}\\n'
        if how == "deaf":
            said = said.replace("num_requests_waiting{", "num_requests_else{")
        self.send_response(500 if how == "failing" else 200)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *args):
        pass

engine = Engine((host, port), Handler, bind_and_activate=False)
engine.server_bind()
print("bound", flush=True)
if how == "loading":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as an engine in its initialisation, which does not hear it
    time.sleep(3600)
engine.server_activate()
print("listening", flush=True)
engine.serve_forever()
"""
"""A stand-in for vLLM's server: host, port, behaviour, and a file with the requests that run, wait, and have ended.

`loading`: bound, does not listen, ignores SIGTERM. `hung`: takes connections and never answers. `failing`: answers 500.
`deaf`: without one of the metrics. `flickering`: idle and busy in turns.
"""


@cache
def why_not_here() -> str | None:
    """Why this machine lets nobody make namespaces; None if it does."""
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no namespaces of one's own here: {tried.stderr.strip()}"


@dataclass
class Container:
    """A main process and what it wrote."""

    process: subprocess.Popen[bytes]
    log: Path
    pid: int

    @property
    def said(self) -> str:
        """Its output so far, with that of its hook."""
        return self.log.read_text(errors="replace")

    @property
    def lives(self) -> bool:
        """Whether the main process is there."""
        return self.process.poll() is None

    def send(self, number: int) -> None:
        """Signal the main process, as a container runtime does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


@dataclass(frozen=True, kw_only=True)
class Departure:
    """How a Pod left.

    Attributes:
        hook_seconds: how long the hook took.
        seconds: from the deletion until the last main process was gone.
        alive_at_sigterm: whether the first container was there when the hook had ended.
        killed_at_the_end: whether something was left for SIGKILL at the end of the grace period.
    """

    hook_seconds: float
    seconds: float
    alive_at_sigterm: bool
    killed_at_the_end: bool


@dataclass
class Sandbox:
    """One Pod."""

    folder: Path
    pause: subprocess.Popen[bytes]
    pid: int
    python: str = sys.executable
    user: int | None = None
    containers: list[Container] = field(default_factory=list[Container])

    def start(self, command: Sequence[str], *, own_files: bool = False) -> Container:
        """A container; `own_files` gives it a mount namespace of its own, as another container of the Pod has."""
        log = self.folder / f"log-{len(self.containers)}"
        within = [*self._enter(), *(["unshare", "--mount"] if own_files else []), *self._as_user(), *command]
        with log.open("ab") as out:
            if self.user is not None:
                os.fchown(out.fileno(), self.user, -1)  # as runc does with what a container writes to
            process = subprocess.Popen(within, stdout=out, stderr=subprocess.STDOUT)
        wait_until(lambda: _children(process.pid), what="main process", timeout=LONG_SECONDS)
        container = Container(process=process, log=log, pid=_children(process.pid)[0])
        self.containers.append(container)
        return container

    def engine(self, port: int, how: str = "serving", *, host: str = "0.0.0.0", requests: str = "0 0") -> Container:  # noqa: S104
        """A stand-in engine, waited for until it is as it shall be."""
        self.requests_at(port, requests)
        container = self.start([self.python, "-c", ENGINE, host, str(port), how, str(self._state(port))])
        word = "bound" if how == "loading" else "listening"
        wait_until(lambda: word in container.said or not container.lives, what=word, timeout=LONG_SECONDS)
        assert container.lives, container.said
        return container

    def requests_at(self, port: int, requests: str) -> None:
        """What the stand-in engine at a port says to have running, waiting and, if it says so, ended from now on."""
        fresh = self._state(port).with_suffix(".new")
        fresh.write_text(requests)
        fresh.replace(self._state(port))

    def simulator(self, binary: Path, port: int, *arguments: str) -> Container:
        """The inference simulator, waited for until it answers; it aborts at SIGTERM, as vLLM does by default."""
        command = [str(binary), "--model", MODEL, "--port", str(port), "--force-dummy-tokenizer", *arguments]
        container = self.start([sys.executable, "-c", ABORTING, *command])
        wait_until(lambda: self._answers(port), what=f"simulator at {port}: {container.said}", timeout=LONG_SECONDS)
        return container

    def stream(self, port: int, tokens: int) -> Stream:
        """Ask for a streamed answer, from within the sandbox, and read it aside."""
        return Stream.begin([*self._enter(), sys.executable, "-c", ASK, str(port), MODEL, str(tokens)])

    def leave(self, hook: Sequence[str], grace: float) -> Departure:
        """Delete the Pod: hook, SIGTERM when it is over, SIGKILL at the end of the grace period.

        Native sidecars come last: containers after the first are signalled when it is gone.
        """
        began = time.monotonic()
        running = subprocess.Popen([*self._enter(), *self._as_user(), self.python, *hook[1:]], cwd=self.folder)
        try:
            running.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            running.kill()
        hook_seconds = time.monotonic() - began
        first = self.containers[0]
        alive = first.lives
        killed = False
        for container in self.containers:
            container.send(signal.SIGTERM)
            left = max(0.0, began + grace - time.monotonic())
            try:
                container.process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                killed = True
                container.send(signal.SIGKILL)
                container.process.wait(timeout=LONG_SECONDS)
        return Departure(
            hook_seconds=hook_seconds,
            seconds=time.monotonic() - began,
            alive_at_sigterm=alive,
            killed_at_the_end=killed,
        )

    def _enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--pid", "--net", "--mount", "--"]

    def _as_user(self) -> list[str]:
        """Without any capability, as the containers of a Pod are."""
        if self.user is None:
            return []
        drop = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
        return ["setpriv", "--reuid", str(self.user), "--regid", "0", *drop, "--"]

    def _state(self, port: int) -> Path:
        return self.folder / f"requests-{port}"

    def _answers(self, port: int) -> bool:
        asked = subprocess.run(
            [*self._enter(), sys.executable, "-c", KNOCK, str(port)], capture_output=True, check=False
        )
        return asked.returncode == 0


ABORTING = """\
import signal, subprocess, sys
engine = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: engine.kill())
sys.exit(engine.wait())
"""
"""Ends a program at once at SIGTERM; the simulator itself would answer what it has begun."""
KNOCK = """\
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=2)
connection.request("GET", "/metrics")
sys.exit(connection.getresponse().status != 200)
"""
ASK = """\
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
question = {"model": sys.argv[2], "stream": True, "max_tokens": int(sys.argv[3]), "ignore_eos": True,
            "messages": [{"role": "user", "content": "Go on. " * 50}]}
connection.request("POST", "/v1/chat/completions", json.dumps(question), {"Content-Type": "application/json"})
for line in connection.getresponse():
    sys.stdout.write(line.decode())
    sys.stdout.flush()
"""


@dataclass
class Stream:
    """A streamed answer."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list[str])
    reader: threading.Thread | None = None

    @classmethod
    def begin(cls, command: Sequence[str]) -> Stream:
        """Ask, and come back when the first line is there."""
        stream = cls(process=subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        stream.reader = threading.Thread(target=stream._read, daemon=True)
        stream.reader.start()
        wait_until(lambda: stream.lines, what="first token", timeout=LONG_SECONDS)
        return stream

    def _read(self) -> None:
        with self.process:
            for line in self.process.stdout or ():
                if line.strip():
                    self.lines.append(line.strip())

    @property
    def is_whole(self) -> bool:
        """Whether it came to its proper end; waits until it ended anyhow."""
        if self.reader is not None:
            self.reader.join(LONG_SECONDS)
        return bool(self.lines) and self.lines[-1] == "data: [DONE]"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@contextlib.contextmanager
def sandbox(*, python: str = sys.executable, user: int | None = None) -> Generator[Sandbox]:
    """A sandbox that is gone afterwards with everything in it.

    Args:
        python: what engines and hook run with.
        user: who they run as, without capabilities; None for root with all of them.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        pause = subprocess.Popen(
            [*NAMESPACES, "--kill-child", sys.executable, "-c", PAUSE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it complains that it cannot unblock SIGKILL
        )
        stack.callback(_end, pause)
        out = pause.stdout
        if out is None or out.readline() != b"ready\n":
            raise AssertionError("the sandbox did not start")
        [pid] = _children(pause.pid)
        Path(folder).chmod(0o755)  # a user reads the state of its engine
        made = Sandbox(folder=Path(folder), pause=pause, pid=pid, python=python, user=user)
        yield made
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # PID 1: the kernel takes the rest of its namespace along
        for container in made.containers:
            container.process.wait(timeout=LONG_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(timeout=LONG_SECONDS)
    if process.stdout is not None:
        process.stdout.close()
