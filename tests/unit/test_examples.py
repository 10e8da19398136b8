"""Each example: accepted, planned, explained, one situation, and small enough for the inventory it names.

That each one really deploys there is shown by the tests with a control plane.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cli.stackfile import read_stack_file
from local.inventory import inventory_names, load_inventory
from stack.plan import plan_stack
from stack.rules import accept
from tests.builders import EMPTY_CLUSTER, ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from local.inventory.model import Inventory
    from stack.planned import StackPlan

EXAMPLES = sorted(ROOT.glob("examples/*.yaml"))
COVERED = {
    "agentgateway",
    "aggregated",
    "autoscaling",
    "engine-settings",
    "epp-plugins",
    "epp-standby",
    "existing-claims",
    "gaie-epp",
    "gpt-oss-120b-device-plugin",
    "gpt-oss-120b-dra",
    "managed-claim-template",
    "model-offload",
    "model-volume",
    "monitoring-prometheus-operator",
    "monitoring-victoriametrics",
    "node-placement",
    "npu-device-plugin",
    "pinned-by-digest",
    "root-privileged",
    "spare-devices",
    "tracing",
    "try-out",
    "without-pool",
}


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest) -> Path:
    return request.param


def header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[: lines.index("config:")])


@functools.cache
def inventory_of(path: Path) -> Inventory:
    found = re.match(r"# Fits inventory: ([a-z-]+)\n", header(path) + "\n")
    assert found, "the first line names the inventory"
    return load_inventory(found[1])


def blocks_of(path: Path) -> dict[str, object]:
    return read_stack_file(path.read_text(encoding="utf-8"))[0]


@functools.cache
def planned(path: Path) -> StackPlan:
    blocks, context = read_stack_file(path.read_text(encoding="utf-8"))
    return plan_stack(accept(blocks, context=context), EMPTY_CLUSTER)


def test_every_situation_has_its_file() -> None:
    assert {path.stem for path in EXAMPLES} == COVERED


def test_is_accepted_and_planned(example: Path) -> None:
    plan = planned(example)
    assert plan.modelserver.workloads
    assert plan.modelserver.topology.unknown is None


def test_names_an_inventory_and_says_for_whom_it_is_and_what_it_needs(example: Path) -> None:
    assert inventory_of(example).name in inventory_names()
    text = header(example)
    assert all(line.startswith("#") for line in text.splitlines())
    assert re.search(r"^# Needs: \S", text, re.MULTILINE)


def test_warnings_are_explained(example: Path) -> None:
    """Whoever copies the file meets the warning at the first preview."""
    assert bool(planned(example).warnings) == ("warn" in header(example))


def test_belongs_to_a_cluster_that_has_to_be_put_in(example: Path) -> None:
    blocks, context = read_stack_file(example.read_text(encoding="utf-8"))
    assert context == "my-cluster"
    assert blocks["cluster"] == {"identifier": "my-cluster"}
    assert blocks["namespace"] == "llm"


def test_no_two_examples_are_the_same_situation() -> None:
    bodies = {path.stem: {k: v for k, v in blocks_of(path).items() if k != "release"} for path in EXAMPLES}
    same = [(a, b) for a in bodies for b in bodies if a < b and bodies[a] == bodies[b]]
    assert same == []
    titles = Counter(
        next(line for line in header(p).splitlines() if not re.match("# (Fits|Needs)", line)) for p in EXAMPLES
    )
    assert max(titles.values()) == 1


def test_the_pods_find_their_devices(example: Path) -> None:
    inventory, plan = inventory_of(example), planned(example)
    offered = devices_by_source(inventory)
    asked = devices_asked(inventory, plan)
    assert asked, "every model server needs accelerators"
    for source, count in asked.items():
        assert count <= offered[source], f"{source}: {count} asked, {offered[source]} there"


def devices_by_source(inventory: Inventory) -> Counter[str]:
    """Devices of each DeviceClass and extended resource on all nodes together."""
    found: Counter[str] = Counter()
    for group in inventory.nodes.values():
        for name, count in group.extended_resources.items():
            found[name] += count * group.count
        for device in group.devices:
            for device_class in inventory.device_classes:
                if device_class.driver == device.driver:
                    found[device_class.name] += device.per_numa_node * group.numa_nodes * group.count
    return found


def devices_asked(inventory: Inventory, plan: StackPlan) -> Counter[str]:
    templates = {o.name: o.manifest for o in plan.claims}
    templates |= {o["metadata"]["name"]: o for o in inventory.namespace_objects if o["kind"] == "ResourceClaimTemplate"}
    found: Counter[str] = Counter()
    for workload in plan.modelserver.workloads:
        pod = workload.object.manifest["spec"]["template"]["spec"]
        for claim in pod.get("resourceClaims", []):
            for request in templates[claim["resourceClaimTemplateName"]]["spec"]["spec"]["devices"]["requests"]:
                exactly = request["exactly"]
                found[exactly["deviceClassName"]] += exactly.get("count", 1) * workload.replicas
        for name, count in server_of(pod)["resources"]["limits"].items():
            if "/" in name:
                found[name] += int(count) * workload.replicas
    return found


def server_of(pod: dict[str, Any]) -> dict[str, Any]:
    [server] = [c for c in pod["containers"] if c["name"] == "modelserver"]
    return server


def test_what_it_refers_to_is_prepared_or_named_on_top(example: Path) -> None:
    inventory, plan = inventory_of(example), planned(example)
    prepared = {(o["kind"], o["metadata"]["name"]) for o in inventory.namespace_objects}
    needed = re.search(r"^# Needs claims: (.*)$", header(example), re.MULTILINE)
    prepared |= {("PersistentVolumeClaim", name) for name in (needed[1].split(", ") if needed else [])}
    prepared |= {(o.kind, o.name) for o in plan.objects()}
    assert referred_to(plan) <= prepared


def referred_to(plan: StackPlan) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    deployments = [o.manifest for o in plan.objects() if o.kind == "Deployment"]
    for pod in (d["spec"]["template"]["spec"] for d in deployments):
        for volume in pod["volumes"]:
            if "persistentVolumeClaim" in volume:
                found.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
            if "configMap" in volume:
                found.add(("ConfigMap", volume["configMap"]["name"]))
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            for entry in container.get("env", []):
                if "secretKeyRef" in entry.get("valueFrom", {}):
                    found.add(("Secret", entry["valueFrom"]["secretKeyRef"]["name"]))
        found |= {("Secret", secret["name"]) for secret in pod.get("imagePullSecrets", [])}
        found |= {("ResourceClaimTemplate", c["resourceClaimTemplateName"]) for c in pod.get("resourceClaims", [])}
        found.add(("ServiceAccount", pod["serviceAccountName"]))
    return found


def test_nodes_it_names_are_there(example: Path) -> None:
    names = {f"{group}-{index}" for group, nodes in inventory_of(example).nodes.items() for index in range(nodes.count)}
    for workload in planned(example).modelserver.workloads:
        selector = workload.object.manifest["spec"]["template"]["spec"].get("nodeSelector", {})
        assert {v for k, v in selector.items() if k == "kubernetes.io/hostname"} <= names


def test_volumes_it_makes_use_a_class_of_the_inventory(example: Path) -> None:
    classes = inventory_of(example).storage_classes
    default = [c for c in classes if c.default]
    for volume in planned(example).volumes:
        spec = volume.object.manifest["spec"]
        found = [c for c in classes if c.name == spec["storageClassName"]] if "storageClassName" in spec else default
        assert len(found) == 1
        assert found[0].shared or "ReadWriteMany" not in spec["accessModes"]
