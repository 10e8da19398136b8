"""Weighs a change before anything is touched: what it does to Pods, what it needs, and what stands in its way. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.guards import check_guards, sort_findings
from stack.guards.devices import guard_devices
from stack.impact import Happening, foresee, render_table

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
        refusals: why it must not be made.
        warnings: what to know all the same.
    """

    impact: Impact
    refusals: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def table(self) -> str:
        """What it does, for the log; empty when it does nothing to any Pod."""
        return render_table(self.impact)


def weigh_change(config: StackConfig, plan: StackPlan, surroundings: Surroundings, trial: TrialFacts) -> Weighed:
    """Foresee a change and let every guard look at it.

    Args:
        config: the configuration.
        plan: its plan.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
    """
    impact, found = guard_devices(config, plan, foresee(config, plan, surroundings, trial), surroundings, trial)
    is_known = all(part.happens is not Happening.UNKNOWN for part in impact.parts)
    refusals, warnings = sort_findings(
        config.guards,
        (*check_guards(config, plan, surroundings), *found),
        starting=impact.starting if is_known else None,
    )
    return Weighed(impact=impact, refusals=refusals, warnings=warnings)
