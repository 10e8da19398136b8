"""What has to be read around a stack to judge its plan: no more than the guards that are on need.

What tells which Pods start is read before that (`cluster.facts`), so that a change that starts none reads nothing of
the rest of the cluster: there are no more Pods than before to find room or devices for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.facts import NOTHING_AROUND, Reference, Wanted
from stack.guards import references
from stack.guards.volumes import changes_of_volumes

if TYPE_CHECKING:
    from collections.abc import Collection

    from stack.config.guards import GuardName
    from stack.config.root import StackConfig
    from stack.facts import Surroundings
    from stack.planned import StackPlan


def wanted(
    config: StackConfig, plan: StackPlan, near: Surroundings = NOTHING_AROUND, starting: Collection[str] | None = None
) -> Wanted:
    """What to read for this plan.

    Args:
        config: the configuration.
        plan: its plan.
        near: what was read of the release.
        starting: names of the Deployments that start Pods in this change; None when that is not known, and then all do.
    """

    def on(*guards: GuardName) -> bool:
        return any(config.guards.of(guard) != "off" for guard in guards)

    start_some = starting is None or bool(starting)
    start_servers = starting is None or any(each.object.name in starting for each in plan.modelserver.workloads)
    templates = references.claims(plan)
    pods = [references.pod_spec(manifest) for _, manifest in references.deployments(plan).values()]
    takes_devices = bool(templates) or any(map(references.extended_resources, pods))
    volumes = [volume for pod in pods for volume in pod.get("volumes", ())]
    has_classes = any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes)
    managed = {planned.name for planned in plan.claims}
    asks_scheduler = start_servers and takes_devices
    # A ceiling is judged whether or not this change starts a Pod: later the scaler will, and nobody is asked then.
    judges_ceilings = bool(plan.modelserver.scalers) and takes_devices and on("devices")
    return Wanted(
        namespace=plan.namespace,
        release=plan.release,
        nodes=(start_some and on("nodes")) or (start_servers and on("devices")) or judges_ceilings,
        slices=(asks_scheduler and on("serial", "devices")) or judges_ceilings,
        resource_claims=(asks_scheduler and on("devices", "quota")) or judges_ceilings,
        device_classes=takes_devices
        and (on("prerequisites") or (start_servers and on("serial", "devices", "quota")) or judges_ceilings),
        rivals=asks_scheduler and on("serial"),
        storage_classes=has_classes and on("volumes", "prerequisites", "quota"),
        limits=(start_some or any(changes_of_volumes(plan, near.volume_claims))) and on("quota"),
        # Of roles that are not scaled as well: somebody else may scale them. The ceilings in force are told by it, too.
        scalers=(bool(plan.modelserver.workloads) and on("names")) or judges_ceilings,
        claim_templates=frozenset(templates.keys() - managed)
        if on("prerequisites", "serial", "devices", "quota")
        else frozenset(),
        secrets=frozenset(references.secrets(config, plan)) if on("prerequisites") else frozenset(),
        objects=frozenset(
            {
                *(_prerequisites(config, plan) if on("prerequisites") else ()),
                *(fixed_names(plan) if on("names", "quota") else ()),
            }
        ),
        made=frozenset(each for each in references.made(plan) if each.namespace == plan.namespace)
        if on("quota")
        else frozenset(),
        volumes=_bound_volumes(plan, near) if start_servers and on("devices") else frozenset(),
        served=frozenset({*references.kinds(config, plan), *references.metrics(plan)})
        if on("prerequisites")
        else frozenset(),
    )


def _bound_volumes(plan: StackPlan, near: Surroundings) -> frozenset[str]:
    """Volumes of the claims that Pods mount, as far as they are bound."""
    live = near.volume_claims or {}
    names = (live[name]["spec"].get("volumeName") for name in references.mounted_claims(plan) if name in live)
    return frozenset(name for name in names if name)


def _prerequisites(config: StackConfig, plan: StackPlan) -> set[Reference]:
    found = {references.namespace_of(config), *references.objects(config, plan)}
    if (gateway_class := references.gateway_class(config)) is not None:
        found.add(gateway_class)
    kinds = {planned.kind for planned in plan.objects()}
    if "HTTPRoute" in kinds:
        found.add(references.ROUTES)
    if "InferencePool" in kinds:
        found.add(references.POOLS)
    return found


def fixed_names(plan: StackPlan) -> tuple[Reference, ...]:
    """Every planned object whose name says nothing of its content, without the volumes, which are judged by themselves.

    A name by content that is taken is taken by the same content.
    """
    return tuple(reference for reference, planned in references.made(plan).items() if not planned.is_named_by_content)
