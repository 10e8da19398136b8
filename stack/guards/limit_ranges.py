"""LimitRanges: what the API server makes of a Pod that is created in the namespace, and whether it takes it then.

Deployments are not looked at by them, Pods are: so a Deployment is taken and its Pods are refused, one after the other.
The measure is the admission plugin LimitRanger (Kubernetes 1.36); limits on volumes are in `stack.guards.quota`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stack.scalars import amount
from stack.spares.pods import at, each, inside, pod_limits, pod_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stack.facts import Object

CONTAINER, POD, VOLUME_CLAIM = "Container", "Pod", "PersistentVolumeClaim"


@dataclass(frozen=True, kw_only=True, order=True)
class Trouble:
    """Why a LimitRange does not let a Pod, or a claim, pass.

    Attributes:
        container: of the Pod; None for the Pod as a whole.
        why: in words, without a full stop.
    """

    limit_range: str
    container: str | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Default:
    """What a container gets that it did not ask for.

    Attributes:
        kind: `requests` or `limits`.
    """

    limit_range: str
    container: str
    kind: str
    resource: str
    quantity: str


def complete(pod: Object, ranges: Sequence[Object]) -> tuple[Object, list[Default]]:
    """A Pod's spec as it is created: a request that is missing is the limit, then LimitRanges fill in."""
    given: list[Default] = []

    def filled(container: Object) -> Object:
        limits = _texts(inside(container, "resources", "limits"))
        requests = limits | _texts(inside(container, "resources", "requests"))
        for found in ranges:
            for limit in _limits(found, CONTAINER):
                for kind, field, has in (("limits", "default", limits), ("requests", "defaultRequest", requests)):
                    for resource, quantity in sorted(inside(limit, field).items()):
                        if resource not in has:
                            has[resource] = quantity
                            given.append(
                                Default(
                                    limit_range=found["metadata"]["name"],
                                    container=container["name"],
                                    kind=kind,
                                    resource=resource,
                                    quantity=quantity,
                                )
                            )
        return container | {"resources": inside(container, "resources") | {"limits": limits, "requests": requests}}

    lists = {name: [filled(each_) for each_ in each(pod, name)] for name in ("containers", "initContainers")}
    return pod | lists, given


def troubles_of_pod(pod: Object, ranges: Sequence[Object]) -> Iterator[Trouble]:
    """Why a Pod is not taken, with what it gets filled in.

    Args:
        pod: its spec.
        ranges: LimitRanges of the namespace.
    """
    full, given = complete(pod, ranges)
    containers = [*each(full, "initContainers"), *each(full, "containers")]
    for default in given:
        container = next(found for found in containers if found["name"] == default.container)
        yield from _above_its_limit(default, container)
    for found in ranges:
        name: str = found["metadata"]["name"]
        for limit in _limits(found, CONTAINER):
            for container in containers:
                asked, limited = inside(container, "resources", "requests"), inside(container, "resources", "limits")
                for why in _constrained(limit, asked, limited):
                    yield Trouble(limit_range=name, container=container["name"], why=why)
        for limit in _limits(found, POD):
            asked, limited = _quantities(pod_requests(full)), _quantities(pod_limits(full))
            for why in _constrained(limit, asked, limited):
                yield Trouble(limit_range=name, container=None, why=why)


def troubles_of_volume(size: str, ranges: Sequence[Object]) -> Iterator[Trouble]:
    """Why a claim of this size is not taken."""
    for found in ranges:
        for limit in _limits(found, VOLUME_CLAIM):
            for field, bound in (("min", "least"), ("max", "most")):
                allowed = at(limit, field, "storage")
                if allowed is not None and _is_beyond(size, allowed, field):
                    why = f"asks for {size}, and {allowed} is the {bound}"
                    yield Trouble(limit_range=found["metadata"]["name"], container=None, why=why)


def _limits(limit_range: Object, kind: str) -> Iterable[Object]:
    return [limit for limit in each(limit_range, "spec", "limits") if limit["type"] == kind]


def _texts(quantities: Mapping[str, Any]) -> dict[str, str]:
    return {resource: str(quantity) for resource, quantity in quantities.items()}


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: f"{units}m" if resource == "cpu" else str(units) for resource, units in amounts.items()}


def _above_its_limit(default: Default, container: Object) -> Iterator[Trouble]:
    """A limit that is filled in below the request, or a request above the limit: no valid container."""
    asked = inside(container, "resources", "requests").get(default.resource)
    limited = inside(container, "resources", "limits").get(default.resource)
    if asked is not None and limited is not None and amount(asked) > amount(limited):
        got = f"gets the {default.resource} {default.kind[:-1]} {default.quantity}"
        other = f"asks for {asked}" if default.kind == "limits" else f"is limited to {limited}"
        yield Trouble(limit_range=default.limit_range, container=default.container, why=f"{got}, and {other}")


def _constrained(limit: Object, asked: Mapping[str, str], limited: Mapping[str, str]) -> Iterator[str]:
    for resource, allowed in sorted(inside(limit, "min").items()):
        yield from _too_little(resource, asked.get(resource), limited.get(resource), allowed)
    for resource, allowed in sorted(inside(limit, "max").items()):
        yield from _too_much(resource, asked.get(resource), limited.get(resource), allowed)
    for resource, allowed in sorted(inside(limit, "maxLimitRequestRatio").items()):
        yield from _too_far_apart(resource, asked.get(resource), limited.get(resource), allowed)


def _too_little(resource: str, asked: str | None, limited: str | None, allowed: str) -> Iterator[str]:
    if asked is None:
        yield f"asks for no {resource}, and {allowed} is the least"
    elif _is_beyond(asked, allowed, "min"):
        yield f"asks for {asked} {resource}, and {allowed} is the least"
    elif limited is not None and _is_beyond(limited, allowed, "min"):
        yield f"is limited to {limited} {resource}, and {allowed} is the least"


def _too_much(resource: str, asked: str | None, limited: str | None, allowed: str) -> Iterator[str]:
    if limited is None:
        yield f"has no limit of {resource}, and {allowed} is the most"
    elif _is_beyond(limited, allowed, "max"):
        yield f"is limited to {limited} {resource}, and {allowed} is the most"
    elif asked is not None and _is_beyond(asked, allowed, "max"):
        yield f"asks for {asked} {resource}, and {allowed} is the most"


def _too_far_apart(resource: str, asked: str | None, limited: str | None, allowed: str) -> Iterator[str]:
    may_be = f"its limit may be {allowed} times its request"
    if asked is None or limited is None or not amount(asked) or not amount(limited):
        yield f"needs a limit and a request of {resource}, and {may_be}"
    elif amount(limited) > amount(allowed) * amount(asked):
        yield f"asks for {asked} {resource} and is limited to {limited}, and {may_be}"


def _is_beyond(found: str, allowed: str, bound: str) -> bool:
    return amount(found) < amount(allowed) if bound == "min" else amount(found) > amount(allowed)
