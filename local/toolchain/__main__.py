"""`python -m local.toolchain`: build the tools, show what there is, print paths and shell exports, clean, lock.

Commands only: everything they do is done by the modules beside this one.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from local.toolchain.build import Workshop
from local.toolchain.cache import Cache, cache_root, remove_tree, size_of
from local.toolchain.failures import ToolchainError
from local.toolchain.golang import find_go
from local.toolchain.lock import lock_module
from local.toolchain.onpath import look_on_path
from local.toolchain.pins import MODULES, load_pins
from local.toolchain.progress import MIB, Silent
from local.toolchain.toolbox import ensure

app = typer.Typer(
    help="The programs the local plane needs: from PATH where good enough, else built from Go modules into a cache.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Names = Annotated[list[str] | None, typer.Argument(help="Tools and CRD modules; all of them if none is named.")]
IgnorePath = Annotated[bool, typer.Option("--ignore-path", help="Build even what PATH has in a good version.")]


@app.command()
def build(names: Names = None, *, ignore_path: IgnorePath = False) -> None:
    """Make tools available, building what is missing."""
    toolbox = ensure(names or None, use_path=not ignore_path)
    versions = ", ".join(f"{name} {version}" for name, version in toolbox.versions.items())
    typer.echo(f"The toolchain is there: {versions}.", err=True)


@app.command()
def status() -> None:
    """Show what there is and what would have to be built; change nothing."""
    shop = _workshop()
    for tool in shop.pins.tools.values():
        look = look_on_path(tool, shop.pins, os.environ, skip=shop.cache.root)
        binary = shop.binary(shop.job(tool))
        if look.found:
            version, place = look.found.version, str(look.found.path)
        elif binary:
            version, place = shop.pins.version_of(tool), f"{binary} ({size_of(binary.parent) / MIB:.0f} MiB)"
        else:
            version, place = shop.pins.version_of(tool), "not there yet: to be built"
        typer.echo(f"{tool.name:<28}{version:<10}{place}")
        for declined in look.declined:
            typer.echo(f"{'':<38}not {declined.path}: {declined.why}")


@app.command()
def path(name: Annotated[str, typer.Argument(help="A tool, or a CRD module.")]) -> None:
    """Print where a tool's binary is, or a CRD module's folder; build it first if need be."""
    toolbox = ensure([name])
    typer.echo(toolbox.crd_dir(name) if name in load_pins().crds else toolbox.path(name))


@app.command()
def env(names: Names = None) -> None:
    """Print shell exports that put the tools first on PATH; use it as `eval "$(python -m local.toolchain env)"`."""
    for variable, value in ensure(names or None).variables(os.environ).items():
        typer.echo(f"export {variable}={shlex.quote(value)}")


@app.command()
def clean(
    *,
    old: Annotated[
        bool, typer.Option("--old", help="Only what the pins do not ask for and nobody used lately.")
    ] = False,
    days: Annotated[float, typer.Option(help="With --old: how many days without use make it old.")] = 30,
) -> None:
    """Remove built tools from the cache; Go's own caches are left alone."""
    shop = _workshop()
    with shop.cache.build_lock("cleaning", on_wait=typer.echo, on_tick=lambda: None):
        wanted = (
            [binary.parent for tool in shop.pins.tools.values() if (binary := shop.binary(shop.job(tool)))]
            if old
            else []
        )
        going = shop.cache.unused(wanted, older_than_days=days if old else -1)
        freed = sum(map(size_of, going))
        for place in (*going, shop.cache.staging):
            remove_tree(place)
    typer.echo(f"Removed {len(going)} entries, {freed / MIB:.0f} MiB, from {shop.cache.root}.")


@app.command()
def lock(
    modules: Annotated[list[str] | None, typer.Argument(help="Wrapper modules; all if none is named.")] = None,
) -> None:
    """Write go.mod and go.sum of the wrapper modules anew from pins.toml, after a change of versions there."""
    shop = _workshop()
    for name in modules or shop.pins.modules:
        if name not in shop.pins.modules:
            raise ToolchainError(name, "is no wrapper module", fix=f"Choose among {', '.join(shop.pins.modules)}.")
        typer.echo(f"{name}: {'changed' if lock_module(name, shop) else 'as it was'}")


def _workshop() -> Workshop:
    pins = load_pins()
    cache = Cache(cache_root(os.environ))
    cache.prepare()
    return Workshop(pins=pins, modules=MODULES, cache=cache, go=find_go(pins.go.minimum, os.environ), progress=Silent())


def main() -> None:
    """Run a command; a failure is one message and exit code 1."""
    try:
        app()
    except ToolchainError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
