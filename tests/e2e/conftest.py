"""Real planes, the real engine. Each worker has planes of its own; they end with it, however that ends."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.control_plane import ControlPlane, running_plane
from local.inventory import load_inventory
from local.toolchain import Toolbox, ensure
from tests.e2e.bench import Bench, thrift_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one group in one module belong to one worker: they share planes, some of them a live stack."""
    for item in items:
        if "planes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("planes"))
        if item.get_closest_marker("xdist_group") is None:
            continue
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
        known = getattr(item, "_id", None)
        if known is not None and getattr(config.option, "loadgroup", False):
            # What `--dist loadgroup` of pytest-xdist 3.8 does itself with pytest before 9.2. Without it nothing is
            # grouped, and tests that share a live stack are dealt out to both workers.
            group = "_".join(sorted(str(mark.args[0]) for mark in item.iter_markers("xdist_group")))
            item._id = type(known).parse(f"{item.nodeid}@{group}")  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Every tool; `make test` has built what was missing before."""
    toolbox = ensure()
    os.environ["PATH"] = os.pathsep.join([str(toolbox.bin_dir), os.environ["PATH"]])  # the Automation API looks there
    return toolbox


@pytest.fixture(scope="session")
def plane_of(toolbox: Toolbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ControlPlane]]:
    """A running plane of an inventory, by name or file. A worker holds one at a time: tests are grouped accordingly."""
    planes: dict[str, ControlPlane] = {}
    with ExitStack() as stack:

        def get(inventory: str) -> ControlPlane:
            if inventory not in planes:
                stack.close()
                planes.clear()
                planes[inventory] = stack.enter_context(
                    running_plane(
                        load_inventory(inventory),
                        tmp_path_factory.mktemp(Path(inventory).stem),
                        tools=toolbox,
                        context="test",
                    )
                )
            planes[inventory].check()
            return planes[inventory]

        yield get


@pytest.fixture(scope="session")
def make_bench(
    toolbox: Toolbox, plane_of: Callable[[str], ControlPlane], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Bench]:
    """A project against the plane of an inventory, in a namespace of its own. Who makes it clears it."""
    thrift = thrift_in(tmp_path_factory.mktemp("thrift"))

    def make(inventory: str) -> Bench:
        folder = tmp_path_factory.mktemp("project") / "serving-stack"
        return Bench.make(toolbox, plane_of(inventory), folder, virtualenv=sys.prefix, thrift=thrift)

    return make


@pytest.fixture
def bench_of(make_bench: Callable[[str], Bench]) -> Iterator[Callable[[str], Bench]]:
    """Projects of one test; their namespaces are deleted in the end."""
    with cleared(make_bench) as make:
        yield make


@pytest.fixture(scope="module")
def module_bench_of(make_bench: Callable[[str], Bench]) -> Iterator[Callable[[str], Bench]]:
    """Projects that live as long as a module's tests, for those that change one live stack one after another."""
    with cleared(make_bench) as make:
        yield make


@contextmanager
def cleared(make_bench: Callable[[str], Bench]) -> Generator[Callable[[str], Bench]]:
    benches: list[Bench] = []

    def make(inventory: str) -> Bench:
        benches.append(make_bench(inventory))
        return benches[-1]

    yield make
    for bench in benches:
        bench.clear()
