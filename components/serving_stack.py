"""The whole stack of one release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.device_claims import DeviceClaims, DeviceClaimsArgs
from components.endpoint_picker import EndpointPicker, EndpointPickerArgs
from components.gateway import Gateway, GatewayArgs
from components.model_servers import ModelServers, ModelServersArgs
from components.monitoring import Monitoring, MonitoringArgs
from components.retained_volumes import RetainedVolumes, RetainedVolumesArgs
from components.scaling import Scaling, ScalingArgs

if TYPE_CHECKING:
    from collections.abc import Callable

    from stack.planned import StackPlan


@dataclass(frozen=True, kw_only=True)
class ServingStackArgs:
    """The plan, and the waits around a roll-out (see `ModelServersArgs`)."""

    plan: StackPlan
    until_may_be_made: Callable[[str], None]
    until_rolled_out: Callable[[str], None]


class ServingStack(pulumi.ComponentResource):
    """In the cluster: claims for devices, retained volumes, EPP and pool, Gateway, model servers, scrape objects."""

    def __init__(self, name: str, args: ServingStackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("servingstack:index:ServingStack", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        plan = args.plan
        claims = DeviceClaims(name, DeviceClaimsArgs(templates=plan.claims), child)
        volumes = RetainedVolumes(name, RetainedVolumesArgs(volumes=plan.volumes), child)
        router = EndpointPicker(
            name,
            EndpointPickerArgs(objects=plan.router, roll_outs=plan.roll_outs, until_rolled_out=args.until_rolled_out),
            child,
        )
        gateway = Gateway(name, GatewayArgs(objects=plan.gateway), child)
        monitoring = Monitoring(name, MonitoringArgs(objects=plan.monitoring, after=router.resources), child)
        servers = ModelServers(
            name,
            ModelServersArgs(
                plan=plan.modelserver,
                before=[
                    *claims.resources,
                    *volumes.resources,
                    *router.resources,
                    *router.serving,
                    *gateway.resources,
                    *monitoring.resources,
                ],
                until_may_be_made=args.until_may_be_made,
                until_rolled_out=args.until_rolled_out,
            ),
            child,
        )
        Scaling(
            name,
            ScalingArgs(scalers=plan.modelserver.scalers, workloads=servers.workloads, seats=servers.scaler_seats),
            child,
        )
        self.register_outputs({})
