"""What benchmarks share: a project on a control plane of its own, the machine they ran on, how results are printed."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.control_plane import running_plane
from local.inventory import load_inventory
from local.toolchain import ensure
from tests.e2e.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

GIB = 2**30


@contextmanager
def project_on(inventory: str) -> Generator[Bench]:
    """A project of this checkout against a plane of an inventory; both are gone when the block ends."""
    toolbox = ensure()
    with tempfile.TemporaryDirectory(prefix="serving-stack-benchmark-") as held:
        folder = Path(held)
        with running_plane(load_inventory(inventory), folder / "plane", tools=toolbox, context="benchmark") as plane:
            yield Bench.make(toolbox, plane, folder / "project", virtualenv=sys.prefix)


def machine() -> dict[str, str]:
    """What a reader must know to compare figures."""
    cores = os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return {
        "processor": f"{_processor()}, {cores} core{'s' * (cores != 1)}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load at start": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def command(module: str) -> str:
    """The command line of this run."""
    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def print_results(
    rows: Sequence[Mapping[str, Any]], *, title: str, ran: str, on: Mapping[str, str], as_json: bool
) -> None:
    """Print a table, one line a row, or the same as JSON.

    Args:
        rows: column -> value, the same columns in each.
        title: what was measured, and what is aimed at.
        ran: the command.
        on: the machine.
        as_json: whether to print JSON.
    """
    if as_json:
        print(json.dumps({"title": title, "command": ran, "machine": on, "rows": rows}, indent=2))
        return
    cells = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(title)
    for line in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(f"command: {ran}")
    for what, value in on.items():
        print(f"{what}: {value}")


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
