"""Try the stack out: an embedded control plane, the real engine, stack `dev`.

A user with a cluster needs none of this: `pulumi stack select <name>`, then `pulumi preview` and `pulumi up`.
"""

from __future__ import annotations

import os
import shlex
import signal
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
from cluster.connect import ClusterError
from local.control_plane import ControlPlane
from local.engine import engine_environment
from local.errors import LocalError
from local.inventory import load_inventory
from local.toolchain import Toolbox, ToolchainError, ensure

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import FrameType

app = typer.Typer(no_args_is_help=True, help=__doc__)
console = Console(stderr=True, highlight=False)

PROJECT = Path(__file__).resolve().parent.parent
STACK = "dev"
NAMESPACE = "llm"
INVENTORY = "small"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The tools, the plane and the engine's environment."""

    toolbox: Toolbox
    plane: ControlPlane
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


def open_bench(*, start: bool) -> Bench | None:
    """Tools ensured and the plane running; None if it is not running and should not be started."""
    folder = state_folder() / "plane"
    if start:
        toolbox = ensure()
        with console.status("control plane") as status:
            plane = ControlPlane.start(
                load_inventory(INVENTORY),
                folder,
                tools=toolbox,
                name=STACK,
                context=f"serving-stack-{STACK}",
                namespaces=[NAMESPACE],
                progress=lambda said: status.update(escape(said)),
            )
    else:
        found = ControlPlane.at(folder)
        if found is None or found.status().state != "running":
            return None  # and nothing is built to say so
        plane = found
        toolbox = ensure()
    environment = engine_environment(
        toolbox, kubeconfig=plane.kubeconfig, backend=state_folder() / "state", virtualenv=Path(sys.prefix)
    )
    return Bench(toolbox=toolbox, plane=plane, environment=environment)


def _select(bench: Bench) -> None:
    if bench.pulumi("stack", "select", "--create", STACK):
        raise typer.Exit(1)


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
    if status := bench.pulumi("up", "--yes", *_given(arguments)):
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
) -> None:
    """Destroy the stack, then stop everything that was started."""
    try:
        bench = open_bench(start=False)
        if bench is not None:
            _select(bench)
            if exit_status := bench.pulumi("destroy", "--yes"):
                _say_what_died(bench)
                console.print("The stack is not destroyed, so the plane is left running. `make down` tries again.")
                raise typer.Exit(exit_status)
        plane = ControlPlane.at(state_folder() / "plane")
        if plane is not None:
            plane.stop(remove=not keep)
    except (LocalError, ToolchainError) as error:
        raise _fail(error) from None
    console.print("Nothing is running any more.")


@app.command(name="env")
def print_env() -> None:
    """Print shell exports with which `pulumi` and `kubectl` work against the running plane."""
    bench = _opened(start=False)
    for name in ("PATH", "KUBECONFIG", *sorted(n for n in bench.environment if n.startswith("PULUMI_"))):
        typer.echo(f"export {name}={shlex.quote(bench.environment[name])}")


def _opened(*, start: bool) -> Bench:
    try:
        bench = open_bench(start=start)
    except (LocalError, ToolchainError) as error:
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
        print_overview(bench.plane.kubeconfig, context=bench.plane.context, namespace=NAMESPACE, hints=_hints(bench))
    except ClusterError as error:
        raise _fail(error) from None


def _given(arguments: Sequence[str] | None) -> Sequence[str]:
    return arguments or ()


def _hints(bench: Bench) -> list[str]:
    return [
        'eval "$(.venv/bin/serving-stack dev env)"   use pulumi and kubectl against this plane',
        f"kubectl -n {NAMESPACE} get pods,resourceclaims,pvc -o wide",
        f"edit Pulumi.{STACK}.yaml, for example modelserver.replicas.decode: 3, then `make preview` and `make up`",
        f"make down   destroy the stack and stop the plane ({bench.plane.folder})",
    ]
