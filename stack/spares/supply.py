"""What a cluster has: nodes with what is left of them, published devices, and who holds which.

Of a pool only the highest generation counts, and only when all its slices are there (Kubernetes documentation,
*Dynamic Resource Allocation*, ResourceSlice). What a claim's allocation names is taken, except for admin access.
Devices that a scheduler counts in ways not modelled here are kept and marked as odd.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stack.rollout.pods import is_over
from stack.spares.cel import DeviceView
from stack.spares.pods import REQUIRED, Amounts, Object, amounts, at, each, inside, pod_requests, selects
from stack.version import minor_version

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from stack.spares.cel import Answer, Value

DeviceId = tuple[str, str, str]
"""Driver, pool and device name."""

RESOURCE_OF_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that every DeviceClass stands for without saying so."""

CLAIMS_EXTENDED_SINCE: Final = (1, 36)
"""Kubernetes in which `DRAExtendedResource` is on by default (beta); before, it has to be turned on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Device:
    """A published device.

    Attributes:
        taints: those of the device itself.
        oddity: in which way it is counted that is not modelled here; None for plain devices.
    """

    id: DeviceId
    view: DeviceView
    taints: tuple[Object, ...] = ()
    oddity: str | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether several claims may have it at once."""
        return self.view.is_shareable


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
        answers: what kinds of request say of devices, kept for the next who asks: several questions are asked of one
            stock, and most of the time goes into that.
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
    answers: dict[Hashable, dict[Device, Answer]] = field(
        default_factory=dict["Hashable", dict[Device, "Answer"]], repr=False
    )

    def pods(self) -> Iterable[RunningPod]:
        """Every Pod that is on a node."""
        return (pod for node in self.nodes.values() for pod in node.pods)


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
        is_leaving="deletionTimestamp" in pod["metadata"],
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
        placed = [
            (device, _reach(device if spec.get("perDeviceNodeSelection") else spec, nodes, everywhere))
            for spec in current
            for device in each(spec, "devices")
        ]
        repeated = max(Counter(device["name"] for device, _ in placed).values(), default=1) > 1
        if len(current) != current[0]["pool"].get("resourceSliceCount", 1) or repeated:
            # A slice that is missing may be for any node, unless the pool is a node's own.
            owners = {spec.get("nodeName") or "" for spec in current}
            is_own = len(owners) == 1 and owners != {""}
            doubtful.append((f"{driver}/{pool}", frozenset(owners) if is_own else everywhere))
            continue
        for device, reach in placed:
            read = _read_device(driver, pool, device)
            if len(reach) == 1:
                local[next(iter(reach))].append(read)
            elif reach:
                shared.append((read, reach))
    return local, shared, doubtful


def published(slices: Iterable[Object]) -> Iterator[Device]:
    """Devices of the newest generation of every pool, whether it is published in whole or not."""
    for (driver, pool), specs in _pools(slices):
        for spec in _newest(specs):
            yield from (_read_device(driver, pool, device) for device in each(spec, "devices"))


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


def _read_device(driver: str, pool: str, device: Object) -> Device:
    oddity = None
    if device.get("consumesCounters"):
        oddity = "is a part of a larger device"
    elif device.get("allowMultipleAllocations"):
        oddity = "may be given away several times"
    elif device.get("bindingConditions"):
        oddity = "has to be made ready first"
    attributes: dict[str, Value] = {}
    # A name without a domain belongs to the driver's; written in full it counts first.
    for name, held in sorted(inside(device, "attributes").items(), key=lambda item: "/" in item[0]):
        value = next(
            ((kind, held[kind]) for kind in ("string", "int", "bool", "version") if held.get(kind) is not None), None
        )
        if value is None:
            oddity = oddity or f"has an attribute {name} of an unknown type"
        else:
            attributes[_qualified(name, driver)] = value
    return Device(
        id=(driver, pool, device["name"]),
        view=DeviceView(
            driver=driver,
            attributes=attributes,
            capacity={
                _qualified(name, driver): str(held.get("value", "0"))
                for name, held in inside(device, "capacity").items()
            },
            is_shareable=bool(device.get("allowMultipleAllocations")),
        ),
        taints=tuple(each(device, "taints")),
        oddity=oddity,
    )


def _qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


# --- who waits --------------------------------------------------------------------------------------------------------


def _read_waiting(pods: Iterable[Object], claims: Sequence[Object] | None) -> list[WaitingPod]:
    by_name = {(claim["metadata"].get("namespace"), claim["metadata"]["name"]): claim for claim in claims or ()}
    found: list[WaitingPod] = []
    for pod in pods:
        meta: Object = pod["metadata"]
        if pod["spec"].get("nodeName") or "deletionTimestamp" in meta:
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
