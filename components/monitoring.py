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
    """The plan, and what must be there first.

    Attributes:
        objects: the planned objects, in the order of declaration.
        after: the router. Kubernetes deletes a token Secret whose ServiceAccount does not exist yet, and the Secret
            names the EPP's as text, from which the engine learns no order.
    """

    objects: Sequence[ObjectPlan]
    after: Sequence[pulumi.Resource]


class Monitoring(pulumi.ComponentResource):
    """In the cluster: scrape objects and the right to read the EPP's metrics."""

    resources: list[pulumi.CustomResource]

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:monitoring:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        self.resources = [declare(scoped(name, planned), planned, child) for planned in args.objects]
        self.register_outputs({})
