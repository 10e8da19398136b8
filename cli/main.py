"""The `serving-stack` command: what an operator asks for besides `pulumi preview` and `pulumi up`."""

from __future__ import annotations

import typer

from cli import dev, files
from local.cli import app as local_app

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
app.command()(files.check)
app.command()(files.render)
app.add_typer(dev.app, name="dev")
app.add_typer(local_app, name="local")


def main() -> None:
    """Run the command."""
    app()
