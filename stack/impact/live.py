"""The live Deployments of one release with their ReplicaSets and Pods, as far as impact looks at them.

What could not be read is None, and then the next best thing is counted: ReplicaSets for Pods, the Deployment's own
status for ReplicaSets. That is said in `LiveWorkload.guesses`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stack import labels, names
from stack.impact.arithmetic import Standing
from stack.impact.templates import is_same_template
from stack.record import Record, read_record
from stack.rollout.departures import DEFAULT_GRACE_SECONDS
from stack.rollout.pods import TEMPLATE_HASH, is_leaving, is_over
from stack.scalars import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stack.facts import Object, Surroundings


@dataclass(frozen=True, kw_only=True)
class LivePod:
    """A Pod that is not over.

    Attributes:
        template: hash of its template, None without that label.
        start_seconds: from the moment that it had a node and its devices until it became Ready. None if it is not
            Ready, or if a container of it started anew: then Ready tells of that.
        grace_seconds: longest time that it may take to leave, by what it was told if it was told to.
    """

    uid: str
    template: str | None
    is_ready: bool
    is_leaving: bool
    has_node: bool
    start_seconds: int | None
    grace_seconds: int


@dataclass(frozen=True, kw_only=True)
class LiveWorkload:
    """One live Deployment.

    Attributes:
        part: `prefill`, `decode`, `aggregated` or `epp`.
        entry, node: of a nodePlacement entry.
        replica_sets: its ReplicaSets, the oldest first; None if they could not be read.
        pods: its Pods; None if they could not be read.
    """

    name: str
    part: str
    entry: int | None
    node: str | None
    deployment: Object
    replica_sets: tuple[Object, ...] | None
    pods: tuple[LivePod, ...] | None

    @property
    def replicas(self) -> int:
        """Pods it asks for."""
        return self.deployment["spec"].get("replicas", 1)

    @property
    def template(self) -> Object:
        """Its Pod template, as the API server completed it."""
        return self.deployment["spec"]["template"]

    @property
    def selector(self) -> Mapping[str, str]:
        """By which it selects its Pods."""
        return self.deployment["spec"]["selector"].get("matchLabels", {})

    @property
    def record(self) -> Record | None:
        """What it was applied with, None if that is not known."""
        return read_record(self.deployment)

    @property
    def start_seconds(self) -> int | None:
        """How long its quickest Pod took to become Ready once it had a node; None where none tells it."""
        seen = [pod.start_seconds for pod in self.pods or () if pod.start_seconds is not None]
        return min(seen) if seen else None

    @property
    def place(self) -> str:
        """Role and node of a nodePlacement entry, as they are shown."""
        return f"{self.part} on {self.node or 'no known node'}"

    @property
    def all_pods(self) -> tuple[str, ...]:
        """Uids of all its Pods, those on their way out included."""
        return tuple(pod.uid for pod in self.pods or ())

    @property
    def draining(self) -> tuple[str, ...]:
        """Uids of its Pods that are on their way out already."""
        return tuple(pod.uid for pod in self.pods or () if pod.is_leaving)

    @property
    def guesses(self) -> tuple[str, ...]:
        """What could not be read and is guessed."""
        found = {
            "its ReplicaSets": self.replica_sets is not None,
            "its Pods": self.pods is not None,
            "its status": self.replica_sets is not None or self.pods is not None or self._has_status,
        }
        return tuple(what for what, is_read in found.items() if not is_read)

    @property
    def _has_status(self) -> bool:
        """Whether the deployment controller has written one; it does as soon as it has looked at it."""
        return bool(self.deployment.get("status"))

    def of_template(self, template: Mapping[str, Any]) -> Object | None:
        """The ReplicaSet whose Pods are of this template; the oldest of several, as the controller chooses."""
        return next((rs for rs in self.replica_sets or () if is_same_template(rs["spec"]["template"], template)), None)

    def old_record(self, template: Mapping[str, Any]) -> Record | None:
        """What the newest of its Pods that are of another template were applied with; None if that is not known."""
        hashes = {pod.template for pod in self.pods or ()}
        for replica_set in reversed(self.replica_sets or ()):
            has_pods = _template_hash(replica_set) in hashes if self.pods is not None else _replicas(replica_set) > 0
            if has_pods and not is_same_template(replica_set["spec"]["template"], template):
                return read_record(replica_set)
        return None

    def leave_seconds(self, staying: Mapping[str, Any] | None = None) -> int:
        """Longest time that those of its Pods may take which leave, or have been told to already.

        Each was given a time of its own with its template, which need not be the Deployment's present one.

        Args:
            staying: the template whose Pods stay; None if none does.
        """
        stays = None if staying is None else self.of_template(staying)
        if self.pods is not None:
            kept = None if stays is None else _template_hash(stays)
            told = [(pod.grace_seconds, pod.is_leaving or kept is None or pod.template != kept) for pod in self.pods]
        else:
            found = [replica_set for replica_set in self.replica_sets or () if _replicas(replica_set)]
            told = [
                (_grace(replica_set["spec"]["template"]["spec"]), replica_set is not stays) for replica_set in found
            ]
        leaving = [seconds for seconds, leaves in told if leaves] or [seconds for seconds, _ in told]
        return max(leaving, default=_grace(self.template["spec"]))

    def is_counted(self, template: Mapping[str, Any] | None) -> bool:
        """Whether anything that was read tells how many of its Pods there are and serve."""
        return self._has_status or not self._goes_by_status(template)

    def _goes_by_status(self, template: Mapping[str, Any] | None) -> bool:
        """Whether neither ReplicaSets nor Pods tell which of its Pods are of a template."""
        is_same = template is not None and is_same_template(self.template, template)
        return self.replica_sets is None and (self.pods is None or is_same)

    def standing(self, template: Mapping[str, Any] | None) -> Standing:
        """Its Pods, counted against the template that is wanted; none of them is of it if that is None."""
        wanted = None if template is None else self.of_template(template)
        if self.pods is not None and not self._goes_by_status(template):
            new = None if wanted is None else _template_hash(wanted)
            pods = [pod for pod in self.pods if not pod.is_leaving]
            kept = [pod for pod in pods if new is not None and pod.template == new]
            return Standing(
                pods=len(pods),
                kept=len(kept),
                ready=sum(pod.is_ready for pod in pods),
                ready_kept=sum(pod.is_ready for pod in kept),
                placed=sum(pod.has_node for pod in pods),
            )
        if self.replica_sets is not None:
            return _counted(self.replica_sets, wanted)
        return self._by_status(is_same=template is not None and is_same_template(self.template, template))

    def _by_status(self, *, is_same: bool) -> Standing:
        """From the Deployment alone: which of its Pods are of its template, not of which others there are some.

        Without a status all are taken to serve, so that no outage is kept quiet (`is_counted`).
        """
        if not self._has_status:
            kept = self.replicas if is_same else 0
            return Standing(pods=self.replicas, kept=kept, ready=self.replicas, ready_kept=kept, placed=self.replicas)
        status: Object = self.deployment["status"]
        pods: int = status.get("replicas", self.replicas)
        kept = min(pods, status.get("updatedReplicas", 0)) if is_same else 0
        ready: int = min(pods, status.get("availableReplicas", 0))
        return Standing(pods=pods, kept=kept, ready=ready, ready_kept=min(kept, ready), placed=pods)


def read_live(
    around: Surroundings, *, namespace: str, release: str, others: Mapping[str, Object | None] | None = None
) -> dict[str, LiveWorkload] | None:
    """Live role Deployments and endpoint picker of a release by name; None if Deployments could not be read.

    Args:
        around: what is around the stack.
        namespace: of the stack.
        release: of the stack.
        others: Deployments by name that were read otherwise, None for one that is not there.
    """
    if around.deployments is None:
        return None
    named = {live["metadata"]["name"]: live for live in around.deployments if _is_ours(live, namespace, release)}
    named |= {name: live for name, live in (others or {}).items() if live is not None}
    pods = around.release_pods if around.release_pods is not None else around.pods
    ours = None if pods is None else [pod for pod in pods if _is_ours(pod, namespace, release)]
    return {
        name: _read(live, part, around.replica_sets, ours)
        for name, live in sorted(named.items())
        if (part := _part(live, release)) is not None
    }


def _read(
    live: Object, part: str, replica_sets: Sequence[Object] | None, pods: Sequence[Object] | None
) -> LiveWorkload:
    meta: Object = live["metadata"]
    entry: str | None = meta.get("labels", {}).get(labels.ENTRY)
    selector: dict[str, str] = live["spec"]["selector"].get("matchLabels", {})
    return LiveWorkload(
        name=meta["name"],
        part=part,
        entry=int(entry) if entry is not None and entry.isdecimal() else None,
        node=meta.get("annotations", {}).get(labels.NODE),
        deployment=live,
        replica_sets=None if replica_sets is None else _owned(replica_sets, live),
        pods=None if pods is None else tuple(_pod(pod) for pod in pods if selector.items() <= _labels(pod).items()),
    )


def _part(live: Object, release: str) -> str | None:
    if live["metadata"]["name"] == names.epp(release):
        return "epp"
    role = _labels(live).get(labels.COMPONENT)
    return role if labels.ROLE in _labels(live) and role in ROLES else None


def _is_ours(live: Object, namespace: str, release: str) -> bool:
    is_there = live["metadata"].get("namespace") == namespace
    return is_there and _labels(live).get(labels.INSTANCE) == release and not is_over(live)


def _owned(replica_sets: Iterable[Object], deployment: Object) -> tuple[Object, ...]:
    """Those of one Deployment, the oldest first."""
    uid = deployment["metadata"]["uid"]
    owned = [rs for rs in replica_sets if any(o["uid"] == uid for o in rs["metadata"].get("ownerReferences", ()))]
    return tuple(sorted(owned, key=lambda rs: (rs["metadata"].get("creationTimestamp", ""), rs["metadata"]["name"])))


def _counted(replica_sets: Iterable[Object], wanted: Object | None) -> Standing:
    """From ReplicaSets, where Pods could not be read: all are taken for placed."""
    pods = kept = ready = ready_kept = 0
    for replica_set in replica_sets:
        count, serving = _replicas(replica_set), replica_set.get("status", {}).get("readyReplicas", 0)
        pods, ready = pods + count, ready + serving
        if wanted is not None and replica_set["metadata"]["name"] == wanted["metadata"]["name"]:
            kept, ready_kept = count, serving
    return Standing(pods=pods, kept=kept, ready=ready, ready_kept=ready_kept, placed=pods)


def _replicas(replica_set: Object) -> int:
    return replica_set["spec"].get("replicas", 0)


def _template_hash(replica_set: Object) -> str | None:
    return _labels(replica_set).get(TEMPLATE_HASH)


def _labels(live: Object) -> dict[str, str]:
    return live["metadata"].get("labels", {})


def _pod(live: Object) -> LivePod:
    meta: Object = live["metadata"]
    status: Object = live.get("status", {})
    since: dict[str, str | None] = {
        condition["type"]: condition.get("lastTransitionTime")
        for condition in status.get("conditions", ())
        if condition.get("status") == "True"
    }
    containers: Iterable[Object] = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    ran_once = not any(container.get("restartCount") for container in containers)
    return LivePod(
        uid=meta["uid"],
        template=_labels(live).get(TEMPLATE_HASH),
        is_ready="Ready" in since,
        is_leaving=is_leaving(live),
        has_node=bool(live.get("spec", {}).get("nodeName")),
        start_seconds=_between(since.get("PodScheduled"), since.get("Ready")) if ran_once else None,
        grace_seconds=meta.get("deletionGracePeriodSeconds", _grace(live.get("spec", {}))),
    )


def _grace(spec: Object) -> int:
    """Of a Pod or a Pod template."""
    return spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)


def _between(began: str | None, ended: str | None) -> int | None:
    """Whole seconds from one of Kubernetes' times to another."""
    if began is None or ended is None:
        return None
    return max(0, int((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()))
