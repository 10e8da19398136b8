"""Volumes that only one Pod, or only the Pods of one node, can mount: where a Pod that comes beside another can be.

The scheduler knows the first (`ReadWriteOncePod`) and not the second: a Pod that it puts on another node than the one
where a `ReadWriteOnce` volume is attached waits there for ever (Kubernetes documentation, *Persistent Volumes*, Access
Modes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stack.guards import references
from stack.rollout.pods import is_leaving
from stack.spares.pods import REQUIRED, each, inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stack.facts import Object, Surroundings
    from stack.planned import StackPlan

SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
ONE_POD = "ReadWriteOncePod"


@dataclass(frozen=True, kw_only=True)
class Tie:
    """What ties new Pods of a Deployment to nodes while another Pod mounts the same volume.

    Attributes:
        claim: its name.
        nodes: where it is mounted.
    """

    claim: str
    nodes: frozenset[str]


def modes_of(claim: str, plan: StackPlan, surroundings: Surroundings) -> frozenset[str] | None:
    """Access modes of a PersistentVolumeClaim: of the bound volume, else as they are written; None if not known."""
    live = (surroundings.volume_claims or {}).get(claim)
    if live is not None:
        # Of the volume's modes those count by which it is attached; for one Pod alone is a matter of the claim.
        written: list[str] = live["spec"].get("accessModes") or []
        return frozenset(written if ONE_POD in written else inside(live, "status").get("accessModes") or written)
    planned = [volume.object.manifest for volume in plan.volumes if volume.object.name == claim]
    return frozenset(planned[0]["spec"]["accessModes"]) if planned else None


def for_one_pod(plan: StackPlan, surroundings: Surroundings) -> dict[str, str]:
    """Deployments that mount a claim which one Pod at a time can mount, and its name."""
    return {
        workload: claim
        for claim, mounts in references.mounted_claims(plan).items()
        if ONE_POD in (modes_of(claim, plan, surroundings) or ())
        for workload in mounts
    }


def ties(plan: StackPlan, surroundings: Surroundings) -> dict[str, Tie]:
    """Deployments whose new Pods have to be where Pods that stay for now mount the same claim."""
    found: dict[str, Tie] = {}
    for claim, mounts in references.mounted_claims(plan).items():
        modes = modes_of(claim, plan, surroundings) or SHARED
        if modes & SHARED:
            continue
        nodes = frozenset(
            pod["spec"]["nodeName"]
            for pod in surroundings.release_pods or ()
            if pod["spec"].get("nodeName") and not is_leaving(pod) and _mounts(pod, claim)
        )
        if nodes:
            found |= {workload: Tie(claim=claim, nodes=nodes) for workload in mounts if workload not in found}
    return found


def _mounts(pod: Object, claim: str) -> bool:
    return any(
        inside(volume, "persistentVolumeClaim").get("claimName") == claim for volume in each(pod, "spec", "volumes")
    )


def kept_to(template: Object, nodes: frozenset[str], *, away: bool = False) -> Object:
    """A Pod template whose Pods may only be on these nodes, or on none of them."""
    field = {"key": "metadata.name", "operator": "NotIn" if away else "In", "values": sorted(nodes)}
    spec: Object = template["spec"]
    affinity: Object = inside(spec, "affinity")
    near: Object = inside(affinity, "nodeAffinity")
    # One of the terms has to hold, and of a term everything.
    terms: Sequence[Object] = each(near, REQUIRED, "nodeSelectorTerms") if REQUIRED in near else [{}]
    kept: list[dict[str, Any]] = [term | {"matchFields": [*each(term, "matchFields"), field]} for term in terms]
    required = {REQUIRED: {"nodeSelectorTerms": kept}}
    return template | {"spec": spec | {"affinity": affinity | {"nodeAffinity": near | required}}}
