"""Block `disruptionBudget`: how many model servers of a role may be evicted at once.

A budget is about evictions alone: drained nodes, the descheduler. Roll-outs and scalers delete Pods without asking it.
"""

from typing import Literal, TypeAlias

from pydantic import Field

from stack.scalars import Positive, Strict

EvictionPolicy: TypeAlias = Literal["AlwaysAllow", "IfHealthyBudget"]


class DisruptionConfig(Strict):
    """How many Pods of a role may be evicted at once."""

    enabled: bool = Field(default=True, description="Whether each role gets a PodDisruptionBudget.")
    max_unavailable: Positive = Field(
        default=1,
        description="Pods of a role that may be missing at once because of evictions. At least 1: with 0 no node that "
        "has one could ever be drained.",
    )
    unhealthy_pod_eviction_policy: EvictionPolicy = Field(
        default="AlwaysAllow",
        description="Whether a Pod that is not Ready may be evicted at any time (`AlwaysAllow`), or only while enough "
        "others are Ready (`IfHealthyBudget`), so that a Pod that never becomes Ready keeps its node from being "
        "drained.",
    )
