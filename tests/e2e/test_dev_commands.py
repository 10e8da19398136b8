"""The commands of the README, as a newcomer types them, on a state folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.dev import INVENTORY
from local.control_plane import ControlPlane
from local.inventory import load_inventory
from tests.builders import ROOT, plan_file
from tests.e2e.bench import collections_in
from tests.e2e.processes import processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.toolchain import Toolbox

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("dev")]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """An empty state folder; its plane is stopped in the end, whatever happened."""
    yield tmp_path
    plane = ControlPlane.at(tmp_path / "plane")
    if plane is not None:
        plane.stop()


def run(state: Path, *arguments: str) -> str:
    """Run `serving-stack dev ...`; what it printed. It must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "dev", *arguments],
        cwd=ROOT,
        env={**os.environ, "SERVING_STACK_STATE": str(state), "COLUMNS": "120"},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_up_up_again_and_down(state: Path, toolbox: Toolbox) -> None:
    before = (ROOT / "Pulumi.dev.yaml").read_text()
    plan = plan_file(ROOT / "Pulumi.dev.yaml")
    pods = sum(workload.replicas for workload in plan.modelserver.workloads)
    first = run(state, "up")
    assert first.count("│ Ready") == pods + 1, "every Pod of the roles, and the EPP"
    assert first.count("allocated,reserved") == pods
    assert first.count("Bound") >= len(plan.volumes)
    assert "Try next" in first
    assert "created" in first

    again = run(state, "up")
    assert "unchanged" in again
    for word in ("created", "updated", "replaced", "deleted"):
        assert f" {word}\n" not in again
    assert (ROOT / "Pulumi.dev.yaml").read_text() == before, "the stack file of the checkout is left as it is"

    assert processes_of(state), "the plane is there, and seen"
    plane = ControlPlane.at(state / "plane")
    assert plane is not None
    plane.stop()  # as a reboot would: its objects are still there, and down has to see to them
    run(state, "down")
    assert processes_of(state) == []
    plane = ControlPlane.start(load_inventory(INVENTORY), state / "plane", tools=toolbox, context=plane.context)
    left = {
        f"{kind}/{item['metadata']['name']}"
        for kind, collection in collections_in(plane, plan.namespace)
        for item in plane.api.list(collection, labelSelector="app.kubernetes.io/instance=dev")
    }
    assert left == {f"PersistentVolumeClaim/{volume.object.name}" for volume in plan.volumes}


def test_down_without_anything_says_that_nothing_runs(state: Path) -> None:
    assert "Nothing is running" in run(state, "down")
    assert processes_of(state) == []
