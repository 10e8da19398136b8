"""A stack that runs on nodes with NPUs, one for each Pod, and a change of it that is weighed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stack import labels
from stack.guards import GuardProblem
from stack.plan import plan_stack
from stack.weigh import Weighed, weigh_change
from tests.builders import merged
from tests.devices import claim, device_class, devices, node, resource_slice
from tests.unit.impact.world import World, accepted, first_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stack.facts import Surroundings

Blocks = dict[str, Any]
NPU = "npu.rebellions.ai"
BASE: Blocks = {
    "recipe": "qwen3-0.6b",
    "modelserver": {
        "replicas": {"prefill": 1, "decode": 2},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    },
    "devices": {
        "rdma": {"enabled": False},
        "claimTemplate": {"requests": [{"name": "npu", "deviceClassName": NPU, "count": 1}]},
    },
    "guards": {
        "nodes": "off",
        "prerequisites": "off",
        "names": "off",
        "volumes": "off",
        "quota": "off",
        "serial": "off",
    },
}
IMAGE: Blocks = {"modelserver": {"image": {"tag": "next"}}}


def around(world: World, surroundings: Surroundings, published: int, elsewhere: Mapping[str, int]) -> Surroundings:
    """Node n1 with so many NPUs, of which every Pod that is there holds one, and other nodes with NPUs."""
    holders = [
        pod["metadata"]["name"] for pod in world.pods if pod["spec"] and labels.ROLE in pod["metadata"]["labels"]
    ]
    nodes = {"n1": published, **elsewhere}
    volumes = {
        pod["metadata"]["labels"][labels.COMPONENT]: world.deployments[
            f"rel-{pod['metadata']['labels'][labels.COMPONENT]}"
        ]["spec"]["template"]["spec"]["volumes"]
        for pod in world.pods
        if labels.ROLE in pod["metadata"]["labels"] and labels.ENTRY not in pod["metadata"]["labels"]
    }
    pods = [
        merged(
            pod,
            {
                "spec": {
                    "containers": [{"name": "main"}],
                    "volumes": volumes.get(pod["metadata"]["labels"][labels.COMPONENT], []),
                }
            },
        )
        for pod in world.pods
    ]
    return replace(
        surroundings,
        nodes=[node(name) for name in nodes],
        pods=pods,
        release_pods=pods,
        slices=[
            resource_slice(NPU, devices("npu", count, productName="one"), on=name)
            for name, count in nodes.items()
            if count
        ],
        device_classes={NPU: device_class(NPU, f"device.driver == '{NPU}'")},
        resource_claims=[
            claim(f"claim-{index}", [(NPU, "n1", f"npu-{index}")], name) for index, name in enumerate(holders)
        ],
        volume_claims={},
        server_version="v1.36.3",
    )


def weigh(
    before: Blocks,
    after: Blocks,
    *,
    published: int,
    elsewhere: Mapping[str, int] | None = None,
    meanwhile: Callable[[World], object] = lambda _: None,
    seen: Callable[[Surroundings], Surroundings] = lambda surroundings: surroundings,
) -> Weighed:
    """Weigh a change of a stack that runs on a node with so many NPUs."""
    world = World.running(first_plan(**before))
    meanwhile(world)
    wanted = accepted(**merged(before, after))
    plan = plan_stack(wanted, world.facts())
    found = seen(around(world, world.around(), published, elsewhere or {}))
    return weigh_change(wanted.config, plan, found, world.trial(plan))


def cordoned(surroundings: Surroundings, name: str = "n1") -> Surroundings:
    """A node that takes no new Pods."""
    nodes = [
        merged(each, {"spec": {"unschedulable": True}}) if each["metadata"]["name"] == name else each
        for each in surroundings.nodes or ()
    ]
    return replace(surroundings, nodes=nodes)


def tainted(surroundings: Surroundings, name: str = "n1") -> Surroundings:
    """The devices of a node are not given away any more."""
    taint = {"key": "unhealthy", "effect": "NoSchedule"}
    slices = [
        merged(each, {"spec": {"devices": [{**device, "taints": [taint]} for device in each["spec"]["devices"]]}})
        if each["spec"]["nodeName"] == name
        else each
        for each in surroundings.slices or ()
    ]
    return replace(surroundings, slices=slices)


def warned(weighed: Weighed) -> list[GuardProblem]:
    """What the guards warn of; that a strategy stops a role is said by none of them."""
    return [letter for letter in weighed.warnings if isinstance(letter, GuardProblem)]


def spares(weighed: Weighed) -> dict[str, str | None]:
    """What is said of each part's spare devices."""
    return {part.part: part.spare for part in weighed.impact.parts}
