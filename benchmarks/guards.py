"""What a preview costs in a large cluster: requests and bytes that it reads, and how long facts and guards take.

Aimed at: under 1 s for what comes after the reads, with 1,000 nodes, 8,000 devices and 2,000 claims, and linear up to
four times that; and next to nothing for a change that starts no Pod. A stack of four model servers runs on a control
plane of its own, among nodes whose Pods hold two thirds of the NPUs. No kubelet stands for these nodes, so they go for
not ready, which the judged Pods tolerate.

Run with `python -m benchmarks.guards [--json]`; it takes some minutes.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from benchmarks.stage import command, machine, print_results, project_on
from cli.stackfile import read_stack_file
from cluster.facts import read_facts
from cluster.surroundings import read_surroundings
from cluster.trial import try_workloads
from local.waiting import wait_until
from stack.guards.wanted import wanted
from stack.plan import plan_stack
from stack.rules import accept
from stack.weigh import foresee_starts, weigh_change
from tests import devices as make
from tests.builders import ROOT, merged
from tests.e2e.crowd import Sender

if TYPE_CHECKING:
    from tests.e2e.bench import Bench

Object = dict[str, Any]
NODES, FACTORS = 1_000, (1, 2, 4)
NAMESPACE = "crowd"
NPU, NIC = "npu.rebellions.ai", "dra.net"
EVERYTHING = [{"operator": "Exists"}]
TOLERANT = {"podOverrides": {role: {"tolerations": EVERYTHING} for role in ("prefill", "decode")}}
SELECTED = 'device.attributes["npu.rebellions.ai"].productName == "RBLN-CR13"'
OTHERS = {
    "claimTemplate": {
        "requests": [
            {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 1, "selectors": [SELECTED]},
            {"name": "nic", "deviceClassName": "dranet", "count": 1},
        ]
    }
}
LARGER = {
    "claimTemplate": {
        "requests": [
            {"name": "npu", "deviceClassName": "npu.rebellions.ai", "count": 2},
            {"name": "nic", "deviceClassName": "dranet", "count": 1},
        ]
    }
}
LARGER_AUTO = {
    "devices": LARGER,
    "modelserver": {"serveArgs": {"common": {"tensor-parallel-size": 2}}, "strategy": {"type": "auto"}},
}
CHANGES: dict[str, Object] = {
    "nothing": {},
    "image of the endpoint picker": {"router": {"epp": {"image": {"tag": "next"}}}},
    "image of all model servers": {"modelserver": {"image": {"tag": "next"}}},
    "devices of all model servers": {"devices": OTHERS},
    "larger claims, auto": LARGER_AUTO,
}


def slices(name: str) -> list[Object]:
    """Six NPUs and two NICs on two NUMA nodes."""
    npus = [make.device(f"rbln{i}", numa=i % 2, uuid=f"{name}-{i}", productName="RBLN-CR13") for i in range(6)]
    nics = [make.device(f"nic{i}", numa=i) for i in range(2)]
    for i, nic in enumerate(nics):
        nic["attributes"] |= {"dra.net/ifName": {"string": f"rdma{i}"}, "dra.net/rdma": {"bool": True}}
    return [make.resource_slice(driver, held, on=name) for driver, held in ((NPU, npus), (NIC, nics))]


def claims(name: str) -> list[Object]:
    """Two claims of a node, and the Pod of each."""
    request = make.claim_spec(make.request("r", NPU, 2))
    meta = [{"name": f"{name}-{index}", "namespace": NAMESPACE} for index in range(2)]
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": each, "spec": request}
        for each in meta
    ]


def pod(claim: Object, node: str) -> Object:
    """Who uses a claim on a node; nothing drives it away."""
    name: str = claim["metadata"]["name"]
    container = {"name": "main", "image": "example.com/main:1", "resources": {"requests": {"cpu": "4"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": claim["metadata"],
        "spec": {
            "nodeName": node,
            "containers": [container],
            "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
            "tolerations": EVERYTHING,
        },
    }


def populate(bench: Bench, names: list[str]) -> None:
    """More nodes, with what they publish and who is on them."""
    api, sender = bench.plane.api, Sender(bench.plane.api)
    sender.create([make.node(name, cpu="96") for name in names])
    sender.create([held for name in names for held in slices(name)])
    asked = {name: claims(name) for name in names}
    sender.create([claim for name in names for claim in asked[name]])
    sender.create([pod(claim, name) for name in names for claim in asked[name]])
    uids = {
        live["metadata"]["name"]: live["metadata"]["uid"] for live in api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
    }
    sender.send([give(claim, name, index, uids) for name in names for index, claim in enumerate(asked[name])])


def give(claim: Object, node: str, index: int, uids: dict[str, str]) -> tuple[str, str, Object]:
    """Allocate two NPUs of its node to a claim, and reserve it for its Pod."""
    name: str = claim["metadata"]["name"]
    devices = [{"request": "r", "driver": NPU, "pool": node, "device": f"rbln{2 * index + i}"} for i in range(2)]
    status = {
        "allocation": {"devices": {"results": devices}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uids[name]}],
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims/{name}/status"
    return "PUT", path, {**claim, "status": status}


def measure(bench: Bench, change: str) -> Object:
    """One row: as the program does it, but for the engine."""
    blocks, context = read_stack_file(bench.stack_file.read_text(encoding="utf-8"))
    accepted = accept(merged(blocks, CHANGES[change]), context=context)
    config = accepted.config
    clock = Clock()
    facts = read_facts(config.context, namespace=config.namespace, release=config.release)
    clock.lap("reads")
    plan = plan_stack(accepted, facts)
    clock.lap("judging")
    servers = [workload.object for workload in plan.modelserver.workloads]
    owner = plan.modelserver.topology.owner_reference(facts.anchor.uid) if facts.anchor is not None else None
    others = [each for each in plan.router if each.kind == "Deployment"]
    trial = try_workloads(config.context, servers, owner=owner, others=others)
    clock.lap("dry run")
    asked = wanted(config, plan, facts.near, foresee_starts(config, plan, facts.near, trial))
    clock.lap("judging")
    around = read_surroundings(config.context, asked, facts.near)
    clock.lap("reads")
    gc.freeze()  # as the program does
    weighed = weigh_change(config, plan, around, trial)
    clock.lap("judging")
    gc.unfreeze()
    spare = next((part.spare for part in weighed.impact.parts if part.spare), "-")
    return {
        "change": change,
        "requests": around.calls,
        "KiB": around.size // 1024,
        "reads s": clock.seconds["reads"],
        "dry run s": clock.seconds["dry run"],
        "judging s": clock.seconds["judging"],
        "of it CPU s": clock.processor["judging"],
        "devices": spare,
        "refused": len(weighed.refusals),
    }


class Clock:
    """Adds up what parts take, and the processor's time of it, which others who use the machine change less."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)
        self._last = (time.perf_counter(), time.thread_time())

    def lap(self, part: str) -> None:
        """What went by since the last one belongs to a part."""
        now = (time.perf_counter(), time.thread_time())
        for counted, since, until in zip((self.seconds, self.processor), self._last, now, strict=True):
            counted[part] += until - since
        self._last = now


def main() -> None:
    """Measure and print."""
    rows: list[Object] = []
    with project_on("reference") as bench:
        os.environ["KUBECONFIG"] = str(bench.plane.kubeconfig)
        bench.write_file(ROOT / "Pulumi.dev.yaml")
        bench.change(modelserver=TOLERANT)
        bench.up()
        bench.plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        wait_until(lambda: bench.plane.api.find(account) is not None, timeout=30, what="a ServiceAccount for Pods")
        there = 0
        for factor in FACTORS:
            populate(bench, [f"node-{number}" for number in range(there, NODES * factor)])
            there = NODES * factor
            size = {"nodes": there, "with devices": 8 * there, "and claims": 2 * there}
            rows += [size | measure(bench, change) for change in CHANGES]
    title = "Facts and guards (aimed at: judging under 1 s for 1,000 nodes, then linear)"
    print_results(rows, title=title, ran=command("benchmarks.guards"), on=machine(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    main()
