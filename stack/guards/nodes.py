"""Nodes: those that `nodePlacement` names, and whether CPU, memory and the number of Pods suffice anywhere.

What is said is certain: the stack's own Pods count as gone and so do Pods that leave, Pods that one of higher priority
may push out do not count, and a Pod that runs on a node that takes no new one stays. So a plan that is not refused may
still find no room; devices are judged elsewhere, Pod by Pod. A Pod with a scheduler of its own is left to that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING

from stack.guards import references
from stack.guards.finding import GuardFinding, refusal
from stack.guards.identity import maker_of
from stack.rollout.devices import HOSTNAME
from stack.rollout.pods import is_leaving
from stack.spares.pods import amounts, pod_requests, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings
    from stack.planned import Manifest, StackPlan, WorkloadPlan
    from stack.spares.pods import Amounts

DEFAULT_SCHEDULER = "default-scheduler"
ROOM = ("cpu", "memory", "ephemeral-storage", "pods")
"""What every Pod takes of a node; devices are none of it."""
MOST_NAMED = 5
MANY = {"is": "are", "has": "have", "lacks": "lack", "does": "do"}
_GIB = 2**30


def guard_nodes(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Named nodes first, then room."""
    if surroundings.nodes is None:
        return
    around = Around(
        nodes={node["metadata"]["name"]: node for node in surroundings.nodes},
        pods=surroundings.pods,
        namespace=plan.namespace,
        release=plan.release,
    )
    placed = [workload for workload in plan.modelserver.workloads if workload.entry is not None]
    fitting: list[WorkloadPlan] = []
    for workload in placed:
        finding = _named(config, workload, around)
        if finding is None:
            fitting.append(workload)
        else:
            yield finding
    yield from _room_on_named(config, fitting, around)
    counted = {each.object.name: references.key_of_count(each) for each in plan.modelserver.workloads}
    parts = [
        _Part(name=name, key=counted.get(name, "router.epp.replicas"), manifest=manifest)
        for name, (_, manifest) in references.deployments(plan).items()
        if name not in {workload.object.name for workload in placed}
    ]
    yield from _room_anywhere(plan, [part for part in parts if part.is_judged], around)


@dataclass(frozen=True, kw_only=True)
class Around:
    """The nodes, and what is taken on them.

    Attributes:
        nodes: by name.
        pods: of all namespaces; None when they are not known, and then only what is too much for a whole node is told.
        namespace, release: of the stack.
    """

    nodes: Mapping[str, Object]
    pods: Sequence[Object] | None
    namespace: str
    release: str

    @cached_property
    def _by_node(self) -> dict[str, list[tuple[Object, str | None]]]:
        """Pods on each node, each with the stack's Deployment that made it."""
        found: defaultdict[str, list[tuple[Object, str | None]]] = defaultdict(list)
        for pod in self.pods or ():
            node = pod["spec"].get("nodeName")
            if node:
                is_here = pod["metadata"]["namespace"] == self.namespace
                found[node].append((pod, maker_of(pod, self.release) if is_here else None))
        return found

    @cached_property
    def _rank(self) -> int:
        """Priority of the stack's Pods, as far as those that run tell."""
        ours = [pod for pods in self._by_node.values() for pod, maker in pods if maker is not None]
        return max((pod["spec"].get("priority") or 0 for pod in ours), default=0)

    def running(self, node: str, deployment: str) -> int:
        """Pods of one of the stack's Deployments on a node."""
        return sum(maker == deployment and not is_leaving(pod) for pod, maker in self._by_node[node])

    def allocatable(self, node: str) -> Amounts:
        """What a node gives to Pods."""
        status: Object = self.nodes[node].get("status") or {}
        return amounts(status.get("allocatable"))

    def free(self, node: str) -> Amounts:
        """What of it no Pod of somebody else takes that stays; of a large cluster few nodes are asked for."""
        if node not in self._free:
            self._free[node] = self._left(node)
        return self._free[node]

    @cached_property
    def _free(self) -> dict[str, Amounts]:
        return {}

    def _left(self, node: str) -> Amounts:
        taken: Counter[str] = Counter()
        for pod, maker in self._by_node.get(node, ()):
            if maker is None and not is_leaving(pod) and self._stays(pod):
                taken.update(pod_requests(pod["spec"]))
                taken["pods"] += 1
        return {resource: amount - taken[resource] for resource, amount in self.allocatable(node).items()}

    def _stays(self, pod: Object) -> bool:
        return (pod["spec"].get("priority") or 0) >= self._rank


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A Deployment whose Pods may go to several nodes, and the key that says how many."""

    name: str
    key: str
    manifest: Manifest

    @property
    def pod(self) -> Manifest:
        return references.pod_spec(self.manifest)

    @property
    def pods(self) -> int:
        return self.manifest["spec"]["replicas"]

    @cached_property
    def asked(self) -> Amounts:
        return _room(self.pod)

    @property
    def is_judged(self) -> bool:
        return self.pods > 0 and _has_usual_scheduler(self.pod)


def _has_usual_scheduler(pod: Manifest) -> bool:
    return pod.get("schedulerName") in {None, DEFAULT_SCHEDULER}


def _room(pod: Manifest) -> Amounts:
    asked = pod_requests(pod) | {"pods": 1}
    return {resource: asked[resource] for resource in ROOM if resource in asked}


# --- named nodes ------------------------------------------------------------------------------------------------------


def _named(config: StackConfig, workload: WorkloadPlan, around: Around) -> GuardFinding | None:
    """What is wrong with the node of one entry."""
    entry = workload.entry
    assert entry is not None  # noqa: S101  # only entries come here
    wanted = config.modelserver.node_placement[entry].node
    trouble = _trouble_with(wanted, references.pod_spec(workload.object.manifest), around)
    if trouble is None:
        return None
    why, fix = trouble
    return refusal(
        "nodes",
        f"modelserver.nodePlacement[{entry}].node",
        wanted,
        why,
        fix=fix,
        workloads=[workload.object.name],
        idle="warn",
    )


def _trouble_with(wanted: str, pod: Manifest, around: Around) -> tuple[str, str] | None:
    """Why a Pod can't go to the node, and what to do."""
    node = around.nodes.get(wanted)
    if node is None:
        near = get_close_matches(wanted, around.nodes, n=1)
        there = f"there are {_some(sorted(around.nodes))}" if around.nodes else "the cluster has none"
        return f"there is no such node; {there}", f"Did you mean {near[0]}?" if near else "Name one of these"
    has: Object = node["metadata"].get("labels") or {}
    hostname = has.get(HOSTNAME)
    if hostname != wanted:
        # Pods are pinned by this label, as anybody may set it; the field nodeName would go round the scheduler.
        return (
            f"this node has the label {HOSTNAME}={hostname}, by which Pods are pinned, so none would get there",
            f"Write the node's label: `kubectl label node {wanted} --overwrite {HOSTNAME}={wanted}`",
        )
    if not _has_usual_scheduler(pod):
        return None
    if why := why_not(pod, node):
        return f"this node {why}, so no new Pod gets there", _way_in(why, wanted)
    return _too_large(pod, around.allocatable(wanted))


def _way_in(why: str, node: str) -> str:
    if "cordoned" in why:
        return f"`kubectl uncordon {node}` when it is ready again, or name another node"
    if "taint" in why:
        return (
            f"Let the Pods tolerate it with modelserver.podOverrides.<role>.tolerations, or name another node; "
            f"`kubectl describe node {node}` shows its taints"
        )
    return (
        f"Mend modelserver.podOverrides.<role>, or name another node; `kubectl describe node {node}` shows its labels"
    )


def _too_large(pod: Manifest, allocatable: Amounts) -> tuple[str, str] | None:
    asked = _room(pod)
    if not (short := [resource for resource in asked if asked[resource] > allocatable.get(resource, 0)]):
        return None
    return (
        f"one Pod asks for {_say(asked, short)}, and this node has {_say(allocatable, short)} in all",
        "Name a larger node, or lower modelserver.resources.requests",
    )


def _room_on_named(config: StackConfig, workloads: Sequence[WorkloadPlan], around: Around) -> Iterator[GuardFinding]:
    """All entries of a node together, beside what others take there."""
    if around.pods is None:
        return
    by_node: defaultdict[str, list[WorkloadPlan]] = defaultdict(list)
    for workload in workloads:
        if workload.entry is not None and _has_usual_scheduler(references.pod_spec(workload.object.manifest)):
            by_node[config.modelserver.node_placement[workload.entry].node].append(workload)
    for node, here in by_node.items():
        asked: Counter[str] = Counter()
        for workload in here:
            asked.update(_room(references.pod_spec(workload.object.manifest)))
        free = around.free(node)
        if short := [resource for resource in ROOM if asked[resource] > free.get(resource, 0)]:
            entries = ", ".join(f"[{workload.entry}]" for workload in here)
            yield refusal(
                "nodes",
                f"modelserver.nodePlacement[{here[0].entry}].node",
                node,
                f"the Pods of entries {entries} ask for {_say(asked, short)} there together, and beside the Pods of "
                f"others {_say(free, short)} are free of {_say(around.allocatable(node), short)}",
                fix=f"Place fewer Pods there, lower modelserver.resources.requests, or make room: `kubectl describe "
                f"node {node}` shows what runs there",
                workloads=[workload.object.name for workload in here],
                idle="warn",
            )


# --- room anywhere ----------------------------------------------------------------------------------------------------


def _room_anywhere(plan: StackPlan, parts: Sequence[_Part], around: Around) -> Iterator[GuardFinding]:
    """Each part by itself; where each has room, all of them together."""
    findings = [finding for part in parts if (finding := _room_for(part, around)) is not None]
    yield from findings or _room_together(plan, parts, around)


def _room_for(part: _Part, around: Around) -> GuardFinding | None:
    """Too few places for the Pods of one Deployment, even if all others of the stack were gone."""
    missing, places = part.pods, dict[str, int]()
    reasons: Counter[str] = Counter()
    for name, node in around.nodes.items():
        if why := why_not(part.pod, node):
            reasons[why] += 1
            missing -= around.running(name, part.name)  # it stays until something moves it
        else:
            free = around.free(name)
            places[name] = max(0, min(free.get(resource, 0) // amount for resource, amount in part.asked.items()))
            missing -= places[name]
        if missing <= 0:
            return None
    return refusal(
        "nodes",
        part.key,
        part.pods,
        f"{'the Pod asks' if part.pods == 1 else 'each Pod asks'} for {_say(part.asked, part.asked)}, and beside the "
        f"Pods of others {_say_places(places)}{_say_reasons(reasons)}",
        fix="Run fewer Pods, lower their requests, or make room: `kubectl describe nodes` shows what runs where. Nodes "
        "that an autoscaler would add are not foreseen",
        workloads=[part.name],
        idle="warn",
    )


def _say_places(places: Mapping[str, int]) -> str:
    if not places:
        return "no node takes it"
    room = [f"{name} for {count}" for name, count in places.items() if count]
    return f"there is room on {_some(room)} only" if room else f"there is room on none of {len(places)} nodes"


def _say_reasons(reasons: Counter[str]) -> str:
    """`; 1 node has the taint gone, 2 nodes are cordoned`."""
    said = [f"1 node {why}" if count == 1 else f"{count} nodes {_of_many(why)}" for why, count in reasons.most_common()]
    return f"; {', '.join(said)}" if said else ""


def _of_many(why: str) -> str:
    verb, _, rest = why.partition(" ")
    return f"{MANY.get(verb, verb)} {rest}"


def _room_together(plan: StackPlan, parts: Sequence[_Part], around: Around) -> Iterator[GuardFinding]:
    """The sum of all requests against all room that any part may use."""
    asked: Counter[str] = Counter()
    for part in parts:
        asked.update({resource: amount * part.pods for resource, amount in part.asked.items()})
    free: Counter[str] = Counter()
    for name, node in around.nodes.items():
        usable = {part.name for part in parts if why_not(part.pod, node) is None}
        if usable:
            free.update({resource: amount for resource, amount in around.free(name).items() if amount > 0})
        for part in parts:
            if part.name not in usable:
                running = around.running(name, part.name)
                free.update({resource: amount * running for resource, amount in part.asked.items()})
        if all(free[resource] >= amount for resource, amount in asked.items()):
            return
    short = [resource for resource, amount in asked.items() if free[resource] < amount]
    if short:
        yield refusal(
            "nodes",
            references.key_of_counts(plan, [part.name for part in parts]),
            "",
            f"all Pods of the stack, the endpoint picker included, ask for {_say(asked, short)}, and beside the Pods "
            f"of others {_say(free, short)} are free on all nodes that they may use",
            fix="Run fewer Pods, lower their requests, or make room: `kubectl describe nodes` shows what runs where. "
            "Nodes that an autoscaler would add are not foreseen",
            workloads=[part.name for part in parts],
            idle="warn",
        )


# --- words ------------------------------------------------------------------------------------------------------------


def _say(amounts_of: Mapping[str, int], resources: Sequence[str] | Mapping[str, int]) -> str:
    """`40 CPU and 460Gi memory`."""
    words = [_amount(resource, amounts_of.get(resource, 0)) for resource in resources if resource != "pods"]
    if "pods" in resources and (len(resources) == 1):
        words.append(f"{amounts_of.get('pods', 0)} Pods")
    return " and ".join(words) if words else "a place"


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount / 1000:g} CPU"
    return f"{amount / _GIB:.4g}Gi {'memory' if resource == 'memory' else 'of disk'}"


def _some(words: Sequence[str]) -> str:
    more = len(words) - MOST_NAMED
    return ", ".join(words[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
