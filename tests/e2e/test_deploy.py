"""Install, look, install again, remove, install once more: stack dev and the reference stack."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.builders import ROOT
from tests.e2e.bench import Bench, claim_state, is_ready

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.e2e


@pytest.mark.xdist_group("small")
def test_stack_dev_comes_up_stays_as_it_is_leaves_only_its_volumes_and_finds_them_again(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(modelserver={"replicas": {"prefill": 2, "decode": 2}})
    assert bench.dry_run_strictly() == {}
    result = bench.up()

    pods = bench.pods()
    assert Counter(pod["metadata"]["labels"]["llm-d.ai/role"] for pod in pods) == {"prefill": 2, "decode": 2}
    assert all(is_ready(pod) for pod in pods)
    assert [claim_state(claim) for claim in bench.resource_claims()] == ["allocated,reserved"] * 4
    volumes, kept = bench.volume_claims(), bench.volume_uids()
    assert set(volumes) == {"rel-compile-cache-prefill", "rel-compile-cache-decode", "rel-model-cache"}
    assert {claim["status"]["phase"] for claim in volumes.values()} == {"Bound"}
    assert result.outputs["names"].value["workloads"] == ["rel-prefill", "rel-decode"]
    assert result.outputs["config"].value["modelserver"]["replicas"] == {"prefill": 2, "decode": 2, "aggregated": 0}

    assert bench.preview() == {}, "nothing was changed, so nothing may change"

    before = bench.objects()
    bench.destroy()
    assert bench.objects() == {f"PersistentVolumeClaim/{name}" for name in volumes}
    assert bench.pods() == []

    assert bench.preview()["import"] == 3, "the volumes are taken over, and preview says so"
    bench.up()
    assert bench.objects() == before
    assert bench.volume_uids() == kept
    assert bench.preview() == {}


@pytest.mark.xdist_group("reference")
def test_the_reference_stack_uses_every_device_and_puts_one_pod_of_each_role_on_every_node(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("reference")
    bench.add_model_store()
    bench.add_claim_template()
    bench.write_file(ROOT / "Pulumi.prod.yaml")
    bench.change(storage={"compileCache": {"storageClass": "kwok-volume"}})
    assert bench.dry_run_strictly() == {}
    bench.up()

    pods = bench.pods()
    assert all(is_ready(pod) for pod in pods)
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    assert len(nodes) == 4
    assert Counter((pod["spec"]["nodeName"], pod["metadata"]["labels"]["llm-d.ai/role"]) for pod in pods) == {
        (node, role): 1 for node in nodes for role in ("prefill", "decode")
    }

    numa = bench.numa_of_devices()
    given: Counter[str] = Counter()
    for claim in bench.resource_claims():
        assert claim_state(claim) == "allocated,reserved"
        results = claim["status"]["allocation"]["devices"]["results"]
        devices = [(result["driver"], result["pool"], result["device"]) for result in results]
        assert Counter(driver for driver, _, _ in devices) == {"npu.rebellions.ai": 4, "dra.net": 2}
        assert len({(pool, numa[driver, pool, device]) for driver, pool, device in devices}) == 1, (
            "a Pod's devices lie on one NUMA node of one node"
        )
        given.update(driver for driver, _, _ in devices)
    assert given == {"npu.rebellions.ai": 32, "dra.net": 16}
    assert Counter(driver for driver, _, _ in numa) == given, "none is spare"
    assert bench.preview() == {}
