"""The `local` commands: start, stop and look at embedded control planes. What they do is in `control_plane`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from local.control_plane import ControlPlane, PlaneStatus
from local.crds import PROJECTS
from local.errors import LocalError, describe_exit
from local.inventory import inventory_names, load_inventory
from local.lws import LWS_MANAGER
from local.places import planes_folder
from local.processes import read_last_lines
from local.toolchain import ensure
from local.tools import PROGRAMS, FolderTools, Tools

if TYPE_CHECKING:
    from collections.abc import Generator

app = typer.Typer(
    name="local",
    help="Embedded control planes on this machine: real Kubernetes servers, nodes and devices on paper.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
complaints = Console(stderr=True)

NameOption = Annotated[str, typer.Option("--name", "-n", help="Which plane.")]
StateOption = Annotated[
    Path | None, typer.Option("--state", help="Folder that holds the planes.", envvar="SERVING_STACK_PLANES")
]


@contextmanager
def _no_traceback() -> Generator[None]:
    """Print what is wrong as a letter, and end with status 1."""
    try:
        yield
    except LocalError as error:
        complaints.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complaints.print("interrupted; nothing was left running")
        raise typer.Exit(130) from None


def _folder(name: str, state: Path | None) -> Path:
    return (state or planes_folder()) / name


def _find(name: str, state: Path | None) -> ControlPlane:
    plane = ControlPlane.at(_folder(name, state))
    if plane is None:
        raise LocalError(
            f"There is no plane called {name} in {_folder(name, state).parent}. Start one with `up --name {name}`, "
            "or see `status`."
        )
    return plane


def find_tools(programs: Path | None = None, *, lws: bool = False) -> Tools:
    """Return the programs and CRDs a plane needs, built first if need be, or those of one folder."""
    if programs is None:
        return ensure([*PROGRAMS, *([LWS_MANAGER] if lws else []), *PROJECTS])
    toolbox = ensure(PROJECTS)
    return FolderTools(programs=programs, crds={project: toolbox.crd_dir(project) for project in PROJECTS})


@app.command()
def up(  # noqa: PLR0917  # options of a command, never called by position
    name: NameOption = "try",
    inventory: Annotated[str, typer.Option(help="Inventory by name, or a YAML file.")] = "small",
    context: Annotated[
        str | None, typer.Option(help="Context in the kubeconfig; serving-stack-<name> if not given.")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace to create; may be given several times.")
    ] = None,
    lws: Annotated[bool, typer.Option("--lws", help="Run the DisaggregatedSet controller too.")] = False,  # noqa: FBT002
    programs: Annotated[Path | None, typer.Option(help="Folder with the programs, instead of the toolchain.")] = None,
    state: StateOption = None,
) -> None:
    """Start a plane, or bring a running one up to date."""
    with _no_traceback():
        wanted = load_inventory(inventory)
        tools = find_tools(programs, lws=lws)
        began = time.monotonic()
        with console.status("starting"):
            plane = ControlPlane.start(
                wanted,
                _folder(name, state),
                tools=tools,
                name=name,
                context=context,
                namespaces=namespace or [],
                lws=lws,
                progress=lambda said: console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {escape(said)}"),
            )
        _show(plane.status())
        console.print(f"\nexport KUBECONFIG={shlex.quote(str(plane.kubeconfig))}", soft_wrap=True, highlight=False)


@app.command()
def down(
    name: NameOption = "try",
    remove: Annotated[bool, typer.Option("--remove", help="Remove its data too.")] = False,  # noqa: FBT002
    state: StateOption = None,
) -> None:
    """Stop a plane. Its data stay, and `up` brings it back as it was, unless they are removed."""
    with _no_traceback():
        _find(name, state).stop(remove=remove)
        console.print(f"{name}: stopped{' and removed' if remove else ''}")


@app.command()
def status(
    name: Annotated[str | None, typer.Option("--name", "-n", help="Which plane; all, if not given.")] = None,
    state: StateOption = None,
) -> None:
    """Show planes and their components. Status 1 if a component died or the one asked for is not running."""
    with _no_traceback():
        if name:
            planes = [_find(name, state)]
        else:
            folders = sorted((state or planes_folder()).glob("*/plane.json"))
            planes = [plane for folder in folders if (plane := ControlPlane.at(folder.parent))]
        if not planes:
            console.print("no planes; start one with `up`")
        found = [plane.status() for plane in planes]
        for each in found:
            _show(each)
        if any(each.state == "broken" or (name and each.state == "stopped") for each in found):
            raise typer.Exit(1)


@app.command()
def logs(
    component: Annotated[str, typer.Argument(help="For instance kube-apiserver.")],
    name: NameOption = "try",
    lines: Annotated[int, typer.Option(help="How many of the last lines.")] = 100,
    state: StateOption = None,
) -> None:
    """Print the end of a component's log."""
    with _no_traceback():
        for line in read_last_lines(_find(name, state).log_of(component), lines):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kubectl(
    ctx: typer.Context,
    plane_name: Annotated[str, typer.Option("--plane", help="Which plane.")] = "dev",  # -n is kubectl's
    state: StateOption = None,
) -> None:
    """Run kubectl against a plane; all other options are kubectl's."""
    with _no_traceback():
        plane = _find(plane_name, state)
        plane.check()
        program = str(ensure(["kubectl"]).path("kubectl"))
        env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        sys.stdout.flush()
        os.execve(program, [program, *ctx.args], env)  # noqa: S606  # kubectl takes this process's place


@app.command()
def env(name: NameOption = "try", state: StateOption = None) -> None:
    """Print what to evaluate in a shell: eval "$(... env)"."""
    with _no_traceback():
        plane = _find(name, state)
        console.print(f"export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}", soft_wrap=True, highlight=False)


@app.command()
def inventories() -> None:
    """List the inventories that come with the plane."""
    with _no_traceback():
        table = Table("inventory", "nodes", "devices", "what it is", box=None)
        for each in inventory_names():
            found = load_inventory(each)
            devices = ", ".join(f"{count} {driver}" for driver, count in found.devices_by_driver().items())
            table.add_row(found.name, str(found.node_count), devices or "extended resources", found.description)
        console.print(table)


def _show(status: PlaneStatus) -> None:
    colour = {"running": "green", "broken": "red", "stopped": "yellow"}[status.state]
    console.print(
        f"[bold]{status.name}[/]: [{colour}]{status.state}[/], inventory {status.inventory}, "
        f"context {status.context}, {status.server}",
        highlight=False,
        soft_wrap=True,
    )
    if not status.components:
        return
    table = Table("component", "pid", "ports", "state", box=None, padding=(0, 2))
    for each in status.components:
        table.add_row(
            each.name,
            str(each.pid or "-"),
            ", ".join(map(str, each.ports)) or "-",
            each.state if each.state == "running" else f"[red]{describe_exit(each.exit_code)}[/]",
        )
    console.print(table)
    console.print(f"logs in {status.folder / 'logs'}", highlight=False, soft_wrap=True)
    for each in status.components:
        for line in each.last_lines:
            console.print(f"  {each.name} | {line}", markup=False, highlight=False, soft_wrap=True)
