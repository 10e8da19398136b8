"""What has to be read around a stack to judge its plan: no more than the guards that are on need.

Pods and ReplicaSets of the release are always wanted: what a change does to them is not a question of guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack.facts import Reference, Wanted
from stack.guards import references

if TYPE_CHECKING:
    from stack.config.guards import GuardName
    from stack.config.root import StackConfig
    from stack.planned import StackPlan


def wanted(config: StackConfig, plan: StackPlan) -> Wanted:
    """What to read for this plan."""

    def on(*guards: GuardName) -> bool:
        return any(config.guards.of(guard) != "off" for guard in guards)

    templates = references.claims(plan)
    pods = [references.pod_spec(manifest) for _, manifest in references.deployments(plan).values()]
    takes_devices = bool(templates) or any(map(references.extended_resources, pods))
    volumes = [volume for pod in pods for volume in pod.get("volumes", ())]
    has_claims = any("persistentVolumeClaim" in volume for volume in volumes)
    has_classes = has_claims or any("ephemeral" in volume for volume in volumes)
    managed = {planned.name for planned in plan.claims}
    return Wanted(
        namespace=plan.namespace,
        release=plan.release,
        nodes=on("nodes", "devices"),
        devices=takes_devices and on("devices"),
        device_classes=takes_devices and on("prerequisites", "serial", "devices"),
        rivals=takes_devices and on("serial"),
        storage_classes=has_classes and on("volumes", "prerequisites"),
        volume_claims=has_claims and on("volumes", "prerequisites"),
        release_pods=True,
        replica_sets=True,
        claim_templates=frozenset(templates.keys() - managed)
        if on("prerequisites", "serial", "devices")
        else frozenset(),
        secrets=frozenset(references.secrets(config, plan)) if on("prerequisites") else frozenset(),
        objects=frozenset(
            {
                *(_prerequisites(config, plan) if on("prerequisites") else ()),
                *(fixed_names(plan) if on("names") else ()),
            }
        ),
        served=frozenset(references.kinds(config, plan)) if on("prerequisites") else frozenset(),
    )


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
    volumes = {volume.object.name for volume in plan.volumes}
    return tuple(
        Reference(
            api_version=planned.manifest["apiVersion"],
            kind=planned.kind,
            name=planned.name,
            namespace=planned.manifest["metadata"].get("namespace"),
        )
        for planned in plan.objects()
        if not planned.is_named_by_content and not (planned.kind == "PersistentVolumeClaim" and planned.name in volumes)
    )
