"""What the stack requests, part by part: the node budget.

The EPP is in it (*Scaling and Upgrades*, "EPP resources"): what it requests is missing on its node for model servers.
Pods that a change adds before it removes any are told apart: they need their requests for a while only, but without
room for them the change does not end.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from stack.planned import BudgetLine, BudgetPlan
from stack.scalars import amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stack.devices import DevicesPlan
    from stack.planned import Manifest


def budget_line(part: str, manifest: Manifest, devices: DevicesPlan | None) -> BudgetLine:
    """One Deployment's Pods; `devices=None` for Pods that take none."""
    pod = manifest["spec"]["template"]["spec"]
    return BudgetLine(
        part=part,
        pods=manifest["spec"]["replicas"],
        cpu_millis=ceil(_pod_request(pod, "cpu") * 1000),
        memory_bytes=ceil(_pod_request(pod, "memory")),
        accelerators=0 if devices is None else devices.accelerators,
        nics=0 if devices is None else devices.nics,
        surge=_surge(manifest["spec"]),
    )


def _surge(spec: Mapping[str, Any]) -> int:
    """Kubernetes rounds a percentage up (API reference, RollingUpdateDeployment)."""
    surge: int | str = spec.get("strategy", {}).get("rollingUpdate", {}).get("maxSurge", 0)
    return surge if isinstance(surge, int) else ceil(spec["replicas"] * int(surge.rstrip("%")) / 100)


def sum_budget(lines: Iterable[BudgetLine]) -> BudgetPlan:
    """Lines of one part joined (nodePlacement has one workload per entry)."""
    joined: dict[str, BudgetLine] = {}
    for line in lines:
        known = joined.get(line.part)
        joined[line.part] = line if known is None else _add(known, line)
    return BudgetPlan(lines=tuple(joined.values()))


def _add(one: BudgetLine, other: BudgetLine) -> BudgetLine:
    return BudgetLine(
        part=one.part,
        pods=one.pods + other.pods,
        cpu_millis=one.cpu_millis,
        memory_bytes=one.memory_bytes,
        accelerators=one.accelerators,
        nics=one.nics,
        surge=one.surge + other.surge,
    )


def _pod_request(pod: Mapping[str, Any], resource: str) -> Any:
    """Request of a Pod as the scheduler counts it.

    Containers and native sidecars run side by side; each other init container runs alone, beside the sidecars before it
    (Kubernetes, "Sidecar Containers", resource sharing within containers).
    """
    beside = amount("0")
    highest = amount("0")
    for container in pod.get("initContainers", ()):
        wanted = _request(container, resource)
        if container.get("restartPolicy") == "Always":
            beside += wanted
        else:
            highest = max(highest, beside + wanted)
    return max(highest, beside + sum((_request(c, resource) for c in pod["containers"]), amount("0")))


def _request(container: Mapping[str, Any], resource: str) -> Any:
    """A limit without a request is the request, as the API server defaults it."""
    resources = container.get("resources", {})
    value = resources.get("requests", {}).get(resource, resources.get("limits", {}).get(resource, "0"))
    return amount(str(value))
