"""How far the roll-out of one Deployment is, and whether nothing is left to wait for.

The provider's own wait ended after 0.3 s in roll-outs that took 17 s and more, so this decides alone; and it decides by
the Pods themselves as well as by the Deployment's counts, in which old Pods and new ones are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.rollout.pods import TEMPLATE_HASH, Kind, Object, PodState, Trouble, is_leaving, is_over

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stack.planned import RollOutPlan

REVISION = "deployment.kubernetes.io/revision"
"""Annotation of a Deployment and its ReplicaSets. The ReplicaSet of the template in force always has the highest: the
controller raises it when it goes back to an old template, a moment before it writes the Deployment's own."""


@dataclass(frozen=True, kw_only=True)
class RollOut:
    """How far one Deployment is.

    Attributes:
        wanted: Pods, as the live Deployment asks for them: an autoscaler may own the number.
        needed: how many of them have to be Ready; fewer where only a leader ever is.
        updated, available: by the Deployment's status; available ones may be old.
        is_observed: whether Kubernetes has looked at the newest version of the Deployment.
        newest: hash of its Pod template; None while nothing is known to be new.
        new: Pods of that template that stay. old: Pods of others that were not told to go yet. leaving: told to go and
            still there, of whatever template. ended: over, of whatever template.
        awaits_leave: whether a Pod that leaves is waited for.
        floor: fewest Pods that a scaler has to bring there first; 0 where none does.
        refused: why Kubernetes can't make Pods, None when it can.
        gave_up: why Kubernetes gave up, None while it still tries.
        is_paused: whether somebody told Kubernetes not to roll out any template for now (`kubectl rollout pause`).
    """

    wanted: int
    needed: int
    updated: int
    available: int
    is_observed: bool
    newest: str | None
    new: tuple[PodState, ...]
    old: tuple[PodState, ...]
    leaving: tuple[PodState, ...]
    ended: tuple[PodState, ...]
    awaits_leave: bool
    floor: int
    refused: Trouble | None
    gave_up: str | None
    is_paused: bool

    @classmethod
    def read(cls, plan: RollOutPlan, deployment: Object, pods: Iterable[Object], *, newest: str | None) -> RollOut:
        """From a live Deployment, all its Pods, and the hash of its newest template."""
        status: Object = deployment.get("status", {})
        conditions: dict[str, Object] = {condition["type"]: condition for condition in status.get("conditions", ())}
        observed = is_observed(deployment)
        wanted: int = deployment["spec"].get("replicas", 1)
        states = sorted(map(PodState.read, pods), key=lambda pod: pod.name)
        leaving = [pod for pod in states if pod.is_leaving and not pod.is_over]
        if plan.floor is not None and observed and newest is not None:
            # A scaler takes Pods away whenever it likes; those of the newest template are no part of the roll-out.
            leaving = [pod for pod in leaving if pod.template != newest]
        staying = [pod for pod in states if not pod.is_over and not pod.is_leaving]
        return cls(
            wanted=wanted,
            needed=wanted if plan.ready == plan.pods else min(plan.ready, wanted),
            updated=status.get("updatedReplicas", 0),
            available=status.get("availableReplicas", 0),
            is_observed=observed,
            newest=newest if observed else None,
            new=tuple(pod for pod in staying if observed and newest is not None and pod.template == newest),
            old=tuple(pod for pod in staying if not observed or newest is None or pod.template != newest),
            leaving=tuple(leaving),
            ended=tuple(pod for pod in states if pod.is_over),
            awaits_leave=plan.awaits_leave,
            floor=plan.floor or 0,
            refused=_refused(conditions.get("ReplicaFailure", {})) if observed else None,
            gave_up=_gave_up(conditions.get("Progressing", {})) if observed else None,
            is_paused=deployment["spec"].get("paused", False),
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to wait for: every Pod that stays is new, and as many as needed are Ready.

        Ready ones are counted among the new Pods, so that a leader from before the change is not taken for its
        successor; what leaves no longer counts, and is only waited for where it holds something.
        """
        return self.wanted >= self.floor and self._has_what_it_wants

    @property
    def unscaled(self) -> Trouble | None:
        """What to say of a scaler that has not asked for its floor, once nothing else is waited for.

        It brings that many at once, whatever its metrics are; one that nobody runs never does, and no Pod shows it.
        """
        if self.wanted >= self.floor or not self._has_what_it_wants:
            return None
        message = f"its scaler asks for no more than {self.wanted}"
        return Trouble(kind=Kind.UNSCALED, reason=f"at least {self.floor} are wanted", message=message)

    @property
    def _has_what_it_wants(self) -> bool:
        return (
            self.is_observed
            and self.updated == self.wanted == len(self.new)
            and not self.old
            and not (self.awaits_leave and self.leaving)
            and sum(pod.is_ready for pod in self.new) >= self.needed
            and self.available >= self.needed
        )

    @property
    def is_halted(self) -> bool:
        """Whether Pods of an old template stay for ever, since the Deployment is paused.

        A paused one is still scaled, so Pods of its newest template may be on their way; they are waited for.
        """
        if not (self.is_paused and self.is_observed and self.wanted):
            return False
        return any(pod.template is not None for pod in self.old) or (bool(self.new) and not self.updated)

    @property
    def awaited(self) -> tuple[PodState, ...]:
        """Leaving Pods that hold up the rest: they hold devices, or no new Pod is made before they are gone."""
        return self.leaving if self.awaits_leave or not self.new else ()

    @property
    def unschedulable(self) -> frozenset[str]:
        """Names of new Pods that find no node."""
        return frozenset(
            pod.name for pod in self.new if pod.trouble is not None and pod.trouble.kind is Kind.UNSCHEDULABLE
        )


def is_observed(deployment: Object) -> bool:
    """Whether the controller has looked at the newest version of a Deployment."""
    return deployment.get("status", {}).get("observedGeneration", 0) >= deployment["metadata"]["generation"]


def newest_by_count(deployment: Object, pods: Iterable[Object]) -> str | None:
    """Hash of the newest template where the counts alone tell it: all Pods that stay are of one, and all are updated.

    That is so before and after most roll-outs, and saves listing the ReplicaSets. None where it takes more.
    """
    if not is_observed(deployment):
        return None
    hashes = [_hash(pod) for pod in pods if _stays(pod)]
    updated = deployment.get("status", {}).get("updatedReplicas", 0)
    return hashes[0] if len(set(hashes)) == 1 and updated == len(hashes) else None


def newest_by_revision(deployment: Object, replica_sets: Sequence[Object]) -> str | None:
    """Hash of the newest template by the ReplicaSets of a Deployment; None if nothing tells it (yet)."""
    if not is_observed(deployment):
        return None
    uid = deployment["metadata"].get("uid")
    revisions: list[tuple[int, str]] = []
    for replica_set in replica_sets:
        meta: Object = replica_set["metadata"]
        owners = {owner["uid"] for owner in meta.get("ownerReferences", ())}
        revision: str = meta.get("annotations", {}).get(REVISION, "")
        template: str | None = meta.get("labels", {}).get(TEMPLATE_HASH)
        if revision.isdecimal() and template is not None and (not owners or uid in owners):
            revisions.append((int(revision), template))
    return max(revisions)[1] if revisions else None


def newest_by_age(deployment: Object, pods: Iterable[Object]) -> str | None:
    """A good guess where the ReplicaSets may not be listed: what was made last is of the newest template."""
    if not is_observed(deployment) or not deployment.get("status", {}).get("updatedReplicas", 0):
        return None
    made: list[tuple[str, str]] = [
        (pod["metadata"].get("creationTimestamp", ""), template)
        for pod in pods
        if _stays(pod) and (template := _hash(pod)) is not None
    ]
    return max(made)[1] if made else None


def _stays(pod: Object) -> bool:
    return not is_leaving(pod) and not is_over(pod)


def _hash(pod: Object) -> str | None:
    return pod["metadata"].get("labels", {}).get(TEMPLATE_HASH)


def _refused(condition: Object) -> Trouble | None:
    if condition.get("status") != "True":
        return None
    return Trouble(kind=Kind.REFUSED, reason="no Pod can be made", message=condition.get("message", ""))


def _gave_up(condition: Object) -> str | None:
    return condition.get("message", "no message") if condition.get("status") == "False" else None
