"""Real planes, the real engine. Each worker has planes of its own; they end with it, however that ends."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from local.control_plane import ControlPlane, running_plane
from local.inventory import load_inventory
from local.toolchain import Toolbox, ensure
from tests.e2e.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share planes of one module belong to one worker, or each worker would start planes of its own."""
    for item in items:
        if "planes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("planes"))


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Every tool; `make test` has built what was missing before."""
    toolbox = ensure()
    os.environ["PATH"] = os.pathsep.join([str(toolbox.bin_dir), os.environ["PATH"]])  # the Automation API looks there
    return toolbox


@pytest.fixture(scope="session")
def plane_of(toolbox: Toolbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ControlPlane]]:
    """A running plane of an inventory. Tests are grouped by inventory, so a worker holds one plane at a time."""
    planes: dict[str, ControlPlane] = {}
    with ExitStack() as stack:

        def get(inventory: str) -> ControlPlane:
            if inventory not in planes:
                stack.close()
                planes.clear()
                planes[inventory] = stack.enter_context(
                    running_plane(
                        load_inventory(inventory),
                        tmp_path_factory.mktemp(inventory),
                        tools=toolbox,
                        context="test",
                    )
                )
            planes[inventory].check()
            return planes[inventory]

        yield get


@pytest.fixture
def bench_of(
    toolbox: Toolbox, plane_of: Callable[[str], ControlPlane], tmp_path: Path
) -> Iterator[Callable[[str], Bench]]:
    """A project against the plane of an inventory, in a namespace of its own, which is deleted in the end."""
    benches: list[Bench] = []

    def make(inventory: str) -> Bench:
        bench = Bench.make(toolbox, plane_of(inventory), tmp_path / f"project-{len(benches)}", virtualenv=sys.prefix)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.clear()
