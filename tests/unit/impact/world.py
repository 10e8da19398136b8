"""A cluster in which a plan runs, as JSON: what an API server would have made of it, Pods and all.

`change` is what most tests are about: one configuration runs, another is to be applied.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from stack import labels
from stack.facts import AnchorFacts, ClusterFacts, Surroundings, TrialFacts, WorkloadFacts
from stack.impact import Impact, foresee
from stack.names import content_hash
from stack.plan import plan_stack
from tests.builders import EMPTY_CLUSTER, merged
from tests.builders import accepted as accepted_as_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stack.impact import PartImpact
    from stack.planned import StackPlan
    from stack.rules import Accepted

Object = dict[str, Any]
Blocks = dict[str, Any]
BEGAN, READY = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
"""Every Pod was made and found a node then, and was Ready ten minutes later."""
HASH = "pod-template-hash"
SAME_DRAIN: Blocks = {
    "drain": {"shutdownTimeoutSeconds": dict.fromkeys(("prefill", "decode", "aggregated"), 40), "kvPullSeconds": 0}
}
"""A grace period of 90 s in every role: 20 s for routers, 40 s for requests, 30 s margin."""


def accepted(**blocks: Any) -> Accepted:
    """A configuration whose Pods all leave within 90 s."""
    return accepted_as_written(**merged(SAME_DRAIN, blocks))


def counted(plan: StackPlan) -> dict[str, Object]:
    """Every Deployment of a plan by name, with the number of its Pods."""
    roles = {each.object.name: each.counted for each in plan.modelserver.workloads}
    return roles | {each.name: each.manifest for each in plan.router if each.kind == "Deployment"}


def stored(manifest: Object) -> Object:
    """A Deployment as the API server completes it: with some of its defaults."""
    live = copy.deepcopy(manifest)
    spec: Object = live["spec"]
    spec.setdefault("revisionHistoryLimit", 10)
    pod: Object = spec["template"]["spec"]
    pod |= {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": pod.get("schedulerName", "default-scheduler"),
    }
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
    return live


def replica_set(
    deployment: Object, template: Object, count: int, *, ready: int | None = None, made: str = BEGAN
) -> Object:
    """The ReplicaSet of a template; the controller copies the Deployment's annotations onto it."""
    name, stamp = deployment["metadata"]["name"], content_hash(template)
    of = copy.deepcopy(template)
    of["metadata"]["labels"][HASH] = stamp
    return {
        "metadata": {
            "name": f"{name}-{stamp}",
            "namespace": deployment["metadata"]["namespace"],
            "creationTimestamp": made,
            "labels": {**of["metadata"]["labels"]},
            "annotations": dict(deployment["metadata"]["annotations"]),
            "ownerReferences": [
                {"kind": "Deployment", "name": deployment["metadata"]["name"], "uid": deployment["metadata"]["uid"]}
            ],
        },
        "spec": {"replicas": count, "template": of},
        "status": {"readyReplicas": count if ready is None else ready},
    }


def pod(deployment: Object, template: Object, index: int, *, ready: bool = True, placed: bool = True) -> Object:
    """A Pod of a template. `ready` after ten minutes; `placed` on a node."""
    meta, stamp = deployment["metadata"], content_hash(template)
    name = f"{meta['name']}-{stamp}-{index}"
    conditions = [
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": READY},
        {"type": "PodScheduled", "status": "True" if placed else "False", "lastTransitionTime": BEGAN},
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "uid": f"uid-{name}",
            "creationTimestamp": BEGAN,
            "labels": {**template["metadata"]["labels"], HASH: stamp},
        },
        "spec": {
            "terminationGracePeriodSeconds": template["spec"]["terminationGracePeriodSeconds"],
            **({"nodeName": "n1"} if placed else {}),
        },
        "status": {"phase": "Running" if placed else "Pending", "conditions": conditions},
    }


@dataclass
class World:
    """What runs, by kind. Tests change it as they like."""

    plan: StackPlan
    deployments: dict[str, Object] = field(default_factory=dict[str, Object])
    replica_sets: list[Object] = field(default_factory=list[Object])
    pods: list[Object] = field(default_factory=list[Object])

    @classmethod
    def running(cls, plan: StackPlan) -> World:
        """Everything is rolled out and Ready."""
        world = cls(plan)
        for name, manifest in counted(plan).items():
            live = stored(manifest)
            live["metadata"]["uid"] = f"uid-{name}"
            world.deployments[name] = live
            world.give(name, live["spec"]["template"], live["spec"]["replicas"])
        return world

    def give(self, name: str, template: Object, count: int, *, made: str = BEGAN, **how: bool) -> None:
        """Pods of a template to a Deployment, with their ReplicaSet."""
        live = self.deployments[name]
        ready = count if how.get("ready", True) else 0
        self.replica_sets.append(replica_set(live, template, count, ready=ready, made=made))
        self.pods += [pod(live, template, index, **how) for index in range(count)]
        live["status"] = {"replicas": count, "updatedReplicas": count, "availableReplicas": ready}

    def take(self, name: str, count: int) -> None:
        """Pods from a Deployment, so many of its first ReplicaSet's."""
        owned = next(each for each in self.replica_sets if each["metadata"]["name"].startswith(f"{name}-"))
        owned["spec"]["replicas"] -= count
        owned["status"]["readyReplicas"] -= count
        stamp = owned["metadata"]["labels"][HASH]
        mine = [each for each in self.pods if each["metadata"]["labels"][HASH] == stamp]
        for each in mine[len(mine) - count :]:
            self.pods.remove(each)

    def roll(self, plan: StackPlan, name: str, *, taken: int, given: int, **how: bool) -> None:
        """A roll-out to another plan that has come so far: Pods taken from the old template, and given to the new."""
        [planned] = [each for each in plan.objects() if each.kind == "Deployment" and each.name == name]
        uid = self.deployments[name]["metadata"]["uid"]
        self.deployments[name] = stored(planned.manifest)
        self.deployments[name]["metadata"]["uid"] = uid
        if taken:
            self.take(name, taken)
        template = self.deployments[name]["spec"]["template"]
        self.give(name, template, given, made="2026-01-02T00:00:00Z", **how)

    def facts(self) -> ClusterFacts:
        """What planning reads of it."""
        topology = self.plan.modelserver.topology
        return ClusterFacts(
            claims={},
            anchor_is_known=True,
            anchor=AnchorFacts(key=topology.key, generation=topology.generation, uid="u"),
            workloads={
                each.object.name: WorkloadFacts(
                    name=each.object.name,
                    role=each.role,
                    entry=each.entry,
                    node=each.object.manifest["metadata"]["annotations"].get(labels.NODE),
                    replicas=self.deployments[each.object.name]["spec"]["replicas"],
                    available=self.ready(each.object.name),
                    owner_uid="u",
                )
                for each in self.plan.modelserver.workloads
                if each.object.name in self.deployments
            },
            live_topologies=frozenset({topology.key}),
            near=self.around(),
        )

    def ready(self, name: str) -> int:
        """Pods of a Deployment that are Ready."""
        selector = self.deployments[name]["spec"]["selector"]["matchLabels"]
        return sum(
            selector.items() <= each["metadata"]["labels"].items()
            and each["status"]["conditions"][0]["status"] == "True"
            for each in self.pods
        )

    def around(self) -> Surroundings:
        """What impact sees of it: role Deployments of all, the release's ReplicaSets and Pods."""
        return Surroundings(
            deployments=[live for live in self.deployments.values() if labels.ROLE in live["metadata"]["labels"]],
            replica_sets=self.replica_sets,
            release_pods=self.pods,
        )

    def trial(self, plan: StackPlan) -> TrialFacts:
        """What a dry run answers: a Deployment whose selector changes is refused, which says nothing of it."""
        [epp] = [each.name for each in plan.router if each.kind == "Deployment"]
        return TrialFacts(
            results={name: stored(manifest) for name, manifest in counted(plan).items() if self._takes(manifest)},
            live={epp: self.deployments.get(epp)},
        )

    def _takes(self, manifest: Object) -> bool:
        live = self.deployments.get(manifest["metadata"]["name"])
        return live is None or live["spec"]["selector"] == manifest["spec"]["selector"]


@cache
def _first_plan(blocks: str) -> StackPlan:
    return plan_stack(accepted(**json.loads(blocks)), EMPTY_CLUSTER)


def first_plan(**blocks: Any) -> StackPlan:
    """The plan of a first install."""
    return _first_plan(json.dumps(blocks))


def change(
    before: Blocks,
    after: Blocks,
    *,
    meanwhile: Callable[[World], object] | None = None,
    around: Callable[[Surroundings], Surroundings] | None = None,
    trial: Callable[[TrialFacts], TrialFacts] | None = None,
) -> Impact:
    """What is foreseen of a change.

    Args:
        before: blocks of the configuration that runs.
        after: blocks over them. A key of None is taken away.
        meanwhile: what else has come to pass.
        around: what is seen of the cluster instead.
        trial: what the dry run answers instead.
    """
    if meanwhile is around is trial is None:
        return _plain_change(json.dumps([before, after]))
    return _change(before, after, meanwhile, around, trial)


@cache
def _plain_change(blocks: str) -> Impact:
    """Several tests look at the same one."""
    before, after = json.loads(blocks)
    return _change(before, after, None, None, None)


def _change(
    before: Blocks,
    after: Blocks,
    meanwhile: Callable[[World], object] | None,
    around: Callable[[Surroundings], Surroundings] | None,
    trial: Callable[[TrialFacts], TrialFacts] | None,
) -> Impact:
    world = World.running(first_plan(**before))
    if meanwhile is not None:
        meanwhile(world)
    wanted = accepted(**merged(before, after))
    plan = plan_stack(wanted, world.facts())
    seen, tried = world.around(), world.trial(plan)
    return foresee(
        wanted.config, plan, seen if around is None else around(seen), tried if trial is None else trial(tried)
    )


def part(impact: Impact, name: str) -> PartImpact:
    """One part of it."""
    [found] = [each for each in impact.parts if each.part == name]
    return found


def restarted(impact: Impact) -> set[str]:
    """Parts whose Pods are all new afterwards."""
    return {each.part for each in impact.parts if each.restarts and not each.kept}


def keys(of: Iterable[Any]) -> list[str]:
    """Key changes as they are shown."""
    return [str(each) for each in of]
