"""PodDisruptionBudgets: how many Pods of a role a drained node or a descheduler may take at once.

One for each role, over all its Deployments, since with two that select the same Pod every eviction of it fails
(Kubernetes, *Disruptions*). Not `minAvailable`: at one replica it allows no eviction at all, and no node with that Pod
could be drained; and it would have to follow what a scaler does. Roll-outs and scalers are not held by a budget.

Pods that are not Ready may always be evicted (`AlwaysAllow`) unless the configuration says otherwise: a model server
loads for minutes, serves nobody meanwhile, and counts as missing already. Held back, one Pod that cannot start would
keep its node, and by using up the budget every other node of the role, from being drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack import labels, names
from stack.planned import ObjectPlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stack.config.root import StackConfig
    from stack.scalars import Role


def plan_disruption_budgets(config: StackConfig, roles: Iterable[Role]) -> tuple[ObjectPlan, ...]:
    """A budget for each of these roles; none where the configuration wants none.

    Args:
        config: the configuration.
        roles: roles that have Pods.
    """
    block = config.disruption_budget
    if not block.enabled:
        return ()
    return tuple(
        ObjectPlan(
            logical_name=f"{role}-disruption-budget",
            manifest={
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": labels.object_meta(
                    names.disruption_budget(config.release, role),
                    release=config.release,
                    namespace=config.namespace,
                    component=role,
                ),
                "spec": {
                    "maxUnavailable": block.max_unavailable,
                    "selector": {"matchLabels": {labels.INSTANCE: config.release, labels.COMPONENT: role}},
                    "unhealthyPodEvictionPolicy": block.unhealthy_pod_eviction_policy,
                },
            },
        )
        for role in roles
    )
