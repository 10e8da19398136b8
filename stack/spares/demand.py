"""What one Pod of a template needs from the scheduler: devices through claims, amounts, and where it may go.

What is not modelled only ever narrows the choice, so it is left out here and named in `unknown`: that such a Pod cannot
fit may still be proved, that it fits may not (`stack.spares.fit`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stack.spares.pods import REQUIRED, Amounts, Object, at, container_requests, each, inside, is_sidecar, pod_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stack.spares.reach import Reach

MOST_DEVICES: Final = 32
"""Devices that one claim may get (`resource.k8s.io/v1`, AllocationResultsMaxSize); more are never allocated."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Devices of one class.

    Attributes:
        selectors: CEL expressions, all of which must hold.
        tolerations: device tolerations, sorted pairs of each, so that equal requests are equal.
    """

    device_class: str
    count: int
    selectors: tuple[str, ...] = ()
    tolerations: tuple[tuple[tuple[str, Any], ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Devices of these requests (by their place in the claim) share the value of an attribute."""

    requests: frozenset[int]
    attribute: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of a Pod; its devices come from one node's reach, and no device twice."""

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """What one Pod needs.

    Attributes:
        name: whose Pod, for the operator: a role.
        labels: of the Pod.
        spec: the Pod's spec, for node selectors, affinity and tolerations.
        extended: extended resource to how many devices the scheduler would claim for it where a DeviceClass provides
            it. It claims for each container and lets init containers reuse only what later ones hold, so this may be
            more than the Pod's request.
        priority_class: name of its PriorityClass, None for the cluster's default.
        reach: NodeSelectors of its volumes, all of which a node has to match.
        unknown: what is not modelled.
        impossible: why it can never be scheduled.
    """

    name: str
    labels: Mapping[str, str]
    spec: Object
    amounts: Amounts
    claims: tuple[Claim, ...]
    extended: Mapping[str, int]
    priority_class: str | None = None
    reach: tuple[Object, ...] = ()
    unknown: tuple[str, ...] = ()
    impossible: tuple[str, ...] = ()


def read_demand(
    name: str, template: Object, claim_specs: Mapping[str, Object | None], reaches: Mapping[str, Reach] | None = None
) -> Demand:
    """Read a Pod template.

    Args:
        name: whose Pods, in words.
        template: `spec.template` of a workload.
        claim_specs: ResourceClaimTemplate name to its `spec.spec`; the value None for one that does not exist. One
            that is missing here could not be read.
        reaches: PersistentVolumeClaim name to where its volume can be reached from; one that is missing here ties
            nobody.
    """
    spec: Object = template["spec"]
    unknown: list[str] = [*_narrowing(spec)]
    impossible: list[str] = []
    claims: list[Claim] = []
    for asked in each(spec, "resourceClaims"):
        template_name: str | None = asked.get("resourceClaimTemplateName")
        if template_name is None:
            unknown.append(f"it shares the claim {asked.get('resourceClaimName')}, which is not modelled")
        elif template_name not in claim_specs:
            unknown.append(f"the claim template {template_name} could not be read")
        elif (claim_spec := claim_specs[template_name]) is None:
            impossible.append(f"there is no claim template {template_name}")
        else:
            claims.append(_claim(inside(claim_spec, "devices"), unknown))
    mounted = [at(volume, "persistentVolumeClaim", "claimName") for volume in each(spec, "volumes")]
    tied = [reach for claim in mounted if (reach := (reaches or {}).get(claim or "")) is not None]
    unknown += [reach.unknown for reach in tied if reach.unknown is not None]
    asked_amounts = pod_requests(spec)
    extended = {resource: _claimed(spec, resource) for resource in asked_amounts if "/" in resource}
    impossible += [
        f"a claim of it asks for {count} devices, and {MOST_DEVICES} are the most that one may get"
        for claim in claims
        if (count := sum(request.count for request in claim.requests)) > MOST_DEVICES
    ]
    return Demand(
        name=name,
        labels=inside(template, "metadata", "labels"),
        spec=spec,
        amounts=asked_amounts,
        claims=tuple(claims),
        extended=extended,
        priority_class=spec.get("priorityClassName") or None,
        reach=tuple(selector for reach in tied for selector in reach.selectors),
        unknown=tuple(dict.fromkeys(unknown)),
        impossible=tuple(impossible),
    )


def _narrowing(spec: Object) -> Iterable[str]:
    """What else the scheduler heeds and this package does not."""
    for kind in ("podAffinity", "podAntiAffinity"):
        if at(spec, "affinity", kind, REQUIRED):
            yield f"its {kind} is not modelled"
    if any(spread.get("whenUnsatisfiable") != "ScheduleAnyway" for spread in each(spec, "topologySpreadConstraints")):
        yield "its topologySpreadConstraints are not modelled"
    if (spec.get("schedulerName") or "default-scheduler") != "default-scheduler":
        yield f"the scheduler {spec['schedulerName']} is not known here"
    if spec.get("nodeName"):
        yield "its nodeName passes the scheduler by"
    if spec.get("schedulingGates"):
        yield "its schedulingGates are not modelled"
    if spec.get("runtimeClassName"):
        yield f"the runtime class {spec['runtimeClassName']} may add to what it needs"
    containers = [*each(spec, "initContainers"), *each(spec, "containers")]
    ports = [port for container in containers for port in each(container, "ports")]
    if any(port.get("hostPort") for port in ports) or (spec.get("hostNetwork") and ports):
        yield "its host ports are not modelled"


def _claim(devices: Object, unknown: list[str]) -> Claim:
    places: dict[str, int] = {}
    requests: list[Request] = []
    for request in each(devices, "requests"):
        exactly: Object | None = request.get("exactly")
        if exactly is None:
            kind = "firstAvailable" if request.get("firstAvailable") else "its kind"
            unknown.append(f"request {request['name']}: {kind} is not modelled")
            continue
        if exactly.get("adminAccess"):
            unknown.append(f"request {request['name']}: adminAccess is not modelled")
            continue
        count = exactly.get("count") or 1
        if (exactly.get("allocationMode") or "ExactCount") != "ExactCount":
            unknown.append(f"request {request['name']}: allocationMode {exactly['allocationMode']} is not modelled")
            count = 1  # at least one, whatever it means
        if exactly.get("capacity"):
            unknown.append(f"request {request['name']}: capacity requests are not modelled")
        places[request["name"]] = len(requests)
        requests.append(
            Request(
                device_class=exactly.get("deviceClassName") or "",
                count=count,
                selectors=tuple(at(selector, "cel", "expression") or "" for selector in each(exactly, "selectors")),
                tolerations=tuple(tuple(sorted(held.items())) for held in each(exactly, "tolerations")),
            )
        )
    return Claim(requests=tuple(requests), constraints=tuple(_constraints(devices, places, unknown)))


def _constraints(devices: Object, places: Mapping[str, int], unknown: list[str]) -> Iterable[Constraint]:
    for constraint in each(devices, "constraints"):
        named: Sequence[str] = constraint.get("requests") or tuple(places)
        if attribute := constraint.get("matchAttribute"):
            # A request that is left out is named in `unknown` already.
            yield Constraint(requests=frozenset(places[name] for name in named if name in places), attribute=attribute)
        else:
            kind = "distinctAttribute" if constraint.get("distinctAttribute") else "a constraint of its kind"
            unknown.append(f"{kind} is not modelled")


def _claimed(spec: Object, resource: str) -> int:
    """Devices that the scheduler claims for an extended resource (KEP-5004, one request for each container)."""
    first = each(spec, "initContainers")
    containers = [*first, *each(spec, "containers")]
    asked = [container_requests(container).get(resource, 0) for container in containers]
    lasting = [
        0 if place < len(first) and not is_sidecar(containers[place]) else count for place, count in enumerate(asked)
    ]
    short = [asked[place] - sum(lasting[place:]) for place in range(len(first)) if not is_sidecar(containers[place])]
    return sum(lasting) + max(0, *short, 0)


def needs(demand: Demand) -> Counter[str]:
    """Devices of one Pod by class, as far as claims say it."""
    found: Counter[str] = Counter()
    for claim in demand.claims:
        for request in claim.requests:
            found[request.device_class] += request.count
    return found
