"""What a stack file says of each role that advice is for: Pods, way out, slots, scaler, and limits on a request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cli.files import read
from stack.config.autoscaling import BehaviorConfig
from stack.facts import NOTHING_READ
from stack.limits import request_timeout
from stack.plan import plan_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from stack.config.root import StackConfig
    from stack.rules import Accepted
    from stack.scalars import Role


@dataclass(frozen=True, kw_only=True)
class RoleSituation:
    """One role, as it is configured.

    Attributes:
        pods: how many there are; of a role with a scaler the fewest.
        timeout: N, in seconds; 0 where nothing drains.
        around: seconds that a Pod that leaves takes besides N, the margin not among them; where nothing drains now,
            those that it would take.
        leaves: seconds that a Pod takes to leave at most, as it is now.
        slots: requests that one Pod runs at once.
        start: longest time that one Pod may take to become Ready, in seconds.
        strategy: how a roll-out exchanges Pods, in words. waits: whether each step of it waits for a Pod to leave.
        behavior: how fast its scaler moves.
        most: the most Pods; None without a scaler.
        signal: what its scaler looks at, where that is written.
    """

    pods: int
    timeout: int
    around: int
    leaves: int
    slots: int
    start: int
    strategy: str
    waits: bool
    behavior: BehaviorConfig
    most: int | None
    signal: str | None = None


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A stack.

    Attributes:
        limits: what ends a request after a time: (seconds, key that sets it).
        written: limits that are written in the file, which is refused if N or the longest request is above them.
    """

    release: str
    namespace: str
    roles: Mapping[Role, RoleSituation]
    limits: tuple[tuple[float, str], ...] = field(default_factory=tuple)
    written: tuple[tuple[float, str], ...] = field(default_factory=tuple)


def read_situation(file: Path) -> Situation:
    """Read a stack file; problems are printed and end the command."""
    accepted = read(file)
    config = accepted.config
    plan = plan_stack(accepted, NOTHING_READ)
    drains: dict[Role, Any] = plan.outputs["drain"]
    capacities: dict[Role, Any] = plan.outputs["capacity"]
    limits: list[dict[str, Any]] = plan.outputs["limits"]
    around = _around(accepted, drains)
    roles: dict[Role, RoleSituation] = {}
    for role, drain in drains.items():
        workloads = [each for each in plan.modelserver.workloads if each.role == role]
        if not workloads:
            continue
        scaling = config.autoscaling.of(role)
        strategy, waits = _strategy(workloads[0].object.manifest["spec"]["strategy"])
        roles[role] = RoleSituation(
            pods=sum(workload.replicas for workload in workloads),
            timeout=drain["timeoutSeconds"],
            around=around[role],
            leaves=drain["graceSeconds"] if drain["mode"] == "off" else drain["timeoutSeconds"] + around[role],
            slots=capacities[role]["slotsPerPod"],
            start=max(workload.ready_seconds for workload in workloads),
            strategy=strategy,
            waits=waits,
            behavior=scaling.behavior or BehaviorConfig(),
            most=capacities[role]["pods"]["max"] if scaling.provider != "none" else None,
            signal=scaling.signal,
        )
    return Situation(
        release=config.release,
        namespace=config.namespace,
        roles=roles,
        limits=tuple(
            (float(limit["seconds"]), str(limit["setBy"]))
            for limit in limits
            if limit["seconds"] and limit["ends"] == "request"
        ),
        written=tuple(_written(config)),
    )


def _around(accepted: Accepted, drains: Mapping[Role, Any]) -> dict[Role, int]:
    """Seconds besides N of each role; where nothing drains, as if it did."""
    config = accepted.config
    if config.drain.mode == "off":
        drain = config.drain.model_copy(update={"mode": "auto"})
        draining = replace(accepted, config=config.model_copy(update={"drain": drain}))
        drains = plan_stack(draining, NOTHING_READ).outputs["drain"]
    margin = config.drain.margin_seconds
    return {role: drain["graceSeconds"] - drain["timeoutSeconds"] - margin for role, drain in drains.items()}


def _written(config: StackConfig) -> Iterator[tuple[float, str]]:
    route, picker = request_timeout(config), config.router.epp.drain_seconds
    if route is not None and route.is_written and route.seconds is not None:
        yield route.seconds, route.key
    if picker is not None:
        yield float(picker), "router.epp.drainSeconds"


def _strategy(spec: Mapping[str, Any]) -> tuple[str, bool]:
    rolling = spec.get("rollingUpdate")
    if spec.get("type") == "Recreate" or rolling is None:
        return "Recreate", True
    surge = rolling["maxSurge"]
    return f"maxSurge {surge}, maxUnavailable {rolling['maxUnavailable']}", str(surge).rstrip("%") == "0"
