"""How a role Pod asks for its devices: a claim from a template (Dynamic Resource Allocation), or extended resources.

A claim template's `spec` is immutable, so a managed one is named by its content: a change makes a new template, the
Pods roll to it, and the old one goes last. A template of the operator is only referenced (*Scaling and Upgrades*,
"Impact by change type").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.planned import ObjectPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stack.config.devices import ClaimTemplateConfig
    from stack.config.root import StackConfig
    from stack.recipes.model import Recipe

CLAIM = "devices"
"""Name of the claim inside the Pod."""


@dataclass(frozen=True, kw_only=True)
class DevicesPlan:
    """What every role Pod asks for; one template serves all roles.

    Attributes:
        template: the managed claim template, None when the operator's is referenced or nothing is claimed.
        template_name: the template that Pods name, None in pure device-plugin mode.
        extended: extended resources of one Pod (resource name -> count).
        nic_resource: the extended resource among them that stands for NICs, None when NICs are claimed or off.
        accelerators, nics: devices of one Pod; None when a referenced template decides, or when a managed one asks for
            NICs by a class that the recipe does not know.
    """

    template: ObjectPlan | None
    template_name: str | None
    extended: Mapping[str, int] = field(default_factory=dict[str, int])
    nic_resource: str | None = None
    accelerators: int | None
    nics: int | None


def plan_devices(config: StackConfig, recipe: Recipe) -> DevicesPlan:
    """Settle claims and extended resources from `devices`."""
    devices = config.devices
    extended: dict[str, int] = {}
    accelerators: int | None = None
    nics: int | None = None
    if devices.npu.mode == "devicePlugin":
        extended[devices.npu.resource_name or recipe.accelerator.resource_name] = accelerators = devices.npu.count
    nic_resource = devices.rdma.resource_name if devices.rdma.enabled and devices.rdma.mode == "devicePlugin" else None
    if not devices.rdma.enabled:
        nics = 0
    elif nic_resource is not None:
        extended[nic_resource] = nics = devices.rdma.count

    wanted = devices.claim_template if devices.uses_claims() else None
    template = None if wanted is None else _managed_template(config, wanted)
    if wanted is not None:
        # A class that the recipe does not know tells nothing: NICs have many drivers.
        if devices.npu.mode == "dra":
            accelerators = _claimed(wanted, recipe.accelerator.device_class_name) or None
        if nic_resource is None:
            nics = _claimed(wanted, recipe.accelerator.rdma_device_class_name) or (None if devices.rdma.enabled else 0)
    return DevicesPlan(
        template=template,
        template_name=template.name if template is not None else devices.referenced_template(),
        extended=extended,
        nic_resource=nic_resource,
        accelerators=accelerators,
        nics=nics,
    )


def _claimed(template: ClaimTemplateConfig, device_class: str) -> int:
    """Devices of a class in a claim."""
    return sum(request.count for request in template.requests if request.device_class_name == device_class)


def _managed_template(config: StackConfig, wanted: ClaimTemplateConfig) -> ObjectPlan:
    requests: list[dict[str, Any]] = []
    for request in wanted.requests:
        exactly: dict[str, Any] = {
            "deviceClassName": request.device_class_name,
            "allocationMode": "ExactCount",
            "count": request.count,
        }
        if request.selectors:
            exactly["selectors"] = [{"cel": {"expression": expression}} for expression in request.selectors]
        requests.append({"name": request.name, "exactly": exactly})
    devices: dict[str, Any] = {"requests": requests}
    if wanted.constraints:
        devices["constraints"] = [
            {"requests": list(c.requests), "matchAttribute": c.match_attribute} for c in wanted.constraints
        ]
    spec = {"spec": {"devices": devices}}
    name = names.claim_template(config.release, spec)
    return ObjectPlan(
        logical_name=name.removeprefix(f"{config.release}-"),
        is_named_by_content=True,
        manifest={
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": labels.object_meta(
                name, release=config.release, namespace=config.namespace, component="devices"
            ),
            "spec": spec,
        },
    )
