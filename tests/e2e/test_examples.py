"""Every stack file deploys on an inventory that fits it, and every object it renders is what the API server knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.builders import STACK_FILES
from tests.e2e.bench import claim_state, is_ready

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.bench import Bench

pytestmark = pytest.mark.e2e
DESTROYED = {"aggregated", "monitoring-prometheus-operator", "node-placement", "npu-device-plugin", "without-pool"}
"""One of each topology and of each kind of object; the others only lose their namespace, which is quicker."""
EXAMPLES = [path for path in STACK_FILES if path.parent.name == "examples"]


def inventory_of(path: Path) -> str:
    """The inventory that the first line of an example names."""
    found = re.match(r"# Fits inventory: (\S+)\n", path.read_text(encoding="utf-8"))
    assert found, f"{path.name} names no inventory in its first line"
    return found[1]


def examples() -> list[object]:
    """One test an example; those on one inventory share a plane, and so a worker."""
    return [pytest.param(path, marks=pytest.mark.xdist_group(inventory_of(path)), id=path.stem) for path in EXAMPLES]


@pytest.mark.parametrize("path", examples())
def test_the_example_deploys(path: Path, bench_of: Callable[[str], Bench]) -> None:
    bench = bench_of(inventory_of(path))
    bench.write_file(path)
    bench.add_what_an_operator_has()

    refused = bench.dry_run_strictly()
    assert refused == {}, "the API server knows every field of every object"

    bench.up()
    pods = bench.pods()
    wanted = {w.object.name: w.replicas for w in bench.plan.modelserver.workloads}
    assert len(pods) == sum(wanted.values())
    assert all(is_ready(pod) for pod in pods)
    claiming = sum("resourceClaims" in pod["spec"] for pod in pods)
    assert [claim_state(claim) for claim in bench.resource_claims()] == ["allocated,reserved"] * claiming
    assert bench.preview() == {}

    if path.stem in DESTROYED:
        bench.destroy()
        assert bench.objects() == {f"PersistentVolumeClaim/{volume.object.name}" for volume in bench.plan.volumes}
        assert bench.pods() == []
