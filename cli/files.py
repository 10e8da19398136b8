"""`check` and `render`: look into a stack file without an engine and without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.console import Console

from cli.stackfile import read_stack_file
from stack.errors import ConfigError
from stack.facts import NOTHING_READ
from stack.plan import plan_stack
from stack.rules import Accepted, accept

if TYPE_CHECKING:
    from stack.planned import StackPlan

complaints = Console(stderr=True, highlight=False, markup=False)
StackFile = Annotated[Path, typer.Argument(help="A stack file, such as Pulumi.prod.yaml.", exists=True, dir_okay=False)]


def check(file: StackFile) -> None:
    """Say everything that is wrong with a stack file; exit status 1 if there is anything."""
    accepted = read(file)
    for warning in accepted.warnings:
        complaints.print(f"warning: {warning}", soft_wrap=True)
    plan = plan_stack(accepted, NOTHING_READ)
    typer.echo(f"{file}: accepted. {plan.budget}")


def render(file: StackFile) -> None:
    """Print the manifests of a stack file as YAML, as they are planned for an empty cluster."""
    typer.echo(manifests(plan_stack(read(file), NOTHING_READ)), nl=False)


def read(file: Path) -> Accepted:
    """The accepted configuration of a file; problems are printed and end the command."""
    try:
        blocks, context = read_stack_file(file.read_text(encoding="utf-8"))
        return accept(blocks, context=context)
    except ConfigError as error:
        complaints.print(str(error), soft_wrap=True)
        raise typer.Exit(1) from None
    except UnicodeDecodeError:
        complaints.print(f"{file}: is not text in UTF-8. Save it as such.", soft_wrap=True)
        raise typer.Exit(1) from None


def manifests(plan: StackPlan) -> str:
    """All objects as one YAML stream, in the order of declaration."""
    return yaml.safe_dump_all(
        (planned.manifest for planned in plan.objects()), sort_keys=False, explicit_start=True, width=10_000
    )
