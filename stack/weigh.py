"""Weighs a change before anything is touched: what it does to Pods, what it needs, and what stands in its way. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.errors import in_order
from stack.guards import check_guards, sort_findings
from stack.guards.devices import guard_devices
from stack.guards.quota import guard_quota
from stack.guards.scaling import guard_ceilings
from stack.impact import foresee, render_table
from stack.strategy import choose_strategies, tell_choices, warn_of_outages

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.errors import Problem
    from stack.facts import Surroundings, TrialFacts
    from stack.impact import Impact
    from stack.planned import StackPlan


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """What is to be said of a change.

    Attributes:
        plan: what is to be made, with the strategies that were chosen for it.
        refusals: why it must not be made.
        warnings: what to know all the same.
    """

    plan: StackPlan
    impact: Impact
    refusals: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def table(self) -> str:
        """What it does, for the log; empty when it does nothing to any Pod."""
        return render_table(self.impact)


def weigh_change(config: StackConfig, plan: StackPlan, surroundings: Surroundings, trial: TrialFacts) -> Weighed:
    """Choose what is left open until now, foresee the change, and let every guard look at it.

    Args:
        config: the configuration.
        plan: its plan.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
    """
    chosen = choose_strategies(config, plan, surroundings, trial)
    plan, trial = chosen.plan, chosen.trial
    impact = foresee(config, plan, surroundings, trial)
    impact, found = guard_devices(config, plan, impact, surroundings, trial, supply=chosen.supply, end=chosen.end)
    refusals, warnings = sort_findings(
        config.guards,
        (
            *check_guards(config, plan, surroundings),
            *guard_quota(config, plan, impact, surroundings, trial),
            *found,
            *guard_ceilings(config, plan, surroundings, trial, supply=chosen.supply),
            *chosen.findings,
        ),
        starting=_starting(impact),
    )
    return Weighed(
        plan=plan,
        impact=tell_choices(impact, plan),
        refusals=refusals,
        warnings=in_order((*warnings, *warn_of_outages(config, plan, impact, surroundings))),
    )


def foresee_starts(
    config: StackConfig, plan: StackPlan, near: Surroundings, trial: TrialFacts
) -> frozenset[str] | None:
    """Names of the Deployments that start Pods in this change; None when that is not known.

    Args:
        config: the configuration.
        plan: its plan.
        near: what was read of the release, which is enough for that.
        trial: the planned Deployments as they would be stored.
    """
    return _starting(foresee(config, plan, near, trial))


def _starting(impact: Impact) -> frozenset[str] | None:
    return impact.starting if impact.is_known else None
