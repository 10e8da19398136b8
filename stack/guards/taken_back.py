"""Whether a change only carries on with what was asked for before, or takes it back.

A roll-out that got stuck has to have a way back, whatever is missing: what a change like that asks for was there before
it, or was asked for in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.impact import Happening
from stack.impact.templates import is_same_template
from stack.rollout.pods import TEMPLATE_HASH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stack.facts import Surroundings, TrialFacts
    from stack.impact import PartImpact

NOT_THIS_CHANGES = frozenset({Happening.GOES_BACK, Happening.CONTINUES})


def is_asked_before(parts: Iterable[PartImpact], surroundings: Surroundings, trial: TrialFacts) -> bool:
    """Whether all that asks for Pods is what an earlier change asked for, or what takes it back.

    A part that was through with the earlier change restarts when that is taken back: it is told by a template that one
    of its ReplicaSets still has, while Pods of another part never left theirs.

    Args:
        parts: those of the change that are looked at.
        surroundings: what is around the stack; its ReplicaSets count.
        trial: the planned Deployments as they would be stored.
    """
    looked_at = tuple(parts)
    asking = [part for part in looked_at if part.new or part.extra_pods]
    is_taken_back = any(
        workload.is_template_changed and workload.already for part in looked_at for workload in part.workloads
    )

    def is_before(part: PartImpact) -> bool:
        restarts_back = part.happens is Happening.RESTARTS and all(
            had_its_template(workload.name, surroundings, trial) for workload in part.workloads if workload.new
        )
        return part.happens in NOT_THIS_CHANGES or (is_taken_back and restarts_back)

    return bool(asking) and all(map(is_before, asking))


def had_its_template(name: str, surroundings: Surroundings, trial: TrialFacts) -> bool:
    """Whether one of a Deployment's ReplicaSets has the template that it gets."""
    result = trial.results.get(name)
    return result is not None and any(
        is_same_template(found["spec"]["template"], result["spec"]["template"])
        for found in surroundings.replica_sets or ()
        if found["metadata"]["name"] == f"{name}-{found['metadata']['labels'].get(TEMPLATE_HASH)}"
    )
