"""A roll-out that can't succeed ends the update with one message, and going back works; one that only waits goes on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from local.waiting import wait_until
from stack.impact import Happening
from tests.builders import ROOT, merged
from tests.e2e.bench import is_ready, without_traceback
from tests.e2e.prediction import as_foreseen, deployments, is_leaving

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.api import Object
    from tests.e2e.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]

PATIENCE = 3
OTHERS_SECONDS = 60
DRAIN = 12
"""Seconds; four times as long as patience lasts."""
ENDLESS = {"patienceSeconds": 3600}
SHORT: dict[str, Any] = {"startup": {"initialDelaySeconds": 0, "periodSeconds": 1, "failureThreshold": 5}}
"""A start-up budget of 5 s, so that Kubernetes gives up after that and the grace period of 30 s."""
SHORT_DRAIN: dict[str, Any] = {
    "routerDelaySeconds": 0,
    "shutdownTimeoutSeconds": {"prefill": 1, "decode": 1},
    "kvPullSeconds": 0,
    "marginSeconds": 29,
}
LET_THROUGH = {"nodes": "warn", "devices": "warn"}
"""Guards would refuse beforehand what is to fail here."""
NO_NODE = {"nodeSelector": {"pool": "none"}}
WHOLE_NUMA_NODES: dict[str, Any] = {
    "requests": [
        {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 1},
        {"name": "nic", "deviceClassName": "dranet", "count": 2},
    ],
    "constraints": [{"requests": ["npu", "nic"], "matchAttribute": "resource.kubernetes.io/numaNode"}],
}
"""Both NICs of a NUMA node, of which the small inventory has four."""


def failing(reason: str, message: str) -> dict[str, str]:
    return {"local.serving-stack.dev/failure": reason, "local.serving-stack.dev/failure-message": message}


def uids(bench: Bench) -> set[str]:
    """UIDs of the Pods that stay, the EPP's among them; all must be Ready."""
    pods = [pod for pod in bench.pods("") if "deletionTimestamp" not in pod["metadata"]]
    assert all(is_ready(pod) for pod in pods)
    return {pod["metadata"]["uid"] for pod in pods}


def is_stuck_alone(bench: Bench, name: str) -> bool:
    """Whether no Pod is leaving and every Deployment but this one has what it asks for."""
    others = [each for each in deployments(bench).values() if each["metadata"]["name"] != name]
    return all(map(is_through, others)) and not any(map(is_leaving, bench.pods("")))


def is_through(deployment: Object) -> bool:
    """Whether all its Pods are new and Ready."""
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    is_seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return is_seen and all(status.get(of, 0) == wanted for of in ("replicas", "updatedReplicas", "readyReplicas"))


def await_stuck_alone(bench: Bench, name: str) -> None:
    """Others go on rolling when an update ends, and until then nobody can say what they will be seen to do."""
    wait_until(lambda: is_stuck_alone(bench, name), timeout=OTHERS_SECONDS, what=f"nothing but {name} to move")


def happenings(bench: Bench) -> set[Happening]:
    """What the last run said that happens."""
    report = bench.report()
    assert report is not None
    assert report.impact is not None
    return {part.happens for part in report.impact.parts}


FAILURES: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "an image that cannot be pulled",
        {
            "modelserver": {
                "image": {"tag": "gone"},
                "podOverrides": {"decode": {"annotations": failing("ImagePullBackOff", "manifest unknown")}},
            }
        },
        "role decode: Deployment rel-decode",
        r"without its image for \d+ s \(modelserver ImagePullBackOff: manifest unknown\)",
    ),
    (
        "a crash loop",
        {"modelserver": {"podOverrides": {"decode": {"annotations": failing("CrashLoopBackOff", "back-off 10s")}}}},
        "role decode: Deployment rel-decode",
        r"crashing for \d+ s \(modelserver CrashLoopBackOff: back-off 10s, last exit code 1 \(Error\)\)",
    ),
    (
        "a Secret that is missing",
        {
            "modelserver": {
                "podOverrides": {"prefill": {"annotations": failing("CreateContainerConfigError", "no such secret")}}
            }
        },
        "role prefill: Deployment rel-prefill",
        r"a container that cannot be made for \d+ s \(modelserver CreateContainerConfigError: no such secret\)",
    ),
    (
        "a node selector that no node has",
        {"modelserver": {"podOverrides": {"decode": NO_NODE}}},
        "role decode: Deployment rel-decode",
        r"unschedulable for \d+ s \(unschedulable: 0/2 nodes are available: .*affinity/selector",
    ),
    (
        "an EPP that finds no node",
        {"router": {"epp": NO_NODE}},
        "endpoint picker: Deployment rel-epp",
        r"unschedulable for \d+ s \(unschedulable: 0/2 nodes are available: .*affinity/selector",
    ),
]


@pytest.mark.timeout(1200)
def test_a_pod_that_cannot_start_ends_the_update_soon_and_the_previous_configuration_heals(
    bench_of: Callable[[str], Bench],
) -> None:
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    bench.change(
        modelserver={
            "replicas": {"prefill": 1, "decode": 2},
            "probes": SHORT,
            "serveEnv": {"VLLM_ENGINE_READY_TIMEOUT_S": 60},
        },
        rollout={"patienceSeconds": PATIENCE},
        drain=SHORT_DRAIN,
        guards=LET_THROUGH,
    )
    bench.up()
    good = bench.blocks
    before = uids(bench)
    for what, change, want_who, want_why in FAILURES:
        bench.write(**merged(good, change))
        with as_foreseen(bench, fails=True):
            said = bench.refuse()
        assert without_traceback(said), what
        [letter] = set(re.findall(r"error: (.*did not roll out.*)", said))
        assert f"{want_who} did not roll out: Pod rel-" in letter, what
        assert re.search(want_why, letter), letter
        assert "put the previous configuration back and run `pulumi up`" in letter, what
        await_stuck_alone(bench, want_who.rpartition(" ")[2])
        stuck = {pod["metadata"]["name"] for pod in bench.pods("") if not is_ready(pod)}
        assert any(f"Pod {name} has been" in letter for name in stuck), "it names a Pod that is there"
        survivors = {pod["metadata"]["uid"] for pod in bench.pods("") if is_ready(pod)} & before
        assert len([pod for pod in bench.pods("llm-d.ai/role=decode") if is_ready(pod)]) == 2, "they go on serving"
        assert len(survivors) >= 3, "the old Pods of the role that is stuck, and the EPP, if not more"

        bench.write(**good)
        with as_foreseen(bench):
            bench.up()
        assert Happening.GOES_BACK in happenings(bench)
        assert survivors <= uids(bench), f"{what}: no Pod that was never replaced is restarted"
        before = uids(bench)
        assert len(before) == 4

    bench.write(**merged(good, {"modelserver": {"podOverrides": {"decode": NO_NODE}}, "rollout": ENDLESS}))
    said = bench.refuse()
    assert "Deployment rel-decode did not roll out: " in said
    assert "has timed out progressing" in said, "it took longer than start-up budget and grace period"
    assert without_traceback(said)
    await_stuck_alone(bench, "rel-decode")
    bench.preview()
    assert Happening.CONTINUES in happenings(bench)
    bench.write(**good)
    with as_foreseen(bench):
        bench.up()
    assert uids(bench) == before
    assert bench.preview() == {}


def stranger(bench: Bench) -> Object:
    """Somebody else's Pod, with both NICs of a NUMA node."""
    bench.add_claim_template(npus=1, nics=2)
    path = f"/api/v1/namespaces/{bench.namespace}/pods/stranger"
    bench.plane.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "stranger",
                "namespace": bench.namespace,
                "annotations": {"local.serving-stack.dev/drain-delay": f"{DRAIN + 8}s"},
            },
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 60,
                "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "npu-rdma"}],
                "containers": [{"name": "c", "image": "any", "resources": {"claims": [{"name": "devices"}]}}],
            },
        }
    )
    wait_until(lambda: is_ready(bench.plane.api.get(path)), timeout=60, what="the other's Pod to be Ready")
    return bench.plane.api.get(path)


def test_a_pod_that_waits_for_devices_of_one_that_leaves_is_not_given_up(bench_of: Callable[[str], Bench]) -> None:
    theirs = bench_of("small")
    bench = bench_of("small")
    bench.write_file(ROOT / "Pulumi.dev.yaml")
    slow = {"annotations": {"local.serving-stack.dev/drain-delay": f"{DRAIN}s"}}
    bench.change(
        modelserver={
            "replicas": {"prefill": 2, "decode": 1},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "podOverrides": {"decode": slow},
        },
        devices={"claimTemplate": WHOLE_NUMA_NODES},
        rollout={"patienceSeconds": PATIENCE},
    )
    bench.up()
    held = stranger(theirs)
    first = uids(bench)

    bench.change(modelserver={"extraServeEnv": {"decode": {"ANY": "thing"}}})
    with as_foreseen(bench):
        printed = bench.up()
    assert re.search(r"rel-decode-\S+: unschedulable: .*waits for devices of rel-decode-\S+, which is leaving", printed)
    second = uids(bench)
    assert len(first & second) == 3, "prefill and EPP are as they were"
    assert len(second) == 4

    theirs.plane.api.delete(f"/api/v1/namespaces/{theirs.namespace}/pods/{held['metadata']['name']}")
    bench.change(modelserver={"replicas": {"decode": 2}})
    with as_foreseen(bench):
        printed = bench.up()
    assert f"waits for devices of {theirs.namespace}/stranger, which is leaving" in printed
    assert re.search(r"fits in some order\W+they fit once Pods that leave", printed), "which warns, and goes on"
    assert second < uids(bench)

    bench.change(modelserver={"replicas": {"decode": 3}})
    assert "cannot fit" in bench.refuse(), "nobody leaves any more"
    bench.change(guards=LET_THROUGH)
    said = bench.refuse()
    assert re.search(r"unschedulable for \d+ s .*cannot allocate all claims", said)
    assert without_traceback(said)
