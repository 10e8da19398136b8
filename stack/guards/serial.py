"""One model at a time: another release that is rolling out on the same kind of devices.

Two roll-outs that each wait for devices of the other's old Pods can hang each other; and what is free now is not free
for the second (*Rollouts and scaling*). A Deployment counts as rolling until its controller says that it is through;
one that has lost Pods since, as in a namespace that is being deleted, does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stack import labels
from stack.guards import references
from stack.guards.finding import GuardFinding, refusal, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stack.facts import Object, Surroundings
    from stack.planned import StackPlan

DONE = "NewReplicaSetAvailable"
"""Reason of condition `Progressing` once a roll-out is through (Kubernetes, "Deployments", complete Deployment)."""


def is_rolling(deployment: Object) -> bool:
    """Whether a Deployment exchanges its Pods, or tries to."""
    spec, meta = deployment["spec"], deployment["metadata"]
    status: Object = deployment.get("status") or {}
    if spec.get("paused") or "deletionTimestamp" in meta:
        return False
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        return True
    if status.get("replicas", 0) > status.get("updatedReplicas", 0):
        return True
    conditions: list[Object] = status.get("conditions") or []
    return any(each["type"] == "Progressing" and each.get("reason") != DONE for each in conditions)


def rivals(deployments: Iterable[Object], *, namespace: str, release: str) -> Iterator[Object]:
    """Role Deployments of others that are rolling."""
    for deployment in deployments:
        meta = deployment["metadata"]
        is_ours = (meta["namespace"], meta["labels"].get(labels.INSTANCE)) == (namespace, release)
        if not is_ours and is_rolling(deployment):
            yield deployment


def named_templates(deployments: Iterable[Object], *, namespace: str, release: str) -> set[tuple[str, str]]:
    """Namespace and name of the claim templates that these rivals' Pods name."""
    return {
        (rival["metadata"]["namespace"], name)
        for rival in rivals(deployments, namespace=namespace, release=release)
        for name in _templates(rival)
    }


def _templates(deployment: Object) -> list[str]:
    claims = references.pod_spec(deployment).get("resourceClaims") or ()
    return [name for claim in claims if (name := claim.get("resourceClaimTemplateName"))]


def guard_serial(plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Every other release that rolls on what these Pods need."""
    resources = _classes_of_resources(surroundings.device_classes or {})
    ours = _own_devices(plan, surroundings, resources)
    workloads = [workload.object.name for workload in plan.modelserver.workloads]
    if not ours:
        return
    for rival in rivals(surroundings.deployments or (), namespace=plan.namespace, release=plan.release):
        meta = rival["metadata"]
        release = meta["labels"].get(labels.INSTANCE, "without a release label")
        theirs = _their_devices(rival, surroundings, resources)
        watch = f"kubectl -n {meta['namespace']} rollout status deployment {meta['name']}"
        if theirs is None:
            yield warning(
                "serial",
                "devices",
                "",
                f"release {release} in namespace {meta['namespace']} is rolling out Deployment {meta['name']}, and it "
                "is not known which devices that takes",
                fix=f"See with `{watch}` that it is through before this change begins",
                workloads=workloads,
                idle="omit",
            )
        elif shared := sorted(ours & theirs):
            yield refusal(
                "serial",
                "devices",
                ", ".join(shared),
                f"release {release} in namespace {meta['namespace']} is rolling out Deployment {meta['name']} on these "
                f"devices ({_state(rival)}), and two roll-outs at a time can wait for each other",
                fix=f"Run it again when `{watch}` is through",
                workloads=workloads,
                idle="omit",
            )


def _state(deployment: Object) -> str:
    status: Object = deployment.get("status") or {}
    return f"{status.get('updatedReplicas', 0)} of {deployment['spec'].get('replicas', 1)} Pods are new"


def _classes_of_resources(classes: Mapping[str, Object]) -> dict[str, str]:
    """Extended resource -> DeviceClass that backs it, so that the same devices have one name."""
    return {
        resource: name
        for name, found in sorted(classes.items(), reverse=True)
        if (resource := found["spec"].get("extendedResourceName"))
    }


def _own_devices(plan: StackPlan, surroundings: Surroundings, resources: Mapping[str, str]) -> set[str]:
    templates = {**surroundings.claim_templates, **{planned.name: planned.manifest for planned in plan.claims}}
    found: set[str] = set()
    for workload in plan.modelserver.workloads:
        pod = references.pod_spec(workload.object.manifest)
        found |= {resources.get(resource, resource) for resource in references.extended_resources(pod)}
        for claim in pod.get("resourceClaims", ()):
            template = templates.get(claim["resourceClaimTemplateName"])
            found |= references.device_classes(template) if template is not None else frozenset()
    return found


def _their_devices(rival: Object, surroundings: Surroundings, resources: Mapping[str, str]) -> set[str] | None:
    """None where a claim template of theirs may not be read."""
    pod = references.pod_spec(rival)
    found = {resources.get(resource, resource) for resource in references.extended_resources(pod)}
    for name in _templates(rival):
        where = (rival["metadata"]["namespace"], name)
        if where not in surroundings.templates_elsewhere:
            return None
        template = surroundings.templates_elsewhere[where]
        found |= references.device_classes(template) if template is not None else frozenset()
    return found
