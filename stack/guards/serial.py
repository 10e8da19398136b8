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
from stack.spares.kinds import Kinds, Meeting, kinds_of_claim, kinds_of_resources
from stack.spares.supply import classes_of_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stack.facts import Object, Surroundings
    from stack.planned import StackPlan
    from stack.spares.kinds import Kind

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
    class_of = classes_of_resources(surroundings.device_classes or {})
    ours = _own_devices(plan, surroundings, class_of)
    if not ours:
        return
    kinds = Kinds(surroundings.device_classes, surroundings.slices)
    for rival in rivals(surroundings.deployments or (), namespace=plan.namespace, release=plan.release):
        theirs = _their_devices(rival, surroundings, class_of)
        if theirs is None:
            yield _may_meet(plan, rival, (), "it is not known which devices that takes")
            continue
        met = {(one, other): kinds.meet(one, other) for one in sorted(ours) for other in sorted(theirs)}
        if shared := [pair for pair, how in met.items() if how is Meeting.SHARED]:
            yield _meets(plan, rival, shared)
        elif perhaps := [pair for pair, how in met.items() if how is Meeting.UNKNOWN]:
            why = "whether that takes the same devices could not be found out from what is published"
            yield _may_meet(plan, rival, perhaps, why)


def _meets(plan: StackPlan, rival: Object, pairs: Iterable[tuple[Kind, Kind]]) -> GuardFinding:
    why = f"{_who(rival)} on these devices ({_state(rival)}), and two roll-outs at a time can wait for each other"
    return _finding(refusal, plan, pairs, why, fix=f"Run it again when `{_watch(rival)}` is through")


def _may_meet(plan: StackPlan, rival: Object, pairs: Iterable[tuple[Kind, Kind]], why: str) -> GuardFinding:
    fix = f"See with `{_watch(rival)}` that it is through before this change begins"
    return _finding(warning, plan, pairs, f"{_who(rival)}, and {why}", fix=fix)


def _finding(
    say: Callable[..., GuardFinding], plan: StackPlan, pairs: Iterable[tuple[Kind, Kind]], why: str, *, fix: str
) -> GuardFinding:
    names = [workload.object.name for workload in plan.modelserver.workloads]
    return say("serial", "devices", _in_words(pairs), why, fix=fix, workloads=names, idle="omit")


def _who(rival: Object) -> str:
    meta = rival["metadata"]
    release = meta["labels"].get(labels.INSTANCE, "without a release label")
    return f"release {release} in namespace {meta['namespace']} is rolling out Deployment {meta['name']}"


def _watch(rival: Object) -> str:
    meta = rival["metadata"]
    return f"kubectl -n {meta['namespace']} rollout status deployment {meta['name']}"


def _in_words(pairs: Iterable[tuple[Kind, Kind]]) -> str:
    """Classes, and by which other one the same devices are asked for."""
    words = [ours.name if ours.name == theirs.name else f"{ours.name} (there {theirs.name})" for ours, theirs in pairs]
    return ", ".join(dict.fromkeys(words))


def _state(deployment: Object) -> str:
    status: Object = deployment.get("status") or {}
    return f"{status.get('updatedReplicas', 0)} of {deployment['spec'].get('replicas', 1)} Pods are new"


def _own_devices(plan: StackPlan, surroundings: Surroundings, class_of: Mapping[str, str]) -> set[Kind]:
    templates = {**surroundings.claim_templates, **{planned.name: planned.manifest for planned in plan.claims}}
    found: set[Kind] = set()
    for workload in plan.modelserver.workloads:
        pod = references.pod_spec(workload.object.manifest)
        found |= set(kinds_of_resources(references.extended_resources(pod), class_of))
        for claim in pod.get("resourceClaims", ()):
            found |= _kinds_of(templates.get(claim["resourceClaimTemplateName"]))
    return found


def _their_devices(rival: Object, surroundings: Surroundings, class_of: Mapping[str, str]) -> set[Kind] | None:
    """None where a claim template of theirs may not be read."""
    pod = references.pod_spec(rival)
    found = set(kinds_of_resources(references.extended_resources(pod), class_of))
    for name in _templates(rival):
        where = (rival["metadata"]["namespace"], name)
        if where not in surroundings.templates_elsewhere:
            return None
        found |= _kinds_of(surroundings.templates_elsewhere[where])
    return found


def _kinds_of(template: Object | None) -> set[Kind]:
    """Nothing for a template that is not there."""
    return set() if template is None else set(kinds_of_claim(template["spec"]["spec"]))
