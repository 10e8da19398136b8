"""What is there now: Pods of the release, their claims for devices, and volumes, as three tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from cluster.overview import Overview, read_overview

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def print_overview(kubeconfig: Path, *, context: str, namespace: str, hints: Sequence[str]) -> None:
    """Read and print; hints come last."""
    overview = read_overview(kubeconfig, context=context, namespace=namespace)
    console = Console(highlight=False)
    for table in tables(overview):
        console.print(table)
    if hints:
        console.print("[bold]Try next[/bold]")
        for hint in hints:
            console.print(f"  {hint}", soft_wrap=True)


def tables(overview: Overview) -> list[Table]:
    """One table for each of Pods, claims and volumes."""
    return [
        _table("Pods", ("Pod", "Role", "Node", "Ready"), [(p.name, p.role, p.node, p.ready) for p in overview.pods]),
        _table(
            "Devices",
            ("ResourceClaim", "State", "Devices"),
            [(c.name, c.state, ", ".join(c.devices)) for c in overview.claims],
        ),
        _table("Volumes", ("Claim", "State", "Size"), [(v.name, v.state, v.size) for v in overview.volumes]),
    ]


def _table(title: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
