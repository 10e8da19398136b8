"""Install, look, install again, remove, install once more: stack dev and the reference stack."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from local.waiting import wait_until
from stack.drain import LEAVE
from tests.builders import ROOT
from tests.e2e.bench import MODEL_STORE, Bench, claim_state, collections_in, is_ready
from tests.e2e.record import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.api import Object

pytestmark = pytest.mark.e2e


OF_THE_CLUSTER = {"Event", "EndpointSlice", "Endpoints", "ReplicaSet", "ControllerRevision", "Lease", "PodMetrics"}
"""What controllers write beside the objects that anybody asked for."""
DATA_PATH = {
    "apps/v1/deployments": {"epp"},
    "v1/configmaps": {"epp", "prefill", "decode"},
    "v1/services": {"epp"},
    "v1/serviceaccounts": {"epp", "modelserver"},
    "inference.networking.k8s.io/v1/inferencepools": {"epp"},
    "gateway.networking.k8s.io/v1/httproutes": {"gateway"},
    "gateway.networking.k8s.io/v1/gateways": {"gateway"},
}
"""What answers on their way out need until the last model server is gone, by collection the parts of the stack."""
LEAVE_SECONDS = 60


LEAVES = {
    # 20 s for routers, 20 s for requests, 30 s margin; prefill: another 30 s for pulls, and the hook watches
    "prefill": (100, True, ["20", "1", "20", "30", "8000"]),
    "decode": (70, True, ["20", "0", "20", "0", "8200"]),
}
"""By role: grace period, whether the process namespace is shared, numbers of the hook."""


def how_it_leaves(pod: Object) -> tuple[int, bool, list[str]]:
    """As the API server keeps it."""
    [server] = [each for each in pod["spec"]["containers"] if each["name"] == "modelserver"]
    hook = server["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[:5] == ["python3", "-I", "-S", "-c", LEAVE]
    return pod["spec"]["terminationGracePeriodSeconds"], pod["spec"]["shareProcessNamespace"], hook[5:]


def everything(bench: Bench) -> set[str]:
    """Every object of the namespace that a person or the stack asked for, as `Kind/name`."""
    return {
        f"{kind}/{item['metadata']['name']}"
        for kind, collection in collections_in(bench.plane, bench.namespace)
        if kind not in OF_THE_CLUSTER
        for item in bench.plane.api.list(collection)
    }


@pytest.mark.xdist_group("small")
def test_stack_dev_comes_up_stays_as_it_is_leaves_only_its_volumes_and_finds_them_again(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    drain = {"annotations": {"local.serving-stack.dev/drain-delay": "3s"}}
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(
        modelserver={
            "replicas": {"prefill": 2, "decode": 2},
            "podOverrides": {"prefill": drain, "decode": drain},
        }
    )
    bench.add_model_store()
    bench.add_claim_template()
    of_the_operator = everything(bench)
    assert of_the_operator >= {f"PersistentVolumeClaim/{MODEL_STORE}", "ResourceClaimTemplate/npu-rdma"}
    assert bench.dry_run_strictly() == {}
    bench.up()

    pods = bench.pods()
    assert Counter(pod["metadata"]["labels"]["llm-d.ai/role"] for pod in pods) == {"prefill": 2, "decode": 2}
    assert all(is_ready(pod) for pod in pods)
    assert [claim_state(claim) for claim in bench.resource_claims()] == ["allocated,reserved"] * 4
    assert [how_it_leaves(pod) for pod in pods] == [LEAVES[pod["metadata"]["labels"]["llm-d.ai/role"]] for pod in pods]
    kept = {name: uid for name, uid in bench.volume_uids().items() if name != MODEL_STORE}
    assert set(kept) == {"rel-compile-cache-prefill", "rel-compile-cache-decode", "rel-model-cache"}
    assert {claim["status"]["phase"] for claim in bench.volume_claims().values()} == {"Bound"}
    outputs = bench.outputs()
    assert outputs["names"]["workloads"] == ["rel-prefill", "rel-decode"]
    assert outputs["config"]["modelserver"]["replicas"] == {"prefill": 2, "decode": 2, "aggregated": 0}

    assert bench.preview() == {}, "nothing was changed, so nothing may change"

    before = bench.objects()
    with record(bench, "v1/pods", *DATA_PATH) as seen:
        bench.destroy()
    last = seen.ended("v1/pods", "prefill", "decode")[-1]
    for collection, parts in DATA_PATH.items():
        gone = seen.ended(collection, *parts)
        assert {life.part for life in gone} == parts
        assert gone[0].until > last.until, f"{gone[0].name} of {collection} serves the Pods that drain"
    claims = {f"PersistentVolumeClaim/{name}" for name in kept}
    assert bench.objects() == claims
    wait_until(
        lambda: everything(bench) == of_the_operator | claims,
        timeout=LEAVE_SECONDS,
        what="nothing to be left but the volumes and what the operator made",
    )

    assert bench.foresee().objects["import"] == claims, "the volumes are taken over, and preview says so"
    bench.up()
    assert bench.objects() == before
    assert kept.items() <= bench.volume_uids().items()
    assert bench.preview() == {}


@pytest.mark.xdist_group("reference")
def test_the_reference_stack_uses_every_device_and_puts_one_pod_of_each_role_on_every_node(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("reference")
    bench.add_model_store()
    bench.write_file(ROOT / "Pulumi.prod.yaml")
    bench.add_what_an_operator_has()
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
