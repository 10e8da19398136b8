"""What hands out devices: the managed claim template, if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.objects import declare, scoped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.planned import ObjectPlan


@dataclass(frozen=True, kw_only=True)
class DeviceClaimsArgs:
    """The planned claim templates; empty when the operator's template is referenced."""

    templates: Sequence[ObjectPlan]


class DeviceClaims(pulumi.ComponentResource):
    """In the cluster: a ResourceClaimTemplate named by its content. A new one comes before the old one goes."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: DeviceClaimsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:devices:DeviceClaims", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.resources = [declare(scoped(name, template), template, child) for template in args.templates]
        self.register_outputs({"templates": [template.name for template in args.templates]})
