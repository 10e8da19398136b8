"""Scalers: whether the devices exist that a ceiling asks for, and whether somebody else scales the stack's roles.

A ceiling is judged against everything that the cluster has, whoever holds it now and whether or not it takes Pods just
now: what others hold may come free, a cordoned node comes back, and what does not exist does not. A scaler that asks
for such Pods leaves them waiting, and counts them as what it has.

A rival is seen by its HorizontalPodAutoscaler. What scales a Deployment without one (AIBrix's own strategies KPA and
APA, other operators) is left alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stack import names
from stack.guards.devices import claim_specs, placement_of, take_stock
from stack.guards.finding import GuardFinding, refusal, warning
from stack.guards.identity import has_labels
from stack.guards.taken_back import had_its_template
from stack.spares.demand import read_demand
from stack.spares.fit import Outcome, judge
from stack.spares.pods import each, inside, pod_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stack.config.root import StackConfig
    from stack.facts import Object, Surroundings, TrialFacts
    from stack.planned import StackPlan, WorkloadPlan
    from stack.spares.supply import Supply

SCALERS_OF_SCALERS = {"ScaledObject": "keda", "PodAutoscaler": "aibrix"}
"""What makes a HorizontalPodAutoscaler of its own, and the provider that stands for it."""


def guard_ceilings(
    config: StackConfig,
    plan: StackPlan,
    surroundings: Surroundings,
    trial: TrialFacts,
    *,
    supply: Supply | None = None,
) -> Iterator[GuardFinding]:
    """Ceilings that no devices exist for: refused where this change asks for more than before, warned of elsewhere.

    Args:
        config: the configuration.
        plan: its plan.
        surroundings: what is around the stack.
        trial: the planned Deployments as they would be stored.
        supply: what `take_stock` makes of the surroundings, where somebody has asked already.
    """
    scalers = plan.modelserver.scalers
    if not scalers or config.guards.devices == "off" or surroundings.slices is None or surroundings.nodes is None:
        return
    specs = dict(claim_specs(plan, surroundings))
    wanted = [
        (read_demand(workload.role, workload.object.manifest["spec"]["template"], specs), workload.most)
        for workload in plan.modelserver.workloads
    ]
    everybody = frozenset(pod["metadata"]["uid"] for pod in surroundings.pods or ())
    # Mostly there is enough with nodes and devices that are set aside left out, and that stock is there already.
    if judge(supply or take_stock(surroundings), wanted, freed=everybody).outcome is not Outcome.CANNOT:
        return
    verdict = judge(take_stock(_with_all_that_exists(surroundings)), wanted, freed=everybody)
    if verdict.outcome is not Outcome.CANNOT:
        return
    counts = ", ".join(f"{demand.name} {pods}" for demand, pods in wanted)
    told = "; ".join([*verdict.reasons, *map(str, verdict.shares)])
    key = f"autoscaling.{scalers[0].role}.maxReplicas" if len(scalers) == 1 else "autoscaling"
    say = refusal if _asks_for_more(plan, surroundings, trial) else warning
    yield say(
        "devices",
        key,
        counts,
        "the devices for the most Pods do not exist, and a scaler would ask for Pods that wait for ever, whoever gives "
        f"devices back: {told}",
        fix="Lower maxReplicas to what the nodes have, or add nodes first",
    )


def _with_all_that_exists(surroundings: Surroundings) -> Surroundings:
    """The same without cordons and taints: what takes no Pod for now will again, and is there."""
    at_work: Object = {"unschedulable": False, "taints": []}
    bare: Object = {"taints": []}
    nodes: list[Object] = [{**node, "spec": {**inside(node, "spec"), **at_work}} for node in surroundings.nodes or ()]
    slices: list[Object] = [
        {
            **found,
            "spec": {**found["spec"], "devices": [{**device, **bare} for device in each(found, "spec", "devices")]},
        }
        for found in surroundings.slices or ()
    ]
    return replace(surroundings, nodes=nodes, slices=slices)


def _asks_for_more(plan: StackPlan, surroundings: Surroundings, trial: TrialFacts) -> bool:
    """Whether this change raises the most Pods of a role, or what one of them needs. What is not known does not count.

    Otherwise a node that goes would keep every update from being made, the one that takes something back included.
    """
    deployments, scalers = surroundings.deployments, surroundings.scalers
    if deployments is None:
        return False
    live = {
        found["metadata"]["name"]: found
        for found in deployments
        if found["metadata"].get("namespace") == plan.namespace
    }
    for workload in plan.modelserver.workloads:
        name = workload.object.name
        if (has := live.get(name)) is None:
            return True
        if workload.is_scaled:
            ours = _ours(scalers or (), plan, workload)
            ceiling = max((found["spec"].get("maxReplicas", 0) for found in ours), default=0)
            are_more = scalers is not None and workload.most > ceiling
        else:
            are_more = workload.most > has["spec"].get("replicas", 1)
        gets = trial.results.get(name, workload.object.manifest)
        if are_more or (_needs_more(has, gets) and not had_its_template(name, surroundings, trial)):
            return True
    return False


def _needs_more(before: Object, after: Object) -> bool:
    """Whether a Pod requests more of anything, or is placed by something else: other claims, another selector."""
    was, becomes = placement_of(before), placement_of(after)
    if any(was[key] != becomes[key] for key in was if key != "resources"):
        return True
    had = pod_requests(before["spec"]["template"]["spec"])
    asked = pod_requests(after["spec"]["template"]["spec"])
    return any(amount > had.get(resource, 0) for resource, amount in asked.items())


def guard_rivals_of_scalers(plan: StackPlan, surroundings: Surroundings) -> Iterator[GuardFinding]:
    """Scalers of somebody else that pull at a Deployment of the stack."""
    targets = {workload.object.name: workload for workload in plan.modelserver.workloads}
    scalers = {scaler.workload: scaler for scaler in plan.modelserver.scalers}
    for live in surroundings.scalers or ():
        workload = targets.get(_target(live) or "")
        if workload is None or _is_ours(live, plan.release, workload.role):
            continue
        name, target = live["metadata"]["name"], workload.object.name
        owner = next((f"{by['kind']} {by['name']}" for by in live["metadata"].get("ownerReferences") or ()), None)
        made = "" if owner is None else f", made by {owner}"
        what = f"horizontalpodautoscaler {name}" if owner is None else owner.lower()
        delete = f"Delete that one (`kubectl -n {plan.namespace} delete {what}`)"
        if (scaler := scalers.get(target)) is not None:
            yield refusal(
                "names",
                f"autoscaling.{scaler.role}.provider",
                scaler.provider,
                f"HorizontalPodAutoscaler {name}{made} scales Deployment {target} as well, and of two each undoes what "
                "the other does",
                fix=delete,
            )
        elif workload.entry is not None:
            yield warning(
                "names",
                f"modelserver.nodePlacement[{workload.entry}]",
                "",
                f"HorizontalPodAutoscaler {name}{made} scales Deployment {target}, and each change of it resets the "
                "number to 1",
                fix=delete,
            )
        else:
            yield warning(
                "names",
                f"autoscaling.{workload.role}.provider",
                "none",
                f"HorizontalPodAutoscaler {name}{made} scales Deployment {target}, and each change of it resets the "
                f"number to {workload.replicas} (modelserver.replicas.{workload.role})",
                fix=f"{delete}, and let the stack scale the role if it is to be scaled (block autoscaling)",
            )


def _ours(scalers: Iterable[Object], plan: StackPlan, workload: WorkloadPlan) -> Iterator[Object]:
    """HorizontalPodAutoscalers of the stack for a workload, whoever made them for it."""
    for live in scalers:
        if _target(live) == workload.object.name and _is_ours(live, plan.release, workload.role):
            yield live


def _target(live: Object) -> str | None:
    """Name of the Deployment that a HorizontalPodAutoscaler scales."""
    aim = inside(live, "spec", "scaleTargetRef")
    return aim.get("name") if aim.get("kind") == "Deployment" else None


def _is_ours(live: Object, release: str, role: str) -> bool:
    """Whether the stack made it, or its ScaledObject or PodAutoscaler did."""
    meta = live["metadata"]
    ours = names.scaler(release, role)
    owners = {(by["kind"], by["name"]) for by in meta.get("ownerReferences") or ()}
    if owners:
        return any((kind, ours) in owners for kind in SCALERS_OF_SCALERS)
    return meta["name"] == ours and has_labels(meta, release)
