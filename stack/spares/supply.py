"""What a cluster has: nodes with what is left of them, published devices, and who holds which.

Of a pool only the highest generation counts, and only when all its slices are there (Kubernetes documentation,
*Dynamic Resource Allocation*, ResourceSlice). What a claim's allocation names is taken, except for admin access.
Devices that a scheduler counts in ways not modelled here are kept and marked as odd.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from stack.rollout.pods import is_leaving, is_over
from stack.spares.cel import DeviceView
from stack.spares.pods import REQUIRED, Amounts, Object, amounts, at, each, inside, pod_requests, selects
from stack.version import minor_version

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from stack.spares.cel import Value

DeviceId = tuple[str, str, str]
"""Driver, pool and device name."""

TYPES: Final = ("string", "int", "bool", "version")
"""What an attribute's value can be."""

RESOURCE_OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every DeviceClass stands for without saying so."""

CLAIMS_EXTENDED_SINCE: Final = (1, 36)
"""Kubernetes in which `DRAExtendedResource` is on by default (beta); before, it has to be turned on."""


@dataclass(frozen=True, eq=False)
class Device:
    """A published device. What it is like is read when somebody asks, since most devices are held all the while.

    Attributes:
        object: as it stands in its slice.
    """

    id: DeviceId
    object: Object

    @property
    def taints(self) -> list[Object]:
        """Those of the device itself."""
        return each(self.object, "taints")

    @property
    def is_unlimited(self) -> bool:
        """Whether several claims may have it at once."""
        return bool(self.object.get("allowMultipleAllocations"))

    @cached_property
    def view(self) -> DeviceView:
        """What a selector may read of it."""
        prefix = f"{self.id[0]}/"
        attributes: dict[str, Value] = {}
        for name, held in inside(self.object, "attributes").items():
            if (value := _value(held)) is None:
                continue
            # A name without a domain belongs to the driver's; written in full it counts first.
            if "/" in name:
                attributes[name] = value
            else:
                attributes.setdefault(prefix + name, value)
        return DeviceView(
            driver=self.id[0],
            attributes=attributes,
            capacity={
                name if "/" in name else prefix + name: str(held.get("value", "0"))
                for name, held in inside(self.object, "capacity").items()
            },
            is_shareable=self.is_unlimited,
        )

    @cached_property
    def oddity(self) -> str | None:
        """In which way it is counted that is not modelled here; None for plain devices."""
        if self.object.get("consumesCounters"):
            return "is a part of a larger device"
        if self.is_unlimited:
            return "may be given away several times"
        if self.object.get("bindingConditions"):
            return "has to be made ready first"
        strange = [name for name, held in inside(self.object, "attributes").items() if _value(held) is None]
        return f"has an attribute {min(strange, key=_is_in_full)} of an unknown type" if strange else None


def _value(held: Object) -> Value | None:
    for kind in TYPES:
        if (found := held.get(kind)) is not None:
            return kind, found
    return None


def _is_in_full(name: str) -> bool:
    return "/" in name


@dataclass(frozen=True, kw_only=True, eq=False)
class RunningPod:
    """A Pod on a node.

    Attributes:
        name: `namespace/name`.
        is_leaving: it was told to go and still holds everything.
        keeps_away: label selectors of its required anti-affinity.
    """

    uid: str
    name: str
    requests: Amounts
    priority: int
    priority_class: str | None
    is_leaving: bool
    keeps_away: tuple[Object, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class WaitingPod:
    """A Pod without a node.

    Attributes:
        classes: DeviceClasses that it asks for; None when that could not be found out.
        is_known_not_to_fit: the scheduler tried, in vain, and waits for a change.
    """

    uid: str
    name: str
    requests: Amounts
    classes: frozenset[str] | None
    is_known_not_to_fit: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class SupplyNode:
    """A node: the object as it is, what can be given away in total, and who is there."""

    object: Object
    allocatable: Amounts
    pods: tuple[RunningPod, ...]

    @cached_property
    def used(self) -> Amounts:
        """What all Pods on it request together."""
        used: Amounts = {"pods": len(self.pods)}
        for pod in self.pods:
            for resource, units in pod.requests.items():
                if resource != "pods":
                    used[resource] = used.get(resource, 0) + units
        return used

    @cached_property
    def least_priority(self) -> float:
        """Of its Pods, the lowest."""
        return min((pod.priority for pod in self.pods), default=math.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class Supply:
    """What a cluster has. Lists that could not be read are named in `unknown` and empty here.

    Attributes:
        local: devices of which one node alone can have each, by node.
        shared: devices within reach of several nodes, with these.
        doubtful: pools that are being published, with the nodes in their reach: nothing is given away from them now.
        held: allocated devices, with the uids of those who use them (empty when nobody does, yet).
        classes: DeviceClass to its selectors; None when they could not be read.
        class_of: extended resource to the DeviceClass that provides it.
        claims_extended: whether the scheduler is known to claim devices for extended resources.
        unknown: what could not be read, `nodes`, `pods`, `slices`, `classes` or `claims`.
        fields: what the nodes have for the demands that somebody asked for, kept for the next who asks
            (`stack.spares.field`): several questions are asked of one stock, and most of the time goes into that.
    """

    nodes: Mapping[str, SupplyNode]
    local: Mapping[str, Sequence[Device]]
    shared: Sequence[tuple[Device, frozenset[str]]]
    doubtful: Sequence[tuple[str, frozenset[str]]]
    held: Mapping[DeviceId, frozenset[str]]
    classes: Mapping[str, tuple[str, ...]] | None
    class_of: Mapping[str, str]
    waiting: Sequence[WaitingPod]
    claims_extended: bool = False
    unknown: tuple[str, ...] = ()
    fields: dict[Hashable, Any] = field(default_factory=dict["Hashable", Any], init=False, repr=False)

    def pods(self) -> Iterable[RunningPod]:
        """Every Pod that is on a node."""
        return (pod for node in self.nodes.values() for pod in node.pods)

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Uids of Pods that were told to go."""
        return frozenset(pod.uid for pod in self.pods() if pod.is_leaving)

    @cached_property
    def keeping_away(self) -> Sequence[RunningPod]:
        """Pods with an anti-affinity."""
        return [pod for pod in self.pods() if pod.keeps_away]

    @cached_property
    def priorities(self) -> Mapping[str, int]:
        """PriorityClass to the priority that a live Pod has of it."""
        found: dict[str, int] = {}
        for pod in self.pods():
            if pod.priority_class is not None:
                found.setdefault(pod.priority_class, pod.priority)
        return found

    @cached_property
    def unlimited(self) -> Sequence[tuple[Device, frozenset[str]]]:
        """Devices that several claims may have at once, with the nodes that have each."""
        local = [(device, frozenset({name})) for name, held in self.local.items() for device in held]
        return [(device, reach) for device, reach in (*local, *self.shared) if device.is_unlimited]

    @cached_property
    def _touched(self) -> tuple[Mapping[str, frozenset[str]], frozenset[str]]:
        users: dict[str, set[str]] = defaultdict(set)
        idle: set[str] = set()
        for name, node in self.nodes.items():
            for pod in node.pods:
                users[pod.uid].add(name)
        for name, devices in self.local.items():
            for device in devices:
                if (of := self.held.get(device.id)) is None:
                    continue
                if not of:
                    idle.add(name)
                for uid in of:
                    users[uid].add(name)
        return {uid: frozenset(names) for uid, names in users.items()}, frozenset(idle)

    def touched_by(self, uids: Iterable[str]) -> frozenset[str]:
        """Nodes on which one of these Pods is, or with a device of their own that one of them holds."""
        users, _ = self._touched
        return frozenset[str]().union(*(users[uid] for uid in uids if uid in users))

    @property
    def giving_back(self) -> frozenset[str]:
        """Nodes with a device of their own that is allocated, though nobody uses it."""
        return self._touched[1]


def read_supply(
    *,
    nodes: Sequence[Object] | None,
    pods: Sequence[Object] | None,
    slices: Sequence[Object] | None,
    classes: Mapping[str, Object] | None,
    claims: Sequence[Object] | None,
    server_version: str | None = None,
) -> Supply:
    """Take stock. Each list as the API server gave it, of the whole cluster; None for one that could not be read.

    Args:
        nodes: Nodes.
        pods: Pods of all namespaces.
        slices: ResourceSlices.
        classes: DeviceClasses by name.
        claims: ResourceClaims of all namespaces.
        server_version: `gitVersion` of the API server.
    """
    live = [pod for pod in pods or () if not is_over(pod)]
    by_name = {node["metadata"]["name"]: node for node in nodes or ()}
    there: dict[str, list[RunningPod]] = defaultdict(list)
    for pod in live:
        if on := pod["spec"].get("nodeName"):
            there[on].append(_running(pod))
    local, shared, doubtful = _read_slices(slices or (), by_name)
    held: dict[DeviceId, frozenset[str]] = {}
    for claim in claims or ():
        users = frozenset(user["uid"] for user in each(claim, "status", "reservedFor"))
        for result in each(claim, "status", "allocation", "devices", "results"):
            # A share of a device that may be given away several times takes nothing from the others.
            if not result.get("adminAccess") and "shareID" not in result:
                held[result["driver"], result["pool"], result["device"]] = users
    read = {"nodes": nodes, "pods": pods, "slices": slices, "classes": classes, "claims": claims}
    return Supply(
        nodes={
            name: SupplyNode(
                object=node, allocatable=amounts(at(node, "status", "allocatable")), pods=tuple(there[name])
            )
            for name, node in by_name.items()
        },
        local=local,
        shared=shared,
        doubtful=doubtful,
        held=held,
        classes=None if classes is None else {name: class_selectors(found) for name, found in classes.items()},
        class_of=classes_of_resources(classes or {}),
        waiting=_read_waiting(live, claims),
        claims_extended=minor_version(server_version) >= CLAIMS_EXTENDED_SINCE,
        unknown=tuple(what for what, found in read.items() if found is None),
    )


def _running(pod: Object) -> RunningPod:
    spec: Object = pod["spec"]
    return RunningPod(
        uid=pod["metadata"]["uid"],
        name=_full_name(pod),
        requests=pod_requests(spec),
        priority=spec.get("priority") or 0,
        priority_class=spec.get("priorityClassName") or None,
        is_leaving=is_leaving(pod),
        keeps_away=tuple(inside(term, "labelSelector") for term in each(spec, "affinity", "podAntiAffinity", REQUIRED)),
    )


def _full_name(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def class_selectors(device_class: Object) -> tuple[str, ...]:
    """CEL expressions of a DeviceClass, all of which hold for its devices."""
    return tuple(at(selector, "cel", "expression") or "" for selector in each(device_class, "spec", "selectors"))


def classes_of_resources(classes: Mapping[str, Object]) -> dict[str, str]:
    """Extended resource to the DeviceClass that provides it.

    Every class provides one that is named for it. Of several classes for one resource the youngest counts, and of the
    same second the first by name (KEP-5004).
    """
    found = {RESOURCE_OF_CLASS + name: name for name in classes}
    by_age = sorted(
        sorted(classes), key=lambda name: at(classes[name], "metadata", "creationTimestamp") or "", reverse=True
    )
    for name in by_age:
        if resource := at(classes[name], "spec", "extendedResourceName"):
            found.setdefault(resource, name)
    return found


# --- slices -----------------------------------------------------------------------------------------------------------


def _read_slices(
    slices: Iterable[Object], nodes: Mapping[str, Object]
) -> tuple[dict[str, list[Device]], list[tuple[Device, frozenset[str]]], list[tuple[str, frozenset[str]]]]:
    local: dict[str, list[Device]] = defaultdict(list)
    shared: list[tuple[Device, frozenset[str]]] = []
    doubtful: list[tuple[str, frozenset[str]]] = []
    everywhere = frozenset(nodes)
    for (driver, pool), specs in _pools(slices):
        current = _newest(specs)
        placed: list[tuple[Object, frozenset[str]]] = []
        for spec in current:
            of_slice = None if spec.get("perDeviceNodeSelection") else _reach(spec, nodes, everywhere)
            placed += [
                (device, _reach(device, nodes, everywhere) if of_slice is None else of_slice)
                for device in each(spec, "devices")
            ]
        repeated = len({device["name"] for device, _ in placed}) < len(placed)
        if len(current) != current[0]["pool"].get("resourceSliceCount", 1) or repeated:
            # A slice that is missing may be for any node, unless the pool is a node's own.
            owners = {spec.get("nodeName") or "" for spec in current}
            is_own = len(owners) == 1 and owners != {""}
            doubtful.append((f"{driver}/{pool}", frozenset(owners) if is_own else everywhere))
            continue
        for device, reach in placed:
            read = Device((driver, pool, device["name"]), device)
            if len(reach) == 1:
                local[next(iter(reach))].append(read)
            elif reach:
                shared.append((read, reach))
    return local, shared, doubtful


def published(slices: Iterable[Object]) -> Iterator[Device]:
    """Devices of the newest generation of every pool, whether it is published in whole or not."""
    for (driver, pool), specs in _pools(slices):
        for spec in _newest(specs):
            yield from (Device((driver, pool, device["name"]), device) for device in each(spec, "devices"))


def _pools(slices: Iterable[Object]) -> list[tuple[tuple[str, str], list[Object]]]:
    """Specs of all slices of each pool, the pools in order."""
    pools: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for found in slices:
        pools[found["spec"]["driver"], found["spec"]["pool"]["name"]].append(found["spec"])
    return sorted(pools.items())


def _newest(specs: Sequence[Object]) -> list[Object]:
    """Slices of one pool that are of its newest generation."""
    newest = max(spec["pool"].get("generation", 0) for spec in specs)
    return [spec for spec in specs if spec["pool"].get("generation", 0) == newest]


def _reach(where: Object, nodes: Mapping[str, Object], everywhere: frozenset[str]) -> frozenset[str]:
    """The nodes that a slice, or a device of it, names."""
    if name := where.get("nodeName"):
        return frozenset({name}) & everywhere
    if where.get("allNodes"):
        return everywhere
    if (selector := where.get("nodeSelector")) is not None:
        return frozenset(
            name for name, node in nodes.items() if selects(selector, name, inside(node, "metadata", "labels"))
        )
    return frozenset()


# --- who waits --------------------------------------------------------------------------------------------------------


def _read_waiting(pods: Iterable[Object], claims: Sequence[Object] | None) -> list[WaitingPod]:
    by_name = {(claim["metadata"].get("namespace"), claim["metadata"]["name"]): claim for claim in claims or ()}
    found: list[WaitingPod] = []
    for pod in pods:
        meta: Object = pod["metadata"]
        if pod["spec"].get("nodeName") or is_leaving(pod):
            continue
        made = {item["name"]: item.get("resourceClaimName") for item in each(pod, "status", "resourceClaimStatuses")}
        classes: set[str] = set()
        is_clear = True
        for asked in each(pod, "spec", "resourceClaims"):
            claim = by_name.get(
                (meta.get("namespace"), asked.get("resourceClaimName") or made.get(asked["name"]) or "")
            )
            is_clear = is_clear and claim is not None
            for request in each(claim, "spec", "devices", "requests"):
                for choice in (inside(request, "exactly"), *each(request, "firstAvailable")):
                    classes.update({choice["deviceClassName"]} if "deviceClassName" in choice else ())
        conditions = each(pod, "status", "conditions")
        found.append(
            WaitingPod(
                uid=meta["uid"],
                name=_full_name(pod),
                requests=pod_requests(pod["spec"]),
                classes=frozenset(classes) if is_clear else None,
                is_known_not_to_fit=any(
                    condition.get("type") == "PodScheduled"
                    and condition.get("status") == "False"
                    and condition.get("reason") in {"Unschedulable", "SchedulingGated"}
                    for condition in conditions
                ),
            )
        )
    return found
