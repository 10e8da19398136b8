"""The way in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.objects import declare, scoped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.planned import ObjectPlan


@dataclass(frozen=True, kw_only=True)
class GatewayArgs:
    """The planned objects, in the order of declaration."""

    objects: Sequence[ObjectPlan]


class Gateway(pulumi.ComponentResource):
    """In the cluster: Gateway, HTTPRoute and what the Gateway's class needs."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: GatewayArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:gateway:Gateway", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.resources = [declare(scoped(name, planned), planned, child) for planned in args.objects]
        self.register_outputs({})
