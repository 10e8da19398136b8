"""Devices: whether the Pods that a change adds find some, told before any of them asks.

Two moments count. While the change goes on, the Pods that come before others leave need devices beside those that are
held. When it is through, all Pods of the parts that it touches need theirs, with nothing of these parts there before.
Neither may be impossible; that all goes well whatever the scheduler chooses is only ever said of the first.

A roll-out that did not end may always be taken back: Pods of the earlier template are still there, and the devices that
are missing are those that it asked for in vain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stack import labels
from stack.guards.finding import GuardFinding, refusal, warning
from stack.impact import Happening, Method
from stack.spares.demand import Demand, read_demand
from stack.spares.fit import Outcome, Verdict, judge
from stack.spares.supply import read_supply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings, TrialFacts
    from stack.impact import Impact, PartImpact, WorkloadImpact
    from stack.planned import StackPlan
    from stack.spares.supply import Supply

Wanting = tuple[Demand, int]
"""What one Pod needs, and how many there are."""
NOT_THIS_CHANGES = frozenset({Happening.GOES_BACK, Happening.CONTINUES})
WHO_HOLDS = "`kubectl get resourceclaims -A` shows who holds them"
SPARE = {
    Outcome.ANY_ORDER: "free",
    Outcome.SOME_ORDER: "free for some placements only",
    Outcome.CANNOT: "not free",
    Outcome.UNKNOWN: "not known to be free",
}


def guard_devices(
    config: StackConfig, plan: StackPlan, impact: Impact, surroundings: Surroundings, trial: TrialFacts
) -> tuple[Impact, tuple[GuardFinding, ...]]:
    """Judge a change, and note in its impact what was found.

    Args:
        config: the configuration.
        plan: its plan.
        impact: what the change does to Pods.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
    """
    if config.guards.devices == "off":
        return impact, ()
    change = _Change(plan, impact, surroundings, trial)
    meanwhile = change.meanwhile()
    if not meanwhile and not change.is_demand_changed:
        return impact, ()
    supply = read_supply(
        nodes=surroundings.nodes,
        pods=surroundings.pods,
        slices=surroundings.slices,
        classes=surroundings.device_classes,
        claims=surroundings.resource_claims,
        server_version=surroundings.server_version,
    )
    now = _now(change, supply, meanwhile, frozenset(impact.freed))
    then = _afterwards(change, supply) if now.outcome is not Outcome.CANNOT else None
    verdict = then if then is not None and then.outcome is Outcome.CANNOT else now
    if not meanwhile and verdict is now:
        return impact, ()
    parts = tuple(
        replace(part, spare=SPARE[verdict.outcome]) if part.extra_pods and part.part != "epp" else part
        for part in impact.parts
    )
    return replace(impact, parts=parts), tuple(_findings(config, change, verdict, is_final=verdict is then))


def _now(change: _Change, supply: Supply, meanwhile: Sequence[Wanting], freed: frozenset[str]) -> Verdict:
    """Whether those that come find devices, at once or when those have left that don't wait for them."""
    verdict = judge(supply, meanwhile, freed=freed)
    if verdict.outcome is not Outcome.CANNOT or not change.giving:
        return verdict
    leaving = change.uids(change.giving)
    if leaving is None:
        return replace(verdict, outcome=Outcome.UNKNOWN, reasons=("Pods of this release could not be read",))
    if judge(supply, meanwhile, freed=freed | leaving).outcome is Outcome.CANNOT:
        return verdict
    who = " and ".join(sorted(part.part for part in change.giving))
    return replace(verdict, outcome=Outcome.SOME_ORDER, reasons=(f"they fit once Pods of {who} have left",))


def _afterwards(change: _Change, supply: Supply) -> Verdict | None:
    """Whether all can be there in the end; None where the first look says as much."""
    if not change.is_demand_changed:
        return None
    uids = change.uids(change.touched)
    return None if uids is None else judge(supply, change.afterwards(), freed=uids)


class _Change:
    """What a change asks for, Pod by Pod."""

    def __init__(self, plan: StackPlan, impact: Impact, surroundings: Surroundings, trial: TrialFacts) -> None:
        self._surroundings = surroundings
        self._trial = trial
        self._specs = dict(_claim_specs(plan, surroundings))
        self._live = {
            live["metadata"]["name"]: live
            for live in surroundings.deployments or ()
            if live["metadata"]["namespace"] == plan.namespace
        }
        self._planned = {workload.object.name: workload for workload in plan.modelserver.workloads}
        self.impact = impact
        self.parts = [part for part in impact.parts if part.part != "epp"]

    def meanwhile(self) -> list[Wanting]:
        """Pods that are made before others have left."""
        return [
            (self._demand(part, workload), extra)
            for part in self.parts
            for workload in part.workloads
            if workload.name in self._planned and (extra := _extra(part, workload))
        ]

    def afterwards(self) -> list[Wanting]:
        """All Pods of the parts that get new ones."""
        return [
            (self._demand(part, workload), workload.after)
            for part in self.touched
            for workload in part.workloads
            if workload.name in self._planned and workload.after
        ]

    def uids(self, parts: Sequence[PartImpact]) -> frozenset[str] | None:
        """Pods of these parts; None when they are not known."""
        pods, of = self._surroundings.release_pods, {part.part for part in parts}
        if pods is None:
            return None
        return frozenset(
            pod["metadata"]["uid"] for pod in pods if pod["metadata"]["labels"].get(labels.COMPONENT) in of
        )

    @property
    def giving(self) -> list[PartImpact]:
        """Parts of which Pods leave without waiting for new ones: fewer are wanted, or some may be unavailable."""
        return [
            part
            for part in self.parts
            if part.leaving
            and (part.max_unavailable or part.method is not Method.ROLLING or part.after < (part.before or 0))
        ]

    @property
    def touched(self) -> list[PartImpact]:
        """Parts that get new Pods, and those that go."""
        return [part for part in self.parts if part.new or part.happens is Happening.DELETED]

    @property
    def is_demand_changed(self) -> bool:
        """Whether new Pods may need other devices or nodes than those that they take the place of."""
        return any(
            workload.new and workload.leaving and self._needs_other(workload.name)
            for part in self.touched
            for workload in part.workloads
        )

    @property
    def is_asked_before(self) -> bool:
        """Whether all that asks for devices is what an earlier change asked for, or what takes it back."""
        asking = [part for part in self.parts if part.new]
        return bool(asking) and all(part.happens in NOT_THIS_CHANGES for part in asking)

    def _needs_other(self, name: str) -> bool:
        live, result = self._live.get(name), self._trial.results.get(name)
        if live is None or result is None:
            return True
        return _placement_of(live) != _placement_of(result)

    def _demand(self, part: PartImpact, workload: WorkloadImpact) -> Demand:
        name = part.part if workload.entry is None else f"{part.part} ({workload.name})"
        stored = self._trial.results.get(workload.name, self._planned[workload.name].object.manifest)
        return read_demand(name, stored["spec"]["template"], self._specs)


def _claim_specs(plan: StackPlan, surroundings: Surroundings) -> Iterator[tuple[str, Object | None]]:
    for name, live in surroundings.claim_templates.items():
        yield name, None if live is None else live["spec"]["spec"]
    for planned in plan.claims:
        yield planned.name, planned.manifest["spec"]["spec"]


def _extra(part: PartImpact, workload: WorkloadImpact) -> int:
    """Most Pods of a Deployment at a time beyond those that hold devices now."""
    if len(part.workloads) == 1:
        return part.extra_pods
    # Entries of nodePlacement give back what they hold before they ask for more.
    is_all_new = workload.happens is Happening.CREATED or workload.method in {Method.ALL_DOWN, Method.REPLACE}
    return workload.new if is_all_new else 0


def _placement_of(deployment: Object) -> Object:
    """What of a Pod template decides where its Pods can be."""
    spec: Object = deployment["spec"]["template"]["spec"]
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    placement = {key: spec.get(key) for key in ("resourceClaims", "nodeSelector", "affinity", "tolerations")}
    return placement | {"resources": [container.get("resources") for container in containers]}


# --- words ------------------------------------------------------------------------------------------------------------


def _findings(config: StackConfig, change: _Change, verdict: Verdict, *, is_final: bool) -> Iterator[GuardFinding]:
    if verdict.outcome is Outcome.ANY_ORDER:
        return
    key, value, fix = _way_out(config, change, is_final=is_final)
    what = "when this change is through, its Pods" if is_final else "the Pods that this change adds"
    told = ". ".join([f"devices for {what}: {verdict.outcome.value}", *verdict.reasons, *map(str, verdict.shares)])
    if verdict.outcome is Outcome.CANNOT and not change.is_asked_before:
        yield refusal("devices", key, value, told, fix=fix, workloads=change.impact.starting, idle="omit")
    else:
        yield warning("devices", key, value, told, fix=fix, workloads=change.impact.starting, idle="omit")


def _way_out(config: StackConfig, change: _Change, *, is_final: bool) -> tuple[str, str, str]:
    """The key that is to blame, its value, and what to do."""
    surging = [part for part in change.parts if part.restarts and part.method is Method.ROLLING and part.max_surge]
    if surging and not is_final:
        numbers = config.modelserver.strategy.rolling_update
        value = "" if numbers is None else f"maxSurge {numbers.max_surge}, maxUnavailable {numbers.max_unavailable}"
        fix = "Set maxSurge: 0 and maxUnavailable: 1, so that a Pod returns its devices before the next asks for them"
        return "modelserver.strategy.rollingUpdate", value, f"{fix}, or free as many devices: {WHO_HOLDS}"
    if any(workload.entry is not None for part in change.parts for workload in part.workloads):
        return "modelserver.nodePlacement", "", f"Choose nodes with free devices, or free them: {WHO_HOLDS}"
    counts = _counts(change.parts)
    if is_final:
        return "devices", "", f"Ask for what a node has, or for fewer Pods ({counts}), or free devices: {WHO_HOLDS}"
    return "modelserver.replicas", counts, f"Ask for fewer Pods, or free devices: {WHO_HOLDS}"


def _counts(parts: Sequence[PartImpact]) -> str:
    return ", ".join(f"{part.part} {part.after}" for part in parts if part.new)
