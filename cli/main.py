"""The `serving-stack` command: what an operator asks for besides `pulumi preview` and `pulumi up`."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from cli import drain_budget, files, impact, scale_advice, verify

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
app.command()(files.check)
app.command()(files.render)
app.command()(impact.impact)
app.command()(drain_budget.drain_budget)
app.command()(scale_advice.scale_advice)
app.command()(verify.verify)
if find_spec("filelock") is not None:
    # Extra `local`: only control planes on this machine need it, and `pulumi install` leaves it out.
    from cli import dev
    from local.cli import app as local_app

    app.add_typer(dev.app, name="dev")
    app.add_typer(local_app, name="local")


def main() -> None:
    """Run the command."""
    app()
