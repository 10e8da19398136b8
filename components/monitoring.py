"""Who scrapes what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.objects import declare, scoped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.planned import ObjectPlan


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """The planned objects, in the order of declaration."""

    objects: Sequence[ObjectPlan]


class Monitoring(pulumi.ComponentResource):
    """In the cluster: scrape objects and the right to read the EPP's metrics."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:monitoring:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.resources = [declare(scoped(name, planned), planned, child) for planned in args.objects]
        self.register_outputs({})
