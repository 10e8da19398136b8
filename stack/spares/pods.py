"""What any Pod asks of a node: amounts, selectors, tolerations, in kube-scheduler's reading.

Sources: k8s.io/component-helpers `resource.PodRequests` and `scheduling/corev1/nodeaffinity`; Kubernetes documentation,
*Taints and Tolerations*, *Sidecar Containers* (Resource sharing within containers).
"""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Any, Final

from stack.scalars import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Object = dict[str, Any]
Amounts = dict[str, int]
"""Resource name to amount: CPU in 1/1000 cores, everything else in whole units (bytes, devices, Pods)."""


def at(found: Any, *path: str) -> Any:
    """What lies at a path of keys in JSON, None when the path ends before."""
    for key in path:
        found = found.get(key) if found else None
    return found


def each(found: Any, *path: str) -> list[Object]:
    """The objects of a list at a path; none when it is not there."""
    return at(found, *path) or []


def inside(found: Any, *path: str) -> Object:
    """The object at a path; empty when it is not there."""
    return at(found, *path) or {}


_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_UNSCHEDULABLE: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_POD_LEVEL: Final = re.compile(r"cpu|memory|hugepages-.*")


@functools.lru_cache(maxsize=10_000)
def _units(resource: str, quantity: str) -> int:
    return math.ceil(amount(quantity) * (1000 if resource == "cpu" else 1))


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Read a resource list; what is finer than a unit is rounded up, as the scheduler does."""
    return {resource: _units(resource, str(quantity)) for resource, quantity in (quantities or {}).items()}


def container_requests(container: Object) -> Amounts:
    """What a container requests; what it only limits counts as requested (the API server defaults it so)."""
    return {**amounts(at(container, "resources", "limits")), **amounts(at(container, "resources", "requests"))}


def is_sidecar(container: Object) -> bool:
    """Whether an init container keeps running."""
    return container.get("restartPolicy") == "Always"


def container_limits(container: Object) -> Amounts:
    """What a container is limited to."""
    return amounts(at(container, "resources", "limits"))


def pod_requests(spec: Object) -> Amounts:
    """What a Pod requests of its node: all that runs together, or the largest moment of its start; plus overhead."""
    return _of_pod(spec, container_requests)


def pod_limits(spec: Object) -> Amounts:
    """What a Pod is limited to, of its containers those that have a limit."""
    return _of_pod(spec, container_limits)


def _of_pod(spec: Object, of: Callable[[Object], Amounts]) -> Amounts:
    running: Amounts = {}
    for container in each(spec, "containers"):
        running = _add(running, of(container))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in each(spec, "initContainers"):
        asked = of(container)
        if is_sidecar(container):
            running, sidecars = _add(running, asked), _add(sidecars, asked)
            asked = {}
        starting = _largest(starting, _add(sidecars, asked))
    total = _largest(running, starting)
    whole = of(spec)  # resources of the Pod itself stand in the place of its containers'
    total = total | {resource: units for resource, units in whole.items() if _POD_LEVEL.fullmatch(resource)}
    total = _add(total, amounts(spec.get("overhead")))
    return {resource: units for resource, units in total.items() if units > 0}


def _add(one: Amounts, other: Amounts) -> Amounts:
    if not one or not other:
        return one or other
    return {resource: one.get(resource, 0) + other.get(resource, 0) for resource in one | other}


def _largest(one: Amounts, other: Amounts) -> Amounts:
    if not one or not other:
        return one or other
    return {resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in one | other}


# --- which nodes ------------------------------------------------------------------------------------------------------


def tolerates(tolerations: Iterable[Object], taint: Object) -> bool:
    """Whether one of the tolerations is for this taint; a taint of a node or of a device alike."""
    return any(_is_for(toleration, taint) for toleration in tolerations)


def _is_for(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            # Without a key only `Exists` is allowed, so this never matches everything.
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Exists":
            return True
        case _:
            return False


def untolerated(taints: Iterable[Object], tolerations: Iterable[Object]) -> Object | None:
    """The first taint that keeps a Pod, or a request, away."""
    tolerations = tuple(tolerations)
    return next(
        (taint for taint in taints if taint.get("effect") in _EFFECTS and not tolerates(tolerations, taint)), None
    )


def why_not(spec: Object, node: Object) -> str | None:
    """Why a Pod may not go to a node, whatever is free there; None when it may.

    Args:
        spec: the Pod's `spec`.
        node: a live Node.
    """
    tolerations = each(spec, "tolerations")
    if at(node, "spec", "unschedulable") and not tolerates(tolerations, _UNSCHEDULABLE):
        return "is cordoned"
    if taint := untolerated(each(node, "spec", "taints"), tolerations):
        return f"has the taint {taint.get('key')}"
    labels = inside(node, "metadata", "labels")
    if any(labels.get(key) != value for key, value in inside(spec, "nodeSelector").items()):
        return "lacks a label of the node selector"
    required = at(spec, "affinity", "nodeAffinity", REQUIRED)
    if required is not None and not selects(required, node["metadata"]["name"], labels):
        return "does not match the node affinity"
    return None


def selects(node_selector: Object, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a NodeSelector matches a node: one of its terms does; an empty term matches nothing."""
    for term in each(node_selector, "nodeSelectorTerms"):
        expressions, fields = each(term, "matchExpressions"), each(term, "matchFields")
        if (
            (expressions or fields)
            and all(_holds(expression, labels) for expression in expressions)
            and all(_holds(field, {"metadata.name": name}) for field in fields)
        ):
            return True
    return False


def matches_labels(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector matches; an empty one matches everything, none nothing."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in inside(selector, "matchLabels").items()) and all(
        _holds(expression, labels) for expression in each(selector, "matchExpressions")
    )


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    """Whether a requirement of a selector holds; one that cannot be read does not."""
    value = labels.get(expression["key"])
    values: list[str] = expression.get("values") or []
    match expression["operator"]:
        case "In" | "NotIn" as operator:
            return (value in values) == (operator == "In")
        case "Exists" | "DoesNotExist" as operator:
            return (value is not None) == (operator == "Exists")
        case "Gt" | "Lt" as operator:
            try:
                number, bound = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False
