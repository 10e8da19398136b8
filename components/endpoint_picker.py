"""The endpoint picker and the pool it picks from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pulumi

from components.objects import declare, scoped
from components.waits import rolled_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stack.planned import ObjectPlan, RollOutPlan


@dataclass(frozen=True, kw_only=True)
class EndpointPickerArgs:
    """The plan, and the wait for the EPP.

    Attributes:
        objects: the planned objects, in the order of declaration.
        roll_outs: how long a Deployment among them may take, by its name.
        until_rolled_out: as for `components.model_servers.ModelServersArgs`.
    """

    objects: Sequence[ObjectPlan]
    roll_outs: Mapping[str, RollOutPlan]
    until_rolled_out: Callable[[str], None]


class EndpointPicker(pulumi.ComponentResource):
    """In the cluster: EPP (Deployment, Service, ServiceAccount, Roles, ConfigMap) and InferencePool.

    Attributes:
        resources: every object.
        serving: the EPP once a new one serves, for what must not go on before.
    """

    resources: list[pulumi.CustomResource]
    serving: list[pulumi.Output[pulumi.Resource]]

    def __init__(self, name: str, args: EndpointPickerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:router:EndpointPicker", name, None, opts)
        self.resources, self.serving = [], []
        for planned in args.objects:
            roll_out = args.roll_outs.get(planned.name) if planned.kind == "Deployment" else None
            options = pulumi.ResourceOptions(parent=self)
            if roll_out is not None:
                timeout = f"{roll_out.timeout_seconds}s"  # the old one drains while it is deleted
                options.custom_timeouts = pulumi.CustomTimeouts(create=timeout, update=timeout, delete=timeout)
            resource = declare(scoped(name, planned), planned, options)
            self.resources.append(resource)
            if roll_out is not None:
                self.serving.append(rolled_out(resource, partial(args.until_rolled_out, planned.name)))
        self.register_outputs({})
