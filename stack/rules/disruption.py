"""Rules about disruption budgets: when the one Pod that may be evicted is all there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.rules.rule import Finding, Rule, Setting, rule, warning

if TYPE_CHECKING:
    from collections.abc import Iterator


def leaves_a_pod(setting: Setting) -> Iterator[Finding]:
    """A budget that covers all Pods of a role, of which nobody said that it may stop."""
    block, strategy = setting.config.disruption_budget, setting.config.modelserver.strategy
    if not block.enabled:
        return
    covered = [
        f"the only {role} Pod" if setting.fewest_pods[role] == 1 else f"all {setting.fewest_pods[role]} {role} Pods"
        for role in setting.roles
        if setting.fewest_pods[role] <= block.max_unavailable and role not in strategy.allow_outage
    ]
    if covered:
        yield warning(
            "disruptionBudget.maxUnavailable",
            block.max_unavailable,
            f"covers {' and '.join(covered)}, so draining a node may stop the role until its new Pod has started; a "
            "budget that forbade it would keep the node from ever being drained",
            fix="Give the role more Pods if it must not stop"
            + (", or name it in modelserver.strategy.allowOutage if it may" if strategy.type == "auto" else ""),
        )


RULES: tuple[Rule, ...] = (rule(leaves_a_pod, "modelserver", "autoscaling", "disruption_budget"),)
