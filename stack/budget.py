"""What the stack requests, part by part: the node budget.

The EPP is in it (*Scaling and Upgrades*, "EPP resources"): what it requests is missing on its node for model servers.
Pods that a change adds before it removes any are told apart: they need their requests for a while only, but without
room for them the change does not end.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from stack.planned import BudgetLine, BudgetPlan
from stack.spares.pods import pod_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stack.devices import DevicesPlan
    from stack.planned import Manifest


def budget_line(part: str, manifest: Manifest, devices: DevicesPlan | None) -> BudgetLine:
    """One Deployment's Pods; `devices=None` for Pods that take none."""
    requests = pod_requests(manifest["spec"]["template"]["spec"])
    return BudgetLine(
        part=part,
        pods=manifest["spec"]["replicas"],
        cpu_millis=requests.get("cpu", 0),
        memory_bytes=requests.get("memory", 0),
        accelerators=0 if devices is None else devices.accelerators,
        nics=0 if devices is None else devices.nics,
        surge=surge_of(manifest["spec"]),
    )


def surge_of(spec: Mapping[str, Any]) -> int:
    """Pods above the wanted number; Kubernetes rounds a percentage up (API reference, RollingUpdateDeployment)."""
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
