"""Chooses how roles are rolled with `modelserver.strategy.type: auto`, by what is there when it is to happen. Pure.

The table is that of *Rollouts and scaling*, Rollout strategy: spare devices, one Pod more at a time; none, one fewer; a
single replica, one more, since otherwise the only Pod goes first and the role is down for a whole start. What the table
leaves open is decided so that nothing is lost by it: what is not known counts as not spare where one fewer costs a dip,
and as spare where it would cost an outage, since an update that waits for devices in vain cuts nothing.

Chosen anew is only what this change restarts. Whatever else changes about a stack, a Deployment keeps the strategy that
it has, so that nothing shows a difference that nobody asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stack.budget import surge_of
from stack.errors import Problem, show
from stack.guards.devices import Change, Moment, look_ahead, look_at, take_stock
from stack.guards.finding import GuardFinding, refusal
from stack.guards.mounts import for_one_pod
from stack.guards.quota import guard_quota
from stack.impact import Happening, Method, duration, foresee, how_long
from stack.planned import BudgetPlan
from stack.rolling import Spec, in_turn, in_words, recreate, settled, surge
from stack.scalars import ROLES
from stack.spares.fit import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.config.root import StackConfig
    from stack.facts import Surroundings, TrialFacts
    from stack.impact import Impact, PartImpact
    from stack.planned import StackPlan, WorkloadPlan
    from stack.spares.fit import Verdict
    from stack.spares.supply import Supply

IN_PLACE = frozenset({Method.ROLLING, Method.RECREATE})
"""How a Deployment that stays exchanges its Pods; others are made anew, and nothing of the old one matters."""
NOT_SPARE: Mapping[Outcome, str] = {
    Outcome.CANNOT: "no devices are spare for one Pod more",
    Outcome.SOME_ORDER: "devices for one Pod more are spare for some placements only",
    Outcome.UNKNOWN: "whether devices are spare for one Pod more is not known",
}
BEYOND_QUOTA: Mapping[Outcome, str] = {
    Outcome.CANNOT: "the namespace's quota leaves no room for one Pod more",
    Outcome.SOME_ORDER: "the namespace's quota leaves no room for one Pod more of each role",
    Outcome.UNKNOWN: "whether the namespace's quota leaves room for one Pod more is not known",
}
STRATEGY = "modelserver.strategy"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A plan with the strategies that were chosen.

    Attributes:
        trial: what the API server would store with them.
        findings: roles that would stop, which nobody allowed.
        supply: what was looked through for it; None where nothing was.
        end: what was found of the end of the change, which no strategy alters; None where nothing was looked for.
    """

    plan: StackPlan
    trial: TrialFacts
    findings: tuple[GuardFinding, ...] = ()
    supply: Supply | None = None
    end: Verdict | None = None


def choose_strategies(config: StackConfig, plan: StackPlan, surroundings: Surroundings, trial: TrialFacts) -> Chosen:
    """Choose for every role that this change restarts, and leave all others what they have.

    Args:
        config: the configuration.
        plan: its plan, with the strategies that the roles have or would have.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
    """
    if config.modelserver.strategy.type != "auto" or config.modelserver.node_placement:
        return Chosen(plan=plan, trial=trial)
    return _Choice(config, plan, surroundings, trial).made()


def tell_choices(impact: Impact, plan: StackPlan) -> Impact:
    """The impact with the reason of each choice among the notes."""
    reasons = {workload.role: workload.because for workload in plan.modelserver.workloads if workload.because}
    parts = tuple(
        replace(part, notes=(reasons[part.part], *part.notes)) if part.part in reasons else part
        for part in impact.parts
    )
    return replace(impact, parts=parts)


def warn_of_outages(
    config: StackConfig, plan: StackPlan, impact: Impact, surroundings: Surroundings
) -> tuple[Problem, ...]:
    """Roles that the strategy takes down, with how long; with `auto` those that nobody allowed by name.

    That a volume for one Pod leaves no choice is refused by its guard where `auto` chooses, if that is not off.
    """
    strategy, unavoidable = config.modelserver.strategy, for_one_pod(plan, surroundings)
    is_told_already = strategy.type != "auto" or config.guards.volumes != "off"
    return tuple(
        _unasked_outage(part) if strategy.type == "auto" else _outage(config, part)
        for part in impact.parts
        if part.part in ROLES
        and part.part not in strategy.allow_outage
        and part.outage is not None
        and part.method in IN_PLACE
        and all(
            workload.entry is None and not (is_told_already and workload.name in unavoidable)
            for workload in part.workloads
        )
    )


def _unasked_outage(part: PartImpact) -> Problem:
    """An outage with `auto`: of a strategy that the role has from before, or that its volume leaves alone."""
    assert part.outage is not None  # noqa: S101  # asked for just before
    return Problem(
        key=STRATEGY,
        value="auto",
        why=f"{part.part} serves nothing for {how_long(part.outage)}, which nobody allowed: {part.outage.why}",
        fix=f"If that may be, say so: modelserver.strategy.allowOutage: [{part.part}]",
    )


def _outage(config: StackConfig, part: PartImpact) -> Problem:
    assert part.outage is not None  # noqa: S101  # asked for just before
    numbers = config.modelserver.strategy.rolling_update
    lasts = f"{part.part} serves nothing for {how_long(part.outage)}"
    is_single = part.after == 1
    pods = f"the only {part.part} Pod leaves" if is_single else f"all {part.after} {part.part} Pods leave"
    spare = "With spare devices set maxSurge: 1 and maxUnavailable: 0"
    rest = "" if is_single else ", without maxSurge: 0 and maxUnavailable: 1"
    return Problem(
        key="modelserver.strategy.type" if numbers is None else "modelserver.strategy.rollingUpdate.maxUnavailable",
        value=show("Recreate" if numbers is None else numbers.max_unavailable),
        why=f"{pods} before a new one is Ready: {lasts}",
        fix=f"{spare}{rest}; or set type: auto, which chooses",
    )


def _least(workload: WorkloadPlan) -> int:
    """Pods that a role is sure to have: what a scaler has brought it to must not decide how Pods are exchanged."""
    return workload.replicas if workload.floor is None else workload.floor


@dataclass(frozen=True, kw_only=True)
class _Room:
    """Whether there is room for one Pod more, and why not."""

    outcome: Outcome
    why: str = ""
    is_hopeless: bool = False
    """Whether the Pods would find no place even if all that leave were gone, so that no strategy helps."""


ROOM = _Room(outcome=Outcome.ANY_ORDER)
LEAST_ROOM = (Outcome.ANY_ORDER, Outcome.UNKNOWN, Outcome.SOME_ORDER, Outcome.CANNOT)


class _Choice:
    """The roles of one change, and what is known about them."""

    def __init__(self, config: StackConfig, plan: StackPlan, surroundings: Surroundings, trial: TrialFacts) -> None:
        self._config = config
        self._surroundings = surroundings
        self._one_pod = for_one_pod(plan, surroundings)
        self._allowed = frozenset(config.modelserver.strategy.allow_outage)
        self._plan, self._trial = plan, trial
        # As planned: what each has, and of one that is new what it gets while nobody has looked.
        self._held: Mapping[str, Spec] = {
            each.object.name: each.object.manifest["spec"]["strategy"] for each in plan.modelserver.workloads
        }
        self._strategies: dict[str, Spec] = dict(self._held)
        self._because: dict[str, str] = {}
        self._supply: Supply | None = None
        self._end: Verdict | None = None

    def made(self) -> Chosen:
        """Everything chosen."""
        impact = self._foresee(self._strategies)
        found = {workload.name: workload for part in impact.parts for workload in part.workloads}
        restarting: list[WorkloadPlan] = []
        for workload in self._plan.modelserver.workloads:
            seen = found.get(workload.object.name)
            if seen is None or seen.happens not in {Happening.RESTARTS, Happening.CREATED}:
                continue
            if seen.happens is Happening.RESTARTS and seen.method in IN_PLACE:
                restarting.append(workload)
            else:
                is_for_one_pod = workload.object.name in self._one_pod
                self._strategies[workload.object.name] = settled(_least(workload), is_for_one_pod=is_for_one_pod)
        self._choose(sorted(restarting, key=lambda workload: ROLES.index(workload.role)))
        plan, trial = self._with(self._strategies)
        findings = tuple(self._not_allowed(impact, restarting))
        return Chosen(plan=plan, trial=trial, findings=findings, supply=self._supply, end=self._end)

    # --- the table --------------------------------------------------------------------------------------------------

    def _choose(self, restarting: list[WorkloadPlan]) -> None:
        """First those that have no choice, then the others while devices are spare for them as well."""
        for workload in restarting:
            if workload.object.name in self._one_pod:
                claim = self._one_pod[workload.object.name]
                self._take(workload, recreate(), f"one Pod alone can mount claim {claim}, so the old one leaves first")
            elif _least(workload) == 1 and workload.role not in self._allowed:
                why = "of a single replica the new Pod has to be Ready before the only one leaves"
                self._take(workload, surge(), why)
            else:
                self._strategies[workload.object.name] = in_turn()
        is_open = [workload for workload in restarting if workload.object.name not in self._because]
        for workload in is_open:
            if _least(workload) == 1:
                self._allow(workload)
        self._spare([workload for workload in is_open if _least(workload) > 1])

    def _spare(self, several: list[WorkloadPlan]) -> None:
        """Roles that can do with one Pod fewer, and need not where one more is surely possible."""
        # All at once is what mostly holds, and answers for each.
        of_all = self._look(several) if several else ROOM
        for workload in several:
            is_answered = of_all is ROOM or len(several) == 1
            found = of_all if is_answered else self._look([workload])
            if found.is_hopeless:
                self._keep(workload)
            elif found is ROOM:
                self._take(workload, surge(), "devices are spare, so the new Pod starts before an old one leaves")
            else:
                why = f"{found.why}, so an old one leaves first, and one replica is short during each step"
                self._take(workload, in_turn(), why)

    def _allow(self, workload: WorkloadPlan) -> None:
        """A single replica that may stop where it has to."""
        found = self._look([workload])
        if found.is_hopeless:
            self._keep(workload)
        elif found.outcome is Outcome.CANNOT:
            why = f"{found.why}, and allowOutage has {workload.role}, so the only one leaves first"
            self._take(workload, in_turn(), why)
        elif found is ROOM:
            self._take(workload, surge(), "a new Pod can be Ready before the only one leaves, so nothing has to stop")
        else:
            why = f"{found.why}, and while the new Pod waits for them the only one serves"
            self._take(workload, surge(), why)

    def _keep(self, workload: WorkloadPlan) -> None:
        """Leave what it has: the change is refused anyway, and what was chosen for it would only mislead."""
        self._strategies[workload.object.name] = self._held[workload.object.name]

    def _take(self, workload: WorkloadPlan, strategy: Spec, why: str) -> None:
        self._strategies[workload.object.name] = strategy
        self._because[workload.object.name] = f"auto chose {in_words(strategy)}: {why}"

    def _look(self, surging: list[WorkloadPlan]) -> _Room:
        """What is certain if these get one Pod more at a time as well. What others give back meanwhile is not spare."""
        strategies = self._strategies | {workload.object.name: surge() for workload in surging}
        plan, trial = self._with(strategies)
        impact = self._foresee(strategies)
        found = self._look_at_devices(plan, impact, trial)
        allowed = self._look_at_quotas(plan, impact, trial)
        return found if found.is_hopeless else max(allowed, found, key=lambda room: LEAST_ROOM.index(room.outcome))

    def _look_at_quotas(self, plan: StackPlan, impact: Impact, trial: TrialFacts) -> _Room:
        found = [each.room for each in guard_quota(self._config, plan, impact, self._surroundings, trial) if each.room]
        if self._config.guards.quota != "off" and self._surroundings.quotas is None:
            found.append(Outcome.UNKNOWN)
        outcome = max(found, key=LEAST_ROOM.index, default=Outcome.ANY_ORDER)
        return ROOM if outcome is Outcome.ANY_ORDER else _Room(outcome=outcome, why=BEYOND_QUOTA[outcome])

    def _look_at_devices(self, plan: StackPlan, impact: Impact, trial: TrialFacts) -> _Room:
        if self._config.guards.devices == "off":
            return _Room(outcome=Outcome.UNKNOWN, why=NOT_SPARE[Outcome.UNKNOWN])
        change = Change(plan, impact, self._surroundings, trial)
        outlook = None
        if change.asks:
            self._supply = self._supply or take_stock(self._surroundings)
            self._end = self._end or look_ahead(change, self._supply)
            outlook = look_at(change, self._supply, is_given_back=False, end=self._end)
        if outlook is None or outlook.verdict.outcome is Outcome.ANY_ORDER:
            return ROOM
        outcome = outlook.verdict.outcome
        is_hopeless = outlook.moment is Moment.END and outcome is Outcome.CANNOT
        return _Room(outcome=outcome, why=NOT_SPARE[outcome], is_hopeless=is_hopeless)

    def _not_allowed(self, impact: Impact, restarting: list[WorkloadPlan]) -> list[GuardFinding]:
        """Roles that have to stop, whatever is spare, since their volume is for one Pod."""
        parts = {part.part: part for part in impact.parts}
        found: list[GuardFinding] = []
        for workload in restarting:
            claim = self._one_pod.get(workload.object.name)
            if claim is None or workload.role in self._allowed:
                continue
            part = parts[workload.role]
            found.append(
                refusal(
                    "volumes",
                    STRATEGY,
                    "auto",
                    f"one Pod alone can mount claim {claim}, so {workload.role} stops until its new Pod is Ready, for "
                    f"at most {duration(part.drain_seconds + part.start_seconds)}",
                    fix=f"Allow it by name: modelserver.strategy.allowOutage: [{workload.role}]; or use a "
                    "ReadWriteMany claim",
                    workloads=[workload.object.name],
                    idle="omit",
                )
            )
        return found

    # --- plans ------------------------------------------------------------------------------------------------------

    def _foresee(self, strategies: Mapping[str, Spec]) -> Impact:
        plan, trial = self._with(strategies)
        return foresee(self._config, plan, self._surroundings, trial)

    def _with(self, strategies: Mapping[str, Spec]) -> tuple[StackPlan, TrialFacts]:
        """The plan with these strategies, and the trial as it would be with them."""
        workloads = tuple(self._rolled(each, strategies) for each in self._plan.modelserver.workloads)
        surges = {each.role: surge_of(each.counted["spec"]) for each in workloads}
        budget = BudgetPlan(
            lines=tuple(
                replace(line, surge=surges[line.part]) if line.part in surges else line
                for line in self._plan.budget.lines
            )
        )
        plan = replace(
            self._plan,
            modelserver=replace(self._plan.modelserver, workloads=workloads),
            budget=budget,
            outputs={**self._plan.outputs, "budget": [str(line) for line in budget.lines]},
        )
        results = {
            name: {**stored, "spec": {**stored["spec"], "strategy": strategies[name]}} if name in strategies else stored
            for name, stored in self._trial.results.items()
        }
        return plan, replace(self._trial, results=results)

    def _rolled(self, workload: WorkloadPlan, strategies: Mapping[str, Spec]) -> WorkloadPlan:
        name = workload.object.name
        if name not in strategies:
            return workload
        manifest = workload.object.manifest
        spec = {**manifest["spec"], "strategy": strategies[name]}
        return replace(
            workload,
            object=replace(workload.object, manifest={**manifest, "spec": spec}),
            because=self._because.get(name, ""),
        )
