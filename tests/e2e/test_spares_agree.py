"""The verdicts on spare devices against the real scheduler: very many small clusters, disjoint by their nodes, at once.

First somebody else's Pods take devices, as the real scheduler gives them. Then the cluster is read as an operator's
would be, each case is judged, and all Pods of all cases are made at once. *In any order* has to mean that all of them
get a node, *cannot* that one does not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from local.waiting import wait_until
from stack.spares.demand import Demand, read_demand
from stack.spares.fit import Outcome, Verdict, judge
from stack.spares.reach import Reach, reach_of_claims
from stack.spares.supply import Supply, read_supply
from tests import devices as make
from tests.e2e.crowd import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local.api import Api
    from local.control_plane import ControlPlane

pytestmark = pytest.mark.e2e

Object = dict[str, Any]
CASES, ENOUGH = 240, 30
NPU, NIC, GPU = "npu.agree.example", "nic.agree.example", "gpu.agree.example"
NAMESPACE, CASE = "agree", "agree.example/case"
ZONE = "topology.kubernetes.io/zone"
CLASSES = {
    "agree-npu": f'device.driver == "{NPU}"',
    "agree-nic": f'device.driver == "{NIC}" && !device.allowMultipleAllocations',
    "agree-any": 'device.driver.startsWith("npu.agree") || device.driver.startsWith("gpu.agree")',
    "agree-gpu": f'device.driver == "{GPU}"',
}
SELECTORS = (
    f'device.attributes["{NPU}"].model == "large"',
    f'device.attributes["{NPU}"].firmware.compareTo(semver("1.10.0")) >= 0',
    f'device.capacity["{NPU}"].memory.isGreaterThan(quantity("100Gi"))',
    f'"{NPU}" in device.attributes && device.attributes["{NPU}"].model in ["large", "small"]',
    f'has(device.attributes["{NPU}"].odd) && device.attributes["{NPU}"].odd > 2',
    f'device.attributes["{NPU}"].model != 3',
)
FAILS = f'device.attributes["{NPU}"].gone == "x"'
SICK = {"key": "agree.example/sick", "effect": "NoSchedule"}
RESERVED = {"key": "agree.example/reserved", "effect": "NoSchedule"}


class Case:
    """One cluster of its own: what is there, who has what already, and what is wanted."""

    def __init__(self, number: int) -> None:
        self.random = random = Random(number)  # noqa: S311  # the same cases in every run
        self.name = f"c{number:03}"
        self.is_tight = number % 5 < 2  # where it matters who comes first
        self.nodes: list[Object] = []
        self.slices: list[Object] = []
        self.volumes: list[Object] = []
        self.claims: list[Object] = []
        for index in range(1 if self.is_tight else random.choice((1, 1, 2, 3))):
            self._add_node(f"{self.name}-{index}")
        self.templates: dict[str, Object] = {}
        self.theirs = [
            self._pods("theirs", random.randint(1, 2), self._spec(random.choice((1, 1, 2)), plain=True))
            for _ in range(0 if self.is_tight else random.choice((0, 1)))
        ]
        wanted = [(role, random.randint(1, 4)) for role in ("prefill", "decode")[: random.choice((1, 1, 2))]]
        if self.is_tight:
            whole = make.claim_spec(make.request("npu", "agree-npu", random.randint(3, 4)), together=make.NUMA)
            loose = make.claim_spec(make.request("npu", "agree-npu", random.randint(1, 2)))
            self.ours = [self._pods("prefill", 1, whole), self._pods("decode", random.randint(1, 2), loose)]
            return
        self.ours = [self._pods(role, count, self._spec(random.choice((1, 2, 2, 4)))) for role, count in wanted]

    def _add_node(self, name: str) -> None:
        random = self.random
        spec: Object = {"taints": [RESERVED]} if random.random() < 0.15 else {}
        cpu = random.choice(("3", "6", "64", "64"))
        labels = {CASE: self.name, "agree.example/size": random.choice("sl")}
        labels |= {ZONE: random.choice(("z1", "z2"))} if random.random() < 0.7 else {}
        node = make.node(name, labels=labels, spec=spec, cpu=cpu)
        node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        self.nodes.append(node)
        for driver, most in ((NPU, 4), (NIC, 2), (GPU, 1)):
            held: list[Object] = []
            for numa in (0, 1):
                for _ in range(most if self.is_tight else random.choice((most, most, random.randint(0, most)))):
                    values: Object = {"numa": numa, "model": random.choice(("large", "large", "small"))}
                    values["firmware"] = ("version", random.choice(("1.9.3", "1.10.0", "2.0.0-rc.1")))
                    values |= {"odd": random.randint(1, 4)} if random.random() < 0.4 else {}
                    values |= {"root": f"r{len(held) % 2}"} if random.random() < 0.9 else {}
                    taints = [SICK] if random.random() < 0.08 and not self.is_tight else []
                    memory = {"memory": random.choice(("96Gi", "144Gi"))}
                    held.append(make.device(f"d-{len(held)}", taints=taints, capacity=memory, **values))
            if held:
                self.slices.append(make.resource_slice(driver, held, on=name))

    def _spec(self, most: int, *, plain: bool = False) -> Object:
        random = self.random
        selectors = random.sample(SELECTORS, 1) if random.random() < 0.35 and not plain else []
        if random.random() < 0.06 and not plain:
            selectors = [FAILS]
        tolerated = {"tolerations": [{"key": SICK["key"], "operator": "Exists"}]} if random.random() < 0.2 else {}
        name = random.choice(("agree-npu", "agree-npu", "agree-any"))
        name = "agree-npu" if selectors else name
        requests = [make.request("npu", name, random.randint(max(1, most // 2), most), *selectors, **tolerated)]
        if random.random() < 0.5:
            requests.append(make.request("nic", "agree-nic", random.randint(1, 2)))
        if random.random() < 0.1:
            requests.append(make.request("gpu", "agree-gpu", 1))
        numa = {"matchAttribute": make.NUMA}
        root = {"matchAttribute": f"{NPU}/root", "requests": ["npu"]}
        constraints = random.choice(([], [numa], [numa], [root] if name == "agree-npu" else [numa]))
        return make.claim_spec(*requests, constraints=constraints)

    def _pods(self, role: str, count: int, spec: Object) -> tuple[Demand, int]:
        random = self.random
        template_name = f"{self.name}-{role}"
        self.templates[template_name] = spec
        selector = {CASE: self.name} | ({"agree.example/size": "l"} if random.random() < 0.1 else {})
        kept: Object = (
            {"tolerations": [{"key": RESERVED["key"], "operator": "Exists"}]} if random.random() < 0.5 else {}
        )
        if role != "theirs" and not self.is_tight and random.random() < 0.25:
            self._add_volume(template_name)
            kept |= {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": template_name}}]}
        template = make.pod_template(template_name, cpu=random.choice("112"), nodeSelector=selector, **kept)
        template["metadata"]["labels"] = {CASE: self.name, "agree.example/role": role}
        return read_demand(template_name, template, {template_name: spec}, self._reaches()), count

    def _add_volume(self, name: str) -> None:
        """A volume that some nodes reach, bound to a claim."""
        random = self.random
        where = random.choice(("host", "zone", "label"))
        node = random.choice(self.nodes)["metadata"]["name"]
        key, value = ("kubernetes.io/hostname", node) if where == "host" else (ZONE, random.choice(("z1", "z2")))
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
        common: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        claim_ref = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name}
        volume: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {ZONE: value} if where == "label" else {}},
            "spec": common
            | {"capacity": {"storage": "1Gi"}, "csi": {"driver": "agree.example", "volumeHandle": name}}
            | {"claimRef": claim_ref}
            | ({} if where == "label" else {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}),
        }
        claim: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": common | {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        }
        self.volumes.append(volume)
        self.claims.append(claim)

    def _reaches(self) -> dict[str, Reach]:
        claims, volumes = ({held["metadata"]["name"]: held for held in all_} for all_ in (self.claims, self.volumes))
        return reach_of_claims(frozenset(claims), claims, volumes, {})

    def pods(self, wanted: Iterable[tuple[Demand, int]]) -> list[Object]:
        return [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{demand.name}-{i}", "namespace": NAMESPACE, "labels": dict(demand.labels)},
                "spec": {**demand.spec, "terminationGracePeriodSeconds": 0},
            }
            for demand, count in wanted
            for i in range(count)
        ]


def test_what_is_certain_is_what_the_scheduler_does(plane_of: Callable[[str], ControlPlane]) -> None:
    api = plane_of("small").api
    cases = [Case(number) for number in range(CASES)]
    crowd = Crowd(api)
    try:
        crowd.create([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        crowd.create([make.device_class(name, expression) for name, expression in CLASSES.items()])
        crowd.create([node for case in cases for node in case.nodes])
        crowd.create([held for case in cases for held in case.slices])
        crowd.create([template(name, spec) for case in cases for name, spec in case.templates.items()])
        crowd.create([volume for case in cases for volume in case.volumes])
        crowd.create([claim for case in cases for claim in case.claims])
        wait_until(lambda: all_are_bound(api), timeout=60, what="the claims to be bound", interval=0.5)
        wait_until(lambda: all_are_ready(api), timeout=60, what="the nodes to be ready", interval=0.5)
        crowd.create([pod for case in cases for pod in case.pods(case.theirs)])
        wait_until(lambda: all(map(is_settled, crowd.pods())), timeout=60, what="the Pods of others", interval=0.5)
        # Those of others that found no place would wait for the same devices.
        crowd.delete([pod for pod in crowd.pods() if not pod["spec"].get("nodeName")])
        supply = read(api)
        verdicts = {case.name: judge(supply, case.ours) for case in cases}
        crowd.create([pod for case in cases for pod in case.pods(case.ours)])
        certain = {name for name, verdict in verdicts.items() if verdict.outcome is Outcome.ANY_ORDER}
        found = wait_until(lambda: crowd.settled(certain), timeout=60, what="the Pods to be settled", interval=0.5)
    finally:
        crowd.clear()
    compare(verdicts, found)


def compare(verdicts: dict[str, Verdict], found: dict[str, list[bool]] | None) -> None:
    assert found is not None
    counts = Counter((verdict.outcome.name, all(found[name])) for name, verdict in verdicts.items())
    for outcome in Outcome:
        fitted, waited = counts[outcome.name, True], counts[outcome.name, False]
        print(f"{outcome.name}: {fitted + waited} cases, {fitted} fitted, {waited} did not")  # noqa: T201  # the counts are the result
    wrong = {
        name: str(verdict)
        for name, verdict in verdicts.items()
        if (verdict.outcome is Outcome.ANY_ORDER and not all(found[name]))
        or (verdict.outcome is Outcome.CANNOT and all(found[name]))
    }
    assert wrong == {}
    for outcome in (Outcome.ANY_ORDER, Outcome.SOME_ORDER, Outcome.CANNOT):
        assert counts[outcome.name, True] + counts[outcome.name, False] >= ENOUGH, f"{outcome.name} was hardly tried"


class Crowd:
    """The Pods of all cases, and what is there for them."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.paths: list[str] = []
        self._sender = Sender(api)

    def create(self, manifests: list[Object]) -> None:
        self.paths += self._sender.create(manifests)

    def delete(self, pods: list[Object]) -> None:
        paths = [f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}" for pod in pods]
        self._sender.send([("DELETE", f"{path}?gracePeriodSeconds=0", None) for path in paths])
        gone = {pod["metadata"]["name"] for pod in pods}
        wait_until(
            lambda: not gone & {pod["metadata"]["name"] for pod in self.pods()}, timeout=30, what="Pods to leave"
        )

    def pods(self) -> list[Object]:
        return self.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")

    def settled(self, certain: set[str]) -> dict[str, list[bool]] | None:
        """Which Pods of ours got a node, by case, once that is clear: those that must get one have time to."""
        found: dict[str, list[bool]] = defaultdict(list)
        for pod in self.pods():
            labels: Object = pod["metadata"]["labels"]
            if labels["agree.example/role"] == "theirs":
                continue
            has_node = bool(pod["spec"].get("nodeName"))
            if not is_settled(pod) or (labels[CASE] in certain and not has_node and not self._is_late()):
                return None
            found[labels[CASE]].append(has_node)
        return found

    def _is_late(self) -> bool:
        """After many looks a Pod that must fit and waits is a finding, no longer a matter of patience."""
        self.looks = getattr(self, "looks", 0) + 1
        return self.looks > 60

    def clear(self) -> None:
        for kind in ("pods", "resourceclaims", "persistentvolumeclaims"):
            group = "/api/v1" if kind != "resourceclaims" else "/apis/resource.k8s.io/v1"
            self.api.request("DELETE", f"{group}/namespaces/{NAMESPACE}/{kind}", query={"gracePeriodSeconds": "0"})
        within = ("/pods/", "/resourceclaimtemplates/", "/persistentvolumeclaims/")
        alone = [path for path in self.paths if not any(kind in path for kind in within)]
        self._sender.send([("DELETE", path, None) for path in alone])


def template(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": spec},
    }


def all_are_ready(api: Api) -> bool:
    nodes = api.list("/api/v1/nodes", labelSelector=CASE)
    return all(
        any(held["type"] == "Ready" and held["status"] == "True" for held in node["status"].get("conditions", ()))
        and all(taint["key"].startswith("agree.example/") for taint in node["spec"].get("taints", ()))
        for node in nodes
    )


def all_are_bound(api: Api) -> bool:
    claims = api.list(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims")
    return all(claim.get("status", {}).get("phase") == "Bound" for claim in claims)


def is_settled(pod: Object) -> bool:
    """Whether the scheduler has dealt with a Pod, one way or the other."""
    conditions: list[Object] = pod["status"].get("conditions", [])
    return any(held["type"] == "PodScheduled" for held in conditions)


def read(api: Api) -> Supply:
    root = "/apis/resource.k8s.io/v1"
    classes = api.list(f"{root}/deviceclasses")
    return read_supply(
        nodes=api.list("/api/v1/nodes"),
        pods=api.list("/api/v1/pods"),
        slices=api.list(f"{root}/resourceslices"),
        classes={held["metadata"]["name"]: held for held in classes},
        claims=api.list(f"{root}/resourceclaims"),
        server_version=api.get("/version")["gitVersion"],
    )
