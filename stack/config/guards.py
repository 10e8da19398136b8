"""Block `guards`: what stops a preview or an update when what is live stands in the way.

Each guard looks at one thing that would only be refused or get stuck half-way through an update. What a guard means and
when it speaks is decided in `stack.guards`.
"""

from typing import Literal, get_args

from pydantic import Field

from stack.scalars import Strict

GuardName = Literal["volumes", "prerequisites", "names", "nodes", "quota", "serial", "devices"]
GUARD_NAMES: tuple[GuardName, ...] = get_args(GuardName)
Force = Literal["enforce", "warn", "off"]


class GuardsConfig(Strict):
    """`enforce`: previews and updates are refused. `warn`: they go on with a warning. `off`: it is not looked at."""

    volumes: Force = Field(
        default="enforce",
        description="Claims that are there: another class, mode or size than they have, and who can mount them.",
    )
    prerequisites: Force = Field(
        default="enforce",
        description="What the stack refers to must exist: namespace, Secrets, DeviceClasses, claim template, "
        "StorageClass, ServiceAccount, PriorityClass, RuntimeClass, and API versions.",
    )
    names: Force = Field(
        default="enforce",
        description="Objects under the stack's names that have not its labels, and Pods of others that its selectors "
        "match.",
    )
    nodes: Force = Field(
        default="enforce",
        description="Nodes in `nodePlacement` that are missing or cannot take the Pod, and room on nodes: CPU, memory "
        "and number of Pods. Where an autoscaler adds nodes, choose warn.",
    )
    quota: Force = Field(
        default="enforce",
        description="ResourceQuotas that a change would exceed, and LimitRanges that would refuse its Pods.",
    )
    serial: Force = Field(
        default="enforce", description="Another release that is rolling out on the same kind of devices."
    )
    devices: Force = Field(default="enforce", description="Devices that a change needs beyond those that are free.")

    def of(self, guard: GuardName) -> Force:
        """What one guard does."""
        return getattr(self, guard)
