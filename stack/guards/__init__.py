"""Guards: what is live stands in the way of a plan, told before anything is touched. Pure.

`wanted` says what has to be read, `cluster.surroundings` reads it, `check_guards` judges, and `sort_findings` makes
refusals and warnings of it as block `guards` says. What was not read is judged by nobody: the reader says what is not
known, and it is never taken for fine. Devices have a guard too; its verdicts come from `stack.spares`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.guards.finding import GuardFinding, GuardProblem, GuardsError, sort_findings
from stack.guards.identity import guard_names
from stack.guards.nodes import guard_nodes
from stack.guards.prerequisites import guard_prerequisites
from stack.guards.scaling import guard_rivals_of_scalers
from stack.guards.serial import guard_serial
from stack.guards.volumes import guard_volumes

if TYPE_CHECKING:
    from stack.config.root import StackConfig
    from stack.facts import Surroundings
    from stack.planned import StackPlan

__all__ = ["GuardFinding", "GuardProblem", "GuardsError", "check_guards", "sort_findings"]


def check_guards(config: StackConfig, plan: StackPlan, surroundings: Surroundings) -> tuple[GuardFinding, ...]:
    """What every guard finds that is not off, but for that of devices."""
    found = (
        *guard_volumes(config, plan, surroundings),
        *guard_prerequisites(config, plan, surroundings),
        *guard_names(config, plan, surroundings),
        *guard_rivals_of_scalers(plan, surroundings),
        *guard_nodes(config, plan, surroundings),
        *guard_serial(plan, surroundings),
    )
    return tuple(finding for finding in found if config.guards.of(finding.guard) != "off")
