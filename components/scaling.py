"""What decides how many Pods a role has, where the configuration does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.objects import declare, scoped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stack.planned import ScalerPlan


@dataclass(frozen=True, kw_only=True)
class ScalingArgs:
    """The plan, and what the scalers stand on.

    Attributes:
        scalers: the planned scalers.
        workloads: the role Deployments by their names in the cluster. A scaler comes after the one that it scales, and
            goes before it, so that none ever looks for a Deployment that is not there.
        seats: what each role's scaler stands on, see `ModelServers`.
    """

    scalers: Sequence[ScalerPlan]
    workloads: Mapping[str, pulumi.Resource]
    seats: Mapping[str, pulumi.Resource]


class Scaling(pulumi.ComponentResource):
    """In the cluster: a HorizontalPodAutoscaler, ScaledObject or PodAutoscaler for each role that is scaled."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: ScalingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:serving:Scaling", name, None, opts)
        self.resources = [
            declare(
                scoped(name, scaler.object),
                scaler.object,
                pulumi.ResourceOptions(
                    parent=self,
                    depends_on=[args.workloads[scaler.workload]],
                    replace_with=[args.seats[scaler.role]],
                ),
            )
            for scaler in args.scalers
        ]
        self.register_outputs({})
