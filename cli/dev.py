"""Try the stack out: an embedded control plane, the real engine, stack `dev`.

A user with a cluster needs none of this: `pulumi stack select <name>`, then `pulumi preview` and `pulumi up`.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cli.overview import print_overview
from cli.stackfile import read_stack_file
from cluster.connect import ClusterError
from local.control_plane import ControlPlane
from local.crds import PROJECTS
from local.engine import engine_environment
from local.errors import LocalError
from local.inventory import load_inventory
from local.toolchain import Toolbox, ensure
from local.tools import PROGRAMS
from stack.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType

app = typer.Typer(no_args_is_help=True, help=__doc__)
console = Console(stderr=True, highlight=False)

PROJECT = Path(__file__).resolve().parent.parent
STACK = "dev"
INVENTORY = "small"
TOOLS = (*PROGRAMS, "kubectl", "pulumi", "pulumi-resource-kubernetes", *PROJECTS)
"""What these commands need; the controllers that later tests use are not among it."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The tools, the plane, the namespace of the stack, and the engine's environment."""

    toolbox: Toolbox
    plane: ControlPlane
    namespace: str
    environment: dict[str, str]

    def pulumi(self, *arguments: str) -> int:
        """Run the engine in the project; its output is the user's, its exit status the result."""
        command = [self.toolbox.path("pulumi"), *arguments, "--non-interactive"]
        with (
            subprocess.Popen(command, cwd=PROJECT, env=self.environment) as engine,
            _interruptions_are_the_engines(engine),
        ):
            return engine.wait()


@contextmanager
def _interruptions_are_the_engines(engine: subprocess.Popen[bytes]) -> Generator[None]:
    """Let the engine end by itself, since one that is killed leaves its stack locked.

    A Ctrl-C reaches it without our help, as it shares our terminal, and a second one would make it hurry.
    """

    def pass_by(_number: int, _frame: FrameType | None) -> None: ...

    def pass_on(number: int, _frame: FrameType | None) -> None:
        engine.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, pass_by),
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def state_folder() -> Path:
    """Where this checkout keeps the plane and the engine's state: `.local`, or `SERVING_STACK_STATE`."""
    return Path(os.environ.get("SERVING_STACK_STATE") or PROJECT / ".local").absolute()


def plane_folder() -> Path:
    """Where the plane of stack dev lives."""
    return state_folder() / "plane"


def open_bench(*, start: bool) -> Bench | None:
    """Tools ensured and the plane running; None if it is not running and should not be started.

    Raises:
        ConfigError: the stack file can't be read, or names no namespace or context.
        LocalError: the plane does not come up, or a tool can't be had.
    """
    context, namespace = _place()
    if start:
        toolbox = ensure(TOOLS)
        with _progress() as told:
            plane = ControlPlane.start(
                load_inventory(INVENTORY),
                plane_folder(),
                tools=toolbox,
                name=STACK,
                context=context,
                namespaces=[namespace],
                progress=told,
            )
    else:
        found = ControlPlane.at(plane_folder())
        if found is None or found.status().state != "running":
            return None  # and nothing is built to say so
        plane = found
        toolbox = ensure(TOOLS)
    environment = engine_environment(
        toolbox, kubeconfig=plane.kubeconfig, backend=state_folder() / "state", virtualenv=Path(sys.prefix)
    )
    return Bench(toolbox=toolbox, plane=plane, namespace=namespace, environment=environment)


def _place() -> tuple[str, str]:
    """Context and namespace, as the stack file has them: the plane is made to fit it."""
    blocks, context = read_stack_file((PROJECT / f"Pulumi.{STACK}.yaml").read_text(encoding="utf-8"))
    namespace = blocks.get("namespace")
    if context is None or not isinstance(namespace, str):
        raise LocalError(f"Pulumi.{STACK}.yaml names no kubernetes:context or no serving-stack:namespace. Write both.")
    return context, namespace


@contextmanager
def _progress() -> Generator[Callable[[str], None]]:
    """A line that changes on a terminal, lines one after another elsewhere."""
    if not console.is_terminal:
        yield lambda said: console.print(escape(said), soft_wrap=True)
        return
    with console.status("control plane") as status:
        yield lambda said: status.update(escape(said))


def _select(bench: Bench) -> None:
    if bench.pulumi("stack", "select", "--create", STACK):
        raise typer.Exit(1)
    if is_locked_by_the_dead(state_folder() / "state"):
        console.print("An earlier run ended without letting go of the stack; taking its lock away.")
        if bench.pulumi("cancel", "--yes"):
            raise typer.Exit(1)


def is_locked_by_the_dead(backend: Path) -> bool:
    """Whether a process of this machine that is gone still holds a lock in the engine's state folder."""
    for lock in (backend / ".pulumi" / "locks").rglob("*.json"):
        try:
            held = json.loads(lock.read_text(encoding="utf-8"))
            if held["hostname"] == socket.gethostname():
                os.kill(int(held["pid"]), 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError, KeyError, RecursionError):
            continue  # somebody's whom we can't judge
    return False


def _fail(error: Exception) -> typer.Exit:
    console.print(f"[red]{escape(str(error))}[/red]", soft_wrap=True)
    return typer.Exit(1)


@app.command()
def up(
    arguments: Annotated[list[str] | None, typer.Argument(help="More arguments for `pulumi up`.")] = None,
) -> None:
    """Build what is missing, start the control plane, deploy, and show what came of it."""
    bench = _opened(start=True)
    _select(bench)
    if status := bench.pulumi("up", "--yes", "--suppress-outputs", *_given(arguments)):
        _say_what_died(bench)
        raise typer.Exit(status)
    _show(bench)


@app.command()
def preview(
    arguments: Annotated[list[str] | None, typer.Argument(help="More arguments for `pulumi preview`.")] = None,
) -> None:
    """Show what `up` would change."""
    bench = _opened(start=True)
    _select(bench)
    raise typer.Exit(bench.pulumi("preview", *_given(arguments)))


@app.command()
def status() -> None:
    """Show Pods, claims and volumes."""
    _show(_opened(start=False))


@app.command()
def down(
    *,
    keep: Annotated[
        bool, typer.Option(help="Keep the plane's data, with the volumes on it, for the next `up`.")
    ] = True,
    force: Annotated[bool, typer.Option(help="Stop the plane without destroying the stack.")] = False,
) -> None:
    """Destroy the stack, then stop everything that was started."""
    plane = ControlPlane.at(plane_folder())
    if plane is not None and not force and _stack_file().exists():
        # A plane that is stopped or broken holds the stack's objects all the same.
        bench = _opened(start=True)
        _select(bench)
        if exit_status := bench.pulumi("destroy", "--yes"):
            _say_what_died(bench)
            console.print(
                "The stack is not destroyed, so the plane is left running. `make down` tries again; "
                "`serving-stack dev down --force` stops the plane all the same.",
                soft_wrap=True,
            )
            raise typer.Exit(exit_status)
    if plane is not None:
        try:
            plane.stop(remove=not keep)
        except (LocalError, OSError) as error:
            raise _fail(error) from None
    console.print("Nothing is running any more.")


def _stack_file() -> Path:
    """The engine's record of the stack; there is none before the first `up`."""
    return state_folder() / "state" / ".pulumi" / "stacks" / "serving-stack" / f"{STACK}.json"


@app.command(name="env")
def print_env() -> None:
    """Print shell exports with which `pulumi` and `kubectl` work against the running plane."""
    bench = _opened(start=False)
    for name in ("PATH", "KUBECONFIG", *sorted(n for n in bench.environment if n.startswith("PULUMI_"))):
        typer.echo(f"export {name}={shlex.quote(bench.environment[name])}")


def _opened(*, start: bool) -> Bench:
    try:
        bench = open_bench(start=start)
    except (ConfigError, LocalError, OSError) as error:
        raise _fail(error) from None
    if bench is None:
        console.print("The control plane is not running. Start it with `make up`.")
        raise typer.Exit(1)
    return bench


def _say_what_died(bench: Bench) -> None:
    """Name the component behind a failure of the engine, if it was one."""
    try:
        bench.plane.check()
    except LocalError as error:
        _fail(error)


def _show(bench: Bench) -> None:
    try:
        print_overview(
            bench.plane.kubeconfig, context=bench.plane.context, namespace=bench.namespace, hints=_hints(bench)
        )
    except ClusterError as error:
        raise _fail(error) from None


def _given(arguments: Sequence[str] | None) -> Sequence[str]:
    return arguments or ()


def _hints(bench: Bench) -> list[str]:
    return [
        'eval "$(.venv/bin/serving-stack dev env)"   use pulumi and kubectl against this plane',
        f"kubectl -n {bench.namespace} get pods,resourceclaims,pvc -o wide",
        f"edit Pulumi.{STACK}.yaml, for example modelserver.replicas.decode: 3, then `make preview` and `make up`",
        f"make down   destroy the stack and stop the plane ({bench.plane.folder})",
    ]
