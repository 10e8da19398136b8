"""Weighs what the API server said to the workloads in a dry run, before any of them is touched.

A topology change takes everything down before it makes the new workloads, so one that is rejected then would be found
out only when nothing serves any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stack.errors import Problem, in_order, show
from stack.facts import FactsError

if TYPE_CHECKING:
    from stack.facts import TrialFacts
    from stack.planned import StackPlan


def weigh_trial(plan: StackPlan, trial: TrialFacts) -> StackPlan:
    """The plan with what the dry run left open.

    Raises:
        FactsError: the API server would not take a workload.
    """
    if trial.refused:
        raise FactsError(
            in_order(
                tuple(
                    Problem(
                        key=f"Deployment {name}",
                        value=show(f"{plan.namespace}/{name}"),
                        why=f"the API server would not take it: {said.rstrip('.')}",
                        fix="Nothing was changed. Mend what it names and run it again",
                    )
                    for name, said in trial.refused.items()
                )
            )
        )
    said = tuple(
        Problem(
            key=f"Deployment {name}",
            value="",
            why=f"the API server warns: {text.rstrip('.')}",
            fix="It would take it all the same. Mend what it names, if that is not meant",
        )
        for name, texts in trial.warned.items()
        for text in texts
    )
    plan = replace(plan, warnings=(*plan.warnings, *said))
    if trial.unknown is None:
        return plan
    untried = Problem(
        key="dry run",
        value="",
        why=f"it is not known whether the API server would take the workloads: {trial.unknown.rstrip('.')}",
        fix="See to it that Deployments may be patched there; a change of the topology is not made without knowing",
    )
    return replace(plan, untried=untried, warnings=(*plan.warnings, untried))
