"""Pods that may still hold something: those of a release, and those of anybody that are leaving."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.connect import NOT_FOUND, ClusterError
from stack.rollout.devices import asks_for_devices, gives_back_devices, has_claims, who_holds
from stack.rollout.pods import is_over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cluster.connect import Cluster, Object
    from stack.rollout.departures import Departures, Overstay

REFUSALS = frozenset({400, 401, 403, 404, 410})
"""HTTP statuses that asking again does not change. Others (429, 5xx) are an API server's passing troubles."""
REST = 10
"""A look at the whole cluster is not taken again before this many times the time it took."""


def list_pods(cluster: Cluster, namespace: str, selector: str) -> list[Object]:
    """Pods that match, without those that are over, which hold nothing.

    Raises:
        ClusterError: they can't be listed.
    """
    listed = cluster.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
    return [pod for pod in listed if not is_over(pod)]


@dataclass(frozen=True, kw_only=True)
class Held:
    """What waiting Pods wait for.

    Attributes:
        excuses: name of a waiting Pod -> the leaving Pod that holds a device which would do for it.
        overstays: Pods that hold such devices and should have been gone, by name.
    """

    excuses: dict[str, str] = field(default_factory=dict[str, str])
    overstays: dict[str, Overstay] = field(default_factory=dict[str, "Overstay"])


class LeavingPods:
    """Pods on their way out, of whatever release and namespace, and what becomes free with them.

    The namespace is looked at first, the whole cluster only for Pods that find nothing there, and if it may be. A Pod
    that should have been gone counts as one that gives back its devices only where no other does.
    """

    def __init__(self, cluster: Cluster, namespace: str, clock: Callable[[], float], departures: Departures) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._clock = clock
        self._departures = departures
        self._elsewhere: list[Object] = []
        self._look_again_at: float | None = None
        self._may_look = True

    def hold_for(self, waiting: Sequence[Object]) -> Held:
        """Which leaving Pods hold what these wait for.

        Args:
            waiting: Pods of the namespace without a node.

        Raises:
            ClusterError: no answer.
        """
        waiting = [pod for pod in waiting if asks_for_devices(pod)]
        if not waiting:
            return Held()
        here = [p for p in self._cluster.list(f"/api/v1/namespaces/{self._namespace}/pods") if gives_back_devices(p)]
        claims: dict[str, dict[str, Object] | None] = {}
        if any(map(has_claims, waiting)):
            claims[self._namespace] = self._claims(self._namespace)
        found = who_holds(waiting, self._in_time(here), claims)
        late: dict[str, Object] = {}
        if rest := _without(waiting, found):
            elsewhere = self._look_elsewhere()
            for namespace in {pod["metadata"]["namespace"] for pod in elsewhere if has_claims(pod)}:
                claims[namespace] = self._claims(namespace)
            anywhere = [*here, *elsewhere]
            found |= who_holds(rest, self._in_time(anywhere), claims)
            late = who_holds(_without(rest, found), anywhere, claims)
        overstays = {self._name(pod["metadata"]): self._departures.overstay(pod) for pod in late.values()}
        return Held(
            excuses={name: self._name(holder["metadata"]) for name, holder in found.items()},
            overstays={name: overstay for name, overstay in overstays.items() if overstay is not None},
        )

    def _in_time(self, leaving: Sequence[Object]) -> list[Object]:
        self._departures.look(self._clock(), leaving)
        return [pod for pod in leaving if self._departures.overstay(pod) is None]

    def _name(self, meta: Object) -> str:
        is_here = meta["namespace"] == self._namespace
        return meta["name"] if is_here else f"{meta['namespace']}/{meta['name']}"

    def _look_elsewhere(self) -> list[Object]:
        began = self._clock()
        if not self._may_look or (self._look_again_at is not None and began < self._look_again_at):
            return self._elsewhere
        try:
            listed = self._cluster.list(
                "/api/v1/pods",
                fieldSelector=f"metadata.namespace!={self._namespace},spec.nodeName!=,"
                "status.phase!=Succeeded,status.phase!=Failed",
            )
        except ClusterError as error:
            if error.status not in REFUSALS:
                raise
            self._may_look = False
            return []
        self._elsewhere = [pod for pod in listed if gives_back_devices(pod)]
        now = self._clock()
        self._look_again_at = now + REST * (now - began)
        return self._elsewhere

    def _claims(self, namespace: str) -> dict[str, Object] | None:
        """ResourceClaims by name; None if they may not be listed."""
        try:
            listed = self._cluster.list(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
        except ClusterError as error:
            if error.status not in REFUSALS:
                raise
            return {} if error.status == NOT_FOUND else None
        return {claim["metadata"]["name"]: claim for claim in listed}


def _without(waiting: Sequence[Object], found: Mapping[str, Object]) -> list[Object]:
    return [pod for pod in waiting if pod["metadata"]["name"] not in found]
